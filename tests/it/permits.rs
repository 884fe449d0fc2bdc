//! Permits: however many callers there are, the provider makes no more than was permitted, and no room
//! is lost.

use std::time::Duration;

use oncegate_ledger::{Append, Event, Expect, StreamId};
use oncegate_sandbox::outcome::{Code, Status};
use oncegate_tests::harness::{Guest, Harness, Options, Run};
use oncegate_tests::provider::domains::STANDING_AMOUNT;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{Heard, call, refund};
use crate::attacks::change_policy;
use crate::many::{at_once, now};

const TOOL: &str = "issue-refund";
const REFUNDS: &str = "/v1/refunds";
/// Nobody is to be answered before the provider was.
const PATIENT: &str =
    "answer-within = \"110s\"\nwall-time = \"110s\"\nsend-within = \"100s\"\nconnect-within = \"60s\"\n";

/// A guest whose effects need a permit.
fn permitted(guest: &str) -> Harness {
    let options = Options { limits: PATIENT.to_owned(), ..Options::default() };
    let harness = Harness::with(Guest::example(guest).unwrap(), options).unwrap();
    change_policy(&harness, "tenants = [\"acme\"]", "tenants = [\"acme\"]\nrequires = [\"permit\"]");
    harness
}

fn run(harness: &Harness, arguments: &[&str]) -> Run {
    let run = harness.run(&[&["permit"], arguments].concat()).unwrap();
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    run
}

/// Grants a permit for refunds and emails.
fn grant(harness: &Harness, id: &str, bounds: &[&str]) {
    let start = ["grant", id, "--tenant", "acme", "--operation", "create-refund", "--operation", "send-email"];
    let by = ["--reason", "a test", "--actor", "ada"];
    let run = run(harness, &[&start[..], bounds, &by].concat());
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
}

