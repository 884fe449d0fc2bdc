//! Figures, health and readiness over HTTP, apart from everything that agents reach.

use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::board::Board;
use super::{exposition, figures};

/// Connections at once: a monitor and some probes have one each.
const CONNECTIONS_MAX: usize = 64;
/// Until the headers have been read, and between requests of one connection.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of all headers: nobody here has much to say.
const HEADERS_BYTES_MAX: usize = 16 << 10;
/// After a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers for as long as this is awaited.
pub(super) async fn serve(listener: TcpListener, board: Arc<Board>) {
    let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "figures cannot be served"),
    };
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // Whoever comes while all are taken is not kept waiting.
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let board = Arc::clone(&board);
        tokio::spawn(async move {
            connection(stream, board, is_local).await;
            drop(slot);
        });
    }
}

async fn connection(stream: TcpStream, board: Arc<Board>, is_local: bool) {
    let service = service_fn(move |request| {
        let answer = answer(&request, &board, is_local);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEADERS_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection for figures ended");
    }
}

fn answer(request: &Request<Incoming>, board: &Board, is_local: bool) -> Response<Full<Bytes>> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    // A page in a browser may make its own name point here.
    if is_local && !host.is_some_and(is_loopback) {
        return json_reply(
            StatusCode::FORBIDDEN,
            &json!({ "error": "this is reached as 127.0.0.1 or localhost alone" }),
        );
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return json_reply(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "there is only GET" }));
    }
    match request.uri().path() {
        "/metrics" => reply(StatusCode::OK, exposition::CONTENT_TYPE, exposition::text(&figures::all(board))),
        "/healthz" => health(board),
        "/readyz" => readiness(board),
        _ => json_reply(StatusCode::NOT_FOUND, &json!({ "error": "there are /metrics, /healthz and /readyz" })),
    }
}

fn health(board: &Board) -> Response<Full<Bytes>> {
    if board.is_alive() {
        json_reply(StatusCode::OK, &json!({ "status": "ok" }))
    } else {
        json_reply(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "the event loop does not turn" }))
    }
}

fn readiness(board: &Board) -> Response<Full<Bytes>> {
    let checks = board.checks();
    let (code, status) =
        if checks.are_good() { (StatusCode::OK, "ready") } else { (StatusCode::SERVICE_UNAVAILABLE, "not_ready") };
    let words: Map<String, Value> = checks.0.iter().map(|(name, word)| ((*name).to_owned(), json!(word))).collect();
    json_reply(code, &json!({ "status": status, "checks": words, "policy_file_refused": board.refuses_policy() }))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn json_reply(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    reply(status, "application/json", body.to_string())
}

fn reply(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machines_names_are_local() {
        for host in ["localhost", "LocalHost:9464", "127.0.0.1:9464", "127.0.0.1", "[::1]:80", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "evil.example:9464", "localhost.evil.example", "10.0.0.1:9464", "[::2]:80", "127.0.0.1.evil"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
