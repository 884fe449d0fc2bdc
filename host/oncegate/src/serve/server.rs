//! The MCP server, whatever carries its messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use oncegate_sandbox::Sandbox;
use oncegate_sandbox::outcome::Outcome;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CustomRequest, CustomResult, ErrorCode,
    ErrorData, GetTaskParams, GetTaskResult, Implementation, JsonObject, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerConfig, SubscriptionFilter, TASKS_EXTENSION_ID, Tool,
    UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::caller::Caller;
use super::catalog::Catalog;
use super::elicit::{Elicitation, Told};
use super::facts::Facts;
use super::tasks::{Keeper, newer, older};
use super::tools::{STATUS_TOOL, status_tool};
use super::turns::Turns;
use super::waiting::Waiting;
use super::{answers, logs, measured, stdio};

/// Tools in one page of `tools/list`.
const PAGE_TOOLS: usize = 100;

const INSTRUCTIONS: &str = "The effects of these tools happen once. After a time-out or a lost answer call again with the \
                            same arguments: what was done is answered with its first receipt and is not done again.";

/// What all connections share.
pub(super) struct Shared {
    /// Facts that the command line fixes.
    pub(super) facts: Facts,
    pub(super) waiting: Waiting,
    pub(super) turns: Turns,
    /// What asking a client's person needs; none without a ledger.
    pub(super) elicitation: Option<Elicitation>,
    pub(super) tasks: Keeper,
    /// Fires when no more calls are taken.
    pub(super) closing: CancellationToken,
    /// Fires when guests are not waited for any more.
    pub(super) stop: CancellationToken,
    catalog: RwLock<Arc<Catalog>>,
    changes: watch::Sender<u64>,
}

impl Shared {
    pub(super) fn new(catalog: Catalog, facts: Facts, elicitation: Option<Elicitation>, task_after: Duration) -> Self {
        Self {
            tasks: Keeper::new(&catalog.sandbox, task_after),
            facts,
            waiting: Waiting::default(),
            turns: Turns::default(),
            elicitation,
            closing: CancellationToken::new(),
            stop: CancellationToken::new(),
            catalog: RwLock::new(Arc::new(catalog)),
            changes: watch::Sender::new(0),
        }
    }

    /// The tools, and what a call runs under that begins now. A call takes it once.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What belongs to no call runs under this now.
    pub(super) fn sandbox(&self) -> Sandbox {
        self.catalog().sandbox.clone()
    }

    /// Serves these tools to calls that begin from now on.
    pub(super) fn replace(&self, catalog: Catalog) {
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalog);
    }

    /// Tells clients that listen that they are shown other tools.
    pub(super) fn tell_of_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Changes of the tools from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What clients of the older revision are told of tasks.
    pub(super) fn greeting(&self, list: bool) -> older::Greeting {
        older::Greeting { tasks: self.tasks.is_kept(), list }
    }
}

/// One connection's server.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) shared: Arc<Shared>,
    /// The lowest level of logging that the client wants.
    pub(super) level: Arc<AtomicU8>,
    /// In a session of HTTP: ends with it what tells its client of changes.
    session: Option<(CancellationToken, Arc<DropGuard>)>,
}

