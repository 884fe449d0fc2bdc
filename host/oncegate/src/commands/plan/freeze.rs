//! `oncegate plan freeze`: from a list of targets to a plan.

use std::sync::Arc;

use anyhow::{Context, bail};
use oncegate_sandbox::describe::ToolDescription;
use oncegate_sandbox::outcome::Status;
use oncegate_sandbox::plan::{Freeze, FreezeError, Frozen, Step, TARGETS_MAX, Unresolved};
use oncegate_sandbox::{CallRequest, Loaded, Sandbox};
use serde_json::json;

use super::progress;
use super::targets::{List, Reader};
use crate::args::PlanFreeze;
use crate::commands::call;
use crate::exit::{Exit, usage};
use crate::home::Home;
use crate::print::{self, Cell, clean};

pub(super) async fn run(home: &Home, args: PlanFreeze) -> anyhow::Result<Exit> {
    let context = call::context(&args.context)?;
    if context.contains_key("plan") {
        return Err(usage("--context plan=…: the plan is the one that is frozen"));
    }
    let reason = said("--reason", &args.reason, "say why these targets")?;
    let actor = said("--actor", args.actor.as_deref().unwrap_or_default(), "say who approves them")?;
    let ledger = home.ledger().await?;
    let sandbox = home.sandbox_over(Ok(ledger))?;
    let component = sandbox.load(&home.component(&args.component).await?)?;
    let tool = tool(&component, &args.tool)?;
    if !tool.acts() {
        bail!("the tool {} has no effects, so there is nothing to plan", clean(&args.tool));
    }
    let reader = Reader::of(tool, &component.description.contract);
    let list = match (&args.targets, &args.targets_from) {
        (Some(file), _) => reader.file(file)?,
        (None, Some(from)) => {
            let arguments = call::arguments(&args.args)?;
            let request = CallRequest { tool: from.clone(), arguments, context: context.clone() };
            dry_run(&sandbox, &component, request, &reader).await?
        }
        (None, None) => return Err(usage("give --targets or --targets-from")),
    };
    if !list.unresolved.is_empty() {
        return refused(home, &args.plan, &list.unresolved);
    }
    let freeze = Freeze { plan: args.plan.clone(), tool: args.tool, context, targets: list.targets, actor, reason };
    let bar = progress::bar(freeze.targets.len().min(TARGETS_MAX), "resolved");
    let watch = |step: Step| match step {
        Step::Resolved(count) => bar.set_position(count as u64),
        Step::Stored(_) => bar.set_message("storing"),
    };
    let frozen = sandbox.freeze(&component, freeze, &watch).await;
    bar.finish_and_clear();
    match frozen {
        Ok(frozen) => {
            print(home, &args.plan, &frozen)?;
            Ok(Exit::Ok)
        }
        Err(FreezeError::Targets(unresolved)) => refused(home, &args.plan, &unresolved),
        Err(error @ FreezeError::Differs { .. }) => {
            eprintln!("error: {}", clean(&error.to_string()));
            Ok(Exit::Refused)
        }
        Err(error) => Err(error).with_context(|| format!("the plan {} was not frozen", clean(&args.plan))),
    }
}

fn said(option: &str, text: &str, otherwise: &str) -> anyhow::Result<String> {
    let text = text.trim();
    if text.is_empty() { Err(usage(format!("{option} is empty: {otherwise}"))) } else { Ok(text.to_owned()) }
}

fn tool<'a>(component: &'a Loaded, name: &str) -> anyhow::Result<&'a ToolDescription> {
    let tool = component.description.tools.iter().find(|tool| tool.name == name);
    tool.with_context(|| format!("the component has no tool {}", clean(name)))
}

/// The list that a tool without effects returns.
async fn dry_run(
    sandbox: &Sandbox,
    component: &Arc<Loaded>,
    request: CallRequest,
    reader: &Reader,
) -> anyhow::Result<List> {
    let name = clean(&request.tool);
    if tool(component, &request.tool)?.acts() {
        bail!("the tool {name} can cause effects; a list of targets comes from a tool that only reads");
    }
    let outcome = sandbox.call(component, request).await;
    if outcome.status != Status::Done {
        bail!("the tool {name} gave no list: {} {}", clean(&outcome.message), clean(&outcome.result.to_string()));
    }
    reader.json(&outcome.result).with_context(|| format!("the result of the tool {name} is no list of targets"))
}

/// Every target that stands in the way.
fn refused(home: &Home, plan: &str, unresolved: &[Unresolved]) -> anyhow::Result<Exit> {
    let count = unresolved.len();
    eprintln!("error: {count} of the targets cannot be frozen, so none is");
    if home.json() {
        let places = unresolved.iter().map(|one| json!({ "place": one.place, "why": one.why })).collect::<Vec<_>>();
        print::out(&print::json(&json!({ "plan": plan, "frozen": false, "unresolved": places }), true)?)?;
    } else {
        for Unresolved { place, why } in unresolved {
            eprintln!("  {}: {}", clean(place), clean(why));
        }
    }
    Ok(Exit::Refused)
}

fn print(home: &Home, plan: &str, frozen: &Frozen) -> anyhow::Result<()> {
    let Frozen { targets, effects, written, again, existing, repeated } = frozen;
    if home.json() {
        let rows = existing.iter().map(|row| json!({ "label": row.label, "state": row.state })).collect::<Vec<_>>();
        let value = json!({
            "plan": plan, "frozen": true, "again": again, "targets": targets, "effects": effects,
            "written": written, "existing": rows, "repeated": repeated,
        });
        return print::out(&print::json(&value, true)?);
    }
    let again = if *again { "was frozen already, with the same targets" } else { "is frozen" };
    let mut text =
        format!("the plan {} {again}: {targets} targets, {effects} effects, {written} rows written\n", clean(plan));
    if *repeated > 0 {
        text.push_str(&format!("{repeated} lines repeat a target and count once\n"));
    }
    if !existing.is_empty() {
        text.push_str(&format!("{} rows were there before and stay as they are:\n", existing.len()));
        let rows: Vec<_> =
            existing.iter().map(|row| vec![Cell::new(&row.label), Cell::new(row.state.as_str())]).collect();
        text.push_str(&print::table(&["label", "state"], &rows));
    }
    print::out(&text)
}
