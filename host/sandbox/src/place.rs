//! Where guests run: in this process, or in runner processes behind the system's walls.
//!
//! What a call comes to is the same in both: status, effects, attempts and answers are the host's own in either.

use std::num::NonZeroUsize;
use std::sync::Arc;

use wasmtime::component::Val;

use crate::cache::Cache;
use crate::call::Call;
use crate::describe::Description;
use crate::door::Door;
use crate::engine::Runtime;
use crate::guest::{self, Bounds, Run};
use crate::isolation::{IsolationError, Program};
use crate::limits::Limits;
use crate::load::{self, Code, ComponentError, Linked, Loaded};
use crate::wasi::Log;

/// Where guests run.
pub(crate) enum Place {
    /// In this process.
    Here(Runtime),
    /// In processes of their own.
    #[cfg(target_os = "linux")]
    Runners(crate::runner::Pool),
}

impl Place {
    /// Processes of their own, one for each core or so many; one is started to see that it can be.
    pub(crate) fn runners(program: Program, count: Option<NonZeroUsize>) -> Result<Self, IsolationError> {
        #[cfg(target_os = "linux")]
        return Ok(Self::Runners(crate::runner::Pool::start(program, count)?));
        #[cfg(not(target_os = "linux"))]
        {
            drop((program, count));
            Err(IsolationError::NotHere)
        }
    }

    /// Makes a component's code ready: from the cache, or compiled.
    pub(crate) fn load(
        &self,
        of: &Description,
        bytes: &[u8],
        cache: &Cache,
        limits: &Limits,
    ) -> Result<Code, ComponentError> {
        match self {
            Self::Here(runtime) => {
                let component = cache.load(runtime.engine(), &of.digest, bytes)?;
                Ok(Code::Here(load::link(runtime.engine(), &component, of.class, &load::exports(of))?))
            }
            #[cfg(target_os = "linux")]
            Self::Runners(pool) => Ok(Code::Runners(pool.load(of, bytes, cache, limits.compile_time_max)?)),
        }
    }

    /// Runs one tool in an instance of its own.
    pub(crate) async fn run(
        &self,
        component: &Loaded,
        tool: usize,
        call: &Arc<Call>,
        arguments: Vec<Val>,
        log: &Log,
    ) -> Run {
        match (self, &component.code) {
            (Self::Here(runtime), Code::Here(linked)) => here(runtime, linked, tool, call, arguments, log).await,
            #[cfg(target_os = "linux")]
            (Self::Runners(pool), Code::Runners(sealed)) => {
                call.turn.begin(&call.host.computing).await;
                // Boxed: what answers its guest is large, and a guest in this process needs none of it.
                Box::pin(pool.run(sealed, tool, call, &arguments, log)).await
            }
            #[cfg(target_os = "linux")]
            _ => Run::Trapped("the component was loaded for another host".to_owned()),
        }
    }
}

async fn here(
    runtime: &Runtime,
    linked: &Linked,
    tool: usize,
    call: &Arc<Call>,
    arguments: Vec<Val>,
    log: &Log,
) -> Run {
    let Ok(_slot) = runtime.slots.clone().acquire_owned().await else {
        return Run::Limit("calls-at-once");
    };
    call.turn.begin(&call.host.computing).await;
    let bounds = Bounds::of(&call.limits);
    guest::run(linked, tool, Door::Call(Arc::clone(call)), bounds, arguments, log).await
}
