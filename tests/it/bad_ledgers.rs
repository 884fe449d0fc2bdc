//! A ledger that is not the one it should be: effects are refused, reads go on, nothing is sent, and
//! the right file put back makes all as it was.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use oncegate_tests::harness::{Harness, Run};
use redb::{Database, TableDefinition};
use serde_json::json;
use sha2::{Digest, Sha256};

/// A user that owns nothing.
const NOBODY: u32 = 65_534;

/// A harness in which R-1001 was refunded.
struct Scene(Harness);

impl Scene {
    fn start() -> Self {
        let scene = Self(Harness::new("refunds").unwrap());
        scene.hears("R-1001", 0, "done");
        scene
    }

    fn command(&self, id: &str) -> Command {
        let arguments = json!({ "return_id": id, "reason": "too large" });
        self.0.call("issue-refund", &arguments, &[])
    }

    #[track_caller]
    fn hears(&self, id: &str, code: i32, status: &str) -> Run {
        let run = Run::of(&mut self.command(id)).unwrap();
        assert_eq!(run.code, Some(code), "{run:?}");
        assert_eq!(run.status().unwrap(), status, "{}", run.stdout);
        run
    }

    fn ledger(&self) -> PathBuf {
        self.0.home().join("ledger.redb")
    }

    fn marker(&self) -> PathBuf {
        self.0.home().join("ledger.redb.head")
    }

    fn count(&self) -> usize {
        self.0.provider().count("refund").unwrap()
    }

    /// Neither what was done nor anything new is done, and each answer says why.
    #[track_caller]
    fn refuses(&self, says: &str) {
        let before = self.count();
        for id in ["R-1001", "R-1002"] {
            let run = self.hears(id, 3, "refused");
            let json = run.json().unwrap();
            assert_eq!(json["code"], "ledger_unavailable", "{json}");
            let message = json["message"].as_str().unwrap();
            assert!(message.contains(says), "nothing of {says:?} in {message}");
            let heard = format!("{}{}", run.stdout, run.stderr);
            assert!(!heard.contains("panicked"), "{heard}");
        }
        assert_eq!(self.count(), before, "an effect happened over a bad ledger");
    }

    /// The first refund is known, another one can be made.
    #[track_caller]
    fn works_again(&self) {
        let before = self.count();
        self.hears("R-1001", 0, "already_done");
        self.hears("R-1003", 0, "done");
        assert_eq!(self.count(), before + 1);
    }
}

#[test]
fn a_missing_ledger_is_not_made_by_a_call() {
    let scene = Scene::start();
    let away = scene.0.folder().join("away.redb");
    fs::rename(scene.ledger(), &away).unwrap();
    scene.refuses("ledger init");
    assert!(!scene.ledger().exists(), "a call made a ledger");
    let init = scene.0.run(&["ledger", "init"]).unwrap();
    assert_ne!(init.code, Some(0), "init forgot a marker that knows of effects: {init:?}");
    scene.refuses("");
    fs::remove_file(scene.ledger()).ok();
    fs::rename(&away, scene.ledger()).unwrap();
    scene.works_again();
}

#[test]
fn init_does_not_replace_a_ledger() {
    let scene = Scene::start();
    let init = scene.0.run(&["ledger", "init"]).unwrap();
    assert_eq!(init.code, Some(1), "{init:?}");
    assert!(init.stderr.contains("ledger.redb"), "{}", init.stderr);
    scene.works_again();
}

#[test]
fn an_emptied_ledger_is_refused() {
    let scene = Scene::start();
    let copy = fs::read(scene.ledger()).unwrap();
    fs::write(scene.ledger(), b"").unwrap();
    scene.refuses("empty");
    assert_eq!(fs::metadata(scene.ledger()).unwrap().len(), 0, "a call wrote into it");
    fs::write(scene.ledger(), copy).unwrap();
    scene.works_again();
}

#[test]
fn a_file_that_is_no_ledger_is_refused() {
    let scene = Scene::start();
    let copy = fs::read(scene.ledger()).unwrap();
    for bytes in [b"hello".to_vec(), vec![0; 1 << 20], copy[..copy.len() / 2].to_vec(), copy[..4096].to_vec()] {
        fs::write(scene.ledger(), bytes).unwrap();
        scene.refuses("ledger");
    }
    fs::write(scene.ledger(), copy).unwrap();
    scene.works_again();
}

#[test]
fn an_older_copy_is_refused() {
    let scene = Scene::start();
    let old = fs::read(scene.ledger()).unwrap();
    scene.hears("R-1002", 0, "done");
    let new = fs::read(scene.ledger()).unwrap();
    fs::write(scene.ledger(), old).unwrap();
    scene.refuses("behind");
    assert_eq!(scene.count(), 2);
    fs::write(scene.ledger(), new).unwrap();
    scene.works_again();
}

#[test]
fn a_copy_from_before_the_first_effect_is_refused() {
    let harness = Harness::new("refunds").unwrap();
    let scene = Scene(harness);
    let old = fs::read(scene.ledger()).unwrap();
    scene.hears("R-1001", 0, "done");
    fs::write(scene.ledger(), old).unwrap();
    scene.refuses("behind");
    fs::remove_file(scene.marker()).unwrap();
    // Nothing beside the ledger says any more that it was longer, but every ledger had a marker.
    scene.refuses("marker");
}

