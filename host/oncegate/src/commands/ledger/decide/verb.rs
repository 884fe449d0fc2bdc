//! What an operator can decide of an effect, the event that says so, and what is at stake.

use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Event, Outcome, Stored};

use crate::commands::ledger::by::Taken;

/// One of the decisions on a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands::ledger) enum Verb {
    /// It happened, with this receipt.
    Done { receipt: String },
    /// It did not happen.
    NoEffect,
    /// It happened and was taken back.
    FailedLater,
    /// It must not happen.
    Revoke,
    /// These may do it again.
    Supersede { whom: String },
    /// The stored request may be sent.
    Approve,
    /// It may not.
    Deny,
}

impl Verb {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Done { .. } | Self::NoEffect | Self::FailedLater => "resolve",
            Self::Revoke => "revoke",
            Self::Supersede { .. } => "supersede",
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }

    /// What else of the command line makes it this decision.
    pub(super) fn values(&self) -> Vec<&str> {
        match self {
            Self::Done { receipt } => vec!["done", receipt],
            Self::NoEffect => vec!["no-effect"],
            Self::FailedLater => vec!["failed-later"],
            Self::Supersede { whom } => vec![whom],
            Self::Revoke | Self::Approve | Self::Deny => Vec::new(),
        }
    }

    pub(super) fn event(&self, row: &Effect, taken: &Taken, at: u64) -> Event {
        let (actor, reason, decision) = (taken.actor.clone(), taken.reason.clone(), Some(taken.id.clone()));
        let decided = |outcome| Event::Decided {
            actor: actor.clone(),
            reason: reason.clone(),
            outcome,
            at,
            decision: decision.clone(),
        };
        match self {
            Self::Done { receipt } => decided(Outcome::Done { receipt: receipt.clone() }),
            Self::NoEffect => decided(Outcome::NoEffect { reason: reason.clone() }),
            Self::FailedLater => {
                Event::FailedLater { at, why: reason, evidence: Stored::empty(), actor: Some(actor), decision }
            }
            Self::Revoke if was_sent(row) => Event::RevokeWished { actor, reason, at, decision },
            Self::Revoke => Event::Revoked { actor, reason, at, decision },
            Self::Supersede { whom } => {
                let epoch = row.epoch.saturating_add(1);
                Event::Superseded { actor, reason, epoch, for_whom: whom.clone(), at, decision }
            }
            Self::Approve => {
                let request_digest = row.proposal.as_ref().map(|proposal| proposal.request_digest).unwrap_or_default();
                Event::Approved { actor, reason, request_digest, at, decision }
            }
            Self::Deny => Event::Denied { actor, reason, at, decision },
        }
    }

    /// What to do instead, where the row does not allow it.
    pub(super) fn instead(&self, row: &Effect) -> &'static str {
        let exists = matches!(row.state, StateTag::Done | StateTag::Issued | StateTag::Stranded);
        let in_flight = matches!(row.state, StateTag::Dispatched | StateTag::Responded);
        match self {
            Self::Revoke if exists => "; it exists: only its own undoing operation removes it",
            Self::Revoke | Self::Deny if row.state == StateTag::Revoked => "; it is revoked already",
            Self::Done { .. } | Self::NoEffect if in_flight => "; `oncegate ledger reconcile` it first",
            Self::Done { .. } if row.state == StateTag::NoEffect => "; it is proven not to have happened",
            _ => "",
        }
    }

    /// In one sentence, what the decision can lead to.
    pub(super) fn stakes(&self, row: &Effect) -> Option<String> {
        match self {
            Self::Supersede { whom } => Some(again(row, whom)),
            Self::NoEffect if row.revoke_wished => {
                Some("it becomes revoked; if it did happen after all, the ledger says otherwise".to_owned())
            }
            Self::NoEffect => Some("if it did happen after all, the next call causes it a second time".to_owned()),
            Self::Revoke => wished(row.state).map(str::to_owned),
            Self::FailedLater => Some(
                "it stays done and goes on answering with its receipt; supersede it to have it done again".to_owned(),
            ),
            Self::Done { .. } | Self::Approve | Self::Deny => None,
        }
    }
}

