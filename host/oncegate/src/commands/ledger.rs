//! `oncegate ledger`: making, looking at and looking after the ledger.

use anyhow::Context;

use crate::args::{Ledger, LedgerCommand};
use crate::exit::Exit;
use crate::home::Home;

pub(crate) async fn run(home: &Home, args: Ledger) -> anyhow::Result<Exit> {
    match args.command {
        LedgerCommand::Init => init(home).await,
        _ => anyhow::bail!("being written"),
    }
}

async fn init(home: &Home) -> anyhow::Result<Exit> {
    let url = home.ledger_url();
    let ledger = oncegate_ledger::init(&url).await.with_context(|| format!("the ledger {url} cannot be created"))?;
    println!("created {}", ledger.identity().url);
    Ok(Exit::Ok)
}
