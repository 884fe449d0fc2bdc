//! What has become of effects: a question that sends nothing but lookups and writes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{PAGE_MAX, StreamId, StreamKind};

use crate::Loaded;
use crate::host::Book;
use crate::outcome::{EffectView, Outcome};
use crate::sandbox::{CallRequest, Sandbox, view};

/// Rows that one question reads: some seconds on a busy machine. What lies behind them is found by the
/// tool's arguments.
pub const STATUS_ROWS_MAX: usize = 20_000;
/// Effects that one answer shows: what a model can read.
pub const STATUS_EFFECTS_MAX: usize = 100;

/// What is known.
#[derive(Debug, Default)]
pub struct Found {
    /// The effects, as the ledger has them.
    pub effects: Vec<EffectView>,
    /// Effects that the arguments lead to and that nobody has asked for yet.
    pub not_asked_for: usize,
    /// False when more might be there than was looked at or is shown.
    pub complete: bool,
}

/// Whose effects are looked for, and which.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The tenant.
    pub tenant: String,
    /// Names of tools.
    pub tools: BTreeSet<String>,
    /// Business identifiers: all must be parts of the label.
    pub identifiers: Vec<String>,
}

impl Sandbox {
    /// The effects that a call with these arguments would be about. The tool runs, and is given nothing
    /// that sends an effect.
    ///
    /// # Errors
    /// The refusal that the caller is told.
    pub async fn status_of_call(&self, component: &Arc<Loaded>, request: CallRequest) -> Result<Found, Box<Outcome>> {
        let ready = self.ready(component, request).await?;
        let call = ready.only_look();
        let mut running = ready.start();
        let _ = tokio::time::timeout(self.host.policy.limits.answer_within, running.ended()).await;
        let over = running.is_over();
        running.stop();
        let mut found = Found { complete: over, ..Found::default() };
        let Ok(book) = self.host.book() else { return Ok(Found { complete: false, ..found }) };
        for key in call.asked().into_iter().filter_map(|asked| asked.key) {
            match book.effects.get(key).await {
                Ok(Some(row)) => found.show(&row),
                Ok(None) => found.not_asked_for += 1,
                Err(_) => found.complete = false,
            }
        }
        Ok(found)
    }

    /// The effects whose labels have all these identifiers.
    ///
    /// # Errors
    /// Without a ledger, or when it cannot be read.
    pub async fn status_of_labels(&self, wanted: &Wanted) -> Result<Found, String> {
        let book = self.host.book().map_err(|stop| stop.to_string())?;
        let parts: Vec<String> = wanted.identifiers.iter().map(|part| oncegate_contract::safe_text(part)).collect();
        let mut found = Found { complete: true, ..Found::default() };
        let mut read = 0;
        for state in StateTag::ALL {
            let mut after = None;
            while let Some(page) = page(book, state, after).await? {
                after = page.last().copied();
                for id in page.into_iter().filter(|id| id.kind == StreamKind::Effect) {
                    if read == STATUS_ROWS_MAX {
                        found.complete = false;
                        return Ok(found);
                    }
                    read += 1;
                    let row = book.effects.get(id.id).await.map_err(|error| error.to_string())?;
                    if let Some(row) = row.filter(|row| fits(row, wanted, &parts)) {
                        found.show(&row);
                    }
                }
            }
        }
        Ok(found)
    }
}

impl Found {
    fn show(&mut self, row: &Effect) {
        if self.effects.len() < STATUS_EFFECTS_MAX {
            self.effects.push(view(row));
        } else {
            self.complete = false;
        }
    }
}

async fn page(book: &Book, state: StateTag, after: Option<StreamId>) -> Result<Option<Vec<StreamId>>, String> {
    let page = book.effects.ledger.list(state, after, PAGE_MAX).await.map_err(|error| error.to_string())?;
    Ok(Some(page).filter(|page| !page.is_empty()))
}

/// A tombstone does not say whose it was, so it is not shown here.
fn fits(row: &Effect, wanted: &Wanted, parts: &[String]) -> bool {
    let dispatch = row.dispatch.as_deref().map(|one| (&one.tenant, &one.tool));
    let Some((tenant, tool)) = dispatch.or(row.proposal.as_deref().map(|one| (&one.tenant, &one.tool))) else {
        return false;
    };
    let words: BTreeSet<&str> = row.label().split(' ').skip(1).collect();
    *tenant == wanted.tenant && wanted.tools.contains(tool) && parts.iter().all(|part| words.contains(part.as_str()))
}
