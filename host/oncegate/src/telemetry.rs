//! What a server tells those who watch it: figures for Prometheus, traces and metrics by OTLP, health and readiness.
//!
//! All of it runs in a thread of its own: whoever reads slowly, and a collector that hangs, cost no call anything.
//! What is told, and what never is, stands in `host/TELEMETRY.md`.

mod board;
mod exposition;
mod figures;
mod listener;
mod otlp;
mod spans;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::args::Command;

pub(crate) use board::{Board, GOOD};
use otlp::Config;
use spans::{Finished, Sampler};
pub(crate) use spans::{Spans, spans_alone};

/// Finished spans that wait to be sent; more are dropped, and counted.
const SPANS_WAITING_MAX: usize = 4_096;
/// How long the last figures may take to be sent when the process ends.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// What was asked for.
pub(crate) struct Telemetry {
    address: Option<SocketAddr>,
    otlp: Option<Otlp>,
    board: Arc<Board>,
}

struct Otlp {
    config: Config,
    layer: Option<Spans>,
    spans: mpsc::Receiver<Finished>,
}

impl Telemetry {
    /// What the command line and the environment ask for.
    ///
    /// # Errors
    /// They cannot be understood.
    pub(crate) fn of(command: &Command) -> anyhow::Result<Self> {
        let board = Arc::<Board>::default();
        let Command::Serve(serve) = command else { return Ok(Self { address: None, otlp: None, board }) };
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let config = Config::read(serve.otlp.as_deref(), environment)?;
        let sampler = Sampler::read(environment)?;
        let otlp = config.map(|config| {
            let (sender, spans) = mpsc::channel(SPANS_WAITING_MAX);
            let layer = config.sends_traces().then(|| Spans::new(sender, sampler, Arc::clone(&board)));
            Otlp { config, layer, spans }
        });
        board.read(serve.metrics.is_some() || otlp.is_some());
        Ok(Self { address: serve.metrics, otlp, board })
    }

    /// What listens to spans, if anybody wants them.
    pub(crate) fn spans(&self) -> Option<Spans> {
        self.otlp.as_ref()?.layer.clone()
    }

    /// Begins to listen and to send.
    ///
    /// # Errors
    /// The address cannot be had, or the collector's client not be made.
    pub(crate) fn start(self) -> anyhow::Result<Watched> {
        let Self { address, otlp, board } = self;
        let stop = CancellationToken::new();
        let listener = address.map(listen).transpose()?;
        let exporter = otlp.map(|otlp| otlp::Exporter::new(otlp.config, otlp.spans, Arc::clone(&board))).transpose()?;
        if listener.is_none() && exporter.is_none() {
            return Ok(Watched { board, stop, ended: None });
        }
        let (sender, ended) = oneshot::channel();
        let (begun, begins) = blocking::sync_channel(1);
        let (of_thread, stops) = (Arc::clone(&board), stop.clone());
        std::thread::Builder::new()
            .name("oncegate-watch".to_owned())
            .spawn(move || {
                run(listener, exporter, of_thread, &stops, &begun);
                // Nobody may wait for it any more.
                let _ = sender.send(());
            })
            .context("the thread that tells how this server is cannot be started")?;
        begins.recv().context("the thread that tells how this server is ended at once")??;
        Ok(Watched { board, stop, ended: Some(ended) })
    }
}

fn run(
    listener: Option<TcpListener>,
    exporter: Option<otlp::Exporter>,
    board: Arc<Board>,
    stop: &CancellationToken,
    begun: &blocking::SyncSender<anyhow::Result<()>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = begun.send(Err(anyhow::Error::new(error).context("its event loop cannot be made")));
            return;
        }
    };
    let _ = begun.send(Ok(()));
    runtime.block_on(async {
        if let Some(listener) = listener {
            tokio::spawn(listener::serve(listener, board));
        }
        match exporter {
            Some(exporter) => exporter.run(stop).await,
            None => stop.cancelled().await,
        }
    });
}

/// Takes the address, and says where it is.
fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("--metrics: {address} cannot be listened on"))?;
    let address = listener.local_addr().context("--metrics: the address is not known")?;
    listener.set_nonblocking(true).context("--metrics: the address cannot be listened on")?;
    if !address.ip().is_loopback() {
        tracing::warn!("the figures at {address} can be read by everybody who reaches it");
    }
    // Standard output is the protocol's.
    eprintln!("figures at http://{address}/metrics");
    Ok(listener)
}

/// A server that is watched.
pub(crate) struct Watched {
    board: Arc<Board>,
    stop: CancellationToken,
    ended: Option<oneshot::Receiver<()>>,
}

impl Watched {
    /// Where it is written what is told.
    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Sends what is left, for a bounded time.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        if let Some(ended) = self.ended {
            let _ = tokio::time::timeout(FLUSH_WITHIN, ended).await;
        }
    }
}

/// An address, or a port of this machine alone.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| format!("{text:?} is neither ADDRESS:PORT nor a port; use 127.0.0.1:9464"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_machine() {
        assert_eq!(address("9464"), Ok("127.0.0.1:9464".parse().unwrap()));
        assert_eq!(address("[::]:80"), Ok("[::]:80".parse().unwrap()));
        assert!(address("localhost:80").unwrap_err().contains("127.0.0.1:9464"));
    }
}
