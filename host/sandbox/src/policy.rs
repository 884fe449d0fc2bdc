//! What the operator grants: `policy.toml`, and the one decision that is made from it.
//!
//! The default is nothing. What a contract declares and what a policy grants must both allow an
//! operation; neither widens the other. A policy is out of reach of tools and agents: only its
//! owner's file says what holds, and an unknown key in it is an error.

mod database;
mod decide;
mod elicited;
mod gates;
mod minimal;
mod network;
mod parse;
mod reader;
mod schema;
mod signers;
mod units;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use oncegate_contract::Pointer;

pub use database::{DatabaseGrant, DatabaseRule, NamedDatabase};
pub use decide::{Denied, Grant, Onward, account, admit, decide, may_read_answers, tenant};
pub use elicited::{Door, ELICITED, is_elicited};
pub use gates::{Above, ApprovalRule, Exclusive, ExclusiveRule, Requires};
pub(crate) use parse::source as source_of;
pub use schema::schema;
pub use signers::{Owned, Revocable, SignerRule, owner};
pub use units::digest_of;
pub(crate) use units::duration as duration_of;

use crate::describe::Description;
use crate::egress::Resolver;
use crate::limits::Limits;
use crate::signature::Signatures;

/// Longer than any orchestrator keeps a run that it may replay.
const REPLAY_WINDOW: std::time::Duration = std::time::Duration::from_secs(90 * 86_400);

/// Facts that an orchestrator may give.
pub const CONTEXT_FACTS: [&str; 7] = ["tenant", "trigger", "run", "sequence", "plan", "permit", "parent"];

/// A parsed policy. [`Policy::default`] grants nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Which components may do what for whom.
    pub components: Vec<ComponentRule>,
    /// Whose signatures count, by the operator's name for each.
    pub signers: BTreeMap<String, SignerRule>,
    /// The signatures that were read beside components; no part of what the operator wrote.
    pub signatures: Signatures,
    /// What the operator says about endpoints, by the contract's name for each.
    pub endpoints: BTreeMap<String, EndpointRule>,
    /// Where secrets are, by the contract's name for each.
    pub credentials: BTreeMap<String, CredentialRule>,
    /// What a person approves before it is sent.
    pub approvals: Vec<ApprovalRule>,
    /// Operations of which one happens for one purpose.
    pub exclusives: Vec<ExclusiveRule>,
    /// Who may set which fact.
    pub context: ContextRules,
    /// Limits of every call.
    pub limits: Limits,
    /// How long the history of what is decided is kept at least.
    pub retention: Retention,
    /// What of the ledger is encrypted.
    pub privacy: Privacy,
    /// Who tells the addresses of names.
    pub resolver: Arc<Resolver>,
}

/// The `[privacy]` table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Privacy {
    /// Whether labels, raw bytes and generated text are encrypted, each under a key of what it belongs to. An
    /// answer that gives its credential away is encrypted in any case.
    pub encrypt: bool,
    /// Where the master key is; none: one is made and kept beside the ledger.
    pub key_from: Option<CredentialSource>,
}

/// The `[retention]` table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For so long after its last change an effect answers with the provider's own words, and is not
    /// pruned.
    pub replay_window: std::time::Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { replay_window: REPLAY_WINDOW }
    }
}

/// One `[[component]]` entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentRule {
    /// Its line in the file.
    pub line: usize,
    /// The component's SHA-256; none: any component, or any that the signer signed.
    pub digest: Option<[u8; 32]>,
    /// Who has to have signed it; together with a digest both must hold.
    pub signer: Option<String>,
    /// The name that its effects are kept under instead of its contract's.
    pub lineage: Option<String>,
    /// For whom.
    pub tenants: Vec<String>,
    /// Operations granted.
    pub grant: Vec<String>,
    /// What their effects have to name before they are sent.
    pub requires: Requires,
    /// Whether callers of these tenants may read the providers' whole stored answers.
    pub read_answers: bool,
}

