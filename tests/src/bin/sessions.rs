//! A thousand sessions for a minute, with some that vanish: `cargo xtask sessions` runs it and says what it found.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use oncegate_tests::harness::{Guest, Harness, Options, TENANT};
use oncegate_tests::mcp::http::Server;
use oncegate_tests::mcp::sessions::{self, Plan};
use oncegate_tests::provider::domains::Settings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How much more memory the second half may take. What is remembered is bounded (pages of the ledger, 64 MiB; 4,096
/// repeats) and still fills after a minute; it is full after some three, which `--seconds` shows.
const MEMORY_PERCENT_MAX: u64 = 25;
/// HTTP clients wait for a minute and longer.
const ANSWER_WITHIN: &str = "20s";

/// Sessions over HTTP at once, some of which vanish in the middle of a call
#[derive(Parser)]
struct Arguments {
    /// Sessions at once
    #[arg(long, default_value_t = 1_000)]
    sessions: usize,
    /// For how long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// A session waits up to twice so many milliseconds between two refunds
    #[arg(long, default_value_t = 10_000)]
    think_ms: u64,
    /// Decides all numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let limits = format!("answer-within = \"{ANSWER_WITHIN}\"");
    let harness = Harness::with(Guest::example("refunds")?, Options { limits, ..Options::default() })?;
    harness.provider().settings(&Settings { latency_ms: 20, ..Settings::default() })?;
    let added = harness.run(&["token", "add", "--tenant", TENANT, "--name", TENANT])?;
    ensure!(added.code == Some(0), "{}", added.stderr);
    let server = Server::start(harness.command().arg("serve").arg(harness.component()))?;
    // Only now: the server has to see to its own.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let plan = Plan {
        sessions: arguments.sessions,
        lasting: Duration::from_secs(arguments.seconds),
        refunds: 1,
        think: Duration::from_millis(arguments.think_ms),
        seed: arguments.seed,
    };
    let report = match sessions::run(&server, added.stdout.trim(), &plan) {
        Ok(report) => report,
        Err(error) => {
            let open = harness.run(&["ledger", "list", "--limit", "20", "--state", "dispatched"])?;
            return Err(error.context(format!("{}{}", open.stdout, open.stderr)));
        }
    };
    let (least, most) = report.second_half().context("the server's memory was never looked at")?;
    let percent = (most - least) * 100 / most.max(1);
    println!("sessions at once        {}", plan.sessions);
    println!("seconds                 {}", arguments.seconds);
    println!("calls                   {}", report.calls);
    println!("  vanished in a call    {}", report.vanished);
    println!("  too many at once      {}", report.busy);
    println!("  pending               {}", report.pending);
    println!("  connection lost       {}", report.lost);
    println!("effects                 {}", report.receipts.len());
    println!("handles before, after   {}, {}", report.handles.0, report.handles.1);
    println!("memory, second half     {least} to {most} kB ({percent} %)");
    report.judge(&harness)?;
    ensure!(report.vanished > 0, "no client vanished");
    ensure!(percent <= MEMORY_PERCENT_MAX, "the server's memory was not flat, in kB: {:?}", report.memory);
    println!("every effect once, each told with its own receipt, no row stuck");
    Ok(())
}
