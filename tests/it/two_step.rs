//! Posts that are public only once a question was answered: two effects of one call. The question is
//! asked once and no post can be read back, so the provider's answer is the only copy there will be.

use std::process::Command;
use std::thread;
use std::time::Duration;

use oncegate_ledger::{Event, Outcome, StateTag};
use oncegate_tests::harness::{Guest, Harness, Options, Run, Running};
use oncegate_tests::killat::{Call, KillPoint, Seen, log_calls, read_calls};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::json;

use crate::agent::{Heard, hear, with_limits};
use crate::attacks::clock;
use crate::book;
use crate::crash_states::{signal, wait_until};
use crate::kills::points;
use crate::verbs::row;

const TOOL: &str = "publish-post";
const POSTS: &str = "/v1/posts";
const ANSWERS: &str = "/v1/answers";
/// A silent provider is given up soon.
const IMPATIENT: &str = "idle = \"400ms\"";
/// Calls after which an interrupted one must have ended, or never will.
const RESTARTS: usize = 3;
/// Seconds of the contract's `complete-within`, less the 5 by which clocks may differ.
const TIME_IS_OVER: i64 = 5 * 60 - 5;

fn post_command(harness: &Harness, trigger: &str, text: &str) -> Command {
    let arguments = json!({ "board": "general", "text": text });
    harness.call(TOOL, &arguments, &[&format!("trigger={trigger}")])
}

#[track_caller]
fn post(harness: &Harness, trigger: &str, text: &str) -> Heard {
    hear(&mut post_command(harness, trigger, text))
}

/// Posts, and posts that are public.
fn counts(harness: &Harness) -> (usize, usize) {
    let counts = harness.provider().counts().unwrap();
    (counts["post"], counts["publication"])
}

/// The same of the posts with this text.
fn counts_of(harness: &Harness, text: &str) -> (usize, usize) {
    let effects = harness.provider().effects().unwrap();
    let posts: Vec<&str> = effects
        .iter()
        .filter(|one| one.kind == "post" && one.object["text"] == text)
        .map(|one| one.id.as_str())
        .collect();
    let public = effects.iter().filter(|one| one.kind == "publication");
    let public = public.filter(|one| posts.contains(&one.object["post"].as_str().unwrap())).count();
    (posts.len(), public)
}

fn requests(harness: &Harness, path: &str) -> usize {
    harness.provider().log().unwrap().iter().filter(|one| one.path == path).count()
}

fn states(harness: &Harness) -> Vec<StateTag> {
    let mut states: Vec<StateTag> = book::rows(harness).iter().map(|row| row.state).collect();
    states.sort_unstable();
    states
}

#[track_caller]
fn is_pending(heard: &Heard, detail: &str) {
    assert_eq!((heard.status(), &heard.json["detail"]), ("pending", &json!(detail)), "{heard:#?}");
    assert_eq!(heard.code, Some(4), "{heard:#?}");
}

#[test]
fn a_post_is_public_after_two_effects_and_repeats_replay() {
    let harness = Harness::new("posts").unwrap();
    let first = post(&harness, "t-1", "hello");
    assert_eq!(first.status(), "done", "{first:#?}");
    assert_eq!(first.receipts(), ["po_000001", "pu_000001"], "{first:#?}");
    assert_eq!(first.json["result"], json!({ "id": "po_000001", "public": true }), "{first:#?}");
    assert_eq!(states(&harness), [StateTag::Done, StateTag::Done]);
    for text in ["hello", "hello, everybody"] {
        let again = post(&harness, "t-1", text);
        again.is_replay_of("po_000001");
        assert_eq!(again.json["result"], first.json["result"], "{again:#?}");
    }
    assert_eq!(counts(&harness), (1, 1));
    assert_eq!((requests(&harness, POSTS), requests(&harness, ANSWERS)), (1, 1));
    // Another trigger is another post.
    assert_eq!(post(&harness, "t-2", "good bye").status(), "done");
    assert_eq!(counts(&harness), (2, 2));
}

