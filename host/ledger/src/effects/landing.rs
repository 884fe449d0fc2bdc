//! An event that is on its way to the ledger while its row is told already, and a receipt that is being given.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Rows;
use crate::{Effect, LedgerError, StreamId};

type Append = Pin<Box<dyn Future<Output = Result<(), LedgerError>> + Send>>;

/// The append of an event that nobody waits for. Until it has ended, or this is dropped, readers in this process see
/// the row as it will be.
#[must_use = "the event is stored while this is awaited"]
pub struct Landing {
    append: Append,
    ended: Option<Result<(), LedgerError>>,
    rows: Arc<Rows>,
    key: [u8; 32],
    row: Arc<Effect>,
}

impl Landing {
    pub(super) fn new(append: Append, rows: Arc<Rows>, key: [u8; 32], row: Arc<Effect>) -> Self {
        Self { append, ended: None, rows, key, row }
    }

    /// Hands the event in, and does not wait: whatever is appended after this comes after it.
    pub fn begin(&mut self) {
        if self.ended.is_none()
            && let Poll::Ready(ended) = self.append.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            self.ended = Some(ended);
        }
    }

    /// Waits until it is durable.
    ///
    /// # Errors
    /// Those of [`crate::Ledger::append`]: the row must be read again, and judged again where it is not judged.
    pub async fn landed(mut self) -> Result<(), LedgerError> {
        let ended = match self.ended.take() {
            Some(ended) => ended,
            None => self.append.as_mut().await,
        };
        match &ended {
            Ok(()) => self.rows.keep(self.key, &self.row, None),
            Err(_) => self.rows.forget(),
        }
        ended
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.rows.lands(&self.key);
    }
}

/// Receipts that this process is giving to an effect: nobody else in it gives them to another meanwhile.
#[must_use = "they are given until this is dropped"]
pub struct Giving {
    rows: Arc<Rows>,
    receipts: Vec<StreamId>,
}

impl Giving {
    /// Waits for those who are giving one of them to another effect. In one order for all, so that nobody waits for
    /// somebody who waits.
    pub(super) async fn of(rows: &Arc<Rows>, mut receipts: Vec<(StreamId, [u8; 32])>) -> Self {
        receipts.sort_unstable();
        let mut giving = Self { rows: Arc::clone(rows), receipts: Vec::with_capacity(receipts.len()) };
        for (receipt, effect) in receipts {
            giving.rows.give(receipt, effect).await;
            giving.receipts.push(receipt);
        }
        giving
    }
}

impl Drop for Giving {
    fn drop(&mut self) {
        self.receipts.iter().for_each(|receipt| self.rows.given(receipt));
    }
}
