//! Policy, credentials, folders, disk and engine.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use oncegate_contract::safe_text;
use oncegate_sandbox::engine::Runtime;
use oncegate_sandbox::policy::{CredentialRule, CredentialSource, Policy};
use oncegate_sandbox::probe_credential;

use super::{Finding, chain};
use crate::commands::policy::{asked, unusable};
use crate::home::Home;

/// Below this the ledger's next commits are in danger.
const DISK_BYTES_MIN: u64 = 64 << 20;
/// Below this somebody should look.
const DISK_BYTES_LOW: u64 = 1 << 30;
const GROUP_OR_OTHERS_WRITE: u32 = 0o022;
const GROUP_OR_OTHERS: u32 = 0o077;

pub(super) async fn policy(home: &Home) -> Vec<Finding> {
    let file = home.policy_file();
    let name = file.display().to_string();
    if !file.exists() {
        let advice = format!("oncegate policy init COMPONENT -o {name}");
        return vec![Finding::fail("policy", format!("there is none at {name}, so nothing is granted"), advice)];
    }
    let policy = match home.policy() {
        Ok(policy) => policy,
        Err(error) => {
            let advice = "oncegate policy check; a server that runs keeps the policy from before until then";
            return vec![Finding::fail("policy", chain(&error), advice)];
        }
    };
    let mut found = vec![granted(&name, &policy)];
    let digests = policy.warnings().into_iter();
    found.extend(digests.map(|warning| Finding::warn("policy", warning, "correct the entry at that line")));
    let text = home.policy_text().unwrap_or_default();
    for warning in unusable(&policy, &text).await {
        found.push(Finding::warn("policy", warning, "correct the url, or allow private addresses on purpose"));
    }
    for (name, rule) in &policy.credentials {
        found.push(credential(name, rule).await);
    }
    found.extend(super::databases::databases(&policy).await);
    found
}

fn granted(name: &str, policy: &Policy) -> Finding {
    let grants: usize = policy.components.iter().map(|rule| rule.grant.len()).sum();
    if grants == 0 {
        return Finding::fail(
            "policy",
            format!("{name} grants nothing"),
            "oncegate policy explain COMPONENT OPERATION",
        );
    }
    Finding::ok("policy", format!("{name}: {grants} grants{}", asked(policy)))
}

/// Reads the secret, says whether that went well, and forgets it.
async fn credential(name: &str, rule: &CredentialRule) -> Finding {
    let check = format!("credential {}", safe_text(name));
    if let Err(error) = probe_credential(&rule.usage(name)).await {
        return Finding::fail(
            check,
            error.to_string(),
            format!("correct [credential.{}] or what it names", safe_text(name)),
        );
    }
    let from = rule.source.to_string();
    match &rule.source {
        CredentialSource::File(path) if mode(path).is_some_and(|mode| mode & GROUP_OR_OTHERS != 0) => Finding::warn(
            check,
            format!("readable, from {from}, and others can read it too"),
            format!("chmod 600 {}", path.display()),
        ),
        _ => Finding::ok(check, format!("readable, from {from}")),
    }
}

fn mode(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|metadata| metadata.permissions().mode())
}

pub(super) fn folders(home: &Home) -> Vec<Finding> {
    let cache = home.cache();
    vec![folder("data directory", home.directory(), false), folder("cache", &cache, true)]
}

/// A folder that others can write is not the operator's. Compiled code is refused from one.
fn folder(check: &str, path: &Path, holds_code: bool) -> Finding {
    let name = path.display().to_string();
    let advice = format!("chmod 700 {name}");
    match mode(path) {
        None => Finding::ok(check, format!("{name} is made at first use")),
        Some(mode) if mode & GROUP_OR_OTHERS_WRITE != 0 && holds_code => {
            Finding::fail(check, format!("{name} can be written by others"), advice)
        }
        Some(mode) if mode & GROUP_OR_OTHERS_WRITE != 0 => {
            Finding::warn(check, format!("{name} can be written by others"), advice)
        }
        Some(mode) if mode & GROUP_OR_OTHERS != 0 => {
            Finding::warn(check, format!("{name} can be read by others"), advice)
        }
        Some(mode) => Finding::ok(check, format!("{name}, mode {:03o}", mode & 0o777)),
    }
}

pub(super) fn disk(home: &Home) -> Finding {
    let place = home.directory().ancestors().find(|folder| folder.exists()).unwrap_or_else(|| Path::new("."));
    let name = place.display().to_string();
    match rustix::fs::statvfs(place) {
        Err(error) => Finding::warn("disk", format!("the free space at {name} is not known: {error}"), "look yourself"),
        Ok(about) => space(&name, about.f_bavail.saturating_mul(about.f_frsize)),
    }
}

fn space(name: &str, free: u64) -> Finding {
    let found = format!("{} MiB free at {name}", free >> 20);
    match free {
        ..DISK_BYTES_MIN => Finding::fail("disk", found, "free space: a ledger that cannot grow refuses effects"),
        DISK_BYTES_MIN..DISK_BYTES_LOW => Finding::warn("disk", found, "free space before the ledger needs it"),
        _ => Finding::ok("disk", found),
    }
}

pub(super) fn engine() -> Finding {
    match Runtime::new() {
        Err(error) => Finding::fail("engine", error.to_string(), "no guest can run on this machine"),
        Ok(runtime) if runtime.pooled => Finding::ok("engine", "starts, with a pool of instances"),
        Ok(_) => Finding::warn(
            "engine",
            "starts, without a pool of instances",
            "allow more address space (ulimit -v); calls are slower without",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn little_space_stops_effects() {
        assert_eq!(space("/", 1 << 20).status, Status::Fail);
        assert_eq!(space("/", 100 << 20).status, Status::Warn);
        assert_eq!(space("/", 10 << 30).status, Status::Ok);
    }

    #[test]
    fn compiled_code_is_not_taken_from_a_folder_of_others() {
        let folder_of = |mode: u32, holds_code| {
            let directory = tempfile::tempdir().unwrap();
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            folder("x", directory.path(), holds_code).status
        };
        assert_eq!(folder_of(0o700, true), Status::Ok);
        assert_eq!(folder_of(0o755, true), Status::Warn);
        assert_eq!(folder_of(0o777, true), Status::Fail);
        assert_eq!(folder_of(0o777, false), Status::Warn);
    }

    #[tokio::test]
    async fn a_secret_is_never_told() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        std::fs::write(&file, "sk_live_very\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let attach = oncegate_sandbox::policy::Attach::Header("Authorization".to_owned());
        let rule = CredentialRule {
            line: 1,
            source: CredentialSource::File(file.clone()),
            attach,
            format: "Bearer {secret}".to_owned(),
        };
        let finding = credential("pay", &rule).await;
        assert_eq!(finding.status, Status::Warn);
        assert!(!finding.found.contains("sk_live"));
        std::fs::remove_file(file).unwrap();
        assert_eq!(credential("pay", &rule).await.status, Status::Fail);
    }
}
