//! From the start of `oncegate serve` to its answer to `tools/list`, as a process: 50 components beside one.
//!
//! The components are one, 50 times under another name, so each has code, a description and tools of its own. All have
//! been served before: their code is in the cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::{mcp, world};
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, Times};

/// Components of the many.
const MANY: usize = 50;
/// What is changed in a component to make it another one: its contract's name.
const NAME: &[u8] = b"\"tariff\"";

/// Measures the row.
///
/// # Errors
/// The program or the guest is not built, or it does not serve all tools.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    let (one, many) = (Home::new(1)?, Home::new(effort.size(MANY, 3))?);
    let cold = many.start()?;
    one.start()?;
    let mut pairs = Vec::new();
    for _ in 0..effort.runs(7) {
        let (mut of_many, mut of_one) = (Times::default(), Times::default());
        for _ in 0..effort.size(8, 1) {
            of_many.push(many.start()?);
            of_one.push(one.start()?);
        }
        pairs.push((of_many.median(), of_one.median()));
    }
    let side = |side: fn(&(f64, f64)) -> f64| Spread::of(&pairs.iter().map(side).collect::<Vec<_>>()).median / 1e3;
    let detail = format!(
        "{:.1} ms beside {:.1} ms; {:.0} ms when all had to be compiled",
        side(|pair| pair.0),
        side(|pair| pair.1),
        cold.as_secs_f64() * 1e3
    );
    let (name, against) = ("start to tools/list, 50 cached components", "1 component");
    Ok(vec![Row::new("start", name, against, Goal::AtMost(3.0), Spread::of_ratios(&pairs)).with(detail)])
}

/// A folder with a policy, a ledger, a cache and components.
struct Home {
    folder: TempDir,
    components: Vec<PathBuf>,
}

impl Home {
    fn new(count: usize) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("oncegate-bench-").tempdir()?;
        let guest = std::fs::read(world::component("tariff")?)?;
        let (mut policy, mut components) = (String::new(), Vec::new());
        for number in 0..count {
            let bytes = renamed(&guest, number)?;
            let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            policy
                .push_str(&format!("[[component]]\ndigest = \"sha256:{digest}\"\ntenants = [\"acme\"]\ngrant = []\n"));
            let path = folder.path().join(format!("{number}.wasm"));
            std::fs::write(&path, bytes)?;
            components.push(path);
        }
        std::fs::write(folder.path().join("policy.toml"), policy)?;
        let tokio = tokio::runtime::Builder::new_current_thread().build()?;
        let ledger = format!("redb:{}", folder.path().join("ledger.redb").display());
        tokio.block_on(oncegate_ledger::init(&ledger))?;
        Ok(Self { folder, components })
    }

    /// Starts, and hears of all tools.
    fn start(&self) -> Result<std::time::Duration> {
        let mut command = Command::new(super::beside("oncegate")?);
        command.env("ONCEGATE_HOME", self.folder.path()).env_remove("ONCEGATE_ISOLATION");
        command.args(["serve", "--prefix"]).args(&self.components);
        let started = Instant::now();
        let mut client = mcp::start(command)?;
        let tools = client.tools()?;
        let took = started.elapsed();
        // Beside them there is the host's own.
        ensure!(tools.len() == self.components.len() + 1, "{} tools are served: {tools:?}", tools.len());
        Ok(took)
    }
}

/// The guest under another name that is as long.
fn renamed(guest: &[u8], number: usize) -> Result<Vec<u8>> {
    let mut bytes = guest.to_vec();
    let mut found = false;
    while let Some(at) = bytes.windows(NAME.len()).position(|window| window == NAME) {
        bytes.splice(at..at + NAME.len(), format!("\"tar{number:03}\"").bytes());
        found = true;
    }
    found.then_some(bytes).context("the guest has no name in it")
}
