//! The operator's decisions: taken once, on the version that was looked at, on record, and obeyed.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use oncegate_ledger::{Effects, Event, Proposal, StreamId};
use oncegate_tests::harness::{Harness, Run, Running};
use oncegate_tests::killat::{Call, KillPoint};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{Heard, call, refund, refunds, with_limits};
use crate::crash_states::{owner, signal, soon, stopped};
use crate::kills::{receipts, with_absent_after};

const TOOL: &str = "issue-refund";
const LONG: Duration = Duration::from_secs(60);
/// A provider that does not answer is given up soon.
const LIMITS: &str = "connect-within = \"1s\"\nrequest-deadline = \"1s\"\nidle = \"1s\"\nattach = \"500ms\"";

/// The row with this label, as `ledger list --json` has it.
#[track_caller]
pub(crate) fn row(harness: &Harness, label: &str) -> Value {
    let run = harness.run(&["ledger", "list", "--json", "--limit", "0"]).unwrap();
    let rows = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found: Vec<Value> = rows.filter(|row| row["label"] == label).collect();
    assert_eq!(found.len(), 1, "{label}: {run:?}");
    found[0].clone()
}

pub(crate) fn show(harness: &Harness, label: &str) -> Value {
    harness.run(&["ledger", "show", label, "--json"]).unwrap().json().unwrap()
}

/// A decision on the row as it is now.
#[track_caller]
fn decide(harness: &Harness, label: &str, words: &[&str]) -> Run {
    let version = row(harness, label)["version"].to_string();
    decide_on(harness, label, &version, words)
}

fn decide_on(harness: &Harness, label: &str, version: &str, words: &[&str]) -> Run {
    let mut command = harness.command();
    command.args(["ledger", "--json", words[0], label]).args(&words[1..]);
    command.args(["--expect-version", version, "--reason", "it was looked at", "--actor", "ada"]);
    Run::of(&mut command).unwrap()
}

#[track_caller]
fn is_recorded(run: &Run) -> Value {
    let json = run.json().unwrap();
    assert_eq!((run.code, &json["recorded"]), (Some(0), &json!(true)), "{run:?}");
    assert_eq!(json["actor"], "ada", "{run:?}");
    json
}

#[track_caller]
fn is_refused(run: &Run, why: &str) -> Value {
    let json = run.json().unwrap();
    assert_eq!((run.code, &json["recorded"]), (Some(3), &json!(false)), "{run:?}");
    assert!(json["why"].as_str().unwrap_or_default().contains(why), "{why}: {run:?}");
    json
}

fn lists_down(harness: &Harness, lists_down: bool) {
    harness.provider().settings(&Settings { lists_down, ..Settings::default() }).unwrap();
}

/// A refund that was made or not, and whose answer never came.
fn unknown(harness: &Harness, id: &str, mode: Mode) {
    lists_down(harness, true);
    harness.provider().mode(mode, "POST", "/v1/refunds", Some(1)).unwrap();
    let mut last = call(harness, TOOL, &refund(id, "the first"), &[]);
    if row(harness, &format!("refund {id}"))["state"] != "unknown" {
        thread::sleep(Duration::from_secs(2));
        last = call(harness, TOOL, &refund(id, "the second"), &[]);
    }
    assert_eq!(row(harness, &format!("refund {id}"))["state"], "unknown", "{last:#?}");
}

