//! libFuzzer itself: C++ from a crate, built once under `target/fuzz`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guests::{debian, printed};

/// Builds it; the folder in which the library lies.
pub(super) fn build(root: &Path) -> Result<PathBuf> {
    compiler()?;
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(root)
        .args(["build", "--quiet", "--locked", "--message-format=json"])
        .args(["--manifest-path", "tests/fuzz/engine/Cargo.toml", "--target-dir", "target/fuzz/engine"])
        .stderr(Stdio::inherit());
    let output = cargo.output()?;
    ensure!(output.status.success(), "libFuzzer does not build");
    let messages = output.stdout.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    folder(messages).context("the build of libFuzzer did not say where it lies")
}

/// The output folder of the build script that made the library.
fn folder(mut messages: impl Iterator<Item = Value>) -> Option<PathBuf> {
    messages.find_map(|message| {
        let libraries = message["linked_libs"].as_array()?;
        let made = libraries.iter().any(|library| library == "static=fuzzer");
        made.then(|| message["out_dir"].as_str().map(PathBuf::from)).flatten()
    })
}

/// A C++ compiler, from Debian where there is none.
fn compiler() -> Result<()> {
    if printed(Command::new("c++").arg("--version")).is_ok() {
        return Ok(());
    }
    debian::install(&["g++"]).context("libFuzzer needs a C++ compiler")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_library_is_where_its_build_says() {
        let of = |libraries: Value, out: &str| json!({ "linked_libs": libraries, "out_dir": out });
        let messages = [json!({}), of(json!([]), "/a"), of(json!(["static=fuzzer", "stdc++"]), "/b")];
        assert_eq!(folder(messages.into_iter()), Some(PathBuf::from("/b")));
        assert_eq!(folder([json!({})].into_iter()), None);
    }
}
