//! Tasks of revision 2025-11-25, in which the client asks for one with the call.
//!
//! The SDK speaks of tasks as the newer revision has them alone: it drops the older one's parameter and
//! has no place for its capabilities. So what an older client says of tasks is given names of our own
//! before the SDK reads it, and the answer to its greeting is completed behind the SDK.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderMap;
use oncegate::frame::{PREFIX, rename};
use oncegate_sandbox::meter::CallEnd;
use oncegate_sandbox::outcome::Outcome;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, CustomNotification, CustomResult, ErrorCode, ErrorData,
    PaginatedRequestParams, ServerNotification, ServerResult, TASKS_EXTENSION_ID,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::caller::Caller;
use super::super::facts;
use super::super::server::Server;
use super::super::tools::STATUS_TOOL;
use super::asking::{self, Seeker};
use super::driver::{self, Began, Teller, Tool};
use super::view::{Status, View};
use super::{Asked, POLL_EVERY, millis, owner};

/// The revision that has these tasks.
const REVISION: &str = "2025-11-25";
/// MCP's `_meta` key for what belongs to a task.
pub(super) const RELATED_KEY: &str = "io.modelcontextprotocol/related-task";
/// MCP's `_meta` key for what a model is told at once.
const AT_ONCE_KEY: &str = "io.modelcontextprotocol/model-immediate-response";
/// The same as a header.
const VERSION_HEADER: &str = "mcp-protocol-version";
/// Tasks in one page of `tasks/list`.
const PAGE_TASKS: usize = 50;

const WORKING: &str = "The call is being worked on as a task, and its effect happens once. Its result comes later; do \
                       not look for another way.";

/// What older clients are told of tasks when they greet.
#[derive(Clone, Copy)]
pub(in super::super) struct Greeting {
    /// There are tasks here.
    pub(in super::super) tasks: bool,
    /// Whose a task is can be told, so one may ask for one's own.
    pub(in super::super) list: bool,
}

impl Greeting {
    /// Completes the result of `initialize`.
    pub(in super::super) fn complete(self, result: &mut Value) {
        if let Some(extensions) = result.pointer_mut("/capabilities/extensions").and_then(Value::as_object_mut) {
            extensions.remove(TASKS_EXTENSION_ID);
        }
        if !self.tasks || result["protocolVersion"] != REVISION || !result["capabilities"].is_object() {
            return;
        }
        let mut tasks = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
        if self.list {
            tasks["list"] = json!({});
        }
        result["capabilities"]["tasks"] = tasks;
    }

    /// The same with a whole message.
    pub(in super::super) fn complete_message(self, message: &[u8]) -> Option<Vec<u8>> {
        let mut message: Value = serde_json::from_slice(message).ok()?;
        self.complete(message.get_mut("result")?);
        serde_json::to_vec(&message).ok()
    }
}

/// What a message says of tasks gets names of our own; and whether it is a greeting.
pub(in super::super) fn rename_in(body: Bytes, headers: &HeaderMap) -> (Bytes, bool) {
    let version = headers.get(VERSION_HEADER).and_then(|value| value.to_str().ok());
    if version.is_some_and(|version| version > REVISION) {
        return (body, false);
    }
    // Most messages say nothing of it; a word that is written in another way is only not found.
    let says = |word: &&str| memchr::memmem::find(&body, word.as_bytes()).is_some();
    if !["\"initialize\"", "\"task\"", "\"tasks/", "\"tools/list\""].iter().any(says) {
        return (body, false);
    }
    let Ok(mut message) = serde_json::from_slice::<Value>(&body) else { return (body, false) };
    let greets = message["method"] == "initialize";
    let renamed = rename(&mut message).then(|| serde_json::to_vec(&message).ok()).flatten();
    (renamed.map_or(body, Bytes::from), greets)
}

/// Answers what was renamed; none for anything else.
pub(in super::super) async fn answer(
    server: &Server,
    method: &str,
    params: Value,
    context: &RequestContext<RoleServer>,
) -> Option<Result<CustomResult, ErrorData>> {
    let method = method.strip_prefix(PREFIX)?;
    let speaks = context.protocol_version().is_some_and(|version| version.as_str() == REVISION);
    let has_tasks = speaks && server.shared.tasks.is_kept();
    let answer = match method {
        "tools/list" => list_tools(server, params, context, has_tasks).await,
        "tools/call" if has_tasks => begin(server, params, context).await,
        // Before tasks, and where there are none, the parameter says nothing.
        "tools/call" => call(server, params, context).await,
        _ if !has_tasks => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None)),
        "tasks/list" => list(server, params, context).await,
        "tasks/get" | "tasks/result" | "tasks/cancel" => one(server, method, params, context).await,
        _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, oncegate_contract::safe_text(method), None)),
    };
    Some(answer.map(CustomResult::new))
}

