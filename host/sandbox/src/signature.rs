//! Signatures of components: minisign files beside them, read once and judged by the policy's keys.
//!
//! A signature proves nothing by being there. What counts is decided by the policy that holds, from what
//! is known here: which key was found to have signed which bytes, or why none was. What was verified is
//! kept in the cache's folder under a code of this host's, so that what a component left open can be
//! settled when its file is not at hand.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use oncegate_contract::safe_text;
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::describe::digest_text;
use crate::load;
use crate::policy::{Policy, digest_of};

/// Bytes of a signature's file: four short lines.
pub const SIGNATURE_BYTES_MAX: u64 = 4 << 10;
/// What the name of a signature's file ends with.
const EXTENSION: &str = "minisig";
/// What the code of a kept verdict is for.
const PURPOSE: &str = "verified signature";
/// Bytes of a public key: algorithm, id, key.
const KEY_BYTES: usize = 42;
/// Where the id is, in keys and in signatures.
const ID: std::ops::Range<usize> = 2..10;
/// The algorithm of signatures over the bytes themselves, not over their digest.
const LEGACY: &[u8] = b"Ed";

/// A minisign public key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey {
    text: String,
    id: [u8; 8],
}

impl PublicKey {
    /// Reads the one line of a key, or the two lines of its file.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        let bytes = BASE64_STANDARD.decode(line).ok().filter(|bytes| bytes.len() == KEY_BYTES)?;
        minisign_verify::PublicKey::from_base64(line).ok()?;
        Some(Self { text: line.to_owned(), id: bytes.get(ID)?.try_into().ok()? })
    }

    /// The key's name, as minisign prints it.
    #[must_use]
    pub fn id(&self) -> String {
        id_text(self.id)
    }

    /// The line.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// As minisign prints it: a number, little end first.
fn id_text(id: [u8; 8]) -> String {
    format!("{:016X}", u64::from_le_bytes(id))
}

/// Why a component's signature counts for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is none.
    #[error("it has no signature that was read here: there is no {file}")]
    None {
        /// Where one would be.
        file: String,
    },
    /// Nothing of it was ever read by this host.
    #[error("no signature of it was read here; it is read from the file beside the component")]
    NotRead,
    /// The file cannot be read.
    #[error("its signature {file} cannot be read: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        why: String,
    },
    /// The file is no signature.
    #[error("{file} is no whole minisign signature; it was cut off or changed")]
    Broken {
        /// The file.
        file: String,
    },
    /// Over the bytes, not over their digest.
    #[error("its signature {file} has the old form of minisign before 0.10; sign it again")]
    Legacy {
        /// The file.
        file: String,
    },
    /// No key is known by that name.
    #[error("it was signed with the key {id}, which no [signer.NAME] has")]
    UnknownKey {
        /// The key's name.
        id: String,
    },
    /// Made by this key for other bytes, or not by this key.
    #[error("its signature {file} does not fit its bytes: one of them was changed, or they do not belong together")]
    DoesNotFit {
        /// The file.
        file: String,
    },
    /// By its own words of another component.
    #[error("its signature {file} is of another component or build, {other}")]
    OfAnother {
        /// The file.
        file: String,
        /// What its comment names.
        other: String,
    },
}

/// What is known of a component's signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// This key signed these bytes.
    Verified {
        /// The key.
        key: PublicKey,
        /// What it signed beside the bytes.
        comment: String,
    },
    /// None was verified.
    Refused(Problem),
}

/// The name of the file that a component's signature is in.
#[must_use]
pub fn beside(component: &Path) -> PathBuf {
    let mut name = component.as_os_str().to_owned();
    name.push(".");
    name.push(EXTENSION);
    PathBuf::from(name)
}

