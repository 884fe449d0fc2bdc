//! A provider that answers at once, in a process of its own, and counts what it did: `instant [ADDRESS]`.
//!
//! | Request | Does |
//! |---|---|
//! | `POST /…` | one effect; answers 200 `{"id": "fx_N", "object": "effect", "pad": "…"}` |
//! | `GET /items/X` | answers 200 `{"id": "X", "price": 1200}` |
//! | `GET /_effects` | `{"count": N, "keys": M}`: how many effects, under how many different `Idempotency-Key`s |
//! | `GET /_waiting` | `{"count": N}`: how many requests have come and wait for their answer |
//! | `POST /_release` | answers all that wait, and those that come at once |
//! | `POST /_settings {"delay_ms": 0, "answer_bytes": 300}` | how long it takes, how long the answer is |

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::Notify;

#[derive(Default)]
struct Provider {
    effects: u64,
    keys: HashSet<String>,
    waiting: u64,
    release: Arc<Notify>,
    delay: Duration,
    pad: String,
}

type Shared = Arc<Mutex<Provider>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:0".to_owned());
    let listener = tokio::net::TcpListener::bind(address.parse::<SocketAddr>()?).await?;
    println!("listening http://{}", listener.local_addr()?);
    let provider = Shared::default();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let provider = Arc::clone(&provider);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&provider), request));
            // A client that goes away is its own business.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(provider: Shared, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let (answer, delay) = {
        let mut provider = provider.lock().unwrap_or_else(PoisonError::into_inner);
        let key = head.headers.get("idempotency-key").and_then(|key| key.to_str().ok());
        (provider.answer(&head.method, head.uri.path(), key, &body), provider.delay)
    };
    if !delay.is_zero() && !head.uri.path().starts_with("/_") {
        let waiting = Waiting::of(&provider);
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = waiting.released() => {}
        }
    }
    let answer = Bytes::from(answer.to_string());
    let mut response = Response::new(Full::new(answer));
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    Ok(response)
}

/// A request under way; one whose client has gone is none.
struct Waiting {
    provider: Shared,
    release: Arc<Notify>,
}

impl Waiting {
    fn of(provider: &Shared) -> Self {
        let mut held = provider.lock().unwrap_or_else(PoisonError::into_inner);
        held.waiting += 1;
        Self { provider: Arc::clone(provider), release: Arc::clone(&held.release) }
    }

    async fn released(&self) {
        self.release.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.provider.lock().unwrap_or_else(PoisonError::into_inner).waiting -= 1;
    }
}

impl Provider {
    fn answer(&mut self, method: &Method, path: &str, key: Option<&str>, body: &[u8]) -> Value {
        match (method, path) {
            (_, "/_effects") => json!({ "count": self.effects, "keys": self.keys.len() }),
            (_, "/_waiting") => json!({ "count": self.waiting }),
            (&Method::POST, "/_release") => {
                self.delay = Duration::ZERO;
                self.release.notify_waiters();
                json!({ "released": self.waiting })
            }
            (&Method::POST, "/_settings") => self.set(body),
            (&Method::POST, _) => {
                self.effects += 1;
                self.keys.extend(key.map(str::to_owned));
                json!({ "id": format!("fx_{}", self.effects), "object": "effect", "pad": self.pad })
            }
            (_, path) => json!({ "id": path.rsplit('/').next().unwrap_or_default(), "price": 1200, "pad": self.pad }),
        }
    }

    fn set(&mut self, body: &[u8]) -> Value {
        let settings: Value = serde_json::from_slice(body).unwrap_or_default();
        let number = |name: &str| settings.get(name).and_then(Value::as_u64);
        if let Some(ms) = number("delay_ms") {
            self.delay = Duration::from_millis(ms);
        }
        if let Some(bytes) = number("answer_bytes").and_then(|bytes| usize::try_from(bytes).ok()) {
            self.pad = "x".repeat(bytes.min(1 << 20));
        }
        json!({ "delay_ms": u64::try_from(self.delay.as_millis()).unwrap_or(u64::MAX), "answer_bytes": self.pad.len() })
    }
}
