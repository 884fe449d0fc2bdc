//! What the agent hears: one pure function from the states of a call's effects to a status.
//!
//! The guest's own words decide nothing but `result`; the status comes from the ledger.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// Seconds after which a caller that has to wait should ask again.
const RETRY_AFTER_SECONDS: u32 = 5;

/// Added where a result is left out: what happened is told all the same.
const LEFT_OUT: &str = " The tool's result is larger than is passed on here, so the host left it out; an operator finds \
                        the provider's whole answer with `oncegate ledger show`.";

/// The status word of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every effect is done now, or it was a read.
    Done,
    /// Every effect had been done before; the first receipts are given.
    AlreadyDone,
    /// Not known to be finished; it may already have happened.
    Pending,
    /// It is proven that nothing happened.
    Failed,
    /// The call was not accepted.
    Refused,
}

/// Why a call is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// The effect is being performed.
    InProgress,
    /// Nobody knows yet whether it happened.
    Unknown,
    /// It exists at the provider and is not final.
    Issued,
    /// It exists and can never be completed.
    Stranded,
    /// Contradicting facts; a person has to look.
    Frozen,
    /// A person has to approve.
    AwaitingApproval,
    /// Some effects are done and the tool has not finished.
    Incomplete,
}

/// Why a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The same identity was used with other values.
    IdempotencyKeyReused,
    /// Contract or policy do not allow it.
    EffectNotPermitted,
    /// The orchestrator did not give a fact that is needed.
    ContextMissing,
    /// The effect was revoked.
    Revoked,
    /// The permit is used up.
    PermitExceeded,
    /// The target is not in the plan.
    PlanMismatch,
    /// The sequence number does not follow the last decided one.
    SequenceGap,
    /// The component derives keys in another way than the one the ledger knows.
    RecipeChanged,
    /// The arguments do not fit the tool.
    InvalidArguments,
    /// The ledger cannot be written; nothing was sent.
    LedgerUnavailable,
    /// The tool failed by itself.
    ToolFailed,
    /// The tool exceeded a limit.
    ToolLimit,
}

/// What the agent should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NextAction {
    /// Nothing.
    None,
    /// Wait `retry_after` seconds, then call again with the same arguments.
    Wait,
    /// Call again with the same arguments; what is finished will not repeat.
    CallAgain,
    /// A person has to decide.
    AskPerson,
}

/// One effect of the call, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EffectView {
    /// Host-written name of the effect: action and business identifiers.
    pub label: String,
    /// State word of the ledger.
    pub state: String,
    /// The provider's identifier, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// When the ledger came to this state, RFC 3339.
    pub at: String,
    /// True for a receipt that the provider's own lookup has not confirmed yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unconfirmed: bool,
}

/// The object that the agent hears, and that `oncegate call` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The status word.
    pub status: Status,
    /// Why it is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Which limit was exceeded, with `tool_limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// True when nothing was sent and the answer is the first one.
    pub replayed: bool,
    /// True when the text of the first time differs from this call's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reworded: bool,
    /// The tool's own result.
    pub result: Value,
    /// The effects of the call.
    pub effects: Vec<EffectView>,
    /// What to do next.
    pub next_action: NextAction,
    /// Seconds to wait, with `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// The tool's result is larger than is passed on, and was left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated_by_host: bool,
    /// One sentence, host-written.
    pub message: String,
    /// The providers' whole answers, where a result was left out and the caller may read them. Not part of
    /// the object: each protocol has its own way to name them.
    #[serde(skip)]
    pub answers: Vec<AnswerLink>,
}

/// Names a provider's stored answer to a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerLink {
    /// Sealed for one tenant: says nothing of the effect and cannot be guessed.
    pub id: String,
    /// The effect, as its caller knows it.
    pub label: String,
}

impl Outcome {
    /// True for the statuses that a protocol reports as an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        matches!(self.status, Status::Failed | Status::Refused)
    }

    /// A refusal before or without any effect.
    #[must_use]
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Self {
            status: Status::Refused,
            detail: None,
            code: Some(code),
            limit: None,
            replayed: false,
            reworded: false,
            result: Value::Null,
            effects: Vec::new(),
            next_action: NextAction::None,
            retry_after: None,
            truncated_by_host: false,
            message: message.into(),
            answers: Vec::new(),
        }
    }
}

/// What is said of a guest whose process was lost before it asked for an effect.
const LOST: &str = "The process that ran the tool was lost; the tool asked for no effect.";

