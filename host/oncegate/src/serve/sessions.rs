//! Sessions of the older revision, for clients that need one: `serve --http --sessions`.
//!
//! The SDK keeps a session's streams; what is added here is whose it is, how many there are, how long one
//! may rest, and that no second request runs under the id of one that does: its answer could not be told
//! from the first one's, and one of the two would never come. A session is worth nothing that a call needs:
//! where one is lost, the same call in the next one is answered with the first receipt.

mod open;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionConfig,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use rmcp::transport::{StreamableHttpService, Transport, WorkerTransport};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::http::{Body, refuse, reply};
use super::server::Server;
use super::tokens::Identity;
use open::{Full as NoRoom, Open, Repeated};

/// The header that names a session.
const SESSION: &str = "mcp-session-id";
/// How often idle sessions are looked for, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The sessions, as the SDK asks for them.
pub(super) struct Sessions {
    inner: LocalSessionManager,
    open: Arc<Open>,
}

/// What is looked at in a message; the SDK reads it whole.
#[derive(Deserialize)]
struct Peek {
    method: Option<String>,
    id: Option<RequestId>,
    params: Option<Value>,
}

/// How a request goes on.
enum Admitted {
    /// Outside of sessions, or one that begins none.
    Outside,
    /// It begins a session, for which there is room.
    Begins(open::Beginning),
    /// Inside a session.
    Inside(open::Stream, Option<RequestId>),
}

impl Sessions {
    pub(super) fn new() -> Self {
        let mut inner = LocalSessionManager::default();
        // The SDK ends a session under a silent call that runs; what is idle is decided here.
        let mut config = SessionConfig::default();
        config.keep_alive = None;
        inner.session_config = config;
        Self { inner, open: Arc::default() }
    }

    /// Ends sessions that have rested for so long, for as long as this is awaited.
    pub(super) async fn end_idle(&self, idle: Duration) {
        loop {
            tokio::time::sleep(LOOK_EVERY.min(idle)).await;
            for id in self.open.idle(idle) {
                if let Err(error) = self.close_session(&id).await {
                    tracing::debug!(%error, "an idle session did not end");
                }
            }
        }
    }

    /// Answers one request that has a token.
    pub(super) async fn answer(
        &self,
        mcp: &StreamableHttpService<Server, Self>,
        parts: Parts,
        body: Bytes,
        whose: Identity,
        slot: OwnedSemaphorePermit,
    ) -> Response<Body> {
        let admitted = match self.admit(&parts, &body, &whose) {
            Ok(admitted) => admitted,
            Err(refusal) => return *refusal,
        };
        let mcp = mcp.clone();
        // A client that goes away in between must leave neither an id that is never free nor a session
        // that nobody knows.
        let handled = tokio::spawn(async move { handle(&mcp, parts, body, admitted, slot).await });
        handled.await.unwrap_or_else(|_| refuse(StatusCode::INTERNAL_SERVER_ERROR, "the request was not understood"))
    }

    fn admit(&self, parts: &Parts, body: &[u8], whose: &Identity) -> Result<Admitted, Box<Response<Body>>> {
        let peek: Option<Peek> = serde_json::from_slice(body).ok();
        let Some(id) = session(&parts.headers) else {
            if peek.and_then(|peek| peek.method).as_deref() != Some("initialize") {
                return Ok(Admitted::Outside);
            }
            return match self.open.begin(whose) {
                Ok(beginning) => Ok(Admitted::Begins(beginning)),
                Err(NoRoom) => Err(Box::new(refuse(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "there are too many sessions; end one that you do not need, or try again later",
                ))),
            };
        };
        // Somebody else's session is none.
        let stream = self.open.enter(&id, whose).ok_or_else(|| {
            Box::new(refuse(StatusCode::NOT_FOUND, "there is no such session (any more); begin a new one"))
        })?;
        let Some(peek) = peek else { return Ok(Admitted::Inside(stream, None)) };
        if peek.method.as_deref() == Some("notifications/cancelled") {
            let cancelled = peek.params.and_then(|params| params.get("requestId").cloned());
            let cancelled = cancelled.and_then(|id| serde_json::from_value(id).ok());
            // Its answer is not sent any more.
            cancelled.iter().for_each(|request| stream.cancel(request));
        }
        let Some(request) = peek.id.filter(|_| peek.method.is_some()) else {
            return Ok(Admitted::Inside(stream, None));
        };
        match stream.run(&request) {
            Ok(()) => Ok(Admitted::Inside(stream, Some(request))),
            Err(repeated) => Err(Box::new(refuse_repeated(&request, &repeated))),
        }
    }
}

