//! The policy changes while clients are served: what is new holds for new calls, and half a file never does.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Guest, Harness, Options};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use oncegate_tests::provider::Provider;
use serde_json::{Value, json};

use super::elicitation::{ASK, asking, decisions, says, waits as awaits};
use super::folders::told_of_change;
use super::{TOOL, command, is_replay, receipt, refunds, start, told};
use crate::agent::refund;

/// The time that a file rests before it is taken.
const RESTS: Duration = Duration::from_secs(2);
const APPROVE: &str = "\n[[approve]]\noperation = \"create-refund\"\n";
const TAKEN: &str = "holds from now on";
const NOT_TAKEN: &str = "IS NOT TAKEN";

fn file(harness: &Harness) -> PathBuf {
    harness.home().join("policy.toml")
}

fn policy(harness: &Harness) -> String {
    fs::read_to_string(file(harness)).unwrap()
}

/// As careful writers do it: whole, beside it, then renamed.
fn replace(harness: &Harness, text: &str) {
    let beside = file(harness).with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(&beside, file(harness)).unwrap();
}

/// Waits until the server has said it so often.
#[track_caller]
fn until_said(client: &Stdio, words: &str, times: usize) {
    let started = Instant::now();
    while client.errors().matches(words).count() < times {
        assert!(started.elapsed() < ANSWER_WITHIN, "{words:?} was not said: {}", client.errors());
        thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn is_refused(result: &Value, code: &str) {
    let told = told(result);
    assert_eq!((&told["status"], &told["code"]), (&json!("refused"), &json!(code)), "{told:#}");
}

fn waits(result: &Value) -> bool {
    told(result)["detail"] == "awaiting_approval"
}

#[test]
fn what_is_withdrawn_is_not_sent_and_stored_answers_are_told() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let first = receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    let before = policy(&harness);
    replace(&harness, &before.replace("\"create-refund\", ", ""));
    until_said(&client, TAKEN, 1);
    is_refused(&client.call(TOOL, &refund("R-2", "broken")).unwrap(), "effect_not_permitted");
    is_replay(&client.call(TOOL, &refund("R-1", "again")).unwrap(), &first);
    assert_eq!(refunds(&harness), 1);

    replace(&harness, &before);
    until_said(&client, TAKEN, 2);
    receipt(&client.call(TOOL, &refund("R-2", "broken")).unwrap());
    assert_eq!(refunds(&harness), 2);
}

#[test]
fn clients_are_told_when_they_are_shown_other_words() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let words = |client: &mut Stdio| {
        let list = client.ask("tools/list", &json!({})).unwrap();
        list["tools"][1]["description"].as_str().unwrap().to_owned()
    };
    let author = words(&mut client);
    let before = policy(&harness);
    let digest = before.lines().find(|line| line.starts_with("digest")).unwrap();
    // A policy that says the same in other words changes nothing that is shown.
    replace(&harness, &format!("# A comment.\n{before}"));
    until_said(&client, TAKEN, 1);
    replace(&harness, &before.replace(digest, ""));
    told_of_change(&mut client);
    let plain = words(&mut client);
    assert!(plain != author && plain.starts_with("The tool issue-refund of"), "{plain}");
    replace(&harness, &before);
    told_of_change(&mut client);
    assert_eq!(words(&mut client), author);
    assert!(client.heard.is_empty(), "told once for each change: {:?}", client.heard);
}

#[test]
fn a_broken_file_changes_nothing_and_is_named() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let before = policy(&harness);
    let lines = before.lines().count();
    replace(&harness, &format!("{before}[limit]\n"));
    until_said(&client, NOT_TAKEN, 1);
    let said = client.errors();
    for words in [&format!("policy.toml:{}: ", lines + 1), "oncegate policy check", "Correct the file"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    fs::remove_file(file(&harness)).unwrap();
    until_said(&client, NOT_TAKEN, 2);
    receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    // What the command line fixes must stay allowed.
    replace(&harness, &before.replace("tenant = [\"meta\", \"header\", \"serve\"]", "tenant = [\"meta\"]"));
    until_said(&client, NOT_TAKEN, 3);
    receipt(&client.call(TOOL, &refund("R-2", "broken")).unwrap());
    let doctor = harness.run(&["doctor"]).unwrap();
    assert!(doctor.stdout.contains("policy"), "{doctor:?}");
    assert_eq!(refunds(&harness), 2);
}

