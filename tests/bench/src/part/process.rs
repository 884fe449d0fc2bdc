//! `oncegate call` as a process, from its start to its end, beside the program doing nothing; and a component that has to
//! be compiled beside one whose code is in the cache.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::mcp;
use super::provider::Instant as Provider;
use super::world::{self, World};
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, Times};

const NOTHING: &str = "oncegate --version";

/// Measures the rows.
///
/// # Errors
/// The program or the guests are not built, or a call does not do what it must.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    let provider = Provider::start()?;
    let tokio = tokio::runtime::Builder::new_current_thread().build()?;
    let world = tokio.block_on(World::new(&["tariff", "posting"], &provider.url, ""))?;
    let mut calls = Calls { world, posted: 0 };
    calls.read()?;
    calls.post()?;
    let (mut reads, mut posts, mut compiled) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..effort.runs(7) {
        let (mut nothing, mut read, mut post, mut cold) =
            (Times::default(), Times::default(), Times::default(), Times::default());
        for _ in 0..effort.size(8, 1) {
            nothing.push(calls.nothing()?);
            read.push(calls.read()?);
            post.push(calls.post()?);
        }
        for _ in 0..effort.size(2, 1) {
            cold.push(calls.compiled()?);
        }
        reads.push((read.median(), nothing.median()));
        posts.push((post.median(), nothing.median()));
        compiled.push((cold.median(), read.median()));
    }
    let (count, keys) = provider.effects()?;
    ensure!((count, keys) == (calls.posted, calls.posted), "{count} effects under {keys} keys of {}", calls.posted);
    Ok(vec![
        row("oncegate call, a read, as a process", NOTHING, &reads),
        row("oncegate call, an effect, as a process", NOTHING, &posts),
        row("oncegate call, its component compiled first", "from the cache", &compiled),
    ])
}

fn row(name: &str, against: &str, pairs: &[(f64, f64)]) -> Row {
    let side = |side: fn(&(f64, f64)) -> f64| Spread::of(&pairs.iter().map(side).collect::<Vec<_>>()).median / 1e3;
    let detail = format!("{:.1} ms beside {:.1} ms", side(|pair| pair.0), side(|pair| pair.1));
    Row::new("process", name, against, Goal::None, Spread::of_ratios(pairs)).with(detail)
}

struct Calls {
    world: World,
    posted: u64,
}

impl Calls {
    fn nothing(&self) -> Result<Duration> {
        self.run(&["--version"]).map(|(took, _)| took)
    }

    fn read(&self) -> Result<Duration> {
        let (took, said) = self.call("tariff", "quote", &mcp::parcel())?;
        ensure!(said["status"] == "done" && said["result"]["cents"] == 1289, "it answers {said}");
        Ok(took)
    }

    fn compiled(&self) -> Result<Duration> {
        std::fs::remove_dir_all(self.world.home().join("cache"))?;
        let took = self.read();
        // The other component's code went with it.
        self.call("posting", "look", &json!({ "id": "X-1" }))?;
        took
    }

    fn post(&mut self) -> Result<Duration> {
        self.posted += 1;
        let arguments = json!({ "id": format!("P-{}", self.posted), "amount": 1200, "memo": "as agreed" });
        let (took, said) = self.call("posting", "post", &arguments)?;
        ensure!(said["status"] == "done" && said["replayed"] == false, "it answers {said}");
        Ok(took)
    }

    fn call(&self, component: &str, tool: &str, arguments: &Value) -> Result<(Duration, Value)> {
        let component = world::component(component)?.display().to_string();
        let (took, printed) = self.run(&["call", &component, tool, "--args", &arguments.to_string(), "--json"])?;
        Ok((took, serde_json::from_str(&printed)?))
    }

    /// From the start of the process until it has ended.
    fn run(&self, words: &[&str]) -> Result<(Duration, String)> {
        let mut command = Command::new(super::beside("oncegate")?);
        command.args(words).env("ONCEGATE_HOME", self.world.home()).env_remove("ONCEGATE_ISOLATION");
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let started = Instant::now();
        let output = command.output()?;
        let took = started.elapsed();
        ensure!(output.status.success(), "`oncegate {}` ended with {}", words[0], output.status);
        Ok((took, String::from_utf8(output.stdout)?))
    }
}
