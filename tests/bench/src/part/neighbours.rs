//! What a small tool's callers notice of two tools that spin on two cores: `oncegate serve` as it is shipped, over stdio.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use oncegate_tests::attack::Attack;
use oncegate_tests::mcp::Stdio;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::world::{World, component};
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, Times};

const RUNS: usize = 5;
/// Small calls in each measurement.
const CALLS: usize = 3_000;
/// Spinning calls at once: as many as cores on the machines that figures are from.
const SPINNERS: usize = 2;
/// How long the spinners spin before anything is measured.
const SETTLE: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

struct Served {
    client: Stdio,
    _world: World,
    _components: TempDir,
}

/// The row of the 99th percentile, and one of the median.
///
/// # Errors
/// The server does not answer, or a spinner ends by itself.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut served = runtime.block_on(Served::start())?;
    let calls = effort.size(CALLS, 20);
    served.small(calls.min(200))?;
    let (mut p99, mut median, mut spent) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.runs(RUNS) {
        let alone = served.small(calls)?;
        let spinning: Vec<i64> = (0..SPINNERS).map(|_| served.spin()).collect::<Result<_>>()?;
        std::thread::sleep(SETTLE);
        let beside = served.small(calls)?;
        served.stop(&spinning)?;
        p99.push((beside.quantile(0.99), alone.quantile(0.99)));
        median.push((beside.median(), alone.median()));
        spent.push(format!("{:.0} µs beside {:.0} µs", beside.quantile(0.99), alone.quantile(0.99)));
    }
    let name = |what: &str| format!("neighbours' {what} while two tools spin");
    let row =
        |what, goal, pairs: &[_]| Row::new("neighbours", &name(what), "without them", goal, Spread::of_ratios(pairs));
    Ok(vec![row("p99", Goal::AtMost(2.0), &p99).with(spent.join("; ")), row("median", Goal::None, &median)])
}

impl Served {
    async fn start() -> Result<Self> {
        let world =
            World::new(&["tariff"], "http://127.0.0.1:1", "wall-time = \"10m\"\nanswer-within = \"60s\"").await?;
        let folder = tempfile::Builder::new().prefix("oncegate-neighbours-").tempdir()?;
        std::fs::copy(component("tariff")?, folder.path().join("tariff.wasm"))?;
        let spinner = Attack::named("loop-compute")?.component()?;
        std::fs::write(folder.path().join("loop-compute.wasm"), &spinner)?;
        let digest: String = Sha256::digest(&spinner).iter().map(|byte| format!("{byte:02x}")).collect();
        let policy = world.home().join("policy.toml");
        let granted = format!("\n[[component]]\ndigest = \"sha256:{digest}\"\ntenants = [\"acme\"]\ngrant = []\n");
        std::fs::write(&policy, std::fs::read_to_string(&policy)? + &granted)?;
        let mut command = Command::new(super::beside("oncegate")?);
        command.env("ONCEGATE_HOME", world.home()).arg("serve").arg(folder.path());
        command.args(["--prefix", "--context", "tenant=acme"]);
        Ok(Self { client: Stdio::start(&mut command)?, _world: world, _components: folder })
    }

    /// So many small calls, one after the other.
    fn small(&mut self, calls: usize) -> Result<Times> {
        let arguments = json!({ "weight": 1700, "zone": "neighbours", "insured": true });
        let params = json!({ "name": "tariff.quote", "arguments": arguments });
        let mut times = Times::default();
        for _ in 0..calls {
            let started = Instant::now();
            let id = self.client.request("tools/call", &params)?;
            let answer = self.client.answer(id, ANSWER_WITHIN)?;
            times.push(started.elapsed());
            let told = answer.pointer("/result/structuredContent").context("no structured answer")?;
            ensure!(told["result"]["cents"] == json!(1409), "{told:#}");
        }
        Ok(times)
    }

    fn spin(&mut self) -> Result<i64> {
        let params = json!({ "name": "loop-compute.act", "arguments": { "return_id": "R-1" } });
        self.client.request("tools/call", &params)
    }

    fn stop(&mut self, spinning: &[i64]) -> Result<()> {
        let ended = |message: &Value| spinning.iter().any(|id| message["id"] == *id);
        ensure!(!self.client.heard.iter().any(ended), "a spinner ended by itself");
        for id in spinning {
            self.client.notify("notifications/cancelled", &json!({ "requestId": id, "reason": "enough" }))?;
        }
        std::thread::sleep(SETTLE);
        Ok(())
    }
}
