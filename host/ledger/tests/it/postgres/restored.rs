//! Point-in-time recovery: what a database forgets by it, and that no host goes on until somebody has said so.

use oncegate_ledger::postgres::PostgresLedger;
use oncegate_ledger::{Append, Event, Expect, Ledger, LedgerError, StateTag, StreamId, verify};

use super::cluster::{Cluster, Place};
use crate::samples::*;

fn intent(n: u8) -> Append {
    let intent = Append::new(StreamId::effect([n; 32]), Expect::Version(0), dispatched(1, 0));
    Append { marks_head: true, state: Some(StateTag::Dispatched), ..intent }
}

async fn is_refused(place: &Place, who: &str) {
    let refused = PostgresLedger::open(&place.url).await.err();
    assert!(matches!(refused, Some(LedgerError::Behind { .. })), "{who}: {refused:?}");
}

/// Another host of the ledger, which an operator let in.
async fn joined(cluster: &Cluster, place: &Place) -> Place {
    let other = cluster.host_of(&place.database, "");
    is_refused(&other, "a host without a marker").await;
    drop(PostgresLedger::trust(&other.url, "ann", "a new host", 2).await.unwrap());
    other
}

/// All hosts are stopped, the database is restored to a moment between two effects, and the host that misses nothing
/// of its own starts last: it would do again what the other had done.
#[tokio::test(flavor = "multi_thread")]
async fn to_a_point_in_time_it_is_refused_by_every_host_until_somebody_trusts_it() {
    let cluster = Cluster::archiving();
    let place = cluster.place("");
    let ledger = PostgresLedger::init(&place.url, 1).await.unwrap();
    let elsewhere = joined(&cluster, &place).await;
    let other = PostgresLedger::open(&elsewhere.url).await.unwrap();
    other.append(vec![intent(1)]).await.unwrap();
    drop(other);
    cluster.base_backup();
    ledger.append(vec![intent(2)]).await.unwrap();
    let time = cluster.now();
    ledger.append(vec![intent(3)]).await.unwrap();
    drop(ledger);
    cluster.archive_all();
    cluster.restore(&time);

    let reader = PostgresLedger::open_for_reading(&place.url).await.unwrap();
    for (n, records) in [(1, 1), (2, 1), (3, 0)] {
        assert_eq!(reader.read(StreamId::effect([n; 32])).await.unwrap().len(), records, "effect {n}");
    }
    is_refused(&place, "who was told of the third effect").await;
    is_refused(&elsewhere, "who was told of nothing that is missing").await;
    let trusted = PostgresLedger::trust(&place.url, "ann", "restored to before the mistake", 5).await.unwrap();
    let history = trusted.read(StreamId::ledger()).await.unwrap();
    assert!(matches!(history.last().unwrap().event, Event::LedgerTrusted { .. }));
    trusted.append(vec![intent(3)]).await.unwrap();
    let other = PostgresLedger::open(&elsewhere.url).await.unwrap();
    other.append(vec![intent(4)]).await.unwrap();
    assert!(verify::verify(&trusted).await.unwrap().is_sound());
}

/// The same recovery to the end of the archive forgets nothing, and nobody has to be asked.
#[tokio::test(flavor = "multi_thread")]
async fn to_its_end_it_is_the_same_ledger() {
    let cluster = Cluster::archiving();
    let place = cluster.place("");
    let ledger = PostgresLedger::init(&place.url, 1).await.unwrap();
    cluster.base_backup();
    ledger.append(vec![intent(1)]).await.unwrap();
    drop(ledger);
    let time = cluster.now();
    // A recovery to a time needs something committed after it.
    cluster.sql("postgres", "CREATE TABLE later (n int)");
    cluster.archive_all();
    cluster.restore(&time);
    let ledger = PostgresLedger::open(&place.url).await.unwrap();
    assert_eq!(ledger.read(StreamId::effect([1; 32])).await.unwrap().len(), 1);
    ledger.append(vec![intent(2)]).await.unwrap();
}
