//! A folder with a policy and a ledger, and a sandbox over them in this very process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use oncegate_sandbox::policy::Policy;
use oncegate_sandbox::{Loaded, Options, Sandbox};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The environment variable with the secret of every credential; `cargo xtask bench` sets it.
pub const SECRET: &str = "PAY_KEY";

/// Where a sandbox, or the built program, finds what it needs.
#[derive(Debug)]
pub struct World {
    folder: TempDir,
}

impl World {
    /// A policy that grants all operations of these components, whose endpoint is the URL, and a new ledger.
    ///
    /// # Errors
    /// The components are not built, or the ledger cannot be made.
    pub async fn new(components: &[&str], url: &str, limits: &str) -> Result<Self> {
        std::env::var(SECRET).with_context(|| format!("set {SECRET} to any word, as `cargo xtask bench` does"))?;
        let world = Self { folder: tempfile::Builder::new().prefix("oncegate-bench-").tempdir()? };
        std::fs::write(world.home().join("policy.toml"), policy(components, url, limits)?)?;
        oncegate_ledger::init(&world.ledger_url()).await?;
        Ok(world)
    }

    /// `$ONCEGATE_HOME`.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Where its ledger is.
    #[must_use]
    pub fn ledger_url(&self) -> String {
        format!("redb:{}", self.home().join("ledger.redb").display())
    }

    /// What a sandbox in this process is made of; the ledger is opened.
    ///
    /// # Errors
    /// The policy cannot be read.
    pub async fn options(&self) -> Result<Options> {
        let file = self.home().join("policy.toml");
        let policy = Policy::parse(&file.display().to_string(), &std::fs::read_to_string(&file)?)?;
        let ledger = oncegate_ledger::open(&self.ledger_url()).await.map_err(|error| error.to_string());
        Ok(Options { policy, ledger, cache: self.home().join("cache"), clock: Arc::new(now_ms) })
    }

    /// A sandbox in this process with one component.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn sandbox(&self, name: &str) -> Result<(Sandbox, Arc<Loaded>)> {
        let sandbox = Sandbox::new(self.options().await?)?;
        let component = sandbox.load(&component(name)?)?;
        Ok((sandbox, component))
    }
}

fn policy(components: &[&str], url: &str, limits: &str) -> Result<String> {
    let mut text = String::new();
    for name in components {
        let digest = Sha256::digest(std::fs::read(component(name)?)?);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let grant = if *name == "posting" { "\"get-item\", \"create-posting\"" } else { "" };
        text.push_str(&format!(
            "[[component]]\ndigest = \"sha256:{digest}\"\ntenants = [\"acme\"]\ngrant = [{grant}]\n"
        ));
    }
    text.push_str(&format!(
        "[endpoint.pay]\nurl = \"{url}\"\naccount = \"bench\"\negress = \"direct\"\nallow-private = true\n\
         [credential.pay]\nfrom = \"env:{SECRET}\"\nattach = \"header:Authorization\"\nformat = \"Bearer {{secret}}\"\n\
         [limits]\n{limits}\n"
    ));
    Ok(text)
}

/// A component as `cargo xtask guests` built it.
///
/// # Errors
/// It did not.
pub fn component(name: &str) -> Result<PathBuf> {
    Ok(oncegate_tests::harness::root().join("target/guests").join(format!("{name}.wasm")))
        .and_then(|path| path.canonicalize().with_context(|| format!("{name} is not built; run `cargo xtask guests`")))
}

/// Milliseconds since the Unix epoch.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_one() {
        let Ok(text) = policy(&["tariff", "posting"], "http://127.0.0.1:1", "effects = 3") else { return };
        Policy::parse("policy.toml", &text).unwrap();
    }
}
