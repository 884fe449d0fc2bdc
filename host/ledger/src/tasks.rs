//! Calls that go on while their callers ask for them later, kept where the effects are.
//!
//! A task says what was asked and what was told at the end; whether an effect happened is never read from
//! it. One that has not ended is a call that may be made again: its effects are known by their keys. So
//! nothing here needs a lease, and what two processes do with one task costs work and never an effect.

use std::sync::Arc;

use crate::{
    Append, Event, Expect, Ledger, LedgerError, Record, Stored, StreamId, TaskBegun, TaskEnding, TaskOwner, TaskRef,
};

/// Tasks of one owner that have not ended: each may hold a guest's memory.
pub const OPEN_MAX: usize = 32;
/// Tasks of one owner that are kept, ended ones too: they are listed in one record.
pub const KEPT_MAX: usize = 256;
/// Records of an owner's list before its past is dropped: each holds the whole list.
const LIST_RECORDS_MAX: usize = 64;
/// Attempts at a commit that other writers of the same owner disturb.
const ATTEMPTS_MAX: usize = 32;
/// Tasks that are dropped in one commit.
const DROPPED_AT_ONCE: usize = 128;

/// Why a task did not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TasksError {
    /// Its owner has as many as one may have.
    #[error("there are as many tasks of one caller as there may be: {open} under way, {kept} kept")]
    Full {
        /// Under way.
        open: usize,
        /// Kept, these among them.
        kept: usize,
    },
    /// The ledger did not store it, or nobody knows whether it did.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// One task as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// As it was asked for.
    pub begun: TaskBegun,
    /// How it ended and what its caller is told; none while it goes on.
    pub ended: Option<(TaskEnding, Stored)>,
    /// Since when it is so.
    pub changed_at: u64,
}

/// The tasks of a ledger.
pub struct Tasks {
    ledger: Arc<dyn Ledger>,
    /// Writers of one process do not disturb each other.
    turn: tokio::sync::Mutex<()>,
}

/// The list of an owner's tasks, as last read.
#[derive(Default)]
struct List {
    version: u64,
    tasks: Vec<TaskRef>,
    records: usize,
}

impl Tasks {
    /// The tasks of this ledger.
    pub fn new(ledger: Arc<dyn Ledger>) -> Tasks {
        Tasks { ledger, turn: tokio::sync::Mutex::default() }
    }

