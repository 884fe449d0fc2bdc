//! `oncegate plan run`: calls the tool for every target that is open, some at once.
//!
//! Nothing about a run is stored: what is left to do is what the ledger says. So a run that was killed
//! is taken up by the next one, and two at once do nothing twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use indicatif::ProgressBar;
use oncegate_ledger::{Effects, StateTag};
use oncegate_sandbox::outcome::{Code, Detail, NextAction, Outcome, Status};
use oncegate_sandbox::plan::{Plan, Standing, State, standing};
use oncegate_sandbox::{CallRequest, Loaded, Sandbox, policy};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use super::status::{counts, tone};
use super::{progress, read};
use crate::args::PlanRun;
use crate::commands::call;
use crate::exit::{Exit, usage};
use crate::home::Home;
use crate::print::{self, clean};

/// How often what is not settled is looked at again before it is left for another run.
const ROUNDS_MAX: u32 = 5;
/// Before the first of these rounds; twice as long before each later one.
const ROUND_PAUSE: Duration = Duration::from_millis(500);
/// How long one look may wait for a provider's index.
const LOOK_MAX: Duration = Duration::from_secs(180);
/// Rows that a look can bring further.
const LOOKED_AT: [StateTag; 4] = [StateTag::Dispatched, StateTag::Responded, StateTag::Unknown, StateTag::Issued];

pub(super) async fn run(home: &Home, args: PlanRun) -> anyhow::Result<Exit> {
    // First of all: from here on a signal ends nothing half-way.
    let stop = Stop::listen()?;
    let given = call::context(&args.context)?;
    let ledger = home.ledger().await?;
    let plan = read(&*ledger, &args.plan).await?;
    let context = context(&plan, given)?;
    let sandbox = home.sandbox_over(Ok(Arc::clone(&ledger)))?;
    let component = sandbox.load(&home.component(&args.component).await?)?;
    let description = &component.description;
    let owner = policy::owner(sandbox.policy(), &description.digest, &description.contract.component.name)?.owner;
    ensure!(
        owner == plan.document.owner,
        "the plan {} was frozen for {}, and this component is {}",
        clean(&args.plan),
        clean(&plan.document.owner),
        clean(&owner)
    );
    let before = standing(&ledger, &plan).await.context("the plan cannot be compared with the ledger")?;
    let jobs = jobs(&plan, &before, &context);
    let mut run = Run {
        as_json: home.json(),
        sandbox,
        component,
        effects: Effects::new(Arc::clone(&ledger)),
        at_once: usize::from(args.at_once),
        bar: progress::bar(jobs.len(), "called"),
        stop,
        stopped: false,
        refused: 0,
    };
    let driven = run.drive(jobs).await;
    run.bar.finish_and_clear();
    call::finish(&run.sandbox).await;
    driven?;
    let after = standing(&ledger, &plan).await.context("the plan cannot be compared with the ledger")?;
    run.report(&plan, &after, &args)
}

/// The facts that the plan was frozen with, and those that it was not.
fn context(plan: &Plan, given: BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut context = plan.document.context.clone();
    for (name, value) in given {
        if name == "plan" || context.get(&name).is_some_and(|frozen| *frozen != value) {
            return Err(usage(format!("--context {name}={value}: the plan was frozen with another one")));
        }
        context.insert(name, value);
    }
    context.insert("plan".to_owned(), plan.document.plan.clone());
    Ok(context)
}

/// One target that is still open.
#[derive(Clone)]
struct Job {
    target: usize,
    label: String,
    keys: Vec<[u8; 32]>,
    request: CallRequest,
}

fn jobs(plan: &Plan, standing: &Standing, context: &BTreeMap<String, String>) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for line in &standing.lines {
        let Some(row) = plan.document.targets.get(line.target) else { continue };
        let known = jobs.last_mut().filter(|job| job.target == line.target);
        match known {
            Some(job) => job.keys.push(line.key),
            None => jobs.push(Job {
                target: line.target,
                label: line.label.clone(),
                keys: vec![line.key],
                request: CallRequest {
                    tool: plan.document.tool.clone(),
                    arguments: row.arguments.clone(),
                    context: context.clone(),
                },
            }),
        }
    }
    let runs = |target: usize| standing.lines.iter().any(|line| line.target == target && line.state.can_run());
    let open: std::collections::BTreeSet<usize> =
        standing.lines.iter().map(|line| line.target).filter(|target| runs(*target)).collect();
    jobs.retain(|job| open.contains(&job.target));
    jobs
}

struct Run {
    as_json: bool,
    sandbox: Sandbox,
    component: Arc<Loaded>,
    effects: Effects,
    at_once: usize,
    bar: ProgressBar,
    stop: Stop,
    stopped: bool,
    refused: usize,
}

impl Run {
    /// Calls every target, then looks again at those that are not settled, later and later.
    async fn drive(&mut self, jobs: Vec<Job>) -> anyhow::Result<()> {
        let mut left = self.pass(jobs, false).await?;
        for round in 0..ROUNDS_MAX {
            if left.is_empty() || self.stopped {
                break;
            }
            self.bar.set_message("looked at again");
            tokio::select! {
                () = tokio::time::sleep(ROUND_PAUSE * 2_u32.pow(round)) => left = self.pass(left, true).await?,
                () = self.stop.asked() => self.end(),
            }
        }
        for job in left {
            self.say(&job, "pending", None)?;
        }
        Ok(())
    }