#[test]
fn a_refused_post_asks_for_no_answer() {
    let harness = Harness::new("posts").unwrap();
    harness.provider().mode(Mode::Reject402, "POST", POSTS, Some(1)).unwrap();
    let heard = post(&harness, "t-1", "hello");
    assert_eq!(heard.status(), "failed", "{heard:#?}");
    assert_eq!(requests(&harness, ANSWERS), 0);
    assert_eq!(post(&harness, "t-1", "hello").status(), "done");
    assert_eq!(counts(&harness), (1, 1));
}

/// The body never ends: what came of it is enough to go on.
#[test]
fn an_answer_that_is_held_open_is_answered() {
    let harness = with_limits("posts", IMPATIENT);
    harness.provider().mode(Mode::HeldOpen, "POST", POSTS, None).unwrap();
    let heard = post(&harness, "t-1", "hello");
    assert_eq!(heard.status(), "done", "{heard:#?}");
    assert_eq!(counts(&harness), (1, 1));
    // A success that is cut off proves nothing; the provider tells it again for the same key.
    harness.provider().mode(Mode::HeldOpen, "POST", ANSWERS, Some(1)).unwrap();
    let heard = post(&harness, "t-2", "good bye");
    assert_eq!(heard.status(), "done", "{heard:#?}");
    assert_eq!(counts(&harness), (2, 2));
    post(&harness, "t-2", "good bye").is_replay_of("po_000002");
}

#[test]
fn half_a_question_is_no_question() {
    let harness = with_limits("posts", IMPATIENT);
    harness.provider().mode(Mode::Truncated, "POST", POSTS, Some(1)).unwrap();
    for _ in 0..2 {
        let heard = post(&harness, "t-1", "hello");
        is_pending(&heard, "unknown");
        assert_eq!(heard.json["next_action"], "ask_person", "{heard:#?}");
    }
    assert_eq!(counts(&harness), (1, 0));
    assert_eq!(requests(&harness, POSTS), 1);
}

/// A question that is older than the bound within which bytes are stored survives the program.
#[test]
fn a_question_survives_its_process() {
    let harness = Harness::new("posts").unwrap();
    for n in 0..5_u64 {
        let (trigger, text) = (format!("t-{n}"), format!("text {n}"));
        harness.provider().mode(Mode::HeldOpen, "POST", POSTS, Some(1)).unwrap();
        let running = Running::start(&mut post_command(&harness, &trigger, &text)).unwrap();
        while counts_of(&harness, &text).0 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
        thread::sleep(Duration::from_millis(150 + 50 * n));
        assert!(running.kill().unwrap().was_killed());
        let heard = post(&harness, &trigger, "in other words");
        assert_eq!(heard.status(), "done", "{n}: {heard:#?}");
        assert_eq!(counts_of(&harness, &text), (1, 1), "{n}: {heard:#?}");
    }
    assert_eq!(counts(&harness), (5, 5));
}

/// It stops, is given up for lost, and dies only then: what it had stored is found all the same.
#[test]
fn a_question_survives_a_process_that_was_given_up() {
    let harness = Harness::new("posts").unwrap();
    harness.provider().mode(Mode::HeldOpen, "POST", POSTS, Some(2)).unwrap();
    // This one has the ledger's file, so that the other may stop without stopping everybody.
    let owner = Running::start(&mut post_command(&harness, "owner", "of the ledger")).unwrap();
    wait_until("the owner's post is made", || counts_of(&harness, "of the ledger").0 == 1);
    let sender = Running::start(&mut post_command(&harness, "t-1", "hello")).unwrap();
    wait_until("the post is made", || counts_of(&harness, "hello").0 == 1);
    thread::sleep(Duration::from_millis(300));
    signal(&sender, "STOP");
    // Later than any deadline: nobody knows what the silent sender does.
    let heard = shifted(&harness, &mut post_command(&harness, "t-1", "is it there?"), 120);
    is_pending(&heard, "unknown");
    sender.kill().unwrap();
    let heard = restart(&harness, "t-1");
    assert_eq!(heard.status(), "done", "{heard:#?}");
    assert_eq!(counts_of(&harness, "hello"), (1, 1));
    owner.kill().unwrap();
    assert_eq!(restart(&harness, "owner").status(), "done");
    assert_eq!(counts(&harness), (2, 2));
}