fn revoke(harness: &Harness, id: &str) {
    let run = run(harness, &["revoke", id, "--reason", "a test", "--actor", "ada"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
}

/// A permit as `permit list` tells it.
fn listed(harness: &Harness, id: &str) -> Value {
    let run = run(harness, &["list", "--json"]);
    let lines = run.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.into_iter().find(|line| line["permit"]["id"] == id).unwrap_or_else(|| panic!("{}", run.stdout))
}

fn count(harness: &Harness, kind: &str) -> usize {
    harness.provider().count(kind).unwrap()
}

/// How often the provider was asked, whatever it answered.
fn asked(harness: &Harness, path: &str) -> usize {
    harness.provider().log().unwrap().iter().filter(|one| one.method == "POST" && one.path == path).count()
}

#[track_caller]
fn is_refused(heard: &Heard, code: &str) {
    assert_eq!((heard.status(), heard.json["code"].as_str()), ("refused", Some(code)), "{heard:#?}");
    assert!(!heard.json["message"].as_str().unwrap().contains("oncegate"), "{heard:#?}");
}

/// So many callers, each with a return of its own, and what the provider made of it.
fn spend(callers: usize, hosts: usize, bounds: &[&str], expected: usize) {
    let harness = permitted("refunds");
    grant(&harness, "p", bounds);
    let facts = || vec![("permit", "p".to_owned())];
    let calls = (0..callers).map(|n| (TOOL, refund(&format!("R-{n}"), "at once"), facts())).collect();
    let heard = at_once(&harness, hosts, calls);
    assert!(count(&harness, "refund") <= expected, "{} of {expected}", count(&harness, "refund"));
    let done = heard.iter().filter(|outcome| outcome.status == Status::Done).count();
    assert_eq!(done, count(&harness, "refund"));
    for outcome in &heard {
        let told = matches!(outcome.status, Status::Done | Status::Failed)
            || (outcome.status == Status::Refused && outcome.code == Some(Code::PermitExceeded));
        assert!(told, "{outcome:#?}");
    }
    // A send that a full machine did not get out gave its room back; nobody may have lost it.
    let mut n = callers;
    while count(&harness, "refund") < expected && n < callers + expected {
        call(&harness, TOOL, &refund(&format!("R-{n}"), "afterwards"), &["permit=p"]);
        n += 1;
    }
    is_refused(&call(&harness, TOOL, &refund("R-9999999", "one more"), &["permit=p"]), "permit_exceeded");
    assert_eq!(count(&harness, "refund"), expected);
    assert_eq!(listed(&harness, "p")["effects"]["used"], expected);
}

#[test]
fn no_number_of_callers_overspends_a_count() {
    spend(512, 8, &["--count", "100", "--sum", "amount=10000000"], 100);
}

#[test]
fn no_number_of_callers_overspends_a_sum() {
    let max = format!("amount={}", 30 * STANDING_AMOUNT + STANDING_AMOUNT - 1);
    spend(128, 2, &["--count", "64", "--sum", &max], 30);
}

#[test]
fn what_failed_gives_its_room_back() {
    let harness = permitted("refunds");
    grant(&harness, "p", &["--count", "2", "--sum", "amount=100000"]);
    harness.provider().mode(Mode::Reject402, "POST", REFUNDS, Some(3)).unwrap();
    for n in 0..3 {
        let heard = call(&harness, TOOL, &refund(&format!("R-{n}"), "declined"), &["permit=p"]);
        assert_eq!(heard.status(), "failed", "{heard:#?}");
        let left = listed(&harness, "p");
        assert_eq!((&left["effects"]["used"], &left["sums"]["amount"]["left"]), (&json!(0), &json!(100_000)), "{left}");
    }
    // The same key again reserves anew, once.
    for n in 0..2 {
        let heard = call(&harness, TOOL, &refund(&format!("R-{n}"), "again"), &["permit=p"]);
        assert_eq!(heard.status(), "done", "{heard:#?}");
    }
    let left = listed(&harness, "p");
    assert_eq!((&left["effects"]["left"], &left["sums"]["amount"]["left"]), (&json!(0), &json!(0)), "{left}");
    is_refused(&call(&harness, TOOL, &refund("R-2", "again"), &["permit=p"]), "permit_exceeded");
    assert_eq!(count(&harness, "refund"), 2);
}

#[test]
fn a_stored_answer_needs_no_permit() {
    let harness = permitted("refunds");
    is_refused(&call(&harness, TOOL, &refund("R-1", "without"), &[]), "context_missing");
    grant(&harness, "p", &["--count", "1"]);
    let first = call(&harness, TOOL, &refund("R-1", "with"), &["permit=p"]);
    assert_eq!(first.status(), "done", "{first:#?}");
    revoke(&harness, "p");
    for facts in [&[][..], &["permit=p"], &["permit=no-such"]] {
        call(&harness, TOOL, &refund("R-1", "again"), facts).is_replay_of(first.receipts()[0]);
    }
    for facts in [["permit=p"], ["permit=no-such"]] {
        is_refused(&call(&harness, TOOL, &refund("R-2", "new"), &facts), "permit_exceeded");
    }
    assert_eq!(asked(&harness, REFUNDS), 1);
}

#[test]
fn a_permit_covers_what_it_names() {
    let harness = permitted("refunds");
    grant(&harness, "elsewhere", &["--owner", "acme-campaign"]);
    grant(&harness, "other-build", &["--component", &format!("sha256:{}", "0".repeat(64))]);
    grant(&harness, "other-field", &["--sum", "reason=10"]);
    grant(&harness, "with-currency", &["--sum", "amount=500000:USD"]);
    let one = ["grant", "emails", "--tenant", "acme", "--operation", "send-email", "--reason", "x", "--actor", "ada"];
    assert_eq!(run(&harness, &one).code, Some(0));
    for id in ["elsewhere", "other-build", "other-field", "with-currency", "emails"] {
        let heard = call(&harness, TOOL, &refund("R-1", id), &[&format!("permit={id}")]);
        is_refused(&heard, "permit_exceeded");
    }
    assert_eq!(asked(&harness, REFUNDS), 0);
    grant(&harness, "right", &["--owner", "acme-refunds"]);
    assert_eq!(call(&harness, TOOL, &refund("R-1", "right"), &["permit=right"]).status(), "done");
}

#[test]
fn a_permit_is_granted_once_and_never_changed() {
    let harness = permitted("refunds");
    grant(&harness, "p", &["--count", "1"]);
    grant(&harness, "p", &["--count", "1"]);
    let words = ["grant", "p", "--tenant", "acme", "--operation", "create-refund", "--count", "9"];
    let more = run(&harness, &[&words[..], &["--reason", "more", "--actor", "ada"]].concat());
    assert_eq!(more.code, Some(1), "{}", more.stdout);
    assert_eq!(listed(&harness, "p")["effects"]["granted"], 1);
    revoke(&harness, "p");
    revoke(&harness, "p");
    assert_eq!(listed(&harness, "p")["state"], "revoked");
}

#[test]
fn a_clock_that_was_set_back_lengthens_no_permit() {
    let harness = permitted("refunds");
    grant(&harness, "p", &["--expires", "30m"]);
    assert_eq!(call(&harness, TOOL, &refund("R-1", "in time"), &["permit=p"]).status(), "done");
    // Somebody saw a time that is an hour ahead of this machine's.
    let hour = Duration::from_secs(3600).as_millis() as u64;
    stamp(&harness, now() + hour);
    is_refused(&call(&harness, TOOL, &refund("R-2", "late"), &["permit=p"]), "permit_exceeded");
    assert_eq!(asked(&harness, REFUNDS), 1);
    // Within the error of clocks it has ended already.
    grant(&harness, "short", &["--expires", "3s"]);
    is_refused(&call(&harness, TOOL, &refund("R-2", "late"), &["permit=short"]), "permit_exceeded");
}

fn stamp(harness: &Harness, at: u64) {
    let url = format!("redb:{}", harness.home().join("ledger.redb").display());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ledger = oncegate_ledger::open(&url).await.unwrap();
        let event =
            Event::HostFenced { host: [7; 16], actor: "ada".into(), reason: "a test".into(), decision: None, at };
        ledger.append(vec![Append::new(StreamId::host([7; 16]), Expect::Version(0), event)]).await.unwrap();
    });
}

