//! OTLP over HTTP: traces and metrics to a collector, which may be slow, down or hang.
//!
//! What it does not take in time is given up and counted: nothing is kept for it, and nobody waits for it.

mod config;
mod encode;
mod messages;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use prost::Message;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::figures;
use super::spans::Finished;
pub(super) use config::Config;
use encode::Told;

/// Spans in one request.
const BATCH_MAX: usize = 512;
/// How long a failure is not said again: a collector that is down is down for each request.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Sends for as long as it is run.
pub(super) struct Exporter {
    config: Config,
    spans: mpsc::Receiver<Finished>,
    sender: Sender,
}

#[derive(Clone)]
struct Sender {
    client: reqwest::Client,
    board: Arc<Board>,
    told: Arc<Told>,
}

impl Exporter {
    /// Does not send yet.
    ///
    /// # Errors
    /// There can be no client.
    pub(super) fn new(config: Config, spans: mpsc::Receiver<Finished>, board: Arc<Board>) -> anyhow::Result<Self> {
        // The library leaves it to us. One that is there already does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .default_headers(config.headers.clone())
            .timeout(config.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .context("a client for the collector cannot be made")?;
        let told = Arc::new(Told::of(&config.resource, board.started));
        Ok(Self { config, spans, sender: Sender { client, board, told } })
    }

    /// Until it is told to stop; then it sends what is left.
    pub(super) async fn run(self, stop: &CancellationToken) {
        let Self { config, mut spans, sender } = self;
        let traces = async {
            let Some(url) = &config.traces else { return };
            let mut said = None;
            while !stop.is_cancelled() {
                tokio::select! {
                    () = sleep(config.traces_every) => {}
                    () = stop.cancelled() => {}
                }
                sender.send_spans(url, &mut spans, &mut said).await;
            }
        };
        let metrics = async {
            let Some(url) = &config.metrics else { return };
            let mut said = None;
            while !stop.is_cancelled() {
                tokio::select! {
                    () = sleep(config.metrics_every) => {}
                    () = stop.cancelled() => {}
                }
                sender.send_metrics(url, &mut said).await;
            }
        };
        tokio::join!(traces, metrics);
        stop.cancelled().await;
    }
}

impl Sender {
    /// All that wait now.
    async fn send_spans(&self, url: &Url, spans: &mut mpsc::Receiver<Finished>, said: &mut Option<Instant>) {
        loop {
            let batch: Vec<_> = std::iter::from_fn(|| spans.try_recv().ok()).take(BATCH_MAX).collect();
            if batch.is_empty() {
                return;
            }
            let many = batch.len() as u64;
            let sent = self.send(url, self.told.traces(batch).encode_to_vec()).await;
            let exports = &self.board.exports;
            count(sent, many, [&exports.spans_sent, &exports.spans_failed], "spans", said);
        }
    }

    async fn send_metrics(&self, url: &Url, said: &mut Option<Instant>) {
        let body = self.told.metrics(&figures::all(&self.board)).encode_to_vec();
        let exports = &self.board.exports;
        let sent = self.send(url, body).await;
        count(sent, 1, [&exports.metrics_sent, &exports.metrics_failed], "metrics", said);
    }

    /// One request, and what went wrong with it. Its answer is not read: it says nothing that is acted on.
    async fn send(&self, url: &Url, body: Vec<u8>) -> Result<(), String> {
        let request =
            self.client.post(url.clone()).header(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let answer = request.body(body).send().await.map_err(|error| words(&error))?;
        if answer.status().is_success() { Ok(()) } else { Err(format!("it answered {}", answer.status().as_u16())) }
    }
}

/// Without the URL, which may hold a password.
fn words(error: &reqwest::Error) -> String {
    let word = match error {
        error if error.is_timeout() => "it did not answer in time",
        error if error.is_connect() => "it cannot be reached",
        _ => "the request failed",
    };
    word.to_owned()
}

fn count(
    sent: Result<(), String>,
    many: u64,
    [good, bad]: [&AtomicU64; 2],
    what: &'static str,
    said: &mut Option<Instant>,
) {
    let Err(why) = sent else {
        good.fetch_add(many, Ordering::Relaxed);
        return;
    };
    bad.fetch_add(many, Ordering::Relaxed);
    if said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
        *said = Some(Instant::now());
        tracing::warn!(what, why, "the collector does not take what it is sent");
    }
}
