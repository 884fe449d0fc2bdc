//! The systemd unit: what systemd says of it, and run by a systemd that is the first process of a container.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Told;
use super::podman::Podman;
use super::site::Site;
use crate::databases::free_port;
use crate::harness::{SECRET, TENANT, root};
use crate::mcp::http::Client;
use crate::provider::mode::Mode;

const PACKAGES: &str = "systemd,systemd-sysv,dbus,mount,libc6,libgcc-s1";
const CONTAINER: &str = "oncegate-systemd";
const SERVICE: &str = "oncegate.service";
/// What `systemd-analyze security` may say at most, of 10.
const EXPOSURE_MAX: f64 = 2.0;
/// What has no business in a container that shares its machine's network.
const MASKED: [&str; 7] = [
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-networkd-wait-online.service",
    "systemd-resolved.service",
    "systemd-firstboot.service",
    "systemd-sysctl.service",
    "systemd-modules-load.service",
];
const WITHIN: Duration = Duration::from_secs(90);

pub(super) fn run(podman: &Podman) -> Result<Told> {
    let site = Site::near()?;
    let system = System { podman, site: &site, folder: podman.system(PACKAGES)?, port: free_port()? };
    system.furnish()?;
    if let Err(error) = system.boot() {
        return Ok(Told::NotRun(format!("no systemd can be booted: {error:#}")));
    }
    let mut seen = vec![system.is_verified()?];
    system.has_all_walls()?;
    seen.push("under its restrictions `oncegate doctor` finds every wall around runners".to_owned());
    let client = system.begin()?;
    let receipts = system.serves_and_drains(&client)?;
    seen.push("a refund, and one under way at `systemctl stop`: answered, stored, exit 0".to_owned());
    system.comes_back(&client, &receipts)?;
    seen.push("started again it tells both first receipts; killed, it is started again".to_owned());
    podman.run(&["rm", "--force", "--time", "0", CONTAINER])?;
    Ok(Told::Seen(seen))
}

struct System<'a> {
    podman: &'a Podman,
    site: &'a Site,
    folder: PathBuf,
    port: u16,
}

