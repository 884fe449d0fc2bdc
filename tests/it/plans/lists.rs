//! Freezing lists of every kind: whole or not at all, once, and taken up where it was cut off.

use std::process::Command;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Run, Running};
use oncegate_tests::killat::{Call, KillPoint, log_calls, read_calls};
use serde_json::{Value, json};

use super::{Standing, drive, emails, everyone_once, freeze, frozen, list, payouts, readers, refunds};

/// Reads the list of what stands in the way.
#[track_caller]
fn unresolved(run: &Run) -> Vec<(String, String)> {
    assert_eq!(run.code, Some(3), "{run:?}");
    let json = run.json().unwrap();
    assert_eq!(json["frozen"], false, "{json}");
    let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    json["unresolved"].as_array().unwrap().iter().map(|one| (text(one, "place"), text(one, "why"))).collect()
}

#[track_caller]
fn nothing_frozen(harness: &Harness, plan: &str) {
    let run = harness.run(&["plan", "status", plan]).unwrap();
    assert!(run.code == Some(1) && run.stderr.contains("there is no plan"), "{run:?}");
    let planned = harness.run(&["ledger", "list", "--json", "--limit", "0"]).unwrap();
    assert_eq!(planned.stdout, "", "rows were written");
}

#[test]
fn a_list_with_targets_that_cannot_be_resolved_is_refused_whole() {
    let harness = payouts();
    harness
        .provider()
        .seed(&json!({ "returns": [{ "id": "R-3", "charge": "ch_3", "amount": 9, "status": "refunded" }] }))
        .unwrap();
    let text = "return_id,plan.amount\nR-1,100\nunknown,5\nR-2,\nR-3,7\n";
    let run = freeze(&harness, "may", "pay", &["--targets", &list(&harness, "due.csv", text)]);
    let told = unresolved(&run);
    let places: Vec<_> = told.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["line 3", "line 4", "line 5"], "{told:?}");
    assert!(told[1].1.contains("amount"), "{told:?}");
    assert!(told[2].1.contains("asked for no effect"), "{told:?}");
    nothing_frozen(&harness, "may");
    assert_eq!(refunds(&harness), 0);
}

#[test]
fn one_effect_is_in_one_target() {
    let harness = payouts();
    // The same line twice is one target; the same return with another amount is a contradiction.
    let twice = list(&harness, "twice.csv", "return_id,plan.amount\nR-1,100\nR-2,5\nR-1,100\n");
    let said = frozen(&freeze(&harness, "twice", "pay", &["--targets", &twice]));
    assert_eq!((&said["targets"], &said["repeated"]), (&json!(2), &json!(1)), "{said}");
    let other = list(&harness, "other.csv", "return_id,remark,plan.amount\nR-4,,100\nR-4,,101\nR-4,x,100\n");
    let told = unresolved(&freeze(&harness, "other", "pay", &["--targets", &other]));
    let places: Vec<_> = told.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["line 3", "line 4"], "{told:?}");
    assert!(told.iter().all(|(_, why)| why.contains("line 2")), "{told:?}");
}

