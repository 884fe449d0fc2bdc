//! Who decides and why, and the name under which a decision is taken once.

use oncegate_ledger::state::Effect;
use oncegate_sandbox::policy::{ELICITED, is_elicited};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::args::decide::By;
use crate::exit::usage;
use crate::print::{clean, hex};

/// Bytes of a digest that name a decision: enough to tell all decisions of a ledger apart.
const ID_BYTES: usize = 12;
/// Characters of a decision's name.
const ID_CHARS_MAX: usize = 100;

/// A decision's author, reason and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) actor: String,
    pub(super) reason: String,
    pub(super) id: String,
}

impl Taken {
    /// Who decides, why, and the name given to it or a digest of `what` with the reason, so that the same
    /// command line typed twice is one decision.
    pub(super) fn of(by: &By, what: &[&str]) -> anyhow::Result<Self> {
        let reason = said("--reason", &by.reason, "say why; it is recorded")?;
        let user = || format!("uid:{}", rustix::process::getuid().as_raw());
        let actor = by.actor.clone().filter(|actor| !actor.is_empty()).unwrap_or_else(user);
        let actor = said("--actor", &actor, "say who decides this")?;
        if is_elicited(actor) {
            return Err(usage(format!(
                "--actor {ELICITED}… is what an answer through a client is called; say who decides this"
            )));
        }
        let id = match &by.decision {
            Some(id)
                if id.trim().is_empty() || id.chars().count() > ID_CHARS_MAX || id.chars().any(char::is_control) =>
            {
                return Err(usage(format!("--decision is a name of 1 to {ID_CHARS_MAX} characters on one line")));
            }
            Some(id) => id.clone(),
            None => digest(what, reason),
        };
        Ok(Self { actor: actor.to_owned(), reason: reason.to_owned(), id })
    }

    /// Whether it is recorded on this row.
    pub(super) fn is_on(&self, row: &Effect) -> bool {
        row.decisions.contains(&self.id)
    }

    pub(super) fn lines(&self) -> String {
        format!("by        {}: {}\ndecision  {}\n", clean(&self.actor), clean(&self.reason), clean(&self.id))
    }

    /// The members that every answer about a decision has.
    pub(super) fn json(&self, verb: &str) -> Value {
        json!({ "verb": verb, "decision": self.id, "actor": self.actor, "reason": self.reason })
    }
}

/// A text that must say something.
pub(super) fn said<'a>(option: &str, text: &'a str, otherwise: &str) -> anyhow::Result<&'a str> {
    let text = text.trim();
    if text.is_empty() { Err(usage(format!("{option} is empty: {otherwise}"))) } else { Ok(text) }
}

fn digest(what: &[&str], reason: &str) -> String {
    let mut hash = Sha256::new();
    for part in what.iter().chain([&reason]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    hex(digest.get(..ID_BYTES).unwrap_or(&digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(reason: &str) -> By {
        By { reason: reason.to_owned(), actor: Some("ada".to_owned()), decision: None }
    }

    #[test]
    fn the_same_words_are_one_decision() {
        let id = |what: &[&str], reason: &str| Taken::of(&by(reason), what).unwrap().id;
        assert_eq!(id(&["revoke", "3f", "2"], "no"), id(&["revoke", "3f", "2"], " no "));
        let others = [id(&["revoke", "3f", "3"], "no"), id(&["deny", "3f", "2"], "no"), id(&["revoke", "3f2"], "no")];
        assert!(others.iter().all(|other| *other != id(&["revoke", "3f", "2"], "no")));
        assert_ne!(id(&["revoke", "3f", "2"], "no"), id(&["revoke", "3f", "2"], "yes"));
    }

    #[test]
    fn nobody_decides_without_a_reason() {
        for reason in ["", " \t"] {
            assert!(Taken::of(&by(reason), &["revoke"]).unwrap_err().downcast_ref::<crate::exit::Usage>().is_some());
        }
        let named = By { decision: Some("a\nb".to_owned()), ..by("why") };
        assert!(Taken::of(&named, &["revoke"]).is_err());
        let nameless = By { actor: None, ..by("why") };
        assert!(Taken::of(&nameless, &["revoke"]).unwrap().actor.starts_with("uid:"));
        let client = By { actor: Some(" elicitation:stdio tenant acme".to_owned()), ..by("why") };
        assert!(Taken::of(&client, &["approve"]).is_err());
    }
}
