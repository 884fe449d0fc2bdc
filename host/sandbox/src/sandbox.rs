//! The library's front door: load components, call tools, settle what is open.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oncegate_ledger::hosts::{Hosts, Stopped};
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Effects, Event, Ledger, StreamId, StreamKind};
use serde_json::Value;

use crate::cache::{Cache, CacheError};
use crate::call::{Asked, Call};
use crate::causes::chain;
use crate::convert;
use crate::describe::Description;
use crate::engine::{EngineError, Runtime};
use crate::host::{Book, Clock, Host};
use crate::isolation::{IsolationError, Program};
use crate::load::{self, ComponentError, Loaded};
use crate::outcome::{self, Code, Detail, EffectView, Ended, Fate, NextAction, Nothing, Outcome, Seen};
use crate::perform;
use crate::place::Place;
use crate::plan::PlanSource;
use crate::policy::{self, Policy};
use crate::privacy;
use crate::running::{self, Ready};
use crate::settle::{self, Looked, Patience, Rounds};
use crate::signature;
use crate::stop::Stop;

/// Facts that an orchestrator may give.
pub const CONTEXT_NAMES: [&str; 7] = ["tenant", "trigger", "run", "sequence", "plan", "permit", "parent"];
/// Bytes of one fact: identifiers, not documents.
const CONTEXT_VALUE_BYTES_MAX: usize = 512;

/// Milliseconds after which an effect that is still unknown is for a person: providers' lists lag by
/// minutes, not by more.
const ASK_PERSON_AFTER_MS: u64 = 10 * 60 * 1_000;

/// What a sandbox is made of; the caller supplies the world.
pub struct Options {
    /// The operator's grants.
    pub policy: Policy,
    /// The ledger, or why there is none: reads go on without one, effects are refused.
    pub ledger: Result<Arc<dyn Ledger>, String>,
    /// Private folder of compiled components.
    pub cache: PathBuf,
    /// Milliseconds since the Unix epoch.
    pub clock: Clock,
}

/// The sandbox cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine cannot.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// There can be no runner processes here.
    #[error(transparent)]
    Isolation(#[from] IsolationError),
}

/// Runner processes, of which the first is being started.
pub struct Runners(Place);

impl Runners {
    /// Begins to start the first one, and does not wait for it.
    ///
    /// # Errors
    /// There can be none.
    pub fn start(program: Program) -> Result<Self, IsolationError> {
        Ok(Self(Place::runners(program, None)?))
    }
}

/// One call of one tool.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// Name of the tool.
    pub tool: String,
    /// Its arguments, one property per parameter.
    pub arguments: Value,
    /// Facts from the orchestrator.
    pub context: BTreeMap<String, String>,
}

/// Runs tools; cheap to clone.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) host: Arc<Host>,
}

/// A call that is ready to be made.
pub(crate) struct Prepared {
    tool: String,
    given: Vec<wasmtime::component::Val>,
    /// In their one canonical form.
    pub(crate) arguments: Value,
    context: BTreeMap<String, String>,
}

impl Prepared {
    /// The call, and what its function is given.
    pub(crate) fn call(
        self,
        host: &Arc<Host>,
        component: &Arc<Loaded>,
        plan: PlanSource,
    ) -> (Arc<Call>, Vec<wasmtime::component::Val>) {
        let Self { tool, given, arguments, context } = self;
        let limits = host.policy.limits;
        (Call::new(Arc::clone(host), Arc::clone(component), tool, arguments, context, limits, plan), given)
    }
}

