//! Every file of a ledger on a disk that lost its power: redb's file, the segments and the head marker,
//! in the order in which the real code wrote and synced them.
//!
//! Method: the writes of a process are recorded. For each sync there are images of what could be on the
//! disk shortly before it: what was synced, and of the rest nothing, all, some, in another order, or
//! torn. Each image is opened by the real code and held against what was acknowledged by then. A disk
//! that lies about the syncs of all files, or of one kind of file, must be caught by the same checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncegate_tests::appends::{self, Acknowledged};
use oncegate_tests::baddisk::{Change, Op, read_changes, record};
use oncegate_tests::harness::{Harness, Run};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};
use tempfile::TempDir;

const SEED: u64 = 17;
/// Effects that the recorded process lives.
const EFFECTS: &str = "18";
/// Images of one moment that chance makes, beside those of nothing and of all.
const CHOICES: usize = 4;
/// Every so many images the recovery itself is recorded and cut off.
const RECOVERY_EVERY: usize = 40;
/// What a disk writes whole.
const SECTOR_BYTES: usize = 512;
const ACKNOWLEDGED: &str = "acknowledged";
const LEDGER: &str = "ledger.redb";
const MARKER: &str = "ledger.redb.head";
const SEGMENTS: &str = "ledger.redb.segments";

/// What a ledger is made of. Locks and sockets beside it say only who lives now.
fn is_kept(name: &Path) -> bool {
    name == Path::new("") || [LEDGER, MARKER, SEGMENTS].iter().any(|kept| name.starts_with(kept))
}

/// A folder in memory where there is one: thousands of files are written.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("oncegate-images-").tempdir_in(place).unwrap()
}

/// Which syncs did nothing.
type Lies = fn(&Path) -> bool;

#[derive(Clone, Debug)]
struct Write {
    path: PathBuf,
    op: Op,
}

/// What is on the disk for good, and what is on its way.
#[derive(Clone, Debug, Default)]
struct Disk {
    files: BTreeMap<PathBuf, Vec<u8>>,
    folders: BTreeSet<PathBuf>,
    /// Names that their folder has and the disk may not have.
    fresh: BTreeSet<PathBuf>,
    pending: Vec<Write>,
}

impl Disk {
    /// All of a ledger that is in a folder, for good.
    fn of(folder: &Path) -> Disk {
        let mut disk = Disk::default();
        let names = |folder: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(folder).unwrap();
            entries.map(|entry| PathBuf::from(entry.unwrap().file_name())).collect()
        };
        for name in names(folder).into_iter().filter(|name| is_kept(name)) {
            if name == Path::new(SEGMENTS) {
                let inner = names(&folder.join(&name)).into_iter().map(|inner| name.join(inner));
                disk.files.extend(inner.map(|inner| (inner.clone(), fs::read(folder.join(inner)).unwrap())));
                disk.folders.insert(name);
            } else {
                disk.files.insert(name.clone(), fs::read(folder.join(name)).unwrap());
            }
        }
        disk
    }

    /// Takes a change as a disk does whose syncs are true, but for those that lie.
    fn take(&mut self, name: &Path, op: &Op, lies: Lies) {
        match op {
            Op::Write(..) | Op::Size(_) => self.pending.push(Write { path: name.to_owned(), op: op.clone() }),
            Op::Create => {
                self.files.entry(name.to_owned()).or_default();
                self.fresh.insert(name.to_owned());
            }
            Op::Folder => {
                self.folders.insert(name.to_owned());
                self.fresh.insert(name.to_owned());
            }
            Op::Sync if lies(name) => {}
            Op::Sync => {
                let pending = std::mem::take(&mut self.pending);
                let (synced, left) = pending.into_iter().partition(|write| write.path == name);
                self.pending = left;
                apply(&mut self.files, &synced);
                self.fresh.retain(|fresh| fresh.parent() != Some(name));
            }
            // A ledger's own files are never removed or renamed while it is written.
            Op::Unlink => assert!(!self.files.contains_key(name), "{} was removed", name.display()),
            Op::Link(_) | Op::Rename(_) => panic!("{} got another name", name.display()),
        }
    }

    /// The disk with these of the pending writes, without the fresh names that are forgotten.
    fn image(&self, writes: &[Write], forgotten: &BTreeSet<PathBuf>) -> Disk {
        let gone = |path: &Path| path.ancestors().any(|part| forgotten.contains(part));
        let mut image = Disk { files: self.files.clone(), folders: self.folders.clone(), ..Disk::default() };
        apply(&mut image.files, writes);
        image.files.retain(|path, _| !gone(path));
        image.folders.retain(|path| !gone(path));
        image
    }

    fn images(&self, random: &mut SmallRng) -> Vec<Disk> {
        let none = BTreeSet::new();
        let mut images = vec![self.image(&[], &self.fresh), self.image(&[], &none), self.image(&self.pending, &none)];
        for _ in 0..CHOICES {
            let forgotten = self.fresh.iter().filter(|_| random.random()).cloned().collect();
            let mut some: Vec<Write> = self.pending.iter().filter(|_| random.random()).cloned().collect();
            images.push(self.image(&some, &forgotten));
            some.shuffle(random);
            images.push(self.image(&some, &forgotten));
            some.iter_mut().for_each(|write| tear(write, random));
            images.push(self.image(&some, &forgotten));
        }
        images
    }

    fn put(&self, folder: &Path) {
        for name in &self.folders {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        for (name, bytes) in &self.files {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, bytes).unwrap();
        }
    }
}

