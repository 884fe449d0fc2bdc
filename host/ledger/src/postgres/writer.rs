//! A writer: one connection that stores what callers hand in, a group in one statement.
//!
//! A host has a few. Each is a row of the database with a fencing number, taken when it began, and a count of its
//! statements, its tick. Every statement moves the tick from what the writer knows it to be, in the same commit as
//! all else, and only while the row is not fenced. That one comparison is
//!
//! - the fence: nothing of a fenced writer is stored, whenever it arrives;
//! - the nonce: a writer that was not told what came of a statement takes the tick past it. Either the statement is
//!   committed already, and the row says so, or it never can be any more;
//! - the head marker: see [`super::marker`].
//!
//! The statement compares every stream that the group wrote or asked about with what was read before, and is taken
//! back whole if one differs; then all is read and decided anew. Nothing is refused but by what was just read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::random;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::enlist::{self, Enlisted};
use super::link::Failure;
use super::plan::{Heads, Known, Plan};
use super::reads::{field, head, number};
use super::session::{Session, Settled};
use super::target::Target;
use crate::{Append, Event, LedgerError, StreamId};

/// Most appends in one statement.
const GROUP_OPS_MAX: usize = 512;
/// Most bytes in one statement, but for a single append that is larger.
const GROUP_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How long callers wait while the database is away or others are quicker.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Wait before another try, times a random number of up to as many as were made.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES_MAX: u32 = 64;
/// Wait before the next attempt to reach a database that is away.
const AWAY: Duration = Duration::from_millis(50);
/// How often a writer with nothing to store says that it lives.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// A clock that is beyond this is broken; numbers in the database have a sign.
const MOMENT_MAX: u64 = u64::MAX >> 2;
/// How often a group is tried whole before it is halved, so that a stream many write holds up only those who do.
const WHOLE_TRIES: u32 = 2;

pub(super) type Outcome = Result<Vec<u64>, LedgerError>;

/// One caller's append.
pub(super) struct Op {
    batch: Vec<Append>,
    bytes: u64,
    asked: Instant,
    reply: oneshot::Sender<Outcome>,
}

impl Op {
    fn answer(self, outcome: Outcome) {
        // The caller may have gone; what is stored is stored.
        let _ = self.reply.send(outcome);
    }
}

/// What all writers of a process share.
pub(super) struct Shared {
    pub(super) target: Arc<Target>,
    pub(super) ledger: [u8; 16],
    /// Names this process among the hosts.
    pub(super) host: [u8; 16],
    /// The latest moment given to a record here, in microseconds.
    moment: AtomicU64,
    /// This process has stopped all hosts because something is missing; once, and an operator decides then.
    doubts: AtomicBool,
    /// An operator accepts the database as it is: markers say nothing until that is on record.
    pub(super) accepting: AtomicBool,
}

impl Shared {
    pub(super) fn new(target: Arc<Target>, ledger: [u8; 16], host: [u8; 16]) -> Shared {
        Shared {
            target,
            ledger,
            host,
            moment: AtomicU64::new(0),
            doubts: AtomicBool::new(false),
            accepting: AtomicBool::new(false),
        }
    }

    /// A moment that is later than all before it in this process. The clock only makes it readable.
    fn moment(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0)).min(MOMENT_MAX);
        self.moment.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Whether this is the first time that this process misses something.
    pub(super) fn doubts_first(&self) -> bool {
        !self.doubts.swap(true, Ordering::Relaxed)
    }

    fn passed(&self, plan: &Plan) {
        if let Some(last) = plan.records.iter().map(|record| record.moment).max() {
            self.moment.fetch_max(last + 1, Ordering::Relaxed);
        }
    }
}

/// Where appends are handed in to one writer.
#[derive(Clone)]
pub(super) struct Queue {
    sender: mpsc::UnboundedSender<Op>,
    /// Handed in and not answered.
    pub(super) open: Arc<AtomicUsize>,
}

impl Queue {
    pub(super) async fn append(&self, mut batch: Vec<Append>) -> Outcome {
        let events = batch.iter_mut().filter_map(|append| append.event.as_mut());
        let bytes = events.flat_map(Event::stored_mut).map(|stored| stored.len()).sum();
        let (reply, outcome) = oneshot::channel();
        self.open.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(Op { batch, bytes, asked: Instant::now(), reply }).is_err() {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(closed());
        }
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }
}

fn closed() -> LedgerError {
    LedgerError::unavailable("it was closed")
}

