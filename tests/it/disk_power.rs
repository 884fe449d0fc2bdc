//! Real power cuts: a file system of its own is cut off from its disk while programs write to a ledger
//! on it. What was acknowledged before the cut is there after it, and the provider has made at most one
//! effect for each key.
//!
//! Where nothing can be mounted these tests say that they were skipped.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::appends::{self, Acknowledged};
use oncegate_tests::baddisk::{BadDisk, Fault};
use oncegate_tests::harness::{Harness, Run, Running};
use oncegate_tests::shim;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tempfile::TempDir;

use crate::agent::{Heard, refund};
use crate::kills::{Soon, receipts, soon};

const SEED: u64 = 3;
/// Cuts while one process appends, and while the whole program makes refunds.
const CUTS: usize = 24;
const REFUND_CUTS: usize = 20;
const LONG: Duration = Duration::from_secs(60);
/// How long an appender writes before the power goes, at most.
const WRITES_MS_MAX: u64 = 250;
/// Of a disk that lies, so many cuts are tried until one shows it.
const LYING_CUTS: usize = 6;

/// A file system in a file, mounted.
pub(crate) struct Mount {
    folder: TempDir,
}

impl Mount {
    /// None where nobody may mount; said on the real standard error, which no test harness keeps to itself.
    pub(crate) fn new(test: &str) -> Option<Mount> {
        let mount = Mount { folder: tempfile::Builder::new().prefix("oncegate-power-").tempdir().unwrap() };
        fs::create_dir(mount.path()).unwrap();
        let image = mount.image();
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let tried = says(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image)).and_then(|()| mount.try_mount());
        match tried {
            Ok(()) => Some(mount),
            Err(why) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED {test}: no file system can be mounted here: {why}");
                None
            }
        }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// A folder that no cut reaches.
    fn outside(&self) -> &Path {
        self.folder.path()
    }

    fn try_mount(&self) -> Result<(), String> {
        says(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.path()))
    }

    /// From now on nothing reaches the disk.
    fn cut(&self, how: &str) {
        let cut = shim::program("cutpower").unwrap();
        says(Command::new(cut).arg(self.path()).arg(how)).unwrap();
    }

    /// After the power came back. A process that was just killed may hold it for a moment, and others may take the
    /// loop device that was free.
    fn again(&self) {
        insist(|| says(Command::new("umount").arg(self.path())));
        insist(|| self.try_mount());
    }
}

fn insist(mut act: impl FnMut() -> Result<(), String>) {
    let started = Instant::now();
    while let Err(why) = act() {
        assert!(started.elapsed() < LONG, "{why}");
        thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It may not be mounted.
        let _ = says(Command::new("umount").arg("--lazy").arg(self.path()));
    }
}

