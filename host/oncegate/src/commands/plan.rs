//! `oncegate plan`: targets that are approved before the first effect.

mod freeze;
mod progress;
mod run;
mod status;
mod targets;

use anyhow::{Context, bail};
use oncegate_ledger::Ledger;
use oncegate_sandbox::plan::Plan;

use crate::args::{self, PlanCommand};
use crate::exit::Exit;
use crate::home::Home;
use crate::print::clean;

pub(crate) async fn run(home: &Home, args: args::Plan) -> anyhow::Result<Exit> {
    match args.command {
        PlanCommand::Freeze(args) => freeze::run(home, args).await,
        PlanCommand::Status { plan, against, all } => status::run(home, &plan, against.as_deref(), all).await,
        PlanCommand::Run(args) => run::run(home, args).await,
    }
}

async fn read(ledger: &dyn Ledger, plan: &str) -> anyhow::Result<Plan> {
    let read = Plan::read(ledger, plan).await.with_context(|| format!("the plan {} cannot be read", clean(plan)))?;
    match read {
        Some(plan) => Ok(plan),
        None => bail!("there is no plan {}; `oncegate plan freeze` makes one", clean(plan)),
    }
}
