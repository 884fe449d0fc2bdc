//! A harness's ledger, read from outside: its records, its states, the bytes that it kept.

use oncegate_ledger::{Effects, Event, Record, StateTag, StreamKind};
use oncegate_tests::harness::Harness;
use tokio::runtime::{Builder, Runtime};

/// More records than any of these tests makes.
const RECORDS_MAX: usize = 10_000;

/// One effect as the ledger has it.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its state.
    pub(crate) state: StateTag,
    /// The provider's identifier.
    pub(crate) receipt: Option<String>,
    /// What was kept of each attempt's answer, oldest first; nothing where none came.
    pub(crate) answers: Vec<Vec<u8>>,
}

/// All records of the ledger.
pub(crate) fn records(harness: &Harness) -> Vec<Record> {
    runtime().block_on(read_records(harness))
}

/// All effects of the ledger.
pub(crate) fn rows(harness: &Harness) -> Vec<Row> {
    runtime().block_on(async {
        let mut keys: Vec<[u8; 32]> = read_records(harness)
            .await
            .iter()
            .filter(|record| record.stream.kind == StreamKind::Effect)
            .map(|record| record.stream.id)
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let effects = Effects::new(open(harness).await);
        let mut rows = Vec::new();
        for key in keys {
            rows.push(row(&effects, key).await);
        }
        rows
    })
}

async fn row(effects: &Effects, key: [u8; 32]) -> Row {
    let effect = effects.get(key).await.unwrap().unwrap();
    let mut answers = Vec::new();
    for record in effects.history(key).await.unwrap() {
        if let Event::Responded { attempt, .. } = record.event {
            answers.push(effects.raw_answer(key, attempt).await.unwrap());
        }
    }
    Row { state: effect.state, receipt: effect.receipt, answers }
}

async fn read_records(harness: &Harness) -> Vec<Record> {
    let ledger = open(harness).await;
    ledger.scan(0, RECORDS_MAX).await.unwrap()
}

async fn open(harness: &Harness) -> std::sync::Arc<dyn oncegate_ledger::Ledger> {
    let path = harness.home().join("ledger.redb");
    let url = format!("redb:{}", path.display());
    oncegate_ledger::open_for_reading(&url).await.unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}
