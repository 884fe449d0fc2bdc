//! The client's own key is looked at before any row answers, and written down with what it was used for.

use oncegate_ledger::{Append, Event, Expect, Record};

use super::{Passage, Wanted, ledger_stop};
use crate::client_key::{Says, Used, says};
use crate::stop::Stop;

impl Wanted<'_> {
    /// Refuses a key that was used for something else.
    pub(super) async fn check_client_key(&self) -> Result<(), Stop> {
        let Some(used) = self.call.client_key() else { return Ok(()) };
        let records = self.uses(used).await?;
        self.client_key_says(used, &records).map(drop)
    }

    /// Uses the key in the dispatch commit, or makes sure there that it still is this effect's.
    pub(super) async fn client_key(&self, passage: &mut Passage) -> Result<(), Stop> {
        let Some(used) = self.call.client_key() else { return Ok(()) };
        let records = self.uses(used).await?;
        let version = Expect::Version(records.last().map_or(0, |record| record.version));
        passage.also.push(match self.client_key_says(used, &records)? {
            Says::New => Append::new(used.stream, version, self.use_of(used)),
            _ => Append::guard(used.stream, version),
        });
        Ok(())
    }

    /// Uses the key for what is on record already; false when another call was first to use it. A stored
    /// answer needs no commit: where the ledger cannot be written it is given all the same.
    pub(super) async fn note_client_key(&self) -> Result<bool, Stop> {
        let Some(used) = self.call.client_key() else { return Ok(true) };
        let records = self.uses(used).await?;
        if self.client_key_says(used, &records)? == Says::Same {
            return Ok(true);
        }
        let version = Expect::Version(records.last().map_or(0, |record| record.version));
        let append = Append::new(used.stream, version, self.use_of(used));
        match self.book.effects.ledger.append(vec![append]).await {
            Ok(_) => Ok(true),
            Err(oncegate_ledger::LedgerError::Conflict { .. }) => Ok(false),
            Err(error) => {
                tracing::warn!(%error, "what a client's key was used for is not on record");
                Ok(true)
            }
        }
    }

    async fn uses(&self, used: &Used) -> Result<Vec<Record>, Stop> {
        self.book.effects.ledger.read(used.stream).await.map_err(|error| ledger_stop(error.into()))
    }

    fn client_key_says(&self, used: &Used, records: &[Record]) -> Result<Says, Stop> {
        let host = &self.call.host;
        let window = u64::try_from(host.policy.retention.replay_window.as_millis()).unwrap_or(u64::MAX);
        let several = (self.call.effects_declared() > 1).then_some(used.call);
        match says(records, self.key.0, several, (host.now)().saturating_sub(window)) {
            Says::Other => Err(Stop::ClientKeyReused),
            says => Ok(says),
        }
    }

    fn use_of(&self, used: &Used) -> Event {
        Event::ClientKeyUsed { effect: self.key.0, call: used.call, at: (self.call.host.now)() }
    }
}
