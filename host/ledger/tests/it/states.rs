//! Every order of events up to a depth, and what must hold after each.

use std::collections::HashSet;

use oncegate_ledger::{
    Answer, Effect, Event, Outcome, ResendTerms, Sender, SettleVerdict, StateTag, Stored, answer, may_resend, state,
};

use crate::samples::*;

const DEPTH: usize = 6;

fn generous() -> ResendTerms {
    ResendTerms {
        window_ms: Some(86_400_000),
        margin_ms: 0,
        latest_clock_ms: 0,
        same_request: true,
        same_credential: true,
        same_url: true,
    }
}

fn resent(attempt: u8, generation: u32) -> Event {
    Event::Dispatched(Box::new(dispatch(attempt, generation, true)))
}

fn alphabet() -> Vec<Event> {
    let at = 1_000;
    let (actor, reason) = (|| "ann".to_owned(), || "why".to_owned());
    let mut events = vec![
        Event::Planned(proposal(9)),
        Event::Amended(proposal(9)),
        Event::AwaitingApproval(proposal(9)),
        Event::Approved { actor: actor(), reason: reason(), request_digest: [9; 32], at, decision: None },
        Event::Approved { actor: actor(), reason: reason(), request_digest: [8; 32], at, decision: None },
        Event::Denied { actor: actor(), reason: reason(), at, decision: None },
        dispatched(1, 0),
        dispatched(2, 1),
        dispatched(3, 2),
        resent(2, 0),
        resent(3, 1),
        Event::ClassifyFailed { attempt: [1; 16], at, why: "panic".into() },
        one("r1"),
        one("r2"),
        settled(SettleVerdict::One { receipt: "r3".into(), mismatched: vec!["amount".into()] }),
        settled(SettleVerdict::Many { receipts: vec!["r1".into(), "r2".into()] }),
        absent(),
        settled(SettleVerdict::Undetermined { why: "500".into() }),
        Event::Confirmed { at, receipt: "r1".into() },
        Event::Diverged { at, why: "late".into(), evidence: Stored::empty() },
        Event::FailedLater { at, why: "chargeback".into(), evidence: Stored::empty(), actor: None, decision: None },
        Event::Completed { at, receipt: None, evidence: Stored::empty() },
        Event::Completed { at, receipt: Some("r2".into()), evidence: Stored::empty() },
        Event::Stranded { at, why: "late".into() },
        Event::Undone { by: [1; 32], at },
        revoke_wished(),
        revoked(),
        superseded(),
        decided(done("r1")),
        decided(done("r2")),
        decided(refused()),
    ];
    for attempt in [1, 2] {
        events.extend([
            responded(attempt, b"raw"),
            classified(attempt, done("r1")),
            classified(attempt, done("r2")),
            classified(attempt, Outcome::Issued { receipt: Some("r1".into()) }),
            classified(attempt, Outcome::Issued { receipt: None }),
            classified(attempt, refused()),
            classified(attempt, unknown()),
            lost(attempt, false),
            lost(attempt, true),
            not_sent(attempt),
        ]);
    }
    events
}

/// Everything that decides what can follow; times and versions do not.
fn essence(effect: &Effect) -> String {
    format!(
        "{:?}",
        (
            (effect.state, effect.generation, effect.epoch, &effect.attempts, &effect.receipt),
            (&effect.other_receipts, effect.confirmed, effect.diverged, effect.frozen, effect.revoke_wished),
            (&effect.superseded_by, effect.approved, effect.proposal.is_some(), effect.failed_later.is_some()),
            effect.dispatch.as_ref().map(|dispatch| (dispatch.attempt, dispatch.generation)),
        )
    )
}

fn receipts_of(event: &Event) -> Vec<&str> {
    match event {
        Event::Classified { outcome: Outcome::Done { receipt }, .. }
        | Event::Settled { verdict: SettleVerdict::One { receipt, .. }, .. }
        | Event::Confirmed { receipt, .. }
        | Event::Completed { receipt: Some(receipt), .. } => vec![receipt],
        Event::Classified { outcome: Outcome::Issued { receipt }, .. } => receipt.iter().map(String::as_str).collect(),
        Event::Settled { verdict: SettleVerdict::Many { receipts }, .. } => {
            receipts.iter().map(String::as_str).collect()
        }
        _ => Vec::new(),
    }
}

