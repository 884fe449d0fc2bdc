//! A writer's row in the database, and its connection.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::Row;

use super::enlist::{self, Enlisted};
use super::link::{Failure, Link, Use};
use super::marker::Marker;
use super::plan::Plan;
use super::reads::field;
use super::writer::Shared;
use crate::{LedgerError, hex};

const HEADS: &str = "SELECT stream, version, head FROM oncegate_head WHERE stream = ANY($1)";
/// Stores a plan, all of it or nothing. The lines of the table of heads are locked in the order of their keys; a
/// line that is not at the version it was read at is not returned, and the count shows it. What is only guarded is
/// locked against change until the commit.
const WRITE: &str = "WITH mine AS (
        UPDATE oncegate_writer SET tick = $2::bigint, done = $2::bigint, seen = now()
        WHERE id = $1 AND tick = $2::bigint - 1 AND NOT fenced RETURNING id),
    heads AS (
        INSERT INTO oncegate_head AS kept (stream, version, based, head, state)
        SELECT stream, version, based, head, state
        FROM unnest($3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[], $7::smallint[])
            AS new (stream, version, based, head, state) ORDER BY stream
        ON CONFLICT (stream) DO UPDATE SET version = excluded.version, based = excluded.based,
            head = excluded.head, state = excluded.state
        WHERE kept.version = excluded.based RETURNING stream),
    guards AS (
        SELECT kept.stream FROM oncegate_head AS kept
        JOIN unnest($8::bytea[], $9::bigint[]) AS asked (stream, version)
            ON kept.stream = asked.stream AND kept.version = asked.version
        ORDER BY kept.stream FOR SHARE OF kept),
    records AS (
        INSERT INTO oncegate_record (stream, version, moment, body)
        SELECT stream, version, moment, body
        FROM unnest($10::bytea[], $11::bigint[], $12::bigint[], $13::bytea[]) AS new (stream, version, moment, body)
        RETURNING version),
    waiting AS (
        INSERT INTO oncegate_waiting (stream, version, moment)
        SELECT stream, version, moment
        FROM unnest($10::bytea[], $11::bigint[], $12::bigint[]) AS new (stream, version, moment) RETURNING version),
    parts AS (
        INSERT INTO oncegate_bytes (id, part, body)
        SELECT id, part, body FROM unnest($14::bytea[], $15::int[], $16::bytea[]) AS new (id, part, body)
        RETURNING part)
    SELECT 1 / CASE WHEN (SELECT count(*) FROM mine) = 1 AND (SELECT count(*) FROM heads) = $17::bigint
        AND (SELECT count(*) FROM guards) = $18::bigint THEN 1 ELSE 0 END";
/// Only large bytes, for a ledger that is moved.
pub(super) const WRITE_PARTS: &str = "INSERT INTO oncegate_bytes (id, part, body)
    SELECT id, part, body FROM unnest($1::bytea[], $2::int[], $3::bytea[]) AS new (id, part, body)";
/// Takes the tick past a statement whose outcome is not known: it is committed already or never will be. That this
/// is itself a commit matters: a standby that has it has that one too.
const SETTLE: &str =
    "UPDATE oncegate_writer SET tick = $2, seen = now() WHERE id = $1 AND tick < $2 AND NOT fenced RETURNING done";
const LOOK: &str = "SELECT tick, done, fenced FROM oncegate_writer WHERE id = $1";
const FENCE: &str = "UPDATE oncegate_writer SET fenced = true WHERE host = $1 AND id <> $2";
/// Two statements, so that the second sees every writer that the first let in.
const SEAL: [&str; 2] =
    ["UPDATE oncegate_meta SET sealed = true WHERE one = 1", "UPDATE oncegate_writer SET fenced = true WHERE id <> $1"];
const BEAT: &str = "UPDATE oncegate_writer SET seen = now() WHERE id = $1";
const LEAVE: &str = "UPDATE oncegate_writer SET fenced = true, seen = now() WHERE id = $1";

/// What came of a statement that was not answered.
pub(super) enum Settled {
    Stored,
    /// Not, and it never will be.
    Never,
    /// Not, and nothing of this writer will be.
    Fenced(LedgerError),
}