impl Server {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, level: Arc::new(AtomicU8::new(logs::DEFAULT)), session: None }
    }

    /// For a connection that lasts, over HTTP.
    pub(super) fn in_session(shared: Arc<Shared>) -> Self {
        let ended = CancellationToken::new();
        let guard = Arc::new(ended.clone().drop_guard());
        Self { session: Some((ended, guard)), ..Self::new(shared) }
    }

    /// The tools of a caller, by name.
    fn tools(&self, caller: &Caller) -> BTreeMap<String, Tool> {
        let catalog = self.shared.catalog();
        let entries = catalog.tools().into_iter().filter(|entry| catalog.is_for(entry, caller.tenant.as_deref()));
        let tools = entries.map(|entry| entry.tool.clone()).chain([status_tool()]);
        tools.map(|tool| (tool.name.to_string(), tool)).collect()
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = logs::capabilities(answers::are_offered(&self.shared.catalog()));
        if self.shared.tasks.is_kept() {
            let extensions = capabilities.extensions.get_or_insert_default();
            extensions.insert(TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
        }
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("oncegate", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = Caller::of(&context, &self.shared.facts).map_err(|refused| protocol_error(&refused))?;
        let after = request.and_then(|request| request.cursor).map(|cursor| read_cursor(&cursor)).transpose()?;
        let tools = self.tools(&caller).into_iter();
        let mut tools = tools.filter(|(name, _)| after.as_ref().is_none_or(|after| name > after));
        let page: Vec<_> = tools.by_ref().take(PAGE_TOOLS).collect();
        let more = tools.next().is_some();
        let next = page.last().filter(|_| more).map(|(name, _)| BASE64_URL_SAFE_NO_PAD.encode(name));
        let tools = page.into_iter().map(|(_, tool)| tool).collect();
        Ok(ListToolsResult { next_cursor: next, ..ListToolsResult::with_all_items(tools) })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = match Caller::of(&context, &self.shared.facts) {
            Ok(caller) => caller,
            Err(refused) => {
                measured::refused(&self.shared.sandbox(), &refused);
                return answer(&*refused, true);
            }
        };
        if request.name == STATUS_TOOL {
            let arguments = request.arguments.unwrap_or_default();
            return match measured::status(&self.shared, &caller, &arguments).await {
                Ok(found) => answer(&found, false),
                Err(refused) => answer(&*refused, true),
            };
        }
        let catalog = self.shared.catalog();
        let entry = catalog.tool(&request.name).filter(|entry| catalog.is_for(entry, caller.tenant.as_deref()));
        let Some(entry) = entry else {
            let name = oncegate_contract::safe_text(&request.name);
            return Err(ErrorData::invalid_params(format!("there is no tool {name}"), None));
        };
        // Boxed, as all that is large here: the SDK moves the future of every request some times, whatever it is for.
        match Box::pin(measured::call(self, &catalog.sandbox, entry, request, &caller, &context)).await {
            Told::Outcome(outcome) => told(&outcome).map(CallToolResponse::from),
            Told::Asked(question) => Ok((*question).into()),
            Told::Task(task) => Ok((*task).into()),
        }
    }

    async fn get_task(
        &self,
        task: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        newer::get(self, &task.task_id, &context).await
    }

    async fn update_task(&self, task: UpdateTaskParams, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        newer::update(self, &task.task_id, &context).await
    }

    async fn cancel_task(&self, task: CancelTaskParams, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        newer::cancel(self, &task.task_id, &context).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = Caller::of(&context, &self.shared.facts).map_err(|refused| protocol_error(&refused))?;
        Box::pin(answers::read(&self.shared.catalog(), &caller, &request.uri)).await.map(Into::into)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.catalog().tool(name).map(|entry| entry.tool.clone())
    }

    async fn set_level(&self, request: logs::SetLevel, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.level.store(logs::level(&request), Ordering::Relaxed);
        Ok(())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Some((ended, _)) = &self.session else { return };
        let (ended, changes) = (ended.clone(), self.shared.changes());
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = stdio::tell(context.peer, changes) => {}
            }
        });
    }

    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.shared.changes();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = self.shared.closing.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// A request that is none of the protocol's, or has not its form.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let params = request.params.clone().unwrap_or_default();
        if let Some(answer) = Box::pin(older::answer(self, &request.method, params, &context)).await {
            return answer;
        }
        if request.method == "tools/call" {
            let text = "`name` must be a text and `arguments` an object";
            return Err(ErrorData::invalid_params(text, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, oncegate_contract::safe_text(&request.method), None))
    }
}

fn answer(body: &impl Serialize, is_error: bool) -> Result<CallToolResponse, ErrorData> {
    result(body, is_error).map(CallToolResponse::from)
}

/// What the client of a call is told of its outcome.
pub(super) fn told(outcome: &Outcome) -> Result<CallToolResult, ErrorData> {
    let mut result = result(outcome, outcome.is_error())?;
    result.content.extend(answers::links(outcome));
    Ok(result)
}

/// Structured content, and the same as one text.
fn result(body: &impl Serialize, is_error: bool) -> Result<CallToolResult, ErrorData> {
    let value = serde_json::to_value(body).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(if is_error { CallToolResult::structured_error(value) } else { CallToolResult::structured(value) })
}

fn protocol_error(refused: &Outcome) -> ErrorData {
    ErrorData::invalid_params(refused.message.clone(), None)
}

fn read_cursor(cursor: &str) -> Result<String, ErrorData> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
    let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    name.ok_or_else(|| ErrorData::invalid_params("this cursor is none that was given out here", None))
}
