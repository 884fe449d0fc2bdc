//! Compiled components on disk, keyed by digest and engine, authenticated before they are loaded.
//!
//! Compiled code is native code: whoever can write it can run anything in this process. So the folder
//! is private to the user, and each file carries an HMAC under a key that is private too.

use std::hash::{Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use rand::Rng;
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::describe::{Description, digest_text};
use crate::load::{ComponentError, Source};

/// Bytes of the key and of a file's authentication code.
const CODE_BYTES: usize = 32;

/// The cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A file or the folder cannot be read or written.
    #[error("the cache of compiled components at {path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others can write the folder.
    #[error("the cache folder {path} can be written by others; make it private (chmod 700)")]
    NotPrivate {
        /// The folder.
        path: PathBuf,
    },
    /// The component does not compile.
    #[error("the component does not compile: {0}")]
    Compile(String),
}

/// A private folder of compiled components.
pub struct Cache {
    folder: PathBuf,
    key: [u8; CODE_BYTES],
}

impl Cache {
    /// Opens or makes the folder and its key.
    ///
    /// # Errors
    /// [`CacheError`] when the folder is not private or cannot be used.
    pub fn open(folder: &Path) -> Result<Self, CacheError> {
        let io = |source| CacheError::Io { path: folder.to_owned(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io)?;
        let mode = std::fs::metadata(folder).map_err(io)?.permissions().mode();
        if mode & 0o022 != 0 {
            return Err(CacheError::NotPrivate { path: folder.to_owned() });
        }
        let key = key(&folder.join("key")).map_err(io)?;
        Ok(Self { folder: folder.to_owned(), key })
    }

    /// A keyed digest that tells one secret from another without giving a way to guess it offline.
    #[must_use]
    pub fn version_of(&self, secret: &[u8]) -> [u8; 8] {
        let code = self.code(secret);
        let mut version = [0; 8];
        version.copy_from_slice(&code[..8]);
        version
    }

    /// A code over bytes that only this folder's owner can make, of its own kind for each purpose.
    pub(crate) fn code_for(&self, purpose: &str, bytes: &[u8]) -> [u8; CODE_BYTES] {
        let key = self.code(purpose.as_bytes());
        mac_under(&key, bytes).finalize().into_bytes().into()
    }

    /// The compiled component, from the cache or compiled now and kept.
    ///
    /// # Errors
    /// [`CacheError::Compile`], or the bytes cannot be had; a damaged or foreign file in the cache is compiled again.
    pub(crate) fn load(
        &self,
        engine: &Engine,
        digest: &[u8; 32],
        bytes: &Source<'_>,
    ) -> Result<Component, ComponentError> {
        let kept = self.compiled(engine, digest).and_then(|compiled| {
            deserialize(engine, &compiled).inspect_err(|error| tracing::warn!(%error, "compiling again")).ok()
        });
        if let Some(component) = kept {
            return Ok(component);
        }
        let fail = |error: wasmtime::Error| CacheError::Compile(format!("{error:#}"));
        let compiled = engine.precompile_component(&bytes.of(digest)?).map_err(fail)?;
        self.keep(engine, digest, &compiled);
        Ok(deserialize(engine, &compiled).map_err(fail)?)
    }

    /// The compiled code that is kept for an engine like this one, if it is ours.
    pub(crate) fn compiled(&self, engine: &Engine, digest: &[u8; 32]) -> Option<Vec<u8>> {
        self.kept(&file_name(engine, digest))
    }

    /// Whether there is any, whoever made it.
    pub(crate) fn seems_compiled(&self, engine: &Engine, digest: &[u8; 32]) -> bool {
        self.folder.join(file_name(engine, digest)).exists()
    }

    /// Keeps compiled code; where it cannot be kept it is made again next time.
    pub(crate) fn keep(&self, engine: &Engine, digest: &[u8; 32], compiled: &[u8]) {
        self.keep_as(&file_name(engine, digest), compiled);
    }

    /// What is known of the component, if this program kept it.
    pub(crate) fn description(&self, digest: [u8; 32]) -> Option<Description> {
        Description::of_kept(digest, &self.kept(&description_name(&digest))?)
    }

    /// Keeps what is known of a component that loads; where it cannot be kept it is read again next time.
    pub(crate) fn keep_description(&self, of: &Description) {
        if let Some(kept) = of.to_kept() {
            self.keep_as(&description_name(&of.digest), &kept);
        }
    }

    fn kept(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.folder.join(name);
        let mut bytes = std::fs::read(&path).ok()?;
        let (code, kept) = bytes.split_at_checked(CODE_BYTES)?;
        if Mac::verify_slice(self.mac_of(&path, kept), code).is_err() {
            tracing::warn!(path = %path.display(), "a file in the cache is not ours; it is made again");
            return None;
        }
        bytes.drain(..CODE_BYTES);
        Some(bytes)
    }

    fn keep_as(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.join(name);
        let code = self.mac_of(&path, bytes).finalize().into_bytes();
        if let Err(error) = self.write_private(&path, &[&code, bytes]) {
            tracing::warn!(path = %path.display(), %error, "it was not kept in the cache");
        }
    }

    /// Whether it is the code of these bytes for the purpose.
    pub(crate) fn is_code_for(&self, purpose: &str, bytes: &[u8], code: &[u8]) -> bool {
        Mac::verify_slice(mac_under(&self.code(purpose.as_bytes()), bytes), code).is_ok()
    }

    /// The private folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file that only this user can read, whole or not at all.
    pub(crate) fn write_private(&self, path: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
        let temporary = path.with_extension(format!("{:016x}", rand::rng().random::<u64>()));
        let mut file = private_file(&temporary)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        std::fs::rename(&temporary, path)
    }

    /// Under a key of the file's own, so that no file stands in for that of another component or engine.
    fn mac_of(&self, path: &Path, compiled: &[u8]) -> Hmac<Sha256> {
        let name = path.file_name().unwrap_or_default();
        mac_under(&self.code(name.as_encoded_bytes()), compiled)
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        mac_under(&self.key, bytes)
    }

    fn code(&self, bytes: &[u8]) -> [u8; CODE_BYTES] {
        self.mac(bytes).finalize().into_bytes().into()
    }
}

/// Begins a code over these bytes under a key of this size.
#[must_use]
pub fn mac_under(key: &[u8; CODE_BYTES], bytes: &[u8]) -> Hmac<Sha256> {
    let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
    // HMAC pads a key shorter than its block with zeros (RFC 2104, section 2).
    block[..CODE_BYTES].copy_from_slice(key);
    let mut mac = <Hmac<Sha256> as KeyInit>::new(&block);
    mac.update(bytes);
    mac
}

#[allow(
    unsafe_code,
    reason = "the bytes were made by this program: their code was verified under a key only it can read, or they came \
              sealed from the process that verified it"
)]
pub(crate) fn deserialize(engine: &Engine, compiled: &[u8]) -> wasmtime::Result<Component> {
    unsafe { Component::deserialize(engine, compiled) }
}