// An answer that was lost: the stored request may be sent again, under the reservation that stands.

fn email(words: &str) -> Value {
    json!({ "subject": words, "body": words, "recipients": ["reader@example.com"] })
}

fn send(harness: &Harness, words: &str, permit: &str) -> Heard {
    call(harness, "send-campaign", &email(words), &["trigger=spring", permit])
}

/// An email that nobody knows of, sent under the permit `p` of the grant `g`, which has room for one.
fn in_doubt() -> Harness {
    let harness = permitted("campaign");
    grant(&harness, "p", &["--count", "1", "--grant", "g"]);
    harness.provider().mode(Mode::Error503Before, "POST", "/v1/emails", Some(2)).unwrap();
    let heard = send(&harness, "first", "permit=p");
    assert_eq!((heard.status(), heard.json["detail"].as_str()), ("pending", Some("unknown")), "{heard:#?}");
    assert_eq!(listed(&harness, "p")["effects"]["left"], 0);
    harness
}

#[test]
fn a_key_is_reserved_and_not_an_attempt() {
    let harness = in_doubt();
    harness.provider().clear().unwrap();
    let heard = send(&harness, "again", "permit=p");
    assert!(heard.is_success(), "{heard:#?}");
    assert_eq!(listed(&harness, "p")["effects"]["used"], 1);
    assert_eq!(count(&harness, "email"), 1);
}

#[test]
fn another_permit_of_the_same_grant_goes_on_with_a_key() {
    let harness = in_doubt();
    harness.provider().clear().unwrap();
    revoke(&harness, "p");
    let before = asked(&harness, "/v1/emails");
    // Revoked: what may have happened is told, and nothing is sent again.
    let heard = send(&harness, "revoked", "permit=p");
    assert_eq!((heard.status(), heard.json["detail"].as_str()), ("pending", Some("unknown")), "{heard:#?}");
    grant(&harness, "stranger", &[]);
    is_refused(&send(&harness, "another grant", "permit=stranger"), "idempotency_key_reused");
    assert_eq!(asked(&harness, "/v1/emails"), before);
    grant(&harness, "second", &["--count", "1", "--grant", "g"]);
    let heard = send(&harness, "the same grant", "permit=second");
    assert!(heard.is_success(), "{heard:#?}");
    assert_eq!(listed(&harness, "second")["effects"]["used"], 0);
    assert_eq!(listed(&harness, "p")["effects"]["used"], 1);
    assert_eq!(count(&harness, "email"), 1);
}
