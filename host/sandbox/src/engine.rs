//! The wasm engine: one profile, one ticker, fresh instances from pre-linked components.
//!
//! The profile leaves out every proposal that guests do not need (garbage collection, threads,
//! component-model async): most of wasmtime's advisories are in those.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::limits::{
    CORE_INSTANCES_PER_COMPONENT, EPOCH_TICK, MEMORIES_PER_COMPONENT, STACK_BYTES, TABLE_ELEMENTS_MAX,
    TABLES_PER_COMPONENT,
};

/// Guests that compute at once; more wait. Those that wait for a provider are none of them.
pub const CALLS_AT_ONCE_MAX: u32 = 64;
/// Calls that are open at once, most of which wait for a provider; more wait to begin. Each slot of the pool reserves
/// address space, not memory.
pub const CALLS_OPEN_MAX: u32 = 1_024;
/// Sizes of the pool, in the order in which they are tried: a small address space has no room for the larger.
const POOL_SIZES: [u32; 3] = [CALLS_OPEN_MAX, 256, CALLS_AT_ONCE_MAX];
/// Bytes of a slot's memories that are cleared by writing instead of by unmapping: small guests then
/// fault no pages.
const KEEP_RESIDENT_BYTES: usize = 64 << 10;
/// Bytes of one linear memory that a slot can hold; a policy's `memory` cannot exceed it.
pub const MEMORY_BYTES_CEILING: usize = 256 << 20;
/// Bytes of the stack that a guest and the host's code above it share.
const ASYNC_STACK_BYTES: usize = 2 << 20;

/// The engine could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly engine cannot start: {0}")]
pub struct EngineError(String);

/// The engine with its ticker and the number of calls it can hold.
pub struct Runtime {
    engine: Engine,
    /// One permit per slot of the pool.
    pub(crate) slots: Arc<Semaphore>,
    stop: Arc<AtomicBool>,
    /// False when the address space is too small for a pool and instances are allocated one by one.
    pub pooled: bool,
}

impl Runtime {
    /// Makes the engine, pooled where the address space allows, and starts its ticker.
    ///
    /// # Errors
    /// [`EngineError`] when this machine cannot run the profile at all.
    pub fn new() -> Result<Self, EngineError> {
        let (engine, slots) = match pooled() {
            Some((engine, slots)) => (engine, Some(slots)),
            None => (compiling()?, None),
        };
        let stop = Arc::new(AtomicBool::new(false));
        start_ticker(&engine, stop.clone())?;
        let pooled = slots.is_some();
        let slots = slots.unwrap_or(CALLS_AT_ONCE_MAX) as usize;
        Ok(Self { engine, slots: Arc::new(Semaphore::new(slots)), stop, pooled })
    }

    /// The wasmtime engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// An engine with the largest pool for which there is room, and the size of that.
fn pooled() -> Option<(Engine, u32)> {
    POOL_SIZES.into_iter().find_map(|slots| match Engine::new(&config(Some(slots))) {
        Ok(engine) => Some((engine, slots)),
        Err(error) => {
            tracing::warn!(%error, slots, "no pool of so many instances; fewer calls can be open, or all are slower");
            None
        }
    })
}

/// An engine that only compiles: it holds no pool and runs nothing. Its code is the same as a [`Runtime`]'s.
pub(crate) fn compiling() -> Result<Engine, EngineError> {
    Engine::new(&config(None)).map_err(|error| EngineError(error.to_string()))
}

/// An OS thread, since a tokio task would not tick while guests hold all workers.
fn start_ticker(engine: &Engine, stop: Arc<AtomicBool>) -> Result<(), EngineError> {
    let engine = engine.weak();
    std::thread::Builder::new()
        .name("oncegate-epoch".to_owned())
        .spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(EPOCH_TICK);
                match engine.upgrade() {
                    Some(engine) => engine.increment_epoch(),
                    None => break,
                }
            }
        })
        .map(drop)
        .map_err(|error| EngineError(format!("no thread for the ticker: {error}")))
}

fn config(slots: Option<u32>) -> Config {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .gc_support(false)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(false)
        .epoch_interruption(true)
        .memory_init_cow(true)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(ASYNC_STACK_BYTES)
        .async_stack_zeroing(true);
    if let Some(slots) = slots {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(slots)));
    }
    config
}

fn pool(slots: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots * CORE_INSTANCES_PER_COMPONENT)
        .total_memories(slots * MEMORIES_PER_COMPONENT)
        .total_tables(slots * TABLES_PER_COMPONENT)
        .total_stacks(slots)
        // Without it one component could take the instances of all others.
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .max_memories_per_module(1)
        .max_tables_per_component(TABLES_PER_COMPONENT)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_memory_size(MEMORY_BYTES_CEILING)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(KEEP_RESIDENT_BYTES)
        .async_stack_keep_resident(KEEP_RESIDENT_BYTES)
        // Never `Yes`: with swap in use one guest reads another's memory (wasmtime#14357).
        .pagemap_scan(Enabled::No);
    pool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pagemap_scan_is_off() {
        assert!(matches!(pool(CALLS_OPEN_MAX).get_pagemap_scan(), Enabled::No));
    }

    #[test]
    fn no_component_takes_the_instances_of_others() {
        let pool = pool(7);
        assert_eq!(pool.get_max_core_instances_per_component(), CORE_INSTANCES_PER_COMPONENT);
        assert_eq!(pool.get_total_core_instances(), 7 * CORE_INSTANCES_PER_COMPONENT);
    }

    #[test]
    fn the_profile_starts() {
        let runtime = Runtime::new().unwrap();
        assert!(!runtime.engine().get_concurrency_support());
        assert!(POOL_SIZES.contains(&u32::try_from(runtime.slots.available_permits()).unwrap()));
    }

    #[test]
    fn what_one_engine_compiles_the_other_runs() {
        let component = compiling().unwrap().precompile_component(b"\0asm\x0d\0\x01\0").unwrap();
        crate::cache::deserialize(Runtime::new().unwrap().engine(), &component).unwrap();
    }
}
