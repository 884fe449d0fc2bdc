//! Whose an action's effects are: a name with a history belongs to whoever made it.
//!
//! Two mistakes are refused, loudly, and by the ledger's own record. A component that has acted may not
//! come under another name: its effects would have new keys, and happen again. And a name that has a
//! history may not be taken by a component that the policy knows otherwise, for instance by another
//! signer, unless a `lineage` of the policy says that it is the same.
//!
//! Components that are known by digest keep their effects under the contract's name; that needs no
//! record, as the recipe that is bound there says it.

use oncegate_contract::Operation;
use oncegate_ledger::{Append, Event, Expect, Record, StreamId, StreamKind};

use super::bindings::{actions, recipe_stream, records};
use crate::call::Call;
use crate::host::{Book, stream};
use crate::policy::Owned;
use crate::stop::Stop;

/// Who has used a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    owner: String,
    component: String,
    by: String,
}

/// A stream of claims, as it was read.
#[derive(Debug, Default)]
struct Claims {
    version: u64,
    all: Vec<Claim>,
}

/// Checks the owner of the operation's actions. Gives what a dispatch appends to hold the names, and the
/// guards that nobody else has taken them meanwhile.
pub(super) async fn check(call: &Call, book: &Book, operation: &Operation) -> Result<Vec<Append>, Stop> {
    let mut all = actions(operation);
    // What it undoes or completes is somebody's as well.
    let others = [operation.revokes.as_ref().map(|undone| &undone.operation), operation.completes.as_ref()];
    let others = others.into_iter().flatten().filter_map(|name| call.contract().operations.get(name));
    all.extend(others.filter_map(|other| other.action.as_deref()));
    let mut also = Vec::new();
    for action in all {
        also.extend(check_action(call, book, action).await?);
    }
    Ok(also)
}

/// Whether the effects that this owner has under this action are the call's component's.
pub(crate) async fn is_of(call: &Call, book: &Book, owner: &str, action: &str) -> bool {
    let same = call.owner().is_ok_and(|owned| owned.owner == owner);
    same && check_action(call, book, action).await.is_ok()
}

async fn check_action(call: &Call, book: &Book, action: &str) -> Result<Vec<Append>, Stop> {
    let today = call.owner()?;
    let component = call.contract().component.name.as_str();
    let (held_id, used_id) = (held_by(&today.owner, action), used_by(component, action));
    let own = held_by(component, action);
    let ids = [held_id, used_id, recipe_stream(&today.owner, action), recipe_stream(component, action), own];
    let [held, used, acted, acted_by_name, own] = &records(call, book, &ids).await?[..] else {
        return Err(Stop::LedgerUnavailable("it did not answer all that was asked".to_owned()));
    };
    let (mut held, mut used) = (Claims::of(held), Claims::of(used));
    let (held_new, used_new) = (held.all.is_empty(), used.all.is_empty());
    if held_new && !acted.is_empty() {
        held.all.push(unwritten(&today.owner));
    }
    if used_new && !acted_by_name.is_empty() && Claims::of(own).all.is_empty() {
        used.all.push(unwritten(component));
    }
    judge(&today, &held.all, &used.all).inspect_err(|refused| said(refused, component, action, &today))?;
    let now = Claim { owner: today.owner.clone(), component: component.to_owned(), by: today.by.clone() };
    let plain = now == unwritten(component) && held_new && used_new;
    let add_held = !plain && !held.all.iter().any(|claim| claim.by == now.by);
    let add_used = !plain && used.all.last() != Some(&now);
    let mut also = record(held_id, &held, held_new, add_held.then_some(&now));
    also.extend(record(used_id, &used, used_new, add_used.then_some(&now)));
    Ok(also)
}

/// Whether the component may act under this name; pure.
fn judge(today: &Owned, held: &[Claim], used: &[Claim]) -> Result<(), Stop> {
    let digest = Owned::BY_DIGEST;
    // Digests name builds and not publishers: theirs may be anybody's history.
    let mine = |claim: &&Claim| claim.by == today.by || claim.by == digest || today.by == digest;
    if let Some(last) = used.iter().rfind(mine).filter(|last| last.owner != today.owner) {
        return Err(Stop::OwnerChanged { before: last.owner.clone() });
    }
    let holds = held.is_empty() || held.iter().any(|claim| claim.by == today.by);
    match held.last() {
        Some(other) if !holds && !today.joined => Err(Stop::OwnerHeld { by: other.by.clone() }),
        _ => Ok(()),
    }
}

/// What needs no record: a component that is known by digest, under its own name.
fn unwritten(component: &str) -> Claim {
    Claim { owner: component.to_owned(), component: component.to_owned(), by: Owned::BY_DIGEST.to_owned() }
}