#[test]
fn a_deleted_or_damaged_marker_is_refused() {
    let scene = Scene::start();
    let marker = fs::read(scene.marker()).unwrap();
    fs::remove_file(scene.marker()).unwrap();
    scene.refuses("marker");
    for bytes in [Vec::new(), vec![0; marker.len()], marker[..50].to_vec()] {
        fs::write(scene.marker(), bytes).unwrap();
        scene.refuses("marker");
    }
    fs::write(scene.marker(), marker).unwrap();
    scene.works_again();
}

#[test]
fn a_foreign_ledger_is_refused() {
    let scene = Scene::start();
    let other = Scene::start();
    let own = fs::read(scene.ledger()).unwrap();
    fs::copy(other.ledger(), scene.ledger()).unwrap();
    scene.refuses("is not this ledger");
    fs::write(scene.ledger(), own).unwrap();
    scene.works_again();
}

#[test]
fn a_ledger_of_a_newer_format_is_refused() {
    let scene = Scene::start();
    let copy = fs::read(scene.ledger()).unwrap();
    let newer = (oncegate_ledger::redb::FORMAT + 1).to_be_bytes();
    let guard = &Sha256::digest(newer)[..guard_bytes(&scene)];
    let table: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    let database = Database::open(scene.ledger()).unwrap();
    let transaction = database.begin_write().unwrap();
    let value = [newer.as_slice(), guard].concat();
    transaction.open_table(table).unwrap().insert("format", value.as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    scene.refuses("newer");
    fs::write(scene.ledger(), copy).unwrap();
    scene.works_again();
}

/// How long the checksum behind a value is.
fn guard_bytes(scene: &Scene) -> usize {
    let table: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
    let database = Database::open(scene.ledger()).unwrap();
    let transaction = redb::ReadableDatabase::begin_read(&database).unwrap();
    let table = transaction.open_table(table).unwrap();
    table.get("format").unwrap().unwrap().value().len() - 4
}

#[test]
fn looking_at_a_bad_ledger_says_so_by_exit_code() {
    let scene = Scene::start();
    let copy = fs::read(scene.ledger()).unwrap();
    assert_eq!(scene.0.run(&["ledger", "verify"]).unwrap().code, Some(0));
    // One bit in the middle of every page: whatever holds records is hit.
    let mut flipped = copy.clone();
    for page in 1..flipped.len() / 4096 {
        flipped[page * 4096 + 100] ^= 1;
    }
    for bytes in [flipped, copy[..copy.len() / 2].to_vec()] {
        fs::write(scene.ledger(), bytes).unwrap();
        let run = scene.0.run(&["ledger", "verify"]).unwrap();
        assert_eq!(run.code, Some(6), "{run:?}");
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        assert_eq!(scene.count(), 1);
    }
}

/// What everybody may write or replace proves nothing.
#[test]
fn a_ledger_that_everybody_can_write_is_refused() {
    let scene = Scene::start();
    let beside = ["redb", "redb.head", "redb.lock", "redb.segments", "redb.hosts"];
    let paths = beside.map(|name| scene.0.home().join(format!("ledger.{name}")));
    let there: Vec<_> = paths.into_iter().filter(|path| path.exists()).collect();
    assert!(there.len() > 2, "{there:?}");
    for path in there {
        let private = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(private.mode() | 0o002)).unwrap();
        scene.refuses("can be written by everybody");
        fs::set_permissions(&path, private).unwrap();
        scene.hears("R-1001", 0, "already_done");
    }
    // Whoever can write the folder can replace policy and ledger.
    fs::set_permissions(scene.0.home(), fs::Permissions::from_mode(0o777)).unwrap();
    let run = Run::of(&mut scene.command("R-1002")).unwrap();
    assert!(run.code == Some(1) && run.stderr.contains("changed by everybody"), "{run:?}");
    let list = Run::of(scene.0.command().args(["ledger", "list"])).unwrap();
    assert_eq!(list.code, Some(0), "looking is no effect: {list:?}");
    // In a folder as /tmp is nobody replaces what is another's.
    fs::set_permissions(scene.0.home(), fs::Permissions::from_mode(0o1777)).unwrap();
    scene.hears("R-1001", 0, "already_done");
}

#[test]
fn a_read_only_directory_stops_effects() {
    let scene = Scene::start();
    let home = scene.0.home();
    let mut files = vec![scene.0.folder().to_owned(), home.clone()];
    let mut at = 1;
    while at < files.len() {
        if files[at].is_dir() {
            files.extend(fs::read_dir(&files[at]).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    // Root may write anywhere, so that the program has to be somebody else here.
    let root = fs::metadata(&home).unwrap().uid() == 0;
    for file in files.iter().filter(|_| root) {
        chown(file, Some(NOBODY), None).unwrap();
    }
    let modes: Vec<u32> = files.iter().map(|file| fs::metadata(file).unwrap().mode()).collect();
    for (file, mode) in files.iter().zip(&modes) {
        fs::set_permissions(file, fs::Permissions::from_mode(mode & !0o222)).unwrap();
    }
    for id in ["R-1001", "R-1002"] {
        let mut command = scene.command(id);
        if root {
            command.uid(NOBODY);
        }
        let run = Run::of(&mut command).unwrap();
        let heard = format!("{}{}", run.stdout, run.stderr);
        assert!([Some(1), Some(3)].contains(&run.code), "{id}: {run:?}");
        assert!(!heard.contains("panicked") && heard.contains("ledger"), "{id}: {heard}");
        assert_eq!(scene.count(), 1);
    }
    for (file, mode) in files.iter().zip(&modes) {
        fs::set_permissions(file, fs::Permissions::from_mode(*mode)).unwrap();
        if root {
            chown(file, Some(0), None).unwrap();
        }
    }
    scene.works_again();
}
