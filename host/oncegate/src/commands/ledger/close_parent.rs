//! `oncegate ledger close-parent`: nobody comes back to it, and what belongs to it may be pruned.

use std::collections::BTreeSet;

use oncegate_ledger::{Event, StreamId};

use super::by::{Taken, said};
use super::stream_decision::{Stream, record};
use crate::args::decide::CloseParent;
use crate::exit::{Exit, usage};
use crate::home::{Home, now_ms};

const STAKES: &str = "what belongs to it may be pruned once the replay window is over: receipts stay, answers do not";

pub(super) async fn run(home: &Home, asked: &CloseParent) -> anyhow::Result<Exit> {
    let parent = said("PARENT", &asked.parent, "name what effects belong to")?;
    let tenant = match &asked.tenant {
        Some(tenant) => tenant.clone(),
        None => only_tenant(home)?,
    };
    let ledger = home.ledger().await?;
    let taken = Taken::of(&asked.by, &["close-parent", &tenant, parent])?;
    let stream = Stream {
        ledger: &ledger,
        id: StreamId::parent(&tenant, parent),
        verb: "close-parent",
        what: format!("{parent} of {tenant} is closed"),
        stakes: Some(STAKES),
        once: true,
    };
    let event = |taken: &Taken| Event::ParentClosed {
        parent: parent.to_owned(),
        actor: taken.actor.clone(),
        reason: taken.reason.clone(),
        at: now_ms(),
        decision: Some(taken.id.clone()),
    };
    record(home, &stream, &taken, event).await
}

fn only_tenant(home: &Home) -> anyhow::Result<String> {
    let policy = home.policy()?;
    let tenants: BTreeSet<&String> = policy.components.iter().flat_map(|rule| &rule.tenants).collect();
    match tenants.into_iter().collect::<Vec<_>>().as_slice() {
        [tenant] => Ok((*tenant).clone()),
        [] => Err(usage("the policy names no tenant; say whose it is with --tenant")),
        _ => Err(usage("the policy names several tenants; say whose it is with --tenant")),
    }
}
