//! One call of one tool: what it may use, what it looked up and what it asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use oncegate_contract::{Contract, EffectClass, Fetched, FieldError, Operation, Sources, Value};
use oncegate_ledger::StreamId;

use crate::client_key::Used;
use crate::computing::Turn;
use crate::host::{Host, digest};
use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX, Limits};
use crate::load::Loaded;
use crate::lookup;
use crate::outcome::Code;
use crate::perform;
use crate::plan::PlanSource;
use crate::policy::{self, Denied, Grant};
use crate::stop::Stop;

/// Facts by which a decision says for whom it is.
const NAMED_BY: [&str; 3] = ["permit", "plan", "run"];

/// The state of one call; shared by the guest, the call's own task and the answer that is given
/// when the guest takes too long.
pub(crate) struct Call {
    pub(crate) host: Arc<Host>,
    pub(crate) component: Arc<Loaded>,
    pub(crate) tool: String,
    pub(crate) arguments: serde_json::Value,
    pub(crate) context: BTreeMap<String, String>,
    pub(crate) limits: Limits,
    pub(crate) plan: PlanSource,
    /// Whether its guest computes now.
    pub(crate) turn: Turn,
    /// What its effects and lookups belong to, for whoever listens to spans.
    pub(crate) span: tracing::Span,
    client_key: OnceLock<Used>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    host_calls: u32,
    fetches: Vec<Arc<Fetch>>,
    asked: Vec<Asked>,
    lookup_stop: Option<Stop>,
    closed: bool,
    only_looks: bool,
    /// Streams whose records decide what the call is told, with their versions.
    rests: Vec<(StreamId, u64)>,
}

/// One lookup of the call, as it was answered.
#[derive(Clone)]
pub(crate) struct Fetch {
    /// What fields are resolved from.
    pub(crate) fetched: Fetched,
    /// Identity of the request: who asked what of whom.
    pub(crate) digest: [u8; 32],
    /// The answer's bytes; none where `effect` has them.
    pub(crate) raw: Vec<u8>,
    /// The effect whose stored answer this is; none for a lookup.
    pub(crate) effect: Option<[u8; 32]>,
}

/// One effect the call asked for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The key, once it was derived.
    pub(crate) key: Option<[u8; 32]>,
    /// Whether it was done before this call first asked, once that is known.
    pub(crate) before: Option<bool>,
    /// The text of the first time differs.
    pub(crate) reworded: bool,
    /// Why it was not performed.
    pub(crate) stop: Option<Stop>,
    /// The effect that has served its purpose.
    pub(crate) instead: Option<[u8; 32]>,
}

/// What the guest is given for an operation.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) replayed: bool,
    /// None for a lookup; else whether the effect is done or proven not to have happened.
    pub(crate) done: Option<bool>,
}

impl Call {
    pub(crate) fn new(
        host: Arc<Host>,
        component: Arc<Loaded>,
        tool: String,
        arguments: serde_json::Value,
        context: BTreeMap<String, String>,
        limits: Limits,
        plan: PlanSource,
    ) -> Arc<Self> {
        let (turn, client_key, progress) = (Turn::default(), OnceLock::new(), Mutex::default());
        let span = tracing::Span::current();
        Arc::new(Self { host, component, tool, arguments, context, limits, plan, turn, span, client_key, progress })
    }

    pub(crate) fn contract(&self) -> &Contract {
        &self.component.description.contract
    }

    /// The tenant's name; an empty one where nobody named any.
    pub(crate) fn tenant(&self) -> &str {
        self.context.get("tenant").map_or("", String::as_str)
    }

    /// Says which key its client sent along; the first word counts.
    pub(crate) fn set_client_key(&self, used: Used) {
        let _ = self.client_key.set(used);
    }

    /// The client's own key for this call, if it sent one.
    pub(crate) fn client_key(&self) -> Option<&Used> {
        self.client_key.get()
    }

    /// True when this tool's contract gives it an operation that causes effects.
    pub(crate) fn may_act(&self) -> bool {
        let contract = self.contract();
        let operations = contract.tools.get(&self.tool).map(|tool| &tool.operations[..]).unwrap_or_default();
        operations
            .iter()
            .any(|name| contract.operations.get(name).is_some_and(|operation| operation.effect == EffectClass::Keyed))
    }

