//! Ways that once led to a second effect, to a wrong proof or to a stored secret, each by its count at
//! the provider: changed labels, moved clocks, other tenants' objects, shared lookups, late refusals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_ledger::StateTag;
use oncegate_tests::harness::{Guest, Harness, Options, Run, Running, SECRET};
use oncegate_tests::provider::domains::{Dedupe, Settings};
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::agent::{Heard, call, hear, packed, refund, refunds};
use crate::book;
use crate::raw_answers::{Scene, Then, answer};

const TOOL: &str = "issue-refund";
const REFUNDS: &str = "/v1/refunds";
const LONG: Duration = Duration::from_secs(60);
/// Seconds, as a clock is moved by them.
const HOUR: i64 = 3600;

/// How often the provider was asked for a refund, made or not.
fn asked(harness: &Harness) -> usize {
    let log = harness.provider().log().unwrap();
    log.iter().filter(|one| one.method == "POST" && one.path == REFUNDS).count()
}

fn mode(harness: &Harness, mode: Mode, times: Option<u64>) {
    harness.provider().mode(mode, "POST", REFUNDS, times).unwrap();
}

fn lists_down(harness: &Harness, lists_down: bool) {
    harness.provider().settings(&Settings { lists_down, ..Settings::default() }).unwrap();
}

/// The refunds tool under another contract; the folder holds its component.
pub(crate) fn changed(changes: &[(&str, &str)]) -> (Guest, TempDir) {
    let mut contract = Guest::example("refunds").unwrap().contract;
    for (old, new) in changes {
        assert!(contract.contains(old), "the contract has no {old}");
        contract = contract.replace(old, new);
    }
    let folder = tempfile::tempdir().unwrap();
    (packed(folder.path(), &contract), folder)
}