fn says(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

fn init(harness: &Harness, ledger: &Path) {
    let run = harness.run(&["--ledger", &format!("redb:{}", ledger.display()), "ledger", "init"]).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
}

/// What one appender was told until the power went.
struct Cut {
    acknowledged: Acknowledged,
    /// The first number that no effect has.
    next: u32,
}

/// Appends for a while, on a disk that lies or not, and cuts the power.
fn append_and_cut(mount: &Mount, first: u32, random: &mut SmallRng, lies: bool) -> Cut {
    let file = mount.outside().join(format!("acknowledged-{first}"));
    let mut appender = Command::new(env!("CARGO_BIN_EXE_appender"));
    appender.arg(mount.path().join("ledger.redb")).args([&first.to_string(), "100000"]).arg(&file);
    if lies {
        let disk = BadDisk::new("ledger.redb", mount.outside());
        disk.under(&mut appender).unwrap();
        disk.breaks(Fault::Lie).unwrap();
    }
    let running = Running::start(&mut appender).unwrap();
    let read = || fs::read_to_string(&file).unwrap_or_default();
    let started = Instant::now();
    while read().is_empty() {
        assert!(started.elapsed() < LONG, "nothing was acknowledged");
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(random.random_range(0..WRITES_MS_MAX)));
    // Commits that are under way across the cut do not count: nobody knows on which side they were.
    let acknowledged = appends::acknowledged(&read());
    mount.cut(["lose", "flush"][random.random_range(0..2)]);
    let run = running.kill().unwrap();
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    let last = appends::acknowledged(&read()).keys().last().copied().unwrap_or(first);
    mount.again();
    // Each of six callers has at most one effect more under way.
    Cut { acknowledged, next: last + 7 }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_goes() {
    let Some(mount) = Mount::new("nothing_acknowledged_is_lost_when_the_power_goes") else { return };
    let ledger = mount.path().join("ledger.redb");
    init(&Harness::new("refunds").unwrap(), &ledger);
    says(&mut Command::new("sync")).unwrap();
    let mut random = SmallRng::seed_from_u64(SEED);
    let (mut all, mut next, mut records) = (Acknowledged::new(), 0, 0);
    for cut in 0..CUTS {
        let found = append_and_cut(&mount, next, &mut random, false);
        next = found.next;
        all.extend(found.acknowledged);
        records = appends::examine(&ledger, &all).unwrap_or_else(|why| panic!("seed {SEED}, cut {cut}: {why:#}"));
    }
    println!("seed {SEED}: {CUTS} cuts, {} effects acknowledged, {records} records", all.len());
    assert!(all.len() > CUTS * 3, "the cuts came before anything was written: {}", all.len());
}

/// The control: the same test must notice a disk that only says that it synced.
#[test]
fn a_disk_that_lies_is_caught_when_the_power_goes() {
    let mut random = SmallRng::seed_from_u64(SEED);
    let mut caught = 0;
    for _ in 0..LYING_CUTS {
        let Some(mount) = Mount::new("a_disk_that_lies_is_caught_when_the_power_goes") else { return };
        let ledger = mount.path().join("ledger.redb");
        init(&Harness::new("refunds").unwrap(), &ledger);
        says(&mut Command::new("sync")).unwrap();
        let found = append_and_cut(&mount, 0, &mut random, true);
        caught += usize::from(appends::examine(&ledger, &found.acknowledged).is_err());
    }
    println!("{caught} of {LYING_CUTS} cuts showed that the disk lied");
    assert!(caught * 2 > LYING_CUTS, "the check checks something: {caught} of {LYING_CUTS}");
}

/// When the power goes while the whole program makes a refund.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after its start.
    After(Duration),
    /// Once the provider has made the refund, which the program may not have heard.
    Made,
    /// Once the program has said what it says.
    Told,
}

impl Moment {
    /// By the clock anywhere in a call that takes so long and shortly behind it. How long the next one takes nobody
    /// knows, so that both ends are also waited for.
    fn of(cut: usize, took: Duration, random: &mut SmallRng) -> Self {
        match cut % 5 {
            0 => Self::After(took.mul_f64(random.random_range(0.0..0.1))),
            1 => Self::Made,
            2 if cut == 2 => Self::Told,
            _ => Self::After(took.mul_f64(random.random_range(0.0..1.2))),
        }
    }

    fn wait(self, soon: &Soon, return_id: &str, pid: u32) {
        let started = Instant::now();
        while !self.is_here(soon, return_id, pid, started.elapsed()) {
            assert!(started.elapsed() < LONG, "{self:?} of {return_id} never came");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_here(self, soon: &Soon, return_id: &str, pid: u32, passed: Duration) -> bool {
        match self {
            Self::After(wait) => passed >= wait,
            Self::Made => !receipts(&soon.harness, return_id).is_empty() || has_ended(pid),
            Self::Told => has_ended(pid),
        }
    }
}

/// Whether a child of ours has ended that nobody has waited for.
fn has_ended(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

/// One refund of the built program on that ledger; the power goes at some moment of it.
fn refund_and_cut(soon: &Soon, mount: &Mount, return_id: &str, moment: Moment, how: &str) -> Option<Heard> {
    let running = Running::start(&mut call(soon, mount, return_id, "before the cut")).unwrap();
    moment.wait(soon, return_id, running.pid());
    // Whoever has ended by now was told nothing that is not durable.
    let told = has_ended(running.pid());
    mount.cut(how);
    let run = if told { running.wait(LONG).unwrap() } else { running.kill().unwrap() };
    mount.again();
    told.then(|| Heard::of(&run))
}

/// Asks again until it is no longer pending: a busy machine may need more than one wait.
fn settled(soon: &Soon, mount: &Mount, return_id: &str) -> Heard {
    let started = Instant::now();
    loop {
        let heard = Heard::of(&Run::of(&mut call(soon, mount, return_id, "after the cut")).unwrap());
        if heard.status() != "pending" || started.elapsed() > LONG {
            return heard;
        }
    }
}

fn call(soon: &Soon, mount: &Mount, return_id: &str, words: &str) -> Command {
    let mut command = soon.harness.call("issue-refund", &refund(return_id, words), &[]);
    command.args(["--ledger", &format!("redb:{}", mount.path().join("ledger.redb").display())]);
    command
}

#[test]
fn a_refund_is_made_once_whenever_the_power_goes() {
    let Some(mount) = Mount::new("a_refund_is_made_once_whenever_the_power_goes") else { return };
    let soon = soon();
    init(&soon.harness, &mount.path().join("ledger.redb"));
    let known = Run::of(&mut call(&soon, &mount, "R-2", "a known object")).unwrap();
    assert_eq!(known.status().unwrap(), "done", "{known:#?}");
    let mut random = SmallRng::seed_from_u64(SEED);
    let (mut told, mut already) = (0, 0);
    for cut in 0..REFUND_CUTS {
        let return_id = format!("R-{}", 3000 + cut);
        let moment = Moment::of(cut, known.took, &mut random);
        let how = ["lose", "flush"][random.random_range(0..2)];
        let first = refund_and_cut(&soon, &mount, &return_id, moment, how);
        already += usize::from(!receipts(&soon.harness, &return_id).is_empty());
        let last = settled(&soon, &mount, &return_id);
        let what = format!("seed {SEED}, cut {cut} ({how}, {moment:?})");
        assert!(last.is_success(), "{what}: {last:#?}");
        let made = receipts(&soon.harness, &return_id);
        assert_eq!(made.len(), 1, "{what}: {made:?} {last:#?}");
        assert_eq!(last.receipts(), [made[0].as_str()], "{what}");
        if let Some(first) = first {
            told += 1;
            assert!(first.is_success() || first.status() == "pending", "{what}: {first:#?}");
            assert!(!first.is_success() || first.receipts() == [made[0].as_str()], "{what}: what was told is not so");
        }
    }
    println!("seed {SEED}: {REFUND_CUTS} cuts, {already} after the effect, {told} after the answer");
    assert!(already < REFUND_CUTS, "no cut came before the effect");
    assert!(told > 0, "no cut came after the answer");
}
