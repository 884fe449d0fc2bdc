//! What an operator can do about an effect now, as command lines.

use std::sync::Arc;

use oncegate_ledger::state::{Attempt, Effect, StateTag};
use oncegate_ledger::{Effects, Ledger};

use crate::commands::ledger::{decide, list};
use crate::home::Home;
use crate::print::hex;

/// One thing that can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) what: String,
    pub(super) command: String,
}

/// The steps for the row's state; none where nothing is to be done.
pub(super) async fn steps(
    ledger: &Arc<dyn Ledger>,
    program: &str,
    key: &[u8; 32],
    row: &Effect,
    lacking: Option<&str>,
) -> anyhow::Result<Vec<Step>> {
    let mut loose = None;
    for attempt in row.attempts.iter().filter(|attempt| !attempt.stopped && !attempt.proof) {
        if !decide::has_stopped(ledger, attempt.host).await? {
            loose = Some(attempt);
        }
    }
    Ok(Steps { program, key, row, lacking, found: Vec::new() }.all(loose))
}

/// Whose approval the policy asks for and the row does not have, of a row that waits for one.
pub(super) async fn lacking(home: &Home, effects: &Effects, row: &Effect) -> anyhow::Result<Option<String>> {
    let Some(proposal) = row.waiting().filter(|_| row.state == StateTag::AwaitingApproval) else { return Ok(None) };
    // A policy that cannot be read names nobody; it is told of elsewhere.
    let Ok(policy) = home.policy() else { return Ok(None) };
    let Some((_, values)) = decide::epochs::stored(effects, row).await? else { return Ok(None) };
    let rules = policy.approvals.iter().filter(|rule| rule.operation == proposal.operation && rule.applies(&values));
    let lacking: Vec<String> = rules
        // Whom a rule without `by` means is asked anyway, until somebody has answered who does not count.
        .filter(|rule| !rule.is_met(&row.approved_by))
        .filter(|rule| !rule.by.is_empty() || !row.approved_by.is_empty())
        .map(|rule| if rule.by.is_empty() { "anybody here".to_owned() } else { rule.by.join(" or ") })
        .collect();
    Ok((!lacking.is_empty()).then(|| lacking.join(", and by ")))
}

struct Steps<'a> {
    program: &'a str,
    key: &'a [u8; 32],
    row: &'a Effect,
    lacking: Option<&'a str>,
    found: Vec<Step>,
}

impl Steps<'_> {
    fn all(mut self, loose: Option<&Attempt>) -> Vec<Step> {
        if self.row.frozen {
            self.thaw();
            return self.found;
        }
        match self.row.state {
            StateTag::AwaitingApproval if self.lacking.is_some() => self.lacks(),
            StateTag::AwaitingApproval if self.row.approved.is_some() => {
                self.decide("it is approved: the next call sends the stored request; to take that back", "revoke");
            }
            StateTag::AwaitingApproval => {
                self.decide("the stored request may be sent", "approve");
                self.decide("it may not; it is revoked then", "deny");
            }
            StateTag::Planned => self.decide("it shall not happen", "revoke"),
            StateTag::Dispatched | StateTag::Responded => {
                self.plain("find out what became of it", &["reconcile"]);
                self.fence(loose);
                self.decide("what is not sent yet shall not be sent", "revoke");
            }
            StateTag::Unknown => self.unknown(loose),
            StateTag::Issued => self.plain("look whether the provider finished it", &["reconcile"]),
            StateTag::Stranded => {
                self.decide("it was completed after all", "resolve --as done --receipt RECEIPT");
                self.supersede();
            }
            StateTag::NoEffect => self.decide("nothing happened and the next call may send it; it shall not", "revoke"),
            StateTag::Done => {
                if oncegate_sandbox::view(self.row).unconfirmed {
                    self.plain("look whether the provider has the receipt", &["reconcile", "--confirm"]);
                }
                self.decide("it was taken back later, as with a chargeback", "resolve --as failed-later");
                self.supersede();
            }
            StateTag::Revoked | StateTag::Undone => self.supersede(),
            StateTag::Superseded => {}
        }
        self.found
    }

    fn lacks(&mut self) {
        let by = self.lacking.unwrap_or_default();
        let so_far = match &self.row.approved_by[..] {
            [] => String::new(),
            some => format!("approved by {}, which does not count; ", some.join(", ")),
        };
        self.decide(&format!("{so_far}the stored request may be sent: said by {by}"), "approve");
        self.decide("it may not; it is revoked then", "deny");
    }

    fn unknown(&mut self, loose: Option<&Attempt>) {
        self.plain("look at the provider again", &["reconcile"]);
        self.decide("it happened", "resolve --as done --receipt RECEIPT");
        self.fence(loose);
        self.decide("it did not happen; the next call sends it", "resolve --as no-effect");
        if !self.row.revoke_wished {
            self.decide("it may have happened; nothing shall send it again", "revoke");
        }
    }

    fn thaw(&mut self) {
        let known = self.row.receipt.iter().chain(&self.row.other_receipts);
        let mut receipts: Vec<String> = known.cloned().collect();
        if let Some(own) = &self.row.receipt {
            // A receipt is never rewritten: only its own can be confirmed.
            receipts.retain(|receipt| receipt == own);
        }
        if receipts.is_empty() {
            receipts.push("RECEIPT".to_owned());
        }
        for receipt in receipts {
            self.decide(
                "it happened, whatever contradicts it",
                &format!("resolve --as done --receipt {}", word(&receipt)),
            );
        }
        if self.row.receipt.is_none() {
            self.decide("it did not happen, whatever contradicts it", "resolve --as no-effect");
        }
    }

    fn supersede(&mut self) {
        self.decide("it shall be done again, by those named only", "supersede --for permit:ID");
    }

    fn fence(&mut self, loose: Option<&Attempt>) {
        let Some(attempt) = loose else { return };
        let host = hex(attempt.host.get(..6).unwrap_or(&attempt.host));
        self.found.push(Step {
            what: format!("the host of attempt {} can send no more", hex(attempt.id.get(..4).unwrap_or(&attempt.id))),
            command: format!("{} fence {host} --reason '…'", self.program),
        });
    }

    fn plain(&mut self, what: &str, words: &[&str]) {
        let (verb, rest) = words.split_first().map_or(("", &[][..]), |(verb, rest)| (*verb, rest));
        let rest = rest.iter().map(|word| format!(" {word}")).collect::<String>();
        let command = format!("{} {verb} {}{rest}", self.program, self.named());
        self.found.push(Step { what: what.to_owned(), command });
    }

    fn decide(&mut self, what: &str, verb: &str) {
        let (verb, rest) =
            verb.split_once(' ').map_or((verb, String::new()), |(verb, rest)| (verb, format!(" {rest}")));
        let version = self.row.version;
        let command = format!("{} {verb} {}{rest} --expect-version {version} --reason '…'", self.program, self.named());
        self.found.push(Step { what: what.to_owned(), command });
    }

    fn named(&self) -> String {
        hex(self.key.get(..list::SHORT_BYTES).unwrap_or(self.key))
    }
}

/// A receipt as a word of a shell.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:@+-/".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_one_word() {
        assert_eq!(word("re_1"), "re_1");
        assert_eq!(word("a b'; rm -rf /"), "'a b'\\''; rm -rf /'");
        assert_eq!(word(""), "''");
    }
}
