//! Whose signatures count, for which components, and whose a component's effects are.
//!
//! A component's effects are kept under its contract's name, however the policy knows the component: by
//! digest today and by a signer tomorrow, a key stays what it was. Only a `lineage` puts another name in
//! its place; who may use a name that has a history is asked of the ledger (`perform/owner.rs`).

use std::collections::{BTreeMap, BTreeSet};

use oncegate_contract::safe_text;

use super::decide::matching;
use super::reader::{Reader, Table};
use super::{ComponentRule, Denied, Policy};
use crate::describe::digest_text;
use crate::signature::{PublicKey, Signatures, Standing};

/// What stands for all components that are known by their digests.
const BY_DIGEST: &str = "digest";
/// In front of a signer's name.
const BY_SIGNER: &str = "signer ";

/// One `[signer.NAME]` table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignerRule {
    /// Its line in the file.
    pub line: usize,
    /// Keys whose signatures count.
    pub keys: Vec<PublicKey>,
    /// Keys whose signatures count no more, whenever they were made.
    pub revoked: Vec<PublicKey>,
}

/// What became of a key that the policy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocable {
    /// Its signatures count.
    Counts,
    /// They count no more.
    Revoked,
}

/// Whose the effects of a component are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// The name that they are kept under: part of every key.
    pub owner: String,
    /// By what the policy knows the component: `digest`, or `signer NAME`.
    pub by: String,
    /// Whether the policy names the owner itself, as a `lineage`.
    pub joined: bool,
}

impl Owned {
    /// What stands for all components that are known by their digests.
    pub(crate) const BY_DIGEST: &'static str = BY_DIGEST;
}

impl Policy {
    /// The same, with the signatures that are known already.
    #[must_use]
    pub(crate) fn knowing(self, signatures: &Signatures) -> Self {
        signatures.judge_again(&self);
        Self { signatures: signatures.clone(), ..self }
    }

    /// The signer that has this key, and whether the key still counts.
    #[must_use]
    pub fn signer_of(&self, key: &PublicKey) -> Option<(&str, Revocable)> {
        self.signers.iter().find_map(|(name, signer)| {
            let state = match (signer.revoked.contains(key), signer.keys.contains(key)) {
                (true, _) => Revocable::Revoked,
                (false, true) => Revocable::Counts,
                (false, false) => return None,
            };
            Some((name.as_str(), state))
        })
    }

    /// Every key that the policy names, those that were revoked too: theirs are told from unknown ones.
    pub(crate) fn all_keys(&self) -> impl Iterator<Item = &PublicKey> {
        self.signers.values().flat_map(|signer| signer.keys.iter().chain(&signer.revoked))
    }

    /// Whose signature the component has, if it counts.
    ///
    /// # Errors
    /// Why none counts.
    pub fn signed_by(&self, digest: &[u8; 32]) -> Result<&str, String> {
        let key = match self.signatures.of(digest) {
            Standing::Verified { key, .. } => key,
            Standing::Refused(problem) => return Err(problem.to_string()),
        };
        match self.signer_of(&key) {
            Some((name, Revocable::Counts)) => Ok(name),
            Some((name, Revocable::Revoked)) => {
                Err(format!("it was signed with the key {}, which [signer.{name}] lists as revoked", key.id()))
            }
            None => Err(format!("it was signed with the key {}, which no [signer.NAME] has", key.id())),
        }
    }

    /// Whether an entry is for the component: digest and signer must both hold where both are named.
    pub(super) fn is_for(&self, rule: &ComponentRule, digest: &[u8; 32]) -> bool {
        rule.digest.is_none_or(|wanted| wanted == *digest)
            && rule.signer.as_deref().is_none_or(|wanted| self.signed_by(digest) == Ok(wanted))
    }

    /// For a refusal: what is wrong with the signature, where an entry asks for one.
    pub(super) fn why_not_signed(&self, digest: &[u8; 32]) -> String {
        let asks = |rule: &&ComponentRule| rule.digest.is_none_or(|wanted| wanted == *digest);
        let asked: BTreeSet<&str> =
            self.components.iter().filter(asks).filter_map(|rule| rule.signer.as_deref()).collect();
        let Some(wanted) = asked.first() else { return String::new() };
        match self.signed_by(digest) {
            Ok(name) if asked.contains(name) => String::new(),
            Ok(name) => format!("; it is signed by {name}, and entries ask for {wanted}"),
            Err(why) => format!("; entries ask for a signature of {wanted}, and {why}"),
        }
    }
}