    /// Effects that the contract allows this tool; none where it can only read.
    pub(crate) fn effects_declared(&self) -> u32 {
        let declared = self.contract().tools.get(&self.tool).map_or(0, |tool| tool.effects);
        if self.may_act() { declared } else { 0 }
    }

    /// The same, as the status of a call counts them: an effect and the one that completes it are done
    /// together or not at all, so they are one.
    pub(crate) fn purposes_declared(&self) -> u32 {
        let contract = self.contract();
        let operations = contract.tools.get(&self.tool).map(|tool| &tool.operations[..]).unwrap_or_default();
        let completes = |name: &&String| contract.operations.get(*name).is_some_and(|one| one.completes.is_some());
        let completing = u32::try_from(operations.iter().filter(completes).count()).unwrap_or(u32::MAX);
        let declared = self.effects_declared();
        declared.saturating_sub(completing).max(declared.min(1))
    }

    pub(crate) fn context_value(&self, name: &str) -> Option<String> {
        self.contract().context_facts(&self.tool).contains(name).then(|| self.context.get(name).cloned()).flatten()
    }

    /// The operation of that name, if the contract gives it to this tool with that class.
    pub(crate) fn operation(&self, name: &str, class: EffectClass) -> Result<&Operation, Stop> {
        let contract = self.contract();
        let declared = contract.tools.get(&self.tool).is_some_and(|tool| tool.operations.iter().any(|one| one == name));
        contract
            .operations
            .get(name)
            .filter(|operation| declared && operation.effect == class)
            .ok_or_else(|| Stop::NotPermitted(format!("the tool {} has no such operation", self.tool)))
    }

    /// Whose the effects of this component are.
    pub(crate) fn owner(&self) -> Result<policy::Owned, Stop> {
        let description = &self.component.description;
        policy::owner(&self.host.policy, &description.digest, &description.contract.component.name).map_err(denied)
    }

    pub(crate) fn grant(&self, operation: &Operation) -> Result<Grant, Denied> {
        let description = &self.component.description;
        policy::decide(&self.host.policy, &description.contract, &description.digest, self.tenant(), &operation.name)
    }

    /// Resolves an operation's fields from this call's sources.
    pub(crate) fn resolve(
        &self,
        operation: &Operation,
        given: &[(String, Value)],
    ) -> Result<(oncegate_contract::Resolved, Vec<Arc<Fetch>>), Stop> {
        let fetches = self.progress().fetches.clone();
        let lookups: Vec<Fetched> = fetches.iter().map(|fetch| fetch.fetched.clone()).collect();
        let plan = self.plan.values(&self.tool, &self.arguments, operation)?;
        let sources = Sources { context: &self.context, arguments: &self.arguments, lookups: &lookups, given, plan };
        let resolved = oncegate_contract::resolve(operation, &sources).map_err(field_stop)?;
        let used = fetches.into_iter().filter(|fetch| resolved.fetches.contains(&fetch.fetched.fetch)).collect();
        Ok((resolved, used))
    }

    /// The same call as the earlier recipes under `was` resolve it.
    pub(crate) fn formers(
        &self,
        operation: &Operation,
        given: &[(String, Value)],
    ) -> Result<Vec<(Operation, oncegate_contract::Resolved)>, Stop> {
        let lookups: Vec<Fetched> = self.lookups().iter().map(|fetch| fetch.fetched.clone()).collect();
        let plan = self.plan.values(&self.tool, &self.arguments, operation)?;
        let sources = Sources { context: &self.context, arguments: &self.arguments, lookups: &lookups, given, plan };
        oncegate_contract::formers(operation, &sources).map_err(field_stop)
    }

    /// Whether an operator's decision names this call: `permit:ID`, `plan:ID` or `run:ID`, as the
    /// orchestrator gave it.
    pub(crate) fn is_named(&self, for_whom: &str) -> bool {
        let Some((fact, id)) = for_whom.split_once(':') else { return false };
        NAMED_BY.contains(&fact) && self.context.get(fact).is_some_and(|given| given == id)
    }

    /// The name of an operation as its contract declares it; none of one that is not declared.
    pub(crate) fn declared(&self, operation: &str) -> Option<&str> {
        self.contract().operations.get_key_value(operation).map(|(name, _)| name.as_str())
    }

    /// Sends a lookup and notes why one was refused.
    pub(crate) async fn fetch(&self, name: &str, given: Vec<(String, Value)>) -> Result<Reply, Stop> {
        let reply = self.fetch_now(name, given).await;
        if let Err(stop) = &reply {
            self.note_lookup_stop(stop.clone());
        }
        reply
    }