impl Sandbox {
    /// Starts the engine and makes this process known to the ledger. Where that fails there is no ledger:
    /// reads go on, effects are refused.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub fn new(options: Options) -> Result<Self, SandboxError> {
        Self::at(Place::Here(Runtime::new()?), options)
    }

    /// The same with guests in processes of their own, behind the walls that the system has ([`isolation`]). One of
    /// them is started to see that it can be.
    ///
    /// [`isolation`]: crate::isolation
    ///
    /// # Errors
    /// [`SandboxError`]; where no runner process can be had there is no sandbox.
    pub fn behind_runners(options: Options, program: Program) -> Result<Self, SandboxError> {
        Self::behind_the(Runners::start(program)?, options)
    }

    /// The same with so many runner processes instead of one for each core.
    ///
    /// # Errors
    /// As [`Sandbox::behind_runners`].
    pub fn behind_so_many_runners(
        options: Options,
        program: Program,
        runners: NonZeroUsize,
    ) -> Result<Self, SandboxError> {
        Self::behind_the(Runners(Place::runners(program, Some(runners))?), options)
    }

    fn behind_the(runners: Runners, options: Options) -> Result<Self, SandboxError> {
        let sandbox = Self::behind(options, runners)?;
        sandbox.begun()?;
        Ok(sandbox)
    }

    /// The same while the first of them still starts: whoever calls this has other things to do meanwhile, and then
    /// asks whether it has [`begun`](Sandbox::begun), before any tool is called.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub fn behind(options: Options, runners: Runners) -> Result<Self, SandboxError> {
        Self::at(runners.0, options)
    }

    /// Waits until it is known that guests can run.
    ///
    /// # Errors
    /// No runner process can be had; then nothing may be served.
    pub fn begun(&self) -> Result<(), IsolationError> {
        self.host.place.begun()
    }

    fn at(place: Place, options: Options) -> Result<Self, SandboxError> {
        let cache = Cache::open(&options.cache)?;
        signature::recall(&options.policy, &cache);
        let terms = privacy::without_key(&options.policy);
        let book = options.ledger.and_then(|ledger| {
            let ledger = oncegate_ledger::private::over(ledger, terms);
            let hosts = Hosts::of(&ledger.identity());
            // Without it nobody could tell whether this process still sends: nothing is sent.
            let me = match ledger.incarnation() {
                Some(name) => hosts.register_as(name),
                None => hosts.register(),
            };
            let me = me.map_err(|error| error.to_string())?;
            Ok(Book { effects: Effects::new(ledger), hosts, me })
        });
        Ok(Self { host: Arc::new(Host::new(place, cache, options.policy, book, options.clock)) })
    }

    /// The same engine, ledger and calls under way, for calls under another policy. Those that have begun
    /// keep theirs.
    #[must_use]
    pub fn under(&self, policy: Policy) -> Self {
        if let Some(private) = self.host.book().ok().and_then(|book| book.effects.ledger.private()) {
            private.set_encrypt(policy.privacy.encrypt);
        }
        if policy.privacy.key_from != self.host.policy.privacy.key_from {
            tracing::warn!("another master key ([privacy] key-from) counts from the next start on");
        }
        Self { host: Arc::new(self.host.under(policy)) }
    }

    /// Loads a component from a file.
    ///
    /// # Errors
    /// [`ComponentError`], which names what was refused.
    pub fn load(&self, path: &Path) -> Result<Arc<Loaded>, ComponentError> {
        let bytes = load::read(path)?;
        let loaded = load::load(&bytes, &self.host.place, &self.host.cache, &self.host.policy.limits)?;
        Ok(self.learn(path, &bytes, loaded))
    }

    /// The same for one of many components, most of which may never be called: code that is in the cache already is
    /// read when it is first called.
    ///
    /// # Errors
    /// As for [`Sandbox::load`].
    pub fn load_for_later(&self, path: &Path) -> Result<Arc<Loaded>, ComponentError> {
        let bytes = load::read(path)?;
        let host = &self.host;
        let loaded = load::load_for_later(path, &bytes, &host.place, &host.cache, &host.policy.limits)?;
        Ok(self.learn(path, &bytes, loaded))
    }

    fn learn(&self, path: &Path, bytes: &[u8], loaded: Loaded) -> Arc<Loaded> {
        let Description { digest, name, .. } = &loaded.description;
        signature::learn(&self.host.policy, &self.host.cache, path, bytes, (digest, name));
        Arc::new(loaded)
    }

    /// Calls a tool and answers within the policy's `answer-within`; the guest may run on.
    pub async fn call(&self, component: &Arc<Loaded>, request: CallRequest) -> Outcome {
        let ready = match self.ready(component, request).await {
            Ok(ready) => ready,
            Err(refused) => return *refused,
        };
        if let Some(told) = ready.told_before().await {
            return told;
        }
        let (call, guest) = ready.attached();
        // Whether it ended or not, the rows say what has come of it.
        let ended = match tokio::time::timeout(self.host.policy.limits.answer_within, guest).await {
            Ok(ended) => ended.unwrap_or_else(|_| running::failed()),
            Err(_) => Ended::Running,
        };
        self.outcome(&call, ended).await
    }

    /// Checks a request; nothing runs yet.
    ///
    /// # Errors
    /// The refusal that the caller is told.
    pub async fn ready(&self, component: &Arc<Loaded>, request: CallRequest) -> Result<Ready, Box<Outcome>> {
        if let Err(error) = component.code(&self.host).await {
            tracing::error!(error = %chain(&error), component = %component.description.name, "a tool's code cannot be had");
            return Err(Box::new(Outcome::refused(
                Code::ToolFailed,
                "The tool cannot be run: its code cannot be had.",
            )));
        }
        let prepared = self.prepare(component, request);
        let prepared = prepared.map_err(|message| Box::new(Outcome::refused(Code::InvalidArguments, message)))?;
        let plan = self.host.plan_source(&prepared.context).await;
        let (call, arguments) = prepared.call(&self.host, component, plan);
        Ok(Ready::new(self.clone(), call, arguments))
    }

    /// What the operator grants.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.host.policy
    }

    /// The call's arguments as the tool takes them, and its facts; or what is wrong with them.
    pub(crate) fn prepare(&self, component: &Arc<Loaded>, request: CallRequest) -> Result<Prepared, String> {
        let Some((_, description)) = component.tool(&request.tool) else {
            return Err(format!("There is no tool {}.", oncegate_contract::safe_text(&request.tool)));
        };
        check_context(&request.context)?;
        let given = convert::to_vals(&request.arguments, description).map_err(|error| error.to_string())?;
        // Two ways to write the same arguments are one to everything below.
        let arguments = convert::canonical_arguments(&given, description).map_err(|error| error.to_string())?;
        let context = self.with_tenant(component, request.context);
        Ok(Prepared { tool: request.tool, given, arguments, context })
    }

    /// The ledger, for what is kept in it beside effects; none where there is no usable one.
    #[must_use]
    pub fn ledger(&self) -> Option<Arc<dyn Ledger>> {
        self.host.book().ok().map(|book| Arc::clone(&book.effects.ledger))
    }

    /// This process's name in the ledger.
    #[must_use]
    pub fn incarnation(&self) -> Option<[u8; 16]> {
        self.host.book().ok().map(|book| book.me.id())
    }

    /// Whether the process of this name is known to run.
    #[must_use]
    pub fn runs(&self, incarnation: [u8; 16]) -> bool {
        self.host.book().is_ok_and(|book| book.hosts.stopped(incarnation) == Stopped::No)
    }

    /// No call dispatches anything from now on; what was dispatched goes on.
    pub fn close(&self) {
        self.host.close();
    }

    /// Waits until guests and attempts have ended.
    pub async fn drain(&self) {
        self.host.tasks.close();
        self.host.tasks.wait().await;
    }

    /// Brings one effect as far as it can be known: lost senders, stored answers, lookups, and the
    /// confirmation of a receipt. Waits for `absent-after` where that is what is missing. Returns the
    /// row, and why a look did not settle it.
    ///
    /// # Errors
    /// Without a ledger, or when it cannot be read or written.
    pub async fn reconcile(&self, key: [u8; 32]) -> Result<(Option<Effect>, Option<String>), String> {
        let book = self.host.book().map_err(|stop| stop.to_string())?;
        let row = settle::refresh_saying(&self.host, book, key, None, Patience::Long).await;
        row.map_err(|error| error.to_string())
    }

    /// One round of settling what senders that have stopped left open: at most so many looks, and none
    /// of them waits. `rounds` keeps when each row is due again. Dispatches nothing.
    ///
    /// # Errors
    /// Without a ledger, or when it cannot be read.
    pub async fn settle_open(&self, rounds: &mut Rounds, looks_max: usize) -> Result<Vec<Looked>, String> {
        let book = self.host.book().map_err(|stop| stop.to_string())?;
        settle::round(&self.host, book, rounds, looks_max).await
    }

    /// The only tenant there is need not be named; beside others there is no default.
    pub(crate) fn with_tenant(
        &self,
        component: &Loaded,
        mut context: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        if !context.contains_key("tenant")
            && let Ok(tenant) = policy::tenant(&self.host.policy, &component.description.digest, "")
        {
            context.insert("tenant".to_owned(), tenant);
        }
        context
    }

    pub(crate) async fn outcome(&self, call: &Arc<Call>, ended: Ended) -> Outcome {
        let returned = matches!(ended, Ended::Returned(_));
        let mut outcome = self.told(call, ended).await;
        if outcome.truncated_by_host {
            outcome.answers = Box::pin(self.answers_of(call)).await;
        }
        // What a guest that failed was told is told by running it.
        if returned {
            self.remember(call, &outcome).await;
        }
        outcome
    }

    async fn told(&self, call: &Arc<Call>, ended: Ended) -> Outcome {
        let asked = call.asked();
        let Ok(book) = self.host.book() else {
            let seen = without_ledger(call, &asked, &ended);
            let outcome = outcome::outcome(ended, &seen, call.purposes_declared());
            // It was looked for when the process started; calling again will not bring it.
            let unavailable = outcome.code == Some(Code::LedgerUnavailable);
            let next_action = if unavailable { NextAction::AskPerson } else { outcome.next_action };
            return Outcome { next_action, ..outcome };
        };
        let mut seen = Vec::new();
        for one in &asked {
            seen.extend(Box::pin(self.seen(book, one)).await);
        }
        if !asked.is_empty() {
            return outcome::outcome(ended, &seen, call.purposes_declared());
        }
        let found = if call.may_act() && ended != Ended::Running {
            Box::pin(self.found_by_lookups(book, call)).await
        } else {
            Vec::new()
        };
        if found.is_empty() {
            let seen = refused_lookup(call, &ended);
            return outcome::outcome(ended, &seen, call.purposes_declared());
        }
        // Rule 13: these rows are what the call is about, whatever the guest made of it.
        outcome::outcome(ended, &found, 1)
    }

    /// One effect that the call asked for.
    async fn seen(&self, book: &Book, asked: &Asked) -> Option<Seen> {
        let row = match asked.instead.or(asked.key) {
            Some(key) => match book.effects.get(key).await {
                Ok(row) => row,
                // It may have been sent; a ledger that cannot be read is no proof that it was not.
                Err(error) => {
                    tracing::error!(%error, "a row cannot be read");
                    let refusal = asked.stop.as_ref().and_then(Stop::code);
                    return Some(match refusal {
                        Some(code) => refused(code, None),
                        None => Seen { fate: Fate::Open(Detail::Unknown), ..refused(Code::LedgerUnavailable, None) },
                    });
                }
            },
            None => None,
        };
        let code = asked.stop.as_ref().and_then(Stop::code);
        let Some(row) = row else {
            return match (code, &asked.stop) {
                (Some(code), stop) => Some(refused(code, stop.as_ref())),
                (None, Some(stop)) => Some(Seen { fate: without_row(stop), ..Seen::default() }),
                // The guest was ended before anything was written down.
                (None, None) => None,
            };
        };
        let reason = asked.stop.as_ref().map(ToString::to_string);
        Some(match code {
            Some(code) => Seen { view: Some(view(&row)), ..refused(code, asked.stop.as_ref()) },
            None if asked.instead.is_some() => {
                let stuck = self.is_stuck(book, &row).await;
                Seen { stuck, ..another(&row) }
            }
            None => {
                let stuck = self.is_stuck(book, &row).await;
                let said = reason.filter(|_| asked.stop == Some(Stop::ApprovalDoesNotCount));
                let seen = from_row(&row, asked.before.unwrap_or(false));
                Seen { reworded: asked.reworded, stuck, reason: said.or(seen.reason.clone()), ..seen }
            }
        })
    }

    /// Unknown, and nothing the host does by itself will change that: no rule, or long enough without.
    async fn is_stuck(&self, book: &Book, row: &Effect) -> bool {
        let Some(dispatch) = row.dispatch.as_deref().filter(|_| row.state == StateTag::Unknown) else { return false };
        let contract = self.host.contract(book, dispatch.contract).await.ok();
        let operation = contract.as_ref().and_then(|contract| contract.operations.get(&dispatch.operation));
        let ruled = operation.is_some_and(|operation| operation.settle.is_some() || dispatch.provider_dedupes);
        !ruled || (self.host.now)() > row.state_since.saturating_add(ASK_PERSON_AFTER_MS)
    }

    /// The rows whose keys were resolved by the same lookups as this call's.
    async fn found_by_lookups(&self, book: &Book, call: &Call) -> Vec<Seen> {
        let component = &call.component.description.digest;
        // Several effects under one lookup: which of them this call is about, it does not tell.
        let [key] = Self::keys_by_lookups(book, call).await[..] else { return Vec::new() };
        let before = matches!(book.effects.get(key).await, Ok(Some(row)) if row.heard_state() == StateTag::Done);
        let row = settle::refresh(&self.host, book, key, Some(component), Patience::Brief).await;
        let Ok(Some(row)) = row else { return Vec::new() };
        let same_tool = match row.dispatch.as_deref() {
            Some(dispatch) if dispatch.tool == call.tool => {
                perform::is_of(call, book, &dispatch.owner, &dispatch.action).await
            }
            _ => false,
        };
        // What is proven not to have happened says nothing about a guest that asked for nothing.
        let seen = from_row(&row, before);
        let tells = same_tool && row.state != StateTag::Undone && !matches!(seen.fate, Fate::NoEffect(_));
        if tells { vec![seen] } else { Vec::new() }
    }

    /// The effects whose keys were resolved by the same lookups as this call's.
    pub(crate) async fn keys_by_lookups(book: &Book, call: &Call) -> Vec<[u8; 32]> {
        let mut keys = Vec::new();
        for fetch in call.lookups() {
            let id = StreamId { kind: StreamKind::Lookup, id: fetch.digest };
            let Ok(records) = book.effects.ledger.read(id).await else { continue };
            keys.extend(records.into_iter().filter_map(|record| match record.event {
                Event::LookupResolved { effect } => Some(effect),
                _ => None,
            }));
        }
        keys.sort_unstable();
        keys.dedup();
        let mut rows = Vec::new();
        for key in keys {
            let Ok(row) = book.effects.get(key).await else { return Vec::new() };
            rows.extend(row.map(|row| (key, row.without_bytes())));
        }
        settle::heard_by(call, &rows)
    }
}

