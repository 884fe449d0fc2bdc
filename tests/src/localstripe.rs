//! `localstripe`, a fake Stripe server that others wrote, from PyPI.
//!
//! It takes form bodies, a Bearer key and metadata as Stripe does, and lists refunds by charge. It
//! ignores `Idempotency-Key` and how much of a charge is left, so it shows every duplicate.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::client::Client;
use crate::harness::Running;
use crate::python;

const PACKAGE: &str = "localstripe==1.15.10";
/// Any key with this start is taken.
pub const SECRET: &str = "sk_test_12345";
/// Python on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Its own start-up listens on every address; this one on loopback, and says on which port.
const SERVE: &str = r#"
import socket
from aiohttp import web
from localstripe.server import app
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
web.run_app(app, sock=server, print=None)
"#;

/// A running server. Dropping it ends it.
pub struct Localstripe {
    _running: Running,
    url: String,
}

impl Localstripe {
    /// Installs it into `target/venv` when it is not there yet, starts it, waits until it answers.
    ///
    /// # Errors
    /// There is no Python, no registry, or it does not start.
    pub fn start() -> Result<Self> {
        let python = python::install("venv", PACKAGE).context("localstripe cannot be installed")?;
        let running = Running::start(Command::new(python).args(["-c", SERVE]))?;
        let port = running.read_line(READY_WITHIN).context("localstripe did not start")?;
        Ok(Self { _running: running, url: format!("http://127.0.0.1:{port}") })
    }

    /// `http://127.0.0.1:PORT`, for the endpoint `pay`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes a charge of so many cents and returns its identifier.
    ///
    /// # Errors
    /// The server refuses.
    pub fn charge(&self, amount: i64) -> Result<String> {
        let card = "type=card&card[number]=4242424242424242&card[exp_month]=12\
                    &card[exp_year]=2099&card[cvc]=123";
        let method = self.post("/v1/payment_methods", card)?;
        let charge = format!("amount={amount}&currency=usd&source={}", text(&method, "id")?);
        let charge = self.post("/v1/charges", &charge)?;
        Ok(text(&charge, "id")?.to_owned())
    }

    /// The refunds of a charge: the oracle.
    ///
    /// # Errors
    /// The server does not know the charge.
    pub fn refunds(&self, charge: &str) -> Result<Vec<Value>> {
        let list = self.send("GET", &format!("/v1/refunds?limit=100&charge={charge}"), "")?;
        let refunds = list["data"].as_array();
        Ok(refunds.context("a list has no `data`")?.clone())
    }

    fn post(&self, path: &str, form: &str) -> Result<Value> {
        self.send("POST", path, form)
    }

    fn send(&self, method: &str, target: &str, form: &str) -> Result<Value> {
        let authorization = format!("Bearer {SECRET}");
        let headers =
            [("Authorization", authorization.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
        let client = Client::new(&self.url);
        let (status, body) = client.send(method, target, &headers, form.as_bytes())?;
        if status != 200 {
            let body = String::from_utf8_lossy(&body);
            bail!("localstripe answered {status} to {method} {target}: {body}");
        }
        Ok(serde_json::from_slice(&body)?)
    }
}

fn text<'a>(object: &'a Value, name: &str) -> Result<&'a str> {
    object[name].as_str().with_context(|| format!("localstripe's answer has no `{name}`: {object}"))
}
