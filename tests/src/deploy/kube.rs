//! One host's manifest as it is, played by Podman; what Podman cannot do is changed, and said.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::Told;
use super::podman::Podman;
use super::site::Site;
use crate::databases::free_port;
use crate::harness::{self, Run, SECRET, TENANT, root};
use crate::mcp::http::{self, Client};

const TOOLS: &str = "localhost/oncegate-kube-tools:1";
/// As Podman names it: the first pod of the Deployment, and its container.
const CONTAINER: &str = "oncegate-pod-0-oncegate";
const SECRET_FILE: &str = "/run/secrets/oncegate/pay";
const PROBED_WITHIN: Duration = Duration::from_secs(60);

pub(super) fn run(podman: &Podman) -> Result<Told> {
    let gateway = match podman.gateway() {
        Ok(gateway) => gateway,
        Err(error) => return Ok(Told::NotRun(format!("containers have no network of their own: {error:#}"))),
    };
    let site = Site::seen_as(&gateway)?;
    podman.build_with(site.component(), TOOLS)?;
    let watched = if can_be_watched()? { Some(free_port()?) } else { None };
    let pod = Pod { podman, port: free_port()?, watched, file: podman.folder().join("single.yaml") };
    fs::write(&pod.file, pod.played(&site)?)?;
    pod.up()?;
    pod.is_as_the_manifest_says()?;
    podman.until_logged(CONTAINER, "effects are refused: ")?;
    pod.answers_probes(200, 503)?;
    pod.execute(&["ledger", "init"])?;
    let token = pod.execute(&["token", "add", "--tenant", TENANT, "--name", "agent"])?;
    let client = Client::at(&format!("127.0.0.1:{}", pod.port), token.trim());
    ensure!(site.refund(&client, "R-1", "broken").is_err(), "a refund before the host was started with its ledger");
    pod.down()?;
    pod.up()?;
    pod.answers_probes(200, 200)?;
    let (receipt, told_before) = site.refund(&client, "R-1", "broken")?;
    ensure!(!told_before, "the first was told before");
    site.made(1, &receipt)?;
    pod.down()?;
    pod.up()?;
    let (again, told_before) = site.refund(&client, "R-1", "does not work")?;
    ensure!(told_before && again == receipt, "{receipt} is {again} after the pod was made anew");
    site.made(1, &receipt)?;
    pod.down()?;
    let mut seen = vec![
        "single.yaml: ConfigMap, claim, Deployment, Secret; user, capabilities, read-only root as it says".to_owned(),
        "a refund; the pod removed and made anew over the same claim tells the first receipt".to_owned(),
        "changed for Podman: image, ports, policy mounted as a folder (no subPath), probes asked from here".to_owned(),
    ];
    if watched.is_none() {
        return Ok(Told::Partly(seen, "probes: this program has no --metrics".to_owned()));
    }
    seen.push("/healthz says 200 always, /readyz 503 without a ledger and 200 with it".to_owned());
    Ok(Told::Seen(seen))
}

/// Whether the program has what probes ask.
fn can_be_watched() -> Result<bool> {
    let help = Run::of(Command::new(harness::program()?).args(["serve", "--help"]))?;
    Ok(help.stdout.contains("--metrics"))
}

struct Pod<'a> {
    podman: &'a Podman,
    port: u16,
    /// Where probes are asked.
    watched: Option<u16>,
    file: PathBuf,
}