fn calls_of_one(harness: &Harness) -> Vec<Seen> {
    let log = harness.folder().join("calls");
    let mut command = post_command(harness, "watched", "watched");
    log_calls(&mut command, &log).unwrap();
    assert_eq!(hear(&mut command).status(), "done");
    read_calls(&log).unwrap()
}

/// Calls again until it ends, or has been tried often enough.
fn restart(harness: &Harness, trigger: &str) -> Heard {
    let mut heard = None;
    for n in 0..RESTARTS {
        let now = post(harness, trigger, &format!("restart {n} of {trigger}"));
        if now.status() != "pending" {
            return now;
        }
        heard = Some(now);
    }
    heard.unwrap()
}

/// Whether the ledger has a byte of the answer to this trigger's post.
fn has_bytes(harness: &Harness, trigger: &str) -> bool {
    let records = book::records(harness);
    let label = format!("post general {trigger}");
    let sent = |event: &Event| matches!(event, Event::Dispatched(dispatch) if dispatch.label == label);
    let Some(row) = records.iter().find(|record| sent(&record.event)) else { return false };
    let bytes = |event: &Event| matches!(event, Event::Evidence { .. } | Event::Responded { .. });
    records.iter().any(|record| record.stream == row.stream && bytes(&record.event))
}

/// Kills at each of these points; afterwards what was asked once is answered once, unless not one byte
/// of the question was stored: then nobody can know, and nobody says that it was published.
fn kill_each(harness: &Harness, points: &[KillPoint]) {
    let (mut killed, mut finished) = (0, 0);
    for (n, point) in points.iter().enumerate() {
        let (trigger, text) = (format!("t-{n}"), format!("text {n}"));
        let mut command = post_command(harness, &trigger, &text);
        point.apply(&mut command).unwrap();
        let run = Run::of(&mut command).unwrap();
        killed += usize::from(run.was_killed());
        let last = restart(harness, &trigger);
        // What was not sent before the kill is sent by the restart, in its words.
        let mut made = counts_of(harness, &text);
        for restart in 0..RESTARTS {
            let other = counts_of(harness, &format!("restart {restart} of {trigger}"));
            made = (made.0 + other.0, made.1 + other.1);
        }
        if last.is_success() {
            finished += 1;
            assert_eq!(made, (1, 1), "{point}: {last:#?}\nkilled: {run:?}");
        } else {
            is_pending(&last, "unknown");
            assert!(made.0 <= 1 && made.1 == 0, "{point}: {made:?} {last:#?}");
            assert!(!has_bytes(harness, &trigger), "{point}: a question was lost: {last:#?}\nkilled: {run:?}");
        }
    }
    assert!(killed + 4 >= points.len(), "{killed} of {}", points.len());
    println!("{killed} kills at {} points, {finished} finished", points.len());
    assert!(finished * 2 > points.len(), "{finished} of {}", points.len());
}

#[test]
fn a_kill_at_any_call_with_the_body_held_open_loses_no_question() {
    let harness = with_limits("posts", IMPATIENT);
    harness.provider().mode(Mode::HeldOpen, "POST", POSTS, None).unwrap();
    let points = points(&calls_of_one(&harness));
    assert!(points.len() > 40, "{points:?}");
    kill_each(&harness, &points);
}

#[test]
fn a_kill_at_any_call_of_a_clean_post_loses_no_question() {
    let harness = with_limits("posts", IMPATIENT);
    let points = points(&calls_of_one(&harness));
    kill_each(&harness, &points.into_iter().skip(1).step_by(2).collect::<Vec<_>>());
}