fn check_row(effect: &Effect, event: &Event) {
    let all_proven = effect.attempts.iter().all(|attempt| attempt.proof);
    let what = || format!("{effect:#?}\nafter {event:?}");
    if effect.state == StateTag::NoEffect && !effect.frozen {
        assert!(all_proven && !effect.attempts.is_empty(), "no-effect without a proof for each attempt: {}", what());
    }
    if effect.state == StateTag::Done {
        assert!(
            effect.receipt.as_ref().is_some_and(|receipt| !receipt.is_empty()),
            "done without a receipt: {}",
            what()
        );
    }
    for sender in [Sender::Running, Sender::Stopped, Sender::NotKnown] {
        if let Answer::Dispatch { .. } = answer(Some(effect), &[], sender) {
            let may = matches!(effect.state, StateTag::Planned | StateTag::AwaitingApproval | StateTag::NoEffect);
            assert!(may && !effect.frozen && all_proven && !effect.revoke_wished, "a permission to send: {}", what());
            assert!(effect.unclassified_attempt().is_none(), "an answer was not looked at: {}", what());
            assert!(effect.receipt.is_none(), "a receipt is known: {}", what());
        }
        let other = answer(Some(effect), &["amount".to_owned()], sender);
        if effect.binds() && !matches!(effect.state, StateTag::Undone | StateTag::Superseded) {
            assert_eq!(other, Answer::KeyReused(vec!["amount".into()]), "fingerprint comes before state: {}", what());
        }
    }
    if may_resend(effect, &generous()).is_ok() {
        assert!(effect.state == StateTag::Unknown && !effect.frozen && !effect.revoke_wished, "{}", what());
    }
}

fn check_step(before: &Effect, event: &Event, after: &Effect) {
    let what = || format!("{before:#?}\n{event:?}\n{after:#?}");
    if before.receipt.is_some() {
        assert_eq!(before.receipt, after.receipt, "a receipt was rewritten: {}", what());
    }
    for receipt in before.other_receipts.iter().map(String::as_str).chain(receipts_of(event)) {
        let kept = after.receipt.as_deref() == Some(receipt) || after.other_receipts.iter().any(|r| r == receipt);
        assert!(kept, "a receipt was lost: {}", what());
    }
    assert_eq!(before.epoch, after.epoch, "{}", what());
    assert!(after.attempts.len() >= before.attempts.len(), "{}", what());
    // An operator who looked may say that it exists after all, once something contradicted the row.
    let thawed = before.frozen && matches!(event, Event::Decided { outcome: Outcome::Done { .. }, .. });
    match before.state {
        StateTag::Revoked => {
            assert!(
                matches!(after.state, StateTag::Revoked | StateTag::Superseded) || thawed,
                "revocation is sticky: {}",
                what()
            );
        }
        StateTag::Superseded => assert_eq!(after.state, StateTag::Superseded, "{}", what()),
        StateTag::Done => assert!(
            matches!(after.state, StateTag::Done | StateTag::Undone | StateTag::Superseded),
            "done is final: {}",
            what()
        ),
        StateTag::Undone => {
            assert!(matches!(after.state, StateTag::Undone | StateTag::Superseded) || thawed, "{}", what());
        }
        _ => {}
    }
    if before.frozen && !after.frozen {
        assert!(matches!(event, Event::Decided { .. }), "only an operator thaws: {}", what());
    }
    if after.generation > before.generation {
        assert!(before.attempts.iter().all(|attempt| attempt.proof), "a generation without proof: {}", what());
    }
    if let Event::Dispatched(dispatch) = event {
        assert!(!before.revoke_wished && !before.frozen, "{}", what());
        if dispatch.resend {
            assert_eq!(may_resend(before, &generous()), Ok(()), "{}", what());
        } else {
            let permission = Answer::Dispatch { generation: dispatch.generation };
            assert_eq!(answer(Some(before), &[], Sender::Stopped), permission, "{}", what());
        }
    }
}

#[test]
fn nothing_wrong_follows_from_any_order_of_events() {
    let events = alphabet();
    let mut seen: HashSet<String> = HashSet::new();
    let mut states: HashSet<StateTag> = HashSet::new();
    let mut layer: Vec<Option<Effect>> = vec![None];
    let mut steps = 0_u64;
    for _ in 0..DEPTH {
        let mut following = Vec::new();
        for before in &layer {
            for event in &events {
                let Ok(after) = state::next(before.as_ref(), event) else {
                    continue;
                };
                steps += 1;
                if let Some(before) = before {
                    check_step(before, event, &after);
                }
                check_row(&after, event);
                states.insert(after.state);
                if seen.insert(essence(&after)) {
                    following.push(Some(after.without_bytes()));
                }
            }
        }
        layer = following;
    }
    assert_eq!(states.len(), StateTag::ALL.len(), "every state was reached");
    println!("{} rows, {steps} steps", seen.len());
    assert!(seen.len() > 10_000, "the enumeration is not trivial: {}", seen.len());
}

fn fold(events: &[Event]) -> Effect {
    state::fold(events).unwrap().unwrap()
}

