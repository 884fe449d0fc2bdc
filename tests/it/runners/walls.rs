//! What a process that runs tools can reach: nothing. Tried from within and looked at from outside.

use std::collections::BTreeSet;

use oncegate_tests::harness::Run;

use super::*;

#[test]
fn a_runner_is_refused_whatever_it_tries() {
    let harness = puppet("");
    let run = harness.run(&["doctor", "--json"]).unwrap();
    let checks = run.json().unwrap()["checks"].clone();
    let find = |name: &str| checks.as_array().unwrap().iter().find(|check| check["check"] == name).unwrap().clone();
    let tried = find("isolation");
    assert_eq!(tried["status"], "ok", "{tried:#}");
    for what in [
        "read a file",
        "read the environment of another process",
        "make a file",
        "connect over TCP",
        "open a UDP port",
        "run a program",
        "trace a process",
        "send a signal",
        "find a secret in its environment",
    ] {
        assert!(tried["found"].as_str().unwrap().contains(what), "{what}: {tried:#}");
    }
    assert_eq!(find("isolation process")["status"], "ok", "{:#}", find("isolation process"));
    for name in ["isolation landlock", "isolation network", "isolation user"] {
        let found = find(name);
        assert!(matches!(found["status"].as_str(), Some("ok" | "warn")), "{found:#}");
    }
}

/// The words after a name in `/proc/PID/status`.
fn status(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name}")).trim().to_owned()
}

#[test]
fn a_runner_has_no_secret_no_file_and_no_privilege() {
    let harness = puppet("");
    let mut command = command(&harness);
    command.env("A_SECRET", "sk_live_secret");
    let mut client = Stdio::start(&mut command).unwrap();
    client.call("peek", &script("R-1", &json!([look()]))).unwrap();
    let runner = runners(client.pid())[0];
    // Where even root may not look into it, what it says itself (`a_runner_is_refused_whatever_it_tries`) has to do.
    if let Some(environment) = unless_denied(fs::read(format!("/proc/{runner}/environ"))) {
        assert_eq!(environment, b"");
    }
    for (name, value) in
        [("Seccomp", "2"), ("NoNewPrivs", "1"), ("CapEff", "0000000000000000"), ("CapPrm", "0000000000000000")]
    {
        assert_eq!(status(runner, name), value, "{name}");
    }
    let limits = fs::read_to_string(format!("/proc/{runner}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    only_its_own_files(runner);
    // Its own session: a signal of the terminal's does not reach it.
    let session = |pid: u32| rustix::process::getsid(Pid::from_raw(pid.try_into().unwrap())).unwrap();
    assert_eq!(session(runner).as_raw_nonzero().get().unsigned_abs(), runner);
}

/// None where this user may not trace, and so not look.
fn unless_denied<T>(looked: std::io::Result<T>) -> Option<T> {
    match looked {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        other => Some(other.unwrap()),
    }
}

/// Nothing but its socket, what its own runtime made, and code without a name.
fn only_its_own_files(runner: u32) {
    let Some(files) = unless_denied(fs::read_dir(format!("/proc/{runner}/fd"))) else { return };
    let names: Vec<String> =
        files.map(|entry| fs::read_link(entry.unwrap().path()).unwrap().to_string_lossy().into_owned()).collect();
    let kinds: BTreeSet<&str> = names.iter().map(|name| name.split([':', '[']).next().unwrap_or_default()).collect();
    let known = BTreeSet::from(["/dev/null", "socket", "anon_inode", "/memfd"]);
    assert!(kinds.is_subset(&known), "{names:?}");
    // One socket, twice, and the runtime's own pair for signals.
    let sockets: BTreeSet<&String> = names.iter().filter(|name| name.starts_with("socket:")).collect();
    assert!(sockets.len() <= 3, "{names:?}");
    let tcp = fs::read_to_string(format!("/proc/{runner}/net/tcp")).unwrap();
    let sockets: BTreeSet<String> =
        sockets.iter().map(|name| name.trim_matches(|c: char| !c.is_ascii_digit()).to_owned()).collect();
    assert!(!tcp.split_whitespace().any(|word| sockets.contains(word)), "{tcp}");
}

#[test]
fn the_host_can_neither_be_traced_nor_leave_a_core() {
    let harness = puppet("");
    let client = serve(&harness);
    let limits = fs::read_to_string(format!("/proc/{}/limits", client.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    assert_eq!(status(client.pid(), "Umask"), "0077");
    // What cannot be dumped belongs to root, whoever runs it.
    let dumpable = fs::read_to_string(format!("/proc/{}/status", client.pid())).unwrap();
    assert!(dumpable.contains("CoreDumping:\t0"), "{dumpable}");
    client.close(ANSWER_WITHIN).unwrap();
}

#[test]
fn tools_run_in_the_hosts_process_only_where_that_is_asked_for() {
    let harness = puppet("");
    let mut command = command(&harness);
    command.args(["--isolation", "none"]);
    let mut client = Stdio::start(&mut command).unwrap();
    let answer = client.call("act", &script("R-1", &json!([look(), refund()]))).unwrap();
    assert_eq!(answer["structuredContent"]["status"], "done", "{answer:#}");
    assert_eq!(runners(client.pid()), Vec::<u32>::new());
}

#[test]
fn a_runner_that_nobody_started_says_so() {
    let harness = puppet("");
    let run = Run::of(harness.command().arg("runner-process")).unwrap();
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("for oncegate itself"), "{}", run.stderr);
}
