//! Debian's packages in place of rustup's target: a compiler that comes with the sources of its
//! standard library, and a C library for WebAssembly.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{printed, run};

/// The compiler and cargo that go with the sources in `rust-web-src`. They install as
/// `/usr/bin/rustc` and `/usr/bin/cargo` and do not touch rustup's.
pub(super) const PACKAGES: &[&str] = &["rustc-web", "cargo-web", "rust-web-src", "wasi-libc"];
/// What `wasi-libc` brings.
const C_LIBRARY: &str = "/usr/lib/wasm32-wasi";

/// True on Debian and what is made from it.
pub(super) fn is_here() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    is_debian(&release) && printed(Command::new("apt-get").arg("--version")).is_ok()
}

fn is_debian(release: &str) -> bool {
    release.lines().any(|line| {
        let own = line.strip_prefix("ID=");
        let names = own.or_else(|| line.strip_prefix("ID_LIKE="));
        names.is_some_and(|names| names.trim_matches('"').split(' ').any(|n| n == "debian"))
    })
}

/// Installs the packages that are not there.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let query = ["--show", "--showformat=${db:Status-Status} "];
    let states = printed(Command::new("dpkg-query").args(query).args(packages));
    let all_here = states.is_ok_and(|states| states.split(' ').all(|state| state == "installed"));
    if all_here {
        return Ok(());
    }
    let apt = |words: &[&str]| {
        run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2").args(words))
    };
    apt(&["update"]).context("cannot read Debian's package lists; are you root?")?;
    let install = ["install", "--yes", "--no-install-recommends"];
    apt(&[&install, packages].concat()).with_context(|| format!("cannot install {}", packages.join(", ")))
}

/// A cargo that builds the standard library together with the guest.
///
/// Debian has no linker for components, and its C library knows components as little: both the
/// linker and the adapter inside it are the ones that come with every rustup toolchain.
pub(super) fn cargo() -> Result<Command> {
    let linkers = linkers()?;
    let flags = [
        format!("-Lnative={C_LIBRARY}"),
        format!("-Clink-arg={C_LIBRARY}/crt1-reactor.o"),
        format!("-Clink-arg=--wasm-ld-path={}", linkers.join("gcc-ld/wasm-ld").display()),
    ];
    let mut cargo = Command::new("/usr/bin/cargo");
    cargo
        .env("RUSTC", "/usr/bin/rustc")
        // Debian's stable compiler has no `-Z` flags without it.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_WASM32_WASIP2_LINKER", linkers.join("wasm-component-ld"))
        // One flag for each separator: the toolchain's path may have spaces in it.
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        // A `cargo xtask` run sets these for rustup's cargo.
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTC_WRAPPER")
        .arg("-Zbuild-std=std,panic_abort");
    Ok(cargo)
}

/// The folder of the toolchain's own linkers.
fn linkers() -> Result<PathBuf> {
    let sysroot = printed(Command::new("rustc").args(["--print", "sysroot"]))?;
    let host = printed(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let folder = PathBuf::from(sysroot).join("lib/rustlib").join(host).join("bin");
    if !folder.join("wasm-component-ld").exists() {
        bail!("{} has no wasm-component-ld; rustup's toolchain has one", folder.display());
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::is_debian;

    #[test]
    fn debian_and_its_children_are_told_from_others() {
        assert!(is_debian("NAME=x\nID=debian\n"));
        assert!(is_debian("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian("ID=fedora\nHOME_URL=https://debian.example\n"));
        assert!(!is_debian(""));
    }
}
