//! Many callers of one tool in this process, each with keys of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use oncegate_sandbox::outcome::Status;
use oncegate_sandbox::{CallRequest, Loaded, Sandbox};
use serde_json::json;

/// A call of `post` in `posting` under this key.
#[must_use]
pub fn posting(key: &str) -> CallRequest {
    let arguments = json!({ "id": key, "amount": 1200, "memo": "from a caller" });
    CallRequest { tool: "post".to_owned(), arguments, context: std::collections::BTreeMap::new() }
}

/// Makes one effect under each key, from so many callers at once, and says how long that took.
///
/// # Errors
/// One of them is not done.
pub async fn post_all(
    sandbox: &Sandbox,
    component: &Arc<Loaded>,
    callers: usize,
    keys: Arc<Vec<String>>,
) -> Result<Duration> {
    let next = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let callers: Vec<_> = (0..callers)
        .map(|_| tokio::spawn(caller(sandbox.clone(), Arc::clone(component), Arc::clone(&keys), Arc::clone(&next))))
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(started.elapsed())
}

async fn caller(
    sandbox: Sandbox,
    component: Arc<Loaded>,
    keys: Arc<Vec<String>>,
    next: Arc<AtomicUsize>,
) -> Result<()> {
    while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
        let outcome = sandbox.call(&component, posting(key)).await;
        if outcome.status != Status::Done {
            bail!("{key} is {:?}: {}", outcome.status, outcome.message);
        }
    }
    Ok(())
}

/// Keys that no earlier run has used.
#[must_use]
pub fn keys(of: &str, count: usize) -> Arc<Vec<String>> {
    Arc::new((0..count).map(|number| format!("{of}-{number}")).collect())
}
