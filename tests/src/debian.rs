//! Programs of others from Debian's packages: tools and servers that tests speak with.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Installs the packages that are not there. Tests run side by side: one installs, the others wait.
///
/// # Errors
/// This is no Debian, we are not root, or there is no registry.
pub fn install(packages: &[&str]) -> Result<()> {
    let _lock = lock()?;
    let query = ["--show", "--showformat=${db:Status-Status} "];
    let states = output(Command::new("dpkg-query").args(query).args(packages)).unwrap_or_default();
    if states.split_whitespace().filter(|state| *state == "installed").count() == packages.len() {
        return Ok(());
    }
    update()?;
    apt(&[&["install", "--yes", "--no-install-recommends"], packages].concat())
}

/// Unpacks a package under `target` and installs nothing: a server would be started as a service.
/// Gives the folder that stands for `/`.
///
/// # Errors
/// As [`install`].
pub fn unpacked(package: &str) -> Result<PathBuf> {
    let _lock = lock()?;
    let folder = target().join("debian").join(package);
    if folder.exists() {
        return Ok(folder);
    }
    update()?;
    let fetched = tempfile::tempdir_in(target())?;
    // It drops root's rights for the download, and reads and writes in this folder.
    let mut download = Command::new("apt-get");
    download.current_dir(fetched.path()).args(["--quiet=2", "-o", "APT::Sandbox::User=root", "download", package]);
    output(&mut download)?;
    let file = fs::read_dir(fetched.path())?.flatten().map(|entry| entry.path()).next();
    let file = file.with_context(|| format!("apt-get fetched no {package}"))?;
    let unpacking = fetched.path().join("root");
    output(Command::new("dpkg").arg("--extract").arg(&file).arg(&unpacking))?;
    fs::create_dir_all(target().join("debian"))?;
    fs::rename(unpacking, &folder)?;
    Ok(folder)
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}

fn lock() -> Result<File> {
    fs::create_dir_all(target())?;
    let lock = File::create(target().join("debian.lock"))?;
    lock.lock()?;
    Ok(lock)
}

fn update() -> Result<()> {
    apt(&["update"]).context("cannot read Debian's package lists; are you root?")
}

fn apt(words: &[&str]) -> Result<()> {
    // Another installation on the machine may be under way.
    let wait = ["--quiet=2", "-o", "DPkg::Lock::Timeout=300"];
    output(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(wait).args(words)).map(drop)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
