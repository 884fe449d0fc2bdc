//! A provider's whole stored answer, for callers whom the policy lets read it.
//!
//! It is named by a text that is sealed for one tenant: the effect's key, hidden under codes that only this
//! home can make. Another tenant's name is as unknown here as one that was made up.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use oncegate_ledger::state::{Effect, StateTag};

use crate::cache::Cache;
use crate::call::Call;
use crate::describe::Description;
use crate::host::digest;
use crate::load::Loaded;
use crate::outcome::AnswerLink;
use crate::policy;
use crate::replay::{self, First};
use crate::sandbox::Sandbox;

/// What codes are made for here; a later form gets another number.
const PURPOSE: &str = "oncegate name of a stored answer 1";
/// Bytes of the code in a name.
const CODE_BYTES: usize = 16;
/// States whose rows rest on an answer.
const ANSWERED: [StateTag; 4] = [StateTag::Done, StateTag::Undone, StateTag::NoEffect, StateTag::Issued];

/// A stored answer, as the guest of the call would have been given it, and all of it.
#[derive(Debug)]
pub struct StoredAnswer {
    /// The effect.
    pub label: String,
    /// What the provider says the bytes are.
    pub content_type: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is none to read.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Nobody's name, or another tenant's, or the policy does not let it be read.
    #[error("there is no such answer for you")]
    Unknown,
    /// It gives its credential away.
    #[error("this answer holds a secret that cannot be taken out any more, so it is withheld")]
    Withheld,
    /// Retention dropped it, or a lookup and not an answer decided the effect.
    #[error("the provider's own answer is not stored (any more)")]
    NotStored,
    /// The ledger cannot be read.
    #[error("the answer cannot be read now")]
    Unreadable,
}

impl Sandbox {
    /// Names of the answers that the call's effects rest on, as far as its caller may read them.
    pub(crate) async fn answers_of(&self, call: &Call) -> Vec<AnswerLink> {
        let Ok(book) = self.host.book() else { return Vec::new() };
        let mut links: Vec<AnswerLink> = Vec::new();
        for key in call.asked().iter().filter_map(|asked| asked.instead.or(asked.key)) {
            let Ok(Some(row)) = book.effects.get(key).await else { continue };
            let component = &call.component.description.digest;
            if !self.is_readable(&row, call.tenant(), &[component]) {
                continue;
            }
            let id = seal(&self.host.cache, call.tenant(), &key);
            if links.iter().all(|link| link.id != id) {
                links.push(AnswerLink { id, label: row.label().to_owned() });
            }
        }
        links
    }

    /// Reads a stored answer by its name, for a caller of this tenant who is served these components.
    ///
    /// # Errors
    /// [`NoAnswer`]; what is not for the caller is told like what is not there.
    pub async fn stored_answer(&self, id: &str, tenant: &str, served: &[&Loaded]) -> Result<StoredAnswer, NoAnswer> {
        let key = open(&self.host.cache, tenant, id).ok_or(NoAnswer::Unknown)?;
        let book = self.host.book().map_err(|_| NoAnswer::Unreadable)?;
        let unreadable = |error: &dyn std::error::Error| {
            tracing::error!(%error, "a stored answer");
            NoAnswer::Unreadable
        };
        let row = book.effects.get(key).await.map_err(|error| unreadable(&error))?.ok_or(NoAnswer::Unknown)?;
        let dispatch = row.dispatch.as_deref().ok_or(NoAnswer::NotStored)?;
        let owners = served.iter().map(|component| &component.description);
        let owners = owners.filter(|description| self.owns(description, &dispatch.owner));
        let digests: Vec<&[u8; 32]> = owners.map(|description| &description.digest).collect();
        if !self.is_readable(&row, tenant, &digests) {
            return Err(NoAnswer::Unknown);
        }
        let contract = self.host.contract(book, dispatch.contract).await.map_err(|error| unreadable(&error))?;
        let operation = contract.operations.get(&dispatch.operation).ok_or(NoAnswer::NotStored)?;
        let first = replay::first_answer(&self.host, book, key, &row, operation).await;
        match first.map_err(|error| unreadable(&error))? {
            First::Given(answer) => {
                let is_type = |name: &String| name.eq_ignore_ascii_case("content-type");
                let content_type = answer.headers.iter().find(|(name, _)| is_type(name));
                let content_type = content_type.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
                Ok(StoredAnswer { label: row.label().to_owned(), content_type, body: answer.body })
            }
            First::Withheld { .. } => Err(NoAnswer::Withheld),
            First::None => Err(NoAnswer::NotStored),
        }
    }

