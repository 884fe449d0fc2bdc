//! `cargo xtask guests`: builds every guest example, and the guests of the tests, to
//! `target/guests/NAME.wasm`.
//!
//! A guest needs the standard library of `wasm32-wasip2`. It is looked for in three places, the
//! nearest first: the toolchain; rustup; on Debian its own packages, which bring the sources of the
//! standard library and a compiler that goes with them.

pub(crate) mod debian;
pub(crate) mod reproduce;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What guests are built for.
const TARGET: &str = "wasm32-wasip2";

/// Build the guest examples to target/guests/NAME.wasm
#[derive(clap::Args)]
pub(crate) struct Guests {
    /// Build with Debian's compiler and standard library even when rustup has the target
    #[arg(long)]
    debian: bool,
}

/// One component to build: its crate, what cargo is told beside, its name in `target/guests`.
struct Build {
    workspace: &'static str,
    package: &'static str,
    flags: &'static [&'static str],
    component: &'static str,
}

/// `refunds-bare`, `books` and `shopper` carry no contract: they are there to be packed with one.
const BUILDS: &[Build] = &[
    build("refunds"),
    build("campaign"),
    build("notes"),
    build("orders"),
    build("posts"),
    build("datasets"),
    Build { workspace: "tests/guests", ..build("conformance") },
    Build { workspace: "tests/guests", ..build("hostile") },
    Build { workspace: "tests/guests", ..build("mirror") },
    Build { workspace: "tests/guests", ..build("payouts") },
    Build { workspace: "tests/guests", ..build("books") },
    Build { workspace: "tests/guests", ..build("shopper") },
    Build { workspace: "tests/guests", ..build("posting") },
    Build { workspace: "tests/guests", ..build("tariff") },
    Build {
        workspace: "guest-examples",
        package: "refunds",
        flags: &["--no-default-features"],
        component: "refunds-bare",
    },
];

const fn build(name: &'static str) -> Build {
    Build { workspace: "guest-examples", package: name, flags: &[], component: name }
}

impl Guests {
    /// Builds all for another command, which has its own things to say.
    pub(crate) fn build_quietly() -> Result<()> {
        Self { debian: false }.build(false)
    }

    /// Builds all, or says which step failed.
    pub(crate) fn run(&self) -> Result<()> {
        self.build(true)
    }

    fn build(&self, say: bool) -> Result<()> {
        let toolchain = self.toolchain()?;
        let root = root()?;
        let components = root.join("target/guests");
        fs::create_dir_all(&components).with_context(|| format!("cannot make {}", components.display()))?;
        for build in BUILDS {
            let component = components.join(format!("{}.wasm", build.component));
            build.run(toolchain, &root, &component)?;
            if say {
                println!("{}", component.display());
            }
        }
        Ok(())
    }

    fn toolchain(&self) -> Result<Toolchain> {
        if self.debian {
            debian::install(debian::PACKAGES)?;
            return Ok(Toolchain::Debian);
        }
        if has_standard_library() {
            return Ok(Toolchain::Rustup);
        }
        eprintln!("no standard library for {TARGET}: trying `rustup target add {TARGET}`");
        let added = run(Command::new("rustup").args(["target", "add", TARGET]));
        if added.is_ok() && has_standard_library() {
            return Ok(Toolchain::Rustup);
        }
        if !debian::is_here() {
            bail!(
                "guests need the standard library of {TARGET}, which rustup did not bring; \
                 install it another way and run this again"
            );
        }
        eprintln!("rustup has no {TARGET}: building it from Debian's packages");
        debian::install(debian::PACKAGES)?;
        Ok(Toolchain::Debian)
    }
}

/// Who compiles.
#[derive(Clone, Copy)]
enum Toolchain {
    /// The toolchain that runs this, with its own standard library for the target.
    Rustup,
    /// Debian's compiler, and a standard library that it builds from Debian's sources.
    Debian,
}

impl Build {
    fn run(&self, toolchain: Toolchain, root: &Path, component: &Path) -> Result<()> {
        let workspace = root.join(self.workspace);
        // One for all workspaces, so that Debian's standard library is built once.
        let targets = root.join("guest-examples/target");
        // Beside the workspace's own `target`, so that two compilers do not undo each other's work.
        let (mut cargo, target) = match toolchain {
            Toolchain::Rustup => (Command::new("cargo"), targets),
            Toolchain::Debian => (debian::cargo()?, targets.join("debian")),
        };
        cargo
            .current_dir(&workspace)
            .args(["build", "--quiet", "--release", "--target", TARGET])
            .args(["--package", self.package])
            .args(self.flags)
            .arg("--target-dir")
            .arg(&target);
        run(&mut cargo).with_context(|| format!("guest {} does not build", self.component))?;
        let file = format!("{TARGET}/release/{}.wasm", self.package);
        let built = target.join(file);
        fs::copy(&built, component).with_context(|| format!("cannot copy {} to target/guests", built.display()))?;
        Ok(())
    }
}

/// The folder of the root manifest.
pub(crate) fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().context("xtask has no parent folder")?;
    Ok(root.to_owned())
}

fn has_standard_library() -> bool {
    let printed = printed(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    let Ok(folder) = printed else { return false };
    let Ok(files) = fs::read_dir(folder) else {
        return false;
    };
    files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
}

/// Runs a command to its end, as if cargo had not started this program: build scripts look at what cargo tells a
/// program of its package, and half of what the host is built from would be compiled again.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = format!("{:?}", command.get_program());
    let of_cargo = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (variable, _) in std::env::vars_os().filter(|(variable, _)| variable.to_str().is_some_and(of_cargo)) {
        command.env_remove(variable);
    }
    let status = command.status().with_context(|| format!("{name} cannot be started"))?;
    if !status.success() {
        bail!("{name} ended with {status}");
    }
    Ok(())
}

/// What a command prints, without the last line end.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{:?} ended with {}", command.get_program(), output.status);
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
