//! What of a person's words is on disk, and what is left of them after an erasure: by the bytes of all files, and by
//! the provider's own count.

use std::fs;
use std::path::Path;
use std::process::Command;

use oncegate_tests::harness::{Harness, Run, SECRET, TENANT};
use oncegate_tests::killat::{Call, KillPoint};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{call, is_sound, refund, refunds};
use crate::raw_answers::{Scene, Then, answer};
use crate::verbs::row;

const TOOL: &str = "issue-refund";
/// In the text that the model worded.
const REASON: &str = "reason-marker-51fd";
/// In the label: an identifier of the return.
const RETURN: &str = "R-7700931155";

/// A refund's harness whose ledger is encrypted under a master key in a file of its own.
fn encrypted() -> Harness {
    let harness = Harness::new("refunds").unwrap();
    encrypt(&harness);
    harness
}

fn encrypt(harness: &Harness) {
    let master = harness.folder().join("master.key");
    fs::write(&master, "5a".repeat(32)).unwrap();
    append(harness, &format!("\n[privacy]\nencrypt = true\nkey-from = \"file:{}\"\n", master.display()));
}

fn append(harness: &Harness, text: &str) {
    let file = harness.home().join("policy.toml");
    let policy = fs::read_to_string(&file).unwrap();
    fs::write(&file, policy + text).unwrap();
}

/// Whether any file under the folder holds these bytes.
fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holds(&path, text);
        }
        fs::read(&path).is_ok_and(|bytes| memchr::memmem::find(&bytes, text.as_bytes()).is_some())
    })
}

fn keys(harness: &Harness) -> Vec<String> {
    let folder = fs::read_dir(harness.home().join("ledger.redb.keys"));
    let names = folder.into_iter().flatten().flatten().map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".key")).collect()
}

#[track_caller]
fn done(harness: &Harness, id: &str, parent: &[&str]) -> String {
    let heard = call(harness, TOOL, &refund(id, &format!("{REASON} of {id}")), parent);
    assert_eq!(heard.status(), "done", "{heard:#?}");
    heard.receipts()[0].to_owned()
}

fn erase(harness: &Harness, words: &[&str]) -> Run {
    let mut command = erasing(harness);
    command.args(words);
    Run::of(&mut command).unwrap()
}

fn erasing(harness: &Harness) -> Command {
    let mut command = harness.command();
    command.args(["ledger", "erase", "--json", "--reason", "asked for", "--actor", "ada"]);
    command
}

/// The version that an erasure has to expect, as the command says it.
#[track_caller]
fn version(harness: &Harness, target: &[&str]) -> String {
    let run = erase(harness, target);
    assert_eq!(run.code, Some(0), "{run:?}");
    run.json().unwrap()["version"].to_string()
}

/// Another amount of the same return: a bound value.
#[track_caller]
fn other_amount_is_refused(harness: &Harness, id: &str, parent: &[&str]) {
    let other = json!({ "return_id": id, "reason": "less", "amount": 1 });
    let heard = call(harness, TOOL, &other, parent);
    assert_eq!(heard.json["code"], "idempotency_key_reused", "{heard:#?}");
}