fn apply(files: &mut BTreeMap<PathBuf, Vec<u8>>, writes: &[Write]) {
    for write in writes {
        let file = files.entry(write.path.clone()).or_default();
        match &write.op {
            Op::Size(length) => file.resize(*length as usize, 0),
            Op::Write(offset, bytes) => {
                let end = *offset as usize + bytes.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[*offset as usize..end].copy_from_slice(bytes);
            }
            _ => unreachable!("only these are pending"),
        }
    }
}

/// Leaves a beginning of it, or an end.
fn tear(write: &mut Write, random: &mut SmallRng) {
    let Op::Write(offset, bytes) = &mut write.op else { return };
    let cut = random.random_range(0..=bytes.len() / SECTOR_BYTES) * SECTOR_BYTES;
    if random.random() {
        bytes.truncate(cut);
    } else {
        *offset += cut as u64;
        bytes.drain(..cut);
    }
}

/// A recorded process: the disk before it, and what it did.
struct Recording {
    folder: PathBuf,
    before: Disk,
    changes: Vec<Change>,
}

impl Recording {
    /// Records an appender of so many effects in this folder.
    fn of(folder: &Path, effects: &str) -> Recording {
        let before = Disk::of(folder);
        let trace = folder.with_extension("trace");
        let mut appender = Command::new(env!("CARGO_BIN_EXE_appender"));
        appender.arg(folder.join(LEDGER)).args(["0", effects]).arg(folder.join(ACKNOWLEDGED));
        record(&mut appender, &folder.display().to_string(), &trace).unwrap();
        let run = Run::of(&mut appender).unwrap();
        assert!(!run.stderr.contains("panicked"), "{run:?}");
        let changes = read_changes(&trace).unwrap();
        fs::remove_file(trace).unwrap();
        Recording { folder: folder.to_owned(), before, changes }
    }

    /// Gives the disk before each sync, and what was acknowledged until then.
    fn before_each_sync(&self, lies: Lies, mut look: impl FnMut(&Disk, &Acknowledged)) {
        let mut disk = self.before.clone();
        let mut heard = String::new();
        for change in &self.changes {
            let name = change.path.strip_prefix(&self.folder).unwrap();
            match &change.op {
                Op::Write(_, line) if name == Path::new(ACKNOWLEDGED) => {
                    heard.push_str(std::str::from_utf8(line).unwrap());
                }
                op if is_kept(name) => {
                    if *op == Op::Sync {
                        look(&disk, &appends::acknowledged(&heard));
                    }
                    disk.take(name, op, lies);
                }
                _ => {}
            }
        }
        look(&disk, &appends::acknowledged(&heard));
    }
}

