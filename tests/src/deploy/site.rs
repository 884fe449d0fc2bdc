//! What every way to deploy is tried with: a shop, a provider that counts, a policy, and one refund.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::client::Client;
use crate::harness::{Guest, SECRET, TENANT};
use crate::mcp::http::{self, OLDER};
use crate::provider::Provider;

/// The tool that makes a refund.
pub const TOOL: &str = "issue-refund";
/// How long an answer may be asked for again.
const TRIES_MAX: usize = 60;
const MADE_WITHIN: Duration = Duration::from_secs(60);

/// A provider, and what a host needs for it.
pub struct Site {
    provider: Provider,
    guest: Guest,
    /// How the provider is reached from where the host runs.
    url: String,
}

impl Site {
    /// One whose provider listens on loopback.
    ///
    /// # Errors
    /// The guest is not built.
    pub fn near() -> Result<Self> {
        let provider = Provider::start()?;
        Ok(Self { url: provider.url(), provider, guest: Guest::example("refunds")? })
    }

    /// One whose provider listens for whoever sees this machine under that address.
    ///
    /// # Errors
    /// As [`Site::near`].
    pub fn seen_as(address: &str) -> Result<Self> {
        let provider = Provider::listen(SocketAddr::from(([0, 0, 0, 0], 0)))?;
        let port = provider.url().rsplit(':').next().context("a URL has a port")?.to_owned();
        Ok(Self { provider, guest: Guest::example("refunds")?, url: format!("http://{address}:{port}") })
    }

    /// The component's file.
    pub fn component(&self) -> &Path {
        &self.guest.component
    }

    /// The provider's counts.
    pub fn provider(&self) -> Client {
        Client::new(&self.provider.url().replace("0.0.0.0", "127.0.0.1"))
    }

    /// A policy whose credential is in that file.
    ///
    /// # Errors
    /// The guest cannot be read.
    pub fn policy(&self, secret: &str) -> Result<String> {
        let component = fs::read(self.component())?;
        let digest: String = Sha256::digest(component).iter().map(|byte| format!("{byte:02x}")).collect();
        let mut text = format!(
            "[[component]]\ndigest = \"sha256:{digest}\"\ntenants = [\"{TENANT}\"]\n\
             grant = [\"get-return\", \"create-refund\", \"find-refund\"]\n"
        );
        for endpoint in ["shop", "pay"] {
            text.push_str(&format!(
                "[endpoint.{endpoint}]\nurl = \"{}\"\naccount = \"{endpoint}-test\"\negress = \"direct\"\n\
                 allow-private = true\n",
                self.url
            ));
        }
        text.push_str(&format!(
            "[credential.pay]\nfrom = \"file:{secret}\"\nattach = \"header:Authorization\"\n\
             format = \"Bearer {{secret}}\"\n[context]\ntenant = [\"meta\", \"header\", \"serve\"]\n"
        ));
        Ok(text)
    }

    /// `policy.toml` and the secret `pay`, as files of a folder.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn files(&self, folder: &Path, secret: &str) -> Result<(PathBuf, PathBuf)> {
        let (policy, pay) = (folder.join("policy.toml"), folder.join("pay"));
        fs::create_dir_all(folder)?;
        fs::write(&policy, self.policy(secret)?)?;
        fs::write(&pay, SECRET)?;
        Ok((policy, pay))
    }

    /// The refund of this return, through a host: its receipt, and whether it was told before.
    ///
    /// # Errors
    /// It does not come.
    pub fn refund(&self, client: &http::Client, id: &str, reason: &str) -> Result<(String, bool)> {
        let arguments = json!({ "return_id": id, "reason": reason });
        let mut last = Value::Null;
        for _ in 0..TRIES_MAX {
            last = client.call(OLDER, TOOL, &arguments)?["structuredContent"].take();
            if last["status"] != "pending" {
                break;
            }
            thread::sleep(Duration::from_millis(250));
        }
        let receipt = last["effects"][0]["receipt"].as_str();
        let receipt = receipt.with_context(|| format!("no receipt: {last:#}"))?.to_owned();
        Ok((receipt, last["status"] == "already_done"))
    }

    /// Waits until the provider has made so many refunds.
    ///
    /// # Errors
    /// It never does.
    pub fn until_made(&self, count: usize) -> Result<()> {
        let started = Instant::now();
        while self.provider().count("refund")? < count {
            ensure!(started.elapsed() < MADE_WITHIN, "no refund was made");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The provider made so many refunds, and this is the id of one of them.
    ///
    /// # Errors
    /// It made others.
    pub fn made(&self, count: usize, receipt: &str) -> Result<()> {
        let made = self.provider().count("refund")?;
        ensure!(made == count, "the provider made {made} refunds and not {count}");
        let effects = self.provider().effects()?;
        ensure!(effects.iter().any(|effect| effect.id == receipt), "{receipt} is none of {effects:?}");
        Ok(())
    }
}
