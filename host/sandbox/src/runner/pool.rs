//! The runners of a host: one for each core, kept warm, each running many calls.
//!
//! When a runner is lost, nobody knows which of its guests brought it down. So each of its calls is run once more, alone
//! in a runner of its own: effects repeat by their keys, and those that are done answer from the ledger. Who loses that
//! one too fails, and is run alone from then on.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::Engine;
use wasmtime::component::Val;

use super::compiler;
use super::frames;
use super::peer::{Given, Peer, Said};
use super::process::{Started, Starter};
use super::sealed::Sealed;
use crate::cache::Cache;
use crate::call::Call;
use crate::causes::chain;
use crate::describe::Description;
use crate::effect;
use crate::engine::{self, CALLS_OPEN_MAX};
use crate::guest::{Bounds, Run};
use crate::isolation::{IsolationError, Program};
use crate::load::{self, ComponentError, Source};
use crate::wasi::Log;

/// Runners, however many cores there are: beyond that the ledger is what calls wait for.
const RUNNERS_MAX: usize = 16;
/// Over and above its `wall-time`, how long a call's runner may be silent: it ends guests by itself, and is hung when it
/// has not by then, also on a machine that is short of time.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long a component that brought a runner down runs alone.
const SUSPECT_FOR: Duration = Duration::from_secs(600);
/// Components that are remembered for that.
const SUSPECTS_MAX: usize = 1_024;

/// Runners with guests that labour, over and above one for each core: beyond that calls wait for those.
const ASIDE_MAX: usize = 8;

/// All runners of a host.
pub(crate) struct Pool {
    program: Program,
    starter: Starter,
    /// Makes the names of compiled code; it runs nothing.
    engine: Engine,
    slots: Vec<Slot>,
    /// Calls that run alone at once.
    alone: Arc<Semaphore>,
    /// Runners that are given no further calls, since a guest labours there.
    aside: Arc<Semaphore>,
    suspects: Mutex<HashMap<[u8; 32], Instant>>,
}

struct Slot {
    /// Places in its runner.
    places: Arc<Semaphore>,
    peer: tokio::sync::Mutex<Held>,
}

enum Held {
    None,
    /// Being started.
    Starting(Receiver<Result<Started, IsolationError>>),
    /// Started, and not used yet.
    Fresh(Box<Started>),
    Used(Arc<Peer>),
}

/// The runner was lost under a call.
struct Lost;

impl Pool {
    /// Begins to start the first runner. The others are started when they are needed.
    pub(crate) fn start(program: Program, count: Option<NonZeroUsize>) -> Result<Self, IsolationError> {
        let starter = Starter::new(program.clone())?;
        let first = starter.begin()?;
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let count = count.unwrap_or_else(cores).get().min(RUNNERS_MAX);
        let slots = std::iter::once(Held::Starting(first)).chain(std::iter::repeat_with(|| Held::None));
        let places = || Arc::new(Semaphore::new(CALLS_OPEN_MAX as usize));
        let slots = slots.take(count).map(|held| Slot { places: places(), peer: tokio::sync::Mutex::new(held) });
        Ok(Self {
            program,
            starter,
            engine: engine::compiling()?,
            slots: slots.collect(),
            alone: Arc::new(Semaphore::new(count)),
            aside: Arc::new(Semaphore::new(ASIDE_MAX)),
            suspects: Mutex::default(),
        })
    }

    /// Waits for the first runner, or says why there can be none.
    pub(crate) fn begun(&self) -> Result<(), IsolationError> {
        // Where somebody uses it already, it has begun.
        let Some(mut held) = self.slots.first().and_then(|slot| slot.peer.try_lock().ok()) else { return Ok(()) };
        if let Held::Starting(first) = &*held {
            *held = Held::Fresh(Box::new(self.first_of(first)?));
        }
        Ok(())
    }

    /// The first runner, which says how much room each of them has.
    fn first_of(&self, starting: &Receiver<Result<Started, IsolationError>>) -> Result<Started, IsolationError> {
        let gone = || IsolationError::Began("the thread that starts it has gone".to_owned());
        let first = starting.recv().map_err(|_| gone())??;
        if first.walls.landlock == 0 {
            tracing::warn!("this kernel has no landlock: seccomp alone keeps runners from files");
        }
        let less = CALLS_OPEN_MAX.saturating_sub(first.slots) as usize;
        for slot in &self.slots {
            slot.places.forget_permits(less);
        }
        Ok(first)
    }

    /// What names compiled code.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A component's code, from the cache, or compiled in a process of its own.
    pub(crate) fn load(
        &self,
        of: &Description,
        bytes: &Source<'_>,
        cache: &Cache,
        time: Duration,
    ) -> Result<Sealed, ComponentError> {
        let compiled = match cache.compiled(&self.engine, &of.digest) {
            Some(compiled) => compiled,
            None => {
                let compiled =
                    compiler::compile(&self.program, &bytes.of(&of.digest)?, time).map_err(ComponentError::Compiler)?;
                cache.keep(&self.engine, &of.digest, &compiled);
                compiled
            }
        };
        let sealed = Sealed::new(&compiled, of.class, load::exports(of), of.digest);
        sealed.map_err(|error| ComponentError::Compiler(format!("its code cannot be kept in memory: {error}")))
    }