    fn owns(&self, description: &Description, owner: &str) -> bool {
        let owned = policy::owner(self.policy(), &description.digest, &description.contract.component.name);
        owned.is_ok_and(|owned| owned.owner == owner)
    }

    fn is_readable(&self, row: &Effect, tenant: &str, components: &[&[u8; 32]]) -> bool {
        let Some(dispatch) = row.dispatch.as_deref() else { return false };
        let may = |digest: &&[u8; 32]| policy::may_read_answers(&self.host.policy, digest, tenant, &dispatch.operation);
        dispatch.tenant == tenant && ANSWERED.contains(&row.heard_state()) && components.iter().any(may)
    }
}

fn seal(cache: &Cache, tenant: &str, key: &[u8; 32]) -> String {
    let code = code(cache, tenant, key);
    let mut name = code.to_vec();
    name.extend(hidden(cache, &code, key));
    BASE64_URL_SAFE_NO_PAD.encode(name)
}

/// The effect that a name is of, if it was made here for this tenant.
fn open(cache: &Cache, tenant: &str, name: &str) -> Option<[u8; 32]> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(name).ok()?;
    let (found, hides) = bytes.split_first_chunk::<CODE_BYTES>()?;
    let key = hidden(cache, found, hides.try_into().ok()?);
    // Compared as digests: how long that takes says nothing of the code.
    let same = digest(&[found]) == digest(&[&code(cache, tenant, &key)]);
    same.then_some(key)
}

fn code(cache: &Cache, tenant: &str, key: &[u8; 32]) -> [u8; CODE_BYTES] {
    let code = cache.code_for(PURPOSE, &digest(&[b"code", tenant.as_bytes(), key]));
    let mut short = [0; CODE_BYTES];
    short.copy_from_slice(&code[..CODE_BYTES]);
    short
}

/// Hides what is shown, and shows what is hidden.
fn hidden(cache: &Cache, code: &[u8; CODE_BYTES], key: &[u8; 32]) -> [u8; 32] {
    let pad = cache.code_for(PURPOSE, &digest(&[b"pad", code]));
    std::array::from_fn(|at| pad[at] ^ key[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_one_effect_for_one_tenant_of_one_home() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = Cache::open(home.path()).unwrap();
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        let name = seal(&cache, "acme", &key);
        assert_eq!(open(&cache, "acme", &name), Some(key));
        assert_eq!(name, seal(&Cache::open(home.path()).unwrap(), "acme", &key), "also after a restart");
        assert_eq!(open(&cache, "second", &name), None);
        assert_eq!(open(&Cache::open(other.path()).unwrap(), "acme", &name), None);
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&name).unwrap();
        assert!(!bytes.windows(4).any(|part| key.windows(4).any(|of_key| of_key == part)), "the key shows");
        for at in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[at] ^= 1;
            assert_eq!(open(&cache, "acme", &BASE64_URL_SAFE_NO_PAD.encode(forged)), None, "byte {at}");
        }
        for wrong in ["", "AAAA", &name[..name.len() - 1], "not base64!"] {
            assert_eq!(open(&cache, "acme", wrong), None, "{wrong:?}");
        }
    }
}
