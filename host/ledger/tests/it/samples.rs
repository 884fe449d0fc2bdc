//! Events to test with.

use oncegate_ledger::{Dispatch, Ended, Event, Outcome, Proposal, SettleVerdict, Stored};

pub(crate) fn dispatch(attempt: u8, generation: u32, resend: bool) -> Dispatch {
    Dispatch {
        attempt: [attempt; 16],
        host: [7; 16],
        at: 1_000,
        generation,
        epoch: 0,
        tenant: "acme".into(),
        account: "acme-eu".into(),
        owner: "acme-refunds".into(),
        action: "refund".into(),
        operation: "create-refund".into(),
        tool: "issue-refund".into(),
        component: [1; 32],
        contract: [2; 32],
        recipe: [3; 32],
        label: "refund R-1001".into(),
        salt: [4; 16],
        fingerprint: vec![("charge".into(), [5; 32]), ("amount".into(), [6; 32])],
        generated: [8; 32],
        fields: Stored::Inline(
            b"{\"amount\":500,\"charge\":\"ch_1\",\"return\":\"R-1001\",\"reason\":\"wrong size\"}".to_vec(),
        ),
        request: Stored::Inline(vec![b'r'; 400]),
        request_digest: [9; 32],
        downstream_key: format!("og-0123456789abcdef0123456789abcdef-{generation}"),
        url: "https://api.pay.example/v1/refunds".into(),
        credential: Some(("pay".into(), [1; 8])),
        lookups: vec![("get-return".into(), [10; 32], Stored::Inline(vec![b'l'; 200]))],
        send_within_ms: 5_000,
        resend,
        irreversible: true,
        provider_dedupes: true,
        egress_direct: true,
        ties: oncegate_ledger::Ties::default(),
    }
}

pub(crate) fn dispatched(attempt: u8, generation: u32) -> Event {
    Event::Dispatched(Box::new(dispatch(attempt, generation, false)))
}

pub(crate) fn proposal(request: u8) -> Box<Proposal> {
    let like = dispatch(0, 0, false);
    Box::new(Proposal {
        at: 1_000,
        plan: Some("plan-1".into()),
        epoch: 0,
        tenant: like.tenant,
        account: like.account,
        owner: like.owner,
        action: like.action,
        operation: like.operation,
        tool: like.tool,
        contract: like.contract,
        label: like.label,
        salt: like.salt,
        fingerprint: like.fingerprint,
        generated: like.generated,
        fields: like.fields,
        request: like.request,
        request_digest: [request; 32],
        ties: oncegate_ledger::Ties::default(),
    })
}

pub(crate) fn responded(attempt: u8, answer: &[u8]) -> Event {
    use sha2::Digest;
    Event::Responded {
        attempt: [attempt; 16],
        at: 1_000,
        echoes: false,
        head_and_tail: Stored::Inline(answer.to_vec()),
        total: answer.len() as u64,
        digest: sha2::Sha256::digest(answer).into(),
        sent_bytes: 400,
        ended: Ended::Complete,
    }
}

pub(crate) fn classified(attempt: u8, outcome: Outcome) -> Event {
    Event::Classified { attempt: [attempt; 16], at: 1_000, outcome }
}

pub(crate) fn done(receipt: &str) -> Outcome {
    Outcome::Done { receipt: receipt.into() }
}

pub(crate) fn refused() -> Outcome {
    Outcome::NoEffect { reason: "card_declined".into() }
}

pub(crate) fn unknown() -> Outcome {
    Outcome::Unknown { why: "502".into() }
}

pub(crate) fn lost(attempt: u8, sender_stopped: bool) -> Event {
    Event::Lost { attempt: [attempt; 16], at: 1_000, why: "deadline".into(), sender_stopped }
}

pub(crate) fn not_sent(attempt: u8) -> Event {
    Event::NotSent { attempt: [attempt; 16], at: 1_000, why: "fenced".into() }
}

pub(crate) fn settled(verdict: SettleVerdict) -> Event {
    Event::Settled { at: 1_000, by: "find-refund".into(), verdict, evidence: Stored::empty() }
}

pub(crate) fn one(receipt: &str) -> Event {
    settled(SettleVerdict::One { receipt: receipt.into(), mismatched: Vec::new() })
}

pub(crate) fn absent() -> Event {
    settled(SettleVerdict::Absent { since_stop_ms: 90_000, looks: 2, control: "re_known".into() })
}

pub(crate) fn decided(outcome: Outcome) -> Event {
    Event::Decided { actor: "ann".into(), reason: "looked".into(), outcome, at: 1_000, decision: None }
}

pub(crate) fn approved(request: u8) -> Event {
    Event::Approved {
        actor: "ann".into(),
        reason: "fine".into(),
        request_digest: [request; 32],
        at: 1_000,
        decision: None,
    }
}

pub(crate) fn denied() -> Event {
    Event::Denied { actor: "ann".into(), reason: "no".into(), at: 1_000, decision: None }
}

pub(crate) fn revoked() -> Event {
    Event::Revoked { actor: "ann".into(), reason: "no".into(), at: 1_000, decision: None }
}

pub(crate) fn revoke_wished() -> Event {
    Event::RevokeWished { actor: "ann".into(), reason: "no".into(), at: 1_000, decision: None }
}

pub(crate) fn superseded() -> Event {
    Event::Superseded {
        actor: "ann".into(),
        reason: "again".into(),
        epoch: 1,
        for_whom: "run:7".into(),
        at: 1_000,
        decision: None,
    }
}