pub(crate) fn digest(guest: &Guest) -> String {
    let component = fs::read(&guest.component).unwrap();
    Sha256::digest(component).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Changes the policy and returns what it was.
pub(crate) fn change_policy(harness: &Harness, old: &str, new: &str) -> String {
    let file = harness.home().join("policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    assert!(policy.contains(old), "the policy has no {old}");
    fs::write(&file, policy.replace(old, new)).unwrap();
    policy
}

/// An answer that says of a refund neither that it is done nor which one.
#[track_caller]
fn tells_of_no_refund(heard: &Heard) {
    assert!(!heard.is_success(), "{heard:#?}");
    assert!(heard.receipts().is_empty(), "{heard:#?}");
}

// Labels of the policy.

#[test]
fn another_account_label_sends_nothing_again() {
    let harness = Harness::new("refunds").unwrap();
    let first = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let policy = change_policy(&harness, "account = \"pay-test\"", "account = \"pay-other\"");
    for id in ["R-1", "R-2"] {
        let heard = call(&harness, TOOL, &refund(id, "other label"), &[]);
        assert_eq!(heard.status(), "refused", "{heard:#?}");
        assert_eq!((refunds(&harness), asked(&harness)), (1, 1), "{heard:#?}");
    }
    fs::write(harness.home().join("policy.toml"), policy).unwrap();
    call(&harness, TOOL, &refund("R-1", "label of old"), &[]).is_replay_of(first.receipts()[0]);
    assert_eq!(call(&harness, TOOL, &refund("R-2", "label of old"), &[]).status(), "done");
    assert_eq!(refunds(&harness), 2);
}

#[test]
fn a_component_that_left_the_policy_hears_no_stored_answer() {
    let harness = Harness::new("refunds").unwrap();
    let first = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    let receipt = first.receipts()[0];
    let digest = digest(&Guest::example("refunds").unwrap());
    let policy = change_policy(&harness, &digest, &"0".repeat(64));
    let heard = call(&harness, TOOL, &refund("R-1", "no longer allowed"), &[]);
    assert_eq!(heard.status(), "refused", "{heard:#?}");
    assert_eq!(heard.json["code"], "effect_not_permitted", "{heard:#?}");
    assert!(!heard.json.to_string().contains(receipt), "{heard:#?}");
    fs::write(harness.home().join("policy.toml"), policy).unwrap();
    call(&harness, TOOL, &refund("R-1", "allowed again"), &[]).is_replay_of(receipt);
    assert_eq!(refunds(&harness), 1);
}

// Refusals beside effects.

fn hostile() -> Harness {
    let component = Guest::example("refunds").unwrap().component.with_file_name("hostile.wasm");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let contract = fs::read_to_string(root.join("guests/hostile/contract.toml")).unwrap();
    Harness::with(Guest { component, contract }, Options::default()).unwrap()
}

fn look() -> Value {
    json!({ "fetch": { "operation": "get-return", "fields": [] } })
}

fn perform(operation: &str, field: &str) -> Value {
    let fields = [json!({ "name": field, "value": { "text": "x" } })];
    json!({ "perform": { "operation": operation, "fields": fields } })
}

fn script(harness: &Harness, tool: &str, id: &str, steps: &[Value]) -> Heard {
    call(harness, tool, &json!({ "return_id": id, "script": steps }), &[])
}

#[test]
fn an_effect_that_is_done_is_not_refused_by_a_later_one() {
    let harness = hostile();
    let (made, bad) = (perform("create-refund", "reason"), perform("leave-note", "no-such-field"));
    for _ in 0..2 {
        let heard = script(&harness, "both", "R-1", &[look(), made.clone(), bad.clone()]);
        assert_eq!(heard.status(), "pending", "{heard:#?}");
        assert_eq!(heard.json["detail"], "incomplete", "{heard:#?}");
        assert_eq!(heard.json["next_action"], "ask_person", "{heard:#?}");
        assert_eq!(heard.receipts(), ["re_000001"], "{heard:#?}");
        assert_eq!(refunds(&harness), 1);
    }
    // Over the number of effects of its tool.
    let over = perform("leave-note", "text");
    let heard = script(&harness, "act", "R-2", &[look(), made.clone(), over.clone()]);
    assert_eq!(heard.status(), "done", "{heard:#?}");
    assert_eq!(heard.receipts(), ["re_000002"], "{heard:#?}");
    script(&harness, "act", "R-2", &[look(), made, over]).is_replay_of("re_000002");
    assert_eq!(refunds(&harness), 2);
    assert_eq!(harness.provider().count("note").unwrap(), 0);
}

#[test]
fn an_effect_that_is_unknown_is_not_refused_by_a_later_one() {
    let harness = hostile();
    lists_down(&harness, true);
    let made = perform("create-refund", "reason");
    for (n, (tool, bad)) in
        [("act", perform("leave-note", "text")), ("both", perform("leave-note", "no-such-field"))].iter().enumerate()
    {
        mode(&harness, Mode::CompleteThenReset, Some(1));
        let id = format!("R-{n}");
        for _ in 0..2 {
            let heard = script(&harness, tool, &id, &[look(), made.clone(), bad.clone()]);
            assert_eq!(heard.status(), "pending", "{tool}: {heard:#?}");
            assert!(heard.receipts().is_empty(), "{tool}: {heard:#?}");
            assert_eq!(refunds(&harness), n + 1, "{tool}: {heard:#?}");
        }
    }
}

// Lookups that several effects share.

/// The shop's answer is one for all calls; the key is the agent's word.
#[test]
fn a_shared_lookup_tells_no_key_of_another_ones_refund() {
    let (guest, _folder) = changed(&[
        (
            "{ name = \"id\", at = \"path:id\", from = \"argument:/return_id\" }",
            "{ name = \"id\", at = \"path:id\", role = \"transport\", from = \"const\", value = \"R-1001\" }",
        ),
        (
            "role = \"key\",   from = \"lookup:get-return\", value = \"/id\" }",
            "role = \"key\",   from = \"argument:/return_id\" }",
        ),
    ]);
    let harness = Harness::with(guest, Options::default()).unwrap();
    let first = call(&harness, TOOL, &refund("A-1", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    let mut goods = harness.provider().json("GET", "/returns/R-1001", None).unwrap();
    goods["status"] = json!("refunded");
    harness.provider().seed(&json!({ "returns": [goods] })).unwrap();
    // The guest sees "refunded" and asks for nothing: the host has to know by itself.
    for id in ["A-2", "A-3"] {
        tells_of_no_refund(&call(&harness, TOOL, &refund(id, "never refunded"), &[]));
    }
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_tool_that_asks_for_nothing_is_not_told_another_tools_refund() {
    let harness = hostile();
    let steps = [look(), perform("create-refund", "reason"), perform("leave-note", "text")];
    assert_eq!(script(&harness, "both", "R-1", &steps).status(), "done");
    let fails = [look(), json!({ "fail": "it is refunded already" })];
    tells_of_no_refund(&script(&harness, "act", "R-1", &fails));
    assert_eq!(script(&harness, "act", "R-2", &steps[..2]).receipts(), ["re_000002"]);
    script(&harness, "act", "R-2", &fails).is_replay_of("re_000002");
    assert_eq!(refunds(&harness), 2);
}

// Objects that are another tenant's.

/// Two tenants at one account, of which the provider's objects carry no reference.
fn two_tenants() -> (Harness, TempDir) {
    let (guest, folder) = changed(&[("reference = \"form:metadata[ref]\"\n", "")]);
    let policy = format!(
        "\n[[component]]\ndigest = \"sha256:{}\"\ntenants = [\"beta\"]\n\
         grant = [\"get-return\", \"create-refund\", \"find-refund\"]\n",
        digest(&guest)
    );
    (Harness::with(guest, Options { policy, ..Options::default() }).unwrap(), folder)
}

#[track_caller]
fn call_as(harness: &Harness, tenant: &str, id: &str) -> Heard {
    let mut command = harness.command();
    command.arg("call").arg(harness.component()).args([TOOL, "--json"]);
    command.args(["--args", &refund(id, "x").to_string(), "--context", &format!("tenant={tenant}")]);
    hear(&mut command)
}

#[test]
fn another_tenants_refund_is_no_receipt() {
    let (harness, _folder) = two_tenants();
    let first = call_as(&harness, "acme", "R-1");
    assert_eq!(first.status(), "done", "{first:#?}");
    mode(&harness, Mode::Error503Before, Some(1));
    for _ in 0..3 {
        let heard = call_as(&harness, "beta", "R-1");
        assert_eq!(heard.status(), "pending", "{heard:#?}");
        assert!(heard.receipts().is_empty(), "{heard:#?}");
    }
    call_as(&harness, "acme", "R-1").is_replay_of(first.receipts()[0]);
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn confirming_freezes_no_row_for_another_tenants_refund() {
    let (harness, _folder) = two_tenants();
    for (n, tenant) in ["acme", "beta"].into_iter().enumerate() {
        let first = call_as(&harness, tenant, "R-1");
        assert_eq!(first.status(), "done", "{first:#?}");
        assert_eq!(first.receipts(), [format!("re_00000{}", n + 1)], "{first:#?}");
    }
    for _ in 0..2 {
        call_as(&harness, "beta", "R-1").is_replay_of("re_000002");
        call_as(&harness, "acme", "R-1").is_replay_of("re_000001");
    }
    let rows = book::rows(&harness);
    assert!(rows.len() == 2 && rows.iter().all(|row| row.state == StateTag::Done), "{rows:?}");
    assert_eq!(refunds(&harness), 2);
}

/// The card was declined at first; the refund that was made later is what a repeat is told.
#[test]
fn a_replay_gives_the_answer_that_the_state_rests_on() {
    let harness = Harness::new("refunds").unwrap();
    mode(&harness, Mode::Reject402, Some(1));
    let declined = call(&harness, TOOL, &refund("R-1", "declined"), &[]);
    assert_eq!(declined.status(), "failed", "{declined:#?}");
    assert_eq!(refunds(&harness), 0);
    mode(&harness, Mode::CompleteThenReset, Some(1));
    let second = call(&harness, TOOL, &refund("R-1", "second"), &[]);
    assert!(second.is_success() || second.status() == "pending", "{second:#?}");
    for reason in ["third", "fourth"] {
        let again = call(&harness, TOOL, &refund("R-1", reason), &[]);
        assert!(again.is_success(), "{again:#?}");
        assert_eq!(again.receipts(), ["re_000001"], "{again:#?}");
        assert_eq!(again.json["result"]["id"], "re_000001", "{again:#?}");
        assert!(again.json["result"]["provider_reason"].is_null(), "{again:#?}");
    }
    assert_eq!(refunds(&harness), 1);
}

// Many at once.

#[test]
fn forty_first_calls_at_once_are_forty_refunds() {
    const CALLS: usize = 40;
    let harness = Harness::new("refunds").unwrap();
    // The component is compiled once; no such return, so the ledger stays new.
    let warm = call(&harness, TOOL, &refund("R-none", "warm"), &[]);
    assert!(!warm.is_success(), "{warm:#?}");
    assert_eq!(book::rows(&harness).len(), 0);
    let start = |n: usize| {
        let mut command = harness.call(TOOL, &refund(&format!("R-{n}"), "at once"), &[]);
        Running::start(&mut command).unwrap()
    };
    let running: Vec<Running> = (0..CALLS).map(start).collect();
    let mut open = Vec::new();
    for (n, one) in running.into_iter().enumerate() {
        let heard = Heard::of(&one.wait(LONG).unwrap());
        assert!(["done", "pending"].contains(&heard.status()), "R-{n}: {heard:#?}");
        if heard.status() == "pending" {
            open.push(n);
        }
    }
    for n in open {
        let heard = call(&harness, TOOL, &refund(&format!("R-{n}"), "again"), &[]);
        assert!(heard.is_success(), "R-{n}: {heard:#?}");
    }
    assert_eq!((refunds(&harness), asked(&harness)), (CALLS, CALLS));
}

// Clocks that are not right.

/// The library that moves a program's clock, compiled into this folder.
pub(crate) fn clock(folder: &Path) -> PathBuf {
    let (source, library) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/clock.c"), folder.join("clock.so"));
    let status = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(status.unwrap().success(), "cc cannot compile {}", source.display());
    library
}

/// A provider that remembers keys for a second, which stands for its 24 h; lists say nothing, and each
/// refund that it makes while `hangs` is one of which nobody hears.
struct Window {
    harness: Harness,
    clock: PathBuf,
    _folder: TempDir,
}

impl Window {
    fn new() -> Self {
        let (guest, folder) = changed(&[
            (
                "dedupe = \"none\"",
                "dedupe = \"key-and-body\"\n  dedupe-at = \"header:Idempotency-Key\"\n  \
                 dedupe-window = \"24h\"\n  dedupe-scope = \"credential\"",
            ),
            ("absent-after = \"90s\"", "absent-after = \"99h\""),
        ]);
        let limits = "request-deadline = \"500ms\"\nidle = \"500ms\"".to_owned();
        let harness = Harness::with(guest, Options { limits, ..Options::default() }).unwrap();
        let settings = Settings {
            dedupe: [("refund".to_owned(), Dedupe::KeyAndBody)].into(),
            dedupe_window_ms: 3_000,
            lists_down: true,
            ..Settings::default()
        };
        harness.provider().settings(&settings).unwrap();
        let clock = clock(folder.path());
        let window = Self { harness, clock, _folder: folder };
        window.hangs(true);
        window
    }

    fn hangs(&self, hangs: bool) {
        if hangs {
            mode(&self.harness, Mode::CompleteThenHang, None);
        } else {
            self.harness.provider().clear().unwrap();
        }
    }

    /// One call with a clock that is so many seconds ahead.
    fn call_at(&self, seconds: i64, id: &str) -> Heard {
        let mut command = self.harness.call(TOOL, &refund(id, "x"), &[]);
        command.env("LD_PRELOAD", &self.clock).env("CLOCK_SHIFT", seconds.to_string());
        hear(&mut command)
    }

    /// The provider has forgotten the keys that it saw.
    fn passes(&self) {
        thread::sleep(Duration::from_millis(3_200));
    }
}

/// Without this the others would hold for a host that never sends again.
#[test]
fn a_right_clock_grants_a_resend_within_the_window() {
    let window = Window::new();
    assert_eq!(window.call_at(0, "R-1").status(), "pending");
    window.hangs(false);
    let asked_before = asked(&window.harness);
    let again = window.call_at(HOUR, "R-1");
    assert!(again.is_success(), "{again:#?}");
    assert!(asked(&window.harness) > asked_before, "{again:#?}");
    assert_eq!(refunds(&window.harness), 1);
}

#[test]
fn a_clock_that_was_set_back_grants_no_resend() {
    let window = Window::new();
    assert_eq!(window.call_at(0, "R-1").status(), "pending");
    window.passes();
    assert_eq!(window.call_at(30 * HOUR, "R-2").status(), "pending");
    window.hangs(false);
    let asked_before = asked(&window.harness);
    for hours in [30, 1, 0] {
        let heard = window.call_at(hours * HOUR, "R-1");
        assert_eq!(heard.status(), "pending", "{hours} h: {heard:#?}");
        assert_eq!(asked(&window.harness), asked_before, "{hours} h: {heard:#?}");
    }
    assert_eq!(refunds(&window.harness), 2);
}

#[test]
fn a_clock_that_was_ahead_grants_no_resend() {
    let window = Window::new();
    assert_eq!(window.call_at(30 * HOUR, "R-1").status(), "pending");
    window.passes();
    window.hangs(false);
    let asked_before = asked(&window.harness);
    for hours in [25, 0] {
        let heard = window.call_at(hours * HOUR, "R-1");
        assert_eq!(heard.status(), "pending", "{hours} h: {heard:#?}");
        assert_eq!(asked(&window.harness), asked_before, "{hours} h: {heard:#?}");
    }
    assert_eq!(refunds(&window.harness), 1);
}

/// By a clock far ahead a sender seems gone while it lives; once it has stopped, the row must end.
#[test]
fn a_sender_that_was_given_up_while_it_lived_holds_nothing_for_ever() {
    let (guest, folder) = changed(&[("absent-after = \"90s\"", "absent-after = \"1s\"")]);
    let harness = Harness::with(guest, Options::default()).unwrap();
    // A known object: without it a settle lookup that finds nothing proves nothing.
    assert_eq!(call(&harness, TOOL, &refund("R-1", "known"), &[]).status(), "done");
    mode(&harness, Mode::HangBefore, Some(1));
    let sender = Running::start(&mut harness.call(TOOL, &refund("R-2", "hangs"), &[])).unwrap();
    let started = Instant::now();
    while asked(&harness) < 2 {
        assert!(started.elapsed() < LONG, "nothing was sent");
        thread::sleep(Duration::from_millis(5));
    }
    let mut command = harness.call(TOOL, &refund("R-2", "far ahead"), &[]);
    command.env("LD_PRELOAD", clock(folder.path())).env("CLOCK_SHIFT", "200");
    let early = hear(&mut command);
    assert_eq!(early.status(), "pending", "{early:#?}");
    assert_eq!(refunds(&harness), 1, "{early:#?}");
    sender.kill().unwrap();
    let run = harness.run(&["ledger", "reconcile"]).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let sent = call(&harness, TOOL, &refund("R-2", "it never happened"), &[]);
    assert_eq!(sent.status(), "done", "{sent:#?}");
    assert_eq!(refunds(&harness), 2);
}

// Credentials that an answer echoes.

/// A refund whose stored answer gives its credential away.
fn echoed() -> Scene {
    let echo = |body: &[u8]| {
        let mut object: Value = serde_json::from_slice(body).unwrap();
        object["status"] = json!(format!("Bearer {SECRET}"));
        answer("200 OK", object.to_string().as_bytes())
    };
    let scene = Scene::start(echo, Then::Close);
    let first = call(&scene.harness, TOOL, &refund("R-1", "first"), &[]);
    assert_eq!(first.status(), "done", "{first:#?}");
    assert!(!first.json.to_string().contains(SECRET), "{first:#?}");
    scene
}

/// Replays with a changed environment: the first receipt, and no secret.
#[track_caller]
fn replays_without_the_secret(scene: &Scene, change: impl Fn(&mut Command)) {
    for reason in ["second", "third"] {
        let mut command = scene.harness.call(TOOL, &refund("R-1", reason), &[]);
        change(&mut command);
        let run = Run::of(&mut command).unwrap();
        Heard::of(&run).is_replay_of("re_000001");
        assert!(!run.stdout.contains(SECRET) && !run.stderr.contains(SECRET), "{run:?}");
    }
    assert_eq!(scene.count(), 1);
}

#[test]
fn a_rotated_credential_lets_no_echoed_secret_through() {
    replays_without_the_secret(&echoed(), |command| {
        command.env("PAY_KEY", "sk_test_rotated");
    });
}

#[test]
fn a_credential_that_cannot_be_read_lets_no_echoed_secret_through() {
    replays_without_the_secret(&echoed(), |command| {
        command.env_remove("PAY_KEY");
    });
}