/// How the guest's run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// It returned its result.
    Returned(Value),
    /// It returned its own error.
    Failed(Value),
    /// It trapped; the text is the host's.
    Trapped(String),
    /// It exceeded the named limit.
    Limit(String),
    /// It returned more than is passed on.
    TooLarge {
        /// What it returned was its own error.
        error: bool,
    },
    /// The process that ran it was lost.
    Lost,
    /// It still runs.
    Running,
}

/// Why nothing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    /// The provider refused.
    Refused,
    /// The request did not reach the provider.
    NotReached,
    /// The host is not set up for it.
    NotSetUp,
}

/// What an effect has come to, for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Done, now or before.
    Done {
        /// It was done before this call asked.
        before: bool,
    },
    /// Proven that nothing happened.
    NoEffect(Nothing),
    /// Not settled.
    Open(Detail),
    /// This call was refused; the row, if any, is as it was.
    Refused(Code),
}

/// One effect that the call asked for, or that its lookups led to. The default is in progress, without
/// a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// As the agent sees it; none when there is no row.
    pub view: Option<EffectView>,
    /// What it has come to.
    pub fate: Fate,
    /// The text of the first time differs from this call's.
    pub reworded: bool,
    /// The host will not find out by itself any more.
    pub stuck: bool,
    /// The provider's reason or the refusal's explanation, already safe to show.
    pub reason: Option<String>,
    /// The limit that the refusal is about.
    pub limit: Option<String>,
    /// It is another effect, which has served the purpose of the one that was asked for.
    pub another: bool,
}

impl Default for Seen {
    fn default() -> Self {
        let fate = Fate::Open(Detail::InProgress);
        Self { view: None, fate, reworded: false, stuck: false, reason: None, limit: None, another: false }
    }
}

/// Decides the status of a call.
///
/// `effects_declared` is the contract's bound on effects of this tool: a tool with one effect whose
/// effect is done is `done` even if the guest then fails.
#[must_use]
pub fn outcome(ended: Ended, seen: &[Seen], effects_declared: u32) -> Outcome {
    let too_large = matches!(ended, Ended::TooLarge { .. });
    let mut outcome = told(ended, seen, effects_declared);
    if too_large && outcome.status != Status::Refused {
        outcome.truncated_by_host = true;
        outcome.message.push_str(LEFT_OUT);
    }
    if outcome.code != Some(Code::ToolLimit) {
        outcome.limit = None;
    }
    outcome
}

fn told(mut ended: Ended, seen: &[Seen], effects_declared: u32) -> Outcome {
    let mut outcome = Outcome {
        status: Status::Done,
        detail: None,
        code: None,
        limit: seen.iter().find_map(|one| one.limit.clone()),
        replayed: false,
        reworded: seen.iter().any(|one| one.reworded),
        result: result(&mut ended),
        effects: seen.iter().filter_map(|one| one.view.clone()).collect(),
        next_action: NextAction::None,
        retry_after: None,
        truncated_by_host: false,
        message: String::new(),
        answers: Vec::new(),
    };
    // What may have happened comes before what was refused beside it: an agent that hears "refused"
    // looks for another way.
    if let Some(detail) = open(seen) {
        return pend(outcome, detail, seen);
    }
    let done = count(seen, |fate| matches!(fate, Fate::Done { .. }));
    if let Some((code, reason)) = refusal(seen) {
        return refused_beside(outcome, seen, done, effects_declared, code, reason);
    }
    if ended == Ended::Running {
        return pend(outcome, Detail::InProgress, seen);
    }
    let returned = matches!(ended, Ended::Returned(_) | Ended::TooLarge { error: false });
    if seen.is_empty() {
        return without_effects(outcome, ended, effects_declared);
    }
    if done == seen.len() && (returned || effects_declared == 1) {
        return all_done(outcome, seen);
    }
    if done == 0 {
        return failed(outcome, seen);
    }
    outcome.next_action = NextAction::CallAgain;
    pend(outcome, Detail::Incomplete, seen)
}

/// A refusal in a call that has done something: the one effect of a tool is told, the rest is said to
/// be incomplete.
fn refused_beside(
    mut outcome: Outcome,
    seen: &[Seen],
    done: usize,
    effects_declared: u32,
    code: Code,
    reason: Option<String>,
) -> Outcome {
    if done == 0 {
        return refuse(outcome, code, reason);
    }
    if effects_declared == 1 {
        let told: Vec<_> = seen.iter().filter(|one| matches!(one.fate, Fate::Done { .. })).cloned().collect();
        return all_done(outcome, &told);
    }
    outcome = pend(outcome, Detail::Incomplete, seen);
    outcome.code = Some(code);
    outcome.next_action = NextAction::AskPerson;
    outcome.message = format!("{done} of {} effects are done; another was refused and was not sent.", seen.len());
    outcome
}

