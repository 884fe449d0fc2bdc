//! The closed table of statements that the guarantee rests on: what happens when each is false.
//!
//! Where a statement is false a second effect can happen; each test shows it by the provider's count,
//! and that nothing else is lost: the ledger verifies and the last receipt is answered.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use oncegate_ledger::{Append, Event, Expect, StreamKind};
use oncegate_tests::client::Client;
use oncegate_tests::harness::{Harness, Options};
use oncegate_tests::killat::{Call, KillPoint};
use oncegate_tests::provider::Provider;
use oncegate_tests::provider::domains::{Dedupe, Settings};
use oncegate_tests::provider::mode::Mode;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::agent::{Heard, call, refund, refunds};
use crate::attacks::changed;
use crate::kills::{kill_at, restart, with_absent_after};
use crate::relay::Relay;

const TOOL: &str = "issue-refund";
const REFUNDS: &str = "/v1/refunds";
const QUICK: &str = "request-deadline = \"500ms\"\nidle = \"500ms\"";
const DEDUPE: (&str, &str) = (
    "dedupe = \"none\"",
    "dedupe = \"key-and-body\"\n  dedupe-at = \"header:Idempotency-Key\"\n  dedupe-window = \"24h\"\n  \
     dedupe-scope = \"credential\"",
);

fn harness(changes: &[(&str, &str)]) -> (Harness, TempDir) {
    let (guest, folder) = changed(changes);
    (Harness::with(guest, Options { limits: QUICK.to_owned(), ..Options::default() }).unwrap(), folder)
}

fn ask(harness: &Harness, id: &str) -> Heard {
    call(harness, TOOL, &refund(id, "x"), &[])
}

/// All that is left to hold when a statement is false.
#[track_caller]
fn nothing_else_is_lost(harness: &Harness, id: &str, receipt: &str) {
    ask(harness, id).is_replay_of(receipt);
    assert_eq!(harness.run(&["ledger", "verify"]).unwrap().code, Some(0));
}

/// A shop whose order is written down whenever somebody looks at it.
fn counting_shop() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            while head.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            counted.fetch_add(1, Ordering::SeqCst);
            let body = json!({ "id": "R-1", "charge": "ch_1", "amount": 50_000, "status": "received" }).to_string();
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    (url, count)
}

