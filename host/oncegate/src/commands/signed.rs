//! What is known of a component's signature, for people and programs.

use std::path::Path;

use oncegate_sandbox::describe::Description;
use oncegate_sandbox::policy::{Policy, Revocable};
use oncegate_sandbox::read;
use oncegate_sandbox::signature::{self, Problem, PublicKey, Standing};
use serde_json::{Value, json};

use crate::print::clean;

/// Reads the signature beside a component, so that the policy can decide by it.
pub(super) fn read_beside(policy: &Policy, component: &Path, description: &Description) -> anyhow::Result<Standing> {
    let keys: Vec<PublicKey> =
        policy.signers.values().flat_map(|signer| [&signer.keys, &signer.revoked]).flatten().cloned().collect();
    let standing =
        signature::judge(component, &read(component)?, (&description.digest, &description.name), keys.iter());
    policy.signatures.note(description.digest, standing.clone(), Some((component, &description.name)));
    Ok(standing)
}

/// A component's signature under a policy, in a line.
pub(super) fn words(policy: &Policy, standing: &Standing) -> String {
    let words = match standing {
        Standing::Refused(Problem::None { .. } | Problem::NotRead) => "none".to_owned(),
        Standing::Refused(Problem::UnknownKey { id }) => {
            format!("by the key {id}, which no [signer.NAME] of the policy has: not checked")
        }
        Standing::Refused(problem) => format!("counts for nothing: {problem}"),
        Standing::Verified { key, comment } => match policy.signer_of(key) {
            Some((name, Revocable::Counts)) => format!("by {name}, key {}; {comment}", key.id()),
            Some((name, Revocable::Revoked)) => {
                format!("counts for nothing: by the key {} of {name}, which was revoked", key.id())
            }
            None => format!("by the key {}; {comment}", key.id()),
        },
    };
    clean(&words.replace('\t', " "))
}

/// The same for programs.
pub(super) fn machine(policy: &Policy, standing: &Standing) -> Value {
    match standing {
        Standing::Verified { key, comment } => {
            let (signer, counts) = match policy.signer_of(key) {
                Some((name, state)) => (Some(name), state == Revocable::Counts),
                None => (None, false),
            };
            let state = if counts { "signed" } else { "refused" };
            json!({ "state": state, "signer": signer, "key": key.id(), "comment": comment })
        }
        Standing::Refused(Problem::None { .. } | Problem::NotRead) => json!({ "state": "none" }),
        Standing::Refused(Problem::UnknownKey { id }) => json!({ "state": "unknown-key", "key": id }),
        Standing::Refused(problem) => json!({ "state": "refused", "problem": problem.to_string() }),
    }
}
