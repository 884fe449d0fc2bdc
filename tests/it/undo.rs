//! What an effect's own undoing operation takes back may be done again; nothing else may.

use std::process::Command;
use std::time::Duration;

use oncegate_ledger::{Event, StateTag};
use oncegate_tests::harness::{Guest, Harness, Options, Run, Running};
use oncegate_tests::killat::{Call, KillPoint, log_calls, read_calls};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;

use crate::agent::{Heard, call, hear, with_limits};
use crate::attacks::clock;
use crate::book;
use crate::content_keys::{ROWS, counts, delete, delete_command, file, import, import_command, imports_of};
use crate::kills::points;

const IMPATIENT: &str = "idle = \"400ms\"";
/// Calls after which an interrupted one must have ended.
const RESTARTS: usize = 4;

fn states(harness: &Harness, state: StateTag) -> usize {
    book::rows(harness).iter().filter(|row| row.state == state).count()
}

fn imported(harness: &Harness, name: &str) -> String {
    let heard = import(harness, name);
    assert!(heard.is_success(), "{heard:#?}");
    heard.receipts()[0].to_owned()
}

fn until_it_ends(mut command: impl FnMut() -> Command) -> Heard {
    for _ in 1..RESTARTS {
        let heard = hear(&mut command());
        if heard.status() != "pending" {
            return heard;
        }
    }
    hear(&mut command())
}

#[track_caller]
fn is_refused(heard: &Heard, why: &str) {
    assert_eq!((heard.status(), &heard.json["code"]), ("refused", &"effect_not_permitted".into()), "{heard:#?}");
    let message = heard.json["message"].as_str().unwrap();
    assert!(message.contains(why) && message.contains("Nothing was sent"), "{heard:#?}");
}

#[test]
fn the_row_is_undone_by_the_deletion() {
    let harness = Harness::new("datasets").unwrap();
    let id = imported(&harness, "a");
    assert_eq!(delete(&harness, &id).status(), "done");
    let records = book::records(&harness);
    let undone = records.iter().find_map(|record| match record.event {
        Event::Undone { by, .. } => Some(by),
        _ => None,
    });
    let deletion = records
        .iter()
        .find(|record| matches!(&record.event, Event::Dispatched(dispatch) if dispatch.operation == "delete-dataset"));
    assert_eq!(undone, Some(deletion.unwrap().stream.id));
}

/// What the store lost by itself, or another took away, is as done as ever.
#[test]
fn a_404_elsewhere_changes_nothing() {
    let harness = Harness::new("datasets").unwrap();
    let id = imported(&harness, "a");
    let (status, _) = harness.provider().send("DELETE", &format!("/v1/datasets/{id}"), &[], &[]).unwrap();
    assert_eq!(status, 204);
    import(&harness, "a").is_replay_of(&id);
    // Our own deletion comes too late: the store says so, and nothing is undone.
    let heard = delete(&harness, &id);
    assert_eq!(heard.status(), "failed", "{heard:#?}");
    import(&harness, "a").is_replay_of(&id);
    assert_eq!(states(&harness, StateTag::Undone), 0);
    assert_eq!(counts(&harness), (1, 1));
}

#[test]
fn what_is_not_ours_is_deleted_and_undoes_nothing() {
    let harness = Harness::new("datasets").unwrap();
    let id = imported(&harness, "a");
    let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let body = format!("{{\"name\":\"foreign\",\"file\":\"\",\"digest\":\"{digest}\"}}");
    let foreign = harness.provider().send("POST", "/v1/datasets", &[], body.as_bytes()).unwrap();
    assert_eq!(foreign.0, 200, "{}", String::from_utf8_lossy(&foreign.1));
    assert_eq!(delete(&harness, "da_000002").status(), "done");
    assert_eq!(delete(&harness, "da_000002").status(), "already_done");
    assert_eq!(states(&harness, StateTag::Undone), 0);
    import(&harness, "a").is_replay_of(&id);
    assert_eq!(counts(&harness), (2, 1));
}

/// An import whose answer was lost may be the very object: while nobody knows, nothing is removed.
#[test]
fn what_may_not_exist_yet_cannot_be_undone() {
    let harness = with_limits("datasets", IMPATIENT);
    let provider = harness.provider();
    provider.settings(&Settings { lists_down: true, ..Settings::default() }).unwrap();
    provider.mode(Mode::CompleteThenHang, "POST", "/v1/datasets", None).unwrap();
    assert_eq!(import(&harness, "a").status(), "pending");
    is_refused(&delete(&harness, "da_000001"), "may be what this would undo");
    assert_eq!(counts(&harness), (1, 0));
    provider.clear().unwrap();
    assert_eq!(imported(&harness, "a"), "da_000001");
    assert_eq!(delete(&harness, "da_000001").status(), "done");
    assert_eq!(imported(&harness, "a"), "da_000002");
    assert_eq!(counts(&harness), (2, 1));
}

