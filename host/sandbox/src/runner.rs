//! Processes that run guests, and the one that compiles: what is said between them and the host.
//!
//! `inside` is what happens in a runner, `pool` and `peer` how the host sees it. A runner is trusted with nothing: it
//! speaks only for calls that were given to it, and says of them only what a guest could.

mod attempts;
pub(crate) mod compiler;
mod filter;
mod frames;
pub(crate) mod inside;
mod lockdown;
mod outbox;
mod peer;
mod pool;
mod process;
mod sealed;
mod system;
mod values;
mod wire;

pub(crate) use inside::HostDoor;
pub(crate) use pool::Pool;
pub(crate) use process::examine;
pub(crate) use sealed::Sealed;
