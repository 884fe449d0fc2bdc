//! Many clients of one server over HTTP at once, some of which vanish in the middle of a call.
//!
//! Each asks for refunds, its own and such that others ask for too, in other words each time, until it is told a
//! receipt. One that vanishes comes back as another client and asks for the same.

mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::http::{NEWER, OLDER, Server};
use crate::faults::chance::Chance;
use crate::harness::Harness;
use wire::Wire;

/// One call in so many is one whose client vanishes.
const VANISHING_ONE_IN: u64 = 20;
/// By then a client that vanishes has gone, one before anything could be done, the other anywhere in a call.
const VANISHED_WITHIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// One refund in so many is asked for by others too.
const SHARED_ONE_IN: u64 = 4;
/// A refund that is not told by then is stuck.
const TOLD_WITHIN: Duration = Duration::from_secs(1_800);
/// Clients that were told to come back do not come all at once.
const RETRY_SPREAD: Duration = Duration::from_secs(1);
/// Between two looks at the server's memory.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looks in ten seconds.
const MEAN_OF: usize = 20;
/// When all clients have gone their connections have, in this time.
const LEFT_WITHIN: Duration = Duration::from_secs(60);
/// Handles that the server may have more than before the first client: the ledger's own come and go.
const HANDLES_MORE_MAX: usize = 8;

/// What there is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sessions at once.
    pub sessions: usize,
    /// Each goes on for so long.
    pub lasting: Duration,
    /// Each asks for so many refunds at least.
    pub refunds: usize,
    /// A session waits up to twice as long between two refunds.
    pub think: Duration,
    /// Decides all numbers.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Calls that were sent.
    pub calls: u64,
    /// Calls whose client vanished before the answer.
    pub vanished: u64,
    /// Calls that were answered "too many at once".
    pub busy: u64,
    /// Calls that were answered `pending`.
    pub pending: u64,
    /// Connections that the server ended before an answer.
    pub lost: u64,
    /// What was told for each return.
    pub receipts: BTreeMap<String, BTreeSet<String>>,
    /// The server's memory in kB, while all sessions were there.
    pub memory: Vec<u64>,
    /// The server's open handles before the first client came, and after the last has gone.
    pub handles: (usize, usize),
}

impl Report {
    /// The least and the most memory in the second half, in kB: means of ten seconds, since each guest that runs
    /// at the moment of a look has some.
    pub fn second_half(&self) -> Option<(u64, u64)> {
        let half = &self.memory[self.memory.len() / 2..];
        let means = || half.chunks_exact(MEAN_OF).map(|looks| looks.iter().sum::<u64>() / MEAN_OF as u64);
        Some((means().min()?, means().max()?))
    }

    /// Notes what was heard, and says when to ask again; none: there is no need.
    fn count(&mut self, of: &str, heard: Heard) -> Option<Duration> {
        match heard {
            Heard::Receipt(receipt) => {
                self.receipts.entry(of.to_owned()).or_default().insert(receipt);
                return None;
            }
            Heard::Pending(after) => {
                self.pending += 1;
                return Some(after);
            }
            Heard::Busy(after) => {
                self.busy += 1;
                return Some(after);
            }
            Heard::Lost => self.lost += 1,
            Heard::Vanished => self.vanished += 1,
        }
        Some(Duration::ZERO)
    }

