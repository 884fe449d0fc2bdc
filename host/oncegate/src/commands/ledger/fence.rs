//! `oncegate ledger fence`: a host that sends no more, by an operator's word.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, bail};
use oncegate_ledger::hosts::Hosts;
use oncegate_ledger::state::StateTag;
use oncegate_ledger::{Effects, Event, Ledger, StreamId};

use super::by::Taken;
use super::find;
use super::stream_decision::{Stream, record};
use crate::args::decide::Fence;
use crate::exit::{Exit, usage};
use crate::home::{Home, now_ms};
use crate::print::{clean, hex};

/// Digits of a host's name.
const DIGITS: usize = 32;
/// Hosts named when digits fit several.
const NAMED_MAX: usize = 8;
/// States in which it matters whether a sender has stopped.
const OPEN: [StateTag; 4] = [StateTag::Dispatched, StateTag::Responded, StateTag::Unknown, StateTag::Issued];
const STAKES: &str = "what it left is settled as if it could send no more: if it was already sending when it was \
                      stopped, and wakes, an effect can happen that was taken for absent";

pub(super) async fn run(home: &Home, asked: &Fence) -> anyhow::Result<Exit> {
    let ledger = home.ledger().await?;
    let host = named(&ledger, &asked.host).await?;
    let name = hex(&host);
    let taken = Taken::of(&asked.by, &["fence", &name])?;
    let stream = Stream {
        ledger: &ledger,
        id: StreamId::host(host),
        verb: "fence",
        what: format!("host {name} is fenced: it sends nothing that it has not begun to send"),
        stakes: Some(STAKES),
        // One fence is as good as two.
        once: true,
    };
    let event = |taken: &Taken| Event::HostFenced {
        host,
        actor: taken.actor.clone(),
        reason: taken.reason.clone(),
        at: now_ms(),
        decision: Some(taken.id.clone()),
    };
    record(home, &stream, &taken, event).await
}

/// The one host that is named: of an attempt that has not ended well, or with a lock file.
async fn named(ledger: &Arc<dyn Ledger>, digits: &str) -> anyhow::Result<[u8; 16]> {
    let digits = digits.to_ascii_lowercase();
    if digits.is_empty() || digits.len() > DIGITS || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(usage(format!(
            "{:?} is not a host: give the first digits that `oncegate ledger show` prints",
            clean(&digits)
        )));
    }
    let mut hosts: BTreeSet<[u8; 16]> =
        Hosts::of(&ledger.identity()).known().context("the hosts cannot be listed")?.into_iter().collect();
    let effects = Effects::new(Arc::clone(ledger));
    for key in find::in_states(&**ledger, &OPEN).await? {
        let row = effects.get(key).await.with_context(|| format!("the effect {} cannot be read", hex(&key)))?;
        hosts.extend(row.iter().flat_map(|row| &row.attempts).map(|attempt| attempt.host));
    }
    hosts.retain(|host| hex(host).starts_with(&digits));
    let found: Vec<[u8; 16]> = hosts.into_iter().collect();
    match found.as_slice() {
        [] => bail!("no open effect was sent by a host {digits}…, and none is known by that name"),
        [host] => Ok(*host),
        several => {
            let names: Vec<String> = several.iter().take(NAMED_MAX).map(|host| hex(host)).collect();
            bail!("several hosts begin with {digits}; give more digits: {}", names.join(", "))
        }
    }
}
