//! A PostgreSQL of Debian's, in a folder of its own, as a user that is not root, on loopback.

#[path = "cluster/archived.rs"]
mod archived;

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const USER: &str = "postgres";
const ADMIN: &str = "admin-of-this-run";
pub(crate) const PASSWORD: &str = "pw-of-this-run";
const READY_WITHIN: Duration = Duration::from_secs(120);

/// Added to a URL.
pub(crate) const SERIALIZABLE: &str = "&options=-c%20default_transaction_isolation=serializable";
pub(crate) const TLS: &str = "&tls";

/// A server that can be killed and started again.
pub(crate) struct Cluster {
    folder: TempDir,
    pub(crate) port: u16,
    running: Mutex<Option<Running>>,
}

struct Running {
    pid: u32,
    ended: mpsc::Receiver<()>,
}

/// A database for one ledger, and a folder for one host of it.
pub(crate) struct Place {
    pub(crate) database: String,
    pub(crate) url: String,
    pub(crate) data: TempDir,
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// The newest version that is installed.
fn program(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.pop()
}

fn install() {
    if program("postgres").is_some() {
        return;
    }
    assert!(is_root(), "PostgreSQL is not here: apt-get install postgresql");
    let apt = |words: &[&str]| {
        let wait = ["--quiet=2", "-o", "DPkg::Lock::Timeout=300"];
        run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(wait).args(words))
    };
    apt(&["update"]);
    apt(&["install", "--yes", "--no-install-recommends", "postgresql"]);
}

/// Where servers lie instead, for what is measured on a disk.
pub(crate) const FOLDER: &str = "ONCEGATE_TEST_SERVERS";

const PREFIX: &str = "oncegate-ledger-pg-";