impl System<'_> {
    /// Installs as the page says: program, user, unit, policy, component, secret.
    fn furnish(&self) -> Result<()> {
        let place = |name: &str| self.folder.join(name);
        let unit = root().join("deploy/systemd");
        for folder in ["usr/local/bin", "etc/oncegate/components", "etc/oncegate/secrets", "usr/lib/sysusers.d"] {
            fs::create_dir_all(place(folder))?;
        }
        fs::copy(self.podman.folder().join("prebuilt/oncegate"), place("usr/local/bin/oncegate"))?;
        fs::copy(unit.join("oncegate.sysusers"), place("usr/lib/sysusers.d/oncegate.conf"))?;
        fs::write(place("etc/systemd/system").join(SERVICE), self.on_this_port(&unit.join(SERVICE))?)?;
        fs::copy(self.site.component(), place("etc/oncegate/components/refunds.wasm"))?;
        fs::write(place("etc/oncegate/policy.toml"), self.site.policy("/run/credentials/oncegate.service/pay")?)?;
        fs::write(place("etc/oncegate/environment"), format!("ONCEGATE_OPTIONS=--host=127.0.0.1:{}\n", self.port))?;
        let secrets = place("etc/oncegate/secrets");
        fs::write(secrets.join("pay"), SECRET)?;
        fs::set_permissions(&secrets, fs::Permissions::from_mode(0o700))?;
        for unit in MASKED {
            symlink("/dev/null", place("etc/systemd/system").join(unit))?;
        }
        self.write_doctor(&unit.join(SERVICE))
    }

    /// The unit as it is, but at a port that is nobody else's on this machine.
    fn on_this_port(&self, unit: &Path) -> Result<String> {
        let text = fs::read_to_string(unit)?;
        let other = text.replace("127.0.0.1:8080", &format!("127.0.0.1:{}", self.port));
        ensure!(other != text, "the unit names no address");
        Ok(other)
    }

    /// The same unit, but `oncegate doctor` in place of `serve`. It looks at its runner in /proc, which hides it.
    fn write_doctor(&self, unit: &Path) -> Result<()> {
        let text = fs::read_to_string(unit)?;
        let (before, rest) = text.split_once("ExecStart=").context("what it starts")?;
        let (_, after) = rest.split_once("$ONCEGATE_OPTIONS\n").context("its options")?;
        let doctor = format!(
            "{before}ExecStart=/usr/local/bin/oncegate doctor --policy /etc/oncegate/policy.toml --json\n{after}"
        );
        let doctor = doctor.replace("Type=exec\n", "Type=oneshot\n").replace("Restart=on-failure\n", "");
        let doctor = doctor.replace("ProtectProc=invisible\n", "").replace("WantedBy=multi-user.target\n", "");
        Ok(fs::write(self.folder.join("etc/systemd/system/oncegate-doctor.service"), doctor)?)
    }

    fn boot(&self) -> Result<()> {
        let folder = self.folder.display().to_string();
        // To mount for its services, and to filter their system calls itself.
        let allowed = ["--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined"];
        let begin = ["run", "--detach", "--name", CONTAINER, "--systemd=always", "--network", "host"];
        let end = ["--rootfs", &folder, "/lib/systemd/systemd"];
        self.podman.run(&[&begin[..], &allowed, &end].concat())?;
        let started = Instant::now();
        loop {
            let run = self.podman.try_run(&["exec", CONTAINER, "systemctl", "is-system-running"])?;
            match run.stdout.trim() {
                "running" | "degraded" => break,
                state if started.elapsed() > WITHIN => bail!("after {WITHIN:?} it is {state:?}: {}", run.stderr),
                _ => thread::sleep(Duration::from_millis(200)),
            }
        }
        // As on a machine: what systemd mounts for a service's credentials is seen by it.
        self.execute(&["mount", "--make-rshared", "/"]).map(drop)
    }

    fn execute(&self, words: &[&str]) -> Result<String> {
        self.podman.run(&[&["exec", CONTAINER], words].concat())
    }

    /// The program, as the service's user.
    fn program(&self, words: &[&str]) -> Result<String> {
        let begin = ["exec", "--user", "oncegate", "--env", "ONCEGATE_HOME=/var/lib/oncegate", CONTAINER];
        self.podman.run(&[&begin[..], &["/usr/local/bin/oncegate"], words].concat())
    }

    fn journal(&self, unit: &str) -> Result<String> {
        self.execute(&["journalctl", "--no-pager", "--output=cat", "--unit", unit])
    }

    fn is_verified(&self) -> Result<String> {
        let run = self.podman.try_run(&["exec", CONTAINER, "systemd-analyze", "verify", SERVICE])?;
        let said = format!("{}{}", run.stdout, run.stderr);
        ensure!(run.code == Some(0) && said.trim().is_empty(), "systemd-analyze verify: {said}");
        let said = self.execute(&["systemd-analyze", "security", "--no-pager", SERVICE])?;
        let line = said.lines().rev().find(|line| line.contains("exposure level")).context("an exposure level")?;
        let level = line.split_whitespace().find_map(|word| word.parse::<f64>().ok()).context("a number")?;
        ensure!(level <= EXPOSURE_MAX, "{line}");
        Ok(format!("`systemd-analyze verify` has no complaint; exposure {level} of 10"))
    }

    fn has_all_walls(&self) -> Result<()> {
        // It fails: there is no ledger yet.
        self.podman.try_run(&["exec", CONTAINER, "systemctl", "start", "oncegate-doctor.service"])?;
        let said = self.journal("oncegate-doctor.service")?;
        let line = said.lines().find(|line| line.starts_with('{')).with_context(|| said.clone())?;
        let found: serde_json::Value = serde_json::from_str(line)?;
        let checks = found["checks"].as_array().context("checks")?;
        let walls: Vec<_> = checks
            .iter()
            .filter(|one| one["check"].as_str().is_some_and(|name| name.starts_with("isolation")))
            .collect();
        ensure!(walls.len() == 5 && walls.iter().all(|wall| wall["status"] == "ok"), "{walls:#?}");
        Ok(())
    }

    fn begin(&self) -> Result<Client> {
        self.program(&["ledger", "init"])?;
        let token = self.program(&["token", "add", "--tenant", TENANT, "--name", "agent"])?;
        self.start()?;
        Ok(Client::at(&format!("127.0.0.1:{}", self.port), token.trim()))
    }

    /// Started, or started again: a system may start what is installed by itself.
    fn start(&self) -> Result<()> {
        let before = self.served()?;
        self.execute(&["systemctl", "restart", SERVICE])?;
        self.until_served_more_than(before)
    }

    /// How often it has said that it serves.
    fn served(&self) -> Result<usize> {
        Ok(self.journal(SERVICE)?.matches("serving http://").count())
    }

    fn until_served_more_than(&self, before: usize) -> Result<()> {
        let started = Instant::now();
        while self.served()? <= before {
            ensure!(started.elapsed() < WITHIN, "it does not serve: {}", self.journal(SERVICE)?);
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn serves_and_drains(&self, client: &Client) -> Result<[String; 2]> {
        let (one, told_before) = self.site.refund(client, "R-1", "broken")?;
        ensure!(!told_before, "the first was told before");
        self.site.made(1, &one)?;
        self.site.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1))?;
        let two = thread::scope(|scope| {
            let call = scope.spawn(|| self.site.refund(client, "R-2", "broken"));
            self.site.until_made(2)?;
            self.execute(&["systemctl", "stop", SERVICE])?;
            call.join().map_err(|_| anyhow::anyhow!("the caller panicked"))?
        })?;
        let shown = self.execute(&["systemctl", "show", SERVICE, "-p", "Result", "-p", "ExecMainStatus"])?;
        ensure!(shown.contains("Result=success") && shown.contains("ExecMainStatus=0"), "it ended with {shown}");
        self.site.made(2, &two.0)?;
        Ok([one, two.0])
    }

    fn comes_back(&self, client: &Client, receipts: &[String; 2]) -> Result<()> {
        self.start()?;
        self.tells(client, receipts)?;
        let before = self.served()?;
        self.execute(&["systemctl", "kill", "--kill-whom=main", "--signal=KILL", SERVICE])?;
        self.until_served_more_than(before)?;
        self.tells(client, receipts)
    }

    fn tells(&self, client: &Client, receipts: &[String; 2]) -> Result<()> {
        for (id, receipt) in ["R-1", "R-2"].into_iter().zip(receipts) {
            let (again, told_before) = self.site.refund(client, id, "does not work")?;
            ensure!(told_before && again == *receipt, "{id} was {receipt} and is {again}");
        }
        self.site.made(2, &receipts[0])
    }
}
