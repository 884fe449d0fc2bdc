//! What must not be opened is refused by name, and a ledger never comes into being by accident.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use oncegate_ledger::{
    Append, Effects, Event, Expect, Ledger, LedgerError, Role, StreamId, StreamKind, redb::RedbLedger, verify,
};

use crate::samples::*;

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}.{suffix}", path.display()))
}

async fn with_effects(path: &Path, keys: std::ops::Range<u8>) {
    let ledger = RedbLedger::open(path).unwrap();
    let effects = Effects::new(std::sync::Arc::new(ledger));
    for key in keys {
        effects.append([key; 32], 0, dispatched(1, 0), Vec::new()).await.unwrap();
    }
}

fn refusal(path: &Path) -> LedgerError {
    RedbLedger::open(path).err().expect("it must be refused")
}

#[tokio::test]
async fn a_ledger_comes_into_being_by_init_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/l.redb");
    assert!(matches!(refusal(&path), LedgerError::Missing { .. }));
    assert!(refusal(&path).to_string().contains("oncegate ledger init"));
    drop(RedbLedger::init(&path, 1).unwrap());
    assert!(matches!(RedbLedger::init(&path, 1).err(), Some(LedgerError::Exists { .. })));
    for private in [path.clone(), beside(&path, "head"), beside(&path, "lock")] {
        assert_eq!(private.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{private:?}");
    }
    // A ledger that was removed: its marker stays, and a new one would forget every effect.
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(RedbLedger::init(&path, 1).err(), Some(LedgerError::Exists { .. })));
    assert!(oncegate_ledger::open("memory:").await.is_ok());
    assert!(oncegate_ledger::open("postgres://x").await.is_err());
    let url = format!("redb:{}", directory.path().join("m.redb").display());
    let ledger = oncegate_ledger::init(&url).await.unwrap();
    assert_eq!(ledger.identity().url, url);
    assert_eq!(ledger.scan(0, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn files_that_are_no_ledger_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    drop(RedbLedger::init(&path, 1).unwrap());
    let sound = std::fs::read(&path).unwrap();
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(refusal(&path), LedgerError::Empty { .. }));
    std::fs::write(&path, b"SQLite format 3\0").unwrap();
    assert!(matches!(refusal(&path), LedgerError::Foreign { .. }));
    std::fs::write(&path, &sound[..sound.len() / 2]).unwrap();
    assert!(refusal(&path).refuses_effects());
    std::fs::write(&path, vec![0; sound.len()]).unwrap();
    assert!(matches!(refusal(&path), LedgerError::Foreign { .. }));
    std::fs::remove_file(&path).unwrap();
    let database = redb::Database::create(&path).unwrap();
    database.close().unwrap();
    assert!(matches!(refusal(&path), LedgerError::Foreign { .. }));
    std::fs::write(&path, &sound).unwrap();
    assert!(RedbLedger::open(&path).is_ok());
    assert!(matches!(refusal(directory.path()), LedgerError::Foreign { .. }));
}

#[tokio::test]
async fn a_newer_format_is_refused_by_name() {
    const META: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("meta");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    drop(RedbLedger::init(&path, 1).unwrap());
    let database = redb::Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    let mut format = (oncegate_ledger::redb::FORMAT + 1).to_be_bytes().to_vec();
    format.extend(&<sha2::Sha256 as sha2::Digest>::digest(&format)[..8]);
    write.open_table(META).unwrap().insert("format", format.as_slice()).unwrap();
    write.commit().unwrap();
    drop(database);
    assert!(matches!(refusal(&path), LedgerError::Newer { .. }));
}

#[tokio::test]
async fn an_older_copy_is_behind_until_an_operator_trusts_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    drop(RedbLedger::init(&path, 1).unwrap());
    with_effects(&path, 0..3).await;
    let older = std::fs::read(&path).unwrap();
    with_effects(&path, 3..4).await;
    std::fs::write(&path, &older).unwrap();
    assert!(matches!(refusal(&path), LedgerError::Behind { .. }), "{:?}", refusal(&path));
    assert!(refusal(&path).to_string().contains("ledger trust"));
    // Reads go on.
    let reader = RedbLedger::open_for_reading(&path).unwrap();
    assert_eq!(reader.identity().role, Role::Reader);
    assert_eq!(reader.read(StreamId::effect([2; 32])).await.unwrap().len(), 1);
    assert!(reader.append(vec![Append::new(StreamId::ledger(), Expect::Any, dispatched(1, 0))]).await.is_err());
    drop(reader);
    assert!(RedbLedger::trust(&path, "ann", "", 5).is_err());
    let trusted = RedbLedger::trust(&path, "ann", "restored from the backup of Monday", 5).unwrap();
    let history = trusted.read(StreamId::ledger()).await.unwrap();
    assert!(matches!(&history[1].event, Event::LedgerTrusted { actor, .. } if actor == "ann"));
    drop(trusted);
    with_effects(&path, 3..4).await;
}