fn read<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, ErrorData> {
    serde_json::from_value(params).map_err(|error| ErrorData::invalid_params(format!("the parameters: {error}"), None))
}

fn written(result: impl serde::Serialize) -> Result<Value, ErrorData> {
    serde_json::to_value(result).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// A result in the older revision's form.
fn plain(mut result: ServerResult) -> Result<Value, ErrorData> {
    result.strip_result_type_for_legacy_peer();
    result.strip_non_object_output_for_legacy_peer();
    written(result)
}

async fn list_tools(
    server: &Server,
    params: Value,
    context: &RequestContext<RoleServer>,
    has_tasks: bool,
) -> Result<Value, ErrorData> {
    let request: Option<PaginatedRequestParams> = read(params)?;
    let list = server.list_tools(request, context.clone()).await?;
    let mut list = plain(ServerResult::ListToolsResult(list))?;
    let tools = list["tools"].as_array_mut().filter(|_| has_tasks);
    for tool in tools.into_iter().flatten().filter(|tool| tool["name"] != STATUS_TOOL) {
        tool["execution"] = json!({ "taskSupport": "optional" });
    }
    Ok(list)
}

async fn call(server: &Server, params: Value, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
    let response = server.call_tool(read(params)?, context.clone()).await?;
    plain(response.into())
}

#[derive(Deserialize)]
struct Augmented {
    task: Wished,
    #[serde(flatten)]
    call: CallToolRequestParams,
}

#[derive(Deserialize)]
struct Wished {
    /// Milliseconds from its creation for which it is to be kept.
    ttl: Option<u64>,
}

/// A call that is a task from the beginning.
async fn begin(server: &Server, params: Value, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
    let came = Instant::now();
    let Augmented { task, call } = read(params)?;
    let shared = &server.shared;
    let refused = |refused: Box<Outcome>| ErrorData::invalid_params(refused.message, None);
    let caller = Caller::of(context, &shared.facts).map_err(refused)?;
    if call.name == STATUS_TOOL {
        return Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            "effect_status is answered at once; call it without a task",
            None,
        ));
    }
    let catalog = shared.catalog();
    let entry = catalog.tool(&call.name).filter(|entry| catalog.is_for(entry, caller.tenant.as_deref()));
    let Some(entry) = entry else {
        let name = oncegate_contract::safe_text(&call.name);
        return Err(ErrorData::invalid_params(format!("there is no tool {name}"), None));
    };
    let facts = facts::join(&catalog.sandbox.policy().context, &caller.fixed, &caller.given).map_err(refused)?;
    let arguments = Value::Object(call.arguments.unwrap_or_default());
    let kept_for = task.ttl.map(Duration::from_millis);
    let asked = Asked { owner: owner(&caller), entry, arguments: &arguments, facts: &facts, kept_for };
    let begun = shared.tasks.begin(&shared.sandbox(), asked).await.map_err(|why| {
        // An ordinary result would not be understood by whoever asked for a task.
        ErrorData::internal_error(format!("{why}; nothing was sent. Call it without a task, or later."), None)
    })?;
    catalog.sandbox.meter().called(&entry.tool.name, CallEnd::Task, came.elapsed());
    let view = View::of(begun.id, &begun.task, begun.task.at, Status::Working, "It is being worked on.".to_owned());
    let tool = Tool {
        component: Arc::clone(&entry.component),
        function: entry.function.clone(),
        arguments,
        key: caller.key.clone(),
    };
    driver::start(shared, begun, tool, Began::Now, teller(context));
    Ok(json!({ "task": shown(&view), "_meta": { AT_ONCE_KEY: WORKING } }))
}

/// Over HTTP each request has a stream of its own, which ends with its answer.
fn teller(context: &RequestContext<RoleServer>) -> Option<Teller> {
    let lasts = context.extensions.get::<http::request::Parts>().is_none();
    lasts.then(|| Teller { peer: context.peer.clone(), token: context.meta.get_progress_token() })
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "taskId")]
    name: String,
}

async fn one(
    server: &Server,
    method: &str,
    params: Value,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    let Named { name } = read(params)?;
    let seeker = Seeker::of(server, context)?;
    let shared = &server.shared;
    match method {
        "tasks/result" => result(&asking::wait(shared, &seeker, &name, context).await?),
        "tasks/cancel" => match asking::cancel(shared, &seeker, &name).await? {
            (view, false) => Ok(shown(&view)),
            (view, true) => {
                let text = format!("the task is over already: {}", word(&view.status));
                Err(ErrorData::invalid_params(text, None))
            }
        },
        _ => Ok(shown(&asking::look(shared, &seeker, &name).await?)),
    }
}

