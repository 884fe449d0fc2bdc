//! The other side: what an expert would write over redb for the same job.
//!
//! One committer thread; groups of up to 512 that close when all who were in the last one are in, or after 50 µs;
//! two-phase commits in `SingleWriter` mode with the same cache, since answers come from outside and others read
//! beside the writer. Three lean trees: key to state and places (17 bytes), place to bytes, and the open places.
//! It stores as many bytes for the intent and for the answer as our events have, refuses a key that is there, and
//! wakes each caller after the commit. It does not hash, chain or verify anything, keeps no head marker and no
//! lists by state but the open ones, and cannot say what happened when.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use redb::{ConcurrencyMode, Database, ReadableTable, TableDefinition, WriteTransaction};
use tokio::sync::oneshot;

use super::load::Store;

const GROUP_MAX: usize = 512;
const LINGER: Duration = Duration::from_micros(50);
const CACHE_BYTES: usize = 64 * 1024 * 1024;
pub(super) const KEYS: TableDefinition<'_, &[u8; 32], &[u8; 17]> = TableDefinition::new("keys");
pub(super) const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
pub(super) const OPEN: TableDefinition<'_, u64, ()> = TableDefinition::new("open");
const RESERVED: u8 = 1;
const COMPLETED: u8 = 2;

/// What one caller asks for.
#[derive(Debug)]
pub enum Write {
    /// Its intent, under a new key.
    Reserve([u8; 32], Vec<u8>),
    /// The answer, under a key with an intent and no answer.
    Complete([u8; 32], Vec<u8>),
}

pub(super) type Reply = oneshot::Sender<Result<(), String>>;
pub(super) type Job = (Write, Reply);

/// The caller's end.
#[derive(Debug)]
pub struct Bare {
    jobs: Sender<Job>,
    sizes: (usize, usize),
}

impl Bare {
    /// A new file and its committer.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path) -> Result<Bare> {
        let mut committer = Committer::create(path)?;
        let (jobs, receiver) = channel();
        std::thread::Builder::new().name("bare".to_owned()).spawn(move || {
            let mut last = 1;
            while let Some(group) = group(&receiver, last) {
                last = group.len();
                let outcome = committer.commit(group.iter().map(|(write, _)| write));
                answer(group, outcome);
            }
        })?;
        Ok(Bare { jobs, sizes: sizes()? })
    }
}

/// As many bytes as our events have.
pub(super) fn sizes() -> Result<(usize, usize)> {
    std::thread::spawn(|| tokio::runtime::Builder::new_current_thread().build()?.block_on(super::ours::sizes()))
        .join()
        .map_err(|_| anyhow!("the sizes cannot be had"))?
}

pub(super) async fn ask(jobs: &Sender<Job>, write: Write) -> Result<()> {
    let (reply, outcome) = oneshot::channel();
    jobs.send((write, reply)).map_err(|_| anyhow!("the committer ended"))?;
    outcome.await.context("the committer ended")?.map_err(|why| anyhow!(why))
}

#[async_trait]
impl Store for Bare {
    async fn reserve(&self, key: [u8; 32]) -> Result<()> {
        ask(&self.jobs, Write::Reserve(key, vec![b'r'; self.sizes.0])).await
    }

    async fn complete(&self, key: [u8; 32]) -> Result<()> {
        ask(&self.jobs, Write::Complete(key, vec![b'a'; self.sizes.1])).await
    }
}

/// Waits for the first, then for those that were in the last group, 50 µs at most.
pub(super) fn group(receiver: &Receiver<Job>, expected: usize) -> Option<Vec<Job>> {
    let mut group = vec![receiver.recv().ok()?];
    let until = Instant::now() + LINGER;
    while group.len() < GROUP_MAX {
        let job = if group.len() < expected {
            receiver.recv_timeout(until.saturating_duration_since(Instant::now()))
        } else {
            receiver.try_recv().map_err(|_| RecvTimeoutError::Timeout)
        };
        match job {
            Ok(job) => group.push(job),
            Err(_) => break,
        }
    }
    Some(group)
}

pub(super) fn answer(group: Vec<Job>, outcome: Result<Vec<Result<(), String>>>) {
    match outcome {
        Ok(outcomes) => {
            for ((_, reply), outcome) in group.into_iter().zip(outcomes) {
                let _ = reply.send(outcome);
            }
        }
        Err(error) => group.into_iter().for_each(|(_, reply)| drop(reply.send(Err(error.to_string())))),
    }
}

/// The one who writes.
pub(super) struct Committer {
    database: Database,
    next: u64,
}

impl Committer {
    pub(super) fn create(path: &Path) -> Result<Committer> {
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .set_concurrency_mode(ConcurrencyMode::SingleWriter)
            .create(path)?;
        let committer = Committer { database, next: 1 };
        let transaction = committer.begin()?;
        transaction.open_table(KEYS)?;
        transaction.open_table(ROWS)?;
        transaction.open_table(OPEN)?;
        transaction.commit()?;
        Ok(committer)
    }

    fn begin(&self) -> Result<WriteTransaction> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_two_phase_commit(true);
        Ok(transaction)
    }

    pub(super) fn commit<'w>(&mut self, group: impl Iterator<Item = &'w Write>) -> Result<Vec<Result<(), String>>> {
        let transaction = self.begin()?;
        let mut outcomes = Vec::new();
        {
            let mut keys = transaction.open_table(KEYS)?;
            let mut rows = transaction.open_table(ROWS)?;
            let mut open = transaction.open_table(OPEN)?;
            for write in group {
                let place = self.next;
                let (Write::Reserve(key, bytes) | Write::Complete(key, bytes)) = write;
                let before = keys.get(key)?.map(|found| *found.value());
                let value = match (write, before) {
                    (Write::Reserve(..), None) => value(RESERVED, place, 0),
                    (Write::Complete(..), Some(before)) if before[0] == RESERVED => {
                        value(COMPLETED, reserved(&before), place)
                    }
                    _ => {
                        outcomes.push(Err("it is in another state".to_owned()));
                        continue;
                    }
                };
                keys.insert(key, &value)?;
                rows.insert(place, bytes.as_slice())?;
                match write {
                    Write::Reserve(..) => drop(open.insert(place, ())?),
                    Write::Complete(..) => drop(open.remove(reserved(&value))?),
                }
                self.next += 1;
                outcomes.push(Ok(()));
            }
        }
        transaction.commit()?;
        Ok(outcomes)
    }
}

fn value(state: u8, intent: u64, answer: u64) -> [u8; 17] {
    let mut value = [state; 17];
    value[1..9].copy_from_slice(&intent.to_be_bytes());
    value[9..].copy_from_slice(&answer.to_be_bytes());
    value
}

fn reserved(value: &[u8; 17]) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|at| value[at + 1]))
}
