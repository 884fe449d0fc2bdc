//! What one commit says beside the event itself: receipts, permits, claims, the effects it ends.

use std::sync::Arc;

use oncegate_ledger::consequences::holder;
use oncegate_ledger::memory::MemoryLedger;
use oncegate_ledger::{
    Append, Dispatch, Effects, EffectsError, Event, Expect, LedgerError, Outcome, PermitUse, StateTag, Stored,
    StreamId, StreamKind, Ties,
};

use crate::samples::{dispatch, responded};

const PERMIT: StreamId = StreamId { kind: StreamKind::Permit, id: [40; 32] };
const CLAIM: StreamId = StreamId { kind: StreamKind::Claim, id: [41; 32] };

fn effects() -> Effects {
    Effects::new(Arc::new(MemoryLedger::new()))
}

fn tied(ties: Ties) -> Event {
    Event::Dispatched(Box::new(Dispatch { ties, ..dispatch(1, 0, false) }))
}

async fn granted(effects: &Effects, amount: u64) {
    let (actor, reason) = ("ops".to_owned(), "test".to_owned());
    let event = Event::PermitGranted { amount, document: Stored::empty(), actor, reason, at: 1 };
    effects.ledger.append(vec![Append::new(PERMIT, Expect::Version(0), event)]).await.unwrap();
}

/// What the gates of a dispatch add for an effect that takes a claim and a part of a permit.
fn taken(key: [u8; 32]) -> (Ties, Vec<Append>) {
    let permit = PermitUse { id: "p".into(), grant: "g".into(), reserved: vec![(PERMIT.id.into(), 3)] };
    let ties = Ties { permit: Some(permit), claims: vec![CLAIM.id], ..Ties::default() };
    let reserve = Event::PermitReserved { effect: key, amount: 3, at: 1 };
    let claim = Event::ClaimTaken { effect: key, at: 1 };
    let also =
        vec![Append::new(PERMIT, Expect::Remaining { at_least: 3 }, reserve), Append::new(CLAIM, Expect::Any, claim)];
    (ties, also)
}