fn count(seen: &[Seen], is: impl Fn(&Fate) -> bool) -> usize {
    seen.iter().filter(|one| is(&one.fate)).count()
}

/// Takes what the tool returned; that it did is all that is asked of it after this.
fn result(ended: &mut Ended) -> Value {
    match ended {
        Ended::Returned(value) => value.take(),
        Ended::Failed(error) => json!({ "error": error.take() }),
        Ended::Trapped(_) | Ended::Limit(_) | Ended::TooLarge { .. } | Ended::Lost | Ended::Running => Value::Null,
    }
}

fn refusal(seen: &[Seen]) -> Option<(Code, Option<String>)> {
    seen.iter().find_map(|one| match one.fate {
        Fate::Refused(code) => Some((code, one.reason.clone())),
        _ => None,
    })
}

/// The most serious open detail: what needs a person comes before what needs time.
fn open(seen: &[Seen]) -> Option<Detail> {
    const ORDER: [Detail; 6] = [
        Detail::Frozen,
        Detail::Stranded,
        Detail::AwaitingApproval,
        Detail::Unknown,
        Detail::Issued,
        Detail::InProgress,
    ];
    ORDER.into_iter().find(|detail| seen.iter().any(|one| one.fate == Fate::Open(*detail)))
}

fn refuse(mut outcome: Outcome, code: Code, reason: Option<String>) -> Outcome {
    outcome.status = Status::Refused;
    outcome.code = Some(code);
    outcome.message = reason.unwrap_or_else(|| refusal_text(code).to_owned());
    outcome.next_action = match code {
        Code::LedgerUnavailable => NextAction::CallAgain,
        Code::IdempotencyKeyReused | Code::Revoked | Code::RecipeChanged | Code::SequenceGap | Code::PlanMismatch => {
            NextAction::AskPerson
        }
        _ => NextAction::None,
    };
    outcome
}

fn refusal_text(code: Code) -> &'static str {
    match code {
        Code::IdempotencyKeyReused => "The same effect was asked for before with other values; nothing was sent.",
        Code::EffectNotPermitted => "This effect is not permitted; nothing was sent.",
        Code::ContextMissing => "The orchestrator did not give a fact that this tool needs; nothing was sent.",
        Code::Revoked => "This effect was revoked; nothing was sent.",
        Code::PermitExceeded => "The permit does not cover this effect; nothing was sent.",
        Code::PlanMismatch => "This effect is not part of the plan; nothing was sent.",
        Code::SequenceGap => "The previous effect of this sequence is not decided; nothing was sent.",
        Code::RecipeChanged => "This tool identifies its effects in another way than before; nothing was sent.",
        Code::InvalidArguments => "The arguments do not fit the tool; nothing was sent.",
        Code::LedgerUnavailable => "The ledger cannot be written; nothing was sent.",
        Code::ToolFailed => "The tool failed; it asked for no effect.",
        Code::ToolLimit => "The tool exceeded a limit.",
    }
}

fn pend(mut outcome: Outcome, detail: Detail, seen: &[Seen]) -> Outcome {
    let done = count(seen, |fate| matches!(fate, Fate::Done { .. }));
    outcome.status = Status::Pending;
    outcome.detail = Some(detail);
    let stuck = detail == Detail::Unknown && seen.iter().any(|one| one.stuck);
    outcome.next_action = match detail {
        _ if stuck => NextAction::AskPerson,
        Detail::Stranded | Detail::Frozen | Detail::AwaitingApproval => NextAction::AskPerson,
        Detail::Incomplete => NextAction::CallAgain,
        _ => NextAction::Wait,
    };
    outcome.retry_after = (outcome.next_action == NextAction::Wait).then_some(RETRY_AFTER_SECONDS);
    outcome.message = match detail {
        Detail::InProgress => {
            "It is being performed and may already have happened. Do not look for another way.".to_owned()
        }
        Detail::Unknown if stuck => {
            "It may already have happened and the host cannot find out; a person has to look. Do not look for another way."
                .to_owned()
        }
        Detail::Unknown => "It may already have happened; the host finds out. Do not look for another way.".to_owned(),
        Detail::Issued => "It exists at the provider and is not final yet.".to_owned(),
        Detail::Stranded => "It exists at the provider and cannot be completed; a person has to decide.".to_owned(),
        Detail::Frozen => "The provider's answers contradict each other; a person has to decide.".to_owned(),
        Detail::AwaitingApproval => {
            let said = seen.iter().filter(|one| one.fate == Fate::Open(detail)).find_map(|one| one.reason.clone());
            said.unwrap_or_else(|| "A person has to approve it first; nothing was sent.".to_owned())
        }
        Detail::Incomplete => {
            format!("{done} of {} effects are done; the same call goes on and repeats none of them.", seen.len())
        }
    };
    outcome
}

