//! Serving one client over standard input and output.

use std::sync::Arc;

use anyhow::Context;
use rmcp::RoleServer;
use rmcp::service::{Peer, ServerInitializeError};
use tokio::sync::watch;

use super::lines::Lines;
use super::server::{Server, Shared};

/// Until the client closes its end or the process is told to stop.
pub(super) async fn run(shared: &Arc<Shared>) -> anyhow::Result<()> {
    let greeting = shared.greeting(shared.facts.contains_key("tenant"));
    let lines = Lines::start(shared.closing.clone(), shared.stop.clone(), greeting);
    let running = match rmcp::serve_server(Server::new(Arc::clone(shared)), lines).await {
        Ok(running) => running,
        // Whoever says nothing is served nothing.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error).context("the client did not begin as MCP does"),
    };
    let teller = tokio::spawn(tell(running.peer().clone(), shared.changes()));
    let ended = running.waiting().await;
    teller.abort();
    ended.map(drop).context("the connection ended in an error of its own")
}

/// Tells a client of the older revision that tools have changed; one of the newer listens.
pub(super) async fn tell(peer: Peer<RoleServer>, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        if peer.peer_info().is_some() && peer.notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}