/// Starts a writer that is enlisted. It ends when nobody can hand anything in any more.
pub(super) fn start(shared: Arc<Shared>, enlisted: Enlisted) -> Queue {
    let (sender, receiver) = mpsc::unbounded_channel();
    let open = Arc::new(AtomicUsize::new(0));
    let session = Session::new(Arc::clone(&shared), enlisted);
    let writer = Writer { shared, session, open: Arc::clone(&open) };
    tokio::spawn(writer.run(receiver));
    Queue { sender, open }
}

struct Writer {
    shared: Arc<Shared>,
    session: Session,
    open: Arc<AtomicUsize>,
}

/// An append, and what is decided of it if the statement is stored.
type Decided = (Op, Outcome);

/// What came of one try.
enum Turn {
    /// Everybody was answered.
    Over,
    /// Nothing was stored of these, and they may be decided anew.
    Anew(Vec<Op>, Retry),
}

enum Retry {
    /// Others were quicker.
    Contended,
    Away(LedgerError),
}

impl Writer {
    async fn run(mut self, mut receiver: mpsc::UnboundedReceiver<Op>) {
        loop {
            match timeout(BEAT_EVERY, receiver.recv()).await {
                Ok(Some(first)) => {
                    let group = gather(first, &mut receiver);
                    let count = group.len();
                    self.commit(group).await;
                    self.open.fetch_sub(count, Ordering::Relaxed);
                }
                Ok(None) => break,
                Err(_) => self.session.beat().await,
            }
        }
        self.session.leave().await;
    }

    async fn commit(&mut self, group: Vec<Op>) {
        // From when they were handed in: who waited behind others has waited already.
        let asked = group.iter().map(|op| op.asked).max().unwrap_or_else(Instant::now);
        let until = asked + ANSWER_WITHIN;
        let mut left = vec![(group, 0_u32)];
        while let Some((ops, tries)) = left.pop() {
            match self.turn(ops, until).await {
                Turn::Over => {}
                Turn::Anew(ops, retry) if Instant::now() >= until => {
                    let why = match retry {
                        Retry::Contended => LedgerError::unavailable("other writers were always quicker"),
                        Retry::Away(why) => why,
                    };
                    answer_all(ops, &why);
                }
                Turn::Anew(ops, Retry::Away(_)) => {
                    tokio::time::sleep(AWAY).await;
                    left.push((ops, tries));
                }
                Turn::Anew(mut ops, Retry::Contended) => {
                    tokio::time::sleep(PAUSE * (random::<u32>() % (tries + 1).min(PAUSES_MAX))).await;
                    if tries + 1 >= WHOLE_TRIES && ops.len() > 1 {
                        left.push((ops.split_off(ops.len() / 2), tries + 1));
                    }
                    left.push((ops, tries + 1));
                }
            }
        }
    }

    async fn turn(&mut self, ops: Vec<Op>, until: Instant) -> Turn {
        if let Err(why) = self.session.ready().await {
            return self.not_ready(ops, why).await;
        }
        let heads = match self.heads(&ops).await {
            Ok(heads) => heads,
            Err(Failure::Refused(error)) => return over(ops, &error),
            Err(Failure::Lost(why)) => {
                self.session.drop_link();
                return Turn::Anew(ops, Retry::Away(LedgerError::unavailable(why)));
            }
            Err(Failure::Stale | Failure::Again) => return Turn::Anew(ops, Retry::Contended),
        };
        let moment = self.shared.moment();
        let at = &self.shared.target.shown;
        let plan = Plan::of(ops.iter().map(|op| op.batch.as_slice()), &heads, at, moment, random);
        self.shared.passed(&plan);
        let ops: Vec<Decided> = ops.into_iter().zip(plan.verdicts.clone()).collect();
        if plan.records.is_empty() {
            // What was read is all they need.
            return answer_each(ops);
        }
        if let Err(why) = self.before(&plan, &ops).await {
            return over(undecided(ops), &why);
        }
        self.store(ops, &plan, until).await
    }

    /// A writer that was fenced refuses what was handed to it, and begins anew: what its host already sent is
    /// evidence that must be kept, by what can be read now.
    async fn not_ready(&mut self, ops: Vec<Op>, why: LedgerError) -> Turn {
        match why {
            LedgerError::Fenced { .. } => {
                match enlist::enlist(&self.shared).await {
                    Ok(enlisted) => self.session = Session::new(Arc::clone(&self.shared), enlisted),
                    Err(closed @ (LedgerError::Sealed { .. } | LedgerError::Behind { .. })) => {
                        return over(ops, &closed);
                    }
                    Err(error) => tracing::error!(%error, "a fenced writer could not begin anew"),
                }
                over(ops, &why)
            }
            LedgerError::Unavailable { .. } => Turn::Anew(ops, Retry::Away(why)),
            why => over(ops, &why),
        }
    }

