//! Serving over HTTP: the door in front of MCP's streamable transport.
//!
//! Without sessions, unless they are asked for: each request stands for itself, so none can be somebody
//! else's and nothing is lost with one. Plain HTTP/1.1; TLS is a proxy's. What is checked here, in this
//! order: the path, that no token is in the URL, that nothing is said twice, the token, how much and how
//! long, that it is a message; then `Host`, `Origin` and the protocol.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use oncegate::frame;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::oauth::{self, Issued};
use super::server::{Server, Shared};
use super::sessions::Sessions;
use super::strict;
use super::tasks::older::{self, Greeting};
use super::tokens::{self, Identity, Tokens};
use crate::home::Home;
use crate::print;

/// Where MCP is.
const PATH: &str = "/mcp";
/// Where RFC 9728 has the description of what the tokens are for.
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Bytes of a request's body: tools take identifiers and text, not files.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Until a body has been read: it comes from a program, not from a person.
const BODY_WITHIN: Duration = Duration::from_secs(20);
/// Until the headers have been read, and between requests of one connection.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of all headers.
const HEADERS_BYTES_MAX: usize = 32 << 10;
/// Connections at once; streams that listen for changes hold one each.
const CONNECTIONS_MAX: usize = 4_096;
/// How often a stream of a session shows that it lives: a client or proxy that is gone is noticed, and one
/// that waits is not given up.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Requests worked on at once; each may hold a guest's memory.
const REQUESTS_MAX: usize = 512;
/// Files that all of this takes: a connection each, the ledger, and what guests under way ask of providers.
const FILES_MAX: u64 = 8_192;

/// What the operator says of this door.
pub(super) struct Options {
    pub(super) address: SocketAddr,
    /// Names beside loopback's under which clients reach it.
    pub(super) hosts: Vec<String>,
    /// Web pages that may call it.
    pub(super) origins: Vec<String>,
    /// The URL that clients know, and who gives them tokens for it.
    pub(super) resource: Option<String>,
    pub(super) authorization_servers: Vec<String>,
    /// How long sessions of the older revision may rest; none: there are no sessions.
    pub(super) sessions: Option<Duration>,
    /// How their tokens are checked here; none: a gateway in front does.
    pub(super) issued: Option<oauth::Options>,
}

pub(super) type Body = BoxBody<Bytes, Infallible>;

struct Door {
    tokens: Tokens,
    issued: Option<Issued>,
    mcp: Mcp,
    requests: Arc<Semaphore>,
    greeting: Greeting,
    /// The document of RFC 9728 and where it is.
    metadata: Option<(Value, String)>,
}

/// The protocol behind the door.
enum Mcp {
    Alone(Box<StreamableHttpService<Server, NeverSessionManager>>),
    InSessions(Box<StreamableHttpService<Server, Sessions>>, Arc<Sessions>),
}

/// Until the process is told to stop; calls under way are answered first.
pub(super) async fn run(home: &Home, shared: &Arc<Shared>, options: Options) -> anyhow::Result<()> {
    allow_files();
    let asked = options.address;
    let listener = TcpListener::bind(asked).await.with_context(|| format!("{asked} cannot be listened on"))?;
    let address = listener.local_addr().context("the address is not known")?;
    let tokens = Tokens::of(home.directory());
    if options.issued.is_none() && tokens.all()?.is_empty() {
        tracing::warn!("nobody has a token yet; `oncegate token add --tenant NAME` makes one");
    }
    if !address.ip().is_loopback() {
        tracing::warn!("{address} is reached without TLS: tokens and effects can be read on the way to it");
    }
    let idle = options.sessions;
    let door = Arc::new(Door::new(shared, tokens, options, address)?);
    let url = format!("http://{address}{PATH}");
    let told = if home.json() { print::json(&json!({ "url": url }), true)? } else { format!("serving {url}\n") };
    print::out(&told)?;
    tokio::select! {
        () = accept(&listener, shared, &door) => {}
        () = door.end_idle(idle) => {}
    }
    Ok(())
}

/// A shell or a service manager often allows 1,024 at first, and more to whoever asks.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(FILES_MAX, |maximum| maximum.min(FILES_MAX));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "no more than {:?} files can be open", limit.current);
        }
    }
}

