//! Standard input and output as MCP's transport: one JSON-RPC message a line, bounded.
//!
//! Nothing blocks on either stream but threads of their own, so that a client that neither reads nor closes cannot keep
//! the process.
//! A line that is no message is answered with an error and nothing else happens. A second request under
//! the id of one that is under way waits for it: its answer could not be told from the first one's.

mod input;
mod output;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncegate::frame::{self, LINE_BYTES_MAX, Line};
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ErrorData, RequestId, ServerJsonRpcMessage, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::cancelled::Cancelled;
use super::tasks::older::Greeting;
use input::Input;
use output::{Output, Rest};

/// Requests that wait for an id to be free.
const HELD_MAX: usize = 64;
/// How long the last answers may take to be read by a client that ends.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);

/// Ids under way, shared with the futures that write.
#[derive(Default)]
struct Ids {
    running: Mutex<HashSet<RequestId>>,
    cancelled: Mutex<Cancelled>,
    freed: Notify,
}

impl Ids {
    fn lock(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self, id: &RequestId) {
        if self.lock().remove(id) {
            self.freed.notify_one();
        }
    }

    fn cancel(&self, id: &RequestId) {
        if self.lock().contains(id) {
            self.cancelled().add(id);
        }
        self.free(id);
    }

    fn cancelled(&self) -> MutexGuard<'_, Cancelled> {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The transport.
pub(super) struct Lines {
    input: Input,
    output: Option<Arc<Output>>,
    written: Option<oneshot::Receiver<()>>,
    ids: Arc<Ids>,
    held: VecDeque<ClientJsonRpcMessage>,
    begun: bool,
    /// Fires at the end of input; when others fire it, input has ended.
    ended: CancellationToken,
    /// Fires when nothing is waited for any more, such as a client that does not read its answers.
    stop: CancellationToken,
    greeting: Greeting,
}

impl Lines {
    /// Over the process's own streams.
    pub(super) fn start(ended: CancellationToken, stop: CancellationToken, greeting: Greeting) -> Self {
        let (input, (output, written)) = (Input::open(), Output::open());
        let ids = Arc::default();
        let (output, written) = (Some(output), Some(written));
        Self { input, output, written, ids, held: VecDeque::new(), begun: false, ended, stop, greeting }
    }

    async fn refuse(&mut self, error: ErrorData, id: Option<RequestId>) {
        let sent = self.send(ServerJsonRpcMessage::error(error, id));
        tokio::select! {
            // A client that has gone hears nothing.
            _ = sent => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// The message to hand on, if it may be handed on now.
    async fn admit(&mut self, message: ClientJsonRpcMessage) -> Option<ClientJsonRpcMessage> {
        match &message {
            ClientJsonRpcMessage::Request(request) => {
                if self.ids.cancelled().has(&request.id) {
                    let id = request.id.clone();
                    self.refuse(used_up(), Some(id)).await;
                    return None;
                }
                if !self.ids.lock().insert(request.id.clone()) {
                    let id = request.id.clone();
                    if self.held.len() < HELD_MAX {
                        self.held.push_back(message);
                    } else {
                        let error = ErrorData::invalid_request("too many requests under ids that are under way", None);
                        self.refuse(error, Some(id)).await;
                    }
                    return None;
                }
                self.begun = true;
            }
            // Nothing can be meant by one before the first request.
            _ if !self.begun => return None,
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // Its answer is not sent any more, and those that waited for the id wait for nothing.
                    self.ids.cancel(id);
                    let id = id.clone();
                    self.refuse_held(&id).await;
                }
            }
            _ => {}
        }
        Some(message)
    }

    async fn refuse_held(&mut self, id: &RequestId) {
        let of = |held: &ClientJsonRpcMessage| matches!(held, ClientJsonRpcMessage::Request(held) if held.id == *id);
        let before = self.held.len();
        self.held.retain(|held| !of(held));
        for _ in self.held.len()..before {
            self.refuse(used_up(), Some(id.clone())).await;
        }
    }

