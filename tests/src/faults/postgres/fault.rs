//! What goes wrong around hosts that share a ledger on PostgreSQL, and for how long.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::super::chance::Chance;
use super::super::system::System as _;
use super::field::Field;
use super::proxy::Spoil;

/// One way to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Hosts race for each key, and nothing goes wrong.
    Races,
    /// SIGKILL to hosts, which start again.
    HostsKilled,
    /// SIGSTOP to hosts until they are past `send-within`.
    HostsStopped,
    /// SIGSTOP to a host until its heartbeat is missed.
    HostSilent,
    /// SIGKILL to the database, which starts again.
    DatabaseKilled,
    /// SIGKILL to the primary, while its synchronous standby is promoted.
    FailedOver,
    /// Waits for the standby are cancelled, and then it takes over without what was waited for.
    WaitCancelled,
    /// Connections to the database, each spoiled at another position.
    Connections(Spoil),
    /// Hosts in network namespaces lose the database, or one direction, or all.
    Partitioned,
    /// Clocks of hosts an hour ahead and an hour behind, and hosts killed.
    ClocksApart,
    /// Kills and stops of hosts, kills of the database, cuts, a failover, and clocks an hour apart.
    Everything,
    /// A control: hosts that share no ledger.
    Apart,
    /// A control: an asynchronous standby that acknowledged commits never reached takes over, and is trusted.
    Forgetful,
}

/// How a host is named in rows that is broken on purpose.
pub const APART: &str = "oncegate, a ledger for each host";
/// The same for a database that lost what it acknowledged.
pub const FORGETFUL: &str = "oncegate, a database that forgot and is trusted";

/// A host that does not beat for so long is suspected.
const BEAT_MISSED: Duration = Duration::from_millis(11_500);

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Processes of hosts killed, or stopped and continued.
    pub hosts: u64,
    /// Kills, failovers, cut connections, partitions, cancelled waits.
    pub others: u64,
}

impl Fault {
    /// All that Oncegate has to live with, in the order of the table.
    pub const ALL: [Self; 14] = [
        Self::Races,
        Self::HostsKilled,
        Self::HostsStopped,
        Self::HostSilent,
        Self::DatabaseKilled,
        Self::FailedOver,
        Self::WaitCancelled,
        Self::Connections(Spoil::Cut),
        Self::Connections(Spoil::HalfClosed),
        Self::Connections(Spoil::Silent),
        Self::Connections(Spoil::Delayed(60)),
        Self::Partitioned,
        Self::ClocksApart,
        Self::Everything,
    ];
    /// Those that have to be caught.
    pub const CONTROLS: [Self; 2] = [Self::Apart, Self::Forgetful];

    /// Its name in rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Races => "all hosts race for each key",
            Self::HostsKilled => "hosts killed",
            Self::HostsStopped => "hosts stopped past send-within",
            Self::HostSilent => "a host stopped past its heartbeat",
            Self::DatabaseKilled => "database killed",
            Self::FailedOver => "failover to the synchronous standby",
            Self::WaitCancelled => "cancelled waits for the standby, then failover",
            Self::Connections(Spoil::HalfClosed) => "connections half-closed",
            Self::Connections(Spoil::Silent) => "connections fall silent",
            Self::Connections(Spoil::Delayed(_)) => "connections delayed",
            Self::Connections(_) => "connections cut",
            Self::Partitioned => "partitions",
            Self::ClocksApart => "clocks an hour apart, hosts killed",
            Self::Everything => "everything at once",
            Self::Apart => "no shared ledger",
            Self::Forgetful => "asynchronous failover, trusted",
        }
    }

    /// Who is driven.
    #[must_use]
    pub fn system(self) -> &'static str {
        match self {
            Self::Apart => APART,
            Self::Forgetful => FORGETFUL,
            _ => "oncegate",
        }
    }

    /// Whether a standby is needed, and if so, whether commits wait for it.
    #[must_use]
    pub fn standby(self) -> Option<bool> {
        match self {
            Self::FailedOver | Self::WaitCancelled | Self::Everything => Some(true),
            Self::Forgetful => Some(false),
            _ => None,
        }
    }

    /// The least time that it takes.
    #[must_use]
    pub fn lasts(self) -> Duration {
        if self == Self::HostSilent { BEAT_MISSED + Duration::from_secs(2) } else { Duration::ZERO }
    }

    /// Goes wrong until then, and ends whole.
    ///
    /// # Errors
    /// What was broken cannot be mended.
    pub fn run(self, field: &Field, chance: &mut Chance, until: Instant) -> Result<Done> {
        let mut done = Done::default();
        match self {
            Self::Races | Self::Apart => rest(until),
            Self::FailedOver => fail_over(field, chance, until, &mut done)?,
            Self::WaitCancelled => cancel_waits(field, chance, until, &mut done)?,
            Self::Forgetful => forget(field, until, &mut done)?,
            Self::Connections(spoil) => spoiled(field, spoil, until, &mut done)?,
            Self::Everything => everything(field, chance, until, &mut done)?,
            Self::HostSilent => {
                stop_host(field, chance, BEAT_MISSED, &mut done)?;
                rest(until);
            }
            one => {
                while Instant::now() < until {
                    one.once(field, chance, &mut done)?;
                }
            }
        }
        Ok(done)
    }

    fn once(self, field: &Field, chance: &mut Chance, done: &mut Done) -> Result<()> {
        match self {
            Self::HostsKilled | Self::ClocksApart => kill_host(field, chance, done),
            Self::DatabaseKilled => kill_database(field, chance, done),
            Self::Partitioned => partition(field, chance, done),
            _ => {
                let past = chance.between(Duration::from_millis(1_100), Duration::from_millis(2_200));
                stop_host(field, chance, past, done)
            }
        }
    }
}

