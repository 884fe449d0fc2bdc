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
    /// The keys that earlier recipes give this call. A recipe that changed in its sources or normalisers
    /// only gives the same key as today's: that is no earlier row, and a guard of it would stop its own
    /// dispatch.
    pub(crate) fn former_keys(&self, epoch: u32) -> Result<Vec<EffectKey>, Stop> {
        let key = |former: &Former| key_of(self.call, &former.operation, &self.account, &former.resolved, epoch);
        let mut keys = self.formers.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let today = key_of(self.call, self.operation, &self.account, &self.resolved, epoch)?;
        keys.retain(|key| key.0 != today.0);
        Ok(keys)
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
