//! Secrets from real keyrings: the kernel's, and a Secret Service that somebody else wrote.

use std::process::Command;

use oncegate_tests::debian;
use oncegate_tests::harness::{Harness, Run};
use serde_json::json;

use crate::attacks::change_policy;

const TOOL: &str = "issue-refund";
/// Where the secret is in both.
const ENTRY: &str = "oncegate-test/main";
const MARKER: &str = "sk_live_from_a_keyring_5f2c";

/// A policy that takes the secret from there.
fn harness(from: &str) -> Harness {
    let harness = Harness::new("refunds").unwrap();
    change_policy(&harness, "env:PAY_KEY", from);
    harness
}

/// A shell that first does this and then calls the tool, as one line.
fn then_call(harness: &Harness, first: &str, id: &str) -> String {
    let call = harness.call(TOOL, &json!({ "return_id": id, "reason": "broken" }), &[]);
    let words = [call.get_program()].into_iter().chain(call.get_args());
    let quoted = words.map(|word| format!("'{}'", word.to_string_lossy().replace('\'', "'\\''")));
    format!("{first}\nexec {}", quoted.collect::<Vec<_>>().join(" "))
}

fn run(harness: &Harness, around: &[&str], script: &str) -> Run {
    let mut command = Command::new(around[0]);
    command.args(&around[1..]).args(["sh", "-ec", script]);
    command.env("ONCEGATE_HOME", harness.home()).env("HOME", harness.folder()).env_remove("PAY_KEY");
    command.env("XDG_DATA_HOME", harness.folder()).env("XDG_RUNTIME_DIR", harness.folder());
    Run::of(&mut command).unwrap()
}

/// What the provider was sent as the secret.
fn sent(harness: &Harness) -> Vec<String> {
    let log = harness.provider().log().unwrap();
    let headers = log.iter().filter(|one| one.method == "POST").flat_map(|one| &one.headers);
    headers.filter(|(name, _)| name == "authorization").map(|(_, value)| value.clone()).collect()
}

#[test]
fn a_secret_in_the_kernels_keyring_is_found_by_its_name() {
    debian::install(&["keyutils"]).unwrap();
    let put = format!("printf %s {MARKER} | keyctl padd user keyring:main@oncegate-test @s >/dev/null");
    let allowed = Run::of(Command::new("keyctl").args(["session", "-", "sh", "-ec", &put])).unwrap().code == Some(0);
    for from in ["keyring:kernel:oncegate-test/main", "keyring:oncegate-test/main"] {
        let harness = harness(from);
        if allowed {
            let run = run(&harness, &["keyctl", "session", "-"], &then_call(&harness, &put, "R-1001"));
            assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
            assert_eq!(sent(&harness), [format!("Bearer {MARKER}")]);
            assert!(!format!("{}{}", run.stdout, run.stderr).contains(MARKER));
        }
        // Another session has no such key, or none at all: nothing is sent, and the reason is said.
        let run = run(&harness, &["env", "-u", "DBUS_SESSION_BUS_ADDRESS"], &then_call(&harness, ":", "R-1002"));
        assert_ne!(run.code, Some(0), "{}", run.stdout);
        assert_eq!(sent(&harness).len(), usize::from(allowed));
        let doctor = harness.run(&["doctor"]).unwrap();
        assert!(doctor.stdout.contains("the kernel's keyring"), "{}{}", doctor.stdout, doctor.stderr);
    }
}

#[test]
fn a_secret_in_the_secret_service_is_found_by_its_attributes() {
    debian::install(&["gnome-keyring", "libsecret-tools", "dbus"]).unwrap();
    let unlock = "printf password | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1";
    let put = format!("printf %s {MARKER} | secret-tool store --label=test service oncegate-test username main");
    for from in [format!("keyring:secret-service:{ENTRY}"), format!("keyring:{ENTRY}")] {
        let harness = harness(&from);
        let script = then_call(&harness, &format!("{unlock}\n{put}"), "R-1001");
        let run = run(&harness, &["dbus-run-session", "--"], &script);
        assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
        assert_eq!(sent(&harness), [format!("Bearer {MARKER}")]);
        assert!(!format!("{}{}", run.stdout, run.stderr).contains(MARKER));
    }
    // Without the entry, and without the service.
    let harness = harness(&format!("keyring:secret-service:{ENTRY}"));
    let none = run(&harness, &["dbus-run-session", "--"], &then_call(&harness, unlock, "R-1001"));
    assert_ne!(none.code, Some(0), "{}", none.stdout);
    let doctor = harness.run(&["doctor"]).unwrap();
    assert!(doctor.stdout.contains("the Secret Service"), "{}{}", doctor.stdout, doctor.stderr);
    assert!(sent(&harness).is_empty());
}
