//! What all calls share: ledger, policy, engine, cache, clock and the attempts that are under way.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use oncegate_contract::{Answer, Contract};
use oncegate_ledger::hosts::{self, Hosts, Stopped};
use oncegate_ledger::postgres::SUSPICIOUS_AFTER;
use oncegate_ledger::state::{Attempt, Effect, Sender};
use oncegate_ledger::{Dispatch, Effects, Event, StateTag, StreamId, StreamKind};
use sha2::{Digest, Sha256};
use tokio_util::task::TaskTracker;

use crate::attempt::AttemptError;
use crate::cache::Cache;
use crate::computing::Computing;
use crate::credential::Credential;
use crate::http;
use crate::meter::Meter;
use crate::place::Place;
use crate::plan::{Plan, PlanSource};
use crate::policy::Policy;
use crate::repeats::Repeats;
use crate::stamps::Stamps;
use crate::stop::Stop;

/// Over and above its own deadlines, how long an attempt in another living host may take before it
/// is no longer waited for; it covers slow commits.
const OVERDUE_SLACK: Duration = Duration::from_secs(30);

/// Milliseconds that this host's clock may be behind.
pub(crate) const CLOCK_ERROR_MS: u64 = 5_000;

/// Frozen keys at one account from which on they are no accident of one effect: somebody is told.
pub const FROZEN_MANY: usize = 10;
/// Attempts, effects and hosts of which a process remembers what it saw, 100 MB. What is forgotten is seen anew, which
/// only makes a wait begin again; so many at once wait for nothing real.
const SEEN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();
/// Accounts of which a process remembers what it was told, and how many frozen keys of each it counts.
const ACCOUNTS_MAX: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
const FROZEN_COUNTED_MAX: usize = 10_000;
/// Contracts kept in memory; each may have 1 MiB of text.
const CONTRACTS_KEPT_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Contracts that are known to be in the ledger, by digest.
const CONTRACTS_STORED_MAX: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();
/// Plans kept in memory; each may have 32 MiB.
const PLANS_KEPT_MAX: NonZeroUsize = NonZeroUsize::new(8).unwrap();

/// How often a host elsewhere is listened for, however many wait for it.
pub(crate) const LISTEN_EVERY: Duration = Duration::from_secs(1);

/// Milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The ledger with this process's incarnation in it.
pub struct Book {
    /// The effects in the ledger.
    pub effects: Effects,
    /// The incarnations of all hosts.
    pub hosts: Hosts,
    /// This process's own.
    pub me: hosts::Host,
}

/// What calls run under: one policy, and the parts that hosts of all policies share.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) place: Arc<Place>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) policy: Arc<Policy>,
    /// The ledger, or why there is none; reads go on without.
    pub(crate) book: Result<Arc<Book>, String>,
    pub(crate) now: Clock,
    /// Tasks that must end before the process does: attempts and what confirms them.
    pub(crate) tasks: TaskTracker,
    /// Turns of the guests that compute.
    pub(crate) computing: Arc<Computing>,
    /// The highest stamp in the ledger.
    pub(crate) stamps: Arc<Stamps>,
    /// What calls under this policy were told.
    pub(crate) repeats: Arc<Repeats>,
    /// What is counted.
    pub(crate) meter: Arc<Meter>,
    known: Arc<Known>,
}

/// What this process has seen or does, whichever policy its calls began under.
struct Known {
    closed: AtomicBool,
    /// What others left unjudged was judged since this process owns the ledger.
    no_leftovers: AtomicBool,
    /// Contracts that are in the ledger: they stay there.
    contracts_stored: Mutex<LruCache<[u8; 32], ()>>,
    running: Mutex<HashSet<[u8; 16]>>,
    stops_seen: Mutex<LruCache<[u8; 16], Instant>>,
    /// Hosts that an operator fenced, as far as this process has looked.
    fenced: Mutex<LruCache<[u8; 16], ()>>,
    /// When this process last asked for signs of life of hosts elsewhere, and whether there were any.
    heard_of: Mutex<LruCache<[u8; 16], (Instant, bool)>>,
    undone_seen: Mutex<LruCache<[u8; 32], Instant>>,
    accounts: Mutex<LruCache<[u8; 32], String>>,
    provider_clock: AtomicU64,
    frozen: Mutex<LruCache<String, HashSet<[u8; 32]>>>,
    contracts: Mutex<LruCache<[u8; 32], Arc<Contract>>>,
    plans: Mutex<LruCache<String, Arc<Plan>>>,
}

