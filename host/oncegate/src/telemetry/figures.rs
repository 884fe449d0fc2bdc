//! All figures of a server at one time: those of its calls and its ledger, and those of itself.

use std::sync::atomic::{AtomicU64, Ordering};

use oncegate_sandbox::meter::family::{Family, Kind, Series, Value};

use super::board::{Board, Exports};

/// All of them.
pub(super) fn all(board: &Board) -> Vec<Family> {
    let mut all = of_process(board);
    all.extend(of_exports(&board.exports));
    if let Some(meter) = board.meter() {
        all.extend(meter.families());
    }
    all
}

fn of_process(board: &Board) -> Vec<Family> {
    let checks = board.checks();
    let ready = f64::from(u8::from(checks.are_good()));
    let checks = checks.0.iter().map(|(check, word)| {
        let good = f64::from(u8::from(*word == super::GOOD));
        Series::of(&[("check", check)], Value::Number(good))
    });
    let version = vec![Series::of(&[("version", env!("CARGO_PKG_VERSION"))], Value::Number(1.0))];
    vec![
        Family::new("oncegate_build_info", "The program's version.", Kind::Gauge, version),
        Family::number(
            "oncegate_process_start_time_seconds",
            "When the process began, since the Unix epoch.",
            board.started,
        ),
        Family::number("oncegate_ready", "Whether calls should come here: 1, or 0.", ready),
        Family::new(
            "oncegate_ready_check",
            "What readiness rests on: 1 where it is good.",
            Kind::Gauge,
            checks.collect(),
        ),
        Family::number(
            "oncegate_policy_file_refused",
            "1 while the policy's file is another than the policy that holds, and was not taken.",
            f64::from(u8::from(board.refuses_policy())),
        ),
        Family::number("oncegate_calls_waiting", "Calls that wait for a turn.", board.waiting() as f64),
    ]
}

fn of_exports(exports: &Exports) -> Vec<Family> {
    let count = |signal: &str, result: &str, count: &AtomicU64| {
        Series::of(&[("signal", signal), ("result", result)], Value::Number(count.load(Ordering::Relaxed) as f64))
    };
    let series = vec![
        count("spans", "sent", &exports.spans_sent),
        count("spans", "failed", &exports.spans_failed),
        count("spans", "dropped", &exports.spans_dropped),
        count("metrics", "sent", &exports.metrics_sent),
        count("metrics", "failed", &exports.metrics_failed),
    ];
    let help = "Spans, and sets of metrics, that were sent to the collector, or not.";
    vec![Family::new("oncegate_telemetry_exports_total", help, Kind::Counter, series)]
}
