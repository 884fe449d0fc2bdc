//! `oncegate serve`: the tools of components, to agents that speak MCP.
//!
//! However a connection ends, the process stays until what was dispatched is stored.

mod answers;
mod caller;
mod calling;
mod cancelled;
mod catalog;
mod elicit;
mod http;
mod lines;
mod logs;
mod measured;
mod oauth;
mod policy_file;
mod server;
mod sessions;
mod stamp;
mod status;
mod stdio;
mod tasks;
pub(crate) mod tokens;
mod tools;
mod turns;
mod waiting;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use oncegate::{facts, strict};
use oncegate_sandbox::policy::{Policy, Setter};
use oncegate_sandbox::{DRAIN_MAX, LOOKS_MAX, Rounds, Sandbox};

use crate::args::Serve;
use crate::commands::call;
use crate::exit::{Exit, usage};
use crate::home::Home;
use crate::telemetry::{Board, Telemetry};
use catalog::{Naming, Shelf};
use elicit::Elicitation;
use facts::Facts;
use policy_file::PolicyFile;
use server::Shared;

/// How often folders and the policy are looked at: a component is served when two looks see the same of it.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often effects that stopped senders left open are looked for; each has its own growing pause.
const SETTLE_EVERY: Duration = Duration::from_secs(2);
/// How long a session may rest: longer than a person thinks, shorter than forgotten ones matter.
const SESSION_IDLE: Duration = Duration::from_secs(600);
/// Over and above `answer-within`, what an answer takes to be written.
const ANSWER_SLACK: Duration = Duration::from_secs(1);

pub(crate) async fn run(home: &Home, args: Serve, telemetry: Telemetry) -> anyhow::Result<Exit> {
    let watched = telemetry.start()?;
    let facts = call::context(&args.context)?;
    let runners = home.runners()?;
    let ledger = home.ledger().await.map_err(|error| format!("{error:#}"));
    if let Err(why) = &ledger {
        tracing::error!("effects are refused: {why}");
    }
    let elicitation = ledger.as_ref().ok().map(|ledger| Elicitation::new(Arc::clone(ledger), home.directory()));
    let (policy_file, policy) = PolicyFile::open(home, facts.clone())?;
    let sandbox = home.sandbox_behind(runners, policy, ledger)?;
    let naming = Naming { prefix: args.prefix, underscores: args.underscores };
    let mut places = Vec::new();
    for place in &args.components {
        places.push(home.component(place).await?);
    }
    let (shelf, catalog) = Shelf::open(sandbox.clone(), &places, naming)?;
    sandbox.begun()?;
    if catalog.tools().is_empty() {
        tracing::warn!("there is no tool to serve yet");
    }
    let shared = Arc::new(Shared::new(catalog, facts, elicitation, args.task_after));
    watched::begin(&shared, watched.board());
    tokio::spawn(look(Arc::clone(&shared), shelf, policy_file, Arc::clone(watched.board())));
    tokio::spawn(end(Arc::clone(&shared)));
    let settling = tokio::spawn(settle(Arc::clone(&shared)));
    let dropping = Arc::clone(&shared);
    let dropping = tokio::spawn(async move { dropping.tasks.drop_old().await });
    let served = match http_options(&args)? {
        Some(options) => http::run(home, &shared, options).await,
        None => stdio::run(&shared).await,
    };
    settling.abort();
    dropping.abort();
    shared.closing.cancel();
    sandbox.close();
    shared.stop.cancel();
    shared.waiting.stop_all();
    finish(&sandbox).await;
    shared.tasks.finish().await;
    watched.finish().await;
    served.map(|()| Exit::Ok)
}

