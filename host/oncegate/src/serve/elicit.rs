//! Approvals by the person at the client, where the policy takes that client's word for them.
//!
//! In the older revision the server asks during the call and waits for a bounded time; in the newer one
//! the call is answered `input_required`, and its repeat brings the answer with a sealed state. Either way
//! the decision is an event of the ledger at the row's version that was shown, and the call goes on as any
//! call after an approval does: what is sent is the stored request.

mod answer;
mod decision;
mod question;
mod quiet;
mod state;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oncegate_ledger::{Effects, Ledger};
use oncegate_sandbox::outcome::{Code, NextAction, Outcome};
use oncegate_sandbox::policy::Policy;
use oncegate_sandbox::{Ready, Sandbox};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CreateTaskResult, ElicitRequest, InputRequest, InputRequiredResult, JsonObject,
    ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use serde_json::Value;

use super::caller::{self, Caller};
use super::calling::{self, Called, Ran};
use super::catalog::Entry;
use super::server::Server;
use crate::home::now_ms;
use answer::{Reply, Verdict};
use decision::Decision;
use question::{Next, Question};
use quiet::Quiet;
use state::{Claims, Sealer};

/// Questions within one call of the older revision: a person who has decided so many is not asked by the
/// same call again.
const QUESTIONS_MAX: usize = 16;
/// A client that wants its answer sooner is not asked: a question that comes and goes is clicked on unread.
const READ_MIN: Duration = Duration::from_secs(10);
/// The name of the only question of an `input_required`.
const QUESTION: &str = "approval";

/// What asking needs.
pub(super) struct Elicitation {
    effects: Effects,
    sealer: Sealer,
    quiet: Quiet,
}

impl Elicitation {
    pub(super) fn new(ledger: Arc<dyn Ledger>, home: &Path) -> Self {
        Self { sealer: Sealer::new(home, ledger.identity().id), effects: Effects::new(ledger), quiet: Quiet::default() }
    }
}

/// What the client is told.
pub(super) enum Told {
    Outcome(Box<Outcome>),
    /// `input_required`.
    Asked(Box<InputRequiredResult>),
    /// It goes on as a task, which asks nobody.
    Task(Box<CreateTaskResult>),
}

/// How a client can ask its person.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It cannot.
    None,
    /// It is sent a request.
    Request,
    /// It is given the question as the call's result.
    Result,
}

/// Runs a tool; where a person has to approve and may do so through this client, asks.
pub(super) async fn call(
    server: &Server,
    sandbox: &Sandbox,
    entry: &Entry,
    request: CallToolRequestParams,
    caller: &Caller,
    context: &RequestContext<RoleServer>,
) -> Told {
    let CallToolRequestParams { arguments, input_responses, request_state, .. } = request;
    let arguments = arguments.unwrap_or_default();
    let prepared = match calling::ready(server, sandbox, entry, arguments.clone(), caller, context).await {
        Ok(prepared) => prepared,
        Err(refused) => return Told::Outcome(refused),
    };
    let Some(elicitation) = &server.shared.elicitation else {
        return match calling::call(server, sandbox, entry, prepared, caller, context).await {
            Ran::Answered(called) => Told::Outcome(Box::new(called.outcome)),
            Ran::Task(task) => Told::Task(task),
        };
    };
    let identity = Identity::of(&prepared.ready);
    let turn = Turn { server, sandbox, entry, arguments, caller, context, elicitation, identity };
    let mut way = way(context);
    if request_state.is_some() || input_responses.is_some() {
        let response = input_responses.as_ref().and_then(|responses| responses.get(QUESTION));
        match turn.redeem(request_state.as_deref(), response).await {
            Ok(Redeemed::Dismissed) => way = Way::None,
            Ok(Redeemed::GoesOn) => {}
            Err(refused) => return Told::Outcome(refused),
        }
    }
    let called = match calling::call(server, sandbox, entry, prepared, caller, context).await {
        Ran::Answered(called) => called,
        Ran::Task(task) => return Told::Task(task),
    };
    match way {
        Way::None => Told::Outcome(Box::new(called.outcome)),
        Way::Request => Told::Outcome(Box::new(turn.converse(called).await)),
        Way::Result => turn.require(called).await,
    }
}

