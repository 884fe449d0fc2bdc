//! Bare redb with what any ledger of effects has to store, and nothing else.
//!
//! Three trees: the unique key with its state, the row that was written before sending, the raw answer. Commit 1
//! refuses a key that is there and adds key and row; commit 2 adds the answer and the key's new state. Two-phase, one
//! writer beside readers, as our ledger is opened. It keeps no chain, no digests, no list of what is open, no marker
//! outside the file, no receipt index; it grants nothing and guards nothing.

use std::path::Path;

use anyhow::{Result, ensure};
use redb::{ConcurrencyMode, Database, ReadableTable, TableDefinition};

use super::posting::Sizes;
use crate::sample::Times;

const KEYS: TableDefinition<'_, &[u8], (u64, u8)> = TableDefinition::new("keys");
const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
const ANSWERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("answers");
/// Memory for pages, as our ledger has.
const CACHE_BYTES: usize = 64 << 20;

/// One step of one effect.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Its key.
    pub key: [u8; 32],
    /// The row is written already: this is the answer.
    pub answer: bool,
}

/// A bare ledger.
pub struct Lean {
    database: Database,
    row: Vec<u8>,
    answer: Vec<u8>,
    next: u64,
}

impl Lean {
    /// A new one, whose rows and answers have these sizes.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path, sizes: Sizes) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES).set_concurrency_mode(ConcurrencyMode::SingleWriter);
        let noise = |bytes: usize| (0..bytes).map(|_| rand::random()).collect();
        let (row, answer) = (noise(sizes.dispatch), noise(sizes.answer));
        Ok(Self { database: builder.create(path)?, row, answer, next: 0 })
    }

    /// Commits all of these at once, durable when it returns.
    ///
    /// # Errors
    /// A key is there already, or has no row.
    pub fn commit(&mut self, ops: &[Op]) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_two_phase_commit(true);
        {
            let mut keys = transaction.open_table(KEYS)?;
            let mut rows = transaction.open_table(ROWS)?;
            let mut answers = transaction.open_table(ANSWERS)?;
            for op in ops {
                let known = keys.get(op.key.as_slice())?.map(|known| known.value());
                match (known, op.answer) {
                    (None, false) => {
                        keys.insert(op.key.as_slice(), (self.next, 0))?;
                        rows.insert(self.next, self.row.as_slice())?;
                        self.next += 1;
                    }
                    (Some((seq, 0)), true) => {
                        keys.insert(op.key.as_slice(), (seq, 1))?;
                        answers.insert(seq, self.answer.as_slice())?;
                    }
                    other => anyhow::bail!("a key is in another state: {other:?}"),
                }
            }
        }
        Ok(transaction.commit()?)
    }

    /// So many effects one after the other, two commits each.
    ///
    /// # Errors
    /// One of them fails.
    pub fn times(&mut self, effects: usize) -> Result<Times> {
        let mut done = 0;
        let times = Times::of(effects, || {
            let key = rand::random();
            let both = [false, true].map(|answer| self.commit(&[Op { key, answer }]).is_ok());
            done += usize::from(both == [true, true]);
        });
        ensure!(done == effects, "{done} of {effects} effects were stored");
        Ok(times)
    }
}