    /// Notes why a lookup was refused: it explains what a guest then fails of.
    pub(crate) fn note_lookup_stop(&self, stop: Stop) {
        self.progress().lookup_stop = Some(stop);
    }

    /// Sends a lookup and keeps its answer as a source.
    async fn fetch_now(&self, name: &str, given: Vec<(String, Value)>) -> Result<Reply, Stop> {
        let operation = self.operation(name, EffectClass::None)?;
        let lookups = self.progress().fetches.iter().filter(|fetch| fetch.effect.is_none()).count();
        if lookups >= self.limits.lookups_max as usize {
            return Err(Stop::Limit("lookups".to_owned()));
        }
        let used: usize = self.progress().fetches.iter().map(|fetch| fetch.raw.len()).sum();
        let room = self.limits.lookup_bytes_max.saturating_sub(used);
        let (resolved, _) = self.resolve(operation, &given)?;
        let grant = self.grant(operation).map_err(denied)?;
        let found = lookup::send(&self.host, operation, &grant, &resolved, self.tenant(), room).await?;
        let counts = oncegate_contract::found(operation, &found.answer);
        self.add_source(name, counts, &found.answer, |fetched| Fetch {
            fetched,
            digest: found.digest,
            raw: found.raw,
            effect: None,
        });
        Ok(self.reply(operation, found.answer, false, None))
    }

    /// Keeps an answer of this call for fields that name its operation.
    pub(crate) fn add_source(
        &self,
        operation: &str,
        found: bool,
        answer: &oncegate_contract::Answer,
        fetch: impl FnOnce(Fetched) -> Fetch,
    ) {
        let body = oncegate_contract::parse_json(&answer.body).unwrap_or(serde_json::Value::Null);
        let mut progress = self.progress();
        let ordinal = u32::try_from(progress.fetches.len()).unwrap_or(u32::MAX);
        let fetched = Fetched { fetch: ordinal, operation: operation.to_owned(), found, body };
        progress.fetches.push(Arc::new(fetch(fetched)));
    }

    /// Performs an effect and notes what came of it.
    pub(crate) async fn perform(call: &Arc<Self>, name: &str, given: Vec<(String, Value)>) -> Result<Reply, Stop> {
        let mut asked = Asked { key: None, before: None, reworded: false, stop: None, instead: None };
        let ended = if call.only_looks() {
            perform::look(call, name, &given, &mut asked).await
        } else {
            perform::perform(call, name, &given, &mut asked).await
        };
        asked.stop = ended.as_ref().err().cloned();
        call.note(asked);
        ended
    }

