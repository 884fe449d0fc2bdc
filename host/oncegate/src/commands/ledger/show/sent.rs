//! What was asked for, what was sent, and what came back.

use std::fmt::Write as _;

use anyhow::Context;
use oncegate_ledger::{Dispatch, Event};

use super::Seen;
use crate::print::{Tone, clean, hex, quoted};

/// Bytes of a request's body or of a raw answer that are shown.
const SHOWN_BYTES: usize = 4_096;

impl Seen {
    /// Whose effect it is, and how it came to be.
    pub(super) async fn asked(&self, text: &mut String) -> anyhow::Result<()> {
        let Some([tenant, account, owner, action, tool, operation]) = self.row.names() else { return Ok(()) };
        put!(text, "tenant", "{tenant}, account {account}, owner {owner}");
        match self.row.dispatch.as_deref() {
            Some(dispatch) => self.dispatch(text, dispatch).await?,
            None => {
                put!(text, "action", "{action}, epoch {}", self.row.epoch);
                put!(text, "asked by", "{tool} for {operation}");
            }
        }
        Ok(())
    }

    async fn dispatch(&self, text: &mut String, dispatch: &Dispatch) -> anyhow::Result<()> {
        put!(text, "action", "{}, epoch {}, generation {}", dispatch.action, dispatch.epoch, dispatch.generation);
        put!(
            text,
            "asked by",
            "{} for {} of the component sha256:{}",
            dispatch.tool,
            dispatch.operation,
            hex(&dispatch.component)
        );
        put!(text, "contract", "sha256:{}", hex(&dispatch.contract));
        let names: Vec<&str> = dispatch.fingerprint.iter().map(|(name, _)| name.as_str()).collect();
        put!(text, "bound fields", "{}", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
        put!(text, "downstream key", "{}", dispatch.downstream_key);
        if let Some((name, version)) = &dispatch.credential {
            put!(text, "credential", "{name}, version {}", hex(version));
        }
        for (operation, digest, answer) in &dispatch.lookups {
            put!(text, "key found by", "{operation}, lookup {}, {} bytes of answer", hex(&digest[..6]), answer.len());
        }
        Ok(())
    }

    /// The request that was sent last, or waits to be.
    pub(super) async fn sent(&self, text: &mut String) -> anyhow::Result<()> {
        let proposal = self.row.proposal.as_deref();
        let (title, stored) = match (self.row.dispatch.as_deref(), proposal) {
            (Some(dispatch), _) => ("Request", &dispatch.request),
            (None, Some(proposal)) => ("Request, not sent", &proposal.request),
            (None, None) => return Ok(()),
        };
        let _ = writeln!(text, "\n{}", Tone::Head.paint(title));
        let Some(request) = self.request(stored).await? else {
            let _ = writeln!(text, "  {}", self.why_not(stored).await);
            return Ok(());
        };
        let _ = writeln!(text, "  {} {}", clean(&request.method), clean(&request.url));
        for (name, value) in &request.headers {
            let _ = writeln!(text, "  {}: {}", clean(name), clean(value));
        }
        lines(text, &request.body, "`--json` has all of them");
        Ok(())
    }

    /// What came back, also from an attempt that never ended: a token may be in it.
    pub(super) async fn answers(&self, text: &mut String) -> anyhow::Result<()> {
        for attempt in &self.row.attempts {
            let bytes = match self.effects.raw_answer(self.key, attempt.id).await {
                Ok(bytes) => bytes,
                Err(error) if error.withholds_bytes() => {
                    let _ = writeln!(
                        text,
                        "\n{}",
                        Tone::Head.paint(&format!("Answer of attempt {}", hex(&attempt.id[..4])))
                    );
                    let _ = writeln!(text, "  {}", clean(self.withheld(&error)));
                    continue;
                }
                Err(error) => return Err(error).context("a raw answer cannot be read"),
            };
            if bytes.is_empty() {
                continue;
            }
            let short = hex(&attempt.id[..4]);
            let so_far = if attempt.responded { "" } else { ", as far as it was received" };
            let title = format!("Answer of attempt {short}, {} bytes{so_far}", bytes.len());
            let _ = writeln!(text, "\n{}", Tone::Head.paint(&title));
            if self.gives_away(attempt.id) {
                let _ = writeln!(text, "  it gives its credential away and is not shown; --raw {short} writes it");
                continue;
            }
            lines(text, &bytes, &format!("--raw {short} writes all of them"));
        }
        Ok(())
    }

    pub(super) fn gives_away(&self, id: [u8; 16]) -> bool {
        let echoes = |event: &Event| match event {
            Event::Responded { attempt, echoes, .. } | Event::Evidence { attempt, echoes, .. } => {
                *echoes && *attempt == id
            }
            _ => false,
        };
        self.records.iter().any(|record| echoes(&record.event))
    }
}

/// Bytes from outside, the first of them, quoted.
fn lines(text: &mut String, bytes: &[u8], rest: &str) {
    let shown = bytes.get(..SHOWN_BYTES).unwrap_or(bytes);
    for line in quoted(shown) {
        let _ = writeln!(text, "  | {line}");
    }
    if shown.len() < bytes.len() {
        let _ = writeln!(text, "  and {} bytes more: {rest}", bytes.len() - shown.len());
    }
}
