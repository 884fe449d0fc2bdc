//! A campaign of 100 recipients, cut off by SIGKILL at a random moment and called again in other
//! words: every recipient has exactly one email.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use oncegate_tests::harness::{Harness, Running};
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::mode::Mode;
use serde_json::{Value, json};

use crate::agent::{Heard, call, with_limits};

const TOOL: &str = "send-campaign";
const RECIPIENTS: usize = 100;
/// A campaign that has not come so far by then is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const CALLS_MAX: usize = 6;

fn recipients() -> Vec<String> {
    (0..RECIPIENTS).map(|n| format!("reader{n}@example.com")).collect()
}

fn campaign(words: &str) -> Value {
    json!({
        "subject": format!("News, {words}"),
        "body": format!("Dear reader, {words}."),
        "recipients": recipients(),
    })
}

/// Numbers that a seed decides (SplitMix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

fn emails(harness: &Harness) -> usize {
    harness.provider().count("email").unwrap()
}

/// Starts a call and kills it when so many emails are out, and a moment later.
fn cut_off(harness: &Harness, trigger: &str, at: usize, then: Duration, words: &str) {
    let mut command = harness.call(TOOL, &campaign(words), &[trigger, "run=first"]);
    let running = Running::start(&mut command).unwrap();
    let started = Instant::now();
    while emails(harness) < at && started.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(then);
    running.kill().unwrap();
}

fn finish(harness: &Harness, trigger: &str) -> Heard {
    for n in 1..=CALLS_MAX {
        let words = format!("said for the {n}. time");
        let heard = call(harness, TOOL, &campaign(&words), &[trigger, "run=later"]);
        if heard.is_success() || n == CALLS_MAX {
            return heard;
        }
        assert_eq!(heard.status(), "pending", "{heard:#?}");
    }
    unreachable!("the loop returns at its last turn")
}

/// How many emails each recipient got.
fn got(harness: &Harness) -> BTreeMap<String, usize> {
    let mut got = BTreeMap::new();
    for effect in harness.provider().effects().unwrap() {
        let to = effect.object["to"].as_str().unwrap().to_owned();
        *got.entry(to).or_default() += 1;
    }
    got
}

fn everyone_once() -> BTreeMap<String, usize> {
    recipients().into_iter().map(|to| (to, 1)).collect()
}

fn seeds(seeds: std::ops::Range<u64>) {
    let harness = Harness::new("campaign").unwrap();
    for seed in seeds {
        harness.provider().reset().unwrap();
        let mut chance = Chance(seed);
        let trigger = format!("trigger=campaign-{seed}");
        // Every third seed is killed twice.
        let kills = if seed % 3 == 0 { 2 } else { 1 };
        for kill in 0..kills {
            let at = emails(&harness) + chance.below(50) as usize;
            let then = Duration::from_micros(chance.below(20_000));
            cut_off(&harness, &trigger, at, then, &format!("try {kill}"));
        }
        let (before, heard) = (emails(&harness), finish(&harness, &trigger));
        assert!(heard.is_success(), "seed {seed}, killed at {before}: {heard:#?}");
        assert_eq!(got(&harness), everyone_once(), "seed {seed}, killed at {before}");
        let again = call(&harness, TOOL, &campaign("once more"), &[&trigger, "run=next"]);
        assert_eq!(again.status(), "already_done", "seed {seed}: {again:#?}");
        let effects = harness.provider().effects().unwrap();
        let mut made: Vec<&str> = effects.iter().map(|effect| effect.id.as_str()).collect();
        let mut told = again.receipts();
        made.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, made, "seed {seed}");
        assert_eq!(emails(&harness), RECIPIENTS, "seed {seed}");
    }
}

#[test]
fn a_killed_campaign_reaches_everyone_once_seeds_0_to_9() {
    seeds(0..10);
}

#[test]
fn a_killed_campaign_reaches_everyone_once_seeds_10_to_19() {
    seeds(10..20);
}

