//! Programs of others from PyPI, each in a virtual environment of its own under `target`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// The Python that has the package. Tests run side by side: the first installs, the others wait.
///
/// # Errors
/// There is no Python or no registry.
pub fn install(name: &str, package: &str) -> Result<PathBuf> {
    prepare(name, package, &[package])
}

/// The Python that has all of a requirements file, each version pinned. Once more when the file is another.
///
/// # Errors
/// As [`install`].
pub fn install_all(name: &str, requirements: &Path) -> Result<PathBuf> {
    let digest = Sha256::digest(fs::read(requirements)?);
    let mark: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    // Most of it is never imported: whatever is, is compiled then.
    prepare(name, &mark, &["--no-compile", "--no-deps", "-r", &requirements.to_string_lossy()])
}

fn prepare(name: &str, mark: &str, packages: &[&str]) -> Result<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    fs::create_dir_all(&target)?;
    let lock = File::create(target.join(format!("{name}.lock")))?;
    lock.lock()?;
    let venv = target.join(name);
    let python = venv.join("bin/python");
    let installed = venv.join(mark);
    if installed.exists() {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    File::create(installed)?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