/// One `[endpoint.NAME]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointRule {
    /// Its line in the file.
    pub line: usize,
    /// The URL that is used instead of the contract's.
    pub url: Option<String>,
    /// The operator's name for the account at the provider: part of every effect's key.
    pub account: Option<String>,
    /// `egress = "direct"`: the operator states that bytes not handed over were not sent. A relay
    /// may send later what it was given, so the default is `relayed`.
    pub egress_direct: bool,
    /// Whether private, loopback and link-local addresses may be connected to.
    pub allow_private: bool,
    /// How the provider itself says which account this is.
    pub account_is: Option<AccountIs>,
    /// What is said about it where it is a database.
    pub database: DatabaseRule,
    /// A PEM file with the certificates that may vouch for it, instead of the public ones.
    pub ca: Option<PathBuf>,
    /// The proxy that connects in the host's place; the environment's are never used.
    pub proxy: Option<String>,
    /// The credential that the proxy is shown.
    pub proxy_credential: Option<String>,
}

/// `account-is`: a lookup whose answer names the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountIs {
    /// The contract's lookup, at the same endpoint.
    pub operation: String,
    /// Where its answer has the account's identifier.
    pub at: Pointer,
}

/// One `[credential.NAME]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRule {
    /// Its line in the file.
    pub line: usize,
    /// Where the secret is.
    pub source: CredentialSource,
    /// Where it goes.
    pub attach: Attach,
    /// The text that is sent, with `{secret}` in it.
    pub format: String,
}

impl CredentialRule {
    /// The use of it under the contract's name for it.
    #[must_use]
    pub fn usage(&self, name: &str) -> CredentialUse {
        CredentialUse {
            name: name.to_owned(),
            source: self.source.clone(),
            attach: self.attach.clone(),
            format: self.format.clone(),
        }
    }
}

/// Where a secret is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialSource {
    /// An environment variable of the host.
    Env(String),
    /// A file.
    File(std::path::PathBuf),
    /// A program that prints it; words separated by spaces, no shell.
    Command(String),
    /// A keyring of the system.
    Keyring(Keyring),
}

/// An entry of a keyring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyring {
    /// Which keyring.
    pub store: KeyringStore,
    /// What the secret is for.
    pub service: String,
    /// Whose it is there.
    pub account: String,
}

/// The keyrings that secrets are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyringStore {
    /// The kernel's, if it has the entry; else the Secret Service.
    Any,
    /// The kernel's key retention service.
    Kernel,
    /// The desktop's Secret Service, over D-Bus.
    SecretService,
}

impl fmt::Display for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = match self.store {
            KeyringStore::Any => "",
            KeyringStore::Kernel => "kernel:",
            KeyringStore::SecretService => "secret-service:",
        };
        write!(f, "keyring:{store}{}/{}", self.service, self.account)
    }
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Command(line) => write!(f, "command:{line}"),
            Self::Keyring(entry) => entry.fmt(f),
        }
    }
}

/// Where a secret goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attach {
    /// A request header of that name.
    Header(String),
    /// The login of a database.
    Password,
}

impl Attach {
    /// Whether it is read by whatever passes the request on, and not by the provider.
    #[must_use]
    pub fn is_for_a_proxy(&self) -> bool {
        matches!(self, Self::Header(name) if name.eq_ignore_ascii_case("proxy-authorization"))
    }
}

/// The credential of one granted operation. Holds no secret.
#[derive(Debug, Clone)]
pub struct CredentialUse {
    /// The contract's name for it.
    pub name: String,
    /// Where the secret is.
    pub source: CredentialSource,
    /// Where it goes.
    pub attach: Attach,
    /// The text that is sent, with `{secret}` in it.
    pub format: String,
}

impl CredentialUse {
    /// The header that carries the secret; none where it is a database's password.
    #[must_use]
    pub fn header(&self) -> Option<&str> {
        match &self.attach {
            Attach::Header(name) => Some(name),
            Attach::Password => None,
        }
    }
}

/// A way in which a fact reaches the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Setter {
    /// `--context` of `call` and `serve`.
    Serve,
    /// MCP's `_meta`.
    Meta,
    /// The HTTP header `Oncegate-Context`.
    Header,
}