#[test]
fn the_plain_life_of_an_effect() {
    assert_eq!(answer(None, &[], Sender::NotKnown), Answer::Dispatch { generation: 0 });
    let effect = fold(&[dispatched(1, 0)]);
    assert_eq!(answer(Some(&effect), &[], Sender::Running), Answer::InProgress);
    assert_eq!(answer(Some(&effect), &[], Sender::Stopped), Answer::SenderLost);
    let effect = fold(&[dispatched(1, 0), responded(1, b"raw")]);
    assert_eq!(answer(Some(&effect), &[], Sender::Running), Answer::Classify);
    let effect = fold(&[dispatched(1, 0), responded(1, b"raw"), classified(1, done("re_1"))]);
    assert_eq!(answer(Some(&effect), &[], Sender::Running), Answer::Replay);
    assert_eq!((effect.receipt.as_deref(), effect.version), (Some("re_1"), 3));
}

#[test]
fn a_relay_makes_zero_bytes_no_proof() {
    let mut relayed = dispatch(1, 0, false);
    relayed.egress_direct = false;
    let effect = fold(&[Event::Dispatched(Box::new(relayed)), not_sent(1)]);
    assert_eq!(effect.state, StateTag::Unknown);
    assert_eq!(fold(&[dispatched(1, 0), not_sent(1)]).state, StateTag::NoEffect);
}

#[test]
fn a_proof_for_the_second_attempt_is_none_for_the_first() {
    let history = [dispatched(1, 0), lost(1, true), resent(2, 0), responded(2, b"402"), classified(2, refused())];
    assert_eq!(fold(&history).state, StateTag::Unknown);
}

#[test]
fn silence_is_not_a_stop() {
    let silent = fold(&[dispatched(1, 0), lost(1, false)]);
    assert!(state::next(Some(&silent), &absent()).is_err());
    let stopped = state::next(Some(&silent), &lost(1, true)).unwrap();
    assert_eq!(state::next(Some(&stopped), &absent()).unwrap().state, StateTag::NoEffect);
}

#[test]
fn a_wished_revocation_waits_for_the_truth() {
    let wished = [dispatched(1, 0), revoke_wished(), responded(1, b"raw")];
    let mut happened = wished.to_vec();
    happened.push(classified(1, done("re_1")));
    assert_eq!(fold(&happened).state, StateTag::Done);
    let mut not = wished.to_vec();
    not.push(classified(1, refused()));
    assert_eq!(fold(&not).state, StateTag::Revoked);
}

#[test]
fn others_hear_the_earlier_epoch() {
    let effect = fold(&[dispatched(1, 0), responded(1, b"raw"), classified(1, done("re_1")), superseded()]);
    let Answer::Superseded { epoch: 1, for_whom, earlier } = answer(Some(&effect), &[], Sender::Stopped) else {
        panic!("{effect:?}")
    };
    assert_eq!((for_whom.as_str(), *earlier), ("run:7", Answer::Replay));
}

#[test]
fn judging_fails_twice_at_most() {
    let failed = || Event::ClassifyFailed { attempt: [1; 16], at: 1, why: "panic".into() };
    let once = fold(&[dispatched(1, 0), responded(1, b"raw"), failed()]);
    assert_eq!(once.state, StateTag::Responded);
    let twice = fold(&[dispatched(1, 0), responded(1, b"raw"), failed(), failed()]);
    assert_eq!(twice.state, StateTag::Unknown);
    assert!(state::next(Some(&twice), &failed()).is_err());
}

#[test]
fn a_clock_only_ends_the_permission_to_resend() {
    let effect = fold(&[dispatched(1, 0), lost(1, true)]);
    let mut terms = generous();
    terms.window_ms = Some(10_000);
    terms.margin_ms = 1_000;
    for (clock, may) in [(0, true), (1_000, true), (9_999, true), (10_000, false), (u64::MAX, false)] {
        terms.latest_clock_ms = clock;
        assert_eq!(may_resend(&effect, &terms).is_ok(), may, "at {clock}");
    }
}

#[test]
fn a_tombstone_still_answers_and_compares() {
    let effect = fold(&[dispatched(1, 0), responded(1, b"raw"), classified(1, done("re_1"))]);
    let tombstone = Event::Pruned(Box::new(effect.to_tombstone(5_000).unwrap()));
    for pruned in [state::next(Some(&effect), &tombstone).unwrap(), fold(std::slice::from_ref(&tombstone))] {
        assert_eq!(answer(Some(&pruned), &[], Sender::NotKnown), Answer::Replay);
        let differing = ["amount".to_owned()];
        assert_eq!(answer(Some(&pruned), &differing, Sender::NotKnown), Answer::KeyReused(differing.to_vec()));
        assert_eq!(pruned.receipt.as_deref(), Some("re_1"));
        assert_eq!(pruned.fingerprint().unwrap().1, effect.fingerprint().unwrap().1);
    }
    let unknown = fold(&[dispatched(1, 0), lost(1, true)]);
    assert!(unknown.to_tombstone(5_000).is_err(), "what may still change is not pruned");
}