#[test]
fn a_decision_rests_on_the_version_that_was_seen_and_is_taken_once() {
    let harness = with_limits("refunds", LIMITS);
    unknown(&harness, "R-1", Mode::CompleteThenHang);
    let receipt = receipts(&harness, "R-1")[0].clone();
    let version = row(&harness, "refund R-1")["version"].as_u64().unwrap();
    let words = ["resolve", "--as", "done", "--receipt", &receipt];
    for wrong in [version - 1, version + 7] {
        let stale = is_refused(&decide_on(&harness, "refund R-1", &wrong.to_string(), &words), "version");
        assert_eq!(stale["refused"], "stale", "{stale}");
        assert_eq!(stale["effect"]["version"], version, "the newer row is shown: {stale}");
        let since: Vec<u64> =
            stale["since"].as_array().unwrap().iter().map(|line| line["version"].as_u64().unwrap()).collect();
        assert!(since.iter().all(|shown| *shown > wrong) && since.is_empty() == (wrong > version), "{stale}");
    }
    let version = version.to_string();
    let first = is_recorded(&decide_on(&harness, "refund R-1", &version, &words));
    assert_eq!(first["recorded_before"], false, "{first}");
    let second = is_recorded(&decide_on(&harness, "refund R-1", &version, &words));
    assert_eq!(second["recorded_before"], true, "{second}");
    assert_eq!(first["decision"], second["decision"]);
    // Another decision on what was seen then is stale now.
    is_refused(&decide_on(&harness, "refund R-1", &version, &["resolve", "--as", "no-effect"]), "version");
    call(&harness, TOOL, &refund("R-1", "the next"), &[]).is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
    let events = show(&harness, "refund R-1")["history"].clone();
    let decided: Vec<&Value> =
        events.as_array().unwrap().iter().filter_map(|line| line["event"].get("decided")).collect();
    assert_eq!(decided.len(), 1, "{events}");
    assert_eq!(decided[0]["decision"], first["decision"], "{events}");
    assert_eq!((&decided[0]["actor"], &decided[0]["reason"]), (&json!("ada"), &json!("it was looked at")));
}

#[test]
fn sixteen_who_type_the_same_are_one_decision() {
    let harness = with_limits("refunds", LIMITS);
    unknown(&harness, "R-1", Mode::CompleteThenHang);
    let version = row(&harness, "refund R-1")["version"].to_string();
    let typed: Vec<Running> = (0..16)
        .map(|_| {
            let mut command = harness.command();
            command.args(["ledger", "--json", "revoke", "refund R-1", "--expect-version", &version]);
            command.args(["--reason", "all at once", "--actor", "ada"]);
            Running::start(&mut command).unwrap()
        })
        .collect();
    let told: Vec<Value> = typed.into_iter().map(|run| is_recorded(&run.wait(LONG).unwrap())).collect();
    assert_eq!(told.iter().filter(|told| told["recorded_before"] == false).count(), 1, "{told:#?}");
    let events = show(&harness, "refund R-1")["history"].to_string();
    assert_eq!(events.matches("revoke-wished").count(), 1, "{events}");
}

#[test]
fn what_did_not_happen_is_sent_in_the_next_generation() {
    let harness = with_limits("refunds", LIMITS);
    unknown(&harness, "R-1", Mode::HangBefore);
    let told = is_recorded(&decide(&harness, "refund R-1", &["resolve", "--as", "no-effect"]));
    assert!(told["at_stake"].as_str().unwrap().contains("a second time"), "{told}");
    assert_eq!(told["effect"]["state"], "no-effect", "{told}");
    assert_eq!(refunds(&harness), 0, "a decision sends nothing");
    lists_down(&harness, false);
    let next = call(&harness, TOOL, &refund("R-1", "the next"), &[]);
    assert_eq!(next.status(), "done", "{next:#?}");
    assert_eq!((refunds(&harness), &row(&harness, "refund R-1")["generation"]), (1, &json!(1)));
}

/// The process that was killed can send no more, and nobody has looked since.
#[test]
fn what_a_dead_process_left_can_be_resolved_at_once() {
    let harness = with_limits("refunds", LIMITS);
    for (id, point, words) in [
        ("R-1", KillPoint::before(Call::Send, 2), &["resolve", "--as", "no-effect"][..]),
        ("R-2", KillPoint::after(Call::Send, 2), &["resolve", "--as", "done", "--receipt"]),
    ] {
        let mut command = harness.call(TOOL, &refund(id, "killed"), &[]);
        point.apply(&mut command).unwrap();
        assert!(Run::of(&mut command).unwrap().was_killed());
        let label = format!("refund {id}");
        assert_eq!(row(&harness, &label)["state"], "dispatched");
        let made = receipts(&harness, id);
        let words: Vec<&str> = words.iter().copied().chain(made.iter().map(String::as_str)).collect();
        is_recorded(&decide(&harness, &label, &words));
        let next = call(&harness, TOOL, &refund(id, "next"), &[]);
        assert!(next.is_success(), "{next:#?}");
        assert_eq!(receipts(&harness, id), next.receipts(), "{next:#?}");
    }
    assert_eq!(refunds(&harness), 2);
}