#[test]
fn a_csv_list_is_read_as_it_was_meant() {
    let harness = Harness::new("campaign").unwrap();
    let text = "\u{feff}subject,body,recipients\r\n\
                \"Für \"\"Zoë\"\", ☃\",\"two\r\nlines\",\"[\"\"zoe@example.com\"\"]\"\r\n\
                ,,\"[\"\"Empty@Example.com\"\"]\"\r\n";
    let file = list(&harness, "readers.CSV", text);
    frozen(&freeze(&harness, "spring", "send-campaign", &["--targets", &file, "--context", "trigger=t"]));
    let run = drive(&harness, "spring", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let mut sent: Vec<_> = harness.provider().effects().unwrap().into_iter().map(|effect| effect.object).collect();
    sent.sort_by_key(|object| object["to"].as_str().unwrap().to_owned());
    let fields = |object: &Value| ["to", "subject", "body"].map(|name| object[name].as_str().unwrap().to_owned());
    assert_eq!(fields(&sent[0]), ["empty@example.com", "", ""]);
    assert_eq!(fields(&sent[1]), ["zoe@example.com", "Für \"Zoë\", ☃", "two\r\nlines"]);
}

#[test]
fn a_list_that_is_none_is_refused() {
    let harness = payouts();
    for (name, text, code, part) in [
        ("a.csv", "return_id,colour\nR-1,red\n", 1, "no property `colour`"),
        ("a.csv", "return_id,plan.colour\nR-1,red\n", 1, "no field `colour`"),
        ("a.csv", "return_id\nR-1,more\n", 1, "line 2 has 2 cells"),
        ("a.csv", "return_id\n", 1, "no targets"),
        ("a.csv", "", 1, "no header"),
        ("a.json", "{}", 1, "no array"),
        ("a.json", "[", 1, "no JSON"),
        ("a.txt", "R-1", 2, ".json or .csv"),
    ] {
        let run = freeze(&harness, "may", "pay", &["--targets", &list(&harness, name, text)]);
        assert_eq!(run.code, Some(code), "{text:?}: {run:?}");
        assert!(run.stderr.contains(part), "{text:?}: {run:?}");
    }
    let many: Value = (0..10_001).map(|n| json!({ "return_id": format!("R-{n}") })).collect();
    let run = freeze(&harness, "may", "pay", &["--targets", &list(&harness, "many.json", &many.to_string())]);
    assert!(run.code == Some(1) && run.stderr.contains("at most 10000"), "{run:?}");
    nothing_frozen(&harness, "may");
}

#[test]
fn a_dry_run_gives_the_targets() {
    let harness = payouts();
    harness
        .provider()
        .seed(&json!({ "returns": [{ "id": "R-12", "charge": "ch_12", "amount": 9, "status": "refunded" }] }))
        .unwrap();
    let from = ["--targets-from", "due", "--args", r#"{"first": 10, "count": 5}"#];
    let said = frozen(&freeze(&harness, "may", "pay", &from));
    assert_eq!(said["targets"], 4, "{said}");
    assert_eq!(refunds(&harness), 0);
    let run = drive(&harness, "may", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let mut amounts: Vec<_> =
        harness.provider().effects().unwrap().iter().map(|effect| effect.object["amount"].as_i64().unwrap()).collect();
    amounts.sort_unstable();
    assert_eq!(amounts, [10, 11, 13, 14]);
    // A tool that can act gives no list, and one that only reads is not planned.
    let acts = freeze(&harness, "june", "pay", &["--targets-from", "pay", "--args", r#"{"return_id": "R-1"}"#]);
    assert!(acts.code == Some(1) && acts.stderr.contains("can cause effects"), "{acts:?}");
    let reads = freeze(&harness, "june", "due", &from);
    assert_eq!(reads.code, Some(1), "{reads:?}");
    assert_eq!(refunds(&harness), 4);
}

fn campaign(harness: &Harness, targets: usize) -> Run {
    let file = list(harness, "readers.json", &readers(targets).to_string());
    freeze(harness, "spring", "send-campaign", &["--targets", &file, "--context", "trigger=spring"])
}

/// The same, not yet started.
fn command(harness: &Harness, targets: usize) -> Command {
    let file = list(harness, "readers.json", &readers(targets).to_string());
    let mut command = harness.command();
    command.args(["--json", "plan", "freeze", "spring"]).arg(harness.component()).arg("send-campaign");
    command.args(["--targets", &file, "--context", "trigger=spring", "--reason", "a test", "--actor", "tester"]);
    command
}

#[test]
fn a_frozen_plan_never_changes() {
    let harness = Harness::new("campaign").unwrap();
    frozen(&campaign(&harness, 3));
    let again = frozen(&campaign(&harness, 3));
    assert_eq!((&again["again"], &again["written"]), (&json!(true), &json!(0)), "{again}");
    assert_eq!(again["existing"], json!([]), "its own rows are no others: {again}");
    for targets in [2, 4] {
        let run = campaign(&harness, targets);
        assert_eq!(run.code, Some(3), "{run:?}");
        assert!(run.stderr.contains("other content"), "{run:?}");
    }
    let file = list(&harness, "readers.json", &readers(3).to_string());
    let run = freeze(&harness, "spring", "send-campaign", &["--targets", &file, "--context", "trigger=summer"]);
    assert!(run.code == Some(3) && run.stderr.contains("context"), "{run:?}");
    Standing::of(&harness, "spring", &[]).is(&[("approved", 3)], 4);
}

#[test]
fn a_freeze_that_is_killed_is_finished_by_the_same_again() {
    const TARGETS: usize = 450;
    let command = |harness: &Harness| command(harness, TARGETS);
    let watched = Harness::new("campaign").unwrap();
    let log = watched.folder().join("calls");
    let mut whole = command(&watched);
    log_calls(&mut whole, &log).unwrap();
    frozen(&Run::of(&mut whole).unwrap());
    let syncs: Vec<_> = read_calls(&log).unwrap().into_iter().filter(|seen| seen.call == "fdatasync").collect();
    assert!(syncs.len() >= 4, "{syncs:?}");
    let (mut killed, mut half) = (0, 0);
    for n in 1..=u32::try_from(syncs.len()).unwrap() {
        let harness = Harness::new("campaign").unwrap();
        let mut cut = command(&harness);
        KillPoint::after(Call::Fdatasync, n).apply(&mut cut).unwrap();
        killed += usize::from(Run::of(&mut cut).unwrap().was_killed());
        let status = harness.run(&["--json", "plan", "status", "spring"]).unwrap();
        if status.code == Some(4) {
            let before = Standing { json: status.json().unwrap(), code: status.code };
            assert_eq!(before.count("approved") + before.count("never-sent"), TARGETS as u64);
            half += usize::from(before.count("never-sent") > 0);
        }
        frozen(&Run::of(&mut command(&harness)).unwrap());
        Standing::of(&harness, "spring", &[]).is(&[("approved", TARGETS as u64)], 4);
        assert_eq!(emails(&harness), 0);
    }
    assert!(killed >= 4 && half >= 1, "{killed} kills, {half} left a plan without all its rows");
}

#[test]
fn a_plan_without_its_rows_can_be_run() {
    let harness = Harness::new("campaign").unwrap();
    for n in 1..100 {
        let mut cut = command(&harness, 20);
        KillPoint::after(Call::Fdatasync, n).apply(&mut cut).unwrap();
        Run::of(&mut cut).unwrap();
        if harness.run(&["--json", "plan", "status", "spring"]).unwrap().code == Some(4) {
            break;
        }
    }
    let run = drive(&harness, "spring", &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    everyone_once(&harness, 20);
}

#[test]
fn five_thousand_targets_are_frozen_in_reasonable_time() {
    // Some ten seconds on an idle machine; a test machine may have much else to do.
    const REASONABLE: Duration = Duration::from_secs(300);
    let harness = Harness::new("campaign").unwrap();
    let run = Running::start(&mut command(&harness, 5_000)).unwrap().wait(REASONABLE).unwrap();
    println!("5,000 targets in {:?}", run.took);
    let said = frozen(&run);
    assert_eq!(said["written"], 5_000, "{said}");
    let started = Instant::now();
    Standing::of(&harness, "spring", &[]).is(&[("approved", 5_000)], 4);
    println!("compared in {:?}", started.elapsed());
    assert_eq!(emails(&harness), 0);
}
