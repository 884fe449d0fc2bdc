//! `oncegate`: runs an agent's tools so that their effects happen once.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests"))]

mod args;
mod commands;
mod exit;
mod home;
mod panics;
mod print;
mod registry;
mod serve;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command, Isolation};
use exit::Exit;
use oncegate_sandbox::isolation;
use telemetry::{Spans, Telemetry};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    let mut args = Args::parse();
    // Before anything is opened or started.
    if let Some(exit) = walled_off(&args.command) {
        return exit;
    }
    panics::install();
    let telemetry = match Telemetry::of(&args.command) {
        Ok(telemetry) => telemetry,
        Err(error) => return exit::report(&error),
    };
    log_to_stderr(args.global.verbose, telemetry.spans());
    #[cfg(target_os = "linux")]
    if let Err(error) = isolation::harden(is_private(&args.command)) {
        tracing::warn!(%error, "this process cannot give up what it does not need");
    }
    if matches!(args.command, Command::Serve(_)) && cfg!(target_os = "linux") {
        args.global.isolation.get_or_insert(Isolation::Process);
    }
    let runtime = match runtime(&args).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::Error::new(error).context("the program cannot start")),
    };
    match runtime.block_on(run(args, telemetry)) {
        Ok(exit) => exit.into(),
        Err(error) => exit::report(&error),
    }
}

/// One client over standard input and output, whose tools run in other processes, is served by one thread: handing each
/// message from thread to thread costs more than all that is done with it. So is one call.
fn runtime(args: &Args) -> tokio::runtime::Builder {
    let elsewhere = matches!(args.global.isolation, Some(Isolation::Process));
    match &args.command {
        Command::Serve(serve) if serve.http.is_none() && elsewhere => tokio::runtime::Builder::new_current_thread(),
        Command::Call(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    }
}

async fn run(args: Args, telemetry: Telemetry) -> anyhow::Result<Exit> {
    let home = home::Home::new(args.global)?;
    match args.command {
        Command::Call(args) => commands::call::run(&home, args).await,
        Command::Serve(args) => serve::run(&home, args, telemetry).await,
        Command::Token(args) => commands::token::run(&home, args),
        Command::Inspect(args) => commands::inspect::run(&home, &args).await,
        Command::Keygen(args) => commands::sign::keygen(&home, &args),
        Command::Sign(args) => commands::sign::sign(&home, &args),
        Command::Verify(args) => commands::sign::verify(&home, &args),
        Command::Pull(args) => commands::registry::pull(&home, &args).await,
        Command::Push(args) => commands::registry::push(&home, &args).await,
        Command::Pack(args) => commands::pack::run(&home, &args),
        Command::Check(args) => commands::check::run(&home, &args),
        Command::Policy(args) => commands::policy::run(&home, &args).await,
        Command::Ledger(args) => commands::ledger::run(&home, args).await,
        Command::Plan(args) => commands::plan::run(&home, args).await,
        Command::Permit(args) => commands::permit::run(&home, args).await,
        Command::Doctor => commands::doctor::run(&home).await,
        Command::Completions { shell } => commands::completions::run(shell),
        Command::Man { directory } => commands::man::run(&directory),
        Command::RunnerProcess | Command::CompilerProcess { .. } => {
            anyhow::bail!("this command is for oncegate itself")
        }
    }
}

/// The processes that this program starts of itself.
fn walled_off(command: &Command) -> Option<ExitCode> {
    match command {
        #[cfg(target_os = "linux")]
        Command::RunnerProcess => Some(isolation::run_guests()),
        #[cfg(target_os = "linux")]
        Command::CompilerProcess { seconds } => Some(isolation::compile(*seconds)),
        #[cfg(not(target_os = "linux"))]
        Command::RunnerProcess | Command::CompilerProcess { .. } => {
            Some(exit::report(&anyhow::Error::new(isolation::IsolationError::NotHere)))
        }
        _ => None,
    }
}

/// Whether the files that a command makes are its user's alone. What `pack`, `man` and `policy init` write is for others too.
#[cfg(target_os = "linux")]
fn is_private(command: &Command) -> bool {
    !matches!(command, Command::Pack(_) | Command::Man { .. } | Command::Policy(_))
}

/// Warnings by default; `-v` adds what happened, `-vv` how. Spans of calls go where they were asked for, and nothing
/// that is logged goes there.
fn log_to_stderr(verbose: u8, spans: Option<Spans>) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    let filter = tracing_subscriber::EnvFilter::default()
        .add_directive(tracing::Level::ERROR.into())
        .add_directive(directive("oncegate", level))
        .add_directive(directive("oncegate_sandbox", level))
        .add_directive(directive("oncegate_ledger", level));
    let logs = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(print::colours(&std::io::stderr()))
        .with_target(false)
        .compact()
        .with_filter(filter);
    let spans = spans.map(|spans| spans.with_filter(telemetry::spans_alone()));
    tracing_subscriber::registry().with(logs).with(spans).init();
}

fn directive(target: &str, level: tracing::Level) -> tracing_subscriber::filter::Directive {
    format!("{target}={level}").parse().unwrap_or_else(|_| level.into())
}
