//! `cargo xtask demo`: one refund, told step by step, and counted at the provider.
//!
//! Every step runs the built program in a process of its own, as an agent host would; the provider
//! is a process too, and its count is what the story ends with.

mod stage;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Value, json};

use crate::guests::Guests;
use stage::Stage;

/// Tell the story of a refund that happens once
#[derive(clap::Args)]
pub(crate) struct Demo {
    /// Print one JSON object a step
    #[arg(long)]
    json: bool,
}

/// The return that the story is about, in cents.
const AMOUNT: u32 = 4_200;

#[derive(Serialize)]
struct Step {
    step: usize,
    does: &'static str,
    hears: String,
    detail: String,
}

impl Demo {
    /// Tells the story; an error if it does not end as it should.
    pub(crate) fn run(&self) -> Result<()> {
        Guests::build_quietly()?;
        let stage = Stage::set()?;
        let mut story = Story { stage, json: self.json, steps: 0 };
        story.tell()
    }
}

struct Story {
    stage: Stage,
    json: bool,
    steps: usize,
}

impl Story {
    fn tell(&mut self) -> Result<()> {
        self.title("An agent refunds return R-1001. The provider makes the refund, then never answers.");
        self.stage
            .control(&json!({ "mode": "complete-then-hang", "path": "/v1/refunds", "method": "POST", "times": 1 }))?;

        let mut first = self.stage.call(AMOUNT, "the lamp arrived broken", "monday")?;
        self.step("the agent asks for a refund of 42.00", &first.outcome()?, "pending")?;

        let mut second = self.stage.call(AMOUNT, "Customer reports: lamp damaged in transit", "monday")?;
        self.step("the model asks again in other words", &second.outcome()?, "pending")?;

        first.kill()?;
        second.kill()?;
        self.tell_step(
            "the host is killed with SIGKILL between sending and storing",
            "killed",
            "the row in the ledger says `dispatched`",
        )?;

        let settled = self.stage.call(AMOUNT, "lamp was broken", "monday")?.finish()?;
        self.step("the host starts again and looks the refund up at the provider", &settled, "done")?;
        let receipt = settled["effects"][0]["receipt"].clone();

        let replay = self.stage.call(AMOUNT, "Refund for damaged lamp (R-1001)", "tuesday")?.finish()?;
        self.step("next day, a new session decides the refund anew", &replay, "already_done")?;
        if replay["effects"][0]["receipt"] != receipt {
            bail!("another receipt was told: {replay}");
        }

        let changed = self.stage.call(AMOUNT - 200, "lamp was broken", "tuesday")?.finish()?;
        self.step("the model asks for 40.00 instead", &changed, "refused")?;
        self.end(&receipt)
    }

    fn end(&self, receipt: &Value) -> Result<()> {
        let count = self.stage.effects()?;
        if self.json {
            println!("{}", json!({ "effects_at_provider": count, "receipt": receipt }));
        } else {
            println!(
                "\nThe provider counts {count} refund{}; its receipt is {receipt}.",
                if count == 1 { "" } else { "s" }
            );
        }
        if count == 1 { Ok(()) } else { bail!("the provider made {count} refunds; 1 was asked for") }
    }

    fn title(&self, text: &str) {
        if !self.json {
            println!("{text}\n");
        }
    }

    fn step(&mut self, does: &'static str, outcome: &Value, expected: &str) -> Result<()> {
        let status = outcome["status"].as_str().context("the outcome has no status")?;
        let detail = ["detail", "code"].iter().find_map(|name| outcome[name].as_str()).unwrap_or_default();
        let receipt = outcome["effects"][0]["receipt"].as_str().unwrap_or_default();
        let message = outcome["message"].as_str().unwrap_or_default();
        let words =
            [detail, receipt, message].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" · ");
        self.tell_step(does, status, &words)?;
        if status == expected { Ok(()) } else { bail!("`{expected}` was expected: {outcome}") }
    }

    fn tell_step(&mut self, does: &'static str, hears: &str, detail: &str) -> Result<()> {
        self.steps += 1;
        let step = Step { step: self.steps, does, hears: hears.to_owned(), detail: detail.to_owned() };
        if self.json {
            println!("{}", serde_json::to_string(&step)?);
        } else {
            println!("{}. {:<64} → {:<13} {}", step.step, step.does, step.hears, step.detail);
        }
        Ok(())
    }
}
