//! The walls around tools: what is in force is asked of a runner that is really started.

use oncegate_sandbox::isolation::{self, Attempt, Examined};

use super::{Finding, chain};
use crate::home::this_program;

/// The version of landlock that denies files; later ones also deny TCP (4), devices (5), signals and other processes'
/// abstract sockets (6).
const LANDLOCK_ALL: u32 = 6;

#[cfg(target_os = "linux")]
pub(super) fn check() -> Vec<Finding> {
    match isolation::examine(&this_program()) {
        Ok(examined) => findings(&examined),
        Err(error) => {
            let why = chain(&anyhow::Error::new(error));
            let advice = "see what the system denies this user; `--isolation none` runs tools in the host's process";
            vec![Finding::fail("isolation", why, advice)]
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn check() -> Vec<Finding> {
    let found = "tools run in this process, behind WebAssembly's walls and the closed list of imports";
    vec![Finding::warn("isolation", found, "run on Linux for processes of their own")]
}

fn findings(examined: &Examined) -> Vec<Finding> {
    let walls = examined.walls;
    let mut found = vec![tried(&examined.attempts), status(examined), landlock(walls.landlock)];
    found.push(namespace("isolation network", walls.network_namespace, "network namespace"));
    found.push(namespace("isolation user", walls.user_namespace, "user namespace"));
    found
}

/// What a runner could do that it must not.
fn tried(attempts: &[Attempt]) -> Finding {
    let open: Vec<_> =
        attempts.iter().filter(|attempt| attempt.refused.is_none()).map(|attempt| &*attempt.what).collect();
    let count = attempts.len();
    if open.is_empty() && count > 0 {
        let what: Vec<_> = attempts.iter().map(|attempt| &*attempt.what).collect();
        return Finding::ok("isolation", format!("a runner was refused all {count} of: {}", what.join(", ")));
    }
    let advice = "do not run tools that you do not trust here";
    Finding::fail("isolation", format!("a runner was able to: {}", open.join(", ")), advice)
}

/// What the system says of the process.
fn status(examined: &Examined) -> Finding {
    let is = |name: &str, value: &str| examined.status.iter().any(|(one, found)| one == name && found == value);
    let said: Vec<_> = examined.status.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let found = format!("{}; no core dump, not dumpable, own session, ends with the host", said.join(", "));
    if is("Seccomp", "2") && is("NoNewPrivs", "1") && is("CapEff", "0000000000000000") {
        return Finding::ok("isolation process", found);
    }
    Finding::fail(
        "isolation process",
        found,
        "seccomp, no new privileges and no capability are what a runner begins with",
    )
}

fn landlock(version: u32) -> Finding {
    match version {
        0 => Finding::warn(
            "isolation landlock",
            "this kernel has none; seccomp alone keeps runners from files and the network",
            "use a kernel with landlock (5.13 or later, with `landlock` among the security modules)",
        ),
        1..LANDLOCK_ALL => Finding::ok(
            "isolation landlock",
            format!("version {version} is in force; version {LANDLOCK_ALL} (Linux 6.12) denies signals too"),
        ),
        _ => Finding::ok("isolation landlock", format!("version {version} is in force")),
    }
}

fn namespace(check: &str, there: bool, what: &str) -> Finding {
    if there {
        return Finding::ok(check, format!("a runner has an empty {what}"));
    }
    Finding::warn(
        check,
        format!("no {what} can be made for a runner; seccomp alone keeps it in"),
        "allow this user namespaces (user.max_user_namespaces, kernel.unprivileged_userns_clone)",
    )
}

#[cfg(test)]
mod tests {
    use oncegate_sandbox::isolation::Walls;

    use super::super::Status;
    use super::*;

    fn examined(refused: Option<&str>, seccomp: &str, landlock: u32) -> Vec<Finding> {
        let attempts = vec![Attempt { what: "read a file".to_owned(), refused: refused.map(str::to_owned) }];
        let status = [("Seccomp", seccomp), ("NoNewPrivs", "1"), ("CapEff", "0000000000000000")];
        let status = status.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let walls = Walls { landlock, user_namespace: true, network_namespace: false };
        findings(&Examined { walls, attempts, status })
    }

    #[test]
    fn what_is_missing_is_said() {
        let good = examined(Some("Permission denied"), "2", 7);
        assert!(good[..3].iter().all(|finding| finding.status == Status::Ok), "{:?}", good[0].found);
        assert_eq!(good[3].status, Status::Warn);
        assert_eq!(examined(None, "2", 7)[0].status, Status::Fail);
        assert_eq!(examined(Some("no"), "0", 7)[1].status, Status::Fail);
        assert_eq!(examined(Some("no"), "2", 0)[2].status, Status::Warn);
    }
}
