//! Writes a ledger as fast as it goes: `appender LEDGER FIRST COUNT ACKNOWLEDGED` lives COUNT effects
//! from number FIRST on, and writes a line to the file ACKNOWLEDGED for each append that is durable.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::{Context, Result};
use oncegate_tests::appends;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ledger, first, count, acknowledged] = arguments.as_slice() else {
        anyhow::bail!("usage: appender LEDGER FIRST COUNT ACKNOWLEDGED");
    };
    let file = OpenOptions::new().create(true).append(true).open(acknowledged).context(acknowledged.clone())?;
    appends::append(Path::new(ledger), first.parse()?, count.parse()?, file)
}
