//! `oncegate call`: one call of one tool.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, bail};
use oncegate_sandbox::outcome::{Outcome, Status};
use oncegate_sandbox::{CONTEXT_NAMES, CallRequest, DRAIN_MAX, LOOKS_MAX, Rounds, Sandbox};

use crate::args::Call;
use crate::exit::{Exit, Usage, usage};
use crate::home::{self, Home};
use crate::print;

/// Bytes of arguments that are read; tools take identifiers and text, not files.
const ARGUMENTS_BYTES_MAX: u64 = 8 << 20;
/// A call that is answered at once ends before anything else is looked at.
const SETTLE_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

pub(crate) async fn run(home: &Home, args: Call) -> anyhow::Result<Exit> {
    let request = CallRequest { arguments: arguments(&args.args)?, context: context(&args.context)?, tool: args.tool };
    let sandbox = home.sandbox().await?;
    let component = sandbox.load(&home.component(&args.component).await?)?;
    let _settling = settle_beside(&sandbox);
    let outcome = tokio::select! {
        outcome = sandbox.call(&component, request) => outcome,
        () = stopped() => {
            sandbox.close();
            finish(&sandbox).await;
            bail!("stopped; what had been sent is stored, call again with the same arguments");
        }
    };
    print(home, &outcome)?;
    if outcome.status == Status::Pending && std::io::stderr().is_terminal() {
        eprintln!("pending: this process stays until what was sent is stored");
    }
    // What was dispatched is stored before the process ends; whoever reads the output need not wait.
    close_stdout();
    tokio::select! {
        () = finish(&sandbox) => {}
        () = stopped() => {
            sandbox.close();
            finish(&sandbox).await;
        }
    }
    Ok(outcome.status.into())
}

fn print(home: &Home, outcome: &Outcome) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(print::json(outcome, home.json())?.as_bytes())?;
    out.flush().context("the outcome cannot be printed")
}

pub(super) async fn finish(sandbox: &Sandbox) {
    if tokio::time::timeout(DRAIN_MAX, sandbox.drain()).await.is_err() {
        tracing::error!("something that was dispatched did not end in time; its effect is unknown until it is settled");
    }
}

/// Finds out, beside the call, what senders that have stopped left open. It ends with the call.
fn settle_beside(sandbox: &Sandbox) -> AbortOnDrop {
    let sandbox = sandbox.clone();
    AbortOnDrop(tokio::spawn(async move {
        tokio::time::sleep(SETTLE_AFTER).await;
        let looked = sandbox.settle_open(&mut Rounds::default(), LOOKS_MAX).await;
        match looked {
            Ok(looked) if looked.is_empty() => {}
            Ok(looked) => {
                let open = looked.iter().filter(|one| one.is_open()).count();
                tracing::info!(looked = looked.len(), open, "what stopped senders left open");
            }
            Err(why) => tracing::debug!(%why, "what stopped senders left open was not looked at"),
        }
    }))
}

/// A task that ends with its owner.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Interrupt or termination.
pub(crate) async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn close_stdout() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        // A reader then sees the end of the output.
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

pub(super) fn arguments(text: &str) -> anyhow::Result<serde_json::Value> {
    let json = match text.strip_prefix('@') {
        Some(file) => home::read_text(Path::new(file), "the arguments in", ARGUMENTS_BYTES_MAX)?,
        None => text.to_owned(),
    };
    serde_json::from_str(&json).context(Usage("--args is not a JSON document".to_owned()))
}

pub(crate) fn context(facts: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut context = BTreeMap::new();
    for fact in facts {
        let Some((name, value)) = fact.split_once('=') else {
            return Err(usage(format!("--context {fact}: write it as NAME=VALUE")));
        };
        if !CONTEXT_NAMES.contains(&name) {
            let all = CONTEXT_NAMES.join(", ");
            return Err(usage(format!("--context {name}: there is no such fact; the facts are {all}")));
        }
        if context.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(usage(format!("--context {name} is given twice")));
        }
    }
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_usage<T>(result: anyhow::Result<T>) -> bool {
        result.is_err_and(|error| error.downcast_ref::<Usage>().is_some())
    }

    #[test]
    fn a_wrong_command_line_is_told_from_a_file_that_cannot_be_read() {
        assert!(is_usage(arguments("{")));
        assert!(!is_usage(arguments("@/nowhere/at/all")));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "not json").unwrap();
        assert!(is_usage(arguments(&format!("@{}", file.path().display()))));
    }

    #[test]
    fn facts_are_known_and_given_once() {
        let given = |facts: &[&str]| context(&facts.iter().map(|fact| (*fact).to_owned()).collect::<Vec<_>>());
        assert_eq!(given(&["tenant=acme=1"]).unwrap()["tenant"], "acme=1");
        for wrong in [&["tenant"][..], &["colour=red"], &["tenant=a", "tenant=a"]] {
            assert!(is_usage(given(wrong)), "{wrong:?}");
        }
    }
}
