//! Many callers at once in this process: several hosts over one ledger, as an agent's orchestrator would
//! embed them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use oncegate_sandbox::outcome::Outcome;
use oncegate_sandbox::policy::Policy;
use oncegate_sandbox::{CallRequest, Loaded, Options, Sandbox};
use oncegate_tests::harness::{Harness, SECRET, TENANT};
use serde_json::Value;
use tokio::task::JoinSet;

/// One call: tool, arguments, facts.
pub(crate) type Asked = (&'static str, Value, Vec<(&'static str, String)>);

/// Makes all calls at once, spread over so many hosts, and gives the answers in the calls' order.
pub(crate) fn at_once(harness: &Harness, hosts: usize, calls: Vec<Asked>) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("redb:{}", harness.home().join("ledger.redb").display());
        let ledger = oncegate_ledger::open(&url).await.unwrap();
        let hosts: Vec<(Sandbox, Arc<Loaded>)> = (0..hosts)
            .map(|_| {
                let options = Options {
                    policy: policy(harness),
                    ledger: Ok(Arc::clone(&ledger)),
                    cache: harness.home().join("cache"),
                    clock: Arc::new(now),
                };
                let sandbox = Sandbox::new(options).unwrap();
                let component = sandbox.load(harness.component()).unwrap();
                (sandbox, component)
            })
            .collect();
        let mut running = JoinSet::new();
        for (n, (tool, arguments, facts)) in calls.into_iter().enumerate() {
            let (sandbox, component) = hosts[n % hosts.len()].clone();
            let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
            let mut context: BTreeMap<String, String> = facts.collect();
            context.insert("tenant".to_owned(), TENANT.to_owned());
            let request = CallRequest { tool: tool.to_owned(), arguments, context };
            running.spawn(async move { (n, sandbox.call(&component, request).await) });
        }
        let mut heard = running.join_all().await;
        for (sandbox, _) in &hosts {
            sandbox.drain().await;
        }
        heard.sort_by_key(|(n, _)| *n);
        heard.into_iter().map(|(_, outcome)| outcome).collect()
    })
}

/// The harness's policy, with the secret in a file: a process's environment is not one host's own.
fn policy(harness: &Harness) -> Policy {
    let text = fs::read_to_string(harness.home().join("policy.toml")).unwrap();
    let secret: PathBuf = harness.folder().join("secret");
    fs::write(&secret, SECRET).unwrap();
    let from = format!("from = \"file:{}\"", secret.display());
    let text: Vec<&str> =
        text.lines().map(|line| if line.starts_with("from = \"env:") { from.as_str() } else { line }).collect();
    Policy::parse("policy.toml", &text.join("\n")).unwrap()
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}