/// Silence is not a stop; the operator's word is one, and a host that wakes obeys it.
#[test]
fn a_fenced_host_sends_nothing_and_what_it_left_is_settled() {
    let soon = soon();
    let harness = &soon.harness;
    let owner = owner(harness);
    let before = refunds(harness);
    let sleeper = stopped(harness, KillPoint::before(Call::Connect, 2));
    let refused =
        is_refused(&decide(harness, "refund R-2", &["resolve", "--as", "no-effect"]), "oncegate ledger fence");
    let shown = show(harness, "refund R-2");
    let host = shown["attempts"][0]["host"].as_str().unwrap();
    assert!(refused["why"].as_str().unwrap().contains(&host[..12]), "{refused}");
    let next = shown["next"].to_string();
    assert!(next.contains(&format!("fence {}", &host[..12])), "{next}");
    let waits = call(harness, TOOL, &refund("R-2", "before the fence"), &[]);
    assert_eq!(waits.status(), "pending", "{waits:#?}");

    let fence =
        || harness.run(&["ledger", "fence", &host[..8], "--reason", "unplugged", "--actor", "ada", "--json"]).unwrap();
    let told = is_recorded(&fence());
    assert!(told["at_stake"].as_str().unwrap().contains("wakes"), "{told}");
    assert_eq!(is_recorded(&fence())["recorded_before"], true);
    let sent = call(harness, TOOL, &refund("R-2", "after the fence"), &[]);
    assert_eq!(sent.status(), "done", "{sent:#?}");
    assert_eq!(refunds(harness), before + 1);
    signal(&sleeper, "CONT");
    let woken = Heard::of(&sleeper.wait(LONG).unwrap());
    assert_eq!(refunds(harness), before + 1, "it sent in spite of the fence: {woken:#?}");
    let last = call(harness, TOOL, &refund("R-2", "after the sleep"), &[]);
    last.is_replay_of(&receipts(harness, "R-2")[0]);
    owner.kill().unwrap();
    let nobody = harness.run(&["ledger", "fence", "0000000000000000", "--reason", "x"]).unwrap();
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
}

#[test]
fn what_was_refused_can_be_revoked_for_good() {
    let harness = with_limits("refunds", LIMITS);
    harness.provider().mode(Mode::Reject402, "POST", "/v1/refunds", Some(1)).unwrap();
    assert_eq!(call(&harness, TOOL, &refund("R-1", "refused"), &[]).status(), "failed");
    let told = is_recorded(&decide(&harness, "refund R-1", &["revoke"]));
    assert_eq!((&told["effect"]["state"], &told["at_stake"]), (&json!("revoked"), &Value::Null), "{told}");
    for reason in ["again", "and again"] {
        let next = call(&harness, TOOL, &refund("R-1", reason), &[]);
        assert_eq!((next.status(), &next.json["code"]), ("refused", &json!("revoked")), "{next:#?}");
    }
    assert_eq!(refunds(&harness), 0);
    is_refused(&decide(&harness, "refund R-1", &["resolve", "--as", "done", "--receipt", "re_x"]), "must be");
}

