//! Podman with a storage and settings of its own, which go when the run ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, getrlimit};
use tempfile::TempDir;

use crate::databases;
use crate::debian;
use crate::harness::{self, Run, root};

/// What is installed. `runc` and not `crun`, which refuses machines with both versions of control groups.
const PACKAGES: &[&str] = &["podman", "runc", "netavark", "iptables", "catatonit", "mmdebstrap", "binutils"];
/// What the container file asks of its base: a shell, its tools, glibc and libgcc.
const BASE_PACKAGES: &str = "libc6,libgcc-s1,dash,coreutils";
/// The base image here; outside of tests it is one from a registry.
pub const BASE: &str = "localhost/oncegate-base:1";
/// The program's image.
pub const IMAGE: &str = "localhost/oncegate:1";
/// More files than the program asks for; a machine may allow less than Podman's default.
const FILES_MAX: u64 = 16_384;
const WITHIN: Duration = Duration::from_secs(120);

/// A Podman that can run containers.
pub struct Podman {
    folder: TempDir,
}

impl Podman {
    /// Installs it and runs a container; otherwise why that cannot be done here.
    ///
    /// # Errors
    /// The program is not built, or the container file does not make an image.
    pub fn start() -> Result<Result<Self, String>> {
        if !rustix::process::getuid().is_root() {
            return Ok(Err("it takes root".to_owned()));
        }
        if let Err(error) = debian::install(PACKAGES) {
            return Ok(Err(format!("{error:#}")));
        }
        let podman = Self { folder: tempfile::Builder::new().prefix("oncegate-deploy-").tempdir()? };
        podman.configure()?;
        if let Err(error) = podman.import_base().and_then(|()| podman.run(&["run", "--rm", BASE, "/bin/true"])) {
            return Ok(Err(format!("{error:#}")));
        }
        podman.build()?;
        Ok(Ok(podman))
    }

    /// A folder for the run's own files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn configure(&self) -> Result<()> {
        let files = getrlimit(Resource::Nofile).maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
        let text = format!(
            "[containers]\ndefault_ulimits = [\"nofile={files}:{files}\", \"nproc=4096:4096\"]\n\
             [engine]\nruntime = \"runc\"\nevents_logger = \"file\"\ncgroup_manager = \"cgroupfs\"\n"
        );
        Ok(fs::write(self.folder().join("containers.conf"), text)?)
    }

    /// `podman`, with settings and storage of this run.
    pub fn command(&self) -> Command {
        let folder = self.folder();
        let mut command = Command::new("podman");
        command.env("CONTAINERS_CONF", folder.join("containers.conf")).arg("--root").arg(folder.join("storage"));
        command.arg("--runroot").arg(folder.join("run")).arg("--tmpdir").arg(folder.join("tmp"));
        command
    }

    /// Runs it to its end and gives what it printed.
    ///
    /// # Errors
    /// It fails.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        databases::run(self.command().args(words))
    }

    /// Runs it to its end, whatever that is.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn try_run(&self, words: &[&str]) -> Result<Run> {
        Run::of(self.command().args(words))
    }

    /// Waits until a container's log has this text.
    ///
    /// # Errors
    /// It never has.
    pub fn until_logged(&self, container: &str, text: &str) -> Result<String> {
        let started = Instant::now();
        loop {
            let run = self.try_run(&["logs", container])?;
            let log = run.stdout + &run.stderr;
            if log.contains(text) {
                return Ok(log);
            }
            ensure!(started.elapsed() < WITHIN, "{container} never said {text:?}: {log}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// How a container ended.
    ///
    /// # Errors
    /// There is no such container.
    pub fn exit_code(&self, container: &str) -> Result<String> {
        self.run(&["inspect", container, "--format", "{{.State.Status}} {{.State.ExitCode}}"])
    }

    fn import_base(&self) -> Result<()> {
        let file = self.folder().join("base.tar");
        let include = format!("--include={BASE_PACKAGES}");
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=extract", &include, &release()?]).arg(&file).env("TMPDIR", self.folder());
        databases::run(&mut make)?;
        self.run(&["import", "--quiet", &file.display().to_string(), BASE])?;
        Ok(fs::remove_file(file)?)
    }

    /// The program's image by the repository's container file, from the program that is built already.
    fn build(&self) -> Result<()> {
        let context = self.folder().join("prebuilt");
        fs::create_dir(&context)?;
        let program = context.join("oncegate");
        // A debug build is twice as large with its symbols.
        databases::run(Command::new("strip").arg("-o").arg(&program).arg(harness::program()?))?;
        let file = root().join("deploy/container/Containerfile");
        let mut build = self.command();
        build.args(["build", "--quiet", "--isolation", "chroot", "-t", IMAGE, "-f"]).arg(file);
        for argument in ["PROGRAM=prebuilt", &format!("BASE={BASE}"), &format!("BUILDER={BASE}")] {
            build.args(["--build-arg", argument]);
        }
        databases::run(build.arg(&context)).context("the container file")?;
        Ok(())
    }

    /// The program's image with a component in it.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn build_with(&self, component: &Path, image: &str) -> Result<()> {
        let context = self.folder().join(image.replace(['/', ':'], "-"));
        fs::create_dir(&context)?;
        fs::copy(component, context.join("component.wasm"))?;
        let text = format!("FROM {IMAGE}\nCOPY component.wasm /components/\n");
        fs::write(context.join("Containerfile"), text)?;
        let mut build = self.command();
        databases::run(build.args(["build", "--quiet", "-t", image]).arg(&context))?;
        Ok(())
    }

    /// Whether containers can have a network of their own.
    ///
    /// # Errors
    /// They cannot, and why.
    pub fn gateway(&self) -> Result<String> {
        self.run(&["run", "--rm", "--network", "podman", BASE, "/bin/true"])?;
        self.run(&["network", "inspect", "podman", "--format", "{{(index .Subnets 0).Gateway}}"])
    }

    /// A root file system of these packages.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn system(&self, packages: &str) -> Result<PathBuf> {
        let folder = self.folder().join("system");
        let include = format!("--include={packages}");
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=extract", "--format=directory", &include, &release()?]).arg(&folder);
        databases::run(make.env("TMPDIR", self.folder()))?;
        Ok(folder)
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        for words in [&["pod", "rm", "--all", "--force"][..], &["rm", "--all", "--force", "--time", "0"]] {
            self.command().args(words).stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
        }
        // Mounts that are left would keep the folder from being removed.
        self.command().args(["umount", "--all"]).stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
        for mounted in ["storage/overlay", "run"] {
            let folder = self.folder().join(mounted);
            Command::new("umount").arg("--quiet").arg(folder).stderr(Stdio::null()).status().ok();
        }
    }
}

/// Debian's word for the release that runs here.
fn release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release")?;
    let found = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    match found {
        Some(name) => Ok(name.trim_matches('"').to_owned()),
        None => bail!("/etc/os-release names no release"),
    }
}