#[test]
fn encrypted_text_is_nowhere_on_disk_and_erased_text_nowhere_at_all() {
    let clear = Harness::new("refunds").unwrap();
    done(&clear, RETURN, &["parent=case-1"]);
    for marker in [REASON, RETURN] {
        assert!(holds(&clear.home(), marker), "the control: {marker}");
    }
    assert!(!clear.home().join("ledger.redb.keys").exists(), "nothing is encrypted where nothing asks for it");

    let harness = encrypted();
    let receipt = done(&harness, RETURN, &["parent=case-1"]);
    for marker in [REASON, RETURN] {
        assert!(!holds(&harness.home(), marker), "{marker}");
    }
    assert_eq!(keys(&harness).len(), 1);
    // Those who may read it do: the label, the request and the answer.
    let shown = harness.run(&["ledger", "show", &format!("refund {RETURN}"), "--json"]).unwrap().json().unwrap();
    assert_eq!(shown["dispatch"]["request"]["method"], "POST", "{shown}");
    assert!(shown["attempts"][0]["answer"].is_string());
    call(&harness, TOOL, &refund(RETURN, "again"), &["parent=case-1"]).is_replay_of(&receipt);
    is_sound(&harness);

    let target = ["--parent", "acme/case-1"];
    let expect = version(&harness, &target);
    let run = erase(&harness, &[&target[..], &["--expect-version", &expect]].concat());
    let told = run.json().unwrap();
    assert_eq!((run.code, &told["recorded"], told["effects"].as_array().unwrap().len()), (Some(0), &json!(true), 1));
    let again = erase(&harness, &[&target[..], &["--expect-version", &expect]].concat());
    assert_eq!((again.code, &again.json().unwrap()["recorded_before"]), (Some(0), &json!(true)));
    assert!(keys(&harness).is_empty());

    // Whoever has the folder, old pages and the master key has no key that opens anything.
    assert!(!holds(harness.folder(), REASON));
    let label = row(&harness, "refund (erased)");
    assert_eq!((&label["state"], &label["receipt"], &label["erased"]), (&json!("done"), &json!(receipt), &json!(true)));
    let key = label["key"].as_str().unwrap();
    let shown = harness.run(&["ledger", "show", key]).unwrap();
    assert!(shown.code == Some(0) && shown.stdout.contains("erased: who and why"), "{shown:?}");
    assert!(shown.stdout.contains("ada: asked for"), "{shown:?}");
    let heard = call(&harness, TOOL, &refund(RETURN, "once more"), &["parent=case-1"]);
    heard.is_replay_of(&receipt);
    other_amount_is_refused(&harness, RETURN, &["parent=case-1"]);
    assert_eq!(refunds(&harness), 1);
    is_sound(&harness);
    let export = harness.folder().join("export.ndjson");
    fs::write(&export, harness.run(&["ledger", "export"]).unwrap().stdout).unwrap();
    let checked = harness.run(&["ledger", "verify", "--export", export.to_str().unwrap()]).unwrap();
    assert_eq!(checked.code, Some(0), "{checked:?}");
    // The parent goes on, under its next key.
    done(&harness, "R-2", &["parent=case-1"]);
    assert_eq!(refunds(&harness), 2);
    assert_eq!(keys(&harness).len(), 1);
    assert_eq!(row(&harness, "refund R-2")["erased"], false);
}