/// For the operator, who alone can say what is right.
fn said(refused: &Stop, component: &str, action: &str, today: &Owned) {
    let (owner, by) = (&today.owner, &today.by);
    match refused {
        Stop::OwnerChanged { before } => tracing::error!(
            "effects of {component} ({action}) are on record under the owner {before}, and the policy now puts them under {owner}: they would have new keys and could happen again, so nothing is sent. `lineage = \"{before}\"` in its [[component]] entries goes on with what is on record"
        ),
        Stop::OwnerHeld { by: other } => tracing::error!(
            "effects of {owner} ({action}) are on record for components known by {other}, and this {component} is known by {by}: nothing is sent. If it is the same tool, `lineage = \"{owner}\"` in its [[component]] entries says so and goes on with what is on record; if it is another, a `lineage` with a name of its own keeps them apart"
        ),
        _ => {}
    }
}

/// The claims that are to be written, those that needed no record so far first; else the guard that
/// nothing was.
fn record(id: StreamId, read: &Claims, unwritten: bool, new: Option<&Claim>) -> Vec<Append> {
    let Some(new) = new else { return vec![Append::guard(id, Expect::Version(read.version))] };
    let earlier = read.all.iter().filter(|_| unwritten);
    earlier
        .chain([new])
        .zip(read.version..)
        .map(|(claim, version)| {
            let Claim { owner, component, by } = claim.clone();
            Append::new(id, Expect::Version(version), Event::OwnerBound { owner, component, by })
        })
        .collect()
}

/// Who has used this name for the action.
fn held_by(owner: &str, action: &str) -> StreamId {
    stream(StreamKind::Recipe, &[b"held by", owner.as_bytes(), action.as_bytes()])
}

/// Which names components of this contract's name have used for the action.
fn used_by(component: &str, action: &str) -> StreamId {
    stream(StreamKind::Recipe, &[b"used by", component.as_bytes(), action.as_bytes()])
}

impl Claims {
    fn of(records: &[Record]) -> Self {
        let all = records.iter().filter_map(|record| match &record.event {
            Event::OwnerBound { owner, component, by } => {
                Some(Claim { owner: owner.clone(), component: component.clone(), by: by.clone() })
            }
            _ => None,
        });
        Self { version: records.last().map_or(0, |record| record.version), all: all.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn today(owner: &str, by: &str, joined: bool) -> Owned {
        Owned { owner: owner.into(), by: by.into(), joined }
    }

    fn claim(owner: &str, by: &str) -> Claim {
        Claim { owner: owner.into(), component: "refunds".into(), by: by.into() }
    }

    #[test]
    fn a_name_without_history_is_anybodys() {
        for by in ["digest", "signer acme"] {
            assert_eq!(judge(&today("refunds", by, false), &[], &[]), Ok(()));
            assert_eq!(judge(&today("other", by, true), &[], &[]), Ok(()));
        }
    }

    #[test]
    fn a_history_by_digest_is_a_signers_only_by_a_lineage() {
        let history = [claim("refunds", "digest")];
        let refused = judge(&today("refunds", "signer acme", false), &history, &history);
        assert_eq!(refused, Err(Stop::OwnerHeld { by: "digest".into() }));
        assert_eq!(judge(&today("refunds", "signer acme", true), &history, &history), Ok(()));
        // Another name would give old effects new keys, whoever it is that asks.
        for by in ["digest", "signer acme"] {
            let refused = judge(&today("elsewhere", by, true), &[], &history);
            assert_eq!(refused, Err(Stop::OwnerChanged { before: "refunds".into() }));
        }
    }

    #[test]
    fn a_signers_history_is_no_other_signers() {
        let history = [claim("refunds", "signer acme")];
        assert_eq!(judge(&today("refunds", "signer acme", false), &history, &history), Ok(()));
        for by in ["signer evil", "digest"] {
            let refused = judge(&today("refunds", by, false), &history, &history);
            assert_eq!(refused, Err(Stop::OwnerHeld { by: "signer acme".into() }), "{by}");
        }
        // With a name of its own it stands beside; its key never was under the other.
        assert_eq!(judge(&today("evils", "signer evil", true), &[], &history), Ok(()));
        // A lineage that is taken out again.
        let moved = [claim("shared", "signer acme")];
        let refused = judge(&today("refunds", "signer acme", false), &[], &moved);
        assert_eq!(refused, Err(Stop::OwnerChanged { before: "shared".into() }));
    }

    #[test]
    fn what_needed_no_record_is_written_before_what_does() {
        let id = held_by("refunds", "refund");
        let read = Claims { version: 0, all: vec![claim("refunds", "digest")] };
        let appends = record(id, &read, true, Some(&claim("refunds", "signer acme")));
        let expected: Vec<Expect> = appends.iter().map(|append| append.expect).collect();
        assert_eq!(expected, [Expect::Version(0), Expect::Version(1)]);
        assert!(record(id, &read, true, None)[0].event.is_none());
        let later = Claims { version: 2, all: vec![claim("refunds", "digest"), claim("refunds", "signer acme")] };
        assert_eq!(record(id, &later, false, Some(&claim("refunds", "signer b")))[0].expect, Expect::Version(2));
    }
}
