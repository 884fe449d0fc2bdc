//! Which parts of each event are private.
//!
//! | Event | Encrypted | Stays clear, and why |
//! |---|---|---|
//! | `planned`, `amended`, `awaiting-approval` | label, fields, rendered request, digest of the generated fields | names, key, salted hashes, digest of the request: identity, and what an approval binds to |
//! | `dispatched` | the same, and the raw answers of lookups | the same; downstream key, URL, name and version of the credential: what a resend must repeat |
//! | `evidence`, `responded` | the bytes, the digest of the whole answer | lengths, how it ended |
//! | `classified` | the provider's reason, why it is unknown | the receipt: what a repeat is answered with |
//! | `not-sent`, `lost`, `classify-failed`, `stranded`, `diverged` | why, evidence | what it means for the row |
//! | `settled` | evidence, why it is undetermined | receipts, names of fields |
//! | `failed-later`, `completed` | evidence; why, unless a person says so | receipt |
//! | `pruned` | label, reason, what failed later, digest of the generated fields | all that answers and compares |
//! | `plan-frozen` | the document: arguments, labels, values | keys of its rows |
//! | `task-begun`, `task-ended` | arguments, result | whose it is, which tool, the facts of the call |
//!
//! Never encrypted: what a person decides (actor and reason stay on record), the facts of a call, contracts,
//! recipes, accounts, permits, claims, ordinals, fences, and a value that is pinned: it is part of a key, and
//! without it the effect could happen again. A salted hash or a digest that stays can confirm a guess of the
//! whole value by whoever has the ledger; it tells nothing to those who cannot guess.

use crate::event::{Event, Outcome, SettleVerdict, Stored};

/// What a ciphertext is of. The codes are part of the stored format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Part {
    Texts = 1,
    Fields = 2,
    Request = 3,
    Lookup = 4,
    Answer = 5,
    Found = 6,
    Arguments = 7,
    Result = 8,
    Document = 9,
}

/// Every private text, in a fixed order.
pub(super) fn texts(event: &mut Event) -> Vec<&mut String> {
    match event {
        Event::Planned(proposal) | Event::Amended(proposal) | Event::AwaitingApproval(proposal) => {
            vec![&mut proposal.label]
        }
        Event::Dispatched(dispatch) => vec![&mut dispatch.label],
        Event::NotSent { why, .. }
        | Event::Lost { why, .. }
        | Event::ClassifyFailed { why, .. }
        | Event::Stranded { why, .. }
        | Event::FailedLater { why, actor: None, .. }
        | Event::Diverged { why, .. } => vec![why],
        Event::Classified { outcome, .. } => match outcome {
            Outcome::NoEffect { reason: why } | Outcome::Unknown { why } => vec![why],
            Outcome::Done { .. } | Outcome::Issued { .. } => Vec::new(),
        },
        Event::Settled { verdict: SettleVerdict::Undetermined { why }, .. } => vec![why],
        Event::Pruned(tombstone) => {
            let mut texts = vec![&mut tombstone.label];
            texts.extend(tombstone.reason.as_mut());
            texts.extend(tombstone.failed_later.as_mut());
            texts
        }
        _ => Vec::new(),
    }
}

/// Every private byte string, in the order of [`Event::stored_mut`].
pub(super) fn bytes(event: &mut Event) -> Vec<(Part, &mut Stored)> {
    let part = match event {
        Event::Planned(_) | Event::Amended(_) | Event::AwaitingApproval(_) | Event::Dispatched(_) => None,
        Event::Evidence { .. } | Event::Responded { .. } => Some(Part::Answer),
        Event::Settled { .. } | Event::Diverged { .. } | Event::FailedLater { .. } | Event::Completed { .. } => {
            Some(Part::Found)
        }
        Event::PlanFrozen { .. } => Some(Part::Document),
        Event::TaskBegun(_) => Some(Part::Arguments),
        Event::TaskEnded { .. } => Some(Part::Result),
        _ => return Vec::new(),
    };
    let of = |place: usize| match place {
        0 => Part::Fields,
        1 => Part::Request,
        _ => Part::Lookup,
    };
    let places = event.stored_mut().into_iter().enumerate();
    places.map(|(place, stored)| (part.unwrap_or(of(place)), stored)).collect()
}

/// Every private digest: of texts that could be guessed.
pub(super) fn digests(event: &mut Event) -> Vec<&mut [u8; 32]> {
    match event {
        Event::Planned(proposal) | Event::Amended(proposal) | Event::AwaitingApproval(proposal) => {
            vec![&mut proposal.generated]
        }
        Event::Dispatched(dispatch) => vec![&mut dispatch.generated],
        Event::Responded { digest, .. } => vec![digest],
        Event::Pruned(tombstone) => vec![&mut tombstone.generated],
        _ => Vec::new(),
    }
}

/// Puts this in the place of every private text: behind the action where that is known, which is no secret.
pub(super) fn withhold(event: &mut Event, why: &str) {
    let action = match event {
        Event::Planned(proposal) | Event::Amended(proposal) | Event::AwaitingApproval(proposal) => {
            proposal.action.as_str()
        }
        Event::Dispatched(dispatch) => dispatch.action.as_str(),
        Event::Pruned(tombstone) => tombstone.action.as_str(),
        _ => "",
    };
    let label = if action.is_empty() { why.to_owned() } else { format!("{action} {why}") };
    for (place, text) in texts(event).into_iter().enumerate() {
        // The label comes first, and events that have none have no action.
        *text = if place == 0 { label.clone() } else { why.to_owned() };
    }
}

/// Whether it gives its credential away, or may: then it is encrypted whatever the policy says.
pub(super) fn must_be_private(event: &Event) -> bool {
    matches!(event, Event::Responded { echoes: true, .. } | Event::Evidence { echoes: true, .. })
}

/// Whether it has anything private.
pub(super) fn has_any(event: &mut Event) -> bool {
    texts(event).iter().any(|text| !text.is_empty())
        || bytes(event).iter().any(|(_, stored)| !stored.is_empty())
        || !digests(event).is_empty()
}
