//! Approvals: a person sees the whole rendered request, and that request is what is sent.
//!
//! What waits is stored with the row. Later wording changes nothing of it; other bound values, another
//! contract, address or downstream key make it another request, which waits anew.

use oncegate_contract::{Request, Resolved};
use oncegate_ledger::state::{Effect, StateTag};
use oncegate_ledger::{Append, Event, Proposal, Stored, Ties};

use super::{Step, Wanted, ledger_stop};
use crate::attempt;
use crate::policy::{ApprovalRule, Grant};
use crate::stop::Stop;

/// A request that was approved, as it was stored.
pub(crate) struct Approved {
    /// With its bytes.
    pub(crate) proposal: Proposal,
    /// What is sent.
    pub(crate) request: Request,
}

/// What the gate says.
pub(super) enum Approval {
    /// Nobody has to approve it.
    NotNeeded,
    /// This was approved.
    Given(Box<Approved>),
    /// A person has to see the request first.
    Ask,
}

impl Wanted<'_> {
    /// Whether a person has to decide first, and what was decided.
    pub(super) async fn approval(&self, grant: &Grant, row: Option<&Effect>) -> Result<Approval, Stop> {
        let rules: Vec<&ApprovalRule> = grant.approvals.iter().filter(|rule| rule.applies(&self.resolved)).collect();
        let waiting = row.filter(|row| row.state == StateTag::AwaitingApproval);
        let Some(waiting) = waiting else {
            return Ok(if rules.is_empty() { Approval::NotNeeded } else { Approval::Ask });
        };
        let Some(stored) = self.stored(grant, waiting).await? else { return Ok(Approval::Ask) };
        if waiting.approved.is_none() {
            return Err(Stop::AwaitingApproval);
        }
        if !rules.iter().all(|rule| rule.is_met(&waiting.approved_by)) {
            tracing::warn!(label = waiting.label(), by = ?waiting.approved_by, "approved by nobody whose approval counts");
            return Err(Stop::ApprovalDoesNotCount);
        }
        Ok(Approval::Given(Box::new(stored)))
    }

    /// Whether the approval that a request was sent under still holds for sending it again.
    pub(super) fn still_approved(&self, grant: &Grant, row: &Effect) -> Result<(), Stop> {
        let mut rules = grant.approvals.iter().filter(|rule| rule.applies(&self.resolved));
        if rules.all(|rule| rule.is_met(&row.approved_by)) { Ok(()) } else { Err(Stop::ApprovalDoesNotCount) }
    }

    /// The request that waits, if it is what this call would send but for its wording.
    async fn stored(&self, grant: &Grant, row: &Effect) -> Result<Option<Approved>, Stop> {
        let Some(proposal) = row.proposal.as_deref() else { return Ok(None) };
        if proposal.contract != self.call.contract().digest() || !self.differing(Some(row)).await?.is_empty() {
            return Ok(None);
        }
        let (fields, bytes) = (self.load(&proposal.fields).await?, self.load(&proposal.request).await?);
        let unreadable = |error: attempt::AttemptError| Stop::LedgerUnavailable(error.to_string());
        let values: Resolved = attempt::decode(&fields).map_err(unreadable)?;
        let request: Request = attempt::decode(&bytes).map_err(unreadable)?;
        let key = attempt::downstream_key(self, Some(row));
        let now = oncegate_contract::render(self.operation, &grant.url, &values, Some(&key));
        if now.as_ref() != Ok(&request) {
            return Ok(None);
        }
        let proposal = Proposal { fields: fields.into(), request: bytes.into(), ..proposal.clone() };
        Ok(Some(Approved { proposal, request }))
    }

    async fn load(&self, stored: &Stored) -> Result<Vec<u8>, Stop> {
        self.book.effects.ledger.load(stored).await.map_err(|error| ledger_stop(error.into()))
    }

    /// Stores the request for a person to see; nothing is sent.
    pub(super) async fn ask(&self, grant: &Grant, row: Option<&Effect>, mut ties: Ties) -> Result<Step, Stop> {
        // Nothing is reserved before it is dispatched.
        ties.permit.iter_mut().for_each(|used| used.reserved.clear());
        let (mut proposal, _) = attempt::propose(self, grant, row, ties)?;
        proposal.plan = row.and_then(|row| row.proposal.as_ref()?.plan.clone());
        let waits = row.is_some_and(|row| row.state == StateTag::AwaitingApproval);
        let event = if waits { Event::Amended } else { Event::AwaitingApproval };
        let mut also: Vec<Append> = self.formers_unchanged().chain(self.pinning()).collect();
        attempt::recorded(self, &mut also).await?;
        match self.book.effects.advance(self.key.0, row, event(Box::new(proposal)), also).await {
            Ok(_) => Err(Stop::AwaitingApproval),
            Err(error) if error.is_conflict() => Ok(Step::Raced),
            Err(error) => Err(ledger_stop(error)),
        }
    }
}
