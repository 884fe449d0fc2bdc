//! The sealed state of a question: what the client sends back beside the answer.
//!
//! It is authenticated, not secret. Its key is in the data directory, so that another process of this host
//! can open it, also after a restart. It is used up by the decision itself, which moves the row on from the
//! version in it; a question that was put away decides nothing and uses nothing up.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use oncegate_sandbox::cache;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::decision::SeenRow;

/// Bytes of the authentication code and of its key.
const CODE_BYTES: usize = 32;
/// Bytes of a state that are looked at: those given out here are far smaller.
const STATE_BYTES_MAX: usize = 4 << 10;
/// What is authenticated begins with it: nothing else under this key, and no other format, is a state.
const DOMAIN: &[u8] = b"oncegate elicitation state 1\0";

/// What a state says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claims {
    /// The row that was shown.
    pub(super) seen: SeenRow,
    /// Component, tool, arguments and context.
    pub(super) call: [u8; 32],
    pub(super) tenant: String,
    /// The tool as it is served.
    pub(super) tool: String,
    /// The way in of the client that was given it.
    pub(super) door: String,
    pub(super) nonce: [u8; 16],
    /// Milliseconds since the Unix epoch.
    pub(super) expires: u64,
}

/// Seals and opens states of one ledger.
pub(super) struct Sealer {
    file: PathBuf,
    ledger: [u8; 16],
}

impl Sealer {
    pub(super) fn new(home: &Path, ledger: [u8; 16]) -> Self {
        Self { file: home.join("elicitation.key"), ledger }
    }

    /// The state for a client.
    pub(super) fn seal(&self, claims: &Claims) -> anyhow::Result<String> {
        let mut bytes = serde_json::to_vec(claims)?;
        let code: [u8; CODE_BYTES] = self.mac(&bytes)?.finalize().into_bytes().into();
        bytes.extend(code);
        Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }

    /// What a state says; none where it was not sealed here.
    pub(super) fn open(&self, state: &str) -> Option<Claims> {
        if state.len() > STATE_BYTES_MAX {
            return None;
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(state).ok()?;
        let (said, code) = bytes.split_at_checked(bytes.len().checked_sub(CODE_BYTES)?)?;
        let mac = self.mac(said).inspect_err(|why| tracing::error!("no state can be opened: {why:#}")).ok()?;
        Mac::verify_slice(mac, code).ok()?;
        serde_json::from_slice(said).ok()
    }

    fn mac(&self, said: &[u8]) -> anyhow::Result<Hmac<Sha256>> {
        let mut mac = cache::mac_under(&self.key()?, DOMAIN);
        mac.update(&self.ledger);
        mac.update(said);
        Ok(mac)
    }

    /// Read each time: a key that is removed ends all states that are out.
    fn key(&self) -> anyhow::Result<[u8; CODE_BYTES]> {
        let unusable = || format!("the key {} cannot be used", self.file.display());
        let key = cache::key(&self.file).with_context(unusable)?;
        let mode = std::fs::metadata(&self.file).with_context(unusable)?.permissions().mode();
        if mode & 0o077 != 0 {
            bail!("the key {} can be read by others; remove it, and a private one is made", self.file.display());
        }
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        let seen = SeenRow { key: [1; 32], version: 7, epoch: 1, request_digest: [2; 32] };
        let text = str::to_owned;
        Claims {
            seen,
            call: [3; 32],
            tenant: text("acme"),
            tool: text("t"),
            door: text("stdio"),
            nonce: [4; 16],
            expires: 9,
        }
    }

    #[test]
    fn a_state_opens_under_its_key_and_ledger_alone() {
        let folder = tempfile::tempdir().unwrap();
        let sealer = Sealer::new(folder.path(), [5; 16]);
        let state = sealer.seal(&claims()).unwrap();
        assert_eq!(Sealer::new(folder.path(), [5; 16]).open(&state), Some(claims()));
        assert_eq!(Sealer::new(folder.path(), [6; 16]).open(&state), None);
        let mode = std::fs::metadata(folder.path().join("elicitation.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = tempfile::tempdir().unwrap();
        assert_eq!(Sealer::new(other.path(), [5; 16]).open(&state), None);
        std::fs::remove_file(folder.path().join("elicitation.key")).unwrap();
        assert_eq!(sealer.open(&state), None);
    }

    #[test]
    fn no_changed_byte_passes() {
        let folder = tempfile::tempdir().unwrap();
        let sealer = Sealer::new(folder.path(), [5; 16]);
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(sealer.seal(&claims()).unwrap()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(sealer.open(&BASE64_URL_SAFE_NO_PAD.encode(changed)), None, "{at}");
        }
        for wrong in ["", "e30", "not base64!", &"A".repeat(STATE_BYTES_MAX * 2)] {
            assert_eq!(sealer.open(wrong), None);
        }
    }

    #[test]
    fn a_key_that_others_can_read_seals_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let sealer = Sealer::new(folder.path(), [5; 16]);
        sealer.seal(&claims()).unwrap();
        let file = folder.path().join("elicitation.key");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(sealer.seal(&claims()).unwrap_err().to_string().contains("read by others"));
    }
}
