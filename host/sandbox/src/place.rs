//! Where guests run: in this process, or in runner processes behind the system's walls.
//!
//! What a call comes to is the same in both: status, effects, attempts and answers are the host's own in either.

use std::num::NonZeroUsize;
use std::sync::Arc;

use wasmtime::component::Val;

use crate::cache::Cache;
use crate::call::Call;
use crate::causes::chain;
use crate::describe::Description;
use crate::door::Door;
use crate::engine::Runtime;
use crate::guest::{self, Bounds, Run};
use crate::isolation::{IsolationError, Program};
use crate::limits::Limits;
use crate::load::{self, Code, ComponentError, Linked, Loaded, Source};
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
    /// Processes of their own, one for each core or so many. One is being started to see that it can be;
    /// [`Place::begun`] says whether it was.
    pub(crate) fn runners(program: Program, count: Option<NonZeroUsize>) -> Result<Self, IsolationError> {
        #[cfg(target_os = "linux")]
        return Ok(Self::Runners(crate::runner::Pool::start(program, count)?));
        #[cfg(not(target_os = "linux"))]
        {
            drop((program, count));
            Err(IsolationError::NotHere)
        }
    }

    /// Waits until it is known that guests can run here.
    pub(crate) fn begun(&self) -> Result<(), IsolationError> {
        match self {
            Self::Here(_) => Ok(()),
            #[cfg(target_os = "linux")]
            Self::Runners(pool) => pool.begun(),
        }
    }

    /// Makes a component's code ready: from the cache, or compiled.
    pub(crate) fn load(
        &self,
        of: &Description,
        bytes: &Source<'_>,
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

    /// Whether there seems to be code of the component in the cache.
    pub(crate) fn seems_kept(&self, digest: &[u8; 32], cache: &Cache) -> bool {
        match self {
            Self::Here(runtime) => cache.seems_compiled(runtime.engine(), digest),
            #[cfg(target_os = "linux")]
            Self::Runners(pool) => cache.seems_compiled(pool.engine(), digest),
        }
    }

    /// Runs one tool in an instance of its own.
    pub(crate) async fn run(
        &self,
        component: &Arc<Loaded>,
        tool: usize,
        call: &Arc<Call>,
        arguments: Vec<Val>,
        log: &Log,
    ) -> Run {
        let code = match component.code(&call.host).await {
            Ok(code) => code,
            Err(error) => return Run::Trapped(chain(&error)),
        };
        match (self, code) {
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