/// Who may set which fact. A fact that the policy does not name may be set by `serve` only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContextRules {
    named: BTreeMap<String, Vec<Setter>>,
}

impl ContextRules {
    /// Whether `setter` may give the fact; an unknown fact may be given by nobody.
    #[must_use]
    pub fn may_set(&self, fact: &str, setter: Setter) -> bool {
        match self.named.get(fact) {
            Some(setters) => setters.contains(&setter),
            None => CONTEXT_FACTS.contains(&fact) && setter == Setter::Serve,
        }
    }
}

/// One thing that is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {key}: {message}")]
pub struct PolicyError {
    /// The file, as it was named.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// The key, with the tables it is in.
    pub key: String,
    /// What was asked, what is wrong, what to do.
    pub message: String,
}

/// Everything that is wrong with a policy, in the file's order; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyErrors(Vec<PolicyError>);

impl PolicyErrors {
    /// The errors.
    #[must_use]
    pub fn errors(&self) -> &[PolicyError] {
        &self.0
    }
}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyErrors {}

impl Policy {
    /// Reads a policy; `file` is how errors name it.
    ///
    /// # Errors
    /// All that is wrong, at once: unknown keys, wrong values, and keys of features that this
    /// version does not have, because ignoring one of those would grant more than its author wrote.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyErrors> {
        parse::parse(file, text)
    }

    /// The text for `oncegate policy init`: the least that lets the component work, all of it
    /// commented out and explained. Without the leading `# ` of each line it parses.
    #[must_use]
    pub fn minimal(description: &Description) -> String {
        minimal::text(description)
    }

    /// What a careful operator would want to know about a policy that parses.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let any = self.components.iter().filter(|rule| rule.digest.is_none() && rule.signer.is_none());
        let any = any.map(|rule| {
            format!(
                "line {}: this [[component]] has no digest, so it grants to every component, also to ones that do not exist yet",
                rule.line
            )
        });
        any.chain(self.answered_by_clients()).chain(self.asked_of_nobody()).collect()
    }

    /// Every database that the policy itself says enough about to log in; for another, its name and why not.
    #[must_use]
    pub fn databases(&self) -> Vec<Result<NamedDatabase, (String, String)>> {
        database::named(self)
    }

    /// What `elicitation-from` rests on.
    fn answered_by_clients(&self) -> Vec<String> {
        let rules = self.approvals.iter().filter(|rule| !rule.elicitation_from.is_empty());
        rules
            .map(|rule| {
                let doors: Vec<String> = rule.elicitation_from.iter().map(ToString::to_string).collect();
                format!(
                    "line {}: this [[approve]] takes the word of whatever client calls through {} that a person approved; a client that answers by itself, or lets a model answer, approves its own calls",
                    rule.line,
                    doors.join(" or ")
                )
            })
            .collect()
    }

    /// Whether this is the other policy without the last of its entries for components, and otherwise the
    /// same: it lets nothing happen that the other does not, and asks for no less.
    #[must_use]
    pub fn only_grants_less_than(&self, other: &Self) -> bool {
        let left = self.components.len();
        let (kept, gone) = other.components.split_at(left.min(other.components.len()));
        let rest = |policy: &Self| Self { components: Vec::new(), ..policy.clone() };
        kept == self.components
            && gone.iter().all(|rule| rule.requires == Requires::default())
            && rest(self) == rest(other)
    }

    /// A gate with a misspelt operation is no gate.
    fn asked_of_nobody(&self) -> Vec<String> {
        let granted = |name: &String| self.components.iter().any(|rule| rule.grant.contains(name));
        let approvals = self.approvals.iter().map(|rule| (rule.line, "approve", &rule.operation));
        let exclusives = self.exclusives.iter();
        let exclusives = exclusives.flat_map(|rule| rule.by.keys().map(|name| (rule.line, "exclusive", name)));
        approvals
            .chain(exclusives)
            .filter(|(_, _, name)| !granted(name))
            .map(|(line, kind, name)| {
                format!("line {line}: this [[{kind}]] names the operation {name}, which no [[component]] is granted")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
