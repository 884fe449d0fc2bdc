//! The other side: wasmtime itself, driven as somebody who knows it would, with the same safe profile.
//!
//! Same engine profile (a pool of as many slots, copy-on-write, what stays resident, zeroed stacks, no component-model
//! async), epochs with the callback that lets tokio's other tasks go first, a limiter over all memories, the fuel of
//! host calls, a closed WASI with bounded output and a coarse clock, a timer around the run, a semaphore of the pool's
//! size, a component that was linked before, a new store for each call, and bindings that the compiler made from the
//! WIT. It does without all else: no JSON, no contract, no policy, no ledger, no attribution of limits, no answer while
//! a guest runs on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::sync::Semaphore;
use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, ResourceLimiter, Store,
    UpdateDeadline,
};
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{HostMonotonicClock, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

mod bindings {
    #![allow(missing_docs, unreachable_pub, clippy::all, reason = "generated from the WIT files")]
    wasmtime::component::bindgen!({
        path: ["../../wit", "../guests/tariff/wit"],
        world: "test:tariff/tool",
        exports: { default: async },
    });
}

pub(crate) use bindings::exports::test::tariff::tariff::{Parcel, Price, Zone};

/// As many as ours has: how many slots the pool has is a part of the profile.
const SLOTS: u32 = 1_024;
const MEMORY_BYTES_MAX: usize = 64 << 20;
const WALL_TIME_MAX: Duration = Duration::from_secs(60);

struct Guest {
    wasi: WasiCtx,
    table: ResourceTable,
    memory: Memory,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// All memories of a store together.
struct Memory(usize);

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.0 += desired - current;
        Ok(self.0 <= MEMORY_BYTES_MAX)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= 20_000)
    }
}

struct Coarse(Instant);

impl HostMonotonicClock for Coarse {
    fn resolution(&self) -> u64 {
        1_000_000
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_mul(1_000_000)
    }
}

/// An engine with the component.
pub(crate) struct Bare {
    tool: bindings::ToolPre<Guest>,
    slots: Arc<Semaphore>,
    stop: Arc<AtomicBool>,
}

impl Bare {
    pub(crate) fn new(component: &Path) -> Result<Self> {
        let engine = Engine::new(&config())?;
        let component = Component::from_file(&engine, component)?;
        let mut linker: Linker<Guest> = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        let tool = bindings::ToolPre::new(linker.instantiate_pre(&component)?)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (weak, stopped) = (engine.weak(), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                if let Some(engine) = weak.upgrade() {
                    engine.increment_epoch();
                }
            }
        });
        Ok(Self { tool, slots: Arc::new(Semaphore::new(SLOTS as usize)), stop })
    }

    /// One call in an instance of its own.
    pub(crate) async fn quote(&self, parcel: &Parcel) -> Result<Price> {
        let _slot = self.slots.acquire().await?;
        let mut store = self.store();
        let running = async {
            let tool = self.tool.instantiate_async(&mut store).await?;
            tool.test_tariff_tariff().call_quote(&mut store, parcel).await
        };
        match tokio::time::timeout(WALL_TIME_MAX, running).await.context("it took too long")?? {
            Ok(price) => Ok(price),
            Err(why) => bail!("{why}"),
        }
    }

    fn store(&self) -> Store<Guest> {
        let output = MemoryOutputPipe::new(64 << 10);
        let wasi = WasiCtxBuilder::new()
            .stdout(output.clone())
            .stderr(output)
            .max_random_size(4_096)
            .monotonic_clock(Coarse(Instant::now()))
            .build();
        let mut table = ResourceTable::new();
        table.set_max_capacity(1_000);
        let mut store = Store::new(self.tool.engine(), Guest { wasi, table, memory: Memory(0) });
        store.limiter(|guest| &mut guest.memory);
        store.set_hostcall_fuel(4 << 20);
        store.set_max_component_handles(1_000);
        store.set_epoch_deadline(1);
        let started = Instant::now();
        store.epoch_deadline_callback(move |_| {
            if started.elapsed() >= WALL_TIME_MAX {
                wasmtime::bail!("it took too long");
            }
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        store
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .gc_support(false)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(false)
        .epoch_interruption(true)
        .memory_init_cow(true)
        .max_wasm_stack(512 << 10)
        .async_stack_size(2 << 20)
        .async_stack_zeroing(true)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
    config
}

fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(SLOTS)
        .total_core_instances(SLOTS * 40)
        .total_memories(SLOTS * 4)
        .total_tables(SLOTS * 8)
        .total_stacks(SLOTS)
        .max_core_instances_per_component(40)
        .max_memories_per_component(4)
        .max_memories_per_module(1)
        .max_tables_per_component(8)
        .table_elements(20_000)
        .max_memory_size(256 << 20)
        .linear_memory_keep_resident(64 << 10)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .pagemap_scan(Enabled::No);
    pool
}
