//! What must not be opened is refused by name: other tables, newer ones, servers that may lose commits, the past.

use std::path::Path;
use std::process::Command;

use oncegate_ledger::postgres::PostgresLedger;
use oncegate_ledger::{Append, Event, Expect, Ledger, LedgerError, Role, StateTag, StreamId, StreamKind, verify};

use super::cluster::{Cluster, PASSWORD, TLS};
use super::races::hosts;
use crate::samples::*;

fn intent(n: u8) -> Append {
    let intent = Append::new(StreamId::effect([n; 32]), Expect::Version(0), dispatched(1, 0));
    Append { marks_head: true, state: Some(StateTag::Dispatched), ..intent }
}

async fn refusal(url: &str) -> LedgerError {
    PostgresLedger::open(url).await.err().expect("it must be refused")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_comes_into_being_by_init_only() {
    let place = Cluster::shared().place("");
    assert!(matches!(refusal(&place.url).await, LedgerError::Missing { .. }));
    let ledger = oncegate_ledger::init(&place.url).await.unwrap();
    let identity = ledger.identity();
    assert_eq!(identity.role, Role::Owner);
    assert!(
        !identity.url.contains(PASSWORD) && identity.path().unwrap().starts_with(place.data.path()),
        "{identity:?}"
    );
    let again = PostgresLedger::init(&place.url, 1).await.err();
    assert!(matches!(again, Some(LedgerError::Exists { .. })), "{again:?}");
    let elsewhere = Cluster::shared().host_of(&place.database, "");
    let again = PostgresLedger::init(&elsewhere.url, 1).await.err();
    assert!(matches!(again, Some(LedgerError::Exists { .. })), "{again:?}");
    let reader = oncegate_ledger::open_for_reading(&elsewhere.url).await.unwrap();
    assert_eq!((reader.identity().role, reader.scan(0, 10).await.unwrap().len()), (Role::Reader, 1));
    let refused = reader.append(vec![intent(1)]).await;
    assert!(matches!(refused, Err(LedgerError::Unavailable { .. })), "{refused:?}");
    drop(ledger);
    assert_eq!(oncegate_ledger::open(&place.url).await.unwrap().identity().id, identity.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_and_foreign_tables_are_refused_by_name() {
    let place = Cluster::shared().place("");
    drop(PostgresLedger::init(&place.url, 1).await.unwrap());
    Cluster::shared().sql(&place.database, "UPDATE oncegate_meta SET format = 99");
    assert!(matches!(refusal(&place.url).await, LedgerError::Newer { .. }));
    Cluster::shared().sql(&place.database, "UPDATE oncegate_meta SET format = 1, id = '\\x00'");
    assert!(matches!(refusal(&place.url).await, LedgerError::Foreign { .. }));
    Cluster::shared().sql(&place.database, &format!("UPDATE oncegate_meta SET id = '\\x{}'", "07".repeat(16)));
    assert!(matches!(refusal(&place.url).await, LedgerError::Foreign { .. }), "another ledger than the marker's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_who_it_should_be_is_not_spoken_to() {
    let place = Cluster::shared().place(TLS);
    drop(PostgresLedger::init(&place.url, 1).await.unwrap());
    let unknown = place.url.split("&sslrootcert").next().unwrap();
    for url in [unknown.to_owned(), place.url.replace(PASSWORD, "s3cret"), place.url.replace("127.0.0.1", "127.0.0.2")]
    {
        let why = refusal(&url).await;
        assert!(matches!(why, LedgerError::Unavailable { .. }), "{why:?}");
        assert!(!why.to_string().contains("s3cret") && !why.to_string().contains(PASSWORD), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_may_lose_commits_are_refused() {
    let place = Cluster::shared().place("");
    drop(PostgresLedger::init(&place.url, 1).await.unwrap());
    for value in ["off", "local"] {
        let set = format!("ALTER ROLE ledger IN DATABASE {} SET synchronous_commit = {value}", place.database);
        Cluster::shared().sql("postgres", &set);
        assert!(refusal(&place.url).await.to_string().contains("synchronous_commit"));
    }
    for setting in ["fsync", "full_page_writes"] {
        let cluster = Cluster::start(&[(setting, "off")]);
        let place = cluster.place("");
        let why = PostgresLedger::init(&place.url, 1).await.err().unwrap();
        assert!(why.to_string().contains(setting), "{why}");
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

/// Each of its writers is asked at least once.
async fn all_refuse(ledger: &PostgresLedger, keys: std::ops::Range<u8>) {
    for n in keys {
        let refused = ledger.append(vec![intent(n)]).await.unwrap_err();
        assert!(matches!(refused, LedgerError::Behind { .. } | LedgerError::Fenced { .. }), "{refused:?}");
    }
    let refused = ledger.append(vec![intent(99)]).await.unwrap_err();
    assert!(matches!(refused, LedgerError::Behind { .. }), "{refused:?}");
}

/// A database restored to the past has forgotten a dispatch. It is refused, also by a host that runs on, and then by
/// those that miss nothing themselves: they would send again what the other had sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_is_behind_until_an_operator_trusts_it() {
    let cluster = Cluster::start(&[]);
    let mut hosts = hosts(&cluster, "", 2).await;
    let (elsewhere, other) = hosts.pop().unwrap();
    let (place, ledger) = hosts.pop().unwrap();
    ledger.append(vec![intent(1)]).await.unwrap();
    other.append(vec![intent(21)]).await.unwrap();
    let backup = cluster.data().with_extension("backup");
    cluster.kill();
    copy(&cluster.data(), &backup);
    cluster.go();
    for n in 2..5 {
        ledger.append(vec![intent(n)]).await.unwrap();
    }
    cluster.kill();
    copy(&backup, &cluster.data());
    cluster.go();
    all_refuse(&ledger, 5..9).await;
    all_refuse(&other, 22..26).await;
    for place in [&place, &elsewhere] {
        assert!(matches!(refusal(&place.url).await, LedgerError::Behind { .. }));
    }
    let reader = PostgresLedger::open_for_reading(&place.url).await.unwrap();
    assert_eq!(reader.read(StreamId::effect([1; 32])).await.unwrap().len(), 1, "reads go on");
    assert!(PostgresLedger::trust(&place.url, "ann", "", 5).await.is_err());
    let why = "restored from the backup of Monday";
    let running = PostgresLedger::trust(&place.url, "ann", why, 5).await.err();
    assert!(matches!(running, Some(LedgerError::Unavailable { .. })), "the host that missed it runs: {running:?}");
    drop(ledger);
    let trusted = loop {
        match PostgresLedger::trust(&place.url, "ann", why, 5).await {
            Err(LedgerError::Unavailable { .. }) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            trusted => break trusted.unwrap(),
        }
    };
    let history = trusted.read(StreamId::ledger()).await.unwrap();
    assert!(matches!(history.last().unwrap().event, Event::LedgerTrusted { .. }));
    trusted.append(vec![intent(2)]).await.unwrap();
    // The other host goes on, when each of its writers has heard that it was stopped.
    while let Err(refused) = other.append(vec![intent(27)]).await {
        assert!(matches!(refused, LedgerError::Fenced { .. }), "{refused:?}");
    }
    assert!(verify::verify(&trusted).await.unwrap().is_sound());
    drop(trusted);
    for place in [&place, &elsewhere] {
        PostgresLedger::open(&place.url).await.unwrap();
    }
}

/// Every promise of reading: a byte that differs, a record or a head that is not there.
#[tokio::test(flavor = "multi_thread")]
async fn damage_is_told_and_never_read() {
    let place = Cluster::shared().place("");
    let ledger = PostgresLedger::init(&place.url, 1).await.unwrap();
    let stream = StreamId { kind: StreamKind::Pin, id: [1; 32] };
    for value in ["a", "b", "c"] {
        ledger.append(vec![Append::new(stream, Expect::Any, Event::Pinned { value: value.into() })]).await.unwrap();
    }
    assert_eq!(ledger.scan(0, 10).await.unwrap().len(), 4);
    let sql = |text: &str| Cluster::shared().sql(&place.database, text);
    let name: String = stream.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    sql("CREATE TABLE kept AS SELECT * FROM oncegate_record; CREATE TABLE kept_head AS SELECT * FROM oncegate_head");
    for harm in [
        format!(
            "UPDATE oncegate_record SET body = set_byte(body, 90, 255 - get_byte(body, 90)) WHERE stream = '\\x{name}' AND version = 2"
        ),
        format!("DELETE FROM oncegate_record WHERE stream = '\\x{name}' AND version = 2"),
        format!("DELETE FROM oncegate_record WHERE stream = '\\x{name}' AND version = 3"),
        format!("DELETE FROM oncegate_record WHERE stream = '\\x{name}' AND version = 1"),
        format!("UPDATE oncegate_head SET head = set_byte(head, 12, 255) WHERE stream = '\\x{name}'"),
        format!("UPDATE oncegate_head SET version = 2 WHERE stream = '\\x{name}'"),
    ] {
        sql(&harm);
        let read = ledger.read(stream).await;
        assert!(matches!(&read, Err(error) if error.is_damaged()), "{harm}: {read:?}");
        let found = verify::verify(&ledger).await.map(|report| !report.is_sound());
        assert_eq!(found, Ok(true), "{harm}");
        sql("DELETE FROM oncegate_record; INSERT INTO oncegate_record SELECT * FROM kept");
        sql("DELETE FROM oncegate_head; INSERT INTO oncegate_head SELECT * FROM kept_head");
        assert!(verify::verify(&ledger).await.unwrap().is_sound());
    }
    sql(&format!("DELETE FROM oncegate_head WHERE stream = '\\x{name}'"));
    assert!(!verify::verify(&ledger).await.unwrap().is_sound(), "a stream that seems never to have been");
}
