//! Whole effects per second at 1, 8, 64 and 512 callers, beside bare redb that groups the same commits.
//!
//! Ours: each caller calls `post` one after the other, each under a key of its own: sandbox, ledger, HTTP, and the
//! provider's process, all on the same cores. Theirs: as many callers hand [`lean`] steps to one thread, which takes all
//! that wait into one two-phase commit and answers each when it is durable; nothing runs, nothing is sent.
//!
//! [`lean`]: super::effect::lean

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant as Clock;

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::effect::lean::{Lean, Op};
use super::effect::posting::{Posting, runtime};
use super::provider::Instant;
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, per_second};

/// Callers, and how many effects all of them make in one run.
const CALLERS: [(usize, usize); 4] = [(1, 400), (8, 800), (64, 1_600), (512, 2_048)];
const RUNS: usize = 5;
/// Steps in one commit, as our ledger has.
const GROUP_MAX: usize = 512;

/// Measures a row for each number of callers.
///
/// # Errors
/// Something is not built, or the provider counted other effects than were asked for.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    let provider = Instant::start()?;
    provider.set(0, 300)?;
    let runtime = runtime()?;
    let posting = Arc::new(runtime.block_on(Posting::new(&provider.url))?);
    let sizes = posting.warm_up(&runtime, effort.size(30, 2))?;
    let lean = Lean::create(&posting.folder().join("bare.redb"), sizes)?;
    let committer = Committer::start(lean)?;
    let mut rows = Vec::new();
    for (callers, effects) in CALLERS {
        let (callers, effects) = (effort.size(callers, callers.min(8)), effort.size(effects, callers.min(8)));
        let mut pairs = Vec::new();
        for _ in 0..effort.runs(RUNS) {
            let (poster, sender) = (Arc::clone(&posting), committer.sender.clone());
            let made = rate(&runtime, callers, effects, move || ours(Arc::clone(&poster)))?;
            posting.settle();
            let stored = rate(&runtime, callers, effects, move || theirs(sender.clone()))?;
            pairs.push((made, stored));
        }
        let (count, keys) = provider.effects()?;
        ensure!(count == posting.made() && keys == count, "{count} effects, {keys} keys, {} calls", posting.made());
        let [ours, theirs] = [|pair: &(f64, f64)| pair.0, |pair: &(f64, f64)| pair.1]
            .map(|of| Spread::of(&pairs.iter().map(of).collect::<Vec<_>>()).median);
        let name = format!("effects per second end to end, {callers} callers, distinct keys");
        let detail = format!("{ours:.0}/s beside {theirs:.0}/s; the provider counted each effect once");
        let against = "bare redb doing the same grouped commits";
        rows.push(Row::new("throughput", &name, against, Goal::None, Spread::of_ratios(&pairs)).with(detail));
    }
    Ok(rows)
}

async fn ours(posting: Arc<Posting>) -> Result<()> {
    posting.new_effect().await
}

async fn theirs(to: Sender<Step>) -> Result<()> {
    let key = rand::random();
    for answer in [false, true] {
        let (reply, stored) = oneshot::channel();
        to.send((Op { key, answer }, reply)).ok().context("the committer has ended")?;
        stored.await.context("a commit failed")?;
    }
    Ok(())
}

/// So many callers share so many effects.
fn rate<F, W>(runtime: &Runtime, callers: usize, effects: usize, work: W) -> Result<f64>
where
    F: Future<Output = Result<()>> + Send + 'static,
    W: Fn() -> F + Clone + Send + 'static,
{
    let each = effects / callers;
    let started = Clock::now();
    runtime.block_on(async {
        let callers: Vec<_> = (0..callers)
            .map(|_| {
                let work = work.clone();
                tokio::spawn(async move {
                    for _ in 0..each {
                        work().await?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        for caller in callers {
            caller.await??;
        }
        anyhow::Ok(())
    })?;
    Ok(per_second(each * callers, started.elapsed()))
}

type Step = (Op, oneshot::Sender<()>);

/// The one thread that writes the bare ledger.
struct Committer {
    sender: Sender<Step>,
}

impl Committer {
    fn start(mut lean: Lean) -> Result<Self> {
        let (sender, steps) = channel();
        std::thread::Builder::new()
            .name("bare".to_owned())
            .spawn(move || while group(&mut lean, &steps).is_some() {})?;
        Ok(Self { sender })
    }
}

/// Commits all that waits; nobody is answered where that fails.
fn group(lean: &mut Lean, steps: &Receiver<Step>) -> Option<()> {
    let mut group = vec![steps.recv().ok()?];
    while group.len() < GROUP_MAX
        && let Ok(step) = steps.try_recv()
    {
        group.push(step);
    }
    let ops: Vec<Op> = group.iter().map(|(op, _)| *op).collect();
    lean.commit(&ops).ok()?;
    for (_, reply) in group {
        // A caller that is gone does not wait.
        let _ = reply.send(());
    }
    Some(())
}
