//! What the tests have in C (`shim/`): libraries to preload and small programs, compiled at first use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// The compiled library `shim/NAME.c`, for `LD_PRELOAD`.
///
/// # Errors
/// There is no C compiler, or it refuses.
pub fn library(name: &str) -> Result<PathBuf> {
    compiled(name, "so", &["-shared", "-fPIC"]).with_context(|| format!("the shim {name}"))
}

/// The compiled program `shim/NAME.c`.
///
/// # Errors
/// As [`library`].
pub fn program(name: &str) -> Result<PathBuf> {
    compiled(name, "bin", &[]).with_context(|| format!("the program {name}"))
}

/// Made once, kept under its source's digest.
fn compiled(name: &str, suffix: &str, options: &[&str]) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("shim/{name}.c"));
    let text = fs::read(&source)?;
    let digest: String = Sha256::digest(&text)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = std::env::temp_dir();
    let made = folder.join(format!("oncegate-{name}-{digest}.{suffix}"));
    if made.exists() {
        return Ok(made);
    }
    // Tests run side by side: each compiles its own, the rename decides. Closed first: a file that is
    // open for writing cannot be run.
    let own = tempfile::Builder::new().suffix(&format!(".{suffix}")).tempfile_in(folder)?.into_temp_path();
    let mut cc = Command::new("cc");
    cc.arg("-O1").args(options).arg("-o").args([own.as_os_str(), source.as_os_str()]).arg("-ldl");
    let status = cc.status().context("there is no C compiler `cc`")?;
    if !status.success() {
        bail!("cc ended with {status}");
    }
    own.persist(&made)?;
    Ok(made)
}