fn without_effects(mut outcome: Outcome, ended: Ended, effects_declared: u32) -> Outcome {
    outcome.limit = match &ended {
        Ended::Limit(name) => Some(name.clone()),
        Ended::TooLarge { .. } => Some("result".to_owned()),
        _ => None,
    };
    let (code, message) = match ended {
        // A guest that says "refunded" and asked for nothing must not read like one that did.
        Ended::Returned(_) if effects_declared > 0 => {
            return Outcome { message: "The tool finished and asked for no effect.".to_owned(), ..outcome };
        }
        Ended::Returned(_) | Ended::Running => return Outcome { message: "Done.".to_owned(), ..outcome },
        Ended::Failed(_) => (Code::ToolFailed, "The tool returned an error; it asked for no effect.".to_owned()),
        Ended::Trapped(text) => (Code::ToolFailed, format!("The tool stopped without a result: {text}.")),
        Ended::TooLarge { .. } => (Code::ToolLimit, "The tool exceeded the limit result.".to_owned()),
        Ended::Limit(name) => (Code::ToolLimit, format!("The tool exceeded the limit {name}.")),
        Ended::Lost => {
            let lost = refuse(outcome, Code::ToolFailed, Some(LOST.to_owned()));
            return Outcome { next_action: NextAction::CallAgain, ..lost };
        }
    };
    refuse(outcome, code, Some(message))
}

fn all_done(mut outcome: Outcome, seen: &[Seen]) -> Outcome {
    let before = seen.iter().all(|one| one.fate == Fate::Done { before: true });
    outcome.status = if before { Status::AlreadyDone } else { Status::Done };
    outcome.replayed = before;
    outcome.message = match (before, outcome.reworded) {
        (false, _) => "Done.",
        (true, _) if seen.iter().any(|one| one.another) => {
            "Another effect has served this purpose before; here is its receipt. Nothing else was sent."
        }
        (true, false) => "This was done before; here is the first receipt.",
        (true, true) => "This was done before, with other wording; here is the first receipt.",
    }
    .to_owned();
    outcome
}

