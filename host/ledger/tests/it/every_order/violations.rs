//! Each invariant is shown to notice: a step made up to break it, and it alone is asked.

use std::collections::BTreeSet;

use oncegate_ledger::{Event, StateTag};

use super::invariants::{INVARIANTS, Step};
use super::{World, follow};
use crate::samples::*;
use crate::states::resent;

/// A history, an event on it, and what a wrong state function would have made of it.
struct Violation {
    /// The invariant that must notice.
    of: &'static str,
    before: Vec<Event>,
    event: Event,
    /// What is wrong with the row after it. Nothing, where the event itself should have been refused.
    spoil: fn(&mut World),
}

fn violation(of: &'static str, before: &[Event], event: Event, spoil: fn(&mut World)) -> Violation {
    Violation { of, before: before.to_vec(), event, spoil }
}

fn untouched(_: &mut World) {}

fn finished() -> [Event; 3] {
    [dispatched(1, 0), responded(1, b"raw"), classified(1, done("r1"))]
}

fn proven_absent() -> [Event; 3] {
    [dispatched(1, 0), lost(1, true), absent()]
}

/// Of attempts and what may be sent.
fn of_sending() -> Vec<Violation> {
    vec![
        violation("at most one live attempt per key", &[dispatched(1, 0)], revoke_wished(), |after| {
            let again = after.row.attempts[0].clone();
            after.row.attempts.push(again);
        }),
        violation(
            "a new generation begins only when every sender before it has stopped",
            &[dispatched(1, 0), lost(1, false)],
            dispatched(2, 1),
            untouched,
        ),
        violation(
            "no byte after a revocation of this epoch",
            &[dispatched(1, 0), revoke_wished()],
            resent(2, 0),
            untouched,
        ),
        violation("the downstream key never changes within a generation", &[dispatched(1, 0)], other_key(), untouched),
        violation(
            "a generation rises only by proof for every attempt",
            &[dispatched(1, 0), lost(1, true)],
            dispatched(2, 1),
            |after| after.row.generation = 1,
        ),
        violation("no attempt is forgotten but by retention", &proven_absent(), dispatched(2, 1), |after| {
            after.row.attempts.remove(0);
        }),
        violation("a dispatch is what the answer or the resend rule permits", &finished(), dispatched(2, 1), untouched),
        violation(
            "an answer permits a dispatch only where nothing happened",
            &[dispatched(1, 0), lost(1, true)],
            absent(),
            |after| after.row.receipt = Some("r1".into()),
        ),
    ]
}

fn other_key() -> Event {
    let mut dispatch = dispatch(2, 0, true);
    dispatch.downstream_key = "og-another".to_owned();
    Event::Dispatched(Box::new(dispatch))
}

/// Of what is known, and by which evidence.
fn of_knowing() -> Vec<Violation> {
    vec![
        violation(
            "nothing leaves unknown without evidence or a decision",
            &[dispatched(1, 0), lost(1, true)],
            Event::Diverged { at: 1_000, why: "late".into(), evidence: oncegate_ledger::Stored::empty() },
            |after| after.row.state = StateTag::NoEffect,
        ),
        violation("a receipt is immutable", &finished(), one("r2"), |after| after.row.receipt = Some("r2".into())),
        violation("no receipt is lost", &finished(), one("r2"), |after| after.row.other_receipts.clear()),
        violation("raw bytes exist for every answered attempt", &[dispatched(1, 0)], responded(1, b"raw"), |after| {
            after.raw.clear()
        }),
        violation("no-effect has a proof for each attempt", &[dispatched(1, 0), lost(1, true)], absent(), |after| {
            after.row.attempts[0].proof = false;
        }),
        violation(
            "done has a receipt",
            &[dispatched(1, 0), responded(1, b"raw")],
            classified(1, done("r1")),
            |after| after.row.receipt = Some(String::new()),
        ),
    ]
}

/// Of states, epochs and the log itself.
fn of_the_row() -> Vec<Violation> {
    vec![
        violation(
            "a revocation is sticky",
            &[dispatched(1, 0), lost(1, true), absent(), revoked()],
            one("r1"),
            |after| {
                after.row.state = StateTag::NoEffect;
            },
        ),
        violation("each transition appends exactly one event", &[dispatched(1, 0)], responded(1, b"raw"), |after| {
            after.row.version += 1;
        }),
        violation("an epoch is another key: it never changes", &finished(), superseded(), |after| after.row.epoch += 1),
        violation("done and undone are final but for an undoing or a decision", &finished(), one("r2"), |after| {
            after.row.state = StateTag::Unknown;
        }),
        violation("only an operator thaws", &[finished().to_vec(), vec![one("r2")]].concat(), one("r1"), |after| {
            after.row.frozen = false;
        }),
    ]
}

/// Whether the invariant of that name holds of the step.
fn holds(name: &str, step: &Step<'_>) -> bool {
    let (_, holds) = INVARIANTS.into_iter().find(|(known, _)| *known == name).unwrap();
    holds(step)
}

#[test]
fn each_invariant_notices_when_it_is_broken() {
    let violations: Vec<Violation> = of_sending().into_iter().chain(of_knowing()).chain(of_the_row()).collect();
    for Violation { of, before, event, spoil } in &violations {
        let world = before.iter().fold(None, |world, event| Some(follow(world.as_ref(), event).unwrap())).unwrap();
        let legal = follow(Some(&world), event);
        if let Some(after) = &legal {
            assert!(holds(of, &Step { before: Some(&world), event, after }), "{of}: broken before it was spoilt");
        }
        let mut after = legal.unwrap_or_else(|| world.clone());
        spoil(&mut after);
        assert!(!holds(of, &Step { before: Some(&world), event, after: &after }), "{of}: not noticed");
    }
    let shown: BTreeSet<_> = violations.iter().map(|violation| violation.of).collect();
    assert_eq!(shown, INVARIANTS.iter().map(|(name, _)| *name).collect(), "each invariant has its violation");
}
