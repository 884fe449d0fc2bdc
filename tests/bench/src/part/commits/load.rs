//! The load of both sides: so many callers, each with one effect at a time.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use async_trait::async_trait;

use crate::sample::per_second;

/// Stores effects durably.
#[async_trait]
pub trait Store: Send + Sync {
    /// Returns when the intent to cause this effect is durable; a key that was there before is refused.
    async fn reserve(&self, key: [u8; 32]) -> Result<()>;
    /// Returns when its answer is durable.
    async fn complete(&self, key: [u8; 32]) -> Result<()>;
}

/// One run of one side.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Effects a second.
    pub per_second: f64,
    /// KiB that this process gave to write calls, an effect.
    pub kib: f64,
    /// Write calls, an effect.
    pub writes: f64,
}

/// Does so many effects under new keys.
///
/// # Errors
/// One of them was not stored.
#[expect(clippy::cast_precision_loss, reason = "counts")]
pub async fn run(store: &Arc<dyn Store>, callers: usize, effects: usize) -> Result<Measured> {
    let each = effects.div_ceil(callers);
    let before = written()?;
    let started = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for _ in 0..each {
                    let key: [u8; 32] = rand::random();
                    store.reserve(key).await?;
                    store.complete(key).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let took = started.elapsed();
    let after = written()?;
    let done = each * callers;
    Ok(Measured {
        per_second: per_second(done, took),
        kib: (after.0 - before.0) as f64 / 1024.0 / done as f64,
        writes: (after.1 - before.1) as f64 / done as f64,
    })
}

/// Bytes that this process gave to write calls so far, and how many calls.
fn written() -> Result<(u64, u64)> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let value = |name: &str| -> Result<u64> {
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.context("the kernel does not count what is written")?.trim().parse()?)
    };
    Ok((value("wchar:")?, value("syscw:")?))
}
