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

/// Guests that run at once; more wait. Each slot reserves address space, not memory.
pub const CALLS_AT_ONCE_MAX: u32 = 64;
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
        let (engine, pooled) = match Engine::new(&config(true)) {
            Ok(engine) => (engine, true),
            Err(error) => {
                tracing::warn!(%error, "no pool of instances; calls will be slower");
                let engine = Engine::new(&config(false)).map_err(|error| EngineError(error.to_string()))?;
                (engine, false)
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        start_ticker(&engine, stop.clone())?;
        Ok(Self { engine, slots: Arc::new(Semaphore::new(CALLS_AT_ONCE_MAX as usize)), stop, pooled })
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

/// An engine that only compiles: it holds no pool and runs nothing. Its code is the same as a [`Runtime`]'s.
pub(crate) fn compiling() -> Result<Engine, EngineError> {
    Engine::new(&config(false)).map_err(|error| EngineError(error.to_string()))
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

fn config(pooled: bool) -> Config {
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
    if pooled {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
    }
    config
}

fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(CALLS_AT_ONCE_MAX)
        .total_core_instances(CALLS_AT_ONCE_MAX * CORE_INSTANCES_PER_COMPONENT)
        .total_memories(CALLS_AT_ONCE_MAX * MEMORIES_PER_COMPONENT)
        .total_tables(CALLS_AT_ONCE_MAX * TABLES_PER_COMPONENT)
        .total_stacks(CALLS_AT_ONCE_MAX)
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
        assert!(matches!(pool().get_pagemap_scan(), Enabled::No));
    }

    #[test]
    fn no_component_takes_the_instances_of_others() {
        let pool = pool();
        assert_eq!(pool.get_max_core_instances_per_component(), CORE_INSTANCES_PER_COMPONENT);
        assert_eq!(pool.get_total_core_instances(), CALLS_AT_ONCE_MAX * CORE_INSTANCES_PER_COMPONENT);
    }

    #[test]
    fn the_profile_starts() {
        let runtime = Runtime::new().unwrap();
        assert!(!runtime.engine().get_concurrency_support());
    }

    #[test]
    fn what_one_engine_compiles_the_other_runs() {
        let component = compiling().unwrap().precompile_component(b"\0asm\x0d\0\x01\0").unwrap();
        crate::cache::deserialize(Runtime::new().unwrap().engine(), &component).unwrap();
    }
}
