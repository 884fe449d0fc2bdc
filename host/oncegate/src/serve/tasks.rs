//! Calls that outlast a client's patience, as tasks: the client gets a name at once and asks later, also
//! after this process has died.
//!
//! What a task is stands in the ledger; here are only the guests that run for one. A task that nobody
//! runs any more is never said to have failed: whoever asks for it makes the same call again, whose
//! effects are known by their keys. So a task is answered by what is true when it ends, and whatever is
//! lost on the way costs work and never an effect.

mod asking;
mod driver;
pub(super) mod newer;
pub(super) mod older;
mod view;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncegate_ledger::tasks::{OPEN_MAX, Tasks, TasksError};
use oncegate_ledger::{TaskBegun, TaskOwner};
use oncegate_sandbox::Sandbox;
use rand::RngCore;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::caller::Caller;
use super::catalog::Entry;
use super::facts::Facts;
use crate::home::now_ms;

/// How long a task and its answer are kept where the client does not say: a person's pause.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);
/// The longest that a client may ask for.
const KEPT_FOR_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest: what is gone before it can be asked for is none.
const KEPT_FOR_MIN: Duration = Duration::from_secs(1);
/// Bytes of arguments that are kept for a task; a call with more is answered as without tasks.
const ARGUMENTS_BYTES_MAX: usize = 1 << 20;
/// How often a client should ask.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// How often what is over is dropped.
const DROP_EVERY: Duration = Duration::from_secs(10);
/// Requests at once that wait for the end of a task: each holds a request's place.
const WAITERS_MAX: usize = 128;
/// At the end of the process, how long the answers of guests that have ended may take to be stored.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// The tasks of this process.
pub(super) struct Keeper {
    /// None without a usable ledger: then there are no tasks.
    store: Option<Tasks>,
    /// How long a call may take before it becomes a task.
    pub(super) after: Duration,
    running: Mutex<HashMap<[u8; 32], Arc<Local>>>,
    drivers: TaskTracker,
    waiters: Semaphore,
}

/// A task that this process runs.
struct Local {
    owner: TaskOwner,
    /// Its caller wants no more of it.
    cancel: CancellationToken,
    /// Nothing of it runs any more.
    over: CancellationToken,
    /// Effects that its guest has asked for.
    asked: AtomicUsize,
}

impl Keeper {
    pub(super) fn new(sandbox: &Sandbox, after: Duration) -> Self {
        Self {
            store: sandbox.ledger().map(Tasks::new),
            after,
            running: Mutex::default(),
            drivers: TaskTracker::new(),
            waiters: Semaphore::new(WAITERS_MAX),
        }
    }

    /// Whether there can be tasks here.
    pub(super) fn is_kept(&self) -> bool {
        self.store.is_some()
    }

    /// Waits until what ended with the process is stored; what is not is found out by the next one.
    pub(super) async fn finish(&self) {
        self.drivers.close();
        if tokio::time::timeout(FINISH_WITHIN, self.drivers.wait()).await.is_err() {
            tracing::warn!("some tasks are not ended in the ledger; whoever asks for one has it ended");
        }
    }

    /// Drops the content of tasks whose time is over, for as long as calls are taken.
    pub(super) async fn drop_old(&self) {
        let Some(store) = &self.store else { return };
        loop {
            tokio::time::sleep(DROP_EVERY).await;
            match store.drop_old(now_ms()).await {
                Ok(0) => {}
                Ok(dropped) => tracing::info!(dropped, "tasks whose time was over"),
                Err(error) => tracing::debug!(%error, "tasks whose time is over were not dropped"),
            }
        }
    }

    /// Stores that a call goes on as a task. None: it is answered as without tasks.
    async fn begin(&self, sandbox: &Sandbox, task: Asked<'_>) -> Result<Begun, Refused> {
        let (Some(store), Some(host)) = (&self.store, sandbox.incarnation()) else { return Err(Refused::NotKept) };
        let arguments = task.arguments.to_string().into_bytes();
        if arguments.len() > ARGUMENTS_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        // A guest may run on when its task is over already.
        let running = self.running().values().filter(|local| local.owner == task.owner).count();
        if running >= OPEN_MAX {
            return Err(Refused::Full(format!(
                "{running} tasks of one caller are worked on here, as many as there may be"
            )));
        }
        let at = now_ms();
        let kept = task.kept_for.unwrap_or(KEPT_FOR).clamp(KEPT_FOR_MIN, KEPT_FOR_MAX);
        let task = TaskBegun {
            owner: task.owner,
            tool: task.entry.tool.name.to_string(),
            component: task.entry.component.description.digest,
            name: task.entry.component.description.contract.component.name.clone(),
            arguments: arguments.into(),
            context: task.facts.clone(),
            host,
            at,
            until: at.saturating_add(millis(kept)),
        };
        let mut id = [0; 32];
        rand::rng().fill_bytes(&mut id);
        match store.begin(id, &task).await {
            Ok(()) => Ok(Begun { id, task }),
            Err(full @ TasksError::Full { .. }) => Err(Refused::Full(full.to_string())),
            Err(TasksError::Ledger(error)) => {
                tracing::warn!(%error, "a task could not be stored");
                Err(Refused::NotKept)
            }
        }
    }

    fn local(&self, id: &[u8; 32]) -> Option<Arc<Local>> {
        self.running().get(id).cloned()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<[u8; 32], Arc<Local>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is asked to go on as a task.
struct Asked<'a> {
    owner: TaskOwner,
    entry: &'a Entry,
    arguments: &'a Value,
    facts: &'a Facts,
    kept_for: Option<Duration>,
}

/// A task that is stored.
struct Begun {
    id: [u8; 32],
    task: TaskBegun,
}

/// Why there is no task.
enum Refused {
    /// There is no ledger that would keep it.
    NotKept,
    /// Its arguments are more than is kept.
    TooLarge,
    /// There are too many.
    Full(String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotKept => to.write_str("no task can be kept now"),
            Self::TooLarge => write!(to, "a task's arguments have at most {ARGUMENTS_BYTES_MAX} bytes"),
            Self::Full(why) => to.write_str(why),
        }
    }
}

/// Whose the tasks of a caller are.
fn owner(caller: &Caller) -> TaskOwner {
    let fixed = |name: &str| caller.fixed.get(name).cloned();
    TaskOwner { tenant: fixed("tenant"), permit: fixed("permit") }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Local {
    fn of(owner: &TaskOwner) -> Self {
        let (cancel, over) = (CancellationToken::new(), CancellationToken::new());
        Self { owner: owner.clone(), cancel, over, asked: AtomicUsize::new(0) }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}