/// See the module.
pub(super) struct Session {
    shared: Arc<Shared>,
    id: [u8; 16],
    marker: Arc<Mutex<Marker>>,
    open: Option<Link>,
    /// The tick of the row, as far as this writer knows.
    tick: i64,
    /// The last tick of a statement that was acknowledged.
    acknowledged: i64,
    /// A statement that may have been sent, by its tick, and was not answered.
    unsettled: Option<i64>,
    /// The server gave up waiting for a standby during the last statement.
    doubtful: bool,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, enlisted: Enlisted) -> Session {
        Session {
            shared,
            id: enlisted.id,
            marker: Arc::new(Mutex::new(enlisted.marker)),
            open: None,
            tick: 0,
            acknowledged: 0,
            unsettled: None,
            doubtful: false,
        }
    }

    /// Connects if need be, and sees that this writer may go on.
    ///
    /// # Errors
    /// `Unavailable`; `Fenced`; `Behind` when the database has forgotten what was acknowledged.
    pub(super) async fn ready(&mut self) -> Result<(), LedgerError> {
        self.connect().await?;
        if self.unsettled.is_some()
            && let Settled::Fenced(why) = self.settle().await?
        {
            return Err(why);
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), LedgerError> {
        if self.open.as_ref().is_some_and(|link| !link.is_closed()) {
            return Ok(());
        }
        self.open = None;
        let link = Link::open(&self.shared.target, Use::Write).await?;
        self.check(&link).await?;
        link.prepare(WRITE).await.map_err(Failure::of_reading)?;
        self.open = Some(link);
        match self.unsettled {
            Some(_) => Ok(()),
            None => self.look().await,
        }
    }

    /// Whatever was told to a process on this machine must be there, not only what this writer was told: a database
    /// is restored while nobody is connected.
    async fn check(&self, link: &Link) -> Result<(), LedgerError> {
        if self.shared.accepting.load(Ordering::Relaxed) {
            return Ok(());
        }
        match enlist::check(link, &self.shared).await {
            Err(behind @ LedgerError::Behind { .. }) => {
                if self.shared.doubts_first() {
                    enlist::doubt(link).await?;
                }
                Err(behind)
            }
            other => other.map(drop),
        }
    }

    pub(super) fn drop_link(&mut self) {
        self.open = None;
    }

    fn open(&self) -> Result<&Link, Failure> {
        self.open.as_ref().ok_or_else(|| Failure::Refused(LedgerError::unavailable("there is no connection")))
    }

    pub(super) async fn heads(&self, names: &[&[u8]]) -> Result<Vec<Row>, Failure> {
        self.open()?.run(HEADS, &[&names]).await
    }

    /// Stores a plan.
    pub(super) async fn write(&mut self, plan: &Plan) -> Result<(), Failure> {
        let tick = self.tick + 1;
        self.doubtful = false;
        let open = self.open()?;
        let before = open.warnings();
        let written = send(open, &self.id, tick, plan).await;
        self.doubtful = open.warnings() != before;
        match &written {
            Ok(()) => self.tick = tick,
            Err(Failure::Lost(_)) => {
                self.unsettled = Some(tick);
                self.open = None;
            }
            Err(_) => {}
        }
        written
    }

    /// Makes known what was stored, when that is certain.
    ///
    /// # Errors
    /// `Unavailable`: it may be stored, and may be forgotten again.
    pub(super) async fn acknowledge(&mut self, marks: bool) -> Result<(), LedgerError> {
        if std::mem::take(&mut self.doubtful) {
            let why =
                "the server gave up waiting for its standby, so it may forget this commit; its outcome is not known";
            return Err(LedgerError::unavailable(why));
        }
        let tick = self.tick;
        if marks {
            let marker = Arc::clone(&self.marker);
            super::blocking(move || marker.lock().unwrap_or_else(PoisonError::into_inner).advance(tick)).await?;
        }
        self.acknowledged = tick;
        Ok(())
    }

    /// Finds out what came of the statement that was not answered.
    ///
    /// # Errors
    /// That is not known yet.
    pub(super) async fn settle(&mut self) -> Result<Settled, LedgerError> {
        let Some(sent) = self.unsettled else { return Ok(Settled::Never) };
        self.connect().await?;
        // Past every earlier attempt to settle, one of which may have been stored.
        self.tick = self.tick.max(sent) + 1;
        let (id, tick) = (self.id.as_slice(), self.tick);
        let open = self.open().map_err(Failure::of_reading)?;
        let before = open.warnings();
        let settled = open.run(SETTLE, &[&id, &tick]).await;
        let doubtful = open.warnings() != before;
        let rows = match settled {
            Ok(_) if doubtful => return Err(LedgerError::unavailable("the server gave up waiting for its standby")),
            Ok(rows) => rows,
            Err(failure) => {
                if matches!(failure, Failure::Lost(_)) {
                    self.open = None;
                }
                return Err(failure.of_reading());
            }
        };
        let done = match rows.first() {
            Some(row) => field(row, 0)?,
            None => {
                let (_, done, fenced) = self.row().await?;
                if !fenced {
                    return Err(LedgerError::unavailable("a writer's row is not as it was left"));
                }
                done
            }
        };
        self.unsettled = None;
        self.doubtful = false;
        Ok(if done == sent {
            Settled::Stored
        } else if rows.is_empty() {
            Settled::Fenced(self.fenced())
        } else {
            Settled::Never
        })
    }

    /// Sees that the row is as this writer left it.
    ///
    /// # Errors
    /// `Fenced`, `Behind`, or that it cannot be seen.
    pub(super) async fn look(&mut self) -> Result<(), LedgerError> {
        let (tick, _, fenced) = self.row().await?;
        if tick < self.acknowledged {
            return Err(self.behind());
        }
        if fenced {
            return Err(self.fenced());
        }
        self.tick = tick;
        Ok(())
    }

    async fn row(&mut self) -> Result<(i64, i64, bool), LedgerError> {
        let open = self.open().map_err(Failure::of_reading)?;
        let rows = match open.run(LOOK, &[&self.id.as_slice()]).await {
            Ok(rows) => rows,
            Err(failure) => {
                self.open = None;
                return Err(failure.of_reading());
            }
        };
        let row = rows.first().ok_or_else(|| self.behind())?;
        Ok((field(row, 0)?, field(row, 1)?, field(row, 2)?))
    }

    fn behind(&self) -> LedgerError {
        let why = "it was restored to before what this host was told is stored".to_owned();
        LedgerError::Behind { at: self.shared.target.shown.clone(), why }
    }

    fn fenced(&self) -> LedgerError {
        LedgerError::Fenced { host: hex(&self.shared.host) }
    }

    /// Fences the other writers of a host: nothing that they send from now on is stored.
    pub(super) async fn fence(&self, host: &[u8; 16]) -> Result<(), LedgerError> {
        let open = self.open().map_err(Failure::of_reading)?;
        let fenced = open.run(FENCE, &[&host.as_slice(), &self.id.as_slice()]).await;
        fenced.map(drop).map_err(Failure::of_reading)
    }

    /// Lets nobody in any more and fences all others.
    pub(super) async fn seal(&self) -> Result<(), LedgerError> {
        let open = self.open().map_err(Failure::of_reading)?;
        open.run(SEAL[0], &[]).await.map_err(Failure::of_reading)?;
        open.run(SEAL[1], &[&self.id.as_slice()]).await.map(drop).map_err(Failure::of_reading)
    }

    /// Says that this writer lives. Nothing follows from its silence but a suspicion.
    pub(super) async fn beat(&mut self) {
        let lost = match &self.open {
            Some(link) => matches!(link.run(BEAT, &[&self.id.as_slice()]).await, Err(Failure::Lost(_))),
            None => false,
        };
        if lost {
            self.open = None;
        }
    }

    /// The end of a writer that has nothing under way: nobody needs to wonder about it.
    pub(super) async fn leave(&mut self) {
        if let (Some(open), None) = (&self.open, self.unsettled) {
            let _ = open.run(LEAVE, &[&self.id.as_slice()]).await;
        }
    }
}

