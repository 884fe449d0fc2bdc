//! Appends to the ledger at the path until it is killed, and says so: what the part `growth` recovers from.

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let path = std::env::args_os().nth(1).context("say where the ledger is")?;
    oncegate_bench::part::growth::grow(std::path::Path::new(&path))
}
