//! Our side: real events through the `Ledger` trait.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use oncegate_ledger::{Append, Dispatch, Ended, Event, Expect, Ledger, Outcome, StateTag, Stored, StreamId, Ties};
use sha2::{Digest, Sha256};

use super::load::Store;

/// The raw answer of a provider: head and body of a small JSON document.
const ANSWER_BYTES: usize = 600;
/// A rendered request.
const REQUEST_BYTES: usize = 400;
/// What a lookup answered.
const LOOKUP_BYTES: usize = 200;

/// A ledger.
#[derive(Clone)]
pub struct Ours {
    /// The ledger itself.
    pub ledger: Arc<dyn Ledger>,
    marked: bool,
}

impl Ours {
    /// A new ledger at this path.
    ///
    /// # Errors
    /// It cannot be made.
    pub async fn new(path: &Path) -> Result<Ours> {
        Ok(Ours::over(oncegate_ledger::init(&format!("redb:{}", path.display())).await?))
    }

    /// A ledger that is open.
    #[must_use]
    pub fn over(ledger: Arc<dyn Ledger>) -> Ours {
        Ours { ledger, marked: false }
    }

    /// The same ledger, with the marker awaited behind each dispatch.
    #[must_use]
    pub fn marked(other: &Ours) -> Ours {
        Ours { ledger: Arc::clone(&other.ledger), marked: true }
    }
}

#[async_trait]
impl Store for Ours {
    async fn reserve(&self, key: [u8; 32]) -> Result<()> {
        self.ledger.append(vec![reserve(key)]).await?;
        if self.marked {
            self.ledger.marked().await?;
        }
        Ok(())
    }

    async fn complete(&self, key: [u8; 32]) -> Result<()> {
        self.ledger.append(vec![complete(key)]).await?;
        Ok(())
    }
}

/// The append of an effect's dispatch.
#[must_use]
pub fn reserve(key: [u8; 32]) -> Append {
    append(key, 0, Event::Dispatched(Box::new(dispatch(key))), StateTag::Dispatched)
}

/// The append of its answer.
#[must_use]
pub fn complete(key: [u8; 32]) -> Append {
    append(key, 1, responded(key), StateTag::Responded)
}

/// The append of what the answer came to.
#[must_use]
pub fn judged(key: [u8; 32]) -> Append {
    let outcome = Outcome::Done { receipt: format!("re_{}", u32::from_be_bytes([key[0], key[1], key[2], key[3]])) };
    append(key, 2, Event::Classified { attempt: attempt(key), at: 1_000, outcome }, StateTag::Done)
}

fn append(key: [u8; 32], version: u64, event: Event, state: StateTag) -> Append {
    Append {
        stream: StreamId::effect(key),
        expect: Expect::Version(version),
        state: Some(state),
        marks_head: version == 0,
        event: Some(event),
    }
}

fn attempt(key: [u8; 32]) -> [u8; 16] {
    std::array::from_fn(|at| key[at])
}

fn dispatch(key: [u8; 32]) -> Dispatch {
    Dispatch {
        attempt: attempt(key),
        host: [7; 16],
        at: 1_000,
        generation: 0,
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
        salt: attempt(key),
        fingerprint: vec![("charge".into(), key), ("amount".into(), [6; 32])],
        generated: key,
        fields: Stored::Inline(br#"{"amount":500,"charge":"ch_1","return":"R-1001","reason":"wrong size"}"#.to_vec()),
        request: Stored::Inline(vec![b'r'; REQUEST_BYTES]),
        request_digest: key,
        downstream_key: "og-0123456789abcdef0123456789abcdef-0".into(),
        url: "https://api.pay.example/v1/refunds".into(),
        credential: Some(("pay".into(), [1; 8])),
        lookups: vec![("get-return".into(), [10; 32], Stored::Inline(vec![b'l'; LOOKUP_BYTES]))],
        send_within_ms: 5_000,
        resend: false,
        irreversible: true,
        provider_dedupes: true,
        egress_direct: true,
        ties: Ties::default(),
    }
}

fn responded(key: [u8; 32]) -> Event {
    let answer = vec![b'a'; ANSWER_BYTES];
    Event::Responded {
        attempt: attempt(key),
        at: 1_000,
        echoes: false,
        total: answer.len() as u64,
        digest: Sha256::digest(&answer).into(),
        head_and_tail: Stored::Inline(answer),
        sent_bytes: 400,
        ended: Ended::Complete,
    }
}

/// How many bytes of event each of the two commits stores: the other side stores as many.
///
/// # Errors
/// There is no memory for a ledger.
pub async fn sizes() -> Result<(usize, usize)> {
    let ledger = oncegate_ledger::init("memory:").await?;
    let key = [9; 32];
    ledger.append(vec![reserve(key)]).await?;
    ledger.append(vec![complete(key)]).await?;
    let records = ledger.read(StreamId::effect(key)).await?;
    Ok((records[0].sealed.len(), records[1].sealed.len()))
}
