//! A PostgreSQL that archives its log and can be put back to an earlier moment, by its own means.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::postgres::program;
use super::{LOOK_EVERY, READY_WITHIN, as_user, free_port, give, installed, run, serve, wait};

const USER: &str = "postgres";
const ADMIN: &str = "admin-of-this-run";
/// The password of the role `oncegate`, which owns the database `oncegate`.
pub const PASSWORD: &str = "pw-of-this-run";

/// A running server of its own.
pub struct Archived {
    folder: TempDir,
    port: u16,
}

impl Archived {
    /// Makes and starts one.
    ///
    /// # Errors
    /// It cannot be installed or does not start.
    pub fn start() -> Result<Self> {
        installed(|| program("postgres").is_some(), &["postgresql"])?;
        let folder = tempfile::Builder::new().prefix("oncegate-archived-").tempdir()?;
        let server = Self { folder, port: free_port()? };
        fs::write(server.place("password"), ADMIN)?;
        fs::create_dir(server.place("archive"))?;
        give(USER, server.folder.path())?;
        let mut init = server.command("initdb")?;
        init.args(["--auth=scram-sha-256", "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]);
        init.arg(format!("--pwfile={}", server.place("password").display()));
        run(init.arg("-D").arg(server.place("data")).env("LC_ALL", "C.UTF-8"))?;
        let archive = server.place("archive").display().to_string();
        server.set(&format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nwal_level = replica\n\
             archive_mode = on\narchive_command = 'test ! -f {archive}/%f && cp %p {archive}/%f'\n",
            server.port,
            server.folder.path().display()
        ))?;
        server.go()?;
        server.sql("postgres", &format!("CREATE ROLE oncegate LOGIN PASSWORD '{PASSWORD}'"))?;
        server.sql("postgres", "CREATE DATABASE oncegate OWNER oncegate")?;
        Ok(server)
    }

    fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, name: &str) -> Result<Command> {
        let program = program(name).with_context(|| format!("there is no {name}"))?;
        let mut command = as_user(USER, &program.display().to_string());
        command.env("PGPASSWORD", ADMIN).current_dir(self.folder.path());
        Ok(command)
    }

    /// Adds lines to the configuration.
    fn set(&self, lines: &str) -> Result<()> {
        let file = self.place("data/postgresql.auto.conf");
        let before = fs::read_to_string(&file)?;
        Ok(fs::write(&file, before + lines)?)
    }

    fn go(&self) -> Result<()> {
        let server = program("postgres").context("there is no postgres")?.display().to_string();
        let log = self.place("log");
        serve(USER, &log, vec![server, "-D".to_owned(), self.place("data").display().to_string()])?;
        wait(&log, || self.sql("postgres", "SELECT 1").is_ok())
    }

    /// The ledger's URL for a host with this folder and the password in this file.
    #[must_use]
    pub fn url(&self, data: &str, passfile: &str) -> String {
        format!("postgres://oncegate@127.0.0.1:{}/oncegate?data={data}&passfile={passfile}&sslmode=disable", self.port)
    }

    /// Runs SQL as the superuser; the rows, one a line.
    ///
    /// # Errors
    /// The server refuses.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let mut psql = Command::new("psql");
        psql.env("PGPASSWORD", ADMIN).args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]);
        run(psql.args(["-p", &self.port.to_string(), "-U", "postgres", "-d", database, "-c", sql]))
    }

    /// `pg_basebackup` of the running server.
    ///
    /// # Errors
    /// It fails.
    pub fn base_backup(&self) -> Result<()> {
        let mut backup = self.command("pg_basebackup")?;
        backup.args(["--host=127.0.0.1", "--username=postgres", "--checkpoint=fast"]);
        run(backup.arg(format!("--port={}", self.port)).arg("--pgdata").arg(self.place("base"))).map(drop)
    }

    /// The server's clock.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn now(&self) -> Result<String> {
        self.sql("postgres", "SELECT now()")
    }

    /// Waits until all that is written until now is in the archive.
    ///
    /// # Errors
    /// It never is.
    pub fn archive_all(&self) -> Result<()> {
        let segment = self.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())")?;
        let file = self.place("archive").join(&segment);
        let started = Instant::now();
        while !file.exists() {
            ensure!(started.elapsed() < READY_WITHIN, "{segment} is not archived");
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Stops the server and puts in its place what it was at that time.
    ///
    /// # Errors
    /// The recovery does not end.
    pub fn restore(&self, time: &str) -> Result<()> {
        let data = self.place("data");
        run(self.command("pg_ctl")?.args(["stop", "--mode=immediate", "--wait", "-D"]).arg(&data))?;
        fs::remove_dir_all(&data)?;
        fs::rename(self.place("base"), &data)?;
        self.set(&format!(
            "restore_command = 'cp {}/%f %p'\nrecovery_target_time = '{time}'\nrecovery_target_action = promote\n",
            self.place("archive").display()
        ))?;
        fs::write(data.join("recovery.signal"), "")?;
        give(USER, &data)?;
        self.go()?;
        wait(&self.place("log"), || self.sql("postgres", "SELECT pg_is_in_recovery()").is_ok_and(|is| is == "f"))
    }
}