async fn send(open: &Link, id: &[u8; 16], tick: i64, plan: &Plan) -> Result<(), Failure> {
    let lines: Vec<_> = plan.lines.iter().map(|(stream, line)| (stream.to_bytes(), line)).collect();
    let encoded: Vec<Option<Vec<u8>>> = lines.iter().map(|(_, line)| line.after.map(|head| head.encode())).collect();
    let streams: Vec<&[u8]> = lines.iter().map(|(stream, _)| stream.as_slice()).collect();
    let versions: Vec<i64> = lines.iter().map(|(_, line)| line.after.map_or(0, |head| head.version as i64)).collect();
    let based: Vec<i64> = lines.iter().map(|(_, line)| line.based as i64).collect();
    let heads: Vec<Option<&[u8]>> = encoded.iter().map(Option::as_deref).collect();
    let states: Vec<Option<i16>> = lines.iter().map(|(_, line)| Some(i16::from(line.after?.state?.code()))).collect();

    let guards: Vec<[u8; 33]> = plan.guards.keys().map(|stream| stream.to_bytes()).collect();
    let guarded: Vec<&[u8]> = guards.iter().map(<[u8; 33]>::as_slice).collect();
    let guarded_at: Vec<i64> = plan.guards.values().map(|version| *version as i64).collect();

    let names: Vec<[u8; 33]> = plan.records.iter().map(|record| record.stream.to_bytes()).collect();
    let record_streams: Vec<&[u8]> = names.iter().map(<[u8; 33]>::as_slice).collect();
    let record_versions: Vec<i64> = plan.records.iter().map(|record| record.version as i64).collect();
    let moments: Vec<i64> = plan.records.iter().map(|record| record.moment as i64).collect();
    let bodies: Vec<&[u8]> = plan.records.iter().map(|record| record.body.as_slice()).collect();

    let part_ids: Vec<&[u8]> = plan.parts.iter().map(|part| part.id.as_slice()).collect();
    let part_numbers: Vec<i32> = plan.parts.iter().map(|part| part.number as i32).collect();
    let part_bodies: Vec<&[u8]> = plan.parts.iter().map(|part| part.body.as_slice()).collect();

    let (id, line_count, guard_count) = (id.as_slice(), lines.len() as i64, guarded.len() as i64);
    open.run(
        WRITE,
        &[
            &id,
            &tick,
            &streams,
            &versions,
            &based,
            &heads,
            &states,
            &guarded,
            &guarded_at,
            &record_streams,
            &record_versions,
            &moments,
            &bodies,
            &part_ids,
            &part_numbers,
            &part_bodies,
            &line_count,
            &guard_count,
        ],
    )
    .await
    .map(drop)
}