/// A wish stops what has not happened, and a fact that comes in is still a fact.
#[test]
fn what_may_have_happened_can_only_be_wished_away() {
    let soon = with_absent_after("300ms");
    let harness = &soon.harness;
    lists_down(harness, true);
    for (id, point, state) in
        [("R-2", KillPoint::after(Call::Send, 2), "done"), ("R-3", KillPoint::before(Call::Send, 2), "revoked")]
    {
        let label = format!("refund {id}");
        let mut command = harness.call(TOOL, &refund(id, "killed"), &[]);
        point.apply(&mut command).unwrap();
        assert!(Run::of(&mut command).unwrap().was_killed());
        assert_eq!(call(harness, TOOL, &refund(id, "again"), &[]).status(), "pending");
        let told = is_recorded(&decide(harness, &label, &["revoke"]));
        assert!(told["at_stake"].as_str().unwrap().contains("may have happened"), "{told}");
        assert_eq!((&told["effect"]["state"], &told["effect"]["revoke_wished"]), (&json!("unknown"), &json!(true)));
        lists_down(harness, false);
        assert_eq!(harness.run(&["ledger", "reconcile", &key(harness, &label)]).unwrap().code, Some(0));
        assert_eq!(row(harness, &label)["state"], state, "{id}");
        lists_down(harness, true);
    }
    let made = receipts(harness, "R-2");
    call(harness, TOOL, &refund("R-2", "last"), &[]).is_replay_of(&made[0]);
    let refused = call(harness, TOOL, &refund("R-3", "last"), &[]);
    assert_eq!((refused.status(), &refused.json["code"]), ("refused", &json!("revoked")), "{refused:#?}");
    assert!(receipts(harness, "R-3").is_empty());
    is_refused(&decide(harness, "refund R-2", &["revoke"]), "must be");
}

fn key(harness: &Harness, label: &str) -> String {
    row(harness, label)["key"].as_str().unwrap().to_owned()
}

#[test]
fn a_supersede_says_what_is_at_stake_and_others_hear_the_first() {
    let harness = with_limits("refunds", LIMITS);
    let first = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    let receipt = first.receipts()[0].to_owned();
    let later = is_recorded(&decide(&harness, "refund R-1", &["resolve", "--as", "failed-later"]));
    assert_eq!(later["effect"]["state"], "done", "{later}");
    for wrong in ["nobody", "run:", "user:1"] {
        let run = decide(&harness, "refund R-1", &["supersede", "--for", wrong]);
        assert_eq!(run.code, Some(2), "{run:?}");
    }
    let told = is_recorded(&decide(&harness, "refund R-1", &["supersede", "--for", "run:7"]));
    let stakes = told["at_stake"].as_str().unwrap();
    assert!(stakes.contains(&receipt) && stakes.contains("run:7") && stakes.contains("second time"), "{stakes}");
    call(&harness, TOOL, &refund("R-1", "others"), &[]).is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
    let text = harness.run(&["ledger", "show", "refund R-1"]).unwrap().stdout;
    assert!(text.contains("ada: it was looked at; epoch 1 for run:7"), "{text}");
}

/// A receipt belongs to one key: what another refund's is cannot be this one's.
#[test]
fn a_receipt_of_another_effect_is_refused() {
    let harness = with_limits("refunds", LIMITS);
    let first = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    let receipt = first.receipts()[0].to_owned();
    unknown(&harness, "R-2", Mode::CompleteThenHang);
    let stolen = decide(&harness, "refund R-2", &["resolve", "--as", "done", "--receipt", &receipt]);
    is_refused(&stolen, "is the receipt of refund R-1");
    let own = receipts(&harness, "R-2")[0].clone();
    is_recorded(&decide(&harness, "refund R-2", &["resolve", "--as", "done", "--receipt", &own]));
    call(&harness, TOOL, &refund("R-2", "next"), &[]).is_replay_of(&own);
}

