//! One call of a tool that computes and asks nobody, through the library, beside the bare engine.
//!
//! Ours is what a program does that has an agent's JSON and wants JSON for it: the arguments are parsed from text, the
//! call is made by [`Sandbox::call`] under a policy and a ledger, and the outcome is written as text. The other side is
//! `bare`.

mod bare;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use oncegate_sandbox::{CallRequest, Loaded, Sandbox};
use serde_json::Value;

use self::bare::{Bare, Parcel, Price, Zone};
use super::world::{World, component};
use crate::program::Effort;
use crate::row::{Goal, Row};
use crate::sample::{Spread, Times};

const PART: &str = "calls";
/// Small arguments, as an agent writes them.
pub(crate) const ARGUMENTS: &str = r#"{"weight": 1200, "zone": "neighbours", "insured": true, "note": null}"#;
/// Calls of one side before it is the other side's turn: both meet the same neighbours.
const TURN: usize = 100;

/// Measures.
///
/// # Errors
/// A call does not come to what it must.
pub fn measure(effort: Effort, _: &Path) -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // Within a task, as a server makes its calls.
    runtime.block_on(async move { tokio::spawn(measured(effort)).await? })
}

async fn measured(effort: Effort) -> Result<Vec<Row>> {
    let world = World::new(&["tariff"], "http://127.0.0.1:1", "").await?;
    let (sandbox, tariff) = world.sandbox("tariff").await?;
    let bare = Bare::new(&component("tariff")?)?;
    let (mut pairs, mut details) = (Vec::new(), (Vec::new(), Vec::new()));
    for _ in 0..effort.runs(7) {
        let (mut ours, mut theirs) = (Times::default(), Times::default());
        for _ in 0..effort.size(50, 1) {
            timed(&mut ours, effort.size(TURN, 20), Side::Ours(&sandbox, &tariff)).await?;
            timed(&mut theirs, effort.size(TURN, 20), Side::Theirs(&bare)).await?;
        }
        pairs.push((ours.median(), theirs.median()));
        details.0.push(ours.median());
        details.1.push(theirs.median());
    }
    let (ours, theirs) = (Spread::of(&details.0), Spread::of(&details.1));
    let name = "fresh-sandbox read tool through the library, small arguments, JSON in and out";
    let against = "bare wasmtime, same safe profile and component, typed";
    let row = Row::new(PART, name, against, Goal::AtMost(1.3), Spread::of_ratios(&pairs))
        .with(format!("p50 {:.1} µs beside {:.1} µs", ours.median, theirs.median));
    Ok(vec![row])
}

#[derive(Clone, Copy)]
enum Side<'a> {
    Ours(&'a Sandbox, &'a Arc<Loaded>),
    Theirs(&'a Bare),
}

/// Times as many calls.
async fn timed(times: &mut Times, calls: usize, side: Side<'_>) -> Result<()> {
    for _ in 0..calls {
        let started = Instant::now();
        match side {
            Side::Ours(sandbox, tariff) => through_library(sandbox, tariff).await?,
            Side::Theirs(bare) => typed(bare).await?,
        }
        times.push(started.elapsed());
    }
    Ok(())
}

/// One call as an agent's host makes it.
pub(crate) async fn through_library(sandbox: &Sandbox, tariff: &Arc<Loaded>) -> Result<()> {
    let arguments: Value = serde_json::from_str(ARGUMENTS)?;
    let request = CallRequest { tool: "quote".to_owned(), arguments, context: BTreeMap::new() };
    let outcome = sandbox.call(tariff, request).await;
    let text = serde_json::to_string(&outcome)?;
    let is_it = text.starts_with(r#"{"status":"done","#) && text.contains(r#""cents":1289"#);
    ensure!(is_it, "it came to {text}");
    Ok(())
}

async fn typed(bare: &Bare) -> Result<()> {
    let parcel = Parcel { weight: 1_200, zone: Zone::Neighbours, insured: true, note: None };
    let Price { cents, .. } = bare.quote(&parcel).await.context("the bare engine")?;
    ensure!(cents == 1_289, "it came to {cents}");
    Ok(())
}