/// Bytes may have left.
fn was_sent(row: &Effect) -> bool {
    matches!(row.state, StateTag::Dispatched | StateTag::Responded | StateTag::Unknown)
}

fn wished(state: StateTag) -> Option<&'static str> {
    match state {
        StateTag::Dispatched | StateTag::Responded => {
            Some("it is being sent: what has not left is stopped, and if it happened it ends as done all the same")
        }
        StateTag::Unknown => Some(
            "it may have happened already: nothing sends it again, and if it is found it ends as done all the same",
        ),
        _ => None,
    }
}

fn again(row: &Effect, whom: &str) -> String {
    let receipt = row.receipt.as_ref().map(|receipt| format!(" (receipt {receipt})")).unwrap_or_default();
    match row.state {
        StateTag::Done | StateTag::Stranded | StateTag::Issued => {
            format!("it exists{receipt}: a call with {whom} causes it a second time")
        }
        StateTag::Undone => format!("it was done and undone{receipt}: a call with {whom} does it again"),
        StateTag::Unknown => format!("it may have happened: a call with {whom} may cause it a second time"),
        _ => format!("nothing happened so far: a call with {whom} may do it"),
    }
}

#[cfg(test)]
mod tests {
    use oncegate_ledger::state;

    use super::*;

    fn taken() -> Taken {
        Taken { actor: "ada".to_owned(), reason: "why".to_owned(), id: "d1".to_owned() }
    }

    #[test]
    fn every_decision_carries_its_name() {
        let event =
            |decision: Option<String>| Event::Revoked { actor: "a".into(), reason: "r".into(), at: 1, decision };
        assert_eq!(event(Some("d1".into())).decision(), Some("d1"));
        let row = row(StateTag::Unknown);
        let verbs = [
            Verb::Done { receipt: "r".into() },
            Verb::NoEffect,
            Verb::FailedLater,
            Verb::Revoke,
            Verb::Supersede { whom: "run:1".into() },
            Verb::Approve,
            Verb::Deny,
        ];
        for verb in verbs {
            assert_eq!(verb.event(&row, &taken(), 1).decision(), Some("d1"), "{verb:?}");
        }
    }

    #[test]
    fn what_was_sent_can_only_be_wished_away() {
        for (tag, wish) in [(StateTag::Unknown, true), (StateTag::NoEffect, false), (StateTag::Planned, false)] {
            let row = row(tag);
            let event = Verb::Revoke.event(&row, &taken(), 1);
            assert_eq!(matches!(event, Event::RevokeWished { .. }), wish, "{tag}");
            assert_eq!(Verb::Revoke.stakes(&row).is_some(), wish, "{tag}");
        }
    }

    fn row(state: StateTag) -> Effect {
        let row = state::fold([&Event::Pruned(Box::new(tombstone(StateTag::Done)))]).unwrap().unwrap();
        Effect { state, ..row }
    }

    fn tombstone(state: StateTag) -> oncegate_ledger::Tombstone {
        oncegate_ledger::Tombstone {
            at: 1,
            state,
            generation: 0,
            epoch: 0,
            tenant: String::new(),
            account: String::new(),
            owner: String::new(),
            action: String::new(),
            tool: String::new(),
            operation: String::new(),
            label: String::new(),
            salt: [0; 16],
            fingerprint: Vec::new(),
            generated: [0; 32],
            receipt: Some("re_1".to_owned()),
            reason: None,
            confirmed: false,
            settled_at: 1,
            superseded_by: None,
            undone_by: None,
            other_receipts: Vec::new(),
            diverged: false,
            ties: oncegate_ledger::Ties::default(),
            failed_later: None,
            decisions: Vec::new(),
            erasures: 0,
        }
    }
}
