//! What every back end must do; the same for each.

use std::sync::Arc;

use oncegate_ledger::{
    Append, Effects, Event, Expect, INLINE_BYTES_MAX, Ledger, LedgerError, StateTag, Stored, StreamId, StreamKind, Tip,
    memory::MemoryLedger, redb::RedbLedger, verify,
};

use crate::samples::*;

fn stream(n: u8) -> StreamId {
    StreamId { kind: StreamKind::Pin, id: [n; 32] }
}

fn pin(n: u8, expect: Expect, value: &str) -> Append {
    Append::new(stream(n), expect, Event::Pinned { value: value.into() })
}

async fn appends_are_atomic_over_their_streams(ledger: &dyn Ledger) {
    assert_eq!(
        ledger.append(vec![pin(1, Expect::Version(0), "a"), pin(2, Expect::Version(0), "b")]).await,
        Ok(vec![1, 1])
    );
    let refused = ledger.append(vec![pin(1, Expect::Version(1), "c"), pin(2, Expect::Version(0), "d")]).await;
    let expected = Expect::Version(0);
    assert_eq!(refused, Err(LedgerError::Conflict { stream: stream(2), expected, found: 1 }));
    assert_eq!(ledger.read(stream(1)).await.unwrap().len(), 1, "nothing of a refused batch is stored");
    let twice = vec![pin(1, Expect::Version(1), "e"), pin(1, Expect::Version(2), "f"), pin(3, Expect::Any, "g")];
    assert_eq!(ledger.append(twice).await, Ok(vec![2, 3, 1]));
    assert_eq!(ledger.append(Vec::new()).await, Ok(Vec::new()));
}