fn check_context(context: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, value) in context {
        if !CONTEXT_NAMES.contains(&name.as_str()) {
            return Err(format!(
                "{} is no fact of the context; the facts are {}",
                oncegate_contract::safe_text(name),
                CONTEXT_NAMES.join(", ")
            ));
        }
        if value.is_empty() || value.len() > CONTEXT_VALUE_BYTES_MAX || value.chars().any(char::is_control) {
            return Err(format!(
                "the fact {name} must have 1 to {CONTEXT_VALUE_BYTES_MAX} bytes and no control characters"
            ));
        }
    }
    Ok(())
}

fn without_ledger(call: &Call, asked: &[Asked], ended: &Ended) -> Vec<Seen> {
    let refusals: Vec<_> = asked
        .iter()
        .filter_map(|one| one.stop.as_ref())
        .map(|stop| refused(stop.code().unwrap_or(Code::LedgerUnavailable), Some(stop)))
        .collect();
    if refusals.is_empty() { refused_lookup(call, ended) } else { refusals }
}

/// A lookup that was refused explains why a guest failed; one that did not fail explains nothing.
fn refused_lookup(call: &Call, ended: &Ended) -> Vec<Seen> {
    let stop =
        call.lookup_stop().filter(|_| !matches!(ended, Ended::Returned(_) | Ended::TooLarge { .. } | Ended::Running));
    let code = stop.as_ref().and_then(Stop::code);
    code.map(|code| refused(code, stop.as_ref())).into_iter().collect()
}

