//! Approvals that come through a client's session: what the ledger calls their author, and where a policy
//! lets them count.
//!
//! Such an answer names a door and nobody: the client says that a person gave it, and nothing proves that.

use std::fmt;

use oncegate_contract::safe_text;

/// What the author of such an approval begins with. No person is called so: the command line and a
/// policy's `by` refuse it.
pub const ELICITED: &str = "elicitation:";
/// The door of whoever started the server.
const STDIO: &str = "stdio";
/// In front of a token's name.
const TOKEN: &str = "token:";

/// A way in for clients, through which a person may have answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Door(String);

impl Door {
    /// Standard input and output.
    #[must_use]
    pub fn stdio() -> Self {
        Self(STDIO.to_owned())
    }

    /// HTTP, with the bearer token of this name.
    #[must_use]
    pub fn token(name: &str) -> Self {
        Self(format!("{TOKEN}{}", safe_text(name)))
    }

    /// A door as policies name it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(TOKEN) {
            Some(name) if safe_text(name) == name => Some(Self::token(name)),
            None if text == STDIO => Some(Self::stdio()),
            _ => None,
        }
    }

    /// The author of what was answered through this door. The client's name is its own word.
    #[must_use]
    pub fn actor(&self, tenant: &str, client: &str) -> String {
        format!("{ELICITED}{self} tenant {} client \"{}\"", safe_text(tenant), safe_text(client))
    }

    /// Whether this author answered through this door.
    pub(super) fn is_of(&self, actor: &str) -> bool {
        let door = actor.strip_prefix(ELICITED).and_then(|rest| rest.split(' ').next());
        door == Some(self.0.as_str())
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a name could be taken for an answer through a client.
#[must_use]
pub fn is_elicited(actor: &str) -> bool {
    actor.trim_start().starts_with(ELICITED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_names_its_door_and_no_other() {
        let desk = Door::parse("token:desk").unwrap();
        let actor = desk.actor("acme", "Claude \"by alice\" elicitation:stdio");
        assert!(actor.starts_with("elicitation:token:desk tenant acme client \""), "{actor}");
        assert!(!actor.contains("alice"), "{actor}");
        assert!(desk.is_of(&actor) && is_elicited(&actor));
        for other in [Door::stdio(), Door::token("des"), Door::token("desk2"), Door::token("a desk")] {
            assert!(!other.is_of(&actor), "{other}");
        }
        assert!(!Door::token("a desk").to_string().contains(' '));
        for wrong in ["", "stdio ", "http", "token:", "token:a b", "token", "elicitation:stdio"] {
            assert_eq!(Door::parse(wrong), None, "{wrong}");
        }
        assert!(!desk.is_of("token:desk") && !is_elicited("alice"));
    }
}