async fn streams_are_chained(ledger: &dyn Ledger) {
    let records = ledger.read(stream(1)).await.unwrap();
    assert_eq!(records.iter().map(|record| record.version).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(records[0].previous, [0; 32]);
    for pair in records.windows(2) {
        assert_eq!(pair[1].previous, pair[0].digest);
        assert!(pair[1].seq > pair[0].seq);
    }
    assert!(ledger.read(stream(99)).await.unwrap().is_empty());
}

async fn an_end_is_that_of_what_is_read(ledger: &dyn Ledger) {
    let streams = [stream(1), stream(99), stream(2)];
    let mut read = Vec::new();
    for stream in streams {
        read.push(Tip::of(&ledger.read(stream).await.unwrap()));
    }
    assert_eq!(ledger.tips(&streams).await.unwrap(), read);
    assert!(read[0].is_some() && read[1].is_none(), "{read:?}");
}

async fn a_permit_never_goes_below_nothing(ledger: &dyn Ledger) {
    let permit = StreamId { kind: StreamKind::Permit, id: [1; 32] };
    let reserve = |amount| Event::PermitReserved { effect: [1; 32], amount, at: 1 };
    let left = |at_least| Expect::Remaining { at_least };
    let none = ledger.append(vec![Append::new(permit, left(1), reserve(1))]).await;
    assert!(matches!(none, Err(LedgerError::Condition { .. })), "{none:?}");
    let granted =
        Event::PermitGranted { amount: 3, document: Stored::empty(), actor: "ann".into(), reason: "q4".into(), at: 1 };
    ledger.append(vec![Append::new(permit, Expect::Version(0), granted)]).await.unwrap();
    ledger.append(vec![Append::new(permit, left(2), reserve(2))]).await.unwrap();
    for expect in [left(2), Expect::Any] {
        let over = ledger.append(vec![Append::new(permit, expect, reserve(2))]).await;
        assert!(matches!(over, Err(LedgerError::Condition { .. })), "{over:?}");
    }
    let released = Event::PermitReleased { effect: [1; 32], amount: 2, at: 1 };
    ledger.append(vec![Append::new(permit, Expect::Any, released)]).await.unwrap();
    ledger.append(vec![Append::new(permit, left(3), reserve(3))]).await.unwrap();
}

async fn effects_are_listed_by_state(ledger: Arc<dyn Ledger>) {
    let effects = Effects::new(Arc::clone(&ledger));
    for key in [[1; 32], [2; 32], [3; 32]] {
        effects.append(key, 0, dispatched(1, 0), vec![pin(key[0] + 10, Expect::Version(0), "also")]).await.unwrap();
    }
    let effect = effects.append([2; 32], 1, responded(1, b"raw"), Vec::new()).await.unwrap();
    let effect = effects.advance([2; 32], Some(&effect), classified(1, done("re_2")), Vec::new()).await.unwrap();
    assert_eq!((effect.state, effect.version), (StateTag::Done, 3));
    assert_eq!(effects.get([2; 32]).await.unwrap().unwrap(), effect);
    let [one, three] = [StreamId::effect([1; 32]), StreamId::effect([3; 32])];
    assert_eq!(ledger.list(StateTag::Dispatched, None, 10).await.unwrap(), [one, three]);
    assert_eq!(ledger.list(StateTag::Dispatched, Some(one), 10).await.unwrap(), [three]);
    assert_eq!(ledger.list(StateTag::Dispatched, None, 1).await.unwrap(), [one]);
    assert_eq!(ledger.list(StateTag::Done, None, 10).await.unwrap(), [StreamId::effect([2; 32])]);
    let illegal = effects.append([2; 32], 3, dispatched(2, 1), Vec::new()).await.unwrap_err();
    assert!(illegal.to_string().contains("done"), "{illegal}");
    let conflict = effects.append([2; 32], 2, revoked(), Vec::new()).await.unwrap_err();
    assert!(conflict.is_conflict());
}

async fn evidence_and_large_bytes_come_back(ledger: Arc<dyn Ledger>) {
    let effects = Effects::new(Arc::clone(&ledger));
    let key = [9; 32];
    let answer: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    let evidence = |range: std::ops::Range<usize>| Event::Evidence {
        attempt: [1; 16],
        offset: range.start as u64,
        bytes: Stored::Inline(answer[range].to_vec()),
        echoes: false,
        at: 1_000,
    };
    effects.append(key, 0, dispatched(1, 0), Vec::new()).await.unwrap();
    effects.append(key, 1, evidence(0..100), Vec::new()).await.unwrap();
    effects.append(key, 2, evidence(100..65_636), Vec::new()).await.unwrap();
    assert_eq!(effects.raw_answer(key, [1; 16]).await.unwrap(), answer[..65_636], "what has arrived so far");
    let Event::Responded { attempt, at, sent_bytes, ended, digest, total, .. } = responded(1, &answer) else {
        unreachable!()
    };
    let head_and_tail = Stored::Inline(answer[65_636..].to_vec());
    let whole = Event::Responded { attempt, at, head_and_tail, total, digest, sent_bytes, ended, echoes: false };
    effects.append(key, 3, whole, Vec::new()).await.unwrap();
    assert_eq!(effects.raw_answer(key, [1; 16]).await.unwrap(), answer);
    let history = effects.history(key).await.unwrap();
    let Event::Responded { head_and_tail, .. } = &history[3].event else { panic!() };
    assert!(matches!(head_and_tail, Stored::Segment { .. }), "more than {INLINE_BYTES_MAX} bytes are kept outside");
    assert_eq!(ledger.load(&Stored::Inline(vec![1])).await.unwrap(), [1]);
    let gone = ledger.load(&Stored::Gone { len: 1, digest: [0; 32] }).await;
    assert!(matches!(gone, Err(LedgerError::Gone { .. })));
    // A stored place can be stored again, as a resend does with its request.
    let again = Event::Diverged { at: 1, why: "late".into(), evidence: head_and_tail.clone() };
    effects.append(key, 4, again, Vec::new()).await.unwrap();
    let history = effects.history(key).await.unwrap();
    let Event::Diverged { evidence, .. } = &history[4].event else { panic!() };
    assert_eq!(ledger.load(evidence).await.unwrap(), answer[65_636..]);
}

async fn one_of_many_callers_wins(ledger: Arc<dyn Ledger>) {
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..64_u8 {
        let effects = Effects::new(Arc::clone(&ledger));
        callers.spawn(async move {
            let shared = effects.append([50; 32], 0, dispatched(n, 0), Vec::new()).await.is_ok();
            let mut own = [60; 32];
            own[0] = n;
            effects.append(own, 0, dispatched(1, 0), Vec::new()).await.unwrap();
            shared
        });
    }
    assert_eq!(callers.join_all().await.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(ledger.read(StreamId::effect([50; 32])).await.unwrap().len(), 1);
}

async fn it_can_be_scanned_verified_and_exported(ledger: &dyn Ledger) {
    let all = ledger.scan(0, 1_000).await.unwrap();
    assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let tail = ledger.scan(all[3].seq, 2).await.unwrap();
    assert_eq!(tail, all[3..5]);
    let report = verify::verify(ledger).await.unwrap();
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(report.records as usize, all.len());
    assert!(report.effects["dispatched"] >= 2 && report.byte_strings >= 2 && report.frozen == 1, "{report:#?}");
    assert_eq!(report.checkpoint, verify::checkpoint(ledger).await.unwrap());
    let mut lines = Vec::new();
    assert_eq!(oncegate_ledger::export::export(ledger, 1, &mut lines).await.unwrap(), report.records);
    assert_eq!(verify::verify_export(lines.as_slice()).unwrap().checkpoint, report.checkpoint);
    let text = String::from_utf8(lines).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (end, records) = lines.split_last().unwrap();
    assert!(records.iter().all(|line| line["event"].is_object() && line["digest"].is_string()), "{text}");
    assert_eq!(end["checkpoint"]["digest"], report.checkpoint.digest);
}

pub(crate) async fn suite(ledger: Arc<dyn Ledger>) {
    appends_are_atomic_over_their_streams(&*ledger).await;
    streams_are_chained(&*ledger).await;
    an_end_is_that_of_what_is_read(&*ledger).await;
    a_permit_never_goes_below_nothing(&*ledger).await;
    effects_are_listed_by_state(Arc::clone(&ledger)).await;
    evidence_and_large_bytes_come_back(Arc::clone(&ledger)).await;
    one_of_many_callers_wins(Arc::clone(&ledger)).await;
    it_can_be_scanned_verified_and_exported(&*ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory() {
    suite(Arc::new(MemoryLedger::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redb_as_owner() {
    let directory = tempfile::tempdir().unwrap();
    suite(Arc::new(RedbLedger::init(&directory.path().join("l.redb"), 1).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redb_as_client() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let owner = RedbLedger::init(&path, 1).unwrap();
    let client = RedbLedger::open(&path).unwrap();
    assert_eq!(client.identity().role, oncegate_ledger::Role::Client);
    suite(Arc::new(client)).await;
    assert!(verify::verify(&owner).await.unwrap().is_sound());
}