/// What a call that left no row behind is told; only what is on record as not sent is proof.
fn without_row(stop: &Stop) -> Fate {
    match stop {
        Stop::NotSent(_) => Fate::NoEffect(Nothing::NotReached),
        Stop::NotSetUp(_) => Fate::NoEffect(Nothing::NotSetUp),
        Stop::Unsettled(detail) => Fate::Open(*detail),
        Stop::AwaitingApproval | Stop::ApprovalDoesNotCount => Fate::Open(Detail::AwaitingApproval),
        _ => Fate::Open(Detail::InProgress),
    }
}

fn refused(code: Code, stop: Option<&Stop>) -> Seen {
    let limit = stop.and_then(Stop::limit).map(str::to_owned);
    Seen { fate: Fate::Refused(code), reason: stop.map(ToString::to_string), limit, ..Seen::default() }
}

/// Another effect that has the purpose of one that was asked for: told as it stands, and never as this
/// call's own doing.
fn another(row: &Effect) -> Seen {
    let state = row.superseded_by.as_ref().map_or(row.state, |later| later.before);
    // It may have given the purpose back since: the next call finds out.
    let fate = match from_row(&Effect { state, ..row.clone() }, true).fate {
        fate @ (Fate::Done { .. } | Fate::Open(_)) => fate,
        Fate::NoEffect(_) | Fate::Refused(_) => Fate::Open(Detail::InProgress),
    };
    Seen { view: Some(view(row)), fate, another: true, ..Seen::default() }
}