/// What the client of this request says that it can do.
fn way(context: &RequestContext<RoleServer>) -> Way {
    let (way, capabilities) = match caller::is_newer(context) {
        true => (Way::Result, context.meta.client_capabilities()),
        // Only a handshake makes a connection on which the client can be asked.
        false => (Way::Request, context.peer.peer_info().map(|info| info.capabilities.clone())),
    };
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation);
    // Before there were modes an empty capability meant forms.
    let forms = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
    if forms { way } else { Way::None }
}

/// What makes a call this one.
struct Identity {
    call: [u8; 32],
    tenant: String,
}

impl Identity {
    fn of(ready: &Ready) -> Self {
        Self { call: ready.identity(), tenant: ready.tenant().to_owned() }
    }
}

/// What a state that came back led to.
enum Redeemed {
    /// What was to be decided is decided, or nothing was said; the call goes on.
    GoesOn,
    /// The person did not want to decide.
    Dismissed,
}

/// One request.
struct Turn<'a> {
    server: &'a Server,
    sandbox: &'a Sandbox,
    entry: &'a Entry,
    arguments: JsonObject,
    caller: &'a Caller,
    context: &'a RequestContext<RoleServer>,
    elicitation: &'a Elicitation,
    identity: Identity,
}

impl Turn<'_> {
    fn policy(&self) -> &Policy {
        self.sandbox.policy()
    }

    /// Who is on record for what comes through this client.
    fn actor(&self) -> String {
        let client = self.context.client_info().map(|info| info.name).unwrap_or_default();
        self.caller.door.actor(&self.identity.tenant, &client)
    }

    /// How long the person has; less where the client said when it wants its answer.
    fn within(&self) -> Duration {
        let within = self.policy().limits.elicitation_within;
        self.caller.within.unwrap_or(within).min(within)
    }

    async fn again(&self) -> Result<Called, Box<Outcome>> {
        let Self { server, sandbox, entry, caller, context, .. } = self;
        let prepared = calling::ready(server, sandbox, entry, self.arguments.clone(), caller, context).await?;
        Ok(calling::answered(server, sandbox, entry, prepared.ready, caller, context).await)
    }

    async fn next(&self, called: &Called) -> Next {
        question::next(&self.elicitation.effects, self.policy(), &called.awaiting, &self.actor()).await
    }

    /// Asks by requests of the server's own, until nothing waits or nobody answers.
    async fn converse(&self, mut called: Called) -> Outcome {
        if self.caller.within.is_some_and(|within| within < READ_MIN) {
            return called.outcome;
        }
        for _ in 0..QUESTIONS_MAX {
            match self.next(&called).await {
                Next::Nothing => break,
                Next::Decided => {}
                Next::Ask(question) => {
                    if !self.put(&question).await {
                        break;
                    }
                }
            }
            called = match self.again().await {
                Ok(called) => called,
                Err(refused) => return *refused,
            };
        }
        called.outcome
    }

    /// Puts one question; whether it is decided now.
    async fn put(&self, question: &Question) -> bool {
        let Some(asking) = self.elicitation.quiet.begin(question.seen.key) else { return false };
        let reply = self.request(question).await;
        let Reply::Verdict(verdict) = reply else {
            if reply == Reply::Dismissed {
                asking.dismissed();
            }
            return false;
        };
        // The policy may be another than when it was asked; a "no" is one under any.
        let (effects, actor) = (&self.elicitation.effects, self.actor());
        let now = self.server.shared.sandbox();
        if verdict == Verdict::Approve && !question::counts(effects, now.policy(), &question.seen, &actor).await {
            return false;
        }
        let decision = Decision { actor, verdict, id: decision::id(&question.seen, &rand::random::<[u8; 16]>()) };
        decision.record(effects, &question.seen).await
    }

    /// One `elicitation/create`.
    async fn request(&self, question: &Question) -> Reply {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(question.form()));
        let sent = self.context.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let mut asked = match sent {
            Ok(asked) => asked,
            Err(error) => {
                tracing::debug!(%error, "the client was not asked");
                return Reply::Gone;
            }
        };
        let reply = tokio::select! {
            biased;
            () = self.server.shared.closing.cancelled() => Reply::Gone,
            () = self.context.ct.cancelled(), if self.caller.cancels => Reply::Gone,
            answered = &mut asked.rx => return answered.map_or(Reply::Gone, answer::of_client),
            // Nobody was there; whoever repeats the call does not call them at once.
            () = tokio::time::sleep(self.within()) => Reply::Dismissed,
        };
        if let Err(error) = asked.cancel(Some("it is not waited for any more".to_owned())).await {
            tracing::debug!(%error, "the client was not told that it is not asked any more");
        }
        reply
    }

    /// The question as the call's result.
    async fn require(&self, mut called: Called) -> Told {
        let mut next = self.next(&called).await;
        if matches!(next, Next::Decided) {
            called = match self.again().await {
                Ok(called) => called,
                Err(refused) => return Told::Outcome(refused),
            };
            next = self.next(&called).await;
        }
        let Next::Ask(question) = next else { return Told::Outcome(Box::new(called.outcome)) };
        if self.elicitation.quiet.is_quiet(&question.seen.key) {
            return Told::Outcome(Box::new(called.outcome));
        }
        let within = u64::try_from(self.policy().limits.elicitation_within.as_millis()).unwrap_or(u64::MAX);
        let claims = self.claims(&question, now_ms().saturating_add(within));
        match self.elicitation.sealer.seal(&claims) {
            Ok(state) => {
                let form = InputRequest::Elicitation(ElicitRequest::new(question.form()));
                let questions = [(QUESTION.to_owned(), form)].into();
                Told::Asked(Box::new(InputRequiredResult::new(Some(questions), Some(state))))
            }
            Err(why) => {
                tracing::error!("nobody can be asked through clients: {why:#}");
                Told::Outcome(Box::new(called.outcome))
            }
        }
    }

    fn claims(&self, question: &Question, expires: u64) -> Claims {
        Claims {
            seen: question.seen.clone(),
            call: self.identity.call,
            tenant: self.identity.tenant.clone(),
            tool: self.entry.tool.name.to_string(),
            door: self.caller.door.to_string(),
            nonce: rand::random(),
            expires,
        }
    }

    /// Takes the answer that a state came back with.
    async fn redeem(&self, state: Option<&str>, response: Option<&Value>) -> Result<Redeemed, Box<Outcome>> {
        let claims = state.and_then(|state| self.elicitation.sealer.open(state)).ok_or_else(|| refused(FORGED))?;
        let (tool, door) = (&*self.entry.tool.name, self.caller.door.to_string());
        let mine = claims.call == self.identity.call && claims.tenant == self.identity.tenant;
        if !mine || claims.tool != tool || claims.door != door {
            return Err(refused(ELSEWHERE));
        }
        if now_ms() >= claims.expires {
            return Err(refused(EXPIRED));
        }
        let Some(response) = response else { return Ok(Redeemed::GoesOn) };
        let Reply::Verdict(verdict) = answer::of_json(response) else {
            self.elicitation.quiet.dismissed(claims.seen.key);
            return Ok(Redeemed::Dismissed);
        };
        self.decide(&claims, verdict).await
    }

    async fn decide(&self, claims: &Claims, verdict: Verdict) -> Result<Redeemed, Box<Outcome>> {
        let effects = &self.elicitation.effects;
        let actor = self.actor();
        // The policy may be another than when it was asked.
        if !question::counts(effects, self.policy(), &claims.seen, &actor).await {
            return Err(Box::new(Outcome::refused(Code::EffectNotPermitted, NOT_HERE)));
        }
        let decision = Decision { actor, verdict, id: decision::id(&claims.seen, &claims.nonce) };
        if decision.record(effects, &claims.seen).await { Ok(Redeemed::GoesOn) } else { Err(refused(USED)) }
    }
}

const FORGED: &str = "This request state was not given out here, or it was changed; nothing was decided and nothing was sent. \
                      Call again without it.";
const ELSEWHERE: &str = "This request state belongs to another call or another caller; nothing was decided and nothing was sent. \
                         Call again without it.";
const EXPIRED: &str =
    "This request state has expired; nothing was decided and nothing was sent. Call again without it.";
const USED: &str = "This request state was used before, or the effect has changed since; nothing was decided by it. Call again without it.";
const NOT_HERE: &str =
    "An answer through this client does not count as an approval; nothing was decided and nothing was sent.";

/// A state from which no approval was taken.
fn refused(why: &str) -> Box<Outcome> {
    let refused = Outcome::refused(Code::InvalidArguments, why);
    Box::new(Outcome { next_action: NextAction::CallAgain, ..refused })
}
