//! What a provider's raw answer says about an effect, by the contract alone.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::condition::{self, Test};
use crate::json::parse_json;
use crate::label::safe_text;
use crate::limits::RECEIPT_BYTES_MAX;
use crate::operation::{EffectClass, Operation};
use crate::pointer::Pointer;

/// A raw answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body as far as it came.
    pub body: Vec<u8>,
    /// Whether the answer came to its end.
    pub complete: bool,
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The effect has happened.
    Done {
        /// The provider's identifier for it.
        receipt: String,
    },
    /// It exists and is not final.
    Issued {
        /// The provider's identifier, if it gave one.
        receipt: Option<String>,
    },
    /// Proof that nothing happened.
    NoEffect {
        /// The provider's reason, safe to show.
        reason: String,
    },
    /// Nobody knows from this answer.
    Unknown {
        /// Why not.
        why: String,
    },
}

/// Classifies an answer by the operation's conditions.
///
/// An answer that meets conditions of two kinds, or none, or that is not complete, is `Unknown`. One
/// exception: an answer that was cut off behind a whole document which meets `accepted-when` says
/// `Issued`; that claims no success and permits no resend. Never panics, whatever the bytes.
pub fn classify(operation: &Operation, answer: &Answer) -> Verdict {
    if operation.effect == EffectClass::None {
        return unknown("the operation has no effect to classify");
    }
    let body = readable(answer).and_then(|()| parse_json(&answer.body));
    let body = body.as_ref();
    if !answer.complete {
        return cut_off(operation, answer, body.ok());
    }
    let holds = |conditions| condition::any(conditions, answer.status, body.ok());
    let (done, accepted) = (holds(&operation.done_when), holds(&operation.accepted_when));
    let (refused, duplicate) = (holds(&operation.no_effect_when), holds(&operation.duplicate_when));
    if [done, accepted, refused, duplicate].into_iter().filter(|h| *h).count() > 1 {
        return unknown("the answer meets conditions of two kinds: the contract contradicts itself");
    }
    if refused {
        return Verdict::NoEffect { reason: reason(operation, answer.status, body.ok()) };
    }
    if duplicate {
        return unknown(match operation.settle {
            Some(_) => "the provider swallowed a repeat; the settle lookup must show whose effect it is",
            None => "the provider swallowed a repeat, and there is no settle lookup to show whose effect it is",
        });
    }
    if accepted {
        return issued(operation, body.ok());
    }
    happened(operation, answer, done, body)
}

fn readable(answer: &Answer) -> Result<(), String> {
    if is_coded(answer) { Err("the body is in a coding that was not asked for".to_owned()) } else { Ok(()) }
}

/// Whether the body is in another coding than the one that the host asks for, which is none. It is not unpacked:
/// how large it would become is its sender's choice, and what it says is another reader's guess.
pub fn is_coded(answer: &Answer) -> bool {
    let codings = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
    let mut codings = codings.map(|(_, value)| value.trim_ascii());
    codings.any(|value| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity"))
}

fn issued(operation: &Operation, body: Option<&Json>) -> Verdict {
    Verdict::Issued { receipt: body.and_then(|b| receipt(operation.receipt.as_ref()?, b).ok()) }
}

/// The end of the answer is missing; it may still hold the one copy of a token.
fn cut_off(operation: &Operation, answer: &Answer, body: Option<&Json>) -> Verdict {
    // A number or a word may go on in what is missing; a closed bracket may not.
    let whole = body.filter(|body| body.is_object() || body.is_array());
    let holds = |conditions| condition::any(conditions, answer.status, whole);
    let others = [&operation.done_when, &operation.no_effect_when, &operation.duplicate_when];
    if whole.is_some() && holds(&operation.accepted_when) && !others.into_iter().any(holds) {
        return issued(operation, whole);
    }
    unknown("the answer did not come to its end")
}

fn happened(operation: &Operation, answer: &Answer, done: bool, body: Result<&Json, &String>) -> Verdict {
    // What another operation completes is done by that one; no 2xx of its own says so by default.
    let by_default = operation.done_when.is_empty() && operation.completed_by.is_none() && answer.status / 100 == 2;
    if !done && !by_default {
        return if operation.status_is_proof.contains(&answer.status) {
            proven_by_status(operation, answer, body.ok())
        } else {
            unknown(&format!("status {} meets no condition of the contract", answer.status))
        };
    }
    if operation.status_is_proof.contains(&answer.status) {
        return proven_by_status(operation, answer, body.ok());
    }
    let found = match (&operation.receipt, body) {
        (None, _) => Err("the contract names no receipt for this answer".into()),
        (Some(_), Err(error)) => Err(error.clone()),
        (Some(pointer), Ok(body)) => receipt(pointer, body),
    };
    match found {
        Ok(receipt) => Verdict::Done { receipt },
        Err(why) => unknown(&why),
    }
}

/// The provider has no body to show a receipt in; its status is the receipt.
fn proven_by_status(operation: &Operation, answer: &Answer, body: Option<&Json>) -> Verdict {
    let shown = body.and_then(|b| receipt(operation.receipt.as_ref()?, b).ok());
    Verdict::Done { receipt: shown.unwrap_or_else(|| format!("status:{}", answer.status)) }
}

fn unknown(why: &str) -> Verdict {
    Verdict::Unknown { why: why.to_owned() }
}

/// A receipt is a short text or a whole number; anything else identifies nothing.
pub(crate) fn receipt(pointer: &Pointer, body: &Json) -> Result<String, String> {
    let text = match pointer.get(body) {
        None => return Err(format!("the answer has no receipt at {pointer}")),
        Some(Json::String(text)) => text.clone(),
        Some(Json::Number(number)) if !number.is_f64() => number.to_string(),
        Some(_) => {
            return Err(format!("the receipt at {pointer} is neither text nor a whole number"));
        }
    };
    if text.is_empty() || text.len() > RECEIPT_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(format!("the receipt at {pointer} is empty, too long or has control characters"));
    }
    Ok(text)
}

/// Where providers usually write why they refused.
const REASONS: &[&str] = &["/error/code", "/code", "/error/type", "/error/message", "/error", "/message", "/reason"];

fn reason(operation: &Operation, status: u16, body: Option<&Json>) -> String {
    let Some(body) = body else {
        return format!("status:{status}");
    };
    let met = operation.no_effect_when.iter().filter(|c| c.holds(status, Some(body)));
    let tested = met.filter_map(|c| c.test.as_ref().filter(|(_, t)| matches!(t, Test::In(_))));
    let tested = tested.filter_map(|(at, _)| at.get(body)).find_map(Json::as_str);
    let usual = || {
        let pointers = REASONS.iter().filter_map(|text| Pointer::parse(text).ok());
        pointers.filter_map(|p| p.get(body).and_then(Json::as_str).map(str::to_owned)).next()
    };
    let text = tested.map(str::to_owned).or_else(usual);
    text.map_or_else(|| format!("status:{status}"), |text| safe_text(&text))
}

/// Whether a lookup's answer is found: complete, 2xx, and as `found-when` says.
pub fn found(operation: &Operation, answer: &Answer) -> bool {
    if !answer.complete || answer.status / 100 != 2 {
        return false;
    }
    let body = readable(answer).and_then(|()| parse_json(&answer.body)).ok();
    // What was cut off may hold the row that matters: a part of the rows is no answer to take values from.
    if operation.query.is_some() && body.as_ref().and_then(|body| body.get("truncated")) != Some(&Json::Bool(false)) {
        return false;
    }
    operation.found_when.is_empty() || condition::any(&operation.found_when, answer.status, body.as_ref())
}
