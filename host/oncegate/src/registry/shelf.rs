//! Components that were fetched, kept by digest in a private folder and checked before each use.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use oci_client::Reference;
use oncegate_sandbox::{read, signature};

use super::Client;
use super::manifest::{Manifest, digest_of};

/// The folder.
pub(crate) struct Shelf(PathBuf);

impl Shelf {
    /// Opens it, or makes it for this user alone.
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        let failed = || format!("the folder of fetched components {} cannot be used", folder.display());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(failed)?;
        let mode = std::fs::metadata(folder).with_context(failed)?.permissions().mode();
        ensure!(
            mode & 0o022 == 0,
            "the folder {} can be written by others; make it private (chmod 700)",
            folder.display()
        );
        Ok(Self(folder.to_owned()))
    }

    /// The component with this manifest, if it was fetched before and is still what it was.
    pub(crate) fn find(&self, manifest_digest: &str) -> Option<PathBuf> {
        let bytes = std::fs::read(self.manifest(manifest_digest)).ok()?;
        if digest_of(&bytes) != manifest_digest {
            tracing::warn!("the kept manifest {manifest_digest} was changed; it is fetched again");
            return None;
        }
        let manifest = Manifest::parse(&bytes).ok()?;
        let path = self.component(manifest_digest);
        if digest_of(&read(&path).ok()?) != manifest.component {
            tracing::warn!("the kept component {} was changed; it is fetched again", manifest.component);
            return None;
        }
        let signature = std::fs::read_to_string(signature::beside(&path)).ok();
        (signature == manifest.signature).then_some(path)
    }

    /// Fetches what a manifest names, and keeps both.
    pub(crate) async fn fetch(&self, client: &Client, reference: &Reference) -> anyhow::Result<(String, PathBuf)> {
        let manifest_bytes = client.manifest(reference).await?;
        let digest = digest_of(&manifest_bytes);
        if let Some(path) = self.find(&digest) {
            return Ok((digest, path));
        }
        let manifest = Manifest::parse(&manifest_bytes)?;
        let bytes = client.component(reference, &manifest).await?;
        let path = self.component(&digest);
        match &manifest.signature {
            Some(signature) => self.write(&signature::beside(&path), signature.as_bytes())?,
            None => remove(&signature::beside(&path))?,
        }
        self.write(&path, &bytes)?;
        // The last, since it says that the others are there.
        self.write(&self.manifest(&digest), &manifest_bytes)?;
        Ok((digest, path))
    }

    /// By the manifest's digest: its signature goes with it, and may be another's for the same bytes.
    fn component(&self, manifest_digest: &str) -> PathBuf {
        self.0.join(format!("{}.wasm", manifest_digest.replace(':', "-")))
    }

    fn manifest(&self, manifest_digest: &str) -> PathBuf {
        self.0.join(format!("{}.json", manifest_digest.replace(':', "-")))
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        let temporary = self.0.join(format!(".{:016x}", rand::random::<u64>()));
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&temporary, path));
        if written.is_err() {
            // It is nobody's.
            let _ = std::fs::remove_file(&temporary);
        }
        written.with_context(|| format!("{} cannot be written", path.display()))
    }
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}