async fn left(effects: &Effects, at_least: u64) -> bool {
    let asked = effects.ledger.append(vec![Append::guard(PERMIT, Expect::Remaining { at_least })]).await;
    match asked {
        Ok(versions) => versions.is_empty(),
        Err(LedgerError::Condition { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

async fn claimed_by(effects: &Effects) -> Option<[u8; 32]> {
    let records = effects.ledger.read(CLAIM).await.unwrap();
    holder(records.iter().map(|record| &record.event))
}

async fn ended(effects: &Effects, key: [u8; 32], outcome: Outcome) {
    let row = effects.append(key, 1, responded(1, b"{}"), Vec::new()).await.unwrap();
    let event = Event::Classified { attempt: [1; 16], at: 5, outcome };
    effects.append(key, row.version, event, Vec::new()).await.unwrap();
}

#[tokio::test]
async fn proof_that_nothing_happened_gives_back_what_the_key_held() {
    let (effects, key) = (effects(), [1; 32]);
    granted(&effects, 5).await;
    let (ties, also) = taken(key);
    effects.append(key, 0, tied(ties), also).await.unwrap();
    assert!(!left(&effects, 3).await);
    assert_eq!(claimed_by(&effects).await, Some(key));
    ended(&effects, key, Outcome::NoEffect { reason: "card_declined".into() }).await;
    assert!(left(&effects, 5).await);
    assert_eq!(claimed_by(&effects).await, None);
}

#[tokio::test]
async fn a_done_effect_keeps_what_it_holds_and_its_receipt_is_indexed() {
    let (effects, key) = (effects(), [1; 32]);
    granted(&effects, 5).await;
    let (ties, also) = taken(key);
    effects.append(key, 0, tied(ties), also).await.unwrap();
    ended(&effects, key, Outcome::Done { receipt: "re_1".into() }).await;
    assert!(!left(&effects, 3).await);
    assert_eq!(claimed_by(&effects).await, Some(key));
    let index = effects.ledger.read(StreamId::receipt("acme-eu", "re_1")).await.unwrap();
    assert_eq!(index.into_iter().map(|record| record.event).collect::<Vec<_>>(), [Event::ReceiptKnown { effect: key }]);
}

#[tokio::test]
async fn a_balance_that_does_not_suffice_stores_nothing() {
    let (effects, key) = (effects(), [1; 32]);
    granted(&effects, 2).await;
    let (ties, also) = taken(key);
    let refused = effects.append(key, 0, tied(ties), also).await;
    assert!(matches!(refused, Err(EffectsError::Ledger(LedgerError::Condition { .. }))), "{refused:?}");
    assert!(effects.get(key).await.unwrap().is_none());
    assert_eq!(claimed_by(&effects).await, None);
}

#[tokio::test]
async fn a_guard_is_checked_and_stores_nothing() {
    let effects = effects();
    let at = |version| vec![Append::guard(CLAIM, Expect::Version(version))];
    assert!(effects.ledger.append(at(0)).await.unwrap().is_empty());
    assert!(matches!(effects.ledger.append(at(1)).await, Err(LedgerError::Conflict { .. })));
    assert!(effects.ledger.read(CLAIM).await.unwrap().is_empty());
    assert!(effects.ledger.scan(0, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_completing_effect_makes_the_issued_one_final_in_the_same_commit() {
    let (effects, post, answer) = (effects(), [1; 32], [2; 32]);
    effects.append(post, 0, tied(Ties::default()), Vec::new()).await.unwrap();
    ended(&effects, post, Outcome::Issued { receipt: Some("post_1".into()) }).await;
    let ties = Ties { completes: Some(post.into()), ..Ties::default() };
    effects.append(answer, 0, tied(ties), Vec::new()).await.unwrap();
    ended(&effects, answer, Outcome::Done { receipt: "ok_1".into() }).await;
    let row = effects.get(post).await.unwrap().unwrap();
    assert_eq!((row.state, row.receipt.as_deref()), (StateTag::Done, Some("post_1")));
}

#[tokio::test]
async fn what_an_effect_cannot_complete_any_more_is_frozen() {
    let (effects, post, answer) = (effects(), [1; 32], [2; 32]);
    effects.append(post, 0, tied(Ties::default()), Vec::new()).await.unwrap();
    ended(&effects, post, Outcome::Issued { receipt: Some("post_1".into()) }).await;
    let ties = Ties { completes: Some(post.into()), ..Ties::default() };
    effects.append(answer, 0, tied(ties), Vec::new()).await.unwrap();
    effects.append(post, 3, Event::Stranded { at: 9, why: "too late".into() }, Vec::new()).await.unwrap();
    ended(&effects, answer, Outcome::Done { receipt: "ok_1".into() }).await;
    let row = effects.get(post).await.unwrap().unwrap();
    assert!(row.frozen && row.diverged, "{row:?}");
}

#[tokio::test]
async fn undoing_frees_the_claim_and_not_the_permit() {
    let (effects, made, removed) = (effects(), [1; 32], [2; 32]);
    granted(&effects, 5).await;
    let (ties, also) = taken(made);
    effects.append(made, 0, tied(ties), also).await.unwrap();
    ended(&effects, made, Outcome::Done { receipt: "row_1".into() }).await;
    let ties = Ties { undoes: Some(made.into()), ..Ties::default() };
    effects.append(removed, 0, tied(ties), Vec::new()).await.unwrap();
    ended(&effects, removed, Outcome::Done { receipt: "status:204".into() }).await;
    assert_eq!(effects.get(made).await.unwrap().unwrap().state, StateTag::Undone);
    assert_eq!(claimed_by(&effects).await, None);
    assert!(!left(&effects, 3).await);
    let index = effects.ledger.read(StreamId::receipt("acme-eu", "status:204")).await.unwrap();
    assert!(index.is_empty(), "a status is no identifier");
}

#[test]
fn a_claim_is_given_back_by_its_holder_only() {
    let taken = |effect| Event::ClaimTaken { effect: [effect; 32], at: 1 };
    let released = |effect| Event::ClaimReleased { effect: [effect; 32], at: 1 };
    assert_eq!(holder(&[taken(1), released(2)]), Some([1; 32]));
    assert_eq!(holder(&[taken(1), released(1), taken(2), released(1)]), Some([2; 32]));
    assert_eq!(holder(&[]), None);
}