/// What the call itself would have been answered.
fn result(view: &View) -> Result<Value, ErrorData> {
    let answer = view.answer.as_ref().ok_or_else(|| ErrorData::internal_error("there is no result", None))?;
    let result: CallToolResult = serde_json::from_value(answer.clone())
        .map_err(|_| ErrorData::internal_error("what the task was answered cannot be read", None))?;
    let mut result = plain(ServerResult::CallToolResult(result))?;
    result["_meta"][RELATED_KEY] = json!({ "taskId": view.name() });
    Ok(result)
}

async fn list(server: &Server, params: Value, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
    let seeker = Seeker::of(server, context)?;
    if seeker.owner.tenant.is_none() {
        let text = "whose tasks are asked for is not known here; ask for each with tasks/get";
        return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None));
    }
    let request: Option<PaginatedRequestParams> = read(params)?;
    let wrong = || ErrorData::invalid_params("this cursor is none that was given out here", None);
    let after = match request.and_then(|request| request.cursor) {
        Some(cursor) => {
            let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).map_err(|_| wrong())?;
            Some(bytes.try_into().map_err(|_| wrong())?)
        }
        None => None,
    };
    let (views, more) = asking::list(&server.shared, &seeker, after, PAGE_TASKS).await?;
    let mut page = json!({ "tasks": views.iter().map(shown).collect::<Vec<_>>() });
    if let Some(last) = views.last().filter(|_| more) {
        page["nextCursor"] = BASE64_URL_SAFE_NO_PAD.encode(last.id).into();
    }
    Ok(page)
}

/// `notifications/tasks/status`.
pub(super) fn changed(view: &View) -> ServerNotification {
    let notification = CustomNotification::new("notifications/tasks/status", Some(shown(view)));
    ServerNotification::CustomNotification(notification)
}

fn word(status: &Status) -> &'static str {
    match status {
        Status::Working => "working",
        Status::Cancelled => "cancelled",
        // In this revision a tool's own failure is the task's.
        Status::Answered { is_error: true } => "failed",
        Status::Answered { is_error: false } => "completed",
    }
}

fn shown(view: &View) -> Value {
    json!({
        "taskId": view.name(),
        "status": word(&view.status),
        "statusMessage": view.message,
        "createdAt": view.created(),
        "lastUpdatedAt": view.changed(),
        "ttl": view.kept_for(),
        "pollInterval": millis(POLL_EVERY),
    })
}

#[cfg(test)]
mod tests {
    use oncegate::frame::VERSION_KEY;

    use super::*;

    fn renamed(message: &Value) -> Option<String> {
        let mut message = message.clone();
        rename(&mut message).then(|| message["method"].as_str().unwrap().to_owned())
    }

    #[test]
    fn only_what_an_older_client_says_of_tasks_is_renamed() {
        let call = json!({ "method": "tools/call", "params": { "name": "x", "task": {} } });
        assert_eq!(renamed(&call).unwrap(), "dev.oncegate/2025-11-25/tools/call");
        assert_eq!(renamed(&json!({ "method": "tools/list" })).unwrap(), "dev.oncegate/2025-11-25/tools/list");
        assert_eq!(renamed(&json!({ "method": "tools/call", "params": { "name": "x" } })), None);
        assert_eq!(renamed(&json!({ "method": "ping" })), None);
        assert_eq!(renamed(&json!([])), None);
        let newer = json!({ VERSION_KEY: "2026-07-28" });
        for method in ["tasks/get", "tools/list", "tools/call"] {
            assert_eq!(renamed(&json!({ "method": method, "params": { "task": {}, "_meta": newer } })), None);
        }
        let body = Bytes::from_static(b"{\"method\":\"tools/call\",\"params\":{}}");
        assert_eq!(rename_in(body.clone(), &HeaderMap::new()), (body, false));
        let (_, greets) = rename_in(Bytes::from_static(b"{\"method\":\"initialize\"}"), &HeaderMap::new());
        assert!(greets);
    }

    #[test]
    fn a_greeting_is_completed_for_those_that_know_tasks() {
        let greeted = |version: &str, greeting: Greeting| {
            let capabilities = json!({ "extensions": { TASKS_EXTENSION_ID: {} } });
            let mut result = json!({ "protocolVersion": version, "capabilities": capabilities });
            greeting.complete(&mut result);
            assert_eq!(result["capabilities"]["extensions"], json!({}));
            result["capabilities"]["tasks"].clone()
        };
        let call = json!({ "tools": { "call": {} } });
        let all = Greeting { tasks: true, list: true };
        assert_eq!(greeted(REVISION, all), json!({ "list": {}, "cancel": {}, "requests": call }));
        assert_eq!(greeted(REVISION, Greeting { list: false, ..all }), json!({ "cancel": {}, "requests": call }));
        assert_eq!(greeted("2025-06-18", all), Value::Null);
        assert_eq!(greeted(REVISION, Greeting { tasks: false, ..all }), Value::Null);
    }
}
