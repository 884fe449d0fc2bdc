//! Programs of others from npm, each with what it needs in a folder of its own under `target`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The folder whose `node_modules` has the packages. Tests run side by side: the first installs, the others wait.
///
/// # Errors
/// There is no npm or no registry.
pub fn install(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target").join(name);
    fs::create_dir_all(&folder)?;
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock()?;
    let installed = folder.join("installed");
    if fs::read_to_string(&installed).unwrap_or_default() != packages.join("\n") {
        fs::write(folder.join("package.json"), "{}")?;
        let run = Command::new("npm").args(["install", "--silent"]).args(packages).current_dir(&folder).output();
        let run = run.context("npm cannot be started")?;
        if !run.status.success() {
            bail!("npm: {}", String::from_utf8_lossy(&run.stderr));
        }
        fs::write(installed, packages.join("\n"))?;
    }
    Ok(folder)
}
