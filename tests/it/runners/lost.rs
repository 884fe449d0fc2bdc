//! Processes that are killed or stopped under a call: it costs that call at most, and its effect is neither lost nor
//! repeated.

use oncegate_tests::provider::mode::Mode;

use super::*;
use crate::agent::refunds;

const REFUNDS: &str = "/v1/refunds";

/// Waits until the provider has met so many requests of this method.
fn until_met(harness: &Harness, method: &str, count: usize) {
    until("the request was not met", || {
        let log = harness.provider().log().unwrap();
        log.iter().filter(|one| one.method == method).count() >= count
    });
}

/// The call is made again until it is not open any more.
fn settled(client: &mut Stdio, arguments: &Value) -> Value {
    let started = Instant::now();
    loop {
        let told = client.call("act", arguments).unwrap()["structuredContent"].clone();
        if told["status"] != "pending" {
            return told;
        }
        assert!(started.elapsed() < ANSWER_WITHIN, "{told:#}");
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn lost_before_the_effect_the_call_is_run_once_more() {
    let harness = puppet("");
    let mut client = serve(&harness);
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
    let id = begin(&mut client, "act", &script("R-1", &json!([look(), refund()])));
    until_met(&harness, "GET", 1);
    let [runner] = runners(client.pid())[..] else { panic!("one runner was started") };
    signal(runner, Signal::KILL);
    let answer = told(&mut client, id);
    assert_eq!(answer["status"], "done", "{answer:#}");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn lost_twice_before_the_effect_the_call_fails_by_that_name() {
    let harness = puppet("");
    let mut client = serve(&harness);
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", None).unwrap();
    let arguments = script("R-1", &json!([look(), refund()]));
    let id = begin(&mut client, "act", &arguments);
    until_met(&harness, "GET", 1);
    let answer = kill_all_until_told(&mut client, id);
    assert_eq!((&answer["status"], &answer["code"]), (&json!("refused"), &json!("tool_failed")), "{answer:#}");
    assert!(answer["message"].as_str().unwrap().contains("was lost"), "{answer:#}");
    assert_eq!(answer["next_action"], "call_again");
    assert_eq!(refunds(&harness), 0);
    harness.provider().clear().unwrap();
    assert_eq!(settled(&mut client, &arguments)["status"], "done");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn lost_while_the_effect_is_under_way_it_is_told_by_the_next_call() {
    let harness = puppet("request-deadline = \"2s\"\nidle = \"2s\"\nattach = \"100ms\"\n");
    let mut client = serve(&harness);
    harness.provider().mode(Mode::CompleteThenHang, "POST", REFUNDS, None).unwrap();
    let arguments = script("R-1", &json!([look(), refund()]));
    let id = begin(&mut client, "act", &arguments);
    until("no refund was made", || refunds(&harness) == 1);
    let answer = kill_all_until_told(&mut client, id);
    assert_eq!(answer["status"], "pending", "{answer:#}");
    harness.provider().clear().unwrap();
    let answer = settled(&mut client, &arguments);
    assert!(matches!(answer["status"].as_str(), Some("done" | "already_done")), "{answer:#}");
    assert_eq!(answer["effects"][0]["receipt"], "re_000001");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn lost_after_the_effect_it_is_told_at_once() {
    let harness = puppet("");
    let mut client = serve(&harness);
    let arguments = script("R-1", &json!([look(), refund(), { "spin": null }]));
    let id = begin(&mut client, "act", &arguments);
    until("no refund was made", || refunds(&harness) == 1);
    // Answered and stored: what is on its way to the guest is told whether it arrives or not.
    until("no answer was stored", || harness.provider().log().unwrap().iter().any(|one| one.method == "POST"));
    let answer = kill_all_until_told(&mut client, id);
    assert!(matches!(answer["status"].as_str(), Some("done" | "already_done" | "pending")), "{answer:#}");
    let answer = settled(&mut client, &script("R-1", &json!([look(), refund()])));
    assert_eq!(answer["status"], "already_done", "{answer:#}");
    assert_eq!(answer["effects"][0]["receipt"], "re_000001");
    assert_eq!(refunds(&harness), 1);
}

/// Calls that wait in the same processes as one that is lost are not lost with it.
#[test]
fn neighbours_of_a_lost_process_are_answered() {
    let harness = puppet("");
    let mut client = serve(&harness);
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(6)).unwrap();
    let arguments = script("R-1", &json!([look()]));
    let ids: Vec<_> = (0..6).map(|_| begin(&mut client, "peek", &arguments)).collect();
    until_met(&harness, "GET", 1);
    let other = begin(&mut client, "act", &script("R-2", &json!([look(), refund()])));
    let first = runners(client.pid());
    for pid in &first {
        signal(*pid, Signal::KILL);
    }
    for id in ids.into_iter().chain([other]) {
        let answer = told(&mut client, id);
        assert_eq!(answer["status"], "done", "{answer:#}");
    }
    assert_eq!(refunds(&harness), 1);
    assert!(first.iter().all(|pid| !runners(client.pid()).contains(pid)));
}

#[test]
fn a_process_that_stands_still_is_found_by_the_wall_time_and_replaced() {
    let harness = puppet("wall-time = \"2s\"\n");
    let mut client = serve(&harness);
    harness.provider().mode(Mode::HangBefore, "GET", "/returns/R-1", Some(1)).unwrap();
    let arguments = script("R-1", &json!([look(), refund()]));
    let id = begin(&mut client, "act", &arguments);
    until_met(&harness, "GET", 1);
    let [runner] = runners(client.pid())[..] else { panic!("one runner was started") };
    signal(runner, Signal::STOP);
    let answer = told(&mut client, id);
    assert_eq!((&answer["status"], &answer["code"]), (&json!("refused"), &json!("tool_limit")), "{answer:#}");
    assert!(answer["message"].as_str().unwrap().contains("wall-time"), "{answer:#}");
    until("it still stands", || !runners(client.pid()).contains(&runner));
    assert_eq!(settled(&mut client, &arguments)["status"], "done");
    assert_eq!(refunds(&harness), 1);
}

#[test]
fn a_cancelled_guest_is_really_stopped() {
    let harness = puppet("");
    let mut client = serve(&harness);
    let id = begin(&mut client, "peek", &script("R-1", &json!([look(), { "spin": null }])));
    until_met(&harness, "GET", 1);
    let [runner] = runners(client.pid())[..] else { panic!("one runner was started") };
    client.notify("notifications/cancelled", &json!({ "requestId": id })).unwrap();
    until("it still computes", || {
        let before = cpu_ticks(runner);
        thread::sleep(Duration::from_millis(300));
        cpu_ticks(runner) - before < 5
    });
    let answer = client.call("act", &script("R-1", &json!([look(), refund()]))).unwrap();
    assert_eq!(answer["structuredContent"]["status"], "done", "{answer:#}");
    assert_eq!(runners(client.pid()), [runner], "it was not replaced");
}

/// Hundredths of a second that a process has computed.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let words: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap()
}

#[test]
fn none_outlives_its_host() {
    let harness = puppet("");
    let mut client = serve(&harness);
    client.call("peek", &script("R-1", &json!([look()]))).unwrap();
    let runner = runners(client.pid())[0];
    // Even one that does not notice: it stands still.
    signal(runner, Signal::STOP);
    client.kill().unwrap();
    until("it is still there", || {
        let stat = fs::read_to_string(format!("/proc/{runner}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
}
