//! A guest's store: its limits, its closed WASI and its call; one fresh instance per call.

use std::pin::pin;
use std::time::{Duration, Instant};

use wasmtime::component::{ResourceTable, Val};
use wasmtime::{Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::door::Door;
use crate::limits::{EPOCH_TICK, Limits};
use crate::load::Linked;
use crate::over::{Growth, OverLimit, limit_of};
use crate::wasi::{self, Log};

/// What a guest's store holds.
pub(crate) struct Guest {
    wasi: WasiCtx,
    table: ResourceTable,
    growth: Growth,
    /// What answers its calls.
    pub(crate) door: Door,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// How a guest's run ended.
#[derive(Debug)]
pub(crate) enum Run {
    /// It returned these values.
    Returned(Vec<Val>),
    /// It trapped.
    Trapped(String),
    /// It exceeded the limit of this name.
    Limit(&'static str),
    /// It returned more than is brought from the process that ran it; whether as an error.
    TooLarge { error: bool },
    /// The process that ran it was lost.
    Lost,
}

/// The limits that are held where a guest runs; all others are held where its calls are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) memory_bytes_max: usize,
    pub(crate) host_call_bytes_max: usize,
    pub(crate) handles_max: u32,
    pub(crate) random_bytes_max: usize,
    pub(crate) log_bytes_max: usize,
    pub(crate) wall_time_max: Duration,
}

impl Bounds {
    pub(crate) const fn of(limits: &Limits) -> Self {
        Self {
            memory_bytes_max: limits.memory_bytes_max,
            host_call_bytes_max: limits.host_call_bytes_max,
            handles_max: limits.handles_max,
            random_bytes_max: limits.random_bytes_max,
            log_bytes_max: limits.log_bytes_max,
            wall_time_max: limits.wall_time_max,
        }
    }
}

/// Runs one tool in an instance of its own.
pub(crate) async fn run(
    linked: &Linked,
    tool: usize,
    door: Door,
    bounds: Bounds,
    arguments: Vec<Val>,
    log: &Log,
) -> Run {
    let mut store = store(linked, door, bounds, log);
    let ended = {
        let running = pin!(invoke(linked, tool, &mut store, arguments));
        // Epochs do not interrupt host calls, so the whole run has a timer as well.
        tokio::time::timeout(bounds.wall_time_max, running).await
    };
    match ended {
        Err(_) => Run::Limit("wall-time"),
        Ok(Ok(values)) => Run::Returned(values),
        Ok(Err(error)) => limit_of(&error, &store.data().growth).map_or_else(|| trap(&error), Run::Limit),
    }
}

fn trap(error: &wasmtime::Error) -> Run {
    match error.downcast_ref::<wasmtime::Trap>() {
        Some(trap) => Run::Trapped(trap.to_string()),
        None if error.is::<wasmtime_wasi::I32Exit>() => Run::Trapped("it exited".to_owned()),
        None => Run::Trapped(error.root_cause().to_string()),
    }
}

fn store(linked: &Linked, door: Door, bounds: Bounds, log: &Log) -> Store<Guest> {
    let mut table = ResourceTable::new();
    let handles = bounds.handles_max as usize;
    table.set_max_capacity(handles);
    let growth = Growth::new(bounds.memory_bytes_max);
    let guest = Guest { wasi: wasi::context(log, bounds.random_bytes_max), table, growth, door };
    let mut store = Store::new(linked.pre.component().engine(), guest);
    store.limiter(|guest| &mut guest.growth);
    store.set_hostcall_fuel(bounds.host_call_bytes_max);
    store.set_max_component_handles(handles);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(interrupt(bounds.wall_time_max));
    store
}

/// Ticks after which a guest lets others go first once more at each tick.
const OLDER_AFTER_TICKS: u32 = 50;
/// How often it lets them go first at most.
const YIELDS_MAX: u32 = 8;

/// How often a guest that has computed for so many ticks lets others go first: whoever has just begun is soon
/// done, and waits for those who spin only as long as a few of them take.
fn yields(ticks: u32) -> u32 {
    (1 + ticks / OLDER_AFTER_TICKS).min(YIELDS_MAX)
}

/// Yields to other tasks at each tick, and ends the guest when its time is over.
fn interrupt(
    wall: Duration,
) -> impl FnMut(wasmtime::StoreContextMut<'_, Guest>) -> wasmtime::Result<UpdateDeadline> + Send + Sync {
    let started = Instant::now();
    debug_assert!(wall > EPOCH_TICK, "a guest needs a tick to start");
    let mut ticks = 0_u32;
    move |_| {
        if started.elapsed() >= wall {
            return Err(OverLimit("wall-time").into());
        }
        ticks = ticks.saturating_add(1);
        let times = yields(ticks);
        // Not the plain async yield: tokio would run this task again before all others.
        let yielding = async move {
            for _ in 0..times {
                tokio::task::yield_now().await;
            }
        };
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(yielding)))
    }
}

async fn invoke(
    linked: &Linked,
    tool: usize,
    store: &mut Store<Guest>,
    arguments: Vec<Val>,
) -> wasmtime::Result<Vec<Val>> {
    let absent = || wasmtime::format_err!("the export is not there");
    let tool = linked.tools.get(tool).ok_or_else(absent)?;
    let instance = linked.pre.instantiate_async(&mut *store).await?;
    let function = instance.get_func(&mut *store, tool.index).ok_or_else(absent)?;
    let mut results = vec![Val::Bool(false); usize::from(tool.returns)];
    function.call_async(&mut *store, &arguments, &mut results).await?;
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_a_guest_computes_the_more_often_others_go_first() {
        assert_eq!((yields(1), yields(OLDER_AFTER_TICKS - 1)), (1, 1));
        assert_eq!(yields(OLDER_AFTER_TICKS), 2);
        assert_eq!(yields(u32::MAX), YIELDS_MAX);
    }
}