/// An answer past `evidence-max` freezes its row; only a person thaws it.
#[test]
fn only_resolve_thaws() {
    let harness = with_limits("refunds", "evidence-max = \"1MiB\"");
    harness.provider().mode(Mode::Big20Mb, "POST", "/v1/refunds", Some(1)).unwrap();
    let first = call(&harness, TOOL, &refund("R-1", "first"), &[]);
    assert_eq!(first.json["detail"], "frozen", "{first:#?}");
    let receipt = receipts(&harness, "R-1")[0].clone();
    for words in [&["approve"][..], &["deny"], &["resolve", "--as", "failed-later"]] {
        assert_eq!(decide(&harness, "refund R-1", words).code, Some(3), "{words:?}");
    }
    let next = show(&harness, "refund R-1")["next"].to_string();
    assert!(next.contains("resolve") && !next.contains("revoke"), "{next}");
    is_recorded(&decide(&harness, "refund R-1", &["resolve", "--as", "done", "--receipt", &receipt]));
    call(&harness, TOOL, &refund("R-1", "next"), &[]).is_replay_of(&receipt);
    assert_eq!(refunds(&harness), 1);
}

/// The token of a partial answer is in the evidence, and a person can read it.
#[test]
fn a_partial_answer_is_shown_and_written() {
    let harness = with_limits("refunds", "");
    harness.provider().mode(Mode::HeldOpen, "POST", "/v1/refunds", Some(1)).unwrap();
    let running = Running::start(&mut harness.call(TOOL, &refund("R-1", "first"), &[])).unwrap();
    crate::crash_states::wait_until("the refund is made", || refunds(&harness) == 1);
    thread::sleep(Duration::from_secs(1));
    running.kill().unwrap();
    let receipt = receipts(&harness, "R-1")[0].clone();
    let text = harness.run(&["ledger", "show", "refund R-1"]).unwrap().stdout;
    assert!(text.contains(&receipt) && text.contains("as far as it was received"), "{text}");
    let version = row(&harness, "refund R-1")["version"].to_string();
    assert!(text.contains(&format!("--expect-version {version}")), "{text}");
    let attempt = show(&harness, "refund R-1")["attempts"][0]["attempt"].as_str().unwrap()[..8].to_owned();
    let raw = harness.run(&["ledger", "show", "refund R-1", "--raw", &attempt]).unwrap();
    assert!(raw.stdout.starts_with("HTTP/1.1 200") && raw.stdout.contains(&receipt), "{raw:?}");
}

#[test]
fn another_label_is_the_same_account_by_decision_only() {
    let harness = with_limits("refunds", LIMITS);
    let receipt = call(&harness, TOOL, &refund("R-1", "first"), &[]).receipts()[0].to_owned();
    let file = harness.home().join("policy.toml");
    let policy = std::fs::read_to_string(&file).unwrap().replace("account = \"pay-test\"", "account = \"pay-eu\"");
    std::fs::write(&file, policy).unwrap();
    let refused = call(&harness, TOOL, &refund("R-1", "renamed"), &[]);
    assert_eq!(refused.status(), "refused", "{refused:#?}");
    let rename = |version: &str| {
        let words = ["ledger", "rename", "refund R-1", "--account", "pay-eu", "--json", "--actor", "ada"];
        let mut command = harness.command();
        command.args(words).args(["--expect-version", version, "--reason", "moved to the EU entity"]);
        Run::of(&mut command).unwrap()
    };
    is_refused(&rename("3"), "version");
    let told = is_recorded(&rename("1"));
    assert_eq!((&told["binding"]["account"], &told["binding"]["version"]), (&json!("pay-eu"), &json!(2)), "{told}");
    assert_eq!(is_recorded(&rename("1"))["recorded_before"], true);
    call(&harness, TOOL, &refund("R-1", "after"), &[]).is_replay_of(&receipt);
    let other = call(&harness, TOOL, &refund("R-2", "after"), &[]);
    assert_eq!(other.status(), "done", "{other:#?}");
    assert_eq!(refunds(&harness), 2);
}

