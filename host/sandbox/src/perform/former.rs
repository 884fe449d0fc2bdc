//! Earlier recipes of a key: a row that one of them made answers as if its key were today's.

use std::sync::Arc;

use oncegate_contract::{EffectKey, Operation, Resolved, Value};
use oncegate_ledger::{Append, Expect, StreamId};

use super::{Wanted, key_of, pins};
use crate::call::Call;
use crate::host::Book;
use crate::stop::Stop;

/// The call as an earlier recipe resolves it.
pub(super) struct Former {
    operation: Operation,
    resolved: Resolved,
}

/// The call as every recipe under `was` resolves it.
pub(super) async fn resolve(
    call: &Arc<Call>,
    book: &Book,
    operation: &Operation,
    given: &[(String, Value)],
) -> Result<Vec<Former>, Stop> {
    let mut formers = Vec::new();
    for (operation, mut resolved) in call.formers(operation, given)? {
        pins::take(call, book, &operation, &mut resolved).await?;
        formers.push(Former { operation, resolved });
    }
    Ok(formers)
}

impl Wanted<'_> {
    /// The keys that earlier recipes give this call.
    pub(super) fn former_keys(&self, epoch: u32) -> Result<Vec<EffectKey>, Stop> {
        let key = |former: &Former| key_of(self.call, &former.operation, &self.account, &former.resolved, epoch);
        self.formers.iter().map(key).collect()
    }

    /// The same for another place in the sequence; earlier recipes come first.
    pub(super) fn keys_in_sequence(&self, n: u64) -> Result<Vec<EffectKey>, Stop> {
        let formers = self.formers.iter().map(|former| (&former.operation, &former.resolved));
        let all = formers.chain([(self.operation, &self.resolved)]);
        let key = |(operation, resolved): (&Operation, &Resolved)| {
            let mut there = resolved.clone();
            if let Some(sequence) = &mut there.sequence {
                sequence.2 = n;
            }
            key_of(self.call, operation, &self.account, &there, 0)
        };
        all.map(key).collect()
    }

    /// What the dispatch rests on: under the keys of earlier recipes nothing has begun since.
    pub(super) fn formers_unchanged(&self) -> impl Iterator<Item = Append> {
        let guard = |(key, version): &([u8; 32], u64)| Append::guard(StreamId::effect(*key), Expect::Version(*version));
        self.passed.iter().map(guard)
    }
}
