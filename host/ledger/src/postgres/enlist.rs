//! How a writer begins: with a fencing number, and a marker on this machine.

use super::link::{Failure, Link, Use};
use super::marker::{self, Found, Mark, Marker};
use super::reads::field;
use super::schema::{self, Meta};
use super::writer::Shared;
use crate::{LedgerError, hex};

/// Takes the next fencing number. A ledger that is sealed, doubted or being filled lets nobody in.
const BEGIN: &str = "WITH taken AS (
        UPDATE oncegate_meta SET next_fence = next_fence + 1 WHERE one = 1 AND id = $3 AND NOT sealed AND NOT doubted AND NOT filling
        RETURNING next_fence - 1 AS fence)
    INSERT INTO oncegate_writer (id, host, fence, tick, done, fenced)
    SELECT $1, $2, fence, 0, 0, false FROM taken RETURNING fence";
const DOUBT: [&str; 2] =
    ["UPDATE oncegate_meta SET doubted = true WHERE one = 1", "UPDATE oncegate_writer SET fenced = true"];
const TICK: &str = "SELECT tick FROM oncegate_writer WHERE id = $1";
const REMOVE: &str = "DELETE FROM oncegate_writer WHERE id = ANY($1)";
/// How often somebody else may begin at the same moment.
const TRIES_MAX: usize = 20;

/// A writer that has begun.
pub(super) struct Enlisted {
    pub(super) id: [u8; 16],
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
            Ok(rows) if rows.is_empty() => return Err(closed(&link, shared).await),
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
    Ok(Enlisted { id, marker })
}

/// Why nobody is let in.
async fn closed(link: &Link, shared: &Shared) -> LedgerError {
    let at = shared.target.shown.clone();
    match schema::meta(link, &at).await {
        Ok(meta) => match refuse_if_closed(&meta, &at) {
            Err(error) => error,
            Ok(()) => LedgerError::Foreign { at, why: "it is another than it was".to_owned() },
        },
        Err(error) => error,
    }
}

/// Refuses a ledger that lets nobody in.
///
/// # Errors
/// `Sealed`; `Behind` when a host of it misses something; `Unavailable` while one is moved there.
pub(super) fn refuse_if_closed(meta: &Meta, at: &str) -> Result<(), LedgerError> {
    let at = at.to_owned();
    if meta.sealed {
        return Err(LedgerError::Sealed { at, to: None });
    }
    if meta.filling {
        return Err(LedgerError::unavailable("a ledger is being moved there; ask for the move again to finish it"));
    }
    if meta.doubted {
        let why = "a host of it was told that something is stored which it lacks".to_owned();
        return Err(LedgerError::Behind { at, why });
    }
    Ok(())
}

/// Stops every host, after one of them found that the database lacks something: what the others know of is there,
/// and what is missing may be sent again by them. In two statements, so that the second sees every writer that the
/// first let in.
pub(super) async fn doubt(link: &Link) -> Result<(), LedgerError> {
    for statement in DOUBT {
        link.run(statement, &[]).await.map_err(Failure::of_reading)?;
    }
    Ok(())
}

/// Lets hosts in again: an operator has accepted the database as it is.
pub(super) async fn accept(link: &Link) -> Result<(), LedgerError> {
    link.run("UPDATE oncegate_meta SET doubted = false WHERE one = 1", &[]).await.map(drop).map_err(Failure::of_reading)
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
        if let Some(why) = missing(link, shared, marker).await? {
            return Err(behind(why));
        }
    }
    Ok(found)
}

/// What the database lacks that a marker tells of.
async fn missing(link: &Link, shared: &Shared, marker: &Found) -> Result<Option<&'static str>, LedgerError> {
    let Some(mark) = marker.mark else { return Ok(Some("a head marker is unreadable")) };
    if mark.ledger != shared.ledger {
        let why = format!("its id is {}, a head marker is of {}", hex(&shared.ledger), hex(&mark.ledger));
        return Err(LedgerError::Foreign { at: shared.target.shown.clone(), why });
    }
    let rows = link.run(TICK, &[&mark.writer.as_slice()]).await.map_err(Failure::of_reading)?;
    let Some(row) = rows.first() else {
        // Another process may just have retired it, and its row after it.
        return Ok(marker.is_there().then_some("it does not know a writer of this host"));
    };
    let lacks = field::<i64>(row, 0)? < mark.tick;
    Ok(lacks.then_some("it lacks what this host was told is stored"))
}

/// An operator's decision replaces the markers of this machine. None may be of a process that goes on and was told
/// of what the database lacks.
pub(super) async fn refuse_if_one_goes_on(link: &Link, shared: &Shared) -> Result<(), LedgerError> {
    for marker in markers(shared).await? {
        if missing(link, shared, &marker).await?.is_some() && marker.is_held()? {
            let why = "a process on this machine has it open and was told of what it lacks; stop that first";
            return Err(LedgerError::unavailable(why));
        }
    }
    Ok(())
}

/// All markers on this machine.
pub(super) async fn markers(shared: &Shared) -> Result<Vec<Found>, LedgerError> {
    let beside = shared.target.beside.clone();
    super::blocking(move || marker::all(&beside)).await
}

/// Holds the ledger for behind, also when this process ends now, until it is dropped and retired: no writer of the
/// database has its name.
pub(super) async fn hold(shared: &Shared) -> Result<Marker, LedgerError> {
    let (beside, mark) =
        (shared.target.beside.clone(), Mark { ledger: shared.ledger, writer: rand::random(), tick: 0 });
    super::blocking(move || Marker::create(&beside, mark)).await
}

/// Removes what newer markers replace, and then the rows of writers that have ended. The marker goes first: one
/// without its row says that the database forgot.
pub(super) async fn retire(link: &Link, found: Vec<Found>) -> Result<(), LedgerError> {
    let retired = super::blocking(move || {
        let mut retired = Vec::new();
        for marker in found {
            if marker.retire()? {
                retired.extend(marker.mark.map(|mark| mark.writer));
            }
        }
        Ok(retired)
    });
    let retired = retired.await?;
    let names: Vec<&[u8]> = retired.iter().map(<[u8; 16]>::as_slice).collect();
    match link.run(REMOVE, &[&names]).await {
        // They are in nobody's way.
        Ok(_) | Err(Failure::Again) => Ok(()),
        Err(failure) => Err(failure.of_reading()),
    }
}
