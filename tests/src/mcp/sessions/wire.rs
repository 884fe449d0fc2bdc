//! One connection of one session. Dropping it is what a client does that vanishes.

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::mcp::http::NEWER;

/// An open connection; requests go one after the other.
pub(super) struct Wire {
    requests: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
    address: String,
    token: String,
    revision: &'static str,
    next: u64,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Wire {
    pub(super) async fn open(address: &str, token: &str, revision: &'static str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("nobody accepts")?;
        let (requests, connection) = handshake(TokioIo::new(stream)).await?;
        // How it ends is seen by the request that is under way then.
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { requests, connection, address: address.to_owned(), token: token.to_owned(), revision, next: 0 })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Status and body; an answer without JSON has none.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Result<(u16, Value)> {
        let request = self.request(method, params)?;
        self.requests.ready().await?;
        let response = self.requests.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    fn request(&mut self, method: &str, mut params: Value) -> Result<Request<Full<Bytes>>> {
        self.next += 1;
        let mut request = Request::post("/mcp")
            .header(header::HOST, &self.address)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header("MCP-Protocol-Version", self.revision);
        if self.revision == NEWER {
            request = request.header("Mcp-Method", method);
            if let Some(name) = params["name"].as_str() {
                request = request.header("Mcp-Name", name);
            }
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(NEWER);
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let body = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        Ok(request.body(Full::new(Bytes::from(body.to_string())))?)
    }
}