async fn handle(
    mcp: &StreamableHttpService<Server, Sessions>,
    parts: Parts,
    body: Bytes,
    admitted: Admitted,
    slot: OwnedSemaphorePermit,
) -> Response<Body> {
    let streams = parts.method == Method::GET;
    let response = mcp.handle(Request::from_parts(parts, Full::new(body))).await;
    // A stream that listens is counted by its connection.
    let slot = (!streams).then_some(slot);
    match admitted {
        Admitted::Outside => hold(response, slot),
        Admitted::Begins(beginning) => {
            if let Some(id) = session(response.headers()) {
                beginning.began(&id);
            }
            hold(response, slot)
        }
        Admitted::Inside(stream, request) => {
            if let Some(request) = request.filter(|_| response.status() != StatusCode::OK) {
                // It was refused, so nothing will answer it.
                stream.free(&request);
            }
            hold(response, (slot, stream))
        }
    }
}

fn session(headers: &HeaderMap) -> Option<SessionId> {
    headers.get(SESSION)?.to_str().ok().map(Into::into)
}

fn refuse_repeated(request: &RequestId, why: &Repeated) -> Response<Body> {
    let (status, message) = match why {
        Repeated::Id => (
            StatusCode::CONFLICT,
            "a request with this id is under way in this session and goes on; use another id, or wait for its answer",
        ),
        Repeated::Cancelled => {
            (StatusCode::CONFLICT, "a request with this id was cancelled in this session; use another id")
        }
        Repeated::TooMany => {
            (StatusCode::SERVICE_UNAVAILABLE, "too many requests are under way in this session; wait for an answer")
        }
    };
    let error = json!({ "code": -32600, "message": message });
    reply(status, &json!({ "jsonrpc": "2.0", "id": request, "error": error }))
}

/// Keeps something for as long as a stream is being sent; every other response is whole already.
fn hold<T: Send + Sync + 'static>(response: Response<Body>, kept: T) -> Response<Body> {
    let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !content_type.is_some_and(|value| value.starts_with("text/event-stream")) {
        return response;
    }
    response.map(|body| {
        body.map_frame(move |frame| {
            let _ = &kept;
            frame
        })
        .boxed()
    })
}

/// A session's transport: an id is free again when its answer is on its way.
pub(super) struct Answering {
    inner: WorkerTransport<LocalSessionWorker>,
    id: SessionId,
    open: Arc<Open>,
}

impl Transport<RoleServer> for Answering {
    type Error = <WorkerTransport<LocalSessionWorker> as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &item {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let (id, open) = (Arc::clone(&self.id), Arc::clone(&self.open));
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            answered.iter().for_each(|request| open.free(&id, request));
            sent
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleServer>>> + Send {
        self.inner.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = Answering;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, inner) = self.inner.create_session().await?;
        self.open.made(Arc::clone(&id));
        Ok((Arc::clone(&id), Answering { inner, id, open: Arc::clone(&self.open) }))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.inner.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.inner.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.open.end(id);
        self.inner.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.inner.create_stream(id, message).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.inner.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.inner.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.inner.resume(id, last_event_id).await
    }
}