    /// Compares with what the provider counted and with the ledger's rows.
    ///
    /// # Errors
    /// An effect happened twice or never, two receipts were told for one, a row is stuck, or handles are left.
    pub fn judge(&self, harness: &Harness) -> Result<()> {
        let mut made = BTreeMap::<String, Vec<String>>::new();
        for effect in harness.provider().effects()? {
            let of = effect.object["metadata"]["return"].as_str().context("a refund of no return")?;
            made.entry(of.to_owned()).or_default().push(effect.id);
        }
        for (of, told) in &self.receipts {
            let made = made.get(of).map(Vec::as_slice).unwrap_or_default();
            ensure!(told.iter().eq(made) && made.len() == 1, "{of}: told {told:?}, made {made:?}");
        }
        ensure!(made.len() == self.receipts.len(), "{} were asked for, {} made", self.receipts.len(), made.len());
        let rows = rows(harness)?;
        let open: Vec<_> = rows.iter().filter(|row| row["state"] != "done").collect();
        ensure!(open.is_empty(), "{} rows are not done: {:#?}", open.len(), open.first());
        ensure!(rows.len() == made.len(), "{} rows, {} refunds", rows.len(), made.len());
        let (before, after) = self.handles;
        ensure!(after <= before + HANDLES_MORE_MAX, "{before} handles before, {after} after");
        Ok(())
    }
}

