//! Random histories, the same on every back end: answers, records and lists must agree.

use std::sync::Arc;

use oncegate_ledger::{
    Append, Effects, Event, Expect, Ledger, Outcome, StateTag, Stored, StreamId, StreamKind, memory::MemoryLedger,
    redb::RedbLedger, verify,
};
use proptest::prelude::*;

use crate::samples::*;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Effect {
        key: u8,
        event: Event,
        stale: bool,
    },
    Batch(Vec<Append>),
    /// Close and open again; memory has nothing to do.
    Reopen,
}

fn effect_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1..4_u8, 0..3_u32, any::<bool>()).prop_map(|(attempt, generation, resend)| {
            Event::Dispatched(Box::new(dispatch(attempt, generation, resend)))
        }),
        (1..4_u8, prop_oneof![0..200_usize, 16_000..17_000_usize])
            .prop_map(|(attempt, length)| responded(attempt, &vec![attempt; length])),
        (1..4_u8).prop_map(|attempt| classified(attempt, done("r1"))),
        (1..4_u8).prop_map(|attempt| classified(attempt, refused())),
        (1..4_u8).prop_map(|attempt| classified(attempt, Outcome::Issued { receipt: None })),
        (1..4_u8).prop_map(|attempt| lost(attempt, true)),
        (1..4_u8).prop_map(not_sent),
        Just(absent()),
        Just(one("r1")),
        Just(revoke_wished()),
        Just(superseded()),
        Just(Event::Planned(proposal(9))),
        Just(decided(refused())),
    ]
}

fn append() -> impl Strategy<Value = Append> {
    let expect = prop_oneof![
        (0..4_u64).prop_map(Expect::Version),
        Just(Expect::Any),
        (0..3_u64).prop_map(|at_least| Expect::Remaining { at_least }),
    ];
    let event = prop_oneof![
        "[a-z]{0,8}".prop_map(|value| Event::Pinned { value }),
        (1..3_u64).prop_map(|amount| Event::PermitReserved { effect: [1; 32], amount, at: 1 }),
        Just(Event::PermitGranted {
            amount: 3,
            document: Stored::empty(),
            actor: "a".into(),
            reason: "b".into(),
            at: 1
        }),
        (0..40_000_usize).prop_map(|length| Event::PlanFrozen {
            plan: "p".into(),
            effects: vec![[1; 32]],
            document: Stored::Inline(vec![3; length]),
            actor: "a".into(),
            at: 1,
            parent: None,
        }),
    ];
    (0..4_u8, expect, prop::option::weighted(0.8, event)).prop_map(|(n, expect, event)| {
        let stream = StreamId { kind: StreamKind::Permit, id: [n; 32] };
        match event {
            Some(event) => Append::new(stream, expect, event),
            None => Append::guard(stream, expect),
        }
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_u8, effect_event(), prop::bool::weighted(0.1))
            .prop_map(|(key, event, stale)| Step::Effect { key, event, stale }),
        3 => prop::collection::vec(append(), 1..4).prop_map(Step::Batch),
        1 => Just(Step::Reopen),
    ]
}

pub(crate) async fn run(ledger: &Arc<dyn Ledger>, step: &Step) -> String {
    match step {
        Step::Effect { key, event, stale } => {
            let effects = Effects::new(Arc::clone(ledger));
            let version = effects.get([*key; 32]).await.unwrap().map_or(0, |effect| effect.version);
            let version = if *stale { version + 1 } else { version };
            let outcome = effects.append([*key; 32], version, event.clone(), Vec::new()).await;
            format!("{:?}", outcome.map(|effect| (effect.state, effect.version)))
        }
        Step::Batch(batch) => format!("{:?}", ledger.append(batch.clone()).await),
        Step::Reopen => String::new(),
    }
}

/// Everything that can be read, without where bytes lie and without what creation adds.
pub(crate) async fn contents(ledger: &dyn Ledger) -> Vec<String> {
    let mut all = Vec::new();
    for mut record in ledger.scan(0, 1_000).await.unwrap() {
        if record.stream.kind == StreamKind::Ledger {
            continue;
        }
        for bytes in record.event.stored_mut() {
            *bytes = Stored::Inline(ledger.load(bytes).await.unwrap());
        }
        let event = ciborium::Value::serialized(&record.event).unwrap();
        all.push(format!("{:?} {} {:?} {:?}", record.stream, record.version, record.digest, event));
    }
    for state in StateTag::ALL {
        all.push(format!("{state}: {:?}", ledger.list(state, None, 100).await.unwrap()));
    }
    all
}

async fn compare(steps: &[Step]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    let memory: Arc<dyn Ledger> = Arc::new(MemoryLedger::new());
    let mut redb: Arc<dyn Ledger> = Arc::new(RedbLedger::init(&path, 1).unwrap());
    for step in steps {
        if let Step::Reopen = step {
            drop(redb);
            redb = Arc::new(RedbLedger::open(&path).unwrap());
        }
        assert_eq!(run(&memory, step).await, run(&redb, step).await, "{step:?}");
    }
    assert_eq!(contents(&*memory).await, contents(&*redb).await);
    assert!(verify::verify(&*redb).await.unwrap().is_sound());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn back_ends_agree(steps in prop::collection::vec(step(), 1..40)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(compare(&steps));
    }
}
