//! What a guest printed, told to the client as logging messages: capped, and never as the host's words.
//!
//! The newer revision asks for it in each request; the older one sets a level for the connection.
#![expect(deprecated, reason = "MCP has marked logging as going away; clients of both revisions still take it")]

use std::sync::atomic::Ordering;

use rmcp::RoleServer;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, ServerCapabilities, SetLevelRequestParams};
use rmcp::service::RequestContext;
use serde_json::json;

use super::server::Server;

/// Bytes of one message: what a person reads, not what a guest can print.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// The level of what a guest prints, which is also the lowest that is sent unasked.
pub(super) const DEFAULT: u8 = 1;

/// Tells the client, if it wants to know.
pub(super) async fn send(
    server: &Server,
    context: &RequestContext<RoleServer>,
    tool: &str,
    (text, swallowed): (String, u64),
) {
    let new = context.protocol_version().is_some_and(|version| version.as_str() >= "2026-07-28");
    let wanted = match context.meta.log_level() {
        Some(level) => rank(level) <= DEFAULT,
        None => !new && server.level.load(Ordering::Relaxed) <= DEFAULT,
    };
    if text.is_empty() || !wanted {
        return;
    }
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let left_out = swallowed + (text.len() - end) as u64;
    let data = json!({ "printed": text[..end], "bytes_left_out": left_out });
    let mut message = LoggingMessageNotificationParam::new(LoggingLevel::Info, data);
    message.logger = Some(tool.to_owned());
    if let Err(error) = context.peer.notify_logging_message(message).await {
        tracing::debug!(%error, "a guest's output was not told");
    }
}

/// What a client of the older revision asks.
pub(super) type SetLevel = SetLevelRequestParams;

/// The level that it asks for.
pub(super) fn level(request: &SetLevel) -> u8 {
    rank(request.level)
}

/// Levels in their order.
fn rank(level: LoggingLevel) -> u8 {
    level as u8
}

/// What this server can do.
pub(super) fn capabilities(resources: bool) -> ServerCapabilities {
    let both = ServerCapabilities::builder().enable_logging().enable_tools().enable_tool_list_changed();
    if resources { both.enable_resources().build() } else { both.build() }
}
