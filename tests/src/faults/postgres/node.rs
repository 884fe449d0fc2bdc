//! A PostgreSQL that can be killed, started again, followed by a standby, and promoted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::databases::{READY_WITHIN, as_user, free_port, give, installed, run};

const USER: &str = "postgres";
/// The superuser's password, which hosts never see.
const ADMIN: &str = "admin-of-this-run";
/// The password of the ledger's login.
const PASSWORD: &str = "pw-of-this-run";
const LOOK_EVERY: Duration = Duration::from_millis(30);
/// A standby that follows is in step by then.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(60);

/// One server.
pub struct Node {
    folder: TempDir,
    /// Where it listens, on every address.
    pub port: u16,
    running: Mutex<Option<Running>>,
}

struct Running {
    pid: u32,
    ended: mpsc::Receiver<()>,
}

/// The newest version that is installed.
fn program(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.pop()
}

fn installed_program(name: &str) -> Result<String> {
    Ok(program(name).with_context(|| format!("there is no {name}"))?.display().to_string())
}

/// In memory where there is room: kills of a process do not depend on the disk, and syncs of many servers do.
fn folder() -> Result<TempDir> {
    let mut named = tempfile::Builder::new();
    let named = named.prefix("oncegate-faults-pg-");
    let memory = Path::new("/dev/shm");
    Ok(if memory.is_dir() { named.tempdir_in(memory)? } else { named.tempdir()? })
}

impl Node {
    /// A new server with the ledger's login.
    ///
    /// # Errors
    /// It cannot be installed or does not start.
    pub fn start() -> Result<Self> {
        installed(|| program("postgres").is_some(), &["postgresql"])?;
        let node = Self { folder: folder()?, port: free_port()?, running: Mutex::default() };
        let password = node.folder.path().join("password");
        fs::write(&password, ADMIN)?;
        give(USER, node.folder.path())?;
        let mut init = as_user(USER, &installed_program("initdb")?);
        init.args(["--auth=scram-sha-256", "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]);
        init.arg(format!("--pwfile={}", password.display()));
        run(init.arg("-D").arg(node.data()).env("LC_ALL", "C.UTF-8"))?;
        let rules = node.data().join("pg_hba.conf");
        let before = fs::read_to_string(&rules)?;
        fs::write(&rules, before + "host all ledger 10.0.0.0/8 scram-sha-256\n")?;
        node.settings(
            "listen_addresses = '*'\nmax_connections = 200\nmax_wal_size = '256MB'\nshared_buffers = '32MB'\n",
        )?;
        node.go()?;
        node.sql("postgres", &format!("CREATE ROLE ledger LOGIN PASSWORD '{PASSWORD}'"))?;
        Ok(node)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The lines at the end win.
    fn settings(&self, lines: &str) -> Result<()> {
        let file = self.data().join("postgresql.conf");
        let own = format!("port = {}\nunix_socket_directories = '{}'\n", self.port, self.folder.path().display());
        let before = fs::read_to_string(&file)?;
        Ok(fs::write(&file, before + &own + lines)?)
    }

    /// A streaming copy of this one. With `synchronous` no commit of this one is acknowledged that the copy has not
    /// on its disk.
    ///
    /// # Errors
    /// It cannot be made, or does not follow.
    pub fn followed(&self, synchronous: bool) -> Result<Node> {
        let copy = Node { folder: folder()?, port: free_port()?, running: Mutex::default() };
        give(USER, copy.folder.path())?;
        let mut backup = as_user(USER, &installed_program("pg_basebackup")?);
        backup.env("PGPASSWORD", ADMIN).args(["--no-sync", "--write-recovery-conf", "--wal-method=stream"]);
        backup.args(["--checkpoint=fast", "-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string()]);
        run(backup.arg("-D").arg(copy.data()))?;
        copy.settings("")?;
        copy.go()?;
        if synchronous {
            self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")?;
            self.sql("postgres", "SELECT pg_reload_conf()")?;
        }
        let state = if synchronous { "sync" } else { "async" };
        let asked = format!("SELECT count(*) FROM pg_stat_replication WHERE sync_state = '{state}'");
        let started = Instant::now();
        while self.sql("postgres", &asked)? != "1" {
            ensure!(started.elapsed() < FOLLOWS_WITHIN, "no standby follows");
            thread::sleep(LOOK_EVERY);
        }
        Ok(copy)
    }

    /// Starts the server and waits until it answers. The kernel ends it with this process.
    ///
    /// # Errors
    /// It does not start.
    pub fn go(&self) -> Result<()> {
        let started = Instant::now();
        loop {
            let running = spawn(self.server()?)?;
            while running.ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                if self.sql("postgres", "SELECT 1").is_ok() {
                    *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
                    return Ok(());
                }
                thread::sleep(LOOK_EVERY);
            }
            // What the killed one held in memory is let go a moment later.
            if started.elapsed() > READY_WITHIN {
                bail!("{}", fs::read_to_string(self.folder.path().join("log")).unwrap_or_default());
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn server(&self) -> Result<Command> {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if rustix::process::getuid().is_root() {
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        }
        command.arg(installed_program("postgres")?).arg("-D").arg(self.data());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// SIGKILL to the server; one that does not run stays so.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&self) -> Result<()> {
        let Some(running) = self.running.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        let pid = i32::try_from(running.pid).ok().and_then(Pid::from_raw).context("no process")?;
        kill_process(pid, Signal::KILL)?;
        running.ended.recv().context("the server's end")
    }

    /// Makes a standby the primary.
    ///
    /// # Errors
    /// The server refuses.
    pub fn promote(&self) -> Result<()> {
        self.sql("postgres", "SELECT pg_promote(true, 60)").map(drop)
    }

    /// Runs SQL as the superuser, who waits for no standby.
    ///
    /// # Errors
    /// The server refuses.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let mut psql = Command::new("psql");
        psql.env("PGPASSWORD", ADMIN).env("PGOPTIONS", "-c synchronous_commit=local").env("PGCONNECT_TIMEOUT", "10");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]);
        run(psql.args(["-p", &self.port.to_string(), "-U", "postgres", "-d", database, "-c", sql]))
    }

    /// A new database of the ledger's login.
    ///
    /// # Errors
    /// The server refuses.
    pub fn database(&self, name: &str) -> Result<()> {
        self.sql("postgres", &format!("CREATE DATABASE {name} OWNER ledger")).map(drop)
    }
}

/// What a host needs beside its URL: the password, in a file.
///
/// # Errors
/// It cannot be written.
pub fn password_file(folder: &Path) -> Result<PathBuf> {
    let file = folder.join("password");
    fs::write(&file, PASSWORD)?;
    Ok(file)
}

impl Drop for Node {
    fn drop(&mut self) {
        // The kernel ends it later, if this cannot.
        let _ = self.kill();
    }
}

fn spawn(mut command: Command) -> Result<Running> {
    let (sender, started) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    // The kernel's signal comes with the end of the thread that started it: this one waits for it.
    thread::spawn(move || {
        let child = command.spawn();
        if sender.send(child.as_ref().map(std::process::Child::id).map_err(ToString::to_string)).is_err() {
            return;
        }
        if let Ok(mut child) = child {
            // Whoever waits for the end wants no more than the end.
            let _ = child.wait();
            let _ = end.send(());
        }
    });
    let pid = started.recv()?.map_err(anyhow::Error::msg).context("setpriv cannot be started")?;
    Ok(Running { pid, ended })
}
