//! `oncegate ledger hosts`: who uses a ledger on PostgreSQL, when each was last seen, and who is fenced.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use oncegate_ledger::hosts::{Hosts, Stopped};
use oncegate_ledger::postgres::{Incarnation, PostgresLedger, SUSPICIOUS_AFTER};
use oncegate_ledger::{Event, Ledger, StreamId};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::home::{Home, is_database};
use crate::print::{self, Cell, Tone, hex};

/// Writers of one process, as one host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    name: [u8; 16],
    /// The highest fencing number.
    fence: u64,
    writers: usize,
    /// No writer of it stores anything any more.
    ended: bool,
    silent_ms: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It was seen a moment ago.
    Seen,
    /// It runs on this machine: its lock says so.
    Here,
    /// Nothing is known of it but its silence.
    Suspicious,
    /// An operator said that it sends no more.
    Fenced,
    /// Its process on this machine has ended.
    Stopped,
    /// It left, or its writers were replaced.
    Left,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Here => "runs here",
            Self::Suspicious => "suspicious",
            Self::Fenced => "fenced",
            Self::Stopped => "stopped",
            Self::Left => "left",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Seen | Self::Here => Tone::Good,
            Self::Suspicious => Tone::Warn,
            Self::Fenced => Tone::Bad,
            Self::Stopped | Self::Left => Tone::Plain,
        }
    }

    fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Left)
    }
}

pub(super) async fn run(home: &Home, all: bool) -> anyhow::Result<Exit> {
    let (url, shown) = (home.ledger_url(), home.ledger_shown());
    if !is_database(&url) {
        bail!("the ledger {shown} is a file: its hosts are the processes of this machine, and locks tell which run");
    }
    let failed = || format!("the hosts of {shown} cannot be listed");
    let ledger = PostgresLedger::open_for_reading(&url).await.with_context(failed)?;
    let mut hosts = by_host(&ledger.incarnations().await.with_context(failed)?);
    let locks = Hosts::of(&ledger.identity());
    for host in &mut hosts {
        let records = ledger.read(StreamId::host(host.name)).await.with_context(failed)?;
        let fenced = records.iter().any(|record| matches!(record.event, Event::HostFenced { .. }));
        host.state = state(host, fenced, locks.stopped(host.name));
    }
    hosts.retain(|host| all || !host.state.is_over());
    tell(home, &hosts)?;
    Ok(Exit::Ok)
}

fn by_host(incarnations: &[Incarnation]) -> Vec<Host> {
    let mut hosts: BTreeMap<[u8; 16], Host> = BTreeMap::new();
    for one in incarnations {
        let first = Host {
            name: one.host,
            fence: one.fence,
            writers: 0,
            ended: true,
            silent_ms: one.silent_ms,
            state: State::Left,
        };
        let host = hosts.entry(one.host).or_insert(first);
        host.fence = host.fence.max(one.fence);
        host.writers += usize::from(!one.fenced);
        host.ended &= one.fenced;
        host.silent_ms = host.silent_ms.min(one.silent_ms);
    }
    let mut hosts: Vec<Host> = hosts.into_values().collect();
    hosts.sort_by_key(|host| host.fence);
    hosts
}

/// A lock proves what it says; a fence is a person's word; silence is a suspicion.
fn state(host: &Host, fenced: bool, lock: Stopped) -> State {
    match lock {
        Stopped::Yes => State::Stopped,
        _ if fenced => State::Fenced,
        Stopped::No => State::Here,
        Stopped::NotKnown if host.ended => State::Left,
        Stopped::NotKnown if u128::from(host.silent_ms) > SUSPICIOUS_AFTER.as_millis() => State::Suspicious,
        Stopped::NotKnown => State::Seen,
    }
}

fn tell(home: &Home, hosts: &[Host]) -> anyhow::Result<()> {
    if home.json() {
        return hosts.iter().try_for_each(|host| print::out(&print::json(&value(host), true)?));
    }
    let rows: Vec<Vec<Cell>> = hosts.iter().map(cells).collect();
    print::out(&print::table(&["host", "fence", "last seen", "state", "writers"], &rows))
}

fn value(host: &Host) -> Value {
    json!({
        "host": hex(&host.name),
        "fence": host.fence,
        "silent_ms": host.silent_ms,
        "state": host.state.word(),
        "suspicious": host.state == State::Suspicious,
        "fenced": host.state == State::Fenced,
        "writers": host.writers,
    })
}

fn cells(host: &Host) -> Vec<Cell> {
    let seconds = host.silent_ms / 1_000;
    vec![
        Cell::new(hex(&host.name)),
        Cell::new(host.fence.to_string()),
        Cell::new(format!("{seconds}s ago")),
        Cell::toned(host.state.tone(), host.state.word()),
        Cell::new(host.writers.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(host: u8, fence: u64, fenced: bool, silent_ms: u64) -> Incarnation {
        Incarnation { host: [host; 16], fence, fenced, silent_ms }
    }

    #[test]
    fn writers_of_one_process_are_one_host() {
        let hosts = by_host(&[writer(1, 1, true, 9_000), writer(2, 2, true, 5), writer(1, 3, false, 70_000)]);
        assert_eq!((hosts.len(), hosts[0].name, hosts[1].name), (2, [2; 16], [1; 16]));
        assert_eq!((hosts[1].fence, hosts[1].writers, hosts[1].ended, hosts[1].silent_ms), (3, 1, false, 9_000));
    }

    #[test]
    fn silence_is_a_suspicion_only_where_nothing_else_is_known() {
        let silent = &by_host(&[writer(1, 1, false, 3_600_000)])[0];
        assert_eq!(state(silent, false, Stopped::NotKnown), State::Suspicious);
        assert_eq!(state(silent, false, Stopped::No), State::Here);
        assert_eq!(state(silent, false, Stopped::Yes), State::Stopped);
        assert_eq!(state(silent, true, Stopped::NotKnown), State::Fenced);
        let quick = &by_host(&[writer(1, 1, false, 10)])[0];
        assert_eq!(state(quick, false, Stopped::NotKnown), State::Seen);
        let left = &by_host(&[writer(1, 1, true, 3_600_000)])[0];
        assert_eq!(state(left, false, Stopped::NotKnown), State::Left);
    }
}