    /// One call for each; gives those that may be settled later.
    async fn pass(&mut self, jobs: Vec<Job>, look_first: bool) -> anyhow::Result<Vec<Job>> {
        let mut waiting = jobs.into_iter();
        let mut running = JoinSet::new();
        let mut left = Vec::new();
        loop {
            while !self.stopped
                && running.len() < self.at_once
                && let Some(job) = waiting.next()
            {
                running.spawn(called(
                    self.sandbox.clone(),
                    Arc::clone(&self.component),
                    look_first.then(|| self.effects.clone()),
                    job,
                ));
            }
            let joined = tokio::select! {
                joined = running.join_next() => joined,
                () = self.stop.asked(), if !self.stopped => {
                    self.end();
                    // A look may wait for minutes; what it sent goes on without it.
                    if look_first {
                        running.abort_all();
                    }
                    continue;
                }
            };
            let Some(joined) = joined else { break };
            if self.stopped && joined.as_ref().is_err_and(tokio::task::JoinError::is_cancelled) {
                continue;
            }
            let (job, outcome) = joined.context("a call was interrupted")?;
            left.extend(self.ended(job, &outcome)?);
        }
        Ok(left)
    }

    /// Nothing is dispatched from now on; what was goes on.
    fn end(&mut self) {
        self.stopped = true;
        self.sandbox.close();
        self.bar.suspend(|| eprintln!("stopping: nothing new is started, what was sent is waited for"));
    }

    /// Tells what came of a call; gives the job back when it may be settled later.
    fn ended(&mut self, job: Job, outcome: &Outcome) -> anyhow::Result<Option<Job>> {
        let later = match (outcome.status, outcome.detail) {
            (Status::Done | Status::AlreadyDone, _) => false,
            (Status::Pending, Some(Detail::AwaitingApproval | Detail::Frozen | Detail::Stranded)) => false,
            (Status::Pending, _) => true,
            (Status::Failed, _) => outcome.next_action == NextAction::CallAgain,
            // Whoever is stopping did not refuse it.
            (Status::Refused, _) if self.stopped => return Ok(None),
            (Status::Refused, _) => outcome.code == Some(Code::LedgerUnavailable),
        };
        if later {
            return Ok(Some(job));
        }
        self.refused += usize::from(outcome.status == Status::Refused);
        self.say(&job, word(outcome.status), Some(outcome))?;
        self.bar.inc(1);
        Ok(None)
    }

    /// One line for a target; on a terminal only for those that are not done.
    fn say(&self, job: &Job, word: &str, outcome: Option<&Outcome>) -> anyhow::Result<()> {
        let receipts: Vec<_> = outcome
            .iter()
            .flat_map(|outcome| &outcome.effects)
            .filter_map(|effect| effect.receipt.as_deref())
            .collect();
        let message = outcome.map_or("it is not settled yet", |outcome| outcome.message.as_str());
        let line = if self.as_json {
            let code = outcome.and_then(|outcome| outcome.code);
            let detail = outcome.and_then(|outcome| outcome.detail);
            print::json(
                &json!({ "target": job.target + 1, "label": job.label, "status": word, "detail": detail, "code": code, "receipts": receipts, "message": message }),
                true,
            )?
        } else {
            let done = matches!(word, "done" | "already_done");
            if done && !self.bar.is_hidden() {
                return Ok(());
            }
            let more = if done { receipts.join(" ") } else { message.to_owned() };
            format!("{word}\t{}\t{}\n", clean(&job.label), clean(&more))
        };
        self.bar.suspend(|| print::out(&line))
    }

    /// Where the plan stands now, and how to go on.
    fn report(&self, plan: &Plan, after: &Standing, args: &PlanRun) -> anyhow::Result<Exit> {
        let open = after.open();
        let name = &plan.document.plan;
        if self.as_json {
            let value = json!({ "plan": name, "stopped": self.stopped, "open": open, "counts": counts(after) });
            print::out(&print::json(&value, true)?)?;
        } else {
            let counted = State::ALL.into_iter().filter(|state| after.count(*state) > 0);
            let words: Vec<_> =
                counted.map(|state| format!("{} {}", after.count(state), tone(state).paint(state.as_str()))).collect();
            print::out(&format!("plan {name}: {}\n", words.join(", ")))?;
        }
        if self.stopped {
            let component = clean(&args.component.display().to_string());
            eprintln!("stopped; what was sent is stored. Go on with: oncegate plan run {name} {component}");
        } else if open > 0 {
            eprintln!("{open} are open; `oncegate plan status {name}` says why");
        }
        Ok(self.exit(after))
    }

    fn exit(&self, after: &Standing) -> Exit {
        let failed = after.count(State::NoEffect);
        match after.open() {
            0 => Exit::Ok,
            open if self.stopped || open > failed + self.refused => Exit::Pending,
            _ if self.refused > 0 => Exit::Refused,
            _ => Exit::Failed,
        }
    }
}

const fn word(status: Status) -> &'static str {
    match status {
        Status::Done => "done",
        Status::AlreadyDone => "already_done",
        Status::Pending => "pending",
        Status::Failed => "failed",
        Status::Refused => "refused",
    }
}

/// One call; before it, where that is asked for, a patient look at what is open.
async fn called(sandbox: Sandbox, component: Arc<Loaded>, look_first: Option<Effects>, job: Job) -> (Job, Outcome) {
    if let Some(effects) = look_first {
        for key in &job.keys {
            let row = effects.get(*key).await;
            if matches!(row, Ok(Some(row)) if LOOKED_AT.contains(&row.state) && !row.frozen) {
                // What it learns is in the row; the call tells it.
                let _ = tokio::time::timeout(LOOK_MAX, sandbox.reconcile(*key)).await;
            }
        }
    }
    let outcome = sandbox.call(&component, job.request.clone()).await;
    (job, outcome)
}

/// Interrupt and termination, from the start of the run to its end.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("signals cannot be waited for");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
