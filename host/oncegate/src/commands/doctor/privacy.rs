//! Whether what the policy wants encrypted can be.

use oncegate_ledger::Ledger;

use super::Finding;
use crate::home::Home;

const CHECK: &str = "privacy";

pub(super) async fn check(home: &Home, ledger: &dyn Ledger) -> Option<Finding> {
    let rule = home.policy().ok()?.privacy;
    let private = ledger.private()?;
    let under = match &rule.key_from {
        Some(source) => format!("under the master key from {source}"),
        None => "under a master key that lies beside the ledger".to_owned(),
    };
    if !rule.encrypt && rule.key_from.is_none() {
        let found =
            "labels, requests and answers are stored in clear; only answers that give a credential away are not";
        return Some(Finding::ok(CHECK, found));
    }
    Some(match private.probe().await {
        Err(error) => Finding::fail(CHECK, error.to_string(), "see [privacy] key-from in the policy"),
        Ok(()) if !rule.encrypt => Finding::ok(CHECK, format!("off; what is encrypted can be read {under}")),
        Ok(()) if rule.key_from.is_none() => Finding::warn(
            CHECK,
            format!("encrypted {under}: whoever gets the ledger and the folder of keys reads everything"),
            "name one that is kept elsewhere with [privacy] key-from",
        ),
        Ok(()) => Finding::ok(CHECK, format!("encrypted {under}")),
    })
}
