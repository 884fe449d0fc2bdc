//! How a writer begins: with a fencing number, and a marker on this machine.

use super::link::{Failure, Link, Use};
use super::marker::{self, Found, Mark, Marker};
use super::reads::field;
use super::writer::Shared;
use crate::{LedgerError, hex};

/// Takes the next fencing number. A sealed ledger lets nobody in.
const BEGIN: &str = "WITH taken AS (
        UPDATE oncegate_meta SET next_fence = next_fence + 1 WHERE one = 1 AND id = $3 AND NOT sealed
        RETURNING next_fence - 1 AS fence)
    INSERT INTO oncegate_writer (id, host, fence, tick, done, fenced)
    SELECT $1, $2, fence, 0, 0, false FROM taken RETURNING fence";
const TICK: &str = "SELECT tick FROM oncegate_writer WHERE id = $1";
/// How often somebody else may begin at the same moment.
const TRIES_MAX: usize = 20;

/// A writer that has begun.
pub(super) struct Enlisted {
    pub(super) id: [u8; 16],
    pub(super) host: [u8; 16],
    pub(super) marker: Marker,
}

/// Begins a writer. Its row is durable before its marker names it.
pub(super) async fn enlist(shared: &Shared) -> Result<Enlisted, LedgerError> {
    let link = Link::open(&shared.target, Use::Write).await?;
    let mut tries = 0;
    let id: [u8; 16] = loop {
        let id: [u8; 16] = rand::random();
        let names = [id.as_slice(), shared.host.as_slice(), shared.ledger.as_slice()];
        match link.run(BEGIN, &[&names[0], &names[1], &names[2]]).await {
            Ok(rows) if rows.is_empty() => return Err(LedgerError::Sealed { at: shared.target.shown.clone() }),
            Ok(rows) => {
                let fence: i64 = field(&rows[0], 0)?;
                tracing::debug!(host = hex(&shared.host), fence, "a writer of the ledger begins");
                break id;
            }
            Err(Failure::Again) if tries < TRIES_MAX => tries += 1,
            Err(failure) => return Err(failure.of_reading()),
        }
    };
    let (beside, mark) = (shared.target.beside.clone(), Mark { ledger: shared.ledger, writer: id, tick: 0 });
    let marker = super::blocking(move || Marker::create(&beside, mark)).await?;
    Ok(Enlisted { id, host: shared.host, marker })
}

/// Refuses a database that lacks what this machine was told is stored, or of which it has no marker. Gives the
/// markers that are satisfied.
///
/// # Errors
/// `Behind`, `Foreign`.
pub(super) async fn check(link: &Link, shared: &Shared) -> Result<Vec<Found>, LedgerError> {
    let at = &shared.target.shown;
    let behind = |why: &str| LedgerError::Behind { at: at.clone(), why: why.to_owned() };
    let found = markers(shared).await?;
    if found.is_empty() {
        return Err(behind("this host has no head marker of it"));
    }
    for marker in &found {
        let Some(mark) = marker.mark else { return Err(behind("a head marker is unreadable")) };
        if mark.ledger != shared.ledger {
            let why = format!("its id is {}, a head marker is of {}", hex(&shared.ledger), hex(&mark.ledger));
            return Err(LedgerError::Foreign { at: at.clone(), why });
        }
        let rows = link.run(TICK, &[&mark.writer.as_slice()]).await.map_err(Failure::of_reading)?;
        let Some(row) = rows.first() else { return Err(behind("it does not know a writer of this host")) };
        if field::<i64>(row, 0)? < mark.tick {
            return Err(behind("it lacks what this host was told is stored"));
        }
    }
    Ok(found)
}

/// All markers on this machine.
pub(super) async fn markers(shared: &Shared) -> Result<Vec<Found>, LedgerError> {
    let beside = shared.target.beside.clone();
    super::blocking(move || marker::all(&beside)).await
}

/// Removes what newer markers replace.
pub(super) async fn retire(found: Vec<Found>) -> Result<(), LedgerError> {
    super::blocking(move || found.iter().try_for_each(Found::retire)).await
}