async fn accept(listener: &TcpListener, shared: &Arc<Shared>, door: &Arc<Door>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = TaskTracker::new();
    loop {
        let slot = tokio::select! {
            Ok(slot) = Arc::clone(&slots).acquire_owned() => slot,
            () = shared.closing.cancelled() => break,
        };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Too many open files, or a client that has gone already.
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = shared.closing.cancelled() => break,
        };
        let (shared, door) = (Arc::clone(shared), Arc::clone(door));
        connections.spawn(async move {
            connection(stream, &shared, door).await;
            drop(slot);
        });
    }
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = shared.stop.cancelled() => {}
    }
}

async fn connection(stream: TcpStream, shared: &Shared, door: Arc<Door>) {
    let answer = service_fn(move |request| {
        let door = Arc::clone(&door);
        async move { Ok::<_, Infallible>(door.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEADERS_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    tokio::select! {
        // How a client leaves is its own affair.
        _ = connection.as_mut() => return,
        () = shared.closing.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

impl Door {
    fn new(shared: &Arc<Shared>, tokens: Tokens, options: Options, address: SocketAddr) -> anyhow::Result<Self> {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        if !address.ip().is_unspecified() {
            hosts.push(address.ip().to_string());
        }
        // A page of this very server is none of somebody else's; it has none.
        let own = ["localhost", "127.0.0.1", "[::1]"].map(|name| format!("http://{name}:{}", address.port()));
        hosts.extend(options.hosts);
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(hosts)
            .with_allowed_origins(own.into_iter().chain(options.origins))
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(BODY_BYTES_MAX);
        let greeting = shared.greeting(true);
        let mcp = Mcp::new(shared, config, options.sessions.is_some());
        let resource = options.resource.unwrap_or_else(|| format!("http://{address}{PATH}"));
        let issuers = options.authorization_servers.clone();
        let issued = options.issued.map(|issued| Issued::new(issued, issuers, resource.clone())).transpose()?;
        let metadata = (!options.authorization_servers.is_empty()).then(|| {
            let document = json!({
                "resource": resource,
                "authorization_servers": options.authorization_servers,
                "bearer_methods_supported": ["header"],
            });
            (document, format!("{}{METADATA_PATH}{PATH}", resource.trim_end_matches(PATH)))
        });
        Ok(Self { tokens, issued, mcp, requests: Arc::new(Semaphore::new(REQUESTS_MAX)), greeting, metadata })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        if let Some((document, _)) = self.metadata.as_ref().filter(|_| is_metadata(path)) {
            return reply(StatusCode::OK, document);
        }
        if path != PATH {
            return refuse(StatusCode::NOT_FOUND, "MCP is at /mcp");
        }
        if request.uri().query().is_some() {
            return refuse(
                StatusCode::BAD_REQUEST,
                "there is nothing to say in a query; a token belongs in the header Authorization, since URLs are logged",
            );
        }
        if let Err((status, why)) = strict::headers(request.headers()) {
            return refuse(status, why);
        }
        let identity = match self.identify(request.headers()) {
            Ok(identity) => identity,
            Err(refusal) => return *refusal,
        };
        let Ok(slot) = Arc::clone(&self.requests).try_acquire_owned() else {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many requests at once; try again");
        };
        let (mut parts, body) = request.into_parts();
        let body = match read(body).await {
            Ok(body) => body,
            Err((status, why)) => return refuse(status, why),
        };
        if parts.method == Method::POST
            && let Err(refusal) = frame::parse(&body)
        {
            let (error, id) = *refusal;
            return reply(StatusCode::BAD_REQUEST, &json!(ServerJsonRpcMessage::error(error, id)));
        }
        // The token has done its work; nothing behind the door needs it.
        parts.headers.remove(header::AUTHORIZATION);
        parts.extensions.insert(identity.clone());
        let (body, greets) = older::rename_in(body, &parts.headers);
        let answer = match &self.mcp {
            Mcp::Alone(mcp) => match strict::no_session(&parts.headers) {
                Ok(()) => mcp.handle(Request::from_parts(parts, Full::new(body))).await,
                Err((status, why)) => refuse(status, why),
            },
            Mcp::InSessions(mcp, sessions) => sessions.answer(mcp, parts, body, identity, slot).await,
        };
        if greets { self.greet(answer).await } else { answer }
    }

    /// Completes what a greeting is answered.
    async fn greet(&self, answer: Response<Body>) -> Response<Body> {
        let is_json = |value: &header::HeaderValue| value.as_bytes().starts_with(b"application/json");
        if !answer.headers().get(header::CONTENT_TYPE).is_some_and(is_json) {
            return answer;
        }
        let (mut parts, body) = answer.into_parts();
        let Ok(body) = body.collect().await;
        let body = body.to_bytes();
        let body = self.greeting.complete_message(&body).map_or(body, Bytes::from);
        parts.headers.remove(header::CONTENT_LENGTH);
        Response::from_parts(parts, Full::new(body).boxed())
    }

    /// Ends idle sessions, for as long as this is awaited.
    async fn end_idle(&self, idle: Option<Duration>) {
        match (&self.mcp, idle) {
            (Mcp::InSessions(_, sessions), Some(idle)) => sessions.end_idle(idle).await,
            _ => std::future::pending().await,
        }
    }

    fn identify(&self, headers: &HeaderMap) -> Result<Identity, Box<Response<Body>>> {
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
        let Some(token) = token else { return Err(Box::new(self.unauthorized("", "a bearer token is needed"))) };
        if let Some(issued) = self.issued.as_ref().filter(|_| !token.starts_with(tokens::PREFIX)) {
            return issued.identify(token).map_err(|why| {
                // Whoever made it up learns nothing from it; the operator may need to know.
                tracing::info!(%why, "an access token was refused");
                Box::new(self.unauthorized(", error=\"invalid_token\"", "this token is not valid here"))
            });
        }
        match self.tokens.identify(token) {
            Ok(Some(identity)) => Ok(identity),
            Ok(None) => Err(Box::new(self.unauthorized(", error=\"invalid_token\"", "this token is not known here"))),
            Err(error) => {
                tracing::error!("nobody is let in: {error:#}");
                Err(Box::new(refuse(StatusCode::INTERNAL_SERVER_ERROR, "the tokens cannot be read")))
            }
        }
    }

    fn unauthorized(&self, error: &str, why: &str) -> Response<Body> {
        let metadata = self.metadata.as_ref();
        let metadata = metadata.map(|(_, at)| format!(", resource_metadata=\"{at}\"")).unwrap_or_default();
        let challenge = format!("Bearer realm=\"oncegate\"{error}{metadata}");
        let mut response = refuse(StatusCode::UNAUTHORIZED, why);
        if let Ok(challenge) = challenge.try_into() {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl Mcp {
    fn new(shared: &Arc<Shared>, config: StreamableHttpServerConfig, sessions: bool) -> Self {
        let of = Arc::clone(shared);
        if !sessions {
            let factory = move || Ok(Server::new(Arc::clone(&of)));
            return Self::Alone(Box::new(StreamableHttpService::new(factory, Arc::default(), config)));
        }
        let config = config
            .with_legacy_session_mode(true)
            .with_sse_keep_alive(Some(HEARTBEAT))
            // Sessions end when nobody waits for answers any more.
            .with_cancellation_token(shared.stop.child_token());
        let sessions = Arc::new(Sessions::new());
        let factory = move || Ok(Server::in_session(Arc::clone(&of)));
        Self::InSessions(Box::new(StreamableHttpService::new(factory, Arc::clone(&sessions), config)), sessions)
    }
}

fn is_metadata(path: &str) -> bool {
    path.strip_prefix(METADATA_PATH).is_some_and(|rest| rest.is_empty() || rest == PATH)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

async fn read(body: Incoming) -> Result<Bytes, (StatusCode, &'static str)> {
    let whole = tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    match whole {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than is read here"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body did not come whole")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

pub(super) fn refuse(status: StatusCode, why: &str) -> Response<Body> {
    reply(status, &json!({ "error": why }))
}

pub(super) fn reply(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_follows_its_scheme() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        for wrong in ["abc", "Basic abc", "Bearer", "Bearer ", ""] {
            assert_eq!(bearer(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_metadata_have_two_places() {
        assert!(is_metadata("/.well-known/oauth-protected-resource"));
        assert!(is_metadata("/.well-known/oauth-protected-resource/mcp"));
        assert!(!is_metadata("/.well-known/oauth-protected-resource/other"));
        assert!(!is_metadata("/mcp"));
    }
}