    /// Runs one tool in a runner.
    pub(crate) async fn run(&self, code: &Sealed, tool: usize, call: &Arc<Call>, arguments: &[Val], log: &Log) -> Run {
        let Some(task) = frames::task(tool, &Bounds::of(&call.limits), arguments) else {
            return Run::Trapped("its arguments cannot be brought to a process of its own".to_owned());
        };
        if !self.is_suspect(&code.digest) {
            match self.run_beside_others(code, &task, call, log).await {
                Ok(run) => return run,
                Err(Lost) => call.again(),
            }
        }
        match self.run_alone(code, &task, call, log).await {
            Ok(run) => run,
            Err(Lost) => {
                self.suspect(code.digest);
                Run::Lost
            }
        }
    }

    async fn run_beside_others(&self, code: &Sealed, task: &[u8], call: &Arc<Call>, log: &Log) -> Result<Run, Lost> {
        let slot = self.roomiest();
        let place = Arc::clone(&slot.places).acquire_owned().await.map_err(|_| Lost)?;
        let peer = self.peer_of(slot).await.map_err(unstartable)?;
        self.drive(peer.give(code, task, log, place), call, code).await
    }

    async fn run_alone(&self, code: &Sealed, task: &[u8], call: &Arc<Call>, log: &Log) -> Result<Run, Lost> {
        let place: OwnedSemaphorePermit = Arc::clone(&self.alone).acquire_owned().await.map_err(|_| Lost)?;
        let peer = Peer::start(&self.starter).await.map_err(unstartable)?;
        let ended = self.drive(peer.give(code, task, log, place), call, code).await;
        peer.retire();
        ended
    }

    /// Answers a call's guest until it has ended. What it asks for is performed here, as for a guest in this process.
    async fn drive(&self, mut given: Given, call: &Arc<Call>, code: &Sealed) -> Result<Run, Lost> {
        let within = call.limits.wall_time_max + SILENCE_MAX;
        match tokio::time::timeout(within, answer_all(&mut given, call)).await {
            Ok(ended) => ended,
            Err(_) => {
                given.give_up();
                self.suspect(code.digest);
                Ok(Run::Limit("wall-time"))
            }
        }
    }

    /// The runner with the most room; one that is there before one that has to be started.
    fn roomiest(&self) -> &Slot {
        let room = |slot: &&Slot| slot.places.available_permits();
        self.slots.iter().rev().max_by_key(room).unwrap_or(&self.slots[0])
    }

    async fn peer_of(&self, slot: &Slot) -> Result<Arc<Peer>, IsolationError> {
        let mut held = slot.peer.lock().await;
        let peer = match std::mem::replace(&mut *held, Held::None) {
            Held::Used(peer) if peer.takes_more() && !self.sets_aside(&peer) => peer,
            Held::Fresh(started) => Peer::listen(started.socket, Some(started.process))?,
            Held::Starting(first) => {
                let started = self.first_of(&first)?;
                Peer::listen(started.socket, Some(started.process))?
            }
            // Calls of one that takes no more go on in it.
            Held::Used(_) | Held::None => Peer::start(&self.starter).await?,
        };
        *held = Held::Used(Arc::clone(&peer));
        Ok(peer)
    }

    /// Sets a runner aside in which a guest labours, where there is room for one more.
    fn sets_aside(&self, peer: &Peer) -> bool {
        let room = || Arc::clone(&self.aside).try_acquire_owned().ok();
        match peer.labours().then(room).flatten() {
            Some(place) => {
                peer.set_aside(place);
                true
            }
            None => false,
        }
    }

    fn is_suspect(&self, digest: &[u8; 32]) -> bool {
        let suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        suspects.get(digest).is_some_and(|since| since.elapsed() < SUSPECT_FOR)
    }

    fn suspect(&self, digest: [u8; 32]) {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        if suspects.len() >= SUSPECTS_MAX {
            suspects.retain(|_, since| since.elapsed() < SUSPECT_FOR);
        }
        if suspects.len() < SUSPECTS_MAX {
            suspects.insert(digest, Instant::now());
        }
    }
}

async fn answer_all(given: &mut Given, call: &Arc<Call>) -> Result<Run, Lost> {
    let mut said = given.hear().await;
    loop {
        let ask = match said {
            Said::Ended(run) => return Ok(run),
            Said::Lost => return Err(Lost),
            Said::Asked(ask) => ask,
        };
        // A guest that ends meanwhile, by its limits or with its runner, is not waited for; what was sent goes on.
        said = tokio::select! {
            biased;
            said = given.hear() => said,
            // Boxed: most guests ask for nothing.
            told = Box::pin(effect::answer(call, ask)) => {
                given.tell(&told);
                given.hear().await
            }
        };
    }
}

fn unstartable(error: IsolationError) -> Lost {
    tracing::error!(error = %chain(&error), "a process for guests cannot be started");
    Lost
}