fn failed(mut outcome: Outcome, seen: &[Seen]) -> Outcome {
    let why = seen.iter().find_map(|one| match one.fate {
        Fate::NoEffect(why) => Some(why),
        _ => None,
    });
    let (message, next_action) = match why.unwrap_or(Nothing::NotReached) {
        Nothing::Refused => ("The provider refused; it is proven that nothing happened.", NextAction::None),
        Nothing::NotReached => {
            ("The request did not reach the provider; it is proven that nothing happened.", NextAction::CallAgain)
        }
        Nothing::NotSetUp => {
            ("The host is not set up for this; nothing was sent. A person has to look.", NextAction::AskPerson)
        }
    };
    outcome.status = Status::Failed;
    outcome.message = message.to_owned();
    outcome.next_action = next_action;
    if let Some(reason) = seen.iter().find_map(|one| one.reason.clone()) {
        let mut result = match std::mem::take(&mut outcome.result) {
            Value::Object(members) => members,
            Value::Null => Map::new(),
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        result.insert("provider_reason".to_owned(), Value::String(reason));
        outcome.result = Value::Object(result);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(fate: Fate) -> Seen {
        let view = EffectView {
            label: "refund R-1".to_owned(),
            state: "x".to_owned(),
            receipt: None,
            at: String::new(),
            unconfirmed: false,
        };
        Seen { view: Some(view), fate, ..Seen::default() }
    }

    const NOW: Fate = Fate::Done { before: false };
    const BEFORE: Fate = Fate::Done { before: true };
    const UNKNOWN: Fate = Fate::Open(Detail::Unknown);

    fn status(ended: Ended, fates: &[Fate], declared: u32) -> (Status, Option<Detail>, Option<Code>) {
        let seen: Vec<_> = fates.iter().copied().map(seen).collect();
        let outcome = outcome(ended, &seen, declared);
        (outcome.status, outcome.detail, outcome.code)
    }

    #[test]
    fn statuses_come_from_the_effects() {
        let ok = || Ended::Returned(Value::Null);
        let err = || Ended::Failed(json!("no"));
        let trap = || Ended::Trapped("unreachable".to_owned());
        for (ended, fates, declared, want) in [
            (ok(), vec![], 1, (Status::Done, None, None)),
            (ok(), vec![NOW], 1, (Status::Done, None, None)),
            (ok(), vec![BEFORE], 1, (Status::AlreadyDone, None, None)),
            (ok(), vec![BEFORE, NOW], 2, (Status::Done, None, None)),
            (ok(), vec![UNKNOWN], 1, (Status::Pending, Some(Detail::Unknown), None)),
            (ok(), vec![NOW, UNKNOWN], 2, (Status::Pending, Some(Detail::Unknown), None)),
            (ok(), vec![Fate::NoEffect(Nothing::Refused)], 1, (Status::Failed, None, None)),
            (ok(), vec![Fate::NoEffect(Nothing::Refused), NOW], 2, (Status::Pending, Some(Detail::Incomplete), None)),
            (err(), vec![NOW], 1, (Status::Done, None, None)),
            (err(), vec![BEFORE], 1, (Status::AlreadyDone, None, None)),
            (trap(), vec![NOW], 1, (Status::Done, None, None)),
            (trap(), vec![NOW], 2, (Status::Pending, Some(Detail::Incomplete), None)),
            (Ended::TooLarge { error: false }, vec![NOW, BEFORE], 2, (Status::Done, None, None)),
            (Ended::TooLarge { error: true }, vec![BEFORE], 1, (Status::AlreadyDone, None, None)),
            (Ended::TooLarge { error: false }, vec![UNKNOWN], 1, (Status::Pending, Some(Detail::Unknown), None)),
            (Ended::TooLarge { error: false }, vec![], 0, (Status::Refused, None, Some(Code::ToolLimit))),
            (trap(), vec![], 1, (Status::Refused, None, Some(Code::ToolFailed))),
            (err(), vec![], 1, (Status::Refused, None, Some(Code::ToolFailed))),
            (Ended::Limit("wall-time".to_owned()), vec![], 1, (Status::Refused, None, Some(Code::ToolLimit))),
            (Ended::Lost, vec![], 1, (Status::Refused, None, Some(Code::ToolFailed))),
            (Ended::Lost, vec![NOW], 1, (Status::Done, None, None)),
            (Ended::Lost, vec![NOW], 2, (Status::Pending, Some(Detail::Incomplete), None)),
            (Ended::Lost, vec![UNKNOWN], 1, (Status::Pending, Some(Detail::Unknown), None)),
            (Ended::Running, vec![], 1, (Status::Pending, Some(Detail::InProgress), None)),
            (Ended::Running, vec![NOW], 2, (Status::Pending, Some(Detail::InProgress), None)),
            (ok(), vec![NOW, Fate::Refused(Code::ToolLimit)], 1, (Status::Done, None, None)),
            (
                ok(),
                vec![NOW, Fate::Refused(Code::ToolLimit)],
                2,
                (Status::Pending, Some(Detail::Incomplete), Some(Code::ToolLimit)),
            ),
            (ok(), vec![UNKNOWN, Fate::Refused(Code::ToolLimit)], 1, (Status::Pending, Some(Detail::Unknown), None)),
            (ok(), vec![Fate::Refused(Code::Revoked)], 1, (Status::Refused, None, Some(Code::Revoked))),
        ] {
            assert_eq!(status(ended.clone(), &fates, declared), want, "{ended:?} {fates:?} {declared}");
        }
    }

    #[test]
    fn a_guest_cannot_claim_success() {
        let lie = Ended::Returned(json!({ "status": "done", "receipt": "re_fake" }));
        let outcome = outcome(lie, &[seen(UNKNOWN)], 1);
        assert_eq!(outcome.status, Status::Pending);
        assert_eq!(outcome.effects[0].receipt, None);
    }

    #[test]
    fn no_message_teaches_how_to_widen_a_grant() {
        for code in [Code::EffectNotPermitted, Code::ContextMissing, Code::PermitExceeded] {
            let text = refusal_text(code);
            assert!(!text.contains("policy") && !text.contains("oncegate"), "{text}");
        }
    }
}