fn http_options(args: &Serve) -> anyhow::Result<Option<http::Options>> {
    let only_http = !args.host.is_empty()
        || !args.origin.is_empty()
        || !args.authorization_server.is_empty()
        || args.sessions
        || args.session_idle.is_some();
    let Some(address) = args.http else {
        if only_http || args.public_url.is_some() || args.keys.is_some() {
            return Err(usage(
                "--host, --origin, --public-url, --authorization-server, --keys and --sessions are for --http",
            ));
        }
        return Ok(None);
    };
    if args.keys.is_some() && (args.authorization_server.is_empty() || args.public_url.is_none()) {
        return Err(usage(
            "--keys: say with --authorization-server who signs, and with --public-url for whom (the tokens' audience)",
        ));
    }
    let issued = args.keys.clone().map(|keys| oauth::Options {
        keys,
        tenant_claim: args.tenant_claim.clone(),
        permit_claim: args.permit_claim.clone(),
    });
    Ok(Some(http::Options {
        address,
        hosts: args.host.clone(),
        origins: args.origin.clone(),
        resource: args.public_url.clone(),
        authorization_servers: args.authorization_server.clone(),
        sessions: args.sessions.then(|| args.session_idle.unwrap_or(SESSION_IDLE)),
        issued,
    }))
}

/// The command line is a source like others: the policy says what it may give.
fn check(policy: &Policy, facts: &Facts) -> anyhow::Result<()> {
    match facts.keys().find(|fact| !policy.context.may_set(fact, Setter::Serve)) {
        Some(fact) => Err(usage(format!("--context {fact}: the policy's [context] does not let `serve` give it"))),
        None => Ok(()),
    }
}

/// Serves what changes in folders and in the policy.
async fn look(shared: Arc<Shared>, mut shelf: Shelf, mut file: PolicyFile, board: Arc<Board>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        // Compiling takes a second or more.
        let looked = tokio::task::spawn_blocking(move || {
            let taken = file.look();
            let under = taken.as_ref().and_then(|taken| shelf.under(taken.policy.clone()).ok());
            let other_tools = shelf.look();
            (shelf, file, taken, under, other_tools)
        });
        let Ok((shelf_back, file_back, taken, under, other_tools)) = looked.await else {
            tracing::error!("neither the folders nor the policy are looked at any more");
            return;
        };
        (shelf, file) = (shelf_back, file_back);
        board.policy_is_refused(file.is_refused());
        let tells = other_tools.is_some();
        let Some(catalog) = other_tools.or(under) else { continue };
        let same = catalog.shows_the_same_as(&shared.catalog());
        shared.replace(catalog);
        if let Some(taken) = taken {
            tracing::warn!("{}", taken.words);
        }
        if tells || !same {
            shared.tell_of_change();
        }
    }
}

/// Finds out what senders that have stopped left open, for as long as calls are taken.
async fn settle(shared: Arc<Shared>) {
    let mut rounds = Rounds::default();
    loop {
        tokio::time::sleep(SETTLE_EVERY).await;
        match shared.sandbox().settle_open(&mut rounds, LOOKS_MAX).await {
            Ok(looked) if looked.is_empty() => {}
            Ok(looked) => {
                let open = looked.iter().filter(|one| one.is_open()).count();
                tracing::info!(looked = looked.len(), open, "what stopped senders left open");
            }
            Err(why) => tracing::debug!(%why, "what stopped senders left open was not looked at"),
        }
    }
}

/// From the first sign of the end: no effect is dispatched, calls are answered, then guests are stopped.
async fn end(shared: Arc<Shared>) {
    tokio::select! {
        () = shared.closing.cancelled() => {}
        () = call::stopped() => shared.closing.cancel(),
    }
    shared.sandbox().close();
    let patience = shared.sandbox().policy().limits.answer_within + ANSWER_SLACK;
    tokio::select! {
        () = tokio::time::sleep(patience) => {}
        // Told twice.
        () = call::stopped() => {}
    }
    shared.stop.cancel();
    shared.waiting.stop_all();
}

async fn finish(sandbox: &Sandbox) {
    if tokio::time::timeout(DRAIN_MAX, sandbox.drain()).await.is_err() {
        tracing::error!("something that was dispatched did not end in time; its effect is unknown until it is settled");
    }
}