/// A gate at the end of the file is the first that a cut takes away.
#[test]
fn half_a_file_is_never_taken() {
    let options = Options { policy: APPROVE.to_owned(), ..Options::default() };
    let harness = Harness::with(Guest::example("refunds").unwrap(), options).unwrap();
    let mut client = start(&harness);
    let whole = policy(&harness);
    let half = whole.strip_suffix(APPROVE).unwrap();
    // Editors empty the file, and write it in pieces.
    for n in 1..=3 {
        let mut open = fs::File::create(file(&harness)).unwrap();
        open.write_all(half.as_bytes()).unwrap();
        let asked = client.call(TOOL, &refund(&format!("R-{n}"), "meanwhile")).unwrap();
        thread::sleep(RESTS / 4);
        open.write_all(format!("{APPROVE}# Version {n}.\n").as_bytes()).unwrap();
        assert!(waits(&asked), "{asked:#}");
        until_said(&client, TAKEN, n);
        assert!(waits(&client.call(TOOL, &refund(&format!("R-{n}"), "after")).unwrap()));
    }
    // A copy that stopped in the middle stays as it is.
    let now = policy(&harness);
    for (n, cut) in (1..).zip([half, "", &now[..now.len() - 1]]) {
        fs::write(file(&harness), cut).unwrap();
        until_said(&client, NOT_TAKEN, n);
        assert!(waits(&client.call(TOOL, &refund("R-4", "after a cut")).unwrap()), "{n}");
    }
    assert_eq!(refunds(&harness), 0);
    // On purpose it is possible.
    replace(&harness, &format!("# Refunds need no approval any more.\n{half}"));
    until_said(&client, TAKEN, 4);
    receipt(&client.call(TOOL, &refund("R-5", "at last")).unwrap());
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_grant_less_at_the_end_is_taken() {
    let harness = Harness::new("refunds").unwrap();
    let mut client = start(&harness);
    let before = policy(&harness);
    let more = "\n[[component]]\ntenants = [\"second\"]\ngrant = [\"get-return\"]\n";
    replace(&harness, &format!("{before}{more}"));
    until_said(&client, TAKEN, 1);
    replace(&harness, &before);
    until_said(&client, TAKEN, 2);
    assert!(!client.errors().contains(NOT_TAKEN), "{}", client.errors());
    receipt(&client.call(TOOL, &refund("R-1", "broken")).unwrap());
    assert_eq!(refunds(&harness), 1);
}

/// Passes connections on to a provider. One whose request names this waits until it is let go.
fn gate(upstream: &str, holds: &'static str) -> (String, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream = upstream.trim_start_matches("http://").to_owned();
    let (sender, let_go) = mpsc::channel();
    let let_go = Arc::new(Mutex::new(let_go));
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (upstream, let_go) = (upstream.clone(), Arc::clone(&let_go));
            // A connection that breaks is the host's to notice.
            thread::spawn(move || pass(client, &upstream, holds, &let_go).ok());
        }
    });
    (url, sender)
}

fn pass(mut client: TcpStream, upstream: &str, holds: &str, let_go: &Mutex<mpsc::Receiver<()>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if String::from_utf8_lossy(&head).contains(holds) {
        // It is let go when there is nobody any more who could say so.
        let_go.lock().unwrap().recv().ok();
    }
    let mut server = TcpStream::connect(upstream)?;
    server.write_all(&head)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}

