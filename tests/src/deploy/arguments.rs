//! The command lines of the manifests, given to the program as they are, but for folders and ports of this machine.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::site::Site;
use crate::harness::{self, Run, Running, root};

const SERVES_WITHIN: Duration = Duration::from_secs(60);
/// The public key of RFC 7517's example; nobody signs with it here.
const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "use": "sig", "alg": "ES256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;
/// Options of these manifests that a program may not have.
const YOUNG: [&str; 1] = ["--metrics"];

/// Starts the program with each manifest's arguments; what was seen, and what this program does not have.
///
/// # Errors
/// It does not start.
pub(super) fn run(manifests: &[&str]) -> Result<(Vec<String>, Option<String>)> {
    let site = Site::near()?;
    let lacking = lacking()?;
    let (mut seen, mut missing) = (Vec::new(), Vec::new());
    for name in manifests {
        let all = arguments(&fs::read_to_string(root().join("deploy/kubernetes").join(name))?);
        ensure!(all.first().is_some_and(|first| first == "serve"), "{name} starts {all:?}");
        let (left_out, taken): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|argument| lacking.iter().any(|option| argument.starts_with(option)));
        start(&site, &taken).with_context(|| format!("{name}: {taken:?}"))?;
        seen.push(format!("{name}: the program takes its {} arguments and serves", taken.len()));
        missing.extend(left_out.iter().map(|option| format!("{name}: {}", option.split('=').next().unwrap_or(option))));
    }
    let missing =
        (!missing.is_empty()).then(|| format!("options that this program does not have: {}", missing.join(", ")));
    Ok((seen, missing))
}

/// The list under `args:`.
fn arguments(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| line.trim() != "args:").skip(1);
    lines.map_while(|line| line.trim_start().strip_prefix("- ")).map(str::to_owned).collect()
}

fn lacking() -> Result<Vec<&'static str>> {
    let help = Run::of(Command::new(harness::program()?).args(["serve", "--help"]))?.stdout;
    Ok(YOUNG.into_iter().filter(|option| !help.contains(option)).collect())
}

fn start(site: &Site, arguments: &[String]) -> Result<()> {
    let home = tempfile::tempdir()?;
    let place = |name: &str| home.path().join(name);
    let (policy, _) = site.files(home.path(), &shown(&place("pay")))?;
    fs::write(place("keys.json"), KEYS)?;
    fs::write(place("database"), "a password")?;
    databases_authority(&place("database-ca.pem"))?;
    let ours = |argument: &String| {
        let argument = argument.replace("/components", &shown(site.component()));
        let argument = argument.replace("/etc/oncegate/policy.toml", &shown(&policy));
        let argument = argument.replace("/etc/oncegate/", &format!("{}/", shown(home.path())));
        let argument = argument.replace("/run/secrets/oncegate/", &format!("{}/", shown(home.path())));
        let argument = argument.replace("/var/lib/oncegate", &shown(home.path()));
        let argument = argument.replace("@database:5432", "@127.0.0.1:1");
        argument.replace("0.0.0.0:8080", "127.0.0.1:0").replace("0.0.0.0:9464", "127.0.0.1:0")
    };
    let mut command = Command::new(harness::program()?);
    command.env("ONCEGATE_HOME", home.path()).args(arguments.iter().map(ours));
    let running = Running::start(&mut command)?;
    let line = running.read_line(SERVES_WITHIN).with_context(|| running.errors())?;
    ensure!(line.starts_with("serving http://"), "{line}");
    // There is no ledger, in a file or at that port, and the program says so and lives.
    let errors = running.errors();
    ensure!(errors.contains("effects are refused: "), "{errors}");
    running.kill().map(drop)
}

/// A certificate that is one; nobody is asked for theirs.
fn databases_authority(file: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    crate::databases::certificates(folder.path())?;
    fs::copy(folder.path().join("ca.pem"), file)?;
    Ok(())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