#[test]
fn an_operation_without_effect_that_has_one_has_it_each_time() {
    let (guest, _folder) = changed(&[("max = 500", "max = 499")]);
    let (shop, count) = counting_shop();
    let options = Options { endpoints: [("shop".to_owned(), shop)].into(), ..Options::default() };
    let harness = Harness::with(guest, options).unwrap();
    assert_eq!(ask(&harness, "R-1").status(), "done");
    for _ in 0..2 {
        ask(&harness, "R-1").is_replay_of("re_000001");
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
    assert_eq!(refunds(&harness), 1);
    nothing_else_is_lost(&harness, "R-1", "re_000001");
}

#[test]
fn proof_that_is_none_makes_two() {
    let (harness, _folder) = harness(&[("{ status = 402 },", "{ status = 402 }, { status = 500 },")]);
    harness.provider().mode(Mode::Error500After, "POST", REFUNDS, Some(1)).unwrap();
    let first = ask(&harness, "R-1");
    assert_eq!(first.status(), "failed", "{first:#?}");
    let second = ask(&harness, "R-1");
    assert_eq!(second.receipts(), ["re_000002"], "{second:#?}");
    assert_eq!(refunds(&harness), 2);
    nothing_else_is_lost(&harness, "R-1", "re_000002");
}

/// A lost answer, lists that say nothing, and a contract by which the request may be sent again.
fn sent_again(change: (&str, &str), settings: Settings, wait: Duration) -> (Harness, TempDir) {
    let (harness, folder) = harness(&[change]);
    let provider = harness.provider();
    provider.settings(&Settings { lists_down: true, ..settings }).unwrap();
    provider.mode(Mode::CompleteThenHang, "POST", REFUNDS, None).unwrap();
    assert_eq!(ask(&harness, "R-1").status(), "pending");
    provider.clear().unwrap();
    thread::sleep(wait);
    ask(&harness, "R-1");
    (harness, folder)
}

fn deduping(window_ms: u64) -> Settings {
    let dedupe = [("refund".to_owned(), Dedupe::KeyAndBody)].into();
    Settings { dedupe, dedupe_window_ms: window_ms, ..Settings::default() }
}

/// What the others of dedupe are compared with: where it is true, one.
#[test]
fn dedupe_that_is_as_stated_makes_one() {
    let (harness, _folder) = sent_again(DEDUPE, deduping(24 * 3_600_000), Duration::ZERO);
    assert_eq!(refunds(&harness), 1);
    nothing_else_is_lost(&harness, "R-1", "re_000001");
}

#[test]
fn dedupe_of_another_kind_makes_two() {
    let (harness, _folder) = sent_again(DEDUPE, Settings::default(), Duration::ZERO);
    assert!(refunds(&harness) >= 2, "{}", refunds(&harness));
    nothing_else_is_lost(&harness, "R-1", &format!("re_{:06}", refunds(&harness)));
}

#[test]
fn dedupe_at_another_place_makes_two() {
    let elsewhere = DEDUPE.1.replace("Idempotency-Key", "X-Request-Key");
    let (harness, _folder) = sent_again((DEDUPE.0, &elsewhere), deduping(24 * 3_600_000), Duration::ZERO);
    assert!(refunds(&harness) >= 2, "{}", refunds(&harness));
    nothing_else_is_lost(&harness, "R-1", &format!("re_{:06}", refunds(&harness)));
}

#[test]
fn a_dedupe_window_that_is_shorter_makes_two() {
    let (harness, _folder) = sent_again(DEDUPE, deduping(200), Duration::from_millis(2_500));
    assert!(refunds(&harness) >= 2, "{}", refunds(&harness));
    nothing_else_is_lost(&harness, "R-1", &format!("re_{:06}", refunds(&harness)));
}

/// The narrower scope is always kept to: a contract that states a wider one gains and loses nothing by it.
#[test]
fn a_dedupe_scope_that_is_wider_than_stated_or_narrower_makes_one() {
    for scope in ["credential", "account"] {
        let terms = DEDUPE.1.replace("\"credential\"", &format!("\"{scope}\""));
        let (harness, _folder) = harness(&[(DEDUPE.0, &terms)]);
        let provider = harness.provider();
        // This provider forgets a key with its credential, which is rotated before the next call.
        provider.settings(&Settings { lists_down: true, ..Settings::default() }).unwrap();
        provider.mode(Mode::CompleteThenHang, "POST", REFUNDS, None).unwrap();
        let mut first = harness.call(TOOL, &refund("R-1", "x"), &[]);
        // Only the settle lookup comes before a resend, so the first call makes one attempt and its resends.
        first.env("PAY_KEY", "sk_first");
        crate::agent::hear(&mut first);
        let before = refunds(&harness);
        provider.clear().unwrap();
        for _ in 0..2 {
            let mut rotated = harness.call(TOOL, &refund("R-1", "x"), &[]);
            rotated.env("PAY_KEY", "sk_second");
            let heard = crate::agent::hear(&mut rotated);
            assert_eq!(heard.status(), "pending", "{scope}: {heard:#?}");
        }
        assert_eq!(refunds(&harness), before, "{scope}");
    }
}

/// The index lags for longer than the contract says.
#[test]
fn an_absence_that_is_concluded_too_early_makes_two() {
    let soon = with_absent_after("300ms");
    let lag = Settings { index_lag_ms: 5_000, ..Settings::default() };
    soon.harness.provider().settings(&lag).unwrap();
    thread::sleep(Duration::from_millis(5_100));
    kill_at(&soon.harness, KillPoint::after(Call::Send, 2), "R-3");
    let (last, _) = restart(&soon.harness, "R-3");
    assert!(last.is_success(), "{last:#?}");
    assert_eq!(refunds(&soon.harness), 3);
    nothing_else_is_lost(&soon.harness, "R-3", "re_000003");
}

fn behind_a_relay() -> (Harness, Relay, TempDir) {
    let (guest, folder) = changed(&[("absent-after = \"90s\"", "absent-after = \"300ms\"")]);
    let harness = Harness::with(guest, Options { limits: QUICK.to_owned(), ..Options::default() }).unwrap();
    let relay = Relay::before(&harness.provider_url());
    moved(&harness, &relay.url());
    // A known object, for the positive control.
    assert_eq!(ask(&harness, "R-1").status(), "done");
    (harness, relay, folder)
}

/// It finds others of its kind, and not this one.
#[test]
fn a_settle_lookup_that_does_not_find_everything_makes_two() {
    let (harness, relay, _folder) = behind_a_relay();
    relay.hide("ch_3");
    harness.provider().mode(Mode::CompleteThenReset, "POST", REFUNDS, Some(1)).unwrap();
    let first = ask(&harness, "R-3");
    assert_ne!(first.status(), "already_done", "{first:#?}");
    let (last, _) = restart(&harness, "R-3");
    assert!(last.is_success(), "{last:#?}");
    assert_eq!(refunds(&harness), 3);
    nothing_else_is_lost(&harness, "R-3", "re_000003");
}

/// `egress = "direct"` is stated of a relay that keeps what it was given and sends it when all is over.
#[test]
fn a_relay_that_sends_later_makes_two() {
    let (harness, relay, _folder) = behind_a_relay();
    relay.keep_next();
    ask(&harness, "R-3");
    let (last, _) = restart(&harness, "R-3");
    assert!(last.is_success(), "{last:#?}");
    assert_eq!(refunds(&harness), 2);
    assert_eq!(relay.send_kept(), 1);
    assert_eq!(refunds(&harness), 3);
    nothing_else_is_lost(&harness, "R-3", "re_000002");
}

/// Two returns with one value: the second is taken for the first and not paid back.
#[test]
fn a_key_part_that_is_not_unique_loses_the_second() {
    let (harness, _folder) = harness(&[(
        "role = \"key\",   from = \"lookup:get-return\", value = \"/id\"",
        "role = \"key\", from = \"lookup:get-return\", value = \"/status\"",
    )]);
    let goods = |id: &str| json!({ "id": id, "charge": "ch_1", "amount": 50_000, "status": "received" });
    harness.provider().seed(&json!({ "returns": [goods("R-1"), goods("R-2")] })).unwrap();
    assert_eq!(ask(&harness, "R-1").status(), "done");
    ask(&harness, "R-2").is_replay_of("re_000001");
    assert_eq!(refunds(&harness), 1);
    nothing_else_is_lost(&harness, "R-1", "re_000001");
}

/// One return whose value changes: it has two keys and is paid back twice.
#[test]
fn a_key_part_that_is_not_permanent_makes_two() {
    let (harness, _folder) = harness(&[(
        "role = \"key\",   from = \"lookup:get-return\", value = \"/id\"",
        "role = \"key\", from = \"lookup:get-return\", value = \"/number\"",
    )]);
    for number in ["A-1", "B-1"] {
        let goods = json!({ "id": "R-1", "number": number, "charge": "ch_1", "amount": 50_000, "status": "received" });
        harness.provider().seed(&json!({ "returns": [goods] })).unwrap();
        assert_eq!(ask(&harness, "R-1").status(), "done");
    }
    assert_eq!(refunds(&harness), 2);
    nothing_else_is_lost(&harness, "R-1", "re_000002");
}

/// An operator says that the account at another address is the same. It is a copy from before: what
/// was lost at the first is looked for at the second, which knows the others.
#[test]
fn an_account_that_is_another_makes_two() {
    let (harness, _folder) = harness(&[("absent-after = \"90s\"", "absent-after = \"300ms\"")]);
    assert_eq!(ask(&harness, "R-1").status(), "done");
    let copy = Provider::start().unwrap();
    let made = harness.provider().log().unwrap().into_iter().find(|sent| sent.method == "POST").unwrap();
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    Client::new(&copy.url()).send("POST", REFUNDS, &headers, made.body.as_bytes()).unwrap();
    harness.provider().mode(Mode::CompleteThenHang, "POST", REFUNDS, None).unwrap();
    harness.provider().settings(&Settings { lists_down: true, ..Settings::default() }).unwrap();
    assert_eq!(ask(&harness, "R-2").status(), "pending");
    moved(&harness, &copy.url());
    let refused = ask(&harness, "R-3");
    assert_eq!(refused.json["code"], "effect_not_permitted", "{refused:#?}");
    rename(&harness, &copy.url());
    thread::sleep(Duration::from_millis(500));
    assert_eq!(ask(&harness, "R-2").status(), "done");
    // The first account has both; the copy has the first by copying, and the second once more.
    assert_eq!(refunds(&harness), 2);
    assert_eq!(Client::new(&copy.url()).count("refund").unwrap(), 2);
    ask(&harness, "R-1").is_replay_of("re_000001");
    nothing_else_is_lost(&harness, "R-2", "re_000002");
}

/// Another address of the payment provider in the policy.
fn moved(harness: &Harness, url: &str) {
    let file = harness.home().join("policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    let pay = policy.find("[endpoint.pay]").unwrap();
    let changed = policy[pay..].replacen(&harness.provider_url(), url, 1);
    fs::write(&file, format!("{}{changed}", &policy[..pay])).unwrap();
}

fn rename(harness: &Harness, to: &str) {
    Runtime::new().unwrap().block_on(async {
        let path = harness.home().join("ledger.redb");
        let ledger = oncegate_ledger::open(&format!("redb:{}", path.display())).await.unwrap();
        let records = ledger.scan(0, 1_000).await.unwrap();
        let bound = records.iter().find(|record| record.stream.kind == StreamKind::Account).unwrap();
        let Event::AccountBound { account, endpoint, credential, .. } = bound.event.clone() else {
            panic!("{bound:?}")
        };
        let event = Event::AccountRenamed {
            account,
            endpoint,
            url: to.to_owned(),
            credential,
            actor: "ann".to_owned(),
            reason: "they moved".to_owned(),
            at: 1,
            decision: None,
        };
        ledger.append(vec![Append::new(bound.stream, Expect::Any, event)]).await.unwrap();
    });
}

/// Somebody refunds with the same credential and without this ledger.
#[test]
fn a_credential_that_somebody_else_uses_makes_two() {
    let (harness, _folder) = harness(&[("max = 500", "max = 499")]);
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let body = b"charge=ch_1&amount=50000&metadata%5Breturn%5D=R-1";
    harness.provider().send("POST", REFUNDS, &headers, body).unwrap();
    assert_eq!(ask(&harness, "R-1").status(), "done");
    assert_eq!(refunds(&harness), 2);
    nothing_else_is_lost(&harness, "R-1", "re_000002");
}

/// An old copy of the ledger is put back and an operator says that nothing ran since.
#[test]
fn a_restored_ledger_that_was_trusted_makes_two() {
    let (harness, _folder) = harness(&[("max = 500", "max = 499")]);
    let (file, backup) = (harness.home().join("ledger.redb"), harness.folder().join("backup"));
    assert_eq!(ask(&harness, "R-1").status(), "done");
    fs::copy(&file, &backup).unwrap();
    assert_eq!(ask(&harness, "R-2").status(), "done");
    fs::copy(&backup, &file).unwrap();
    let refused = ask(&harness, "R-2");
    assert_eq!(refused.json["code"], "ledger_unavailable", "{refused:#?}");
    assert_eq!(refunds(&harness), 2);
    let trust = harness.run(&["ledger", "trust", "--actor", "ann", "--reason", "nothing ran since"]).unwrap();
    assert_eq!(trust.code, Some(0), "{trust:?}");
    let again = ask(&harness, "R-2");
    assert_eq!(again.receipts(), ["re_000003"], "{again:#?}");
    assert_eq!(refunds(&harness), 3);
    nothing_else_is_lost(&harness, "R-1", "re_000001");
    // The list shows two of one reference: the key is frozen for a person.
    let frozen = ask(&harness, "R-2");
    assert_eq!(frozen.json["detail"], "frozen", "{frozen:#?}");
    assert_eq!(refunds(&harness), 3);
}

/// `inspect` shows every statement of the table, who makes it and what follows when it is false.
#[test]
fn inspect_prints_the_table() {
    let harness = Harness::new("refunds").unwrap();
    let mut command: Command = harness.command();
    command.arg("inspect").arg(harness.component());
    let run = oncegate_tests::harness::Run::of(&mut command).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let shown = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for stated in [
        "an operation with `effect = \"none\"` has none",
        "`no-effect-when` is proof that nothing happened",
        "`absent-after` is long enough, and the settle lookup finds every such object with its credential",
        "each key part is unique and permanent",
        "an account's name always means the same account at the provider",
        "`egress = \"direct\"`: no relay sends what this host did not hand over",
        "nobody else uses this credential",
        "a restored ledger was rightly trusted",
    ] {
        assert!(shown.contains(stated), "nothing of {stated:?} in {}", run.stdout);
    }
    for maker in ["contract", "policy"] {
        assert!(shown.contains(maker), "{}", run.stdout);
    }
}
