//! A real PostgreSQL from Debian, one for a test run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::{as_user, certificates, free_port, give, installed, run, serve, wait};

const USER: &str = "postgres";
/// The superuser's password, which tests hand to nobody else.
const ADMIN: &str = "admin-of-this-run";

/// A running server.
pub struct Postgres {
    folder: TempDir,
    port: u16,
}

impl Postgres {
    /// The one server of this run.
    ///
    /// # Errors
    /// It cannot be installed or does not start.
    pub fn shared() -> Result<&'static Self> {
        static SERVER: OnceLock<Result<Postgres, String>> = OnceLock::new();
        let server = SERVER.get_or_init(|| Self::start().map_err(|error| format!("{error:#}")));
        server.as_ref().map_err(|error| anyhow::anyhow!("PostgreSQL: {error}"))
    }

    fn start() -> Result<Self> {
        installed(|| program("postgres").is_some(), &["postgresql"])?;
        let folder = tempfile::Builder::new().prefix("oncegate-postgres-").tempdir()?;
        let data = folder.path().join("data");
        let password = folder.path().join("password");
        fs::write(&password, ADMIN)?;
        certificates(folder.path())?;
        give(USER, folder.path())?;
        let path = |name: &Path| name.display().to_string();
        let mut init = as_user(USER, &path(&program("initdb").context("there is no initdb")?));
        init.args(["--auth=scram-sha-256", "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]);
        run(init.arg(format!("--pwfile={}", path(&password))).arg("-D").arg(&data).env("LC_ALL", "C.UTF-8"))?;
        let port = free_port()?;
        let mut words = vec![path(&program("postgres").context("there is no postgres")?), "-D".into(), path(&data)];
        let certificate = path(&folder.path().join("server.pem"));
        let key = path(&folder.path().join("server.key"));
        let sockets = path(folder.path());
        for (name, value) in [
            ("port", port.to_string()),
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("unix_socket_directories", sockets),
            ("fsync", "off".to_owned()),
            ("ssl", "on".to_owned()),
            ("ssl_cert_file", certificate),
            ("ssl_key_file", key),
        ] {
            words.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        let log = folder.path().join("log");
        serve(USER, &log, words)?;
        let server = Self { folder, port };
        wait(&log, || server.run("postgres", "SELECT 1").is_ok())?;
        Ok(server)
    }

    /// The URL of one of its databases.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://127.0.0.1:{}/{database}", self.port)
    }

    /// The certificate of its authority.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Runs SQL as the superuser; the rows, one a line.
    ///
    /// # Errors
    /// The server refuses.
    pub fn run(&self, database: &str, sql: &str) -> Result<String> {
        let mut psql = Command::new("psql");
        psql.env("PGPASSWORD", ADMIN).args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]);
        run(psql.args(["-p", &self.port.to_string(), "-U", "postgres", "-d", database, "-c", sql]))
    }
}

/// The newest version that is installed.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.pop()
}