/// Removes what runs before left behind: the server that all tests share is dropped by nobody.
fn sweep(memory: &Path) {
    for entry in fs::read_dir(memory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Another run may sweep too.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// A folder in memory where there is one: what is shown here does not depend on the disk.
fn folder() -> TempDir {
    let chosen = std::env::var_os(FOLDER).map(PathBuf::from);
    let memory = chosen.as_deref().unwrap_or(Path::new("/dev/shm"));
    sweep(memory);
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let mut named = tempfile::Builder::new();
    let named = named.prefix(&prefix);
    if memory.is_dir() { named.tempdir_in(memory).unwrap() } else { named.tempdir().unwrap() }
}

fn certificates(folder: &Path) {
    let path = |name: &str| folder.join(name).display().to_string();
    let openssl = |words: &[&str]| run(Command::new("openssl").args(words));
    let (ca, ca_key) = (path("ca.pem"), path("ca.key"));
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    openssl(
        &[&["req", "-x509", "-days", "2", "-subj", "/CN=authority", "-out", &ca, "-keyout", &ca_key][..], &key]
            .concat(),
    );
    let (request, server_key, server) = (path("server.csr"), path("server.key"), path("server.pem"));
    openssl(&[&["req", "-new", "-subj", "/CN=localhost", "-out", &request, "-keyout", &server_key][..], &key].concat());
    let names = path("names.txt");
    fs::write(&names, "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    let signed = ["x509", "-req", "-days", "2", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial"];
    openssl(&[&signed[..], &["-extfile", &names, "-out", &server]].concat());
    run(Command::new("chmod").args(["600", &server_key]));
}

impl Cluster {
    /// The one of this run, for tests that leave it running.
    pub(crate) fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| Cluster::start(&[]))
    }

    /// One of its own, with these settings.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Cluster {
        install();
        let folder = folder();
        certificates(folder.path());
        fs::write(folder.path().join("password"), ADMIN).unwrap();
        if is_root() {
            run(Command::new("chown").arg("-R").arg(format!("{USER}:")).arg(folder.path()));
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cluster = Cluster { folder, port, running: Mutex::new(None) };
        let mut init = cluster.as_user(&program("initdb").unwrap());
        init.args(["--auth=scram-sha-256", "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]);
        init.arg(format!("--pwfile={}", cluster.folder.path().join("password").display()));
        run(init.arg("-D").arg(cluster.data()).env("LC_ALL", "C.UTF-8"));
        let mut lines = format!(
            "port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{0}'\nssl = on\n\
            ssl_cert_file = '{0}/server.pem'\nssl_key_file = '{0}/server.key'\nmax_connections = 200\n",
            cluster.folder.path().display()
        );
        for (name, value) in settings {
            lines.push_str(&format!("{name} = '{value}'\n"));
        }
        let configuration = cluster.data().join("postgresql.conf");
        let before = fs::read_to_string(&configuration).unwrap();
        fs::write(&configuration, before + &lines).unwrap();
        cluster.go();
        cluster.sql("postgres", &format!("CREATE ROLE ledger LOGIN PASSWORD '{PASSWORD}'"));
        cluster
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn as_user(&self, program: &Path) -> Command {
        if !is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(program);
        command
    }

    /// Starts the server, and waits until it answers. The kernel ends it with this process.
    pub(crate) fn go(&self) {
        let started = Instant::now();
        loop {
            let running = spawn(self.server());
            while running.ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                if self.try_sql("postgres", "SELECT 1").is_some() {
                    *self.running.lock().unwrap() = Some(running);
                    return;
                }
                std::thread::sleep(Duration::from_millis(30));
            }
            // What the killed one held in memory is let go a moment later.
            assert!(
                started.elapsed() < READY_WITHIN,
                "{}",
                fs::read_to_string(self.folder.path().join("log")).unwrap()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn server(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if is_root() {
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
        }
        command.arg(program("postgres").unwrap()).arg("-D").arg(self.data());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    /// SIGKILL to the server.
    pub(crate) fn kill(&self) {
        let running = self.running.lock().unwrap().take().unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(running.pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        running.ended.recv().unwrap();
    }

    fn try_sql(&self, database: &str, sql: &str) -> Option<String> {
        let mut psql = Command::new("psql");
        // What tests do to the server waits for no standby.
        psql.env("PGPASSWORD", ADMIN).env("PGOPTIONS", "-c synchronous_commit=local");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]);
        psql.args(["-p", &self.port.to_string(), "-U", "postgres", "-d", database, "-c", sql]);
        let output = psql.stdin(Stdio::null()).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Runs SQL as the superuser.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).unwrap_or_else(|| panic!("{sql}"))
    }

    /// A new database.
    pub(crate) fn place(&self, more: &str) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let database = format!("l{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {database} OWNER ledger"));
        self.host_of(&database, more)
    }

    /// Another host of the ledger in this database.
    pub(crate) fn host_of(&self, database: &str, more: &str) -> Place {
        self.host_at(database, self.port, more)
    }

    /// The same, through something that listens at this port.
    pub(crate) fn host_at(&self, database: &str, port: u16, more: &str) -> Place {
        let data = tempfile::tempdir().unwrap();
        let tls = format!("&sslmode=verify-full&sslrootcert={}", self.folder.path().join("ca.pem").display());
        let more = if more == TLS { tls } else { format!("&sslmode=disable{more}") };
        let folder = data.path().display();
        let url = format!("postgres://ledger:{PASSWORD}@127.0.0.1:{port}/{database}?data={folder}{more}");
        Place { database: database.to_owned(), url, data }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.running.lock().unwrap().is_some() {
            self.kill();
        }
    }
}

fn spawn(mut command: Command) -> Running {
    let (sender, started) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    // The kernel's signal comes with the end of the thread that started it: this one waits for it.
    std::thread::spawn(move || {
        let mut child = command.spawn().unwrap();
        sender.send(child.id()).unwrap();
        let _ = child.wait();
        let _ = end.send(());
    });
    Running { pid: started.recv().unwrap(), ended }
}