impl Host {
    pub(crate) fn new(
        place: Place,
        cache: Cache,
        policy: Policy,
        book: Result<Book, String>,
        now: Clock,
        meter: Arc<Meter>,
    ) -> Self {
        let known = Known {
            closed: AtomicBool::new(false),
            no_leftovers: AtomicBool::new(false),
            contracts_stored: remembering(CONTRACTS_STORED_MAX),
            running: Mutex::default(),
            stops_seen: remembering(SEEN_MAX),
            fenced: remembering(SEEN_MAX),
            heard_of: remembering(SEEN_MAX),
            undone_seen: remembering(SEEN_MAX),
            accounts: remembering(ACCOUNTS_MAX),
            provider_clock: AtomicU64::new(0),
            frozen: remembering(ACCOUNTS_MAX),
            contracts: remembering(CONTRACTS_KEPT_MAX),
            plans: remembering(PLANS_KEPT_MAX),
        };
        Self {
            place: Arc::new(place),
            cache: Arc::new(cache),
            policy: Arc::new(policy),
            book: book.map(Arc::new),
            now,
            tasks: TaskTracker::new(),
            computing: Arc::default(),
            stamps: Arc::default(),
            repeats: Arc::default(),
            meter,
            known: Arc::new(known),
        }
    }

    /// The same under another policy.
    pub(crate) fn under(&self, policy: Policy) -> Self {
        let policy = policy.knowing(&self.policy.signatures);
        Self { policy: Arc::new(policy), repeats: Arc::default(), ..self.clone() }
    }

