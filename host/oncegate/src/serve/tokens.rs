//! Bearer tokens: who may call over HTTP, and for which tenant. Only their digests are kept.
//!
//! A token is 32 random bytes, so one SHA-256 is all that hiding it needs. The file is read again when it
//! changes: a revoked token is refused at the next request.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rand::RngCore;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::stamp::{Stamp, stamp};
use crate::home::read_text;
use crate::print::hex;

/// In front of every token, so that scanners for leaked secrets know it.
pub(super) const PREFIX: &str = "oncegate_";
/// Bytes of the file: some thousand tokens.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One token as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// What people call it.
    pub(crate) name: String,
    /// For whom its calls are.
    pub(crate) tenant: String,
    /// The permit that its calls use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) permit: Option<String>,
    /// When it was made, RFC 3339.
    pub(crate) made: String,
    /// SHA-256 of the token, in hex.
    pub(crate) sha256: String,
}

/// Whom a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// What people call the token.
    pub(crate) name: String,
    tenant: String,
    permit: Option<String>,
}

impl Identity {
    #[cfg(test)]
    pub(crate) fn of(tenant: &str, permit: Option<&str>) -> Self {
        Self { name: "a token".to_owned(), tenant: tenant.to_owned(), permit: permit.map(str::to_owned) }
    }

    /// Whether both are of one tenant.
    pub(crate) fn same_tenant(&self, other: &Self) -> bool {
        self.tenant == other.tenant
    }

    /// Of a token that somebody else gave out. Its name has a `/`, which no name here has, so that it is never taken
    /// for a token of this file.
    pub(super) fn issued(subject: &str, tenant: String, permit: Option<String>) -> Self {
        Self { name: format!("oauth/{}", oncegate_contract::safe_text(subject)), tenant, permit }
    }

    /// The facts that it fixes.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (String, String)> {
        let permit = self.permit.clone().map(|permit| ("permit".to_owned(), permit));
        [("tenant".to_owned(), self.tenant.clone())].into_iter().chain(permit)
    }
}

/// The file of tokens.
pub(crate) struct Tokens {
    file: PathBuf,
    read: Mutex<Option<(Stamp, Vec<Token>)>>,
}

impl Tokens {
    pub(crate) fn of(directory: &Path) -> Self {
        Self { file: directory.join("tokens.json"), read: Mutex::default() }
    }

    /// All tokens; none where there is no file.
    pub(crate) fn all(&self) -> anyhow::Result<Vec<Token>> {
        if !self.file.exists() {
            return Ok(Vec::new());
        }
        let text = read_text(&self.file, "the tokens in", FILE_BYTES_MAX)?;
        serde_json::from_str(&text).with_context(|| format!("{} holds no tokens", self.file.display()))
    }

    /// Whom a token stands for; none: it is nobody's.
    pub(crate) fn identify(&self, token: &str) -> anyhow::Result<Option<Identity>> {
        let digest = digest(token);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.file);
        if read.as_ref().is_none_or(|(stamp, _)| Some(*stamp) != now) {
            *read = None;
            let Some(stamp) = now else { return Ok(None) };
            *read = Some((stamp, self.all()?));
        }
        let tokens = read.as_ref().map(|(_, tokens)| tokens.as_slice()).unwrap_or_default();
        // What is compared is a digest: how long that takes says nothing of the token.
        let token = tokens.iter().find(|token| token.sha256 == digest);
        Ok(token.map(|token| Identity {
            name: token.name.clone(),
            tenant: token.tenant.clone(),
            permit: token.permit.clone(),
        }))
    }

    /// Makes a token and returns its text, which is kept nowhere.
    pub(crate) fn add(
        &self,
        name: Option<String>,
        tenant: String,
        permit: Option<String>,
        made: String,
    ) -> anyhow::Result<(String, Token)> {
        let mut bytes = [0; 32];
        rand::rng().fill_bytes(&mut bytes);
        let text = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
        let sha256 = digest(&text);
        let name = name.unwrap_or_else(|| sha256.chars().take(12).collect());
        let token = Token { name, tenant, permit, made, sha256 };
        let _lock = self.lock()?;
        let mut all = self.all()?;
        if all.iter().any(|other| other.name == token.name) {
            bail!("there is a token {} already", token.name);
        }
        all.push(token.clone());
        self.write(&all)?;
        Ok((text, token))
    }

    /// Forgets a token; false when there is none of that name.
    pub(crate) fn revoke(&self, name: &str) -> anyhow::Result<bool> {
        let _lock = self.lock()?;
        let mut all = self.all()?;
        let before = all.len();
        all.retain(|token| token.name != name);
        let found = all.len() != before;
        if found {
            self.write(&all)?;
        }
        Ok(found)
    }

    /// One change at a time; the system frees it with the process.
    fn lock(&self) -> anyhow::Result<std::fs::File> {
        let path = self.file.with_extension("lock");
        let failed = || format!("{} cannot be locked", path.display());
        let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.with_context(failed)?;
        file.lock().with_context(failed)?;
        Ok(file)
    }

    /// Replaces the file in one step, readable for its owner alone.
    fn write(&self, tokens: &[Token]) -> anyhow::Result<()> {
        let failed = || format!("{} cannot be written", self.file.display());
        let next = self.file.with_extension("new");
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&next)
            .with_context(failed)?;
        file.write_all(&serde_json::to_vec_pretty(tokens)?).and_then(|()| file.sync_all()).with_context(failed)?;
        std::fs::rename(&next, &self.file).with_context(failed)
    }
}

fn digest(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_until_it_is_revoked_and_its_text_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::of(folder.path());
        assert!(tokens.identify("oncegate_x").unwrap().is_none());
        let add = |name: &str| tokens.add(Some(name.to_owned()), "acme".to_owned(), None, "now".to_owned());
        let (text, token) = add("a").unwrap();
        assert!(add("a").is_err());
        let facts: Vec<_> = tokens.identify(&text).unwrap().unwrap().facts().collect();
        assert_eq!(facts, [("tenant".to_owned(), "acme".to_owned())]);
        let file = std::fs::read_to_string(folder.path().join("tokens.json")).unwrap();
        assert!(!file.contains(&text) && file.contains(&token.sha256), "{file}");
        assert!(tokens.revoke("a").unwrap());
        assert!(!tokens.revoke("a").unwrap());
        assert!(tokens.identify(&text).unwrap().is_none());
    }
}
