//! One Oncegate in a folder of its own, with a ledger, a policy and a fake provider; and the built
//! program run against them as a person would run it.

mod run;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::client::Client;
use crate::provider::Provider;
pub use run::{Run, Running};

/// The tenant that the policy knows.
pub const TENANT: &str = "acme";
/// What every credential of the policy is.
pub const SECRET: &str = "sk_test_0123456789";

/// A component and the contract that it carries.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The wasm file.
    pub component: PathBuf,
    /// The contract's text.
    pub contract: String,
}

impl Guest {
    /// An example from `guest-examples`, as `cargo xtask guests` built it. `ONCEGATE_GUESTS` names
    /// another folder of built guests.
    ///
    /// # Errors
    /// It is not built.
    pub fn example(name: &str) -> Result<Self> {
        let root = root();
        let built = std::env::var_os("ONCEGATE_GUESTS").map_or_else(|| root.join("target/guests"), PathBuf::from);
        let component = built.join(format!("{name}.wasm"));
        if !component.exists() {
            bail!("{} is missing; run `cargo xtask guests`", component.display());
        }
        let contract = root.join(format!("guest-examples/{name}/contract.toml"));
        let contract = fs::read_to_string(&contract).with_context(|| format!("cannot read {}", contract.display()))?;
        Ok(Self { component, contract })
    }
}

/// What a test can choose beside the guest.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// URLs of endpoints that are not the fake provider.
    pub endpoints: BTreeMap<String, String>,
    /// Secrets of credentials that are not [`SECRET`].
    pub secrets: BTreeMap<String, String>,
    /// Lines of the policy's `[limits]`.
    pub limits: String,
    /// Text behind the policy.
    pub policy: String,
}

/// A data directory with ledger and policy, and the provider that the policy names.
pub struct Harness {
    folder: TempDir,
    guest: Guest,
    options: Options,
    provider: Provider,
    program: PathBuf,
}

impl Harness {
    /// For an example guest: starts a provider, writes a policy that grants all that the contract
    /// declares, makes the ledger.
    ///
    /// # Errors
    /// The guest or the program is not built, or `oncegate ledger init` fails.
    pub fn new(name: &str) -> Result<Self> {
        Self::with(Guest::example(name)?, Options::default())
    }

    /// For any guest and with options.
    ///
    /// # Errors
    /// As [`Harness::new`].
    pub fn with(guest: Guest, options: Options) -> Result<Self> {
        let harness = Self {
            folder: tempfile::Builder::new().prefix("oncegate-").tempdir()?,
            guest,
            options,
            provider: Provider::start()?,
            program: program()?,
        };
        fs::create_dir(harness.home())?;
        fs::write(harness.home().join("policy.toml"), harness.policy()?)?;
        let init = harness.run(&["ledger", "init"])?;
        if init.code != Some(0) {
            bail!("`oncegate ledger init` failed: {}", init.stderr);
        }
        Ok(harness)
    }

    /// `$ONCEGATE_HOME`.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// A folder for the test's own files, which goes with the harness.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The component's file.
    pub fn component(&self) -> &Path {
        &self.guest.component
    }

    /// The provider's controls and counts.
    pub fn provider(&self) -> Client {
        Client::new(&self.provider.url())
    }

    /// The provider's URL.
    pub fn provider_url(&self) -> String {
        self.provider.url()
    }

    /// The program with the environment that it needs; arguments are the test's.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("ONCEGATE_HOME", self.home()).envs(self.secrets());
        command
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(&self, arguments: &[&str]) -> Result<Run> {
        let mut command = self.command();
        command.args(arguments);
        Run::of(&mut command)
    }

    /// `oncegate call COMPONENT TOOL --args … --context k=v …`, not yet started: a test may add a
    /// kill point. Context facts are `name=value`; the tenant is already there.
    pub fn call(&self, tool: &str, arguments: &Value, context: &[&str]) -> Command {
        let mut command = self.command();
        command
            .arg("call")
            .arg(self.component())
            .args([tool, "--json", "--args", &arguments.to_string()])
            .args(["--context", &format!("tenant={TENANT}")]);
        for fact in context {
            command.args(["--context", fact]);
        }
        command
    }

    fn policy(&self) -> Result<String> {
        let contract: toml::Table = self.guest.contract.parse().context("the contract")?;
        let mut text = self.grant(&contract)?;
        for (name, endpoint) in table(&contract, "endpoint") {
            let provider = self.provider.url();
            let url = self.options.endpoints.get(name).unwrap_or(&provider);
            text.push_str(&format!(
                "\n[endpoint.{name}]\nurl = \"{url}\"\naccount = \"{name}-test\"\n\
                 egress = \"direct\"\nallow-private = true\n"
            ));
            if let Some(credential) = endpoint.get("credential").and_then(toml::Value::as_str) {
                let variable = variable(credential);
                text.push_str(&format!(
                    "\n[credential.{credential}]\nfrom = \"env:{variable}\"\n\
                     attach = \"header:Authorization\"\nformat = \"Bearer {{secret}}\"\n"
                ));
            }
        }
        text.push_str("\n[context]\n");
        for fact in ["tenant", "trigger", "run", "sequence"] {
            text.push_str(&format!("{fact} = [\"meta\", \"header\", \"serve\"]\n"));
        }
        text.push_str(&format!("\n[limits]\n{}\n", self.options.limits));
        text.push_str(&self.options.policy);
        Ok(text)
    }

    fn grant(&self, contract: &toml::Table) -> Result<String> {
        let component = fs::read(&self.guest.component)
            .with_context(|| format!("cannot read {}", self.guest.component.display()))?;
        let digest: String = Sha256::digest(component).iter().map(|byte| format!("{byte:02x}")).collect();
        let operations: Vec<String> = table(contract, "operation").map(|(name, _)| format!("\"{name}\"")).collect();
        Ok(format!(
            "[[component]]\ndigest = \"sha256:{digest}\"\ntenants = [\"{TENANT}\"]\ngrant = [{}]\n",
            operations.join(", ")
        ))
    }

    /// The secrets of all credentials, as environment.
    pub fn secrets(&self) -> Vec<(String, String)> {
        let contract: toml::Table = self.guest.contract.parse().unwrap_or_default();
        let names = table(&contract, "endpoint")
            .filter_map(|(_, endpoint)| endpoint.get("credential").and_then(toml::Value::as_str));
        names
            .map(|name| {
                let own = self.options.secrets.get(name).map(String::as_str);
                (variable(name), own.unwrap_or(SECRET).to_owned())
            })
            .collect()
    }
}

fn table<'a>(contract: &'a toml::Table, name: &str) -> impl Iterator<Item = (&'a String, &'a toml::Value)> {
    let table = contract.get(name).and_then(toml::Value::as_table);
    table.into_iter().flatten()
}

/// The environment variable that holds a credential's secret: `pay` is in `PAY_KEY`.
fn variable(credential: &str) -> String {
    format!("{}_KEY", credential.to_uppercase().replace('-', "_"))
}

/// The folder of the root manifest.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `$ONCEGATE_BIN`, else the program that was built beside this test.
///
/// # Errors
/// It is not built.
pub fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("ONCEGATE_BIN") {
        return Ok(program.into());
    }
    let own = std::env::current_exe()?;
    let near = own.ancestors().skip(1).take(2);
    near.map(|folder| folder.join("oncegate"))
        .find(|program| program.is_file())
        .context("`oncegate` is not built; run `cargo build -p oncegate`, or name it in ONCEGATE_BIN")
}
