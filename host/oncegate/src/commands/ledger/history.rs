//! What each event of an effect means, in a line for people.

use oncegate_ledger::{Event, Outcome, Record, SettleVerdict};
use oncegate_sandbox::rfc3339;
use serde_json::{Value, json};

use crate::print::{self, Cell, clean, hex};

/// Records as lines for people: version, when, what happened, and what it means. Ends with a line's end.
pub(super) fn timeline(records: &[Record], now: u64) -> String {
    let rows: Vec<_> = records
        .iter()
        .map(|record| {
            let at = record.event.at();
            vec![
                Cell::new(record.version.to_string()),
                Cell::new(at.map_or_else(|| "-".to_owned(), rfc3339)),
                Cell::new(at.map_or_else(|| "-".to_owned(), |at| ago(at, now))),
                Cell::new(record.event.name()),
                Cell::new(detail(&record.event)),
            ]
        })
        .collect();
    print::table(&["version", "at", "ago", "event", "detail"], &rows)
}

/// The same of one record for machines.
pub(super) fn line_json(record: &Record) -> Value {
    let at = record.event.at().map(rfc3339);
    json!({ "version": record.version, "at": at, "event": record.event.name(), "detail": detail(&record.event) })
}

/// How long ago, in the largest unit.
pub(super) fn ago(at: u64, now: u64) -> String {
    let unit = |ms: u64| match ms / 1_000 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    };
    match now.checked_sub(at) {
        Some(ms) => format!("{} ago", unit(ms)),
        None => format!("in {}", unit(at - now)),
    }
}

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
        Event::FailedLater { why, actor: Some(actor), .. } => format!("{actor}: {why}"),
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
        | Event::Denied { actor, reason, .. }
        | Event::ParentClosed { actor, reason, .. }
        | Event::Erased { actor, reason, .. }
        | Event::HostFenced { actor, reason, .. } => format!("{actor}: {reason}"),
        Event::KeyRetired { generation, .. } => format!("key {generation}: nothing more is put under it"),
        Event::KeyDestroyed { generation, .. } => format!("key {generation}: what was under it cannot be read"),
        Event::Superseded { actor, reason, epoch, for_whom, .. } => {
            format!("{actor}: {reason}; epoch {epoch} for {for_whom}")
        }
        Event::Decided { actor, reason, outcome, .. } => format!("{actor}: {reason}; {}", of_outcome(outcome)),
        Event::Planned(proposal) | Event::Amended(proposal) | Event::AwaitingApproval(proposal) => {
            format!("request sha256:{}", hex(&proposal.request_digest))
        }
        Event::AccountBound { account, url, credential, .. }
        | Event::AccountRenamed { account, url, credential, .. } => {
            let credential = credential.as_deref().unwrap_or("none");
            let by = match event {
                Event::AccountRenamed { actor, reason, .. } => format!("{actor}: {reason}; "),
                _ => String::new(),
            };
            format!("{by}{account} at {url}, credential {credential}")
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
    fn ages_are_told_in_one_unit() {
        let now = 1_000_000_000_000;
        let told = [(500, "0 s ago"), (61_000, "1 min ago"), (7_200_000, "2 h ago"), (864_000_000, "10 d ago")];
        for (ms, text) in told {
            assert_eq!(ago(now - ms, now), text);
        }
        assert_eq!(ago(now + 5_000, now), "in 5 s");
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
