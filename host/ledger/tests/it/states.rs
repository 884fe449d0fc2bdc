//! The state function by example: one history and one rule in each test.

use oncegate_ledger::{Answer, Effect, Event, ResendTerms, Sender, StateTag, answer, may_resend, state};

use crate::samples::*;

pub(crate) fn generous() -> ResendTerms {
    ResendTerms {
        window_ms: Some(86_400_000),
        margin_ms: 0,
        latest_clock_ms: 0,
        same_request: true,
        same_credential: true,
        same_url: true,
    }
}

pub(crate) fn resent(attempt: u8, generation: u32) -> Event {
    Event::Dispatched(Box::new(dispatch(attempt, generation, true)))
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