/// Killed, then killed again while it recovers.
#[test]
fn a_kill_during_recovery_loses_no_question() {
    let harness = with_limits("posts", IMPATIENT);
    harness.provider().mode(Mode::HeldOpen, "POST", POSTS, None).unwrap();
    let calls = calls_of_one(&harness);
    let stored = calls.iter().skip_while(|seen| seen.call != "recv").filter(|seen| seen.call == "fdatasync").nth(1);
    let stored = KillPoint::after(Call::Fdatasync, stored.unwrap().nth);
    let mut finished = 0;
    for n in 1..=14 {
        let (trigger, text) = (format!("t-{n}"), format!("text {n}"));
        for point in [stored, KillPoint::before(Call::Fdatasync, n)] {
            let mut command = post_command(&harness, &trigger, &text);
            point.apply(&mut command).unwrap();
            Run::of(&mut command).unwrap();
        }
        let last = restart(&harness, &trigger);
        if last.is_success() {
            finished += 1;
            assert_eq!(counts_of(&harness, &text), (1, 1), "{n}: {last:#?}");
        } else {
            // On a busy machine the first kill may come before the first byte is stored.
            is_pending(&last, "unknown");
            assert!(!has_bytes(&harness, &trigger), "{n}: a question was lost: {last:#?}");
            assert_eq!(counts_of(&harness, &text), (1, 0), "{n}: {last:#?}");
        }
    }
    assert!(finished > 7, "{finished} of 14");
}

#[test]
fn many_at_once_are_one_post() {
    let harness = Harness::new("posts").unwrap();
    let crowd: Vec<Running> =
        (0..6).map(|n| Running::start(&mut post_command(&harness, "t-1", &format!("wording {n}"))).unwrap()).collect();
    for running in crowd {
        let heard = Heard::of(&running.wait(Duration::from_secs(60)).unwrap());
        assert!(heard.is_success() || heard.status() == "pending", "{heard:#?}");
    }
    assert!(post(&harness, "t-1", "at the end").is_success());
    assert_eq!(counts(&harness), (1, 1));
}

/// The board swallows the second of two equal posts with a polite 200, the first one's identifier in
/// it: that is no receipt of this one's, and nobody hears of success.
#[test]
fn a_swallowed_repeat_is_never_a_success() {
    let harness = Harness::new("posts").unwrap();
    assert_eq!(post(&harness, "t-1", "hello").status(), "done");
    for text in ["hello", "hello", "something else"] {
        let heard = post(&harness, "t-2", text);
        is_pending(&heard, "unknown");
        assert_eq!(heard.json["next_action"], "ask_person", "{heard:#?}");
        assert_eq!(heard.receipts(), Vec::<&str>::new(), "{heard:#?}");
    }
    assert_eq!(counts(&harness), (1, 1));
    assert_eq!((requests(&harness, POSTS), requests(&harness, ANSWERS)), (2, 1));
    let why: Vec<String> = book::records(&harness)
        .into_iter()
        .filter_map(|record| match record.event {
            Event::Classified { outcome: Outcome::Unknown { why }, .. } => Some(why),
            _ => None,
        })
        .collect();
    assert!(why.len() == 1 && why[0].contains("swallowed a repeat"), "{why:?}");
}

/// A post whose question was answered wrongly: it exists, and is not public.
fn issued() -> Harness {
    let harness = Harness::new("posts").unwrap();
    harness.provider().settings(&Settings { challenge_lies: true, ..Settings::default() }).unwrap();
    let heard = post(&harness, "t-1", "hello");
    is_pending(&heard, "issued");
    assert_eq!(counts(&harness), (1, 0));
    harness
}

fn shifted(harness: &Harness, command: &mut Command, seconds: i64) -> Heard {
    command.env("LD_PRELOAD", clock(harness.folder())).env("CLOCK_SHIFT", seconds.to_string());
    hear(command)
}

#[test]
fn a_wrong_answer_leaves_it_issued_and_time_strands_it_for_good() {
    let harness = issued();
    // The challenge is gone, so nothing can come of it; but there is time, and the board decides.
    is_pending(&post(&harness, "t-1", "hello"), "issued");
    let asked = requests(&harness, ANSWERS);
    let early = shifted(&harness, &mut post_command(&harness, "t-1", "hello"), TIME_IS_OVER - 60);
    is_pending(&early, "issued");
    assert_eq!(requests(&harness, ANSWERS), asked + 1);
    let late = shifted(&harness, &mut post_command(&harness, "t-1", "hello"), TIME_IS_OVER);
    is_pending(&late, "stranded");
    assert_eq!(late.json["next_action"], "ask_person", "{late:#?}");
    // The clock goes back; the row does not.
    is_pending(&post(&harness, "t-1", "hello"), "stranded");
    assert_eq!(requests(&harness, ANSWERS), asked + 1, "an answer was sent too late");
    assert_eq!(states(&harness), [StateTag::NoEffect, StateTag::Stranded]);
    assert_eq!(counts(&harness), (1, 0));
}