impl Pod<'_> {
    fn up(&self) -> Result<()> {
        // What Podman made of ConfigMap and Secret it does not make twice; the claim's volume stays.
        self.podman.try_run(&["volume", "rm", "oncegate-policy", "oncegate-secrets", "tmp"])?;
        self.podman.try_run(&["secret", "rm", "oncegate-secrets"])?;
        let file = self.file.display().to_string();
        let text = fs::read_to_string(&self.file)?;
        if self.podman.try_run(&["volume", "exists", "oncegate-data"])?.code == Some(0) {
            let claims = |document: &&str| !document.contains("kind: PersistentVolumeClaim");
            fs::write(&self.file, text.split("---\n").filter(claims).collect::<Vec<_>>().join("---\n"))?;
        }
        self.podman.run(&["kube", "play", "--network", "podman", &file])?;
        self.podman.until_logged(CONTAINER, "serving http://").map(drop)
    }

    fn down(&self) -> Result<()> {
        self.podman.run(&["stop", "--time", "160", CONTAINER])?;
        let ended = self.podman.exit_code(CONTAINER)?;
        ensure!(ended == "exited 0", "it was told to end and {ended}");
        self.podman.run(&["kube", "down", &self.file.display().to_string()]).map(drop)
    }

    fn execute(&self, words: &[&str]) -> Result<String> {
        self.podman.run(&[&["exec", CONTAINER, "/oncegate"], words].concat())
    }

    fn is_as_the_manifest_says(&self) -> Result<()> {
        let format = "{{.HostConfig.ReadonlyRootfs}} {{.Config.User}} {{.HostConfig.SecurityOpt}} {{.EffectiveCaps}}";
        let found = self.podman.run(&["inspect", CONTAINER, "--format", format])?;
        ensure!(found == "true 65532:65532 [no-new-privileges] []", "the container is {found}");
        Ok(())
    }

    /// What the probes of the manifest hear, at last.
    fn answers_probes(&self, health: u16, ready: u16) -> Result<()> {
        let Some(port) = self.watched else { return Ok(()) };
        for (path, wanted) in [("/healthz", health), ("/readyz", ready)] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: 10.0.0.1:9464\r\nConnection: close\r\n\r\n");
            let started = Instant::now();
            loop {
                let heard = http::send(&format!("127.0.0.1:{port}"), request.as_bytes());
                match heard {
                    Ok((status, _)) if status == wanted => break,
                    other => ensure!(started.elapsed() < PROBED_WITHIN, "{path} is to say {wanted}: {other:?}"),
                }
                thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(())
    }

    /// The manifest with this policy, a secret, and what Podman 4 needs.
    fn played(&self, site: &Site) -> Result<String> {
        let text = fs::read_to_string(root().join("deploy/kubernetes/single.yaml"))?;
        let mut documents = Vec::new();
        for document in text.split("---\n") {
            documents.push(if document.contains("kind: ConfigMap") {
                let (head, _) = document.split_once("  policy.toml: |\n").context("the policy in its ConfigMap")?;
                let policy = site.policy(SECRET_FILE)?.lines().map(|line| format!("    {line}\n")).collect::<String>();
                format!("{head}  policy.toml: |\n{policy}")
            } else {
                self.changed(document)
            });
        }
        let secret = format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: oncegate-secrets\ndata:\n  pay: {}\n",
            BASE64_STANDARD.encode(SECRET)
        );
        documents.insert(0, secret);
        let changed = documents.join("---\n");
        for wanted in [TOOLS, "hostPort", "mountPath: /etc/oncegate,"] {
            ensure!(changed.contains(wanted), "the manifest has no place for {wanted}");
        }
        Ok(changed)
    }

    fn changed(&self, document: &str) -> String {
        let metrics = "{ name: metrics, containerPort: 9464 }";
        let seen = |port: u16, inside: &str| format!("{inside}, hostIP: 127.0.0.1, hostPort: {port} }}");
        let document = without_probes(document)
            .replace("image: oncegate-tools:1", &format!("image: {TOOLS}"))
            .replace("containerPort: 8080 }", &seen(self.port, "containerPort: 8080"))
            .replace("mountPath: /etc/oncegate/policy.toml, subPath: policy.toml", "mountPath: /etc/oncegate");
        match self.watched {
            Some(port) => document.replace(metrics, &seen(port, "{ name: metrics, containerPort: 9464")),
            None => document
                .replace(&format!("            - {metrics}\n"), "")
                .replace("            - --metrics=0.0.0.0:9464\n", ""),
        }
    }
}

/// Podman asks probes by a shell in the container, where there is none.
fn without_probes(document: &str) -> String {
    let mut left = String::new();
    let mut in_probe = None;
    for line in document.lines() {
        let indent = line.len() - line.trim_start().len();
        if in_probe.is_some_and(|probe| indent <= probe) {
            in_probe = None;
        }
        if line.ends_with("Probe:") {
            in_probe = Some(indent);
        }
        if in_probe.is_none() {
            left.push_str(line);
            left.push('\n');
        }
    }
    left
}
