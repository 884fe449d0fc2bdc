//! What a guest printed, told to the client as logging messages: capped, and never as the host's words.
//!
//! The newer revision asks for it in each request; the older one sets a level for the connection.
#![expect(deprecated, reason = "MCP has marked logging as going away; clients of both revisions still take it")]

use std::sync::atomic::Ordering;

use rmcp::RoleServer;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, ServerCapabilities, SetLevelRequestParams};
use rmcp::service::RequestContext;
use serde_json::json;

use super::caller;
use super::server::Server;

/// Bytes of all messages of one call: what a person reads, not what a guest can print.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// Messages of one call; what is printed after them comes in one more.
const MESSAGES_MAX: usize = 32;
/// The level of what a guest prints, which is also the lowest that is sent unasked.
pub(super) const DEFAULT: u8 = 1;

/// What the client of one call has heard of the guest's output.
#[derive(Default)]
pub(super) struct Told {
    bytes: usize,
    messages: usize,
}

impl Told {
    /// The next whole line, if there is one and it may be told.
    fn line<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let (line, _) = text.get(self.bytes..)?.split_once('\n')?;
        let end = self.bytes + line.len() + 1;
        if self.messages == MESSAGES_MAX || end > TEXT_BYTES_MAX {
            return None;
        }
        self.bytes = end;
        self.messages += usize::from(!line.is_empty());
        Some(line)
    }

    /// What is left when nothing more is printed, and how many bytes of it are not told.
    fn rest<'a>(&self, text: &'a str) -> (&'a str, usize) {
        let rest = text.get(self.bytes..).unwrap_or_default();
        let room = TEXT_BYTES_MAX - self.bytes;
        let end = (0..=rest.len().min(room)).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(0);
        (&rest[..end], rest.len() - end)
    }
}

/// Whether the client wants to know.
pub(super) fn wanted(server: &Server, context: &RequestContext<RoleServer>) -> bool {
    match context.meta.log_level() {
        Some(level) => rank(level) <= DEFAULT,
        None => !caller::is_newer(context) && server.level.load(Ordering::Relaxed) <= DEFAULT,
    }
}

/// Tells the client the lines that were printed since it was told.
pub(super) async fn lines(context: &RequestContext<RoleServer>, tool: &str, text: &str, told: &mut Told) {
    while let Some(line) = told.line(text) {
        if !line.is_empty() {
            message(context, tool, line, 0).await;
        }
    }
}

/// Tells the client what is left when the guest has ended.
pub(super) async fn rest(
    context: &RequestContext<RoleServer>,
    tool: &str,
    (text, swallowed): (String, u64),
    told: &mut Told,
) {
    lines(context, tool, &text, told).await;
    let (rest, left_out) = told.rest(&text);
    let left_out = swallowed + left_out as u64;
    if !rest.is_empty() || left_out > 0 {
        message(context, tool, rest, left_out).await;
    }
}

async fn message(context: &RequestContext<RoleServer>, tool: &str, printed: &str, left_out: u64) {
    let data = json!({ "printed": printed, "bytes_left_out": left_out });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> (Vec<&str>, &str, usize) {
        let mut told = Told::default();
        let lines = std::iter::from_fn(|| told.line(text)).collect();
        let (rest, left_out) = told.rest(text);
        (lines, rest, left_out)
    }

    #[test]
    fn each_line_is_told_and_the_rest_at_the_end() {
        assert_eq!(all("one\n\ntwo\nthr"), (vec!["one", "", "two"], "thr", 0));
        assert_eq!(all(""), (vec![], "", 0));
        let mut told = Told::default();
        assert_eq!((told.line("on"), told.line("one\n"), told.line("one\n")), (None, Some("one"), None));
    }

    #[test]
    fn many_lines_and_long_ones_are_cut() {
        let many = "line\n".repeat(MESSAGES_MAX + 3);
        let (lines, rest, left_out) = all(&many);
        assert_eq!((lines.len(), rest, left_out), (MESSAGES_MAX, "line\n".repeat(3).as_str(), 0));
        let long = format!("short\n{}", "é".repeat(TEXT_BYTES_MAX));
        let (lines, rest, left_out) = all(&long);
        assert_eq!((lines.as_slice(), rest.len() % 2, rest.len() + left_out), (&["short"][..], 0, 2 * TEXT_BYTES_MAX));
        assert!(rest.len() <= TEXT_BYTES_MAX && left_out >= TEXT_BYTES_MAX);
    }
}
