//! `cargo xtask reproduce`: builds a guest example twice, each time from a copy in a folder of its own, and
//! compares the two byte by byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Guests, TARGET, Toolchain, debian, root, run};

/// What the folder is called inside the component, wherever it was built.
const SAME_NAME: &str = "/build";
/// Folders that a guest is built from.
const SOURCES: [&str; 2] = ["guest-examples", "wit"];
/// Between two flags of the compiler.
const SEPARATOR: char = '\u{1f}';

/// Build a guest example twice in two folders and compare the components
#[derive(clap::Args)]
pub(crate) struct Reproduce {
    /// Which example
    #[arg(default_value = "refunds")]
    name: String,
    /// Leave the folder's own name in the component, to see what it does
    #[arg(long)]
    no_remap: bool,
}

impl Reproduce {
    /// Fails where the two differ.
    pub(crate) fn run(&self) -> Result<()> {
        let toolchain = Guests { debian: false }.toolchain()?;
        let around = root()?.join("target/reproduce");
        // What an earlier run left would be taken for this one's.
        if around.exists() {
            fs::remove_dir_all(&around).with_context(|| format!("cannot empty {}", around.display()))?;
        }
        let built = ["here", "somewhere/else"].map(|place| self.build(toolchain, &around.join(place)));
        let [first, second] = built;
        let (first, second) = (first?, second?);
        let (one, other) = (fs::read(&first)?, fs::read(&second)?);
        let apart = one.iter().zip(&other).position(|(a, b)| a != b);
        ensure!(
            one == other,
            "{} and {} differ, first at byte {:?} ({} and {} bytes)",
            first.display(),
            second.display(),
            apart,
            one.len(),
            other.len()
        );
        println!("{}: twice the same {} bytes", self.name, one.len());
        Ok(())
    }

    fn build(&self, toolchain: Toolchain, folder: &Path) -> Result<PathBuf> {
        for source in SOURCES {
            copy(&root()?.join(source), &folder.join(source))?;
        }
        let mut cargo = match toolchain {
            Toolchain::Rustup => Command::new("cargo"),
            Toolchain::Debian => debian::cargo()?,
        };
        if !self.no_remap {
            remap(&mut cargo, folder);
        }
        let target = folder.join("target");
        cargo
            .current_dir(folder.join("guest-examples"))
            .args(["build", "--quiet", "--locked", "--release", "--target", TARGET, "--package", &self.name])
            .arg("--target-dir")
            .arg(&target)
            .env("SOURCE_DATE_EPOCH", "0");
        run(&mut cargo).with_context(|| format!("{} does not build in {}", self.name, folder.display()))?;
        Ok(target.join(format!("{TARGET}/release/{}.wasm", self.name)))
    }
}

/// Adds to the flags that the toolchain needs.
fn remap(cargo: &mut Command, folder: &Path) {
    const FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";
    let own = cargo.get_envs().find(|(name, _)| *name == FLAGS).and_then(|(_, value)| value);
    let mut flags = own.map(|flags| flags.to_string_lossy().into_owned()).unwrap_or_default();
    if !flags.is_empty() {
        flags.push(SEPARATOR);
    }
    flags.push_str(&format!("--remap-path-prefix={}={SAME_NAME}", folder.display()));
    cargo.env(FLAGS, flags);
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            if entry.file_name() != "target" {
                copy(&path, &copied)?;
            }
        } else {
            fs::copy(&path, &copied).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}
