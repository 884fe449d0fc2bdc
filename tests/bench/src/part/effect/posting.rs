//! Calls of the component `posting`, each of one effect under a key of its own.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use oncegate_ledger::Event;
use oncegate_sandbox::outcome::{Outcome, Status};
use oncegate_sandbox::{CallRequest, Loaded, Sandbox};
use serde_json::json;
use tokio::runtime::Runtime;

use super::super::world::World;

/// Text that a model words; the rest of a request is short.
const MEMO: &str = "Paid out after the second reminder, as agreed with the customer on the phone.";
/// Long enough for what a call leaves to be stored behind it.
const SETTLES: Duration = Duration::from_millis(30);

/// Bytes that one effect leaves in our ledger.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The record of the dispatch.
    pub dispatch: usize,
    /// The provider's raw answer.
    pub answer: usize,
    /// The request.
    pub request: usize,
}

/// A sandbox with the component, and how many effects it was asked for.
pub struct Posting {
    world: World,
    sandbox: Sandbox,
    component: Arc<Loaded>,
    made: AtomicU64,
}

/// Two threads for everything that is ours, as on the machine that it is measured on.
///
/// # Errors
/// The threads cannot be started.
pub fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

impl Posting {
    /// A new ledger, and a sandbox over it.
    ///
    /// # Errors
    /// The component is not built.
    pub async fn new(url: &str) -> Result<Self> {
        let world = World::new(&["posting"], url, "answer-within = \"60s\"\nwall-time = \"120s\"").await?;
        let (sandbox, component) = world.sandbox("posting").await?;
        Ok(Self { world, sandbox, component, made: AtomicU64::new(0) })
    }

    /// Where its ledger is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.world.home()
    }

    /// How many effects were asked for, each under a key of its own.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Waits until nothing is left to be stored.
    pub fn settle(&self) {
        std::thread::sleep(SETTLES);
    }

    /// Posts under this number.
    pub fn post(&self, number: u64, memo: &str) -> impl Future<Output = Outcome> + Send + '_ {
        let arguments = json!({ "id": format!("P-{number}"), "amount": 1200, "memo": memo });
        let request = CallRequest { tool: "post".to_owned(), arguments, context: Default::default() };
        // Boxed: the compiler gives up at the depth of what a call may await.
        let call: Pin<Box<dyn Future<Output = Outcome> + Send + '_>> =
            Box::pin(self.sandbox.call(&self.component, request));
        call
    }

    /// Posts under a new number.
    ///
    /// # Errors
    /// It was not done.
    pub async fn new_effect(&self) -> Result<()> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let outcome = self.post(number, MEMO).await;
        ensure!(outcome.status == Status::Done, "{outcome:?}");
        Ok(())
    }

    /// Posts again under an old number.
    ///
    /// # Errors
    /// It was not done before.
    pub async fn repeat(&self, number: u64, memo: Option<&str>) -> Result<()> {
        let outcome = self.post(number, memo.unwrap_or(MEMO)).await;
        let told = outcome.status == Status::AlreadyDone && outcome.reworded == memo.is_some();
        ensure!(told && outcome.effects.len() == 1, "{outcome:?}");
        Ok(())
    }

    /// One effect; the count of the provider says whether it happened.
    pub fn effect(&self, runtime: &Runtime) {
        if let Err(error) = runtime.block_on(self.new_effect()) {
            eprintln!("{error}");
        }
    }

    /// So many effects, and the sizes of what one leaves behind.
    ///
    /// # Errors
    /// The ledger does not show it.
    pub fn warm_up(&self, runtime: &Runtime, effects: usize) -> Result<Sizes> {
        (0..effects).for_each(|_| self.effect(runtime));
        self.settle();
        let ledger = self.sandbox.ledger().context("there is no ledger")?;
        let records = runtime.block_on(ledger.scan(0, 100))?;
        let mut sizes = Sizes { dispatch: 0, answer: 0, request: 0 };
        for record in records {
            match &record.event {
                Event::Dispatched(dispatch) => {
                    sizes.dispatch = record.sealed.len();
                    sizes.request = usize::try_from(dispatch.request.len())?;
                }
                Event::Responded { total, .. } => sizes.answer = usize::try_from(*total)?,
                _ => {}
            }
        }
        ensure!(sizes.dispatch > 0 && sizes.answer > 0, "no effect is on record: {sizes:?}");
        Ok(sizes)
    }
}