fn file_name(engine: &Engine, digest: &[u8; 32]) -> String {
    let mut hash = std::hash::DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hash);
    format!("{}-{:016x}.cwasm", hex(digest), hash.finish())
}

fn description_name(digest: &[u8; 32]) -> String {
    format!("{}.description", hex(digest))
}

fn hex(digest: &[u8; 32]) -> String {
    digest_text(digest).split_off("sha256:".len())
}

fn private_file(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Reads a key of 32 random bytes that only this user can read, or makes one; of two processes that make
/// one at once the first wins.
///
/// # Errors
/// The file cannot be read or written, or has another length.
pub fn key(path: &Path) -> std::io::Result<[u8; CODE_BYTES]> {
    if !path.exists() {
        let mut key = [0; CODE_BYTES];
        rand::rng().fill(&mut key);
        let temporary = path.with_extension(format!("{:016x}", rand::rng().random::<u64>()));
        private_file(&temporary)?.write_all(&key)?;
        match std::fs::hard_link(&temporary, path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            _ => std::fs::remove_file(&temporary)?,
        }
    }
    let bytes = std::fs::read(path)?;
    bytes.try_into().map_err(|_| std::io::Error::other("the key file has another length; remove it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_compiled_again_and_never_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let private = folder.path().join("cache");
        let cache = Cache::open(&private).unwrap();
        let engine = crate::engine::compiling().unwrap();
        let bytes = &Source::Bytes(b"\0asm\x0d\0\x01\0");
        cache.load(&engine, &[1; 32], bytes).unwrap();
        let path = private.join(file_name(&engine, &[1; 32]));
        let mut kept = std::fs::read(&path).unwrap();
        let last = kept.len() - 1;
        kept[last] ^= 1;
        std::fs::write(&path, &kept).unwrap();
        assert!(cache.compiled(&engine, &[1; 32]).is_none());
        cache.load(&engine, &[1; 32], bytes).unwrap();
        assert!(cache.compiled(&engine, &[1; 32]).is_some());
    }

    #[test]
    fn a_description_counts_for_its_component_alone_and_only_as_it_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("cache")).unwrap();
        let of = Description::read(&crate::describe::tests::refunds()).unwrap();
        assert!(cache.description(of.digest).is_none());
        cache.keep_description(&of);
        assert_eq!(cache.description(of.digest).unwrap().name, of.name);
        let path = cache.folder.join(description_name(&of.digest));
        let kept = std::fs::read(&path).unwrap();
        // Under the name of another component, as another program's key would have it, cut off, and without a code.
        std::fs::write(cache.folder.join(description_name(&[7; 32])), &kept).unwrap();
        assert!(cache.description([7; 32]).is_none());
        let changed = String::from_utf8_lossy(&kept[CODE_BYTES..]).replace("create-refund", "create-credit");
        let mut forged = kept[..CODE_BYTES].to_vec();
        forged.extend(changed.bytes());
        for wrong in [&forged[..], &kept[..kept.len() - 1], &kept[..7], &kept[CODE_BYTES..]] {
            std::fs::write(&path, wrong).unwrap();
            assert!(cache.description(of.digest).is_none());
        }
        cache.keep_description(&of);
        assert!(cache.description(of.digest).is_some());
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Cache::open(&open), Err(CacheError::NotPrivate { .. })));
    }
}