#[test]
fn one_effect_without_a_parent_is_erased_by_its_key() {
    let harness = encrypted();
    let receipt = done(&harness, RETURN, &[]);
    done(&harness, "R-2", &["parent=case-1"]);
    let label = format!("refund {RETURN}");
    let expect = version(&harness, &[&label]);
    // A decision rests on what was seen.
    let stale = erase(&harness, &[&label, "--expect-version", "1"]);
    assert_eq!((stale.code, stale.json().unwrap()["refused"].is_string()), (Some(3), true), "{stale:?}");
    let run = erase(&harness, &[&label, "--expect-version", &expect]);
    assert_eq!(run.code, Some(0), "{run:?}");
    call(&harness, TOOL, &refund(RETURN, "again"), &[]).is_replay_of(&receipt);
    other_amount_is_refused(&harness, RETURN, &[]);
    // What belongs to something is erased with all of that.
    let run = erase(&harness, &["refund R-2", "--expect-version", "1"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("--parent 'acme/case-1'"), "{run:?}");
    assert_eq!(refunds(&harness), 2);
    is_sound(&harness);
}

#[test]
fn what_nobody_knows_yet_is_not_erased() {
    let harness = encrypted();
    harness.provider().mode(Mode::CompleteThenHang, "POST", "/v1/refunds", Some(1)).unwrap();
    harness.provider().settings(&Settings { lists_down: true, ..Settings::default() }).unwrap();
    let policy = harness.home().join("policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, text.replace("[limits]\n", "[limits]\nrequest-deadline = \"1s\"\nidle = \"1s\"\n")).unwrap();
    let heard = call(&harness, TOOL, &refund("R-1", REASON), &["parent=case-1"]);
    assert_eq!(heard.status(), "pending", "{heard:#?}");
    let run = erase(&harness, &["--parent", "acme/case-1", "--expect-version", "3"]);
    let told = run.json().unwrap();
    assert_eq!((run.code, told["open"].as_array().unwrap().len()), (Some(3), 1), "{run:?}");
    assert_eq!(keys(&harness).len(), 1, "and its text is still there to settle it with");
    harness.provider().settings(&Settings::default()).unwrap();
    let settled = call(&harness, TOOL, &refund("R-1", REASON), &["parent=case-1"]);
    assert_eq!(settled.receipts().len(), 1, "{settled:#?}");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_key_that_is_lost_is_damage_and_the_effect_answers_all_the_same() {
    let harness = encrypted();
    let receipt = done(&harness, RETURN, &["parent=case-1"]);
    let folder = harness.home().join("ledger.redb.keys");
    fs::remove_file(folder.join(&keys(&harness)[0])).unwrap();
    call(&harness, TOOL, &refund(RETURN, "again"), &["parent=case-1"]).is_replay_of(&receipt);
    other_amount_is_refused(&harness, RETURN, &["parent=case-1"]);
    let key = row(&harness, "refund (not readable)")["key"].as_str().unwrap().to_owned();
    for words in [&["ledger", "verify"][..], &["ledger", "show", &key][..]] {
        let run = harness.run(words).unwrap();
        assert_eq!(run.code, Some(6), "{run:?}");
        let told = format!("{}{}", run.stdout, run.stderr);
        assert!(told.contains("no erasure is on record"), "{run:?}");
    }
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn encryption_that_is_switched_on_later_leaves_what_was_and_says_what_no_key_destroys() {
    let harness = Harness::new("refunds").unwrap();
    let first = done(&harness, "R-1", &["parent=case-1"]);
    encrypt(&harness);
    let second = done(&harness, "R-2", &["parent=case-1"]);
    let expect = version(&harness, &["--parent", "acme/case-1"]);
    let run = erase(&harness, &["--parent", "acme/case-1", "--expect-version", &expect]);
    let told = run.json().unwrap();
    assert_eq!((run.code, told["in_clear"].as_array().unwrap().len()), (Some(4), 1), "{run:?}");
    assert_eq!(row(&harness, "refund R-1")["receipt"], json!(first));
    assert_eq!(row(&harness, "refund (erased)")["receipt"], json!(second));
    // Switched off, what was encrypted stays encrypted and readable.
    done(&harness, "R-3", &["parent=case-2"]);
    let policy = fs::read_to_string(harness.home().join("policy.toml")).unwrap();
    fs::write(harness.home().join("policy.toml"), policy.replace("encrypt = true", "encrypt = false")).unwrap();
    assert_eq!(row(&harness, "refund R-3")["state"], "done");
    done(&harness, "R-4", &["parent=case-2"]);
    assert!(
        holds(&harness.home(), &format!("{REASON} of R-4")) && !holds(&harness.home(), &format!("{REASON} of R-3"))
    );
    is_sound(&harness);
}

#[test]
fn an_answer_that_echoes_its_credential_is_never_on_disk_in_clear() {
    // Long enough to be stored as it arrives, with the secret across every place where it may be cut.
    let echo = |body: &[u8]| {
        let mut object: Value = serde_json::from_slice(body).unwrap();
        object["status"] = json!(format!("Bearer {SECRET} ").repeat(12_000));
        answer("200 OK", object.to_string().as_bytes())
    };
    let scene = Scene::start(echo, Then::Close);
    let harness = &scene.harness;
    let heard = call(harness, TOOL, &refund("R-1", "first"), &[]);
    assert_eq!(heard.status(), "done", "{}", heard.json["status"]);
    assert!(!heard.json.to_string().contains(SECRET));
    assert!(!holds(&harness.home(), SECRET));
    let key = row(harness, "refund R-1")["key"].as_str().unwrap().to_owned();
    for words in [&["ledger", "show", &key][..], &["ledger", "show", &key, "--json"][..], &["ledger", "export"][..]] {
        let run = harness.run(words).unwrap();
        assert!(run.code == Some(0) && !run.stdout.contains(SECRET), "{words:?} {:?}", run.code);
    }
    let shown = harness.run(&["ledger", "show", &key, "--json"]).unwrap().json().unwrap();
    assert_eq!(shown["attempts"][0]["gives_its_credential_away"], true);
    assert!(shown["attempts"][0]["evidence"]["pieces"].as_u64().unwrap() > 1, "it was stored as it came");
    // The host itself reads it, to replay it.
    let again = call(harness, TOOL, &refund("R-1", "again"), &[]);
    again.is_replay_of("re_000001");
    assert!(!again.json.to_string().contains(SECRET));
    is_sound(harness);
    assert_eq!(refunds(harness), 1);
}

#[test]
fn an_erasure_that_is_killed_anywhere_is_whole_or_has_not_begun() {
    let harness = encrypted();
    let fsyncs = (1..=6).map(|nth| KillPoint::after(Call::Fsync, nth));
    let fdatasyncs = (1..=6).map(|nth| KillPoint::before(Call::Fdatasync, nth));
    let mut killed = 0;
    let mut on_record = 0;
    let points: Vec<KillPoint> = fsyncs.chain(fdatasyncs).collect();
    for (n, point) in points.iter().enumerate() {
        let (id, parent) = (format!("R-{n}"), format!("acme/case-{n}"));
        let fact = format!("parent=case-{n}");
        let receipt = done(&harness, &id, &[&fact]);
        let target = ["--parent", parent.as_str()];
        let expect = version(&harness, &target);
        let mut command = erasing(&harness);
        command.args(target).args(["--expect-version", &expect]);
        point.apply(&mut command).unwrap();
        killed += usize::from(Run::of(&mut command).unwrap().was_killed());
        // Half told: neither a text beside an erasure, nor an erasure without its end at the next look.
        call(&harness, TOOL, &refund(&id, "meanwhile"), &[&fact]).is_replay_of(&receipt);
        let erased = !holds_label(&harness, &id);
        on_record += usize::from(erased);
        if erased {
            assert!(keys(&harness).is_empty(), "{point}: whoever opens the ledger completes it");
        }
        is_sound(&harness);
        let run = erase(&harness, &[&target[..], &["--expect-version", &expect]].concat());
        assert_eq!(run.code, Some(0), "{point}: {run:?}");
        assert!(keys(&harness).is_empty() && !holds_label(&harness, &id), "{point}");
        call(&harness, TOOL, &refund(&id, "after"), &[&fact]).is_replay_of(&receipt);
    }
    assert!(killed >= 6 && on_record >= 1 && on_record < killed, "{killed} killed, {on_record} on record");
    assert_eq!(refunds(&harness), points.len());
    is_sound(&harness);
}

fn holds_label(harness: &Harness, id: &str) -> bool {
    let run = harness.run(&["ledger", "list", "--json", "--limit", "0"]).unwrap();
    let label = format!("refund {id}");
    run.stdout.lines().any(|line| serde_json::from_str::<Value>(line).unwrap()["label"] == label.as_str())
}

#[test]
fn a_master_key_that_cannot_be_read_stops_effects_and_no_answers() {
    let harness = encrypted();
    let receipt = done(&harness, "R-1", &[]);
    let master = harness.folder().join("master.key");
    let text = fs::read_to_string(&master).unwrap();
    for wrong in [None, Some("not a key"), Some(&*"ff".repeat(32))] {
        match wrong {
            None => fs::remove_file(&master).unwrap(),
            Some(text) => fs::write(&master, text).unwrap(),
        }
        let replay = call(&harness, TOOL, &refund("R-1", "again"), &[]);
        replay.is_replay_of(&receipt);
        if wrong.is_none_or(|text| text.len() < 64) {
            let refused = call(&harness, TOOL, &refund("R-2", "new"), &[]);
            assert_eq!(refused.json["code"], "ledger_unavailable", "{refused:#?}");
            let doctor = harness.run(&["doctor"]).unwrap();
            assert!(doctor.code == Some(1) && doctor.stdout.contains("master key"), "{doctor:?}");
        }
    }
    fs::write(&master, text).unwrap();
    assert_eq!(refunds(&harness), 1);
    assert_eq!(row(&harness, "refund R-1")["tenant"], TENANT);
    done(&harness, "R-2", &[]);
}