#[test]
fn the_latest_stamp_in_the_ledger_is_a_clock() {
    let harness = issued();
    let other = shifted(&harness, &mut post_command(&harness, "t-2", "from the future"), TIME_IS_OVER + 60);
    is_pending(&other, "issued");
    // This process's clock says that there is time; the ledger knows better.
    is_pending(&post(&harness, "t-1", "hello"), "stranded");
}

#[test]
fn a_reconciling_operator_strands_it_as_well() {
    let harness = issued();
    let mut command = harness.command();
    command.args(["ledger", "reconcile"]);
    command.env("LD_PRELOAD", clock(harness.folder())).env("CLOCK_SHIFT", TIME_IS_OVER.to_string());
    Run::of(&mut command).unwrap();
    assert_eq!(states(&harness), [StateTag::NoEffect, StateTag::Stranded]);
}

/// While an answer that was sent may have been taken, nobody says that it never can be.
#[test]
fn what_may_be_public_is_not_stranded() {
    let harness = with_limits("posts", IMPATIENT);
    harness.provider().mode(Mode::CompleteThenHang, "POST", ANSWERS, None).unwrap();
    is_pending(&post(&harness, "t-1", "hello"), "unknown");
    assert_eq!(counts(&harness), (1, 1));
    let sent = requests(&harness, ANSWERS);
    let late = shifted(&harness, &mut post_command(&harness, "t-1", "hello"), TIME_IS_OVER);
    is_pending(&late, "unknown");
    assert_eq!(requests(&harness, ANSWERS), sent, "sent again after its time");
    assert_eq!(states(&harness), [StateTag::Issued, StateTag::Unknown]);
    // A repeat within the time would have told: the provider knows the key.
    let harness = with_limits("posts", IMPATIENT);
    harness.provider().mode(Mode::CompleteThenHang, "POST", ANSWERS, Some(2)).unwrap();
    let mut last = post(&harness, "t-1", "hello");
    for _ in 0..2 {
        last = if last.is_success() { last } else { post(&harness, "t-1", "hello") };
    }
    assert!(last.is_success(), "{last:#?}");
    assert_eq!(counts(&harness), (1, 1));
}

/// Its bytes are gone with its history; that it is public is not.
#[test]
fn a_pruned_post_is_still_public() {
    let policy = "\n[retention]\nreplay-window = \"1s\"\n".to_owned();
    let harness = Harness::with(Guest::example("posts").unwrap(), Options { policy, ..Options::default() }).unwrap();
    assert_eq!(post(&harness, "t-1", "hello").status(), "done");
    let mut prune = harness.command();
    prune.args(["ledger", "prune", "--without-parent", "--json"]);
    prune.env("LD_PRELOAD", clock(harness.folder())).env("CLOCK_SHIFT", (48 * 3600).to_string());
    assert_eq!(Run::of(&mut prune).unwrap().json().unwrap()["pruned"], 2);
    for text in ["hello", "in other words"] {
        post(&harness, "t-1", text).is_replay_of("po_000001");
    }
    assert_eq!(counts(&harness), (1, 1));
}

/// A person looked, and says that it is public.
#[test]
fn what_a_person_decides_is_done_without_an_answer() {
    let harness = issued();
    shifted(&harness, &mut post_command(&harness, "t-1", "hello"), TIME_IS_OVER);
    let label = "post general t-1";
    let version = row(&harness, label)["version"].to_string();
    let decision = ["ledger", "resolve", label, "--as", "done", "--receipt", "po_000001", "--expect-version", &version];
    let run = harness.run(&[&decision[..], &["--reason", "seen on the board", "--actor", "ada"]].concat()).unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let asked = requests(&harness, ANSWERS);
    post(&harness, "t-1", "hello").is_replay_of("po_000001");
    assert_eq!(requests(&harness, ANSWERS), asked);
}
