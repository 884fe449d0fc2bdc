//! nginx in front, with the configuration that the README shows: a name, TLS, and streams that are not held back.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Guest, Harness, root};
use oncegate_tests::mcp::ANSWER_WITHIN;
use oncegate_tests::mcp::http::{NEWER, OLDER, Server};
use serde_json::{Value, json};

use super::{TOOL, http, is_replay, receipt, refunds};
use crate::agent::refund;

const NAME: &str = "tools.acme.example";

/// nginx with a key of its own, in front of a server, on a port that is free. Dropping it ends it.
struct Nginx {
    child: Child,
    port: u16,
    token: String,
    certificate: String,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM: its workers end too.
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        self.child.wait().unwrap();
    }
}

impl Nginx {
    fn start(folder: &Path, server: &Server, token: &str) -> Self {
        let subject = format!("subjectAltName=DNS:{NAME}");
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tools"])
            .args(["-addext", &subject, "-keyout", "tools.key", "-out", "tools.crt"])
            .current_dir(folder)
            .output();
        assert!(made.unwrap().status.success());
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let shown = fs::read_to_string(root().join("tests/clients/proxy/oncegate.conf")).unwrap();
        let own = shown.replace("listen 443 ssl", &format!("listen 127.0.0.1:{port} ssl"));
        let own = own.replace("127.0.0.1:8080", server.address());
        let all = format!("daemon off; pid nginx.pid; events {{}} http {{ access_log off; {own} }}");
        fs::write(folder.join("nginx.conf"), all).unwrap();
        let child = Command::new("nginx")
            .args(["-e", "stderr", "-p"])
            .arg(folder)
            .args(["-c", "nginx.conf"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let certificate = folder.join("tools.crt").to_string_lossy().into_owned();
        Self { child, port, token: token.to_owned(), certificate }
    }

    fn curl(&self, revision: &str, method: &str, params: &Value, more: &[&str]) -> Command {
        let mut params = params.clone();
        if revision == NEWER {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(NEWER);
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let mut curl = Command::new("curl");
        curl.args(["-sSN", "--retry", "30", "--retry-connrefused", "--cacert", &self.certificate, "--data", &body]);
        curl.args(["--resolve", &format!("{NAME}:{}:127.0.0.1", self.port)]);
        for header in [
            format!("Authorization: Bearer {}", self.token),
            format!("MCP-Protocol-Version: {revision}"),
            "Content-Type: application/json".to_owned(),
            "Accept: application/json, text/event-stream".to_owned(),
        ] {
            curl.args(["-H", &header]);
        }
        if revision == NEWER {
            curl.args(["-H", &format!("Mcp-Method: {method}")]);
        }
        curl.args(more).arg(format!("https://{NAME}:{}/mcp", self.port));
        curl
    }

    fn call(&self, reason: &str) -> Value {
        let params = json!({ "name": TOOL, "arguments": refund("R-1", reason) });
        let output = self.curl(OLDER, "tools/call", &params, &[]).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        answer["result"].clone()
    }
}

#[test]
#[ignore = "needs nginx, openssl and curl, as Debian has them"]
fn calls_and_streams_pass_and_other_pages_do_not() {
    let harness = Harness::new("refunds").unwrap();
    let folder = harness.folder().join("tools");
    fs::create_dir(&folder).unwrap();
    fs::copy(harness.component(), folder.join("refunds.wasm")).unwrap();
    let token = http::token(&harness, "acme");
    let mut serve = harness.command();
    serve.arg("serve").arg(&folder).args(["--host", NAME]);
    let server = Server::start(&mut serve).unwrap();
    let nginx = Nginx::start(harness.folder(), &server, &token);
    let first = receipt(&nginx.call("broken"));
    is_replay(&nginx.call("in pieces"), &first);
    assert_eq!(refunds(&harness), 1);

    let page = ["-o", "/dev/null", "-w", "%{http_code}", "-H", "Origin: https://evil.example"];
    let refused = nginx.curl(OLDER, "tools/list", &json!({}), &page).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "403");

    let heard = harness.folder().join("heard");
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let mut curl = nginx.curl(NEWER, "subscriptions/listen", &listen, &["-o", &heard.to_string_lossy()]);
    let mut stream = curl.spawn().unwrap();
    until_written(&heard, "notifications/subscriptions/acknowledged");
    fs::copy(Guest::example("orders").unwrap().component, folder.join("orders.wasm")).unwrap();
    until_written(&heard, "notifications/tools/list_changed");
    stream.kill().unwrap();
    stream.wait().unwrap();
}

fn until_written(file: &Path, text: &str) {
    let started = Instant::now();
    while !fs::read_to_string(file).unwrap_or_default().contains(text) {
        assert!(started.elapsed() < ANSWER_WITHIN, "{text} did not come through");
        thread::sleep(Duration::from_millis(50));
    }
}