#[test]
fn another_campaign_is_another_email() {
    let harness = Harness::new("campaign").unwrap();
    let arguments = json!({
        "subject": "News",
        "body": "Dear reader",
        "recipients": ["A.Reader@Example.com"],
    });
    for (trigger, emails_then) in [("trigger=spring", 1), ("trigger=summer", 2), ("trigger=spring", 2)] {
        let heard = call(&harness, TOOL, &arguments, &[trigger]);
        assert!(heard.is_success(), "{trigger}: {heard:#?}");
        assert_eq!(emails(&harness), emails_then, "{trigger}");
    }
    // One recipient, written in another way and twice, is one recipient.
    let twice = json!({
        "subject": "News",
        "body": "Dear reader",
        "recipients": ["a.reader@example.com", " A.Reader@example.com"],
    });
    let heard = call(&harness, TOOL, &twice, &["trigger=spring"]);
    assert_eq!(heard.status(), "already_done", "{heard:#?}");
    assert_eq!(emails(&harness), 2);
    // There is no default campaign.
    let heard = call(&harness, TOOL, &arguments, &[]);
    assert_eq!(heard.json["code"], "context_missing", "{heard:#?}");
    assert_eq!(emails(&harness), 2);
}

fn one(words: &str) -> Value {
    json!({ "subject": words, "body": words, "recipients": ["reader@example.com"] })
}

/// The lookup is down, so the only way on is to send the stored request again: the provider drops
/// a repeat of key and body, and would refuse another body under the same key.
#[test]
fn a_lost_answer_is_asked_for_again_with_the_identical_request() {
    let modes = [
        Mode::CompleteThenReset,
        Mode::CompleteThenHang,
        Mode::Error500After,
        Mode::Error429After,
        Mode::Truncated,
        Mode::Error503Before,
        Mode::ResetBefore,
    ];
    for mode in modes {
        let harness = with_limits("campaign", "request-deadline = \"1s\"\nidle = \"1s\"");
        let provider = harness.provider();
        let lists_down = Settings { lists_down: true, ..Settings::default() };
        provider.settings(&lists_down).unwrap();
        provider.mode(mode, "POST", "/v1/emails", Some(1)).unwrap();
        let first = call(&harness, TOOL, &one("first words"), &["trigger=a"]);
        assert!(first.is_success() || first.status() == "pending", "{mode:?}: {first:#?}");
        let second = call(&harness, TOOL, &one("second words"), &["trigger=a"]);
        assert!(second.is_success(), "{mode:?}: {second:#?}");
        assert_eq!(emails(&harness), 1, "{mode:?}");
        let sent = provider.log().unwrap();
        let posts: Vec<_> = sent.iter().filter(|entry| entry.method == "POST").collect();
        assert!(posts.len() >= 2, "{mode:?}: {posts:#?}");
        let key = |n: usize| {
            let headers = &posts[n].headers;
            headers.iter().find(|(name, _)| name == "idempotency-key").map(|(_, key)| key.clone())
        };
        for n in 1..posts.len() {
            if mode != Mode::ResetBefore {
                assert_eq!(posts[n].body, posts[0].body, "{mode:?}");
                assert_eq!(key(n), key(0), "{mode:?}");
            }
        }
        let receipt = provider.effects().unwrap()[0].id.clone();
        call(&harness, TOOL, &one("third words"), &["trigger=a"]).is_replay_of(&receipt);
        assert_eq!(emails(&harness), 1, "{mode:?}");
    }
}

/// What a false statement costs: the contract says that the provider drops repeats, it does not.
#[test]
fn a_false_dedupe_makes_two() {
    let harness = with_limits("campaign", "");
    let provider = harness.provider();
    let settings = Settings { lists_down: true, dedupe: BTreeMap::new(), ..Settings::default() };
    provider.settings(&settings).unwrap();
    let mode = Mode::CompleteThenReset;
    provider.mode(mode, "POST", "/v1/emails", Some(1)).unwrap();
    let heard = call(&harness, TOOL, &one("words"), &["trigger=a"]);
    assert!(heard.is_success(), "{heard:#?}");
    assert_eq!(emails(&harness), 2);
}
