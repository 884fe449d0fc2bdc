//! What each event of an effect means, in a line for people.

use oncegate_ledger::{Event, Outcome, SettleVerdict};

use crate::print::{clean, hex};

/// The event's detail; cleaned, because providers and operators wrote parts of it.
pub(super) fn detail(event: &Event) -> String {
    let text = sending(event).or_else(|| finding_out(event)).unwrap_or_else(|| deciding(event));
    clean(&text)
}

fn sending(event: &Event) -> Option<String> {
    Some(match event {
        Event::Dispatched(dispatch) => {
            let again = if dispatch.resend { ", the stored request again" } else { "" };
            let attempt = attempt(&dispatch.attempt);
            format!(
                "{attempt}, generation {}, epoch {}{again}, to {}",
                dispatch.generation, dispatch.epoch, dispatch.url
            )
        }
        Event::Evidence { attempt: id, offset, bytes, .. } => {
            format!("{}: {} bytes from {offset} on", attempt(id), bytes.len())
        }
        Event::Responded { attempt: id, total, sent_bytes, ended, .. } => {
            format!("{}: {total} bytes of answer ({}), {sent_bytes} sent", attempt(id), word(ended))
        }
        Event::NotSent { attempt: id, why, .. } => format!("{}: {why}", attempt(id)),
        Event::Lost { attempt: id, why, sender_stopped, .. } => {
            let sender = if *sender_stopped { "its sender has stopped" } else { "its sender may still run" };
            format!("{}: {why}; {sender}", attempt(id))
        }
        Event::Classified { attempt: id, outcome, .. } => format!("{}: {}", attempt(id), of_outcome(outcome)),
        Event::ClassifyFailed { attempt: id, why, .. } => format!("{}: {why}", attempt(id)),
        _ => return None,
    })
}

fn finding_out(event: &Event) -> Option<String> {
    Some(match event {
        Event::Settled { by, verdict, evidence, .. } => {
            format!("by the {by}: {} ({} bytes of evidence)", of_verdict(verdict), evidence.len())
        }
        Event::Confirmed { receipt, .. } => format!("its lookup found {receipt}"),
        Event::Diverged { why, evidence, .. } | Event::FailedLater { why, evidence, .. } => {
            format!("{why} ({} bytes of evidence)", evidence.len())
        }
        Event::Completed { receipt, .. } => {
            format!("final{}", receipt.as_ref().map(|r| format!(", receipt {r}")).unwrap_or_default())
        }
        Event::Stranded { why, .. } => why.clone(),
        Event::Undone { by, .. } => format!("by the effect {}", hex(by)),
        _ => return None,
    })
}

fn deciding(event: &Event) -> String {
    match event {
        Event::RevokeWished { actor, reason, .. }
        | Event::Revoked { actor, reason, .. }
        | Event::Approved { actor, reason, .. }
        | Event::Denied { actor, reason, .. } => format!("{actor}: {reason}"),
        Event::Superseded { actor, reason, epoch, for_whom, .. } => {
            format!("{actor}: {reason}; epoch {epoch} for {for_whom}")
        }
        Event::Decided { actor, reason, outcome, .. } => format!("{actor}: {reason}; {}", of_outcome(outcome)),
        Event::Planned(proposal) | Event::Amended(proposal) | Event::AwaitingApproval(proposal) => {
            format!("request sha256:{}", hex(&proposal.request_digest))
        }
        Event::Pruned(tombstone) => format!("it was {}; bytes and history were dropped", tombstone.state),
        _ => String::new(),
    }
}

/// The short name of an attempt.
pub(super) fn attempt(id: &[u8; 16]) -> String {
    format!("attempt {}", hex(&id[..4]))
}

/// What an attempt turned out to be.
pub(super) fn of_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done { receipt } => format!("done, receipt {receipt}"),
        Outcome::Issued { receipt: Some(receipt) } => format!("issued, receipt {receipt}"),
        Outcome::Issued { receipt: None } => "issued".to_owned(),
        Outcome::NoEffect { reason } => format!("no effect: {reason}"),
        Outcome::Unknown { why } => format!("unknown: {why}"),
    }
}

fn of_verdict(verdict: &SettleVerdict) -> String {
    match verdict {
        SettleVerdict::One { receipt, mismatched } if mismatched.is_empty() => format!("found, receipt {receipt}"),
        SettleVerdict::One { receipt, mismatched } => {
            format!("found, receipt {receipt}, but other values in {}", mismatched.join(", "))
        }
        SettleVerdict::Many { receipts } => format!("several could be it: {}", receipts.join(", ")),
        SettleVerdict::Absent { since_stop_ms, looks, control } => {
            format!(
                "absent, {} s after its sender stopped, in {looks} looks that did find {control}",
                since_stop_ms / 1000
            )
        }
        SettleVerdict::Undetermined { why } => format!("undetermined: {why}"),
    }
}

/// The stored word for a unit variant.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_providers_words_are_cleaned() {
        let outcome = Outcome::NoEffect { reason: "no\x1b[1m".to_owned() };
        let event = Event::Classified { attempt: [0xab; 16], at: 0, outcome };
        assert_eq!(detail(&event), "attempt abababab: no effect: no\u{fffd}[1m");
    }

    #[test]
    fn a_verdict_says_what_it_rests_on() {
        let verdict = SettleVerdict::Absent { since_stop_ms: 91_000, looks: 2, control: "re_1".to_owned() };
        let event = Event::Settled { at: 0, by: "settle rule".to_owned(), verdict, evidence: vec![0; 3].into() };
        assert_eq!(
            detail(&event),
            "by the settle rule: absent, 91 s after its sender stopped, in 2 looks that did find re_1 (3 bytes of evidence)"
        );
    }
}