    fn held(&mut self) -> Option<ClientJsonRpcMessage> {
        let mut running = self.ids.lock();
        let free = self.held.iter().position(|held| match held {
            ClientJsonRpcMessage::Request(request) => !running.contains(&request.id),
            _ => true,
        })?;
        let message = self.held.remove(free)?;
        if let ClientJsonRpcMessage::Request(request) = &message {
            running.insert(request.id.clone());
        }
        Some(message)
    }

    async fn line(&mut self, line: Line) -> Option<ClientJsonRpcMessage> {
        let bytes = match line {
            Line::Text(bytes) => bytes,
            Line::TooLong => {
                let error = ErrorData::invalid_request(format!("a message has at most {LINE_BYTES_MAX} bytes"), None);
                self.refuse(error, None).await;
                return None;
            }
        };
        match frame::parse(&bytes) {
            Ok(message) => self.admit(*message?).await,
            Err(refusal) => {
                let (error, id) = *refusal;
                self.refuse(error, id).await;
                None
            }
        }
    }

    /// No more requests: those that never began are told so, the others are answered.
    async fn end(&mut self) {
        self.ended.cancel();
        while let Some(held) = self.held.pop_front() {
            if let ClientJsonRpcMessage::Request(request) = held {
                self.refuse(ErrorData::invalid_request("the server is ending", None), Some(request.id)).await;
            }
        }
        while !self.ids.lock().is_empty() {
            tokio::select! {
                () = self.ids.freed.notified() => {}
                () = self.stop.cancelled() => return,
            }
        }
    }
}

impl Transport<RoleServer> for Lines {
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let begun = begin(self.output.as_ref(), &item, self.greeting);
        let ids = Arc::clone(&self.ids);
        let mut answered = answered(item);
        if matches!(begun, Ok(None)) {
            answered.take().iter().for_each(|id| ids.free(id));
        }
        async move {
            let sent = match begun {
                Ok(Some((output, rest))) => output.write(rest).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            answered.iter().for_each(|id| ids.free(id));
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(message) = self.held() {
                return Some(message);
            }
            let ids = Arc::clone(&self.ids);
            let line = tokio::select! {
                line = self.input.line() => line,
                () = ids.freed.notified(), if !self.held.is_empty() => continue,
                () = self.ended.cancelled() => None,
            };
            match line {
                Some(line) => {
                    if let Some(message) = self.line(line).await {
                        return Some(message);
                    }
                }
                None => {
                    self.end().await;
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.output = None;
        if let Some(written) = self.written.take() {
            // A client that does not read is not waited for.
            let _ = tokio::time::timeout(FLUSH_WITHIN, written).await;
        }
        Ok(())
    }
}

fn used_up() -> ErrorData {
    ErrorData::invalid_request("a request under this id was cancelled; use another id", None)
}

/// The request that a message answers.
fn answered(message: ServerJsonRpcMessage) -> Option<RequestId> {
    match message {
        ServerJsonRpcMessage::Response(response) => Some(response.id),
        ServerJsonRpcMessage::Error(error) => error.id,
        _ => None,
    }
}

/// Writes a message at once where that can be; else what is left to wait for.
fn begin(
    output: Option<&Arc<Output>>,
    message: &ServerJsonRpcMessage,
    greeting: Greeting,
) -> std::io::Result<Option<(Arc<Output>, Rest)>> {
    let output = output.ok_or_else(output::closed)?;
    let mut line = write_message(message, greeting)?;
    line.push(b'\n');
    Ok(output.write_now(line)?.map(|rest| (Arc::clone(output), rest)))
}

fn write_message(message: &ServerJsonRpcMessage, greeting: Greeting) -> serde_json::Result<Vec<u8>> {
    let line = serde_json::to_vec(message)?;
    let greets = |answer: &ServerResult| matches!(answer, ServerResult::InitializeResult(_));
    let completed = match message {
        ServerJsonRpcMessage::Response(response) if greets(&response.result) => greeting.complete_message(&line),
        _ => None,
    };
    Ok(completed.unwrap_or(line))
}
