//! A ledger whose commits are measured: whichever it is, and nothing else about it is other.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oncegate_ledger::private::PrivateLedger;
use oncegate_ledger::{
    Append, Event, Ledger, LedgerError, LedgerIdentity, Record, StateTag, Stored, StreamId, StreamKind, Tip,
};
use tokio::time::Instant;
use tracing::Instrument;

use super::words::{CommitEnd, commit_end};
use super::{Here, Meter, spans};

/// The ledger, measured.
pub(crate) fn measured(ledger: Arc<dyn Ledger>, meter: &Arc<Meter>) -> Arc<dyn Ledger> {
    Arc::new(Measured { inner: ledger, meter: Arc::clone(meter) })
}

struct Measured {
    inner: Arc<dyn Ledger>,
    meter: Arc<Meter>,
}

impl Measured {
    /// Runs an append. One that only checks conditions stores nothing and is not counted.
    async fn measure(
        &self,
        told: (usize, &'static str),
        hurried: bool,
        append: impl Future<Output = Result<Vec<u64>, LedgerError>>,
    ) -> Result<Vec<u64>, LedgerError> {
        let (events, first) = told;
        if events == 0 {
            return append.await;
        }
        let began = Instant::now();
        let waiting = Here::new(&self.meter, |meter| &meter.commits.waiting);
        let span = spans::commit(events, first);
        let result = append.instrument(span.clone()).await;
        drop(waiting);
        let end = CommitEnd::of(&result);
        span.record("oncegate.ledger.result", commit_end(end));
        // What nobody waits for is held back on purpose.
        self.meter.committed(end, hurried.then(|| began.elapsed()));
        result
    }
}

/// How many events a batch has, and what the first of an effect is called.
fn told(batch: &[Append]) -> (usize, &'static str) {
    let events = batch.iter().filter(|append| append.event.is_some()).count();
    let first = batch.iter().find(|append| append.stream.kind == StreamKind::Effect);
    let first = first.and_then(|append| append.event.as_ref()).map_or("other", |event| name(event.plain()));
    (events, first)
}

/// The names of the events that a call causes.
fn name(event: &Event) -> &'static str {
    match event {
        Event::Planned(_) => "planned",
        Event::AwaitingApproval(_) => "awaiting-approval",
        Event::Dispatched(_) => "dispatched",
        Event::Evidence { .. } => "evidence",
        Event::Responded { .. } => "responded",
        Event::NotSent { .. } => "not-sent",
        Event::Lost { .. } => "lost",
        Event::Classified { .. } => "classified",
        Event::Settled { .. } => "settled",
        Event::Diverged { .. } => "diverged",
        _ => "other",
    }
}

#[async_trait]
impl Ledger for Measured {
    async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        self.measure(told(&batch), true, self.inner.append(batch)).await
    }

    async fn append_unhurried(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        self.measure(told(&batch), false, self.inner.append_unhurried(batch)).await
    }

    async fn marked(&self) -> Result<(), LedgerError> {
        self.inner.marked().await
    }

    fn foreign_appends(&self) -> Option<u64> {
        self.inner.foreign_appends()
    }

    async fn tips(&self, streams: &[StreamId]) -> Result<Vec<Option<Tip>>, LedgerError> {
        self.inner.tips(streams).await
    }

    async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
        self.inner.read(stream).await
    }

    async fn scan(&self, from_seq: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
        self.inner.scan(from_seq, limit).await
    }

    async fn list(&self, state: StateTag, after: Option<StreamId>, limit: usize) -> Result<Vec<StreamId>, LedgerError> {
        self.inner.list(state, after, limit).await
    }

    async fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError> {
        self.inner.load(bytes).await
    }

    async fn forget(&self, streams: Vec<StreamId>) -> Result<u64, LedgerError> {
        self.inner.forget(streams).await
    }

    async fn sweep(&self) -> Result<u64, LedgerError> {
        self.inner.sweep().await
    }

    fn identity(&self) -> LedgerIdentity {
        self.inner.identity()
    }

    fn incarnation(&self) -> Option<[u8; 16]> {
        self.inner.incarnation()
    }

    async fn silence(&self, host: [u8; 16]) -> Result<Option<Duration>, LedgerError> {
        self.inner.silence(host).await
    }

    fn private(&self) -> Option<&PrivateLedger> {
        self.inner.private()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use oncegate_ledger::Expect;
    use oncegate_ledger::memory::MemoryLedger;

    use super::*;

    #[tokio::test]
    async fn what_is_stored_is_counted_and_what_only_looks_is_not() {
        let meter = Arc::new(Meter::default());
        let ledger = measured(Arc::new(MemoryLedger::new()), &meter);
        let stream = StreamId::host([7; 16]);
        let fenced = |version| {
            let (actor, reason) = (String::new(), String::new());
            let event = Event::HostFenced { host: [7; 16], actor, reason, at: 1, decision: None };
            Append::new(stream, Expect::Version(version), event)
        };
        ledger.append(vec![Append::guard(stream, Expect::Any)]).await.unwrap();
        ledger.append(vec![fenced(0)]).await.unwrap();
        ledger.append_unhurried(vec![fenced(0)]).await.unwrap_err();
        let counts = meter.commits.ends.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 1, 0, 0, 0, 0]);
        assert_eq!(meter.commits.waiting.load(Ordering::Relaxed), 0);
    }
}
