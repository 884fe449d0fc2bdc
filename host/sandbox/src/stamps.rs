//! The highest stamp in the ledger: a clock that was set back since shows in it.

use oncegate_ledger::{Ledger, LedgerError, PAGE_MAX};
use tokio::sync::Mutex;

/// What was read so far. Each record is read once by a process, however often it is asked.
#[derive(Default)]
pub(crate) struct Stamps(Mutex<Option<Seen>>);

struct Seen {
    from: u64,
    next: u64,
    latest: u64,
}

impl Stamps {
    /// The highest stamp of all records from that place on.
    pub(crate) async fn latest(&self, ledger: &dyn Ledger, from: u64) -> Result<u64, LedgerError> {
        let mut seen = self.0.lock().await;
        let mut now = match seen.take() {
            Some(seen) if seen.from <= from => seen,
            _ => Seen { from, next: from, latest: 0 },
        };
        loop {
            let page = ledger.scan(now.next, PAGE_MAX).await?;
            let Some(last) = page.last() else { break };
            now.next = last.seq + 1;
            now.latest = page.iter().filter_map(|record| record.event.at()).fold(now.latest, u64::max);
        }
        let latest = now.latest;
        *seen = Some(now);
        Ok(latest)
    }
}

#[cfg(test)]
mod tests {
    use oncegate_ledger::memory::MemoryLedger;
    use oncegate_ledger::{Append, Event, Expect, StreamId};

    use super::*;

    #[tokio::test]
    async fn a_stamp_once_seen_is_never_forgotten() {
        let ledger = MemoryLedger::new();
        let stamps = Stamps::default();
        let stamped = |n: u8, at| {
            let event = Event::HostStarted { host: [n; 16], at };
            vec![Append::new(StreamId::host([n; 16]), Expect::Any, event)]
        };
        for (n, at, latest) in [(1, 50, 50), (2, 90, 90), (3, 10, 90), (4, 91, 91)] {
            ledger.append(stamped(n, at)).await.unwrap();
            assert_eq!(stamps.latest(&ledger, 0).await.unwrap(), latest);
        }
        // Asked for less, it may know more; asked for more, it reads anew.
        assert_eq!(stamps.latest(&ledger, 3).await.unwrap(), 91);
        assert_eq!(Stamps::default().latest(&ledger, 3).await.unwrap(), 91);
    }
}