#[derive(Default)]
struct Found {
    moments: usize,
    images: usize,
    recoveries: usize,
    wrong: Vec<String>,
}

impl Found {
    fn look(&mut self, image: &Disk, acknowledged: &Acknowledged) {
        let place = folder();
        image.put(place.path());
        self.images += 1;
        if let Err(why) = appends::examine(&place.path().join(LEDGER), acknowledged) {
            self.wrong.push(format!("seed {SEED}, moment {}, image {}: {why:#}", self.moments, self.images));
        }
    }

    /// The recovery of an image is recorded and cut off in its turn.
    fn look_at_recovery(&mut self, image: &Disk, acknowledged: &Acknowledged, lies: Lies, random: &mut SmallRng) {
        let place = folder();
        image.put(place.path());
        let recovery = Recording::of(place.path(), "0");
        self.recoveries += 1;
        recovery.before_each_sync(lies, |disk, _| {
            let images = disk.images(random);
            images.iter().step_by(3).for_each(|image| self.look(image, acknowledged));
        });
    }
}

fn recorded() -> (TempDir, Recording) {
    let place = folder();
    let ledger = format!("redb:{}", place.path().join(LEDGER).display());
    let init = Harness::new("refunds").unwrap().run(&["--ledger", &ledger, "ledger", "init"]).unwrap();
    assert_eq!(init.code, Some(0), "{init:?}");
    let recording = Recording::of(place.path(), EFFECTS);
    (place, recording)
}

fn cut_everywhere(lies: Lies) -> Found {
    let (_place, recording) = recorded();
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut found = Found::default();
    recording.before_each_sync(lies, |disk, acknowledged| {
        found.moments += 1;
        for image in disk.images(&mut random) {
            found.look(&image, acknowledged);
            if found.images.is_multiple_of(RECOVERY_EVERY) {
                found.look_at_recovery(&image, acknowledged, lies, &mut random);
            }
        }
    });
    found
}

#[test]
fn no_image_of_ledger_segments_and_marker_has_lost_anything() {
    let found = cut_everywhere(|_| false);
    println!("seed {SEED}: {} moments, {} images, {} recoveries", found.moments, found.images, found.recoveries);
    assert!(found.wrong.is_empty(), "{} of {}: {:#?}", found.wrong.len(), found.images, found.wrong.first());
    assert!(found.moments > 30 && found.images > 500 && found.recoveries > 5, "the recording is not trivial");
}

#[track_caller]
fn is_caught(what: &str, lies: Lies, one_in: usize) {
    let (_place, recording) = recorded();
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut found = Found::default();
    recording.before_each_sync(lies, |disk, acknowledged| {
        found.moments += 1;
        // Fewer moments: what is lost stays lost.
        if found.moments % 4 == 0 {
            disk.images(&mut random).iter().for_each(|image| found.look(image, acknowledged));
        }
    });
    println!("{what}: {} of {} images caught", found.wrong.len(), found.images);
    assert!(found.wrong.len() * one_in > found.images, "{what}: the checks check something");
}

#[test]
fn a_disk_that_lies_about_every_file_is_caught() {
    is_caught("all syncs", |_| true, 2);
}

#[test]
fn a_disk_that_lies_about_the_ledger_is_caught() {
    is_caught("syncs of the ledger", |name| name == Path::new(LEDGER), 2);
}

#[test]
fn a_disk_that_lies_about_segments_is_caught() {
    is_caught("syncs of segments", |name| name.starts_with(SEGMENTS), 8);
}