/// A store that names things by their place gives a second import the first one's identifier: undone,
/// done again and undone again are two deletions.
#[test]
fn an_identifier_that_comes_back_is_deleted_again() {
    let harness = Harness::new("datasets").unwrap();
    harness.provider().settings(&Settings { dataset_by_name: true, ..Settings::default() }).unwrap();
    for round in 1..=3 {
        assert_eq!(import(&harness, "a").status(), "done", "{round}");
        assert_eq!(import(&harness, "a").status(), "already_done", "{round}");
        assert_eq!(delete(&harness, "by-name-a").status(), "done", "{round}");
        assert_eq!(delete(&harness, "by-name-a").status(), "already_done", "{round}");
        assert_eq!(counts(&harness), (round, round));
        assert_eq!(states(&harness, StateTag::Undone), round);
    }
}

/// The store gives another import the first one's identifier: that is no receipt of it, and a deletion
/// by it undoes the first one alone.
#[test]
fn an_identifier_belongs_to_one_effect() {
    let harness = Harness::new("datasets").unwrap();
    harness.provider().settings(&Settings { dataset_by_name: true, ..Settings::default() }).unwrap();
    let [first, second] =
        ["2026", "2027"].map(|folder| call(&harness, "import-file", &file("team-7", folder, "a", ROWS), &[]));
    assert_eq!((first.status(), second.status()), ("done", "pending"), "{second:#?}");
    assert_eq!(second.receipts(), Vec::<&str>::new(), "{second:#?}");
    assert_eq!(delete(&harness, "by-name-a").status(), "done");
    assert_eq!((states(&harness, StateTag::Undone), states(&harness, StateTag::Unknown)), (1, 1));
    assert_eq!(counts(&harness), (2, 1));
}

/// Its history is dropped, its identity is not: it is deleted like any other.
#[test]
fn what_was_pruned_can_be_undone() {
    let policy = "\n[retention]\nreplay-window = \"1s\"\n".to_owned();
    let options = Options { policy, ..Options::default() };
    let harness = Harness::with(Guest::example("datasets").unwrap(), options).unwrap();
    let id = imported(&harness, "a");
    let mut prune = harness.command();
    prune.args(["ledger", "prune", "--without-parent", "--json"]);
    prune.env("LD_PRELOAD", clock(harness.folder())).env("CLOCK_SHIFT", (48 * 3600).to_string());
    assert_eq!(Run::of(&mut prune).unwrap().json().unwrap()["pruned"], 1);
    import(&harness, "a").is_replay_of(&id);
    assert_eq!(delete(&harness, &id).status(), "done");
    assert_eq!(states(&harness, StateTag::Undone), 1);
    assert_eq!(imported(&harness, "a"), "da_000002");
    assert_eq!(counts(&harness), (2, 1));
}

/// Nobody heard of the deletion: the import is done until it is known, and then it is not.
#[test]
fn a_deletion_whose_answer_was_lost_is_found_out() {
    let harness = with_limits("datasets", IMPATIENT);
    let id = imported(&harness, "a");
    let provider = harness.provider();
    provider.mode(Mode::CompleteThenHang, "DELETE", "/v1/datasets/*", None).unwrap();
    let heard = delete(&harness, &id);
    assert_eq!((heard.status(), &heard.json["detail"]), ("pending", &"unknown".into()), "{heard:#?}");
    import(&harness, "a").is_replay_of(&id);
    provider.clear().unwrap();
    let heard = delete(&harness, &id);
    assert!(heard.is_success(), "{heard:#?}");
    assert_eq!(imported(&harness, "a"), "da_000002");
    assert_eq!(counts(&harness), (2, 1));
}

fn points_of(harness: &Harness, mut command: Command) -> Vec<KillPoint> {
    let log = harness.folder().join("calls");
    std::fs::remove_file(&log).ok();
    log_calls(&mut command, &log).unwrap();
    assert!(hear(&mut command).is_success());
    points(&read_calls(&log).unwrap())
}

fn kill(mut command: Command, point: KillPoint) -> Run {
    point.apply(&mut command).unwrap();
    Run::of(&mut command).unwrap()
}

