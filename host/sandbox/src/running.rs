//! One call from its checked request to its answer, which may be asked for more than once.
//!
//! The guest runs in a task of its own: whoever waits for it may give up and come back.

use std::io;
use std::sync::Arc;

use oncegate_ledger::StreamId;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wasmtime::component::Val;

use crate::attached::Attached;
use crate::call::Call;
use crate::client_key::{ClientKey, Used};
use crate::convert;
use crate::describe::ToolDescription;
use crate::guest::Run;
use crate::host::{Host, digest};
use crate::outcome::{Ended, Outcome};
use crate::sandbox::Sandbox;
use crate::stop::Stop;
use crate::wasi::Log;

/// A request that was checked.
pub struct Ready {
    sandbox: Sandbox,
    call: Arc<Call>,
    arguments: Vec<Val>,
}

impl Ready {
    pub(crate) fn new(sandbox: Sandbox, call: Arc<Call>, arguments: Vec<Val>) -> Self {
        Self { sandbox, call, arguments }
    }

    /// The same for two requests that differ in nothing: component, tool, arguments, context, client's key.
    #[must_use]
    pub fn identity(&self) -> [u8; 32] {
        self.call.identity()
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.sandbox.host
    }

    pub(crate) fn call(&self) -> &Call {
        &self.call
    }

    /// If the client sent its own key along with the call: it is refused where that was used for something
    /// else before.
    #[must_use]
    pub fn with_client_key(self, key: Option<&ClientKey>) -> Self {
        if let Some(key) = key {
            let stream = StreamId::client_key(self.call.tenant(), key.text());
            self.call.set_client_key(Used { stream, call: self.request() });
        }
        self
    }

    /// Tool, arguments and facts; which permit covers it, and which build of the tool runs, is no part of it.
    fn request(&self) -> [u8; 32] {
        let arguments = self.call.arguments.to_string();
        let owner = &self.call.contract().component.name;
        let mut parts: Vec<&[u8]> = vec![owner.as_bytes(), self.call.tool.as_bytes(), arguments.as_bytes()];
        for (name, value) in self.call.context.iter().filter(|(name, _)| *name != "permit") {
            parts.extend([name.as_bytes(), value.as_bytes()]);
        }
        digest(&parts)
    }

    /// Gives the call nothing that sends an effect, or writes.
    pub(crate) fn only_look(&self) -> Arc<Call> {
        self.call.only_look();
        Arc::clone(&self.call)
    }

    /// The tenant that the call is for; empty where nobody named any.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.call.tenant()
    }

    /// Bytes of its arguments as JSON, about.
    #[must_use]
    pub fn arguments_bytes(&self) -> usize {
        self.call.arguments.to_string().len()
    }

    /// The component's digest.
    #[must_use]
    pub fn component(&self) -> [u8; 32] {
        self.call.component.description.digest
    }

    /// The guest begins by this turn, which its caller took. It is dropped when the guest first waits for an answer, or
    /// has ended; from then on the guest has turns as all have that were begun.
    #[must_use]
    pub fn with_turn(self, turn: impl Send + 'static) -> Self {
        self.call.turn.is(Box::new(turn));
        self
    }

    /// Runs the guest for as long as this is waited for; when it is dropped the guest goes on in a task of its own.
    pub(crate) fn attached(self) -> (Arc<Call>, Attached<Ended>) {
        let (log, call) = (Log::new(self.call.limits.log_bytes_max), self.call);
        let running = run_until(Arc::clone(&call), self.arguments, log, std::future::pending());
        let attached = Attached::new(running, &call.host.tasks);
        (call, attached)
    }

    /// Runs the guest.
    #[must_use]
    pub fn start(self) -> Running {
        self.start_holding(())
    }

    /// Runs the guest, and drops what is held when it has ended, whoever waits for it then.
    #[must_use]
    pub fn start_holding(self, held: impl Send + 'static) -> Running {
        let log = Log::new(self.call.limits.log_bytes_max);
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let task = run_until(Arc::clone(&self.call), self.arguments, log.clone(), stopped);
        let open = self.sandbox.host.meter.open();
        let guest = self.sandbox.host.tasks.spawn(async move {
            let ended = task.await;
            drop((held, open));
            ended
        });
        Running { sandbox: self.sandbox, call: self.call, guest, ended: None, log, stop }
    }
}

/// A call whose guest runs or has run. Dropping it leaves the guest running.
pub struct Running {
    sandbox: Sandbox,
    call: Arc<Call>,
    guest: JoinHandle<Ended>,
    ended: Option<Ended>,
    log: Log,
    stop: CancellationToken,
}

