//! The container file's image, run as its page says: read-only, nobody's user, no capability, no shell.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Told;
use super::podman::{IMAGE, Podman};
use super::site::Site;
use crate::harness::TENANT;
use crate::mcp::http::Client;
use crate::provider::mode::Mode;

/// The image with the component in it.
const TOOLS: &str = "localhost/oncegate-image-tools:1";
const VOLUME: &str = "oncegate-image-data";
/// What every container of the page has.
const HARDENED: [&str; 8] = [
    "--read-only",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--network",
    "host",
    "--stop-timeout=160",
];
const SECRET: &str = "/run/secrets/oncegate/pay";

/// What a kernel or a cluster may refuse, and what follows.
const NAMESPACES_AND_LANDLOCK: [&str; 4] =
    ["unshare", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"];
const SECCOMP: [&str; 1] = ["seccomp"];

pub(super) fn run(podman: &Podman) -> Result<Told> {
    let site = Site::near()?;
    let place = Place::new(podman, &site)?;
    let mut seen = vec![place.is_small_and_bare()?];
    seen.push(place.refuses_without_a_ledger()?);
    let first = place.serves_and_drains()?;
    seen.push("a refund, and one under way at SIGTERM: answered, stored, exit 0".to_owned());
    place.comes_back(&first)?;
    seen.push("after a restart with the same volume both repeats hear the first receipts".to_owned());
    seen.push(place.has_all_walls()?);
    seen.push(place.goes_on_without_namespaces()?);
    seen.push(place.ends_without_seccomp()?);
    Ok(Told::Seen(seen))
}

/// A volume, a policy and a secret for containers of the image.
struct Place<'a> {
    podman: &'a Podman,
    site: &'a Site,
    mounts: Vec<String>,
}

/// A container that serves. Dropping it removes it.
struct Serving<'a> {
    podman: &'a Podman,
    name: &'static str,
    address: String,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.podman.try_run(&["rm", "--force", "--time", "0", self.name]).ok();
    }
}

impl<'a> Place<'a> {
    fn new(podman: &'a Podman, site: &'a Site) -> Result<Self> {
        podman.build_with(site.component(), TOOLS)?;
        let (policy, pay) = site.files(&podman.folder().join("image"), SECRET)?;
        let mounts = vec![
            format!("{VOLUME}:/var/lib/oncegate"),
            format!("{}:/etc/oncegate/policy.toml:ro", policy.display()),
            format!("{}:{SECRET}:ro", pay.display()),
        ];
        Ok(Self { podman, site, mounts })
    }

