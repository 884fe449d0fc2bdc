//! Lock files of hosts that have stopped and left nothing open.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use oncegate_ledger::hosts::{Hosts, Stopped};
use oncegate_ledger::{Effects, Ledger, StateTag};

use crate::commands::ledger::find;
use crate::print::hex;

/// States in which it matters, or may come to matter, whether a sender has stopped.
const OPEN: [StateTag; 5] =
    [StateTag::Dispatched, StateTag::Responded, StateTag::Unknown, StateTag::Issued, StateTag::Stranded];

/// The hosts that have stopped by now.
pub(super) fn stopped(ledger: &Arc<dyn Ledger>) -> anyhow::Result<Vec<[u8; 16]>> {
    let hosts = Hosts::of(&ledger.identity());
    let known = hosts.known().context("the hosts cannot be listed")?;
    Ok(known.into_iter().filter(|host| hosts.stopped(*host) == Stopped::Yes).collect())
}

/// Removes the lock files of those that left nothing open; how many.
pub(super) async fn tidy(ledger: &Arc<dyn Ledger>, stopped: Vec<[u8; 16]>) -> anyhow::Result<usize> {
    let effects = Effects::new(Arc::clone(ledger));
    let mut needed = BTreeSet::new();
    for key in find::in_states(&**ledger, &OPEN).await? {
        let row = effects.get(key).await.with_context(|| format!("the effect {} cannot be read", hex(&key)))?;
        needed.extend(row.iter().flat_map(|row| &row.attempts).map(|attempt| attempt.host));
    }
    let hosts = Hosts::of(&ledger.identity());
    let mut removed = 0;
    for host in stopped.into_iter().filter(|host| !needed.contains(host)) {
        removed += usize::from(hosts.remove(host).context("a lock file cannot be removed")?);
    }
    Ok(removed)
}