fn rest(until: Instant) {
    thread::sleep(until.saturating_duration_since(Instant::now()));
}

fn pause(chance: &mut Chance, most_ms: u64) {
    thread::sleep(Duration::from_millis(chance.below(most_ms)));
}

fn any_host(field: &Field, chance: &mut Chance) -> usize {
    usize::try_from(chance.below(field.fleet.len() as u64)).unwrap_or_default()
}

fn kill_host(field: &Field, chance: &mut Chance, done: &mut Done) -> Result<()> {
    pause(chance, 900);
    let host = any_host(field, chance);
    if let Some(serving) = field.fleet.serving(host)? {
        serving.kill()?;
        done.hosts += 1;
    }
    pause(chance, 300);
    field.fleet.start(host)
}

fn stop_host(field: &Field, chance: &mut Chance, past: Duration, done: &mut Done) -> Result<()> {
    pause(chance, 400);
    let host = any_host(field, chance);
    let Some(serving) = field.fleet.serving(host)? else { return field.fleet.start(host) };
    serving.signal(Signal::STOP)?;
    done.hosts += 1;
    thread::sleep(past);
    serving.signal(Signal::CONT)
}

fn kill_database(field: &Field, chance: &mut Chance, done: &mut Done) -> Result<()> {
    pause(chance, 1_500);
    let database = field.database();
    database.kill()?;
    done.others += 1;
    pause(chance, 400);
    database.go()
}

fn fail_over(field: &Field, chance: &mut Chance, until: Instant, done: &mut Done) -> Result<()> {
    thread::sleep(until.saturating_duration_since(Instant::now()) / 2);
    pause(chance, 500);
    field.primary.kill()?;
    pause(chance, 300);
    field.promote()?;
    done.others += 1;
    rest(until);
    Ok(())
}

/// The standby is away, so that commits wait for it; the waits are cancelled, and the server says success with a
/// warning. Then the primary dies, and what was cancelled was never anywhere else.
fn cancel_waits(field: &Field, chance: &mut Chance, until: Instant, done: &mut Done) -> Result<()> {
    let standby = field.standby.as_ref().context("no standby")?;
    thread::sleep(until.saturating_duration_since(Instant::now()) / 3);
    standby.kill()?;
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(250));
        done.others += field.primary.sql("postgres", cancel)?.parse::<u64>().unwrap_or_default();
    }
    pause(chance, 200);
    field.primary.kill()?;
    standby.go()?;
    field.promote()?;
    rest(until);
    Ok(())
}

fn spoiled(field: &Field, spoil: Spoil, until: Instant, done: &mut Done) -> Result<()> {
    let proxy = field.proxy.as_ref().context("no proxy")?;
    proxy.spoil(spoil);
    rest(until);
    proxy.spoil(Spoil::Nothing);
    done.others += proxy.spoiled();
    Ok(())
}

fn partition(field: &Field, chance: &mut Chance, done: &mut Done) -> Result<()> {
    pause(chance, 300);
    let net = field.net.as_ref().context("no net")?;
    let Some(cable) = chance.one(&net.cables) else { return Ok(()) };
    let loss = cable.lose(chance)?;
    done.others += 1;
    pause(chance, 2_500);
    cable.mend(loss)
}

fn everything(field: &Field, chance: &mut Chance, until: Instant, done: &mut Done) -> Result<()> {
    let half = Instant::now() + until.saturating_duration_since(Instant::now()) / 2;
    let proxy = field.proxy.as_ref().context("no proxy")?;
    let mut failed_over = false;
    while Instant::now() < until {
        let spoils = [Spoil::Nothing, Spoil::Cut, Spoil::HalfClosed, Spoil::Silent, Spoil::Delayed(40)];
        proxy.spoil(chance.one(&spoils).copied().unwrap_or_default());
        match chance.below(3) {
            0 => kill_host(field, chance, done)?,
            1 => Fault::HostsStopped.once(field, chance, done)?,
            _ => kill_database(field, chance, done)?,
        }
        if !failed_over && Instant::now() >= half {
            fail_over(field, chance, Instant::now(), done)?;
            failed_over = true;
        }
    }
    proxy.spoil(Spoil::Nothing);
    done.others += proxy.spoiled();
    Ok(())
}

/// What was acknowledged is not on the standby. Until an operator trusts it nothing happens a second time; then what
/// it does not know may, and the oracle has to see it.
fn forget(field: &Field, until: Instant, done: &mut Done) -> Result<()> {
    let standby = field.standby.as_ref().context("no standby")?;
    standby.kill()?;
    rest(until);
    field.primary.kill()?;
    standby.go()?;
    field.promote()?;
    done.others += 1;
    thread::sleep(Duration::from_secs(2));
    let made = field.fleet.provider().effects()?;
    let mut targets: Vec<_> =
        made.iter().filter_map(|effect| (field.fleet.scenario().target_of)(&effect.object)).collect();
    targets.sort_unstable();
    ensure!(targets.windows(2).all(|pair| pair[0] != pair[1]), "a database that forgot was used before it was trusted");
    for host in 0..field.fleet.len() {
        if let Some(serving) = field.fleet.serving(host)? {
            serving.kill()?;
        }
    }
    for host in 0..field.fleet.len() {
        field.fleet.trust(host)?;
        field.fleet.start(host)?;
    }
    Ok(())
}