    async fn heads(&self, ops: &[Op]) -> Result<Heads, Failure> {
        let mut names: Vec<[u8; 33]> =
            ops.iter().flat_map(|op| &op.batch).map(|append| append.stream.to_bytes()).collect();
        names.sort_unstable();
        names.dedup();
        let names: Vec<&[u8]> = names.iter().map(<[u8; 33]>::as_slice).collect();
        let rows = self.session.heads(&names).await?;
        let mut heads = Heads::with_capacity(rows.len());
        for row in &rows {
            let (stream, known) = known(row).map_err(Failure::Refused)?;
            heads.insert(stream, known);
        }
        Ok(heads)
    }

    /// A fence holds before it is on record, and so does a seal.
    async fn before(&self, plan: &Plan, ops: &[Decided]) -> Result<(), LedgerError> {
        let accepted = ops.iter().filter(|(_, verdict)| verdict.is_ok());
        for append in accepted.flat_map(|(op, _)| &op.batch) {
            if let Some(Event::HostFenced { host, .. }) = &append.event {
                self.session.fence(host).await?;
            }
        }
        if plan.seals { self.session.seal().await } else { Ok(()) }
    }

    async fn store(&mut self, ops: Vec<Decided>, plan: &Plan, until: Instant) -> Turn {
        let failure = match self.session.write(plan).await {
            Ok(()) => return self.stored(ops, plan).await,
            Err(failure) => failure,
        };
        match failure {
            Failure::Refused(error) => over(undecided(ops), &error),
            Failure::Again => Turn::Anew(undecided(ops), Retry::Contended),
            // It may be the fence that has changed, and not a stream.
            Failure::Stale => match self.session.look().await {
                Ok(()) => Turn::Anew(undecided(ops), Retry::Contended),
                Err(why) => self.not_ready(undecided(ops), why).await,
            },
            Failure::Lost(why) => match self.settle(until).await {
                Some(Settled::Stored) => self.stored(ops, plan).await,
                Some(Settled::Never) => Turn::Anew(undecided(ops), Retry::Away(LedgerError::unavailable(why))),
                Some(Settled::Fenced(fenced)) => self.not_ready(undecided(ops), fenced).await,
                None => over(undecided(ops), &LedgerError::unavailable(format!("{why}; its outcome is not known"))),
            },
        }
    }

    /// Finds out what came of the statement under way; none when that cannot be had in time.
    async fn settle(&mut self, until: Instant) -> Option<Settled> {
        loop {
            match self.session.settle().await {
                Ok(settled) => return Some(settled),
                Err(error) if Instant::now() >= until => {
                    tracing::error!(%error, "what came of a commit is not known");
                    return None;
                }
                Err(_) => tokio::time::sleep(AWAY).await,
            }
        }
    }

    async fn stored(&mut self, ops: Vec<Decided>, plan: &Plan) -> Turn {
        if plan.seals {
            self.session.leave().await;
        }
        if let Err(why) = self.session.acknowledge(plan.marks).await {
            return over(undecided(ops), &why);
        }
        answer_each(ops)
    }
}

fn known(row: &tokio_postgres::Row) -> Result<(StreamId, Known), LedgerError> {
    let stream = StreamId::from_bytes(field(row, 0)?).ok_or_else(|| LedgerError::damaged("a head without a stream"))?;
    let version: i64 = field(row, 1)?;
    let head = head(stream, version, field(row, 2)?)?;
    Ok((stream, Known { version: number(version)?, head }))
}

/// Takes what waits behind the first.
fn gather(first: Op, receiver: &mut mpsc::UnboundedReceiver<Op>) -> Vec<Op> {
    let mut bytes = first.bytes;
    let mut group = vec![first];
    while group.len() < GROUP_OPS_MAX && bytes < GROUP_BYTES_MAX {
        let Ok(op) = receiver.try_recv() else { break };
        bytes += op.bytes;
        group.push(op);
    }
    group
}

/// Each hears what was decided. A refusal too is told only now: it may rest on what another of the group stored.
fn answer_each(ops: Vec<Decided>) -> Turn {
    for (op, verdict) in ops {
        op.answer(verdict);
    }
    Turn::Over
}

fn undecided(ops: Vec<Decided>) -> Vec<Op> {
    ops.into_iter().map(|(op, _)| op).collect()
}

fn answer_all(ops: Vec<Op>, why: &LedgerError) {
    for op in ops {
        op.answer(Err(why.clone()));
    }
}

fn over(ops: Vec<Op>, why: &LedgerError) -> Turn {
    answer_all(ops, why);
    Turn::Over
}
