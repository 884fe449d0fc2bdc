//! A ledger that is written as fast as it goes, and what must be in it after a fault.
//!
//! Every event follows from its effect's number, so that whoever opens the ledger later knows what
//! each record must hold without having been told.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use oncegate_ledger::redb::RedbLedger;
use oncegate_ledger::{Effects, Event, Ledger, Stored, StreamId, verify};

use samples::{classified, dispatched, done, responded};

#[path = "../../host/ledger/tests/it/samples.rs"]
#[expect(dead_code, reason = "the ledger's own tests use the rest")]
mod samples;

/// Events in one effect's life.
pub const LIFE: usize = 3;
/// Effects that live at the same time.
const CALLERS: u32 = 6;

/// How far each effect was acknowledged, by its number.
pub type Acknowledged = BTreeMap<u32, usize>;

fn key(number: u32) -> [u8; 32] {
    let mut key = [7; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

/// What happens to an effect; every third answer is so long that it is kept beside the ledger.
fn life(number: u32) -> [Event; LIFE] {
    let length = if number.is_multiple_of(3) { 20_000 } else { 300 };
    let answer = vec![number as u8; length];
    [dispatched(1, 0), responded(1, &answer), classified(1, done(&format!("re_{number}")))]
}

/// Lives effects from number `first` on, `count` of them, and writes a line `NUMBER STEPS` for each
/// append that was acknowledged.
///
/// # Errors
/// The ledger does not open, or an append fails.
pub fn append(ledger: &Path, first: u32, count: u32, acknowledged: File) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let effects = Effects::new(Arc::new(RedbLedger::open(ledger)?));
    let acknowledged = Arc::new(acknowledged);
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let numbers = (first + caller..first + count).step_by(CALLERS as usize);
            runtime.spawn(live(effects.clone(), numbers.collect(), Arc::clone(&acknowledged)))
        })
        .collect();
    callers.into_iter().try_for_each(|caller| runtime.block_on(caller)?)
}

async fn live(effects: Effects, numbers: Vec<u32>, acknowledged: Arc<File>) -> Result<()> {
    for number in numbers {
        let mut row = None;
        for (step, event) in life(number).into_iter().enumerate() {
            row = Some(effects.advance(key(number), row.as_ref(), event, Vec::new()).await?);
            // One write a line: lines of several callers do not mix.
            (&*acknowledged).write_all(format!("{number} {}\n", step + 1).as_bytes())?;
        }
    }
    Ok(())
}

/// Reads the lines of [`append`]; a last one that was cut off does not count.
pub fn acknowledged(lines: &str) -> Acknowledged {
    let mut known = Acknowledged::new();
    for line in lines.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let (number, steps) = line.split_once(' ').unwrap_or_default();
        if let (Ok(number), Ok(steps)) = (number.parse::<u32>(), steps.parse::<usize>()) {
            let known = known.entry(number).or_default();
            *known = steps.max(*known);
        }
    }
    known
}

/// Opens the ledger as its owner and holds it against what was acknowledged; how many records it has.
///
/// # Errors
/// Something acknowledged is not there, or something is there that was not written so.
pub fn examine(ledger: &Path, acknowledged: &Acknowledged) -> Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ledger = RedbLedger::open(ledger).context("it does not open")?;
    runtime.block_on(async {
        let mut records = 0;
        for (number, steps) in acknowledged {
            let found = history(&ledger, *number).await?;
            ensure!(found >= *steps, "effect {number}: {found} of {steps} acknowledged events are there");
            records += found;
        }
        let report = verify::verify(&ledger).await?;
        if !report.is_sound() {
            bail!("it is not sound: {:?}", report.problems);
        }
        Ok(records)
    })
}

/// How many events an effect has, each as it was lived.
async fn history(ledger: &RedbLedger, number: u32) -> Result<usize> {
    let records = ledger.read(StreamId::effect(key(number))).await?;
    for (record, lived) in records.iter().zip(life(number)) {
        let mut event = record.event.clone();
        for bytes in event.stored_mut() {
            *bytes = Stored::Inline(ledger.load(bytes).await?);
        }
        ensure!(event == lived, "effect {number} has another history");
    }
    Ok(records.len())
}