    /// Shapes an answer for the guest: capped, and with the declared headers only.
    pub(crate) fn reply(
        &self,
        operation: &Operation,
        answer: oncegate_contract::Answer,
        replayed: bool,
        done: Option<bool>,
    ) -> Reply {
        let mut body = answer.body;
        let (size, max) = (body.len(), self.limits.response_bytes_max);
        if size > max {
            tracing::warn!(operation = %operation.name, size, max, "the guest sees an answer cut at the limit response");
            body.truncate(max);
        }
        let shown = |name: &str| operation.headers.iter().any(|header| header.eq_ignore_ascii_case(name));
        let headers = answer
            .headers
            .into_iter()
            .filter(|(name, value)| shown(name) && value.len() <= HEADER_BYTES_MAX)
            .take(HEADERS_MAX)
            .map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()))
            .collect();
        Reply { status: answer.status, body, headers, replayed, done }
    }

    /// Notes a key before anything is sent for it, so that a call whose guest is gone still tells of it.
    pub(crate) fn note(&self, asked: Asked) {
        let mut progress = self.progress();
        // What has no key is told by its reason, once.
        let same = |one: &&mut Asked| one.key == asked.key && (one.key.is_some() || one.stop == asked.stop);
        let known = progress.asked.iter_mut().find(same);
        match known {
            // What was done before the call was settled when it first asked.
            Some(one) => {
                *one = Asked { before: one.before.or(asked.before), reworded: one.reworded || asked.reworded, ..asked }
            }
            None => progress.asked.push(asked),
        }
    }

    /// Forgets a key that turned out not to be the call's.
    pub(crate) fn forget(&self, key: &[u8; 32]) {
        self.progress().asked.retain(|one| one.key.as_ref() != Some(key));
    }

    /// Notes something that was refused before it had a key.
    pub(crate) fn note_stop(&self, stop: Stop) {
        self.note(Asked { key: None, before: None, reworded: false, stop: Some(stop), instead: None });
    }

    pub(crate) fn note_refused_write(&self, operation: &str) {
        let digest = oncegate_contract::safe_text(operation);
        tracing::warn!(tool = %self.tool, operation = %digest, code = ?Code::EffectNotPermitted, "a tool that only reads asked for an effect");
        self.note_stop(Stop::NotPermitted("this tool only reads".to_owned()));
    }

    /// Counts a new effect against the contract and the limits; a repeat within the call is free.
    pub(crate) fn count_effect(&self, key: &[u8; 32]) -> Result<(), Stop> {
        let progress = self.progress();
        if progress.closed {
            return Err(Stop::NotPermitted("the call has ended".to_owned()));
        }
        if self.host.is_closed() {
            return Err(Stop::NotSent("the host is ending".to_owned()));
        }
        let others = progress.asked.iter().filter(|one| one.key.is_some_and(|other| other != *key)).count();
        let max = self.effects_declared().min(self.limits.effects_max);
        if others >= max as usize { Err(Stop::Limit("effects".to_owned())) } else { Ok(()) }
    }

    /// Whether the guest may call the host once more.
    pub(crate) fn count_host_call(&self) -> bool {
        let mut progress = self.progress();
        progress.host_calls = progress.host_calls.saturating_add(1);
        progress.host_calls <= self.limits.host_calls_max
    }

    /// The guest is run once more, since the process that ran it was lost. What it asked for stays on record: those
    /// effects are done or under way, and answer from their rows.
    pub(crate) fn again(&self) {
        let mut progress = self.progress();
        progress.host_calls = 0;
        progress.fetches.clear();
        progress.rests.clear();
        progress.lookup_stop = None;
        // What had no key yet was not sent.
        progress.asked.retain(|one| one.key.is_some() || one.instead.is_some());
    }

    /// From now on effects are looked up and not performed.
    pub(crate) fn only_look(&self) {
        self.progress().only_looks = true;
    }

    /// Notes that what is told rests on this stream, which is at this version; 0 where there is none.
    pub(crate) fn rests_on(&self, stream: StreamId, version: u64) {
        let mut progress = self.progress();
        if !progress.rests.contains(&(stream, version)) {
            progress.rests.push((stream, version));
        }
    }

    /// All that was noted. A stream that changed meanwhile is there twice.
    pub(crate) fn rests(&self) -> Vec<(StreamId, u64)> {
        self.progress().rests.clone()
    }

    /// The same for two calls that differ in nothing: component, tool, arguments, context, client's key.
    pub(crate) fn identity(&self) -> [u8; 32] {
        let arguments = self.arguments.to_string();
        let component = &self.component.description.digest;
        let mut parts: Vec<&[u8]> = vec![component, self.tool.as_bytes(), arguments.as_bytes()];
        for (name, value) in &self.context {
            parts.extend([name.as_bytes(), value.as_bytes()]);
        }
        parts.extend(self.client_key().map(|used| &used.stream.id[..]));
        digest(&parts)
    }

    pub(crate) fn only_looks(&self) -> bool {
        self.progress().only_looks
    }

    /// No effect is dispatched after this; what is on its way is not touched.
    pub(crate) fn close(&self) {
        self.turn.end();
        self.progress().closed = true;
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.progress().asked.clone()
    }

    pub(crate) fn lookup_stop(&self) -> Option<Stop> {
        self.progress().lookup_stop.clone()
    }

    pub(crate) fn lookups(&self) -> Vec<Arc<Fetch>> {
        self.progress().fetches.clone()
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn field_stop(error: FieldError) -> Stop {
    match error {
        FieldError::ContextMissing { name } => Stop::ContextMissing(name),
        other @ FieldError::Invalid { .. } => Stop::InvalidField(other.to_string()),
    }
}

/// What the agent hears of a denial; the operator's text goes to the log.
pub(crate) fn denied(denied: Denied) -> Stop {
    tracing::warn!(reason = %denied.for_operator(), "not permitted");
    if let Some(name) = denied.context_missing() {
        return Stop::ContextMissing(name.to_owned());
    }
    Stop::NotPermitted(denied.for_agent().to_owned())
}