impl Running {
    /// Waits until the guest has ended; may be dropped and asked again.
    pub async fn ended(&mut self) {
        if self.ended.is_none() {
            let joined = (&mut self.guest).await;
            self.ended = Some(joined.unwrap_or_else(|_| failed()));
        }
    }

    /// Whether the guest has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended.is_some() || self.guest.is_finished()
    }

    /// What the agent is told now, from the rows of the effects that the guest asked for.
    pub async fn outcome(&mut self) -> Outcome {
        if self.guest.is_finished() {
            self.ended().await;
        }
        self.sandbox.outcome(&self.call, self.ended.clone().unwrap_or(Ended::Running)).await
    }

    /// Ends the guest at once. No effect is dispatched after this; one that was goes on.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Effects that the guest has asked for until now.
    #[must_use]
    pub fn effects_asked(&self) -> usize {
        self.call.asked().len()
    }

    /// The effects that a person has to approve first, by key.
    #[must_use]
    pub fn awaiting_approval(&self) -> Vec<[u8; 32]> {
        let waits = |stop: &Stop| matches!(stop, Stop::AwaitingApproval | Stop::ApprovalDoesNotCount);
        let asked = self.call.asked().into_iter().filter(|one| one.stop.as_ref().is_some_and(waits));
        asked.filter_map(|one| one.key).collect()
    }

    /// What the guest printed, and how many bytes more than are kept.
    #[must_use]
    pub fn printed(&self) -> (String, u64) {
        self.log.text()
    }
}

/// Runs a call's guest to its own end.
pub(crate) async fn run(call: Arc<Call>, arguments: Vec<Val>) -> Ended {
    let log = Log::new(call.limits.log_bytes_max);
    run_until(call, arguments, log, std::future::pending()).await
}

/// What a call comes to whose guest's task failed.
pub(crate) fn failed() -> Ended {
    Ended::Trapped("the host failed while running it".to_owned())
}

async fn run_until(call: Arc<Call>, arguments: Vec<Val>, log: Log, stopped: impl Future<Output = ()>) -> Ended {
    let Some((tool, description)) = call.component.tool(&call.tool) else {
        return Ended::Trapped("there is no such tool".to_owned());
    };
    let component = Arc::clone(&call.component);
    let ended = tokio::select! {
        biased;
        () = stopped => None,
        ended = call.host.place.run(&component, tool, &call, arguments, &log) => Some(ended),
    };
    call.close();
    let (text, swallowed) = log.text();
    if !text.is_empty() {
        tracing::info!(tool = %call.tool, swallowed, output = %text, "the guest printed");
    }
    match ended {
        None => Ended::Trapped("the caller cancelled it".to_owned()),
        Some(Run::Returned(values)) => returned(&values, description, call.limits.result_bytes_max),
        Some(Run::Trapped(why)) => Ended::Trapped(oncegate_contract::safe_text(&why)),
        // What it returned was not read: it may have been its own error.
        Some(Run::Limit("result")) => Ended::TooLarge { error: true },
        Some(Run::Limit(name)) => Ended::Limit(name.to_owned()),
        Some(Run::TooLarge { error }) => Ended::TooLarge { error },
        Some(Run::Lost) => Ended::Lost,
    }
}

fn returned(values: &[Val], description: &ToolDescription, max: usize) -> Ended {
    let fits = |value: &serde_json::Value| fits(value, max);
    match convert::result_to_json(values, description) {
        Err(error) if error.too_large => Ended::TooLarge { error: false },
        Err(error) => Ended::Trapped(error.to_string()),
        Ok(convert::ToolResult::Ok(value)) if fits(&value) => Ended::Returned(value),
        Ok(convert::ToolResult::Err(value)) if fits(&value) => Ended::Failed(value),
        Ok(convert::ToolResult::Ok(_)) => Ended::TooLarge { error: false },
        Ok(convert::ToolResult::Err(_)) => Ended::TooLarge { error: true },
    }
}

/// Whether the value has at most so many bytes as JSON. It is not written anywhere for that.
fn fits(value: &serde_json::Value, max: usize) -> bool {
    struct Room(usize);
    impl io::Write for Room {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::WriteZero)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Room(max), value).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_as_long_as_its_json() {
        for value in [json!(null), json!("é\n\""), json!({ "a": [1, 2.5, true], "b": { "c": "x".repeat(300) } })] {
            let length = value.to_string().len();
            assert!(fits(&value, length) && !fits(&value, length - 1), "{value}");
        }
    }
}
