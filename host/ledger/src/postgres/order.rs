//! Gives records their places, the numbers that [`crate::Ledger::scan`] goes by.
//!
//! Writers do not take numbers: a counter that every commit of every host must change would let one commit pass
//! at a time. A record is stored with the moment at which its writer decided on it, and waits. Whoever scans to
//! the end, and each host now and then, gives all that wait the next numbers, in the order of their moments.
//!
//! - Who gives places changes `next_place` from what it saw, in the same commit and in the same statement's
//!   snapshot as the list of what waits. So numbers have no gaps and none is given twice; two that try at once are
//!   told apart by the row, and the second looks again.
//! - A number is seen only when those below it are: each commit builds on the one before. A scan that has seen
//!   number n misses nothing below n, however late a slow commit comes: that gets a number above.
//! - A record's moment is later than those of all records that its append was built on, whatever the clocks of the
//!   hosts say ([`super::plan::Plan::of`]). So a stream's records get their numbers in the stream's order, and
//!   since a later record is stored only on top of an earlier one, no snapshot holds the later without the earlier.
//! - Numbers being whole, [`crate::verify`] still sees that a record is missing even where no stream shows it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::link::{self, Failure, Link, Use};
use super::reads::{field, number};
use super::target::Target;
use crate::LedgerError;

/// Most records that get their places in one commit.
const PLACES_MAX: i64 = 5_000;
/// How often a host gives places of its own accord, so that nobody who scans has much to do.
const EVERY: Duration = Duration::from_secs(1);
/// How often somebody else may have been quicker before it is given up.
const TRIES_MAX: u32 = 200;
/// Wait before another try, times a random number of up to as many as were made.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES_MAX: u32 = 32;

const WAITING: &str = "SELECT m.next_place, w.stream, w.version FROM oncegate_meta m
    LEFT JOIN (SELECT stream, version, moment FROM oncegate_waiting ORDER BY moment, stream, version LIMIT $1::bigint) w ON true
    WHERE m.one = 1 ORDER BY w.moment, w.stream, w.version";
const GIVE: &str = "WITH moved AS (
        UPDATE oncegate_meta SET next_place = $1::bigint + $2::bigint WHERE one = 1 AND next_place = $1::bigint RETURNING one),
    placed AS (
        INSERT INTO oncegate_place (seq, stream, version)
        SELECT seq, stream, version FROM unnest($3::bigint[], $4::bytea[], $5::bigint[]) AS new (seq, stream, version)
        RETURNING seq),
    gone AS (
        DELETE FROM oncegate_waiting WHERE (stream, version) IN (
            SELECT stream, version FROM unnest($4::bytea[], $5::bigint[]) AS given (stream, version))
        RETURNING version)
    SELECT 1 / CASE WHEN (SELECT count(*) FROM moved) = 1 AND (SELECT count(*) FROM placed) = $2::bigint
        AND (SELECT count(*) FROM gone) = $2::bigint THEN 1 ELSE 0 END";

type Asked = oneshot::Sender<Result<(), LedgerError>>;

/// Where places are asked for.
#[derive(Clone)]
pub(super) struct Places {
    asked: mpsc::UnboundedSender<Asked>,
}

impl Places {
    /// Starts the task that gives places for this process. It ends when nobody can ask it any more.
    pub(super) fn start(target: Arc<Target>) -> Places {
        let (asked, asks) = mpsc::unbounded_channel();
        tokio::spawn(Giver { target, link: None }.run(asks));
        Places { asked }
    }

    /// Returns when every record that was stored before this was called has its place.
    pub(super) async fn given(&self) -> Result<(), LedgerError> {
        let closed = || LedgerError::unavailable("it was closed");
        let (reply, outcome) = oneshot::channel();
        self.asked.send(reply).map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }
}

struct Giver {
    target: Arc<Target>,
    link: Option<Link>,
}

impl Giver {
    async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Asked>) {
        loop {
            let mut askers = Vec::new();
            match timeout(EVERY, asks.recv()).await {
                Ok(None) => return,
                Ok(Some(asker)) => askers.push(asker),
                Err(_) => {}
            }
            // All who asked before the look are served by it.
            while let Ok(asker) = asks.try_recv() {
                askers.push(asker);
            }
            let given = self.give_all().await;
            if let (Err(error), true) = (&given, askers.is_empty()) {
                tracing::debug!(%error, "records wait for their places");
            }
            for asker in askers {
                // It may have gone meanwhile.
                let _ = asker.send(given.clone());
            }
        }
    }

    async fn give_all(&mut self) -> Result<(), LedgerError> {
        let mut tries = 0;
        let mut why = "others are always quicker".to_owned();
        while tries < TRIES_MAX {
            match self.give().await {
                Ok(given) if given < PLACES_MAX => return Ok(()),
                Ok(_) => continue,
                Err(Failure::Stale | Failure::Again) => {}
                // A copy shows what has its place; the hosts give them.
                Err(failure) if link::is_read_only(&failure) => return Ok(()),
                Err(Failure::Refused(error)) => return Err(error),
                Err(Failure::Lost(lost)) => {
                    // Whether it was committed is seen by looking again.
                    (self.link, why) = (None, lost);
                    tries += TRIES_MAX / 4;
                }
            }
            tries += 1;
            tokio::time::sleep(PAUSE * (rand::random::<u32>() % tries.min(PAUSES_MAX))).await;
        }
        Err(LedgerError::unavailable(why))
    }

    async fn give(&mut self) -> Result<i64, Failure> {
        if self.link.as_ref().is_none_or(Link::is_closed) {
            self.link =
                Some(Link::open(&self.target, Use::Read).await.map_err(|error| Failure::Lost(error.to_string()))?);
        }
        let Some(link) = &self.link else { return Ok(0) };
        let rows = link.run(WAITING, &[&PLACES_MAX]).await?;
        let (mut seqs, mut streams, mut versions) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = 0;
        for row in &rows {
            next = field(row, 0).map_err(Failure::Refused)?;
            let Some(stream) = field::<Option<&[u8]>>(row, 1).map_err(Failure::Refused)? else { continue };
            number(next).map_err(Failure::Refused)?;
            seqs.push(next + seqs.len() as i64);
            streams.push(stream);
            versions.push(field::<i64>(row, 2).map_err(Failure::Refused)?);
        }
        let count = seqs.len() as i64;
        if count > 0 {
            link.run(GIVE, &[&next, &count, &seqs, &streams, &versions]).await?;
        }
        Ok(count)
    }
}