/// Reads and judges the signature beside a component by these keys. Another key's is none.
#[must_use]
pub fn judge<'a>(
    component: &Path,
    bytes: &[u8],
    (digest, name): (&[u8; 32], &str),
    keys: impl Iterator<Item = &'a PublicKey>,
) -> Standing {
    let path = beside(component);
    let file = path.display().to_string();
    match read(&path) {
        Ok(text) => verdict(&file, &text, bytes, (digest, name), keys),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Standing::Refused(Problem::None { file }),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Standing::Refused(Problem::Broken { file }),
        Err(error) => Standing::Refused(Problem::Unreadable { file, why: error.to_string() }),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(SIGNATURE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn verdict<'a>(
    file: &str,
    text: &str,
    bytes: &[u8],
    (digest, name): (&[u8; 32], &str),
    keys: impl Iterator<Item = &'a PublicKey>,
) -> Standing {
    let file = || file.to_owned();
    let refused = Standing::Refused;
    let parts = text.lines().nth(1).and_then(|line| BASE64_STANDARD.decode(line.trim()).ok());
    let id = parts.as_deref().and_then(|parts| parts.get(ID)).and_then(|id| <[u8; 8]>::try_from(id).ok());
    let (Ok(signature), Some(parts), Some(id)) = (minisign_verify::Signature::decode(text), parts, id) else {
        return refused(Problem::Broken { file: file() });
    };
    if parts.starts_with(LEGACY) {
        return refused(Problem::Legacy { file: file() });
    }
    let mut named = keys.filter(|key| key.id == id).peekable();
    if named.peek().is_none() {
        return refused(Problem::UnknownKey { id: id_text(id) });
    }
    let comment = signature.trusted_comment();
    let fits = |key: &&PublicKey| {
        let key = minisign_verify::PublicKey::from_base64(&key.text);
        key.is_ok_and(|key| key.verify(bytes, &signature, false).is_ok())
    };
    // What a comment says before the signature is verified only words the refusal.
    let other = other_than(comment, digest, name);
    match (named.find(fits), other) {
        (Some(key), None) => Standing::Verified { key: key.clone(), comment: comment.to_owned() },
        (_, Some(other)) => refused(Problem::OfAnother { file: file(), other }),
        (None, None) => refused(Problem::DoesNotFit { file: file() }),
    }
}

/// What a trusted comment says that it is of, where that is not this component.
fn other_than(comment: &str, digest: &[u8; 32], name: &str) -> Option<String> {
    let said = |what: &str| comment.split_whitespace().find_map(|word| word.strip_prefix(what));
    let of = said("component:").filter(|said| *said != name);
    let build = said("sha256:").filter(|hex| digest_of(&format!("sha256:{hex}")).as_ref() != Some(digest));
    let words = [of.map(safe_text), build.map(|hex| safe_text(&format!("sha256:{hex}")))];
    let words: Vec<String> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// What a signature that `oncegate sign` makes says of what it signs.
#[must_use]
pub fn comment(digest: &[u8; 32], name: &str, file: &str, seconds: u64) -> String {
    format!("timestamp:{seconds}\tfile:{}\tcomponent:{name}\t{}", safe_text(file), digest_text(digest))
}

/// The signatures that this process knows of, by the component's digest. Shared by the policies that
/// hold one after the other, and no part of what any of them says.
#[derive(Debug, Clone, Default)]
pub struct Signatures(Arc<RwLock<BTreeMap<[u8; 32], Known>>>);

#[derive(Debug, Clone)]
struct Known {
    standing: Standing,
    /// Where the component was read, to look again when the policy has other keys.
    place: Option<(PathBuf, String)>,
}

impl PartialEq for Signatures {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Signatures {}

impl Signatures {
    /// What is known of this component's signature.
    #[must_use]
    pub fn of(&self, digest: &[u8; 32]) -> Standing {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(digest).map_or(Standing::Refused(Problem::NotRead), |known| known.standing.clone())
    }

    /// Notes what was found. What was verified once is not forgotten for a file that is gone.
    pub fn note(&self, digest: [u8; 32], standing: Standing, place: Option<(&Path, &str)>) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let verified = |standing: &Standing| matches!(standing, Standing::Verified { .. });
        if place.is_none() && all.get(&digest).is_some_and(|known| verified(&known.standing)) {
            return;
        }
        let place = place.map(|(path, name)| (path.to_owned(), name.to_owned()));
        all.insert(digest, Known { standing, place });
    }

    /// Looks again at those that no key of an earlier policy fitted.
    pub(crate) fn judge_again(&self, policy: &Policy) {
        let open: Vec<([u8; 32], PathBuf, String)> = {
            let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let open = all.iter().filter(|(_, known)| matches!(known.standing, Standing::Refused(_)));
            open.filter_map(|(digest, known)| {
                let (path, name) = known.place.clone()?;
                Some((*digest, path, name))
            })
            .collect()
        };
        for (digest, path, name) in open {
            // The file may have been replaced since: another component's bytes say nothing of this one.
            let Ok(bytes) = load::read(&path) else { continue };
            if <[u8; 32]>::from(Sha256::digest(&bytes)) == digest {
                let standing = judge(&path, &bytes, (&digest, &name), policy.all_keys());
                self.note(digest, standing, Some((&path, &name)));
            }
        }
    }
}

/// Reads the signature beside a component that was loaded, and keeps it if it is verified.
pub(crate) fn learn(policy: &Policy, cache: &Cache, path: &Path, bytes: &[u8], (digest, name): (&[u8; 32], &str)) {
    let standing = judge(path, bytes, (digest, name), policy.all_keys());
    if let Standing::Verified { key, comment } = &standing
        && let Err(error) = keep(cache, digest, key, comment)
    {
        tracing::warn!(%error, "a verified signature was not kept");
    }
    if let Standing::Refused(
        problem @ (Problem::OfAnother { .. } | Problem::DoesNotFit { .. } | Problem::Broken { .. }),
    ) = &standing
    {
        tracing::warn!("{}: {problem}", path.display());
    }
    policy.signatures.note(*digest, standing, Some((path, name)));
}

fn kept_path(cache: &Cache, digest: &[u8; 32]) -> PathBuf {
    let name = digest_text(digest).replace("sha256:", "");
    cache.folder().join(format!("{name}.{EXTENSION}"))
}

fn keep(cache: &Cache, digest: &[u8; 32], key: &PublicKey, comment: &str) -> std::io::Result<()> {
    let text = format!("{}\n{}\n{comment}", digest_text(digest), key.text);
    let mut bytes = cache.code_for(PURPOSE, text.as_bytes()).to_vec();
    bytes.extend(text.as_bytes());
    let path = kept_path(cache, digest);
    if std::fs::read(&path).is_ok_and(|kept| kept == bytes) {
        return Ok(());
    }
    cache.write_private(&path, &[&bytes])
}

/// Remembers what was verified by earlier processes under this host's own code.
pub(crate) fn recall(policy: &Policy, cache: &Cache) {
    let Ok(entries) = std::fs::read_dir(cache.folder()) else { return };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION)) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        match kept(cache, &bytes) {
            Some((digest, standing)) => policy.signatures.note(digest, standing, None),
            None => {
                tracing::warn!(path = %path.display(), "a kept signature is not this host's; it counts for nothing")
            }
        }
    }
}

fn kept(cache: &Cache, bytes: &[u8]) -> Option<([u8; 32], Standing)> {
    let (code, text) = bytes.split_at_checked(32)?;
    if !cache.is_code_for(PURPOSE, text, code) {
        return None;
    }
    let mut lines = std::str::from_utf8(text).ok()?.splitn(3, '\n');
    let (digest, key, comment) = (lines.next()?, lines.next()?, lines.next()?);
    let standing = Standing::Verified { key: PublicKey::parse(key)?, comment: comment.to_owned() };
    Some((digest_of(digest)?, standing))
}