    /// Stores a task that begins under this random name; it can be asked for when this returns.
    ///
    /// # Errors
    /// `Full`: nothing was stored. Otherwise those of [`Ledger::append`].
    pub async fn begin(&self, id: [u8; 32], task: &TaskBegun) -> Result<(), TasksError> {
        let _turn = self.turn.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let mut list = self.list(&task.owner).await?;
            if list.tasks.iter().any(|one| one.until <= task.at) {
                self.drop_of(&task.owner, task.at).await?;
                list = self.list(&task.owner).await?;
            }
            if list.records > LIST_RECORDS_MAX {
                self.ledger.forget(vec![StreamId::tasks_of(&task.owner)]).await?;
            }
            let open = list.tasks.iter().filter(|one| !one.ended).count();
            let kept = list.tasks.len();
            if open >= OPEN_MAX || kept >= KEPT_MAX {
                return Err(TasksError::Full { open, kept });
            }
            list.tasks.push(TaskRef { id, until: task.until, ended: false });
            let begun = Event::TaskBegun(Box::new(task.clone()));
            let mut batch = vec![Append::new(StreamId::task(id), Expect::Version(0), begun)];
            if list.version == 0 {
                let known = Event::TaskOwnerKnown { owner: task.owner.clone() };
                batch.push(Append::new(StreamId::task_owners(), Expect::Any, known));
            }
            batch.push(list.append(&task.owner, task.at));
            if settled(self.ledger.append(batch).await)? {
                return Ok(());
            }
        }
        Err(busy(&task.owner).into())
    }

    /// The task of this name, if there is one that is still kept.
    ///
    /// # Errors
    /// Those of [`Ledger::read`].
    pub async fn get(&self, id: [u8; 32], now: u64) -> Result<Option<Task>, LedgerError> {
        let task = fold(&self.ledger.read(StreamId::task(id)).await?);
        Ok(task.filter(|task| now < task.begun.until))
    }

    /// What its caller is told at the end.
    ///
    /// # Errors
    /// Those of [`Ledger::load`].
    pub async fn load(&self, stored: &Stored) -> Result<Vec<u8>, LedgerError> {
        self.ledger.load(stored).await
    }

    /// Ends a task; false if it had ended before, or is not kept any more: what was told first stays.
    ///
    /// # Errors
    /// Those of [`Ledger::append`].
    pub async fn end(&self, id: [u8; 32], ending: TaskEnding, result: Vec<u8>, at: u64) -> Result<bool, LedgerError> {
        let _turn = self.turn.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let records = self.ledger.read(StreamId::task(id)).await?;
            let Some(task) = fold(&records).filter(|task| task.ended.is_none()) else { return Ok(false) };
            let version = records.last().map_or(0, |last| last.version);
            let owner = &task.begun.owner;
            let mut list = self.list(owner).await?;
            list.tasks.iter_mut().filter(|one| one.id == id).for_each(|one| one.ended = true);
            let ended = Event::TaskEnded { ending, result: result.clone().into(), at };
            let batch = vec![Append::new(StreamId::task(id), Expect::Version(version), ended), list.append(owner, at)];
            if settled(self.ledger.append(batch).await)? {
                return Ok(true);
            }
        }
        Err(LedgerError::unavailable(format!("{} changes too often", StreamId::task(id))))
    }

    /// The tasks of an owner that are still kept, oldest first.
    ///
    /// # Errors
    /// Those of [`Ledger::read`].
    pub async fn of(&self, owner: &TaskOwner, now: u64) -> Result<Vec<TaskRef>, LedgerError> {
        let mut tasks = self.list(owner).await?.tasks;
        tasks.retain(|one| now < one.until);
        Ok(tasks)
    }

    /// Drops what was asked and told of all tasks whose time is over; returns how many. Large bytes take
    /// their space until [`Ledger::sweep`].
    ///
    /// # Errors
    /// Those of [`Ledger::append`] and [`Ledger::forget`]; asking again drops the rest.
    pub async fn drop_old(&self, now: u64) -> Result<usize, LedgerError> {
        let mut dropped = 0;
        for record in self.ledger.read(StreamId::task_owners()).await? {
            if let Event::TaskOwnerKnown { owner } = record.event {
                let _turn = self.turn.lock().await;
                dropped += self.drop_of(&owner, now).await?;
            }
        }
        Ok(dropped)
    }

    /// First the tombstones, then the records, then the names: whoever is interrupted leaves something
    /// that the next one finds by the names.
    async fn drop_of(&self, owner: &TaskOwner, now: u64) -> Result<usize, LedgerError> {
        let mut list = self.list(owner).await?;
        let mut old: Vec<_> = list.tasks.iter().filter(|one| one.until <= now).map(|one| one.id).collect();
        old.truncate(DROPPED_AT_ONCE);
        if old.is_empty() {
            return Ok(0);
        }
        let mut batch = Vec::new();
        for id in &old {
            let stream = StreamId::task(*id);
            let last = self.ledger.read(stream).await?.pop();
            if last.is_some_and(|last| !matches!(last.event, Event::TaskDropped { .. })) {
                batch.push(Append::new(stream, Expect::Any, Event::TaskDropped { at: now }));
            }
        }
        if !batch.is_empty() {
            self.ledger.append(batch).await?;
        }
        self.ledger.forget(old.iter().map(|id| StreamId::task(*id)).collect()).await?;
        list.tasks.retain(|one| !old.contains(&one.id));
        // Another process may have dropped them meanwhile.
        settled(self.ledger.append(vec![list.append(owner, now)]).await)?;
        self.ledger.forget(vec![StreamId::tasks_of(owner)]).await?;
        Ok(old.len())
    }

    async fn list(&self, owner: &TaskOwner) -> Result<List, LedgerError> {
        let mut records = self.ledger.read(StreamId::tasks_of(owner)).await?;
        let count = records.len();
        Ok(match records.pop() {
            Some(Record { version, event: Event::TasksOf { tasks, .. }, .. }) => {
                List { version, tasks, records: count }
            }
            _ => List::default(),
        })
    }
}

impl List {
    fn append(&self, owner: &TaskOwner, at: u64) -> Append {
        let event = Event::TasksOf { owner: owner.clone(), tasks: self.tasks.clone(), at };
        Append::new(StreamId::tasks_of(owner), Expect::Version(self.version), event)
    }
}

/// Whether a batch was stored; false if another writer was first.
fn settled(appended: Result<Vec<u64>, LedgerError>) -> Result<bool, LedgerError> {
    match appended {
        Ok(_) => Ok(true),
        Err(LedgerError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn busy(owner: &TaskOwner) -> LedgerError {
    LedgerError::unavailable(format!("{} changes too often", StreamId::tasks_of(owner)))
}

/// The task that these records tell; none where they tell of none, or of one that was dropped.
fn fold(records: &[Record]) -> Option<Task> {
    let mut task: Option<Task> = None;
    for record in records {
        match &record.event {
            Event::TaskBegun(begun) => {
                task = Some(Task { begun: (**begun).clone(), ended: None, changed_at: begun.at });
            }
            Event::TaskEnded { ending, result, at } => {
                if let Some(task) = task.as_mut().filter(|task| task.ended.is_none()) {
                    task.ended = Some((*ending, result.clone()));
                    task.changed_at = *at;
                }
            }
            _ => task = None,
        }
    }
    task
}
