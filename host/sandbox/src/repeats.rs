//! Calls that are the same in every word as one that was told `already_done`, and are told it again.
//!
//! The guest is not run for them: it would be given the same stored answer, and could ask for nothing else. What
//! it was told rests on the streams that were read for it, those of the effect, of the recipe, the account and the
//! owner. While each of them ends as it ended then, the answer is the same; that is asked of the ledger every time,
//! and nothing is ever told because little time has passed. A policy has its own memory ([`Host::under`]): whatever it
//! changes, what was told under another is not told under it.
//!
//! Kept is only what nothing else can change: one effect, done before the call asked for it, of an operation whose
//! row is found by its key alone, answered without a lookup. A lookup could resolve another key today.
//!
//! [`Host::under`]: crate::host::Host::under

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use oncegate_contract::{EffectClass, Operation};
use oncegate_ledger::{Event, StreamId, Tip};

use crate::call::{Asked, Call};
use crate::outcome::{Outcome, Status};
use crate::running::Ready;
use crate::sandbox::Sandbox;

/// Calls that are remembered: 5 KB each at most, 20 MB in all.
const REPEATS_KEPT_MAX: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
/// Bytes of a tool's result with which a call is remembered; a larger one is worth running the tool.
const RESULT_BYTES_KEPT_MAX: usize = 4 * 1024;

/// What calls were told, by their identity.
pub(crate) struct Repeats(Mutex<LruCache<[u8; 32], Arc<Told>>>);

struct Told {
    outcome: Outcome,
    streams: Vec<StreamId>,
    tips: Vec<Option<Tip>>,
}

impl Default for Repeats {
    fn default() -> Self {
        let mut cache = LruCache::unbounded();
        cache.resize(REPEATS_KEPT_MAX);
        Self(Mutex::new(cache))
    }
}

impl Repeats {
    fn get(&self, identity: &[u8; 32]) -> Option<Arc<Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(identity).cloned()
    }

    fn put(&self, identity: [u8; 32], told: Told) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(identity, Arc::new(told));
    }
}

impl Ready {
    /// What this very call was told before, where nothing that it rests on has changed: the guest need not be run.
    pub async fn told_before(&self) -> Option<Outcome> {
        let (host, call) = (self.host(), self.call());
        // What only reads is never remembered.
        if call.client_key().is_some() || host.is_closed() || !call.may_act() {
            return None;
        }
        let told = host.repeats.get(&self.identity())?;
        let tips = host.book().ok()?.effects.tips(&told.streams).await.ok()?;
        (tips == told.tips).then(|| told.outcome.clone())
    }
}

impl Sandbox {
    /// Remembers what a call was told when its guest had returned.
    pub(crate) async fn remember(&self, call: &Call, outcome: &Outcome) {
        let Some(key) = may_be_told_again(call, outcome) else { return };
        let Ok(book) = self.host.book() else { return };
        // What is encrypted stays in memory no longer than it is needed.
        if book.effects.ledger.private().is_some_and(|private| !private.is_plain()) {
            return;
        }
        // An answer that gives its credential away is scrubbed anew each time, or withheld.
        let Ok(history) = book.effects.history(key).await else { return };
        let echoes = |event: &Event| matches!(event, Event::Responded { echoes: true, .. });
        if history.iter().any(|record| echoes(&record.event)) {
            return;
        }
        let (streams, versions): (Vec<StreamId>, Vec<u64>) = call.rests().into_iter().unzip();
        let Ok(tips) = book.effects.tips(&streams).await else { return };
        let unchanged = tips.iter().map(|tip| tip.map_or(0, |tip| tip.version)).eq(versions);
        if unchanged && streams.contains(&StreamId::effect(key)) {
            self.host.repeats.put(call.identity(), Told { outcome: outcome.clone(), streams, tips });
        }
    }
}

/// The one effect of a call that may be told again.
fn may_be_told_again(call: &Call, outcome: &Outcome) -> Option<[u8; 32]> {
    let plain = outcome.status == Status::AlreadyDone && !outcome.truncated_by_host && outcome.effects.len() == 1;
    let alone = call.lookups().is_empty() && call.lookup_stop().is_none() && !call.only_looks();
    let unnamed = call.client_key().is_none() && !call.context.contains_key("plan");
    if !(plain && alone && unnamed && operations(call)) || outcome.result.to_string().len() > RESULT_BYTES_KEPT_MAX {
        return None;
    }
    match call.asked()[..] {
        [Asked { key: Some(key), before: Some(true), stop: None, instead: None, .. }] => Some(key),
        _ => None,
    }
}

/// Whether the rows of the tool's effects are found by their keys alone.
fn operations(call: &Call) -> bool {
    let contract = call.contract();
    let Some(tool) = contract.tools.get(&call.tool) else { return false };
    let operations = tool.operations.iter().map(|name| contract.operations.get(name));
    operations.flatten().filter(|operation| operation.effect == EffectClass::Keyed).all(by_key_alone)
}

fn by_key_alone(operation: &Operation) -> bool {
    let pinned = operation.fields.iter().any(|field| field.pin);
    let tied = operation.revokes.is_some() || operation.completes.is_some() || operation.completed_by.is_some();
    !pinned && !tied && operation.was.is_empty() && operation.repeat.is_none()
}
