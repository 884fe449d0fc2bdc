//! Where a process ends: the system calls of one undisturbed call, named by the step of the design that
//! they belong to.

use anyhow::{Context, Result, bail};

use super::oracle::Book;
use super::scenario::Ask;
use super::system::System;
use crate::harness::Run;
use crate::killat::{Call, KillPoint, Seen, Side, Signal, log_calls, read_calls};

/// A kill point of the table, and the system calls that stand for it.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Its name in rows.
    pub name: &'static str,
    /// One for each effect of the cell.
    pub points: Vec<KillPoint>,
}

/// Names of the kill points in single calls, in the order of a call's life. `during recovery` kills at any
/// other point first.
pub const NAMES: [&str; 11] = [
    "none",
    "before the dispatch commit",
    "dispatch durable, not connected",
    "connect",
    "first byte",
    "answer received",
    "before the responded commit",
    "before classifying",
    "classifying and closing",
    "during recovery",
    "SIGSTOP, then SIGCONT",
];

/// The moment of two kills, by its place in [`NAMES`].
const RECOVERY: usize = 9;
/// Those that leave something open.
const OPEN: std::ops::Range<usize> = 2..8;
/// redb commits in two phases, a sync each.
const SYNCS_OF_A_COMMIT: usize = 2;

/// The system calls of one clean effect.
///
/// # Errors
/// The shim cannot be compiled, or the call is not the one that is expected.
pub fn watch(system: &dyn System, target: &str) -> Result<Vec<Seen>> {
    let log = system.folder().join("watched");
    let targets = [target.to_owned()];
    let mut command = system.call(&Ask { targets: &targets, words: "watched", value: None })?;
    log_calls(&mut command, &log)?;
    let run = Run::of(&mut command)?;
    if !Book::of(&targets).hear(&run, &targets) {
        bail!("the watched call failed: {run:?}");
    }
    read_calls(&log)
}

/// All kill points of such a call.
///
/// # Errors
/// It sent nothing to the provider, or heard nothing.
pub fn moments(calls: &[Seen], provider_port: &str) -> Result<Vec<Moment>> {
    let talks = |seen: &Seen, call: &str| seen.call == call && seen.what.ends_with(provider_port);
    let sent = calls.iter().rposition(|seen| talks(seen, "send")).context("the call sent nothing")?;
    let connect = calls[..sent].iter().rposition(|seen| seen.call == "connect").context("it connected to nobody")?;
    let received = calls.iter().rposition(|seen| talks(seen, "recv")).context("the call heard nothing")?;
    let before: Vec<&Seen> = calls[..connect].iter().filter(|seen| is_sync(seen)).collect();
    let after: Vec<&Seen> = calls[received..].iter().filter(|seen| is_sync(seen)).collect();
    let sends: Vec<&Seen> = calls[connect..received].iter().filter(|seen| talks(seen, "send")).collect();
    let (earlier, marker) = before.split_at(before.len().saturating_sub(1));
    let (responded, later) = after.split_at(after.len().min(SYNCS_OF_A_COMMIT));
    let received = at(&calls[received], Side::After);
    let mut classifying: Vec<KillPoint> = responded.last().map(|seen| at(seen, Side::After)).into_iter().collect();
    classifying.extend(later.first().map(|seen| at(seen, Side::Before)));
    let stops = [marker, &[&calls[connect]], &sends[..], responded].concat();
    let stops = stops.into_iter().map(|seen| at(seen, Side::Before)).chain([received]);
    let by_name = [
        Vec::new(),
        around(earlier),
        around(marker),
        both(&calls[connect]),
        around(&sends),
        vec![received],
        around(responded).into_iter().take((responded.len() * 2).saturating_sub(1)).collect(),
        classifying,
        around(later).into_iter().skip(1).collect(),
        Vec::new(),
        stops.map(|point| KillPoint { signal: Signal::Stop, ..point }).collect(),
    ];
    let mut moments: Vec<Moment> = NAMES.iter().zip(by_name).map(|(name, points)| Moment { name, points }).collect();
    // A second kill needs a first one that left something open.
    moments[RECOVERY].points = moments[OPEN].iter().flat_map(|moment| moment.points.clone()).collect();
    Ok(moments)
}

fn is_sync(seen: &Seen) -> bool {
    matches!(seen.call.as_str(), "fdatasync" | "fsync")
}

fn around(calls: &[&Seen]) -> Vec<KillPoint> {
    calls.iter().flat_map(|seen| both(seen)).collect()
}

fn both(seen: &Seen) -> Vec<KillPoint> {
    vec![at(seen, Side::Before), at(seen, Side::After)]
}

fn at(seen: &Seen, side: Side) -> KillPoint {
    let call = match seen.call.as_str() {
        "fsync" => Call::Fsync,
        "connect" => Call::Connect,
        "send" => Call::Send,
        "recv" => Call::Recv,
        _ => Call::Fdatasync,
    };
    KillPoint { side, call, nth: seen.nth, signal: Signal::Kill }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calls_steps_have_their_points() {
        let words = "fdatasync 1|fdatasync 2|connect 1|send 1|recv 1|fdatasync 3|connect 2|send 2|recv 2|\
                     fdatasync 4|fdatasync 5|fdatasync 6|fdatasync 7";
        let calls: Vec<Seen> = words
            .split('|')
            .map(|word| {
                let (call, nth) = word.trim().split_once(' ').unwrap();
                Seen { pid: 1, call: call.to_owned(), nth: nth.parse().unwrap(), what: "port=80".to_owned() }
            })
            .collect();
        let moments = moments(&calls, "=80").unwrap();
        let points: Vec<Vec<String>> =
            moments.iter().map(|moment| moment.points.iter().map(KillPoint::to_string).collect()).collect();
        assert_eq!(points[1].len(), 4);
        assert_eq!(points[2], ["before-fdatasync:3", "after-fdatasync:3"]);
        assert_eq!(points[3], ["before-connect:2", "after-connect:2"]);
        assert_eq!(points[4], ["before-send:2", "after-send:2"]);
        assert_eq!(points[5], ["after-recv:2"]);
        assert_eq!(points[6], ["before-fdatasync:4", "after-fdatasync:4", "before-fdatasync:5"]);
        assert_eq!(points[7], ["after-fdatasync:5", "before-fdatasync:6"]);
        assert_eq!(points[8], ["after-fdatasync:6", "before-fdatasync:7", "after-fdatasync:7"]);
        assert_eq!(points[9].len(), 2 + 2 + 2 + 1 + 3 + 2);
        assert_eq!(points[10].len(), 1 + 1 + 1 + 2 + 1);
    }
}
