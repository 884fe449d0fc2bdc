//! The ledger on a real PostgreSQL: the suite of every back end, races, kills, cuts, fences, restores.

mod cluster;
mod faults;
mod hosts;
mod migrate;
mod open;
mod paper;
mod proxy;
mod races;
mod restored;
mod scale;

use std::sync::Arc;

use oncegate_ledger::postgres::PostgresLedger;
use oncegate_ledger::redb::RedbLedger;
use oncegate_ledger::{Ledger, memory::MemoryLedger, verify};
use proptest::prelude::*;

use crate::histories::{Step, contents, run, step};
use cluster::{Cluster, SERIALIZABLE, TLS};

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite_of_every_back_end() {
    for more in ["", SERIALIZABLE, TLS] {
        let place = Cluster::shared().place(more);
        let ledger = Arc::new(PostgresLedger::init(&place.url, 1).await.unwrap());
        crate::suite::suite(ledger).await;
        let other = Cluster::shared().place(more);
        crate::retention::suite(Arc::new(PostgresLedger::init(&other.url, 1).await.unwrap())).await;
    }
}

/// The same history on all three: the same answers, the same contents, the same digests.
async fn compare(steps: &[Step], more: &str) {
    let place = Cluster::shared().place(more);
    let path = place.data.path().join("beside.redb");
    let mut redb: Arc<dyn Ledger> = Arc::new(RedbLedger::init(&path, 1).unwrap());
    let memory: Arc<dyn Ledger> = Arc::new(MemoryLedger::new());
    let mut postgres: Arc<dyn Ledger> = Arc::new(PostgresLedger::init(&place.url, 1).await.unwrap());
    for step in steps {
        if let Step::Reopen = step {
            drop((postgres, redb));
            postgres = Arc::new(PostgresLedger::open(&place.url).await.unwrap());
            redb = Arc::new(RedbLedger::open(&path).unwrap());
        }
        let told = run(&memory, step).await;
        assert_eq!(told, run(&postgres, step).await, "PostgreSQL: {step:?}");
        assert_eq!(told, run(&redb, step).await, "redb: {step:?}");
    }
    let held = contents(&*memory).await;
    assert_eq!(held, contents(&*postgres).await);
    assert_eq!(held, contents(&*redb).await);
    for ledger in [&postgres, &redb] {
        let report = verify::verify(&**ledger).await.unwrap();
        assert!(report.is_sound(), "{report:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_agrees_with_memory_and_redb_on_any_history(steps in prop::collection::vec(step(), 1..40), serializable: bool) {
        let more = if serializable { SERIALIZABLE } else { "" };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(compare(&steps, more));
    }
}