fn from_row(row: &Effect, before: bool) -> Seen {
    // A reason is the provider's only where the provider answered.
    let answered = row.attempts.last().is_some_and(|attempt| attempt.responded);
    // Whoever follows a superseding decision is told of the later epoch's row.
    let fate = match row.heard_state() {
        _ if row.frozen => Fate::Open(Detail::Frozen),
        // This call did it or found it done; that it was undone since is in its view.
        StateTag::Done | StateTag::Undone => Fate::Done { before: before || row.superseded_by.is_some() },
        StateTag::NoEffect if answered => Fate::NoEffect(Nothing::Refused),
        StateTag::NoEffect => Fate::NoEffect(Nothing::NotReached),
        StateTag::Dispatched | StateTag::Responded => Fate::Open(Detail::InProgress),
        StateTag::Unknown => Fate::Open(Detail::Unknown),
        StateTag::Issued => Fate::Open(Detail::Issued),
        StateTag::Stranded => Fate::Open(Detail::Stranded),
        StateTag::Planned | StateTag::AwaitingApproval => Fate::Open(Detail::AwaitingApproval),
        StateTag::Revoked | StateTag::Superseded => Fate::Refused(Code::Revoked),
    };
    let reason = row.reason.clone().filter(|_| answered && row.state != StateTag::AwaitingApproval);
    Seen { view: Some(view(row)), fate, reason, ..Seen::default() }
}

/// An effect as people and agents see it.
#[must_use]
pub fn view(row: &Effect) -> EffectView {
    EffectView {
        label: row.label().to_owned(),
        state: row.heard_state().as_str().to_owned(),
        receipt: row.receipt.as_deref().map(oncegate_contract::safe_text),
        at: rfc3339(row.state_since),
        unconfirmed: settle::wants_confirmation(row),
    }
}

/// Milliseconds since the Unix epoch as RFC 3339.
#[must_use]
pub fn rfc3339(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| "out of range".to_owned(), |at| at.to_string())
}

/// How long a caller should be kept waiting at most when a process ends.
pub const DRAIN_MAX: Duration = Duration::from_secs(120);