#[test]
fn a_call_under_way_keeps_the_policy_that_it_began_with() {
    let provider = Provider::start().unwrap();
    let (shop, let_go) = gate(&provider.url(), "/returns/R-1");
    let options = Options {
        endpoints: [("shop".to_owned(), shop)].into(),
        limits: "wall-time = \"110s\"\nrequest-deadline = \"100s\"\nidle = \"100s\"".to_owned(),
        ..Options::default()
    };
    let harness = Harness::with(Guest::example("refunds").unwrap(), options).unwrap();
    let mut client = start(&harness);
    let before = policy(&harness);
    let held = client.request("tools/call", &json!({ "name": TOOL, "arguments": refund("R-1", "held") })).unwrap();
    assert_eq!(client.answer(held, ANSWER_WITHIN).unwrap()["result"]["structuredContent"]["status"], "pending");
    replace(&harness, &before.replace("\"create-refund\", ", ""));
    until_said(&client, TAKEN, 1);
    is_refused(&client.call(TOOL, &refund("R-2", "late")).unwrap(), "effect_not_permitted");
    assert_eq!(refunds(&harness), 0);
    drop(let_go);
    let started = Instant::now();
    while refunds(&harness) == 0 {
        assert!(started.elapsed() < ANSWER_WITHIN, "what had begun was not finished: {}", client.errors());
        thread::sleep(Duration::from_millis(20));
    }
    is_refused(&client.call(TOOL, &refund("R-2", "late")).unwrap(), "effect_not_permitted");
    let mut after = client.call(TOOL, &refund("R-1", "what became of it?")).unwrap();
    while told(&after)["status"] == "pending" {
        assert!(started.elapsed() < ANSWER_WITHIN, "{after:#}");
        thread::sleep(Duration::from_millis(200));
        after = client.call(TOOL, &refund("R-1", "what became of it?")).unwrap();
    }
    receipt(&after);
    assert_eq!(refunds(&harness), 1);
}

/// A call that joins one under way is one that begins now.
#[test]
fn what_is_withdrawn_is_not_told_from_a_call_that_began_before() {
    let provider = Provider::start().unwrap();
    let (shop, let_go) = gate(&provider.url(), "/returns/R-1");
    let options = Options {
        endpoints: [("shop".to_owned(), shop)].into(),
        limits: "answer-within = \"2s\"\nwall-time = \"110s\"\nrequest-deadline = \"100s\"\nidle = \"100s\"".to_owned(),
        ..Options::default()
    };
    let harness = Harness::with(Guest::example("refunds").unwrap(), options).unwrap();
    let mut client = start(&harness);
    assert_eq!(told(&client.call(TOOL, &refund("R-1", "held")).unwrap())["status"], "pending");
    replace(&harness, &policy(&harness).replace("tenants = [\"acme\"]", "tenants = [\"second\"]"));
    until_said(&client, TAKEN, 1);
    is_refused(&client.call(TOOL, &refund("R-1", "held")).unwrap(), "effect_not_permitted");
    drop(let_go);
    let started = Instant::now();
    while refunds(&harness) == 0 {
        assert!(started.elapsed() < ANSWER_WITHIN, "what had begun was not finished: {}", client.errors());
        thread::sleep(Duration::from_millis(20));
    }
    is_refused(&client.call(TOOL, &refund("R-1", "held")).unwrap(), "effect_not_permitted");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn an_approval_counts_under_the_policy_that_holds_when_it_is_given() {
    const CLIENTS_WORD: &str = "elicitation-from = [\"stdio\"]";
    let harness = asking(CLIENTS_WORD, "");
    let mut client = Stdio::able(&mut command(&harness), &json!({ "elicitation": { "form": {} } })).unwrap();
    let ask = |client: &mut Stdio, id: &str| {
        let call = json!({ "name": TOOL, "arguments": refund(id, "broken") });
        let call = client.request("tools/call", &call).unwrap();
        (call, client.asked(ASK, ANSWER_WITHIN).unwrap())
    };
    let (call, question) = ask(&mut client, "R-1");
    let before = policy(&harness);
    replace(&harness, &before.replace(CLIENTS_WORD, "by = [\"alice\"]"));
    until_said(&client, TAKEN, 1);
    client.reply(&question, &says("approve")).unwrap();
    awaits(&client.answer(call, ANSWER_WITHIN).unwrap()["result"]);
    assert_eq!((refunds(&harness), decisions(&harness).len()), (0, 0), "the client's word does not count any more");

    // One rule more is one more that has to be met.
    replace(&harness, &before);
    until_said(&client, TAKEN, 2);
    let (call, question) = ask(&mut client, "R-2");
    replace(&harness, &format!("{before}{APPROVE}by = [\"alice\"]\n"));
    until_said(&client, TAKEN, 3);
    client.reply(&question, &says("approve")).unwrap();
    awaits(&client.answer(call, ANSWER_WITHIN).unwrap()["result"]);
    assert_eq!((refunds(&harness), decisions(&harness).len()), (0, 0));
}