#[tokio::test]
async fn a_copy_that_went_another_way_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    drop(RedbLedger::init(&path, 1).unwrap());
    let (older, marker) = (std::fs::read(&path).unwrap(), std::fs::read(beside(&path, "head")).unwrap());
    with_effects(&path, 0..2).await;
    let newest = std::fs::read(beside(&path, "head")).unwrap();
    std::fs::write(&path, &older).unwrap();
    std::fs::write(beside(&path, "head"), &marker).unwrap();
    with_effects(&path, 5..9).await;
    std::fs::write(beside(&path, "head"), &newest).unwrap();
    assert!(matches!(refusal(&path), LedgerError::Behind { .. }));
    std::fs::remove_file(beside(&path, "head")).unwrap();
    assert!(matches!(refusal(&path), LedgerError::Behind { .. }), "a lost marker is no permission");
    let other = directory.path().join("other.redb");
    drop(RedbLedger::init(&other, 1).unwrap());
    std::fs::copy(beside(&other, "head"), beside(&path, "head")).unwrap();
    assert!(matches!(refusal(&path), LedgerError::Foreign { .. }));
}

#[tokio::test]
async fn a_sealed_ledger_takes_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let ledger = RedbLedger::init(&path, 1).unwrap();
    ledger.seal("postgres://ledger", "ann", "two hosts now", 2).await.unwrap();
    let pin =
        Append::new(StreamId { kind: StreamKind::Pin, id: [1; 32] }, Expect::Any, Event::Pinned { value: "x".into() });
    assert!(matches!(ledger.append(vec![pin]).await, Err(LedgerError::Sealed { .. })));
    drop(ledger);
    assert!(matches!(refusal(&path), LedgerError::Sealed { .. }));
    let reader = RedbLedger::open_for_reading(&path).unwrap();
    assert!(verify::verify(&reader).await.unwrap().is_sound());
}

#[tokio::test]
async fn it_is_read_beside_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let owner = RedbLedger::init(&path, 1).unwrap();
    let effects = Effects::new(std::sync::Arc::new(owner));
    effects.append([1; 32], 0, dispatched(1, 0), Vec::new()).await.unwrap();
    let reader = RedbLedger::open_for_reading(&path).unwrap();
    assert_eq!(reader.read(StreamId::effect([1; 32])).await.unwrap().len(), 1);
    effects.append([1; 32], 1, lost(1, true), Vec::new()).await.unwrap();
    assert_eq!(reader.read(StreamId::effect([1; 32])).await.unwrap().len(), 2);
}

/// What one finished effect costs: printed, and bounded so that a careless field is noticed.
#[tokio::test]
async fn bytes_of_a_finished_effect() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let ledger = std::sync::Arc::new(RedbLedger::init(&path, 1).unwrap());
    let effects = Effects::new(std::sync::Arc::<RedbLedger>::clone(&ledger) as _);
    let answer = vec![b'a'; 600];
    const EFFECTS: u32 = 400;
    for n in 0..EFFECTS {
        let key: [u8; 32] = <sha2::Sha256 as sha2::Digest>::digest(n.to_be_bytes()).into();
        let row = effects.advance(key, None, dispatched(1, 0), Vec::new()).await.unwrap();
        let row = effects.advance(key, Some(&row), responded(1, &answer), Vec::new()).await.unwrap();
        effects.advance(key, Some(&row), classified(1, done("re_1")), Vec::new()).await.unwrap();
    }
    let mut stored = 0;
    for record in ledger.scan(2, 1_000).await.unwrap() {
        let mut event = Vec::new();
        ciborium::into_writer(&record.event, &mut event).unwrap();
        stored += event.len() + 146;
    }
    drop((ledger, effects));
    let per_effect = stored as u64 / 333;
    println!(
        "{per_effect} bytes of records an effect, {} bytes of file",
        path.metadata().unwrap().len() / u64::from(EFFECTS)
    );
    assert!(per_effect < 3_500, "{per_effect}");
}
