//! A real MariaDB from Debian, one for a test run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Result;
use tempfile::TempDir;

use super::{as_user, certificates, free_port, give, installed, run, serve, wait};

/// Debian's server package makes this user; the core package alone does not.
const USER: &str = "nobody";
const SERVER: &str = "/usr/sbin/mariadbd";

/// A running server.
pub struct Mariadb {
    folder: TempDir,
    port: u16,
}

impl Mariadb {
    /// The one server of this run.
    ///
    /// # Errors
    /// It cannot be installed or does not start.
    pub fn shared() -> Result<&'static Self> {
        static RUNNING: OnceLock<Result<Mariadb, String>> = OnceLock::new();
        let server = RUNNING.get_or_init(|| Self::start().map_err(|error| format!("{error:#}")));
        server.as_ref().map_err(|error| anyhow::anyhow!("MariaDB: {error}"))
    }

    fn start() -> Result<Self> {
        installed(|| Path::new(SERVER).exists(), &["mariadb-server-core", "mariadb-client-core"])?;
        let folder = tempfile::Builder::new().prefix("oncegate-mariadb-").tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::create_dir(folder.path().join("data"))?;
        certificates(folder.path())?;
        give(USER, folder.path())?;
        let mut init = as_user(USER, "mariadb-install-db");
        init.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        init.args(["--skip-name-resolve", &format!("--datadir={}", path("data"))]);
        run(&mut init)?;
        let port = free_port()?;
        let log = folder.path().join("log");
        let words = vec![
            SERVER.to_owned(),
            "--no-defaults".to_owned(),
            format!("--datadir={}", path("data")),
            format!("--socket={}", path("socket")),
            format!("--pid-file={}", path("pid")),
            format!("--port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--skip-name-resolve".to_owned(),
            "--innodb-flush-log-at-trx-commit=0".to_owned(),
            "--innodb-buffer-pool-size=16M".to_owned(),
            "--secure-file-priv=".to_owned(),
            format!("--ssl-cert={}", path("server.pem")),
            format!("--ssl-key={}", path("server.key")),
            format!("--ssl-ca={}", path("ca.pem")),
        ];
        serve(USER, &log, words)?;
        let server = Self { folder, port };
        wait(&log, || server.run("SELECT 1").is_ok())?;
        Ok(server)
    }

    /// The URL of one of its databases.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("mysql://127.0.0.1:{}/{database}", self.port)
    }

    /// The certificate of its authority.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Runs SQL as root; the rows, one a line.
    ///
    /// # Errors
    /// The server refuses.
    pub fn run(&self, sql: &str) -> Result<String> {
        let socket = self.folder.path().join("socket");
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--batch", "--skip-column-names", "-uroot"]);
        run(client.arg(format!("--socket={}", socket.display())).args(["-e", sql]))
    }
}