/// Whose the effects of the component of this name are.
///
/// # Errors
/// [`Denied`] where entries for it name different lineages: its effects would have two keys.
pub fn owner(policy: &Policy, digest: &[u8; 32], name: &str) -> Result<Owned, Denied> {
    let rules: Vec<&ComponentRule> = matching(policy, digest).collect();
    let lineages: BTreeSet<Option<&str>> = rules.iter().map(|rule| rule.lineage.as_deref()).collect();
    if lineages.len() > 1 {
        let lines: Vec<String> = rules.iter().map(|rule| rule.line.to_string()).collect();
        return Err(Denied::unlisted(format!(
            "the [[component]] entries for {} at lines {} name different lineages, which would give its effects two keys; give all the same `lineage`, or none",
            digest_text(digest),
            lines.join(", ")
        )));
    }
    let lineage = lineages.into_iter().next().flatten();
    let signer = rules.iter().find_map(|rule| rule.signer.as_deref());
    Ok(Owned {
        owner: lineage.unwrap_or(name).to_owned(),
        by: signer.map_or_else(|| BY_DIGEST.to_owned(), |signer| format!("{BY_SIGNER}{signer}")),
        joined: lineage.is_some(),
    })
}

/// The tables `[signer.NAME]`.
pub(super) fn read<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> BTreeMap<String, SignerRule> {
    let Some(table) = reader.table(root, "signer") else { return BTreeMap::new() };
    let mut signers: BTreeMap<String, SignerRule> = BTreeMap::new();
    for (name, table) in reader.tables(&table) {
        if safe_text(&name) != name {
            reader.bad(&table, "key", "the signer's name may have letters, digits and . _ : @ + - only");
        }
        let signer = signer(reader, &table);
        for key in signer.keys.iter().chain(&signer.revoked) {
            if signers.values().any(|other| other.keys.contains(key) || other.revoked.contains(key)) {
                reader.bad(
                    &table,
                    "key",
                    format!("another signer has the key {} too; one key is one signer's", key.id()),
                );
            }
        }
        signers.insert(name, signer);
    }
    signers
}

fn signer<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> SignerRule {
    reader.only(table, &["key", "revoked"], &[]);
    let signer =
        SignerRule { line: table.line, keys: keys(reader, table, "key"), revoked: keys(reader, table, "revoked") };
    if reader.get(table, "key").is_none() && signer.revoked.is_empty() {
        reader.bad(table, "key", "missing; give a minisign public key, or a list of them while one replaces another");
    }
    if let Some(key) = signer.keys.iter().find(|key| signer.revoked.contains(key)) {
        reader.bad(table, "revoked", format!("the key {} stands under `key` too; take it out there", key.id()));
    }
    signer
}

fn keys<'a>(reader: &mut Reader<'a>, table: &Table<'a>, name: &str) -> Vec<PublicKey> {
    if reader.get(table, name).is_none() {
        return Vec::new();
    }
    let texts = reader.one_or_more(table, name);
    let keys: Option<Vec<PublicKey>> = texts.iter().map(|text| PublicKey::parse(text)).collect();
    keys.unwrap_or_else(|| {
        reader.bad(table, name, "expected a minisign public key, the line of 56 characters that begins with RW");
        Vec::new()
    })
}

/// `signer = "acme"` in a `[[component]]`.
pub(super) fn signer_of<'a>(reader: &mut Reader<'a>, root: &Table<'a>, table: &Table<'a>) -> Option<String> {
    let name = reader.string(table, "signer")?;
    let signers = reader.get(root, "signer").and_then(|(value, _)| value.as_table());
    let known = signers.is_some_and(|signers| signers.iter().any(|(key, _)| key.get_ref() == name));
    if !known {
        reader.bad(table, "signer", format!("the policy has no [signer.{}]; add it with `key`", safe_text(name)));
    }
    Some(name.to_owned())
}

/// `lineage = "acme-refunds"` in a `[[component]]`.
pub(super) fn lineage_of<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<String> {
    let name = reader.string(table, "lineage")?;
    if safe_text(name) != name {
        reader.bad(table, "lineage", "expected a name of letters, digits and . _ : @ + -");
    }
    Some(name.to_owned())
}