#[test]
fn a_kill_at_any_call_of_a_deletion_leaves_one_deletion_and_one_new_import() {
    let harness = with_limits("datasets", IMPATIENT);
    let watched = imported(&harness, "watched");
    let points = points_of(&harness, delete_command(&harness, &watched));
    assert!(points.len() > 20, "{points:?}");
    let mut killed = 0;
    for (n, point) in points.iter().enumerate() {
        let name = format!("f-{n}");
        let id = imported(&harness, &name);
        let run = kill(delete_command(&harness, &id), *point);
        killed += usize::from(run.was_killed());
        // Between the kill and the next deletion it is undone only if it is gone.
        let between = hear(&mut import_command(&harness, &name));
        let gone = imports_of(&harness, &name);
        assert!(between.is_success(), "{point}: {between:#?}");
        if between.receipts() != [id.as_str()] {
            assert_eq!(gone, (2, 1), "{point}: imported anew beside the first: {between:#?}");
        }
        let last = until_it_ends(|| delete_command(&harness, &id));
        assert!(last.is_success(), "{point}: {last:#?}\nkilled: {run:?}");
        let again = import(&harness, &name);
        assert!(again.is_success(), "{point}: {again:#?}");
        assert_eq!(imports_of(&harness, &name), (2, 1), "{point}: {again:#?}");
    }
    assert!(killed + 4 >= points.len(), "{killed} of {}", points.len());
}

#[test]
fn a_kill_at_any_call_of_a_new_import_leaves_one_new_import() {
    let harness = with_limits("datasets", IMPATIENT);
    let watched = imported(&harness, "watched");
    assert!(delete(&harness, &watched).is_success());
    let points = points_of(&harness, import_command(&harness, "watched"));
    for (n, point) in points.iter().enumerate() {
        let name = format!("f-{n}");
        let id = imported(&harness, &name);
        assert!(delete(&harness, &id).is_success(), "{point}");
        let run = kill(import_command(&harness, &name), *point);
        let last = until_it_ends(|| import_command(&harness, &name));
        assert!(last.is_success() && last.receipts() != [id.as_str()], "{point}: {last:#?}\nkilled: {run:?}");
        assert_eq!(imports_of(&harness, &name), (2, 1), "{point}: {last:#?}");
    }
}

/// Killed at the deletion's answer, then again at each sync of the next one.
#[test]
fn a_kill_during_recovery_leaves_one_deletion() {
    let harness = with_limits("datasets", IMPATIENT);
    let watched = imported(&harness, "watched");
    let log = harness.folder().join("calls");
    let mut command = delete_command(&harness, &watched);
    log_calls(&mut command, &log).unwrap();
    assert!(hear(&mut command).is_success());
    let sent = read_calls(&log).unwrap().iter().find(|seen| seen.call == "send").unwrap().nth;
    for n in 1..=12 {
        let name = format!("f-{n}");
        let id = imported(&harness, &name);
        kill(delete_command(&harness, &id), KillPoint::after(Call::Send, sent));
        kill(delete_command(&harness, &id), KillPoint::before(Call::Fdatasync, n));
        let last = until_it_ends(|| delete_command(&harness, &id));
        assert!(last.is_success(), "{n}: {last:#?}");
        assert!(import(&harness, &name).is_success(), "{n}");
        assert_eq!(imports_of(&harness, &name), (2, 1), "{n}");
    }
}

/// Imports and deletions of one file at once: each import that says done names what is there or was
/// taken away after it, and one call at the end leaves exactly one.
#[test]
fn a_race_of_imports_and_deletions_is_one_order_of_them() {
    let harness = Harness::new("datasets").unwrap();
    for round in 0..5 {
        let name = format!("f-{round}");
        let id = imported(&harness, &name);
        let start = |n: usize| {
            let import = n.is_multiple_of(2);
            let mut command = if import { import_command(&harness, &name) } else { delete_command(&harness, &id) };
            Running::start(&mut command).unwrap()
        };
        let crowd: Vec<Running> = (0..8).map(start).collect();
        for (n, running) in crowd.into_iter().enumerate() {
            let heard = Heard::of(&running.wait(Duration::from_secs(60)).unwrap());
            assert!(heard.is_success() || heard.status() == "pending", "{round} {n}: {heard:#?}");
        }
        assert!(delete(&harness, &id).is_success(), "{round}");
        let last = import(&harness, &name);
        assert!(last.is_success() && last.receipts() != [id.as_str()], "{round}: {last:#?}");
        assert_eq!(imports_of(&harness, &name), (2, 1), "{round}: {last:#?}");
    }
}
