//! Continuous archiving and point-in-time recovery, by PostgreSQL's own means.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::{ADMIN, Cluster, READY_WITHIN, is_root, program, run};

impl Cluster {
    /// One that archives its log.
    pub(crate) fn archiving() -> Cluster {
        // The folder is known only when the server is there: the command is set then, and taken at once.
        let cluster = Cluster::start(&[("wal_level", "replica"), ("archive_mode", "on")]);
        let archive = cluster.archive();
        run(cluster.as_user(&PathBuf::from("/usr/bin/mkdir")).arg(&archive));
        let command = format!("test ! -f {0}/%f && cp %p {0}/%f", archive.display());
        cluster.sql("postgres", &format!("ALTER SYSTEM SET archive_command = '{command}'"));
        cluster.sql("postgres", "SELECT pg_reload_conf()");
        cluster
    }

    fn archive(&self) -> PathBuf {
        self.folder.path().join("archive")
    }

    fn base(&self) -> PathBuf {
        self.folder.path().join("base")
    }

    /// `pg_basebackup` of the running server.
    pub(crate) fn base_backup(&self) {
        let mut backup = self.as_user(&program("pg_basebackup").unwrap());
        backup.env("PGPASSWORD", ADMIN).args(["--host=127.0.0.1", "--username=postgres", "--checkpoint=fast"]);
        run(backup.arg(format!("--port={}", self.port)).arg("--pgdata").arg(self.base()));
    }

    /// The server's clock, for [`Cluster::restore`].
    pub(crate) fn now(&self) -> String {
        self.sql("postgres", "SELECT now()")
    }

    /// Waits until all that is written until now is in the archive.
    pub(crate) fn archive_all(&self) {
        let segment = self.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())");
        let started = Instant::now();
        while !self.archive().join(&segment).exists() {
            assert!(started.elapsed() < READY_WITHIN, "{segment} is not archived");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Stops the server and has in its place what it was at that time: the base backup and the archive up to there.
    pub(crate) fn restore(&self, time: &str) {
        self.kill();
        fs::remove_dir_all(self.data()).unwrap();
        fs::rename(self.base(), self.data()).unwrap();
        let settings = format!(
            "restore_command = 'cp {}/%f %p'\nrecovery_target_time = '{time}'\nrecovery_target_action = promote\n",
            self.archive().display()
        );
        let configuration = self.data().join("postgresql.auto.conf");
        let before = fs::read_to_string(&configuration).unwrap();
        fs::write(&configuration, before + &settings).unwrap();
        fs::write(self.data().join("recovery.signal"), "").unwrap();
        if is_root() {
            run(Command::new("chown").arg("-R").arg(format!("{}:", super::USER)).arg(self.data()));
        }
        self.go();
        let started = Instant::now();
        while self.sql("postgres", "SELECT pg_is_in_recovery()") == "t" {
            assert!(started.elapsed() < READY_WITHIN, "it never ends its recovery");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}
