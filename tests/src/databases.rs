//! Database servers that others wrote, started for a test run on loopback and ended with it.
//!
//! Each runs as a user that is not root, with a data directory of its own, and speaks TLS under an
//! authority that is made for the run. The kernel ends it when the run does, also by SIGKILL.

pub mod archived;
pub mod mariadb;
pub mod nx;
pub mod postgres;
pub mod wire;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::debian;

/// A server that makes its first files on a busy machine.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Installs Debian's packages unless the program is there.
pub(crate) fn installed(is_here: impl Fn() -> bool, packages: &[&str]) -> Result<()> {
    if is_here() {
        return Ok(());
    }
    debian::install(packages)?;
    if is_here() { Ok(()) } else { bail!("{packages:?} are installed, and the server is not there") }
}

/// Runs a command to its end and gives what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// A command as a user that is not root; the same user when this is none.
pub(crate) fn as_user(user: &str, program: &str) -> Command {
    if !rustix::process::getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", group(user), "--clear-groups", program]);
    command
}

/// Debian's name for the group of a user.
fn group(user: &str) -> &str {
    if user == "nobody" { "nogroup" } else { user }
}

/// Gives a folder to that user.
pub(crate) fn give(user: &str, folder: &Path) -> Result<()> {
    if rustix::process::getuid().is_root() {
        run(Command::new("chown").arg("-R").arg(format!("{user}:")).arg(folder))?;
    }
    Ok(())
}

/// Starts a server that the kernel ends with this process.
pub(crate) fn serve(user: &str, log: &Path, words: Vec<String>) -> Result<()> {
    let log = fs::File::create(log)?;
    let (sender, started) = mpsc::channel();
    let user = user.to_owned();
    // The signal comes with the end of the thread that started the server: this one never ends.
    thread::spawn(move || {
        let child = start(&user, log, &words);
        let failed = child.is_err();
        sender.send(child.as_ref().map(Child::id).map_err(ToString::to_string)).ok();
        if failed {
            return;
        }
        loop {
            thread::park();
        }
    });
    started.recv()?.map(drop).map_err(anyhow::Error::msg)
}

fn start(user: &str, log: fs::File, words: &[String]) -> Result<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if rustix::process::getuid().is_root() && !user.is_empty() {
        command.args(["--reuid", user, "--regid", group(user), "--clear-groups"]);
    }
    let errors = log.try_clone()?;
    command.args(words).stdin(Stdio::null()).stdout(log).stderr(errors);
    command.spawn().context("setpriv cannot be started")
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until `ready` says so.
///
/// # Errors
/// It never does; the message has the end of the server's log.
pub(crate) fn wait(log: &Path, ready: impl Fn() -> bool) -> Result<()> {
    let started = Instant::now();
    while !ready() {
        if started.elapsed() > READY_WITHIN {
            let log = fs::read_to_string(log).unwrap_or_default();
            bail!("the server is not ready after {READY_WITHIN:?}: {}", &log[log.len().saturating_sub(2_000)..]);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Whether somebody listens there.
pub(crate) fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Makes an authority and, signed by it, a server's certificate for loopback: `ca.pem`, `server.pem`, `server.key`.
pub(crate) fn certificates(folder: &Path) -> Result<()> {
    let path = |name: &str| folder.join(name).display().to_string();
    let openssl = |words: &[&str]| run(Command::new("openssl").args(words));
    let (ca, ca_key) = (path("ca.pem"), path("ca.key"));
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let own = ["req", "-x509", "-days", "2", "-subj", "/CN=test authority", "-out", &ca, "-keyout", &ca_key];
    openssl(&[&own[..], &key].concat())?;
    let (request, server_key, server) = (path("server.csr"), path("server.key"), path("server.pem"));
    let asked = ["req", "-new", "-subj", "/CN=localhost", "-out", &request, "-keyout", &server_key];
    openssl(&[&asked[..], &key].concat())?;
    let names = path("names.txt");
    fs::write(&names, "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")?;
    let signed = ["x509", "-req", "-days", "2", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial"];
    openssl(&[&signed[..], &["-extfile", &names, "-out", &server]].concat())?;
    run(Command::new("chmod").args(["600", &server_key]))?;
    Ok(())
}
