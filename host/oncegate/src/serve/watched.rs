//! What a server that is watched tells of itself: that it turns, whether its ledger answers, what is in it.

use std::sync::Arc;
use std::time::Duration;

use oncegate_ledger::{Append, Expect, Ledger, LedgerError, StreamId};
use oncegate_sandbox::meter::census::Census;
use tokio::time::{sleep, timeout};

use super::server::Shared;
use crate::telemetry::{Board, GOOD};

/// How often the process shows that its event loop turns.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How often the ledger is asked whether it takes appends. Nothing is stored for that.
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// How long it may take to say so: longer than a busy disk's commit, shorter than a load balancer's patience.
const PROBE_WITHIN: Duration = Duration::from_secs(3);
/// How often the effects in the ledger are counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// Watches a server from now on, where anybody asked for that.
pub(super) fn begin(shared: &Arc<Shared>, board: &Arc<Board>) {
    if !board.is_read() {
        return;
    }
    let turns = Arc::clone(shared);
    board.serves(shared.sandbox().meter(), shared.closing.clone(), Box::new(move || turns.turns.waiting()));
    tokio::spawn(beat(Arc::clone(board)));
    tokio::spawn(probe(Arc::clone(shared), Arc::clone(board)));
    tokio::spawn(count(Arc::clone(shared)));
}

async fn beat(board: Arc<Board>) {
    loop {
        board.beats();
        sleep(BEAT_EVERY).await;
    }
}

async fn probe(shared: Arc<Shared>, board: Arc<Board>) {
    loop {
        let catalog = shared.catalog();
        let ledger = match catalog.sandbox.ledger() {
            Some(ledger) => of_ledger(&*ledger).await,
            None => "not opened",
        };
        let components = if catalog.tools().is_empty() { "none is loaded" } else { GOOD };
        board.found(ledger, components);
        sleep(PROBE_EVERY).await;
    }
}

/// Whether the ledger takes appends: one that only checks a condition, which always holds. A word that tells nothing
/// of where it is.
async fn of_ledger(ledger: &dyn Ledger) -> &'static str {
    if ledger.identity().path().is_some_and(|path| !path.exists()) {
        return "its file is gone";
    }
    let asked = ledger.append(vec![Append::guard(StreamId::ledger(), Expect::Any)]);
    match timeout(PROBE_WITHIN, asked).await {
        Ok(Ok(_)) => GOOD,
        Ok(Err(error)) => word(&error),
        Err(_) => "it does not answer",
    }
}

fn word(error: &LedgerError) -> &'static str {
    match error {
        LedgerError::Unavailable { .. } => "unavailable",
        LedgerError::Full { .. } => "its storage is full",
        LedgerError::Behind { .. } => "behind its marker",
        LedgerError::Fenced { .. } => "this host is fenced",
        LedgerError::Newer { .. } => "of a newer program",
        LedgerError::Sealed { .. } => "sealed",
        LedgerError::Damaged { .. } | LedgerError::Empty { .. } => "damaged",
        LedgerError::Missing { .. } => "missing",
        LedgerError::Exposed { .. } => "everybody can write it",
        _ => "it refuses",
    }
}

async fn count(shared: Arc<Shared>) {
    let mut census = Census::default();
    loop {
        if let Err(why) = shared.sandbox().count(&mut census).await {
            tracing::debug!(%why, "the effects in the ledger were not counted");
        }
        sleep(COUNT_EVERY).await;
    }
}