fn rows(harness: &Harness) -> Result<Vec<Value>> {
    let list = harness.run(&["ledger", "list", "--json", "--limit", "0"])?;
    ensure!(list.code == Some(0), "{}", list.stderr);
    list.stdout.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// What all sessions share.
struct Crowd {
    address: String,
    token: String,
    plan: Plan,
    report: Mutex<Report>,
    /// All are connected before the first asks.
    ready: Barrier,
}

impl Crowd {
    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plays the plan against a server and waits until each return that was asked for is told.
///
/// # Errors
/// A session is refused something, or a refund is stuck.
pub fn run(server: &Server, token: &str, plan: &Plan) -> Result<Report> {
    let handles = handles(server.pid())?;
    let crowd = Arc::new(Crowd {
        address: server.address().to_owned(),
        token: token.to_owned(),
        plan: plan.clone(),
        report: Mutex::default(),
        ready: Barrier::new(plan.sessions + 1),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(all(&crowd, server.pid()))?;
    drop(runtime);
    let mut report = std::mem::take(&mut *crowd.report());
    report.handles = (handles, left(server.pid(), handles)?);
    Ok(report)
}

async fn all(crowd: &Arc<Crowd>, pid: u32) -> Result<()> {
    let mut sessions = JoinSet::new();
    for number in 0..crowd.plan.sessions {
        sessions.spawn(Session::new(crowd, number).run());
    }
    let watcher = tokio::spawn(watch(Arc::clone(crowd), pid));
    while let Some(session) = sessions.join_next().await {
        session??;
    }
    watcher.abort();
    Ok(())
}

/// From when all are there until their time is over.
async fn watch(crowd: Arc<Crowd>, pid: u32) {
    crowd.ready.wait().await;
    let started = Instant::now();
    while started.elapsed() < crowd.plan.lasting {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Ok(memory) = memory(pid) {
            crowd.report().memory.push(memory);
        }
    }
}

struct Session {
    crowd: Arc<Crowd>,
    number: usize,
    revision: &'static str,
    chance: Chance,
    wire: Option<Wire>,
    /// The last answer.
    last: Value,
}

/// What a session heard of one call.
enum Heard {
    Receipt(String),
    /// To be asked again after so long.
    Pending(Duration),
    Busy(Duration),
    Lost,
    /// Nothing: it did not wait.
    Vanished,
}

impl Session {
    fn new(crowd: &Arc<Crowd>, number: usize) -> Self {
        let chance = Chance::of(crowd.plan.seed, &format!("session {number}"));
        let revision = if number.is_multiple_of(2) { OLDER } else { NEWER };
        Self { crowd: Arc::clone(crowd), number, revision, chance, wire: None, last: Value::Null }
    }

    async fn run(mut self) -> Result<()> {
        self.connect().await.with_context(|| format!("session {}", self.number))?;
        self.crowd.ready.wait().await;
        let (started, plan) = (Instant::now(), self.crowd.plan.clone());
        let mut asked = 0;
        while asked < plan.refunds || started.elapsed() < plan.lasting {
            let of = self.next(asked);
            self.refund(&of).await.with_context(|| format!("session {}, {of}", self.number))?;
            asked += 1;
            tokio::time::sleep(self.chance.between(Duration::ZERO, plan.think * 2)).await;
        }
        Ok(())
    }

    /// One's own return, or one that others may ask for at the same time.
    fn next(&mut self, asked: usize) -> String {
        let sessions = self.crowd.plan.sessions;
        if self.chance.below(SHARED_ONE_IN) == 0 {
            return format!("R-{}", 1 + self.chance.below(sessions as u64 / 4));
        }
        format!("R-{}", sessions * (asked + 1) + self.number)
    }

    /// Asks until a receipt is told.
    async fn refund(&mut self, of: &str) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < TOLD_WITHIN {
            let heard = self.ask(of).await?;
            let Some(after) = self.crowd.report().count(of, heard) else { return Ok(()) };
            tokio::time::sleep(self.chance.between(after, after + RETRY_SPREAD)).await;
        }
        bail!("not told after {TOLD_WITHIN:?}; the last answer was {}", self.last)
    }

    async fn ask(&mut self, of: &str) -> Result<Heard> {
        let patience = self.patience();
        let arguments = json!({ "return_id": of, "reason": self.chance.words() });
        let mut wire = self.connect().await?;
        self.crowd.report().calls += 1;
        let params = json!({ "name": "issue-refund", "arguments": arguments });
        let answer = tokio::time::timeout(patience, wire.ask("tools/call", params)).await;
        let Ok(answer) = answer else { return Ok(Heard::Vanished) };
        let Ok((status, body)) = answer else { return Ok(Heard::Lost) };
        // It is used again only now: whatever was not answered goes with its connection.
        self.wire = Some(wire);
        let heard = read(status, &body);
        self.last = body;
        heard
    }

    /// How long it waits for an answer.
    fn patience(&mut self) -> Duration {
        if self.chance.below(VANISHING_ONE_IN) != 0 {
            return TOLD_WITHIN;
        }
        let within = self.chance.one(&VANISHED_WITHIN).copied().unwrap_or_default();
        self.chance.between(Duration::ZERO, within)
    }

    /// The connection from before, or a new one with what a client says first.
    async fn connect(&mut self) -> Result<Wire> {
        if let Some(wire) = self.wire.take().filter(Wire::is_open) {
            return Ok(wire);
        }
        let mut wire = Wire::open(&self.crowd.address, &self.crowd.token, self.revision).await?;
        if self.revision == OLDER {
            let hello = json!({
                "protocolVersion": OLDER, "capabilities": {}, "clientInfo": { "name": "crowd", "version": "1" },
            });
            wire.ask("initialize", hello).await?;
        }
        wire.ask("tools/list", json!({})).await?;
        Ok(wire)
    }
}

fn read(status: u16, body: &Value) -> Result<Heard> {
    let told = &body["result"]["structuredContent"];
    let after = Duration::from_secs(told["retry_after"].as_u64().unwrap_or(1));
    match (status, told["status"].as_str()) {
        (503, _) => Ok(Heard::Busy(after)),
        (200, Some("refused")) if told["next_action"] == "call_again" => Ok(Heard::Busy(after)),
        (200, Some("pending")) => Ok(Heard::Pending(after)),
        (200, Some("done" | "already_done")) => {
            let receipt = told["effects"][0]["receipt"].as_str().context("done without a receipt")?;
            Ok(Heard::Receipt(receipt.to_owned()))
        }
        _ => bail!("answered {status} {body}"),
    }
}

fn memory(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// How many files and connections a process has open.
///
/// # Errors
/// It has ended.
pub fn handles(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// The handles that stay.
fn left(pid: u32, before: usize) -> Result<usize> {
    let started = Instant::now();
    loop {
        let now = handles(pid)?;
        if now <= before + HANDLES_MORE_MAX || started.elapsed() > LEFT_WITHIN {
            return Ok(now);
        }
        thread::sleep(Duration::from_millis(50));
    }
}
