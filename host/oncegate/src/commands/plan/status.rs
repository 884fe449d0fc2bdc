//! `oncegate plan status`: a plan and the ledger side by side.

use anyhow::{Context, ensure};
use oncegate_sandbox::plan::{Line, Outside, Plan, Standing, State, standing};
use oncegate_sandbox::rfc3339;
use serde_json::{Value, json};

use super::read;
use crate::exit::Exit;
use crate::home::Home;
use crate::print::{self, Cell, Tone, clean, hex};

pub(super) async fn run(home: &Home, plan: &str, against: Option<&str>, all: bool) -> anyhow::Result<Exit> {
    let ledger = home.ledger_for_reading().await?;
    let plan = read(&*ledger, plan).await?;
    let standing = standing(&ledger, &plan).await.context("the plan cannot be compared with the ledger")?;
    let later = match against {
        Some(later) => Some(read(&*ledger, later).await?),
        None => None,
    };
    let dropped = match &later {
        Some(later) => dropped(&plan, &standing, later)?,
        None => Vec::new(),
    };
    let text = if home.json() {
        print::json(&machine(&plan, &standing, later.as_ref().map(|_| &dropped[..])), true)?
    } else {
        page(&plan, &standing, later.as_ref().map(|later| (later, &dropped[..])), all)
    };
    print::out(&text)?;
    Ok(if standing.open() == 0 { Exit::Ok } else { Exit::Pending })
}

/// The plan's effects that a later plan of the same tool does not have.
fn dropped<'a>(plan: &Plan, standing: &'a Standing, later: &Plan) -> anyhow::Result<Vec<&'a Line>> {
    let (one, other) = (&plan.document, &later.document);
    ensure!(
        one.tool == other.tool && one.owner == other.owner && one.tenant == other.tenant,
        "the plan {} is for another tool, owner or tenant, so its targets cannot be compared",
        clean(&other.plan)
    );
    let effects = one.targets.iter().flat_map(|row| &row.effects);
    Ok(effects
        .zip(&standing.lines)
        .filter(|(effect, _)| later.effect(&effect.key).is_none())
        .map(|(_, line)| line)
        .collect())
}

/// The counts of all states, also those that nothing has come to.
pub(super) fn counts(standing: &Standing) -> Value {
    let counts = State::ALL.map(|state| (state.as_str().to_owned(), standing.count(state).into()));
    Value::Object(counts.into_iter().collect())
}

fn machine(plan: &Plan, standing: &Standing, dropped: Option<&[&Line]>) -> Value {
    let document = &plan.document;
    json!({
        "plan": document.plan,
        "tool": document.tool,
        "tenant": document.tenant,
        "context": document.context,
        "frozen_at": rfc3339(plan.at),
        "actor": plan.actor,
        "reason": document.reason,
        "targets": document.targets.len(),
        "open": standing.open(),
        "counts": counts(standing),
        "effects": standing.lines.iter().map(|line| effect(plan, line)).collect::<Vec<_>>(),
        "outside": standing.outside.iter().map(outside).collect::<Vec<_>>(),
        "dropped": dropped.map(|lines| lines.iter().map(|line| effect(plan, line)).collect::<Vec<_>>()),
    })
}

fn effect(plan: &Plan, line: &Line) -> Value {
    let row = line.row.as_ref();
    let arguments = plan.document.targets.get(line.target).map(|target| &target.arguments);
    json!({
        "target": line.target + 1,
        "key": hex(&line.key),
        "label": line.label,
        "state": line.state.as_str(),
        "open": line.state.is_open(),
        "why": line.why,
        "receipt": row.and_then(|row| row.receipt.as_deref()),
        "since": row.map(|row| rfc3339(row.state_since)),
        "before": line.before,
        "sent_by": row.filter(|row| row.dispatch.is_some()).and_then(|row| row.ties()?.plan.clone()),
        "arguments": arguments,
    })
}

fn outside(outside: &Outside) -> Value {
    let row = &outside.row;
    json!({
        "key": hex(&outside.key),
        "label": row.label(),
        "state": row.state,
        "receipt": row.receipt,
        "since": rfc3339(row.state_since),
        "plan": row.ties().and_then(|ties| ties.plan.clone()),
    })
}

fn page(plan: &Plan, standing: &Standing, later: Option<(&Plan, &[&Line])>, all: bool) -> String {
    let document = &plan.document;
    let mut text = format!(
        "plan {}: {} of {} for {}, frozen {} by {}: {}\n\n",
        clean(&document.plan),
        clean(&document.tool),
        clean(&document.owner),
        clean(&document.tenant),
        rfc3339(plan.at),
        clean(&plan.actor),
        clean(&document.reason),
    );
    let counted: Vec<_> = State::ALL.into_iter().filter(|state| standing.count(*state) > 0).collect();
    for state in counted {
        text.push_str(&format!("{:>6} {}\n", standing.count(state), tone(state).paint(state.as_str())));
    }
    text.push_str(&format!("{:>6} sent outside the plan\n", standing.outside.len()));
    if let Some((later, dropped)) = later {
        text.push_str(&format!("{:>6} dropped by {}\n", dropped.len(), clean(&later.document.plan)));
    }
    let shown: Vec<_> = standing.lines.iter().filter(|line| all || line.state != State::Done).collect();
    text.push_str(&effects("", &shown));
    if !standing.outside.is_empty() {
        let rows: Vec<_> = standing.outside.iter().map(outside_cells).collect();
        text.push_str("\nsent outside the plan\n");
        text.push_str(&print::table(&["key", "label", "state", "receipt", "plan"], &rows));
    }
    if let Some((later, dropped)) = later {
        text.push_str(&effects(&format!("dropped by {}\n", clean(&later.document.plan)), dropped));
    }
    text
}

fn effects(title: &str, lines: &[&Line]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = lines.iter().map(|line| cells(line)).collect();
    format!("\n{title}{}", print::table(&["target", "label", "state", "receipt", "why"], &rows))
}

fn cells(line: &Line) -> Vec<Cell> {
    let receipt = line.row.as_ref().and_then(|row| row.receipt.as_deref());
    vec![
        Cell::new((line.target + 1).to_string()),
        Cell::new(&line.label),
        Cell::toned(tone(line.state), line.state.as_str()),
        Cell::new(receipt.unwrap_or("-")),
        Cell::new(line.why.as_deref().unwrap_or("-")),
    ]
}

fn outside_cells(outside: &Outside) -> Vec<Cell> {
    let row = &outside.row;
    vec![
        Cell::new(hex(&outside.key[..6])),
        Cell::new(row.label()),
        Cell::new(row.state.as_str()),
        Cell::new(row.receipt.as_deref().unwrap_or("-")),
        Cell::new(row.ties().and_then(|ties| ties.plan.as_deref()).unwrap_or("-")),
    ]
}

pub(super) fn tone(state: State) -> Tone {
    match state {
        State::Done => Tone::Good,
        State::Unknown | State::Frozen | State::Stranded | State::Mismatch => Tone::Bad,
        State::Waiting | State::NoEffect => Tone::Warn,
        _ => Tone::Plain,
    }
}