    fn words<'w>(&'w self, begin: &[&'w str], more: &[&'w str], command: &[&'w str]) -> Vec<&'w str> {
        let mut words = vec!["run"];
        words.extend(begin);
        words.extend(HARDENED);
        words.extend(self.mounts.iter().flat_map(|mount| ["-v", mount.as_str()]));
        words.extend(more);
        words.push(TOOLS);
        words.extend(command);
        words
    }

    /// A command of the program, to its end.
    fn once(&self, command: &[&str]) -> Result<String> {
        self.podman.run(&self.words(&["--rm"], &[], command))
    }

    fn serve(&self, name: &'static str, more: &[&str]) -> Result<Serving<'a>> {
        let command =
            ["serve", "/components", "--policy", "/etc/oncegate/policy.toml", "--http", "127.0.0.1:0", "--json"];
        self.podman.run(&self.words(&["--detach", "--name", name], more, &command))?;
        let mut serving = Serving { podman: self.podman, name, address: String::new() };
        let log = self.podman.until_logged(name, "\"url\"")?;
        let line = log.lines().find(|line| line.contains("\"url\"")).context("a line with the URL")?;
        let told: Value = serde_json::from_str(line)?;
        let url = told["url"].as_str().context("a URL")?;
        serving.address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        Ok(serving)
    }

    fn is_small_and_bare(&self) -> Result<String> {
        let inspected = self.podman.run(&["image", "inspect", IMAGE, "--format", "{{.User}} {{.Size}}"])?;
        let (user, size) = inspected.split_once(' ').context("user and size")?;
        ensure!(user == "65532:65532", "the image's user is {user}");
        let shell = self.podman.try_run(&["run", "--rm", "--entrypoint", "/bin/sh", IMAGE, "-c", "true"])?;
        ensure!(shell.code != Some(0), "there is a shell in the image");
        let files = self.files()?;
        ensure!(files.len() < 40, "the image has {} files: {files:?}", files.len());
        let mib = size.parse::<u64>()? >> 20;
        let only = files.iter().filter(|file| file.contains("lib")).count();
        Ok(format!("image of {mib} MiB from a debug build without symbols; no shell, {only} libraries, user {user}"))
    }

    /// The files of the image.
    fn files(&self) -> Result<Vec<String>> {
        let archive = self.podman.folder().join("image.tar");
        self.podman.run(&["create", "--name", "files", IMAGE])?;
        self.podman.run(&["export", "files", "--output", &archive.display().to_string()])?;
        self.podman.run(&["rm", "files"])?;
        let listed = crate::databases::run(std::process::Command::new("tar").arg("-tf").arg(&archive))?;
        fs::remove_file(archive)?;
        Ok(listed.lines().filter(|file| !file.ends_with('/')).map(str::to_owned).collect())
    }

    fn refuses_without_a_ledger(&self) -> Result<String> {
        let token = self.once(&["token", "add", "--tenant", TENANT, "--name", "agent"])?;
        fs::write(self.podman.folder().join("token"), &token)?;
        let serving = self.serve("without", &[])?;
        let refused = self.site.refund(&self.client(&serving)?, "R-1", "broken");
        ensure!(refused.is_err(), "a host without a ledger made a refund");
        ensure!(self.site.provider().count("refund")? == 0, "and the provider saw it");
        let why = self.podman.until_logged("without", "effects are refused: ")?;
        ensure!(why.contains("oncegate ledger init"), "{why}");
        drop(serving);
        self.once(&["ledger", "init"])?;
        Ok("a fresh volume has no ledger: it serves, refuses the refund and says how to begin".to_owned())
    }

    fn client(&self, serving: &Serving) -> Result<Client> {
        let token = fs::read_to_string(self.podman.folder().join("token"))?;
        Ok(Client::at(&serving.address, token.trim()))
    }

    fn serves_and_drains(&self) -> Result<[String; 2]> {
        let serving = self.serve("first", &[])?;
        let client = self.client(&serving)?;
        let (one, told_before) = self.site.refund(&client, "R-1", "broken")?;
        ensure!(!told_before, "the first was told before");
        self.site.made(1, &one)?;
        self.site.provider().mode(Mode::Slow, "POST", "/v1/refunds", Some(1))?;
        let two = thread::scope(|scope| {
            let call = scope.spawn(|| self.site.refund(&client, "R-2", "broken"));
            self.site.until_made(2)?;
            self.podman.run(&["stop", serving.name])?;
            call.join().map_err(|_| anyhow::anyhow!("the caller panicked"))?
        })?;
        let ended = self.podman.exit_code(serving.name)?;
        ensure!(ended == "exited 0", "it was told to end and {ended}");
        self.site.made(2, &two.0)?;
        Ok([one, two.0])
    }

    fn comes_back(&self, receipts: &[String; 2]) -> Result<()> {
        let serving = self.serve("again", &[])?;
        let client = self.client(&serving)?;
        for (id, receipt) in ["R-1", "R-2"].into_iter().zip(receipts) {
            let (again, told_before) = self.site.refund(&client, id, "does not work")?;
            ensure!(told_before && again == *receipt, "{id} was {receipt} and is {again}");
        }
        self.site.made(2, &receipts[0])
    }

    fn doctor(&self, more: &[&str]) -> Result<Value> {
        let command = ["doctor", "--policy", "/etc/oncegate/policy.toml", "--json"];
        self.podman.try_run(&self.words(&["--rm"], more, &command))?.json()
    }

    fn has_all_walls(&self) -> Result<String> {
        let found = self.doctor(&[])?;
        for check in ["isolation", "isolation process", "isolation landlock", "isolation network", "isolation user"] {
            ensure!(status(&found, check) == "ok", "{check}: {found:#}");
        }
        Ok("under Podman's own seccomp profile `oncegate doctor` finds every wall around runners".to_owned())
    }

    fn goes_on_without_namespaces(&self) -> Result<String> {
        let profile = self.profile("no-namespaces.json", &NAMESPACES_AND_LANDLOCK)?;
        let found = self.doctor(&["--security-opt", &profile])?;
        for (check, word) in [
            ("isolation", "ok"),
            ("isolation landlock", "warn"),
            ("isolation network", "warn"),
            ("isolation user", "warn"),
        ] {
            ensure!(status(&found, check) == word, "{check} is not {word}: {found:#}");
        }
        let serving = self.serve("narrow", &["--security-opt", &profile])?;
        let (receipt, told_before) = self.site.refund(&self.client(&serving)?, "R-3", "broken")?;
        ensure!(!told_before, "the third was told before");
        self.site.made(3, &receipt)?;
        Ok("without namespaces and landlock: seccomp keeps runners in, `doctor` warns, refunds are made".to_owned())
    }

    fn ends_without_seccomp(&self) -> Result<String> {
        let profile = self.profile("no-seccomp.json", &SECCOMP)?;
        let command = ["serve", "/components", "--policy", "/etc/oncegate/policy.toml", "--http", "127.0.0.1:0"];
        let run = self.podman.try_run(&self.words(&["--rm"], &["--security-opt", &profile], &command))?;
        ensure!(run.code == Some(1), "without seccomp it ended with {:?}: {}", run.code, run.stderr);
        ensure!(run.stderr.contains("cannot wall itself off"), "{}", run.stderr);
        ensure!(self.site.provider().count("refund")? == 3, "an effect was made");
        let said = run.stderr.lines().last().unwrap_or_default().to_owned();
        Ok(format!("without seccomp it ends at start: {said}"))
    }

    /// Podman's own profile without these system calls, as `--security-opt` takes it.
    fn profile(&self, name: &str, without: &[&str]) -> Result<String> {
        let text = fs::read_to_string("/usr/share/containers/seccomp.json").context("Podman's profile")?;
        let mut profile: Value = serde_json::from_str(&text)?;
        let mut left_out = 0;
        for rule in profile["syscalls"].as_array_mut().context("rules")? {
            let names = rule["names"].as_array_mut().context("names")?;
            let before = names.len();
            names.retain(|name| !without.iter().any(|other| name == other));
            left_out += before - names.len();
        }
        ensure!(left_out >= without.len(), "the profile does not allow all of {without:?} to begin with");
        let file = self.podman.folder().join(name);
        fs::write(&file, serde_json::to_vec(&profile)?)?;
        Ok(format!("seccomp={}", path(&file)))
    }
}

fn status<'f>(found: &'f Value, check: &str) -> &'f str {
    let checks = found["checks"].as_array();
    let one = checks.into_iter().flatten().find(|finding| finding["check"] == check);
    one.and_then(|finding| finding["status"].as_str()).unwrap_or("missing")
}

fn path(file: &Path) -> String {
    file.display().to_string()
}