    /// Ends dispatching for all calls.
    pub(crate) fn close(&self) {
        self.known.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_no_leftovers(&self) -> bool {
        self.known.no_leftovers.load(Ordering::Acquire)
    }

    pub(crate) fn judged_leftovers(&self) {
        self.known.no_leftovers.store(true, Ordering::Release);
    }

    pub(crate) fn leaves_leftovers(&self) {
        self.known.no_leftovers.store(false, Ordering::Release);
    }

    /// Whether this contract is known to be in the ledger.
    pub(crate) fn is_stored(&self, contract: &[u8; 32]) -> bool {
        lock(&self.known.contracts_stored).get(contract).is_some()
    }

    pub(crate) fn was_stored(&self, contract: [u8; 32]) {
        lock(&self.known.contracts_stored).put(contract, ());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.known.closed.load(Ordering::Relaxed)
    }

    /// The ledger, or the refusal that says why not.
    pub(crate) fn book(&self) -> Result<&Book, Stop> {
        self.book.as_deref().map_err(|why| Stop::LedgerUnavailable(why.clone()))
    }

    /// Marks an attempt of this process as running for as long as the mark lives.
    pub(crate) fn mark_running(self: &Arc<Self>, attempt: [u8; 16]) -> Running {
        lock(&self.known.running).insert(attempt);
        Running { host: Arc::clone(self), attempt }
    }

    /// Whether the sender of the row's latest attempt still runs.
    pub(crate) fn sender(&self, book: &Book, effect: &Effect) -> Sender {
        effect.attempts.last().map_or(Sender::Stopped, |attempt| self.sender_of(book, attempt))
    }

    pub(crate) fn sender_of(&self, book: &Book, attempt: &Attempt) -> Sender {
        if attempt.host == book.me.id() {
            let running = lock(&self.known.running).contains(&attempt.id);
            return if running { Sender::Running } else { self.saw_stop(attempt.id) };
        }
        match book.hosts.stopped(attempt.host) {
            Stopped::Yes => self.saw_stop(attempt.id),
            _ if self.is_fenced(attempt.host) => self.saw_stop(attempt.id),
            Stopped::No if self.overdue(attempt.at) => Sender::NotKnown,
            Stopped::No => Sender::Running,
            Stopped::NotKnown if self.is_heard_of(attempt.host) && !self.overdue(attempt.at) => Sender::Running,
            Stopped::NotKnown => Sender::NotKnown,
        }
    }

    /// Looks which senders of the row an operator has fenced: by his word they have stopped, and
    /// [`Host::sender_of`] says so from then on. What cannot be read is not known to be fenced.
    pub(crate) async fn learn_fences(&self, book: &Book, effect: &Effect) {
        for attempt in effect.attempts.iter().filter(|attempt| !attempt.stopped && !attempt.proof) {
            let host = attempt.host;
            if host == book.me.id() || book.hosts.stopped(host) == Stopped::Yes || self.is_fenced(host) {
                continue;
            }
            if effect.state == StateTag::Dispatched && book.hosts.stopped(host) == Stopped::NotKnown {
                self.listen_for(book, host).await;
            }
            match book.effects.ledger.read(StreamId::host(host)).await {
                Ok(records) if records.iter().any(|record| matches!(record.event, Event::HostFenced { .. })) => {
                    lock(&self.known.fenced).put(host, ());
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "whether a host was fenced cannot be read"),
            }
        }
    }

    /// Looks whether a host elsewhere gives signs of life. That it does not is a suspicion, by which what it
    /// dispatched becomes unknown: it proves no stop.
    async fn listen_for(&self, book: &Book, host: [u8; 16]) {
        if lock(&self.known.heard_of).get(&host).is_some_and(|(asked, _)| asked.elapsed() < LISTEN_EVERY) {
            return;
        }
        match book.effects.ledger.silence(host).await {
            Ok(silence) => {
                let lives = silence.is_some_and(|silence| silence < SUSPICIOUS_AFTER);
                lock(&self.known.heard_of).put(host, (Instant::now(), lives));
            }
            Err(error) => tracing::warn!(%error, "when a host was last seen cannot be read"),
        }
    }

    /// Whether a host elsewhere gave a sign of life lately, as far as this process has looked.
    fn is_heard_of(&self, host: [u8; 16]) -> bool {
        lock(&self.known.heard_of).get(&host).is_some_and(|(asked, lives)| *lives && asked.elapsed() < SUSPICIOUS_AFTER)
    }

    fn is_fenced(&self, host: [u8; 16]) -> bool {
        lock(&self.known.fenced).get(&host).is_some()
    }

    fn saw_stop(&self, attempt: [u8; 16]) -> Sender {
        lock(&self.known.stops_seen).get_or_insert(attempt, Instant::now);
        Sender::Stopped
    }

    /// How long ago this process saw, on its own monotonic clock, that the senders of all the row's
    /// attempts had stopped; none when it has not seen that.
    pub(crate) fn stopped_for(&self, book: &Book, effect: &Effect) -> Option<Duration> {
        let all = effect.attempts.iter().all(|attempt| self.sender_of(book, attempt) == Sender::Stopped);
        let mut seen = lock(&self.known.stops_seen);
        let since = effect.attempts.iter().map(|attempt| seen.get(&attempt.id).map(Instant::elapsed));
        if all { since.min().flatten() } else { None }
    }

    /// How long ago this process, on its own monotonic clock, first saw that the effect was undone.
    pub(crate) fn undone_for(&self, effect: [u8; 32]) -> Duration {
        lock(&self.known.undone_seen).get_or_insert(effect, Instant::now).elapsed()
    }

    /// What a provider said of an account, if this process has asked.
    pub(crate) fn account(&self, asked: &[u8; 32]) -> Option<String> {
        lock(&self.known.accounts).get(asked).cloned()
    }

    pub(crate) fn keep_account(&self, asked: [u8; 32], told: &str) {
        lock(&self.known.accounts).put(asked, told.to_owned());
    }

    /// Notes a provider's `Date`. The latest counts, and only against permissions: a wrong one can end
    /// a dedupe window early and never lengthen one.
    pub(crate) fn saw_date(&self, answer: &Answer) {
        if let Some(date) = http::date(answer) {
            self.known.provider_clock.fetch_max(date, Ordering::Relaxed);
        }
    }

    /// Notes a key that is frozen; raises the alarm with every one beyond many at one account.
    pub(crate) fn saw_frozen(&self, key: [u8; 32], account: &str) {
        self.meter.saw_frozen(key);
        let mut frozen = lock(&self.known.frozen);
        let keys = frozen.get_or_insert_mut(account.to_owned(), HashSet::new);
        if keys.len() < FROZEN_COUNTED_MAX && keys.insert(key) && keys.len() >= FROZEN_MANY {
            let count = keys.len();
            tracing::error!(
                account,
                count,
                "many keys are frozen at one account; is what the contract says of it true?"
            );
        }
    }

    /// The latest time that any clock of this process, or a provider's `Date`, has shown, and what clocks
    /// may differ by.
    pub(crate) fn latest_clock(&self) -> u64 {
        (self.now)().max(self.known.provider_clock.load(Ordering::Relaxed)).saturating_add(CLOCK_ERROR_MS)
    }

    /// The secret that a row was sent with, if it is still the one that can be read.
    pub(crate) async fn secret_of(&self, dispatch: Option<&Dispatch>) -> Option<Credential> {
        let (name, version) = dispatch?.credential.as_ref()?;
        let rule = self.policy.credentials.get(name)?;
        let read = Credential::read(&rule.usage(name)).await;
        let read = read.inspect_err(|error| tracing::warn!(%error, "an answer cannot be scrubbed of a secret"));
        read.ok().filter(|secret| self.cache.version_of(secret.bytes()) == *version)
    }

    /// A contract that rows were dispatched under, from the ledger.
    pub(crate) async fn contract(&self, book: &Book, digest: [u8; 32]) -> Result<Arc<Contract>, AttemptError> {
        if let Some(known) = lock(&self.known.contracts).get(&digest) {
            return Ok(Arc::clone(known));
        }
        let unreadable = |why: String| AttemptError::Unreadable { what: "a contract", why };
        let id = StreamId { kind: StreamKind::Contract, id: digest };
        let records = book.effects.ledger.read(id).await.map_err(oncegate_ledger::EffectsError::from)?;
        let text = records.into_iter().find_map(|record| match record.event {
            Event::ContractSeen { text, digest: stored } if stored == digest => Some(text),
            _ => None,
        });
        let text = text.ok_or_else(|| unreadable("it is not there".to_owned()))?;
        let contract =
            Contract::parse("the ledger's contract", &text).map_err(|errors| unreadable(errors.to_string()))?;
        let contract = Arc::new(contract);
        lock(&self.known.contracts).put(digest, Arc::clone(&contract));
        Ok(contract)
    }

    /// What a call with these facts has to do with plans.
    pub(crate) async fn plan_source(&self, context: &BTreeMap<String, String>) -> PlanSource {
        match context.get("plan") {
            None => PlanSource::None,
            Some(id) => PlanSource::Frozen(self.plan(id).await),
        }
    }

    /// A frozen plan. It is read once: it never changes, which the commits that rest on it check.
    async fn plan(&self, id: &str) -> Result<Arc<Plan>, Stop> {
        if let Some(known) = lock(&self.known.plans).get(id) {
            return Ok(Arc::clone(known));
        }
        let read = Plan::read(&*self.book()?.effects.ledger, id).await;
        let read = read.map_err(|error| Stop::LedgerUnavailable(error.to_string()))?;
        let plan = read.ok_or_else(|| Stop::PlanMismatch("There is no such plan; nothing was sent.".to_owned()))?;
        let plan = Arc::new(plan);
        lock(&self.known.plans).put(id.to_owned(), Arc::clone(&plan));
        Ok(plan)
    }

    fn overdue(&self, dispatched_at: u64) -> bool {
        let limits = self.policy.limits;
        let patience = limits.send_within + limits.connect_within + limits.request_deadline + OVERDUE_SLACK;
        (self.now)() > dispatched_at.saturating_add(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Grows as it is filled, and forgets what was asked for longest ago.
fn remembering<K: Hash + Eq, V>(max: NonZeroUsize) -> Mutex<LruCache<K, V>> {
    let mut cache = LruCache::unbounded();
    cache.resize(max);
    Mutex::new(cache)
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attempt of this process that has not ended.
pub(crate) struct Running {
    host: Arc<Host>,
    attempt: [u8; 16],
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.host.known.running).remove(&self.attempt);
    }
}

/// The stream of something that is found by a digest of its names.
pub(crate) fn stream(kind: StreamKind, parts: &[&[u8]]) -> StreamId {
    StreamId { kind, id: digest(parts) }
}

/// SHA-256 over length-prefixed parts, so that no two lists of parts collide.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