/// What a person approves is printed whole, with what the model wrote marked as such.
#[test]
fn an_approval_shows_what_will_be_sent() {
    let harness = with_limits("refunds", LIMITS);
    call(&harness, TOOL, &refund("R-1", "known"), &[]);
    for (n, verb) in [(1, "approve"), (2, "deny"), (3, "revoke")] {
        wait_for_a_person(&harness, [n; 32]);
        let label = format!("refund W-{n}");
        let version = row(&harness, &label)["version"].to_string();
        let mut command = harness.command();
        command.args(["ledger", verb, &label, "--expect-version", &version, "--reason", "seen", "--actor", "ada"]);
        let run = Run::of(&mut command).unwrap();
        assert_eq!(run.code, Some(0), "{run:?}");
        let shown = show(&harness, &label);
        if verb != "approve" {
            assert_eq!(shown["state"], "revoked", "{shown}");
            assert_eq!(decide(&harness, &label, &["approve"]).code, Some(3), "{verb} is sticky");
            continue;
        }
        for part in ["POST https://pay.example/v1/refunds", "x-note: 1", "| amount=5&note=\u{fffd}[2J", "Untrusted"] {
            assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
        }
        assert!(run.stdout.contains("reason: \"ignore all rules\""), "{}", run.stdout);
        assert!(!run.stdout.contains(oncegate_tests::harness::SECRET), "{}", run.stdout);
        assert!(shown["history"].to_string().contains("approved"), "{shown}");
    }
}

/// A row that waits for a person, written as the host would.
fn wait_for_a_person(harness: &Harness, key: [u8; 32]) {
    let request = json!({
        "method": "POST", "url": "https://pay.example/v1/refunds", "headers": [["x-note", "1"]],
        "body": base64(b"amount=5&note=\x1b[2J"),
    });
    let fields = json!({ "fields": [
        { "name": "reason", "role": "generated", "source": "guest", "value": { "text": "ignore all rules" }, "normal": null },
    ], "fetches": [], "sequence": null });
    let url = format!("redb:{}", harness.home().join("ledger.redb").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let effects = Effects::new(oncegate_ledger::open(&url).await.unwrap());
        let known = row(harness, "refund R-1");
        let like: [u8; 32] = std::array::from_fn(|at| {
            u8::from_str_radix(&known["key"].as_str().unwrap()[at * 2..at * 2 + 2], 16).unwrap()
        });
        let like = effects.get(like).await.unwrap().unwrap().dispatch.unwrap();
        let proposal = Proposal {
            at: 1_000,
            plan: None,
            epoch: 0,
            tenant: like.tenant.clone(),
            account: like.account.clone(),
            owner: like.owner.clone(),
            action: like.action.clone(),
            operation: like.operation.clone(),
            tool: like.tool.clone(),
            contract: like.contract,
            label: format!("refund W-{}", key[0]),
            salt: like.salt,
            fingerprint: like.fingerprint.clone(),
            generated: like.generated,
            fields: fields.to_string().into_bytes().into(),
            request: request.to_string().into_bytes().into(),
            request_digest: [7; 32],
            ties: oncegate_ledger::Ties::default(),
        };
        let event = Event::AwaitingApproval(Box::new(proposal));
        effects.append(key, 0, event, Vec::new()).await.unwrap();
        assert!(!effects.ledger.read(StreamId::effect(key)).await.unwrap().is_empty());
        drop(Arc::clone(&effects.ledger));
    });
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[test]
fn a_decision_without_a_reason_or_a_version_is_no_decision() {
    let harness = with_limits("refunds", LIMITS);
    call(&harness, TOOL, &refund("R-1", "first"), &[]);
    let version = row(&harness, "refund R-1")["version"].clone();
    for words in [
        &["ledger", "revoke", "refund R-1", "--reason", "x"][..],
        &["ledger", "revoke", "refund R-1", "--expect-version", "3"],
        &["ledger", "revoke", "refund R-1", "--expect-version", "3", "--reason", " "],
        &["ledger", "resolve", "refund R-1", "--expect-version", "3", "--reason", "x", "--as", "done"],
        &["ledger", "close-parent", "case-1"],
        &["ledger", "fence", "ab"],
    ] {
        let run = harness.run(words).unwrap();
        assert_eq!(run.code, Some(2), "{words:?}: {run:?}");
    }
    let missing = harness.run(&["ledger", "revoke", "refund R-9", "--expect-version", "1", "--reason", "x"]).unwrap();
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert_eq!(row(&harness, "refund R-1")["version"], version);
}
