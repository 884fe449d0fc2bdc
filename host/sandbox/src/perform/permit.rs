//! Permits: needed to send, never to hear a stored answer.
//!
//! What is reserved belongs to the key, not to an attempt: sending again under a reservation that stands
//! takes nothing more, and the commit that proves that nothing happened gives it back.

use oncegate_ledger::consequences::uses_permit;
use oncegate_ledger::state::Effect;
use oncegate_ledger::{Append, Event, Expect, PermitUse, StreamId};

use super::{Passage, Wanted, ledger_stop};
use crate::describe::digest_text;
use crate::permit::{self, Granted, Part};
use crate::policy::Grant;
use crate::stop::Stop;

/// No balance that the effect needs suffices.
pub(super) const NO_ROOM: &str = "The permit has no room left for this effect; nothing was sent.";
const UNKNOWN: &str = "There is no such permit; nothing was sent.";
const REVOKED: &str = "The permit was revoked; nothing was sent.";
const EXPIRED: &str = "The permit has expired; nothing was sent.";
const NOT_COVERED: &str = "The permit does not cover this effect; nothing was sent.";

impl Wanted<'_> {
    /// Adds what the permit of this call says to the dispatch commit.
    pub(super) async fn permit(&self, grant: &Grant, row: Option<&Effect>, passage: &mut Passage) -> Result<(), Stop> {
        let standing = row.filter(|row| uses_permit(row)).and_then(|row| row.ties()?.permit.clone());
        let named = self.call.context.get("permit").map(String::as_str);
        let id = match (named, &standing) {
            (Some(id), _) => id,
            (None, _) if grant.requires.permit => return Err(Stop::ContextMissing("permit".to_owned())),
            (None, Some(standing)) => standing.id.as_str(),
            (None, None) => return Ok(()),
        };
        let ledger = &*self.book.effects.ledger;
        let found = permit::find(ledger, self.call.tenant(), id).await.map_err(|error| ledger_stop(error.into()))?;
        let Some(found) = found else { return Err(Stop::PermitExceeded(UNKNOWN)) };
        if let Some(standing) = &standing
            && standing.grant != found.permit.grant
        {
            return Err(Stop::KeyReused(vec!["permit".to_owned()]));
        }
        self.holds(&found).await?;
        // A revocation that comes first makes the commit fail.
        passage.also.push(Append::guard(found.permit.stream(), Expect::Version(found.version)));
        let reserved = match standing {
            Some(standing) => standing.reserved,
            None => {
                let parts = self.reserve(&found, passage)?.into_iter();
                parts.map(|(stream, amount)| (stream.id.into(), amount)).collect()
            }
        };
        passage.ties.permit = Some(PermitUse { id: found.permit.id, grant: found.permit.grant, reserved });
        Ok(())
    }

    /// Whether the permit covers this effect, now.
    async fn holds(&self, found: &Granted) -> Result<(), Stop> {
        if found.revoked.is_some() {
            return Err(Stop::PermitExceeded(REVOKED));
        }
        let description = &self.call.component.description;
        let owner = &self.call.owner()?.owner;
        if !found.permit.covers(&digest_text(&description.digest), owner, &self.operation.name) {
            return Err(Stop::PermitExceeded(NOT_COVERED));
        }
        let Some(expires) = found.permit.expires else { return Ok(()) };
        // By the latest clock known: a clock that was set back lengthens nothing.
        let host = &self.call.host;
        let stamp = host.stamps.latest(&*self.book.effects.ledger, found.seq).await;
        let stamp = stamp.map_err(|error| ledger_stop(error.into()))?;
        let latest = host.latest_clock().max(stamp);
        if latest >= expires { Err(Stop::PermitExceeded(EXPIRED)) } else { Ok(()) }
    }

    /// Takes the key's part of every balance, if there is so much when the commit is made.
    fn reserve(&self, found: &Granted, passage: &mut Passage) -> Result<Vec<Part>, Stop> {
        let parts = found.permit.parts(&self.resolved).ok_or(Stop::PermitExceeded(NOT_COVERED))?;
        let at = (self.call.host.now)();
        passage.also.extend(parts.iter().map(|(stream, amount)| self.taken(*stream, *amount, at)));
        Ok(parts)
    }

    fn taken(&self, stream: StreamId, amount: u64, at: u64) -> Append {
        let event = Event::PermitReserved { effect: self.key.0, amount, at };
        Append::new(stream, Expect::Remaining { at_least: amount }, event)
    }
}
