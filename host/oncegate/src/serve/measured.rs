//! Calls, measured: what they came to, how long they took, and their spans.

use std::time::Instant;

use oncegate_sandbox::Sandbox;
use oncegate_sandbox::meter::{CallEnd, spans};
use oncegate_sandbox::outcome::{Outcome, Status};
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, JsonObject};
use rmcp::service::RequestContext;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::caller::Caller;
use super::catalog::Entry;
use super::elicit::{self, Told};
use super::server::{Server, Shared};
use super::status;
use super::tools::STATUS_TOOL;

/// The W3C name of a caller's trace, in `_meta` and as a header.
const TRACEPARENT: &str = "traceparent";

/// One call of a tool of a component.
pub(super) async fn call(
    server: &Server,
    sandbox: &Sandbox,
    entry: &Entry,
    request: CallToolRequestParams,
    caller: &Caller,
    context: &RequestContext<RoleServer>,
) -> Told {
    let (began, tool) = (Instant::now(), &entry.tool.name);
    let span = span(tool, context);
    let told = elicit::call(server, sandbox, entry, request, caller, context).instrument(span.clone()).await;
    let end = match &told {
        Told::Outcome(outcome) => {
            refused(sandbox, outcome);
            spans::told(&span, outcome);
            CallEnd::Outcome(outcome.status)
        }
        Told::Asked(_) => CallEnd::InputRequired,
        Told::Task(_) => CallEnd::Task,
    };
    if !matches!(told, Told::Outcome(_)) {
        spans::answered(&span, end);
    }
    sandbox.meter().called(tool, end, began.elapsed());
    told
}

/// One question of the host's own tool.
pub(super) async fn status(
    shared: &Shared,
    caller: &Caller,
    arguments: &JsonObject,
) -> Result<status::Answer, Box<Outcome>> {
    let began = Instant::now();
    let answer = Box::pin(status::answer(shared, caller, arguments)).await;
    let sandbox = shared.sandbox();
    let status = match &answer {
        Ok(_) => Status::Done,
        Err(outcome) => {
            refused(&sandbox, outcome);
            outcome.status
        }
    };
    sandbox.meter().called(STATUS_TOOL, CallEnd::Outcome(status), began.elapsed());
    answer
}

/// Counts a refusal, if it is one.
pub(super) fn refused(sandbox: &Sandbox, outcome: &Outcome) {
    if let Some(code) = outcome.code {
        sandbox.meter().refused(code);
    }
}

fn span(tool: &str, context: &RequestContext<RoleServer>) -> Span {
    tracing::info_span!(target: "telemetry", "call", "gen_ai.operation.name" = "execute_tool",
        "gen_ai.tool.name" = tool, "mcp.method.name" = "tools/call", traceparent = traceparent(context),
        "oncegate.status" = Empty, "oncegate.replayed" = Empty, "error.type" = Empty)
}

/// What the caller says that its trace is. Nothing but the span listens to it.
fn traceparent(context: &RequestContext<RoleServer>) -> Option<&str> {
    if let Some(said) = context.meta.0.0.get(TRACEPARENT) {
        return said.as_str();
    }
    let parts = context.extensions.get::<http::request::Parts>()?;
    let mut said = parts.headers.get_all(TRACEPARENT).iter();
    said.next().filter(|_| said.next().is_none())?.to_str().ok()
}
