//! The door between a guest and what answers its calls: the call itself, or the host's process behind a socket.
//!
//! A guest runs by the same code on both sides of a process's wall. Only what its calls come to differs: in the host's
//! process they are performed, in a runner they are forwarded.

use std::sync::Arc;

use crate::call::Call;
use crate::effect::{self, EffectError, Field, LookupError, Response};
use crate::over::OverLimit;

/// A call of one of the interfaces, as the guest made it.
#[derive(Debug)]
pub(crate) enum Ask {
    /// `lookup.fetch`
    Fetch { operation: String, fields: Vec<Field> },
    /// `effect.perform`
    Perform { operation: String, fields: Vec<Field> },
    /// `context.get`
    Context { name: String },
}

/// What a guest is told.
#[derive(Debug)]
pub(crate) enum Told {
    Fetch(Result<Response, LookupError>),
    Perform(Result<Response, EffectError>),
    Context(Option<String>),
    /// It is ended: the limit of this name is used up.
    OverLimit(&'static str),
    /// It is ended, for this reason.
    Trap(String),
}

impl Told {
    /// Ends the guest, where that is what it comes to; an answer to another question ends it too.
    pub(crate) fn end(self) -> wasmtime::Error {
        match self {
            Self::OverLimit(name) => OverLimit(name).into(),
            Self::Trap(why) => wasmtime::format_err!("{why}"),
            Self::Fetch(_) | Self::Perform(_) | Self::Context(_) => {
                wasmtime::format_err!("the answer is to another question")
            }
        }
    }
}

/// What answers a guest.
pub(crate) enum Door {
    /// Its call, in this process.
    Call(Arc<Call>),
    /// The host, from within a runner.
    #[cfg(target_os = "linux")]
    Host(crate::runner::HostDoor),
}

impl Door {
    pub(crate) async fn ask(&mut self, ask: Ask) -> wasmtime::Result<Told> {
        match self {
            Self::Call(call) => Ok(effect::answer(call, ask).await),
            #[cfg(target_os = "linux")]
            Self::Host(host) => host.ask(ask).await,
        }
    }
}
