//! The provider has made the effect, and answers as `tests/cases/hostile/answers` says. Whatever the bytes are,
//! they are kept as they came, nothing is asked for twice, and no reader is believed where two could part.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oncegate_ledger::{Effects, Event, StreamKind};
use serde_json::{Value, json};

use super::cases::{Case, Filled, Step, steps};
use super::villain::{self, Heard, tag};
use super::{Caller, PAY_SECRET, SHOP_SECRET, Scene, each, until_not};

/// What unpacking a gigabyte would take; the largest answers here are kept in less.
const GROWTH_KIB_MAX: u64 = 400 << 10;
/// Longer than the request's deadline by all that a busy machine needs, shorter than any attack lasts by itself.
const SOON: Duration = Duration::from_secs(55);

/// The providers' side: what was done, and whether lists show it.
#[derive(Default)]
struct Provider {
    done: Mutex<BTreeMap<String, Vec<String>>>,
    lists: AtomicBool,
}

impl Provider {
    /// Notes an effect and gives its right answer.
    fn act(&self, heard: &Heard) -> String {
        let reference = heard.form("ref").unwrap();
        let mut done = self.done.lock().unwrap();
        done.entry(tag(heard)).or_default().push(reference);
        object(&tag(heard))
    }

    fn list(&self, heard: &Heard) -> Vec<Step> {
        if !self.lists.load(Ordering::SeqCst) {
            return villain::json(503, "{}");
        }
        let id = heard.target().split("id=").nth(1).unwrap_or_default().to_owned();
        let done = self.done.lock().unwrap();
        let all = done.get(&id).into_iter().flatten();
        let all: Vec<Value> = all.map(|reference| json!({ "id": receipt(&id), "ref": reference })).collect();
        villain::json(200, &json!({ "data": all }).to_string())
    }

    fn count(&self, id: &str) -> usize {
        self.done.lock().unwrap().get(id).map_or(0, Vec::len)
    }
}

fn receipt(id: &str) -> String {
    format!("re_{id}")
}

fn object(id: &str) -> String {
    json!({ "object": "effect", "id": receipt(id) }).to_string()
}

/// The shop and the payments play the cases of the folder.
fn staged(cases: &Arc<Vec<Case>>) -> (Scene, Arc<Provider>) {
    // What takes long to make is made before anybody waits for it.
    for case in cases.iter() {
        steps(case.section(0), &Filled::with(&object(&case.name), SHOP_SECRET));
    }
    let (scene, provider) = (Scene::start(), Arc::<Provider>::default());
    let (played, of) = (Arc::clone(cases), Arc::clone(&provider));
    scene.pay.plays(move |heard, _| {
        if heard.method() == "GET" {
            return of.list(heard);
        }
        let Some(case) = played.iter().find(|case| case.name == tag(heard)) else { return Vec::new() };
        steps(case.section(0), &Filled::with(&of.act(heard), PAY_SECRET))
    });
    let played = Arc::clone(cases);
    scene.shop.plays(move |heard, _| {
        let Some(case) = played.iter().find(|case| case.name == tag(heard)) else { return Vec::new() };
        steps(case.section(0), &Filled::with(&object(&case.name), SHOP_SECRET))
    });
    (scene, provider)
}

/// Kilobytes of memory of the process, now or at most.
fn memory(pid: u32, of: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(of)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn no_answer_makes_a_false_done_a_second_effect_or_a_large_host() {
    let cases = Arc::new(Case::all("answers"));
    let (scene, provider) = staged(&cases);
    let before = memory(scene.server.pid(), "VmRSS:");
    let started = Instant::now();
    let heard = each(&cases, |case| (scene.caller.act(&case.name), scene.caller.show(&case.name)));
    assert!(started.elapsed() < SOON * 2, "{:?}", started.elapsed());
    let grown = memory(scene.server.pid(), "VmHWM:").saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "the host grew by {grown} KiB");
    for (case, (acted, showed)) in cases.iter().zip(&heard) {
        let name = &case.name;
        assert_eq!(provider.count(name), 1, "{name}: {acted}");
        let status = match case.key("effect") {
            "unknown" => "pending",
            "no-effect" => "failed",
            other => other,
        };
        assert_eq!(acted["status"], status, "{name}: {acted}");
        assert_eq!(showed["status"] == "done", case.key("lookup") == "given", "{name}: {showed}");
        let said = format!("{acted}{showed}");
        assert!(!said.contains(PAY_SECRET) && !said.contains(SHOP_SECRET), "{name}: {said}");
    }
    // The bytes came back, or will: what is there is exactly what was sent.
    kept_as_sent(&scene);
    provider.lists.store(true, Ordering::SeqCst);
    let settled = each(&cases, |case| (case.key("effect") != "no-effect").then(|| settled(&scene.caller, &case.name)));
    for (case, settled) in cases.iter().zip(settled) {
        let Some(settled) = settled else { continue };
        assert!(["done", "already_done"].contains(&settled["status"].as_str().unwrap()), "{}: {settled}", case.name);
        assert_eq!(settled["effects"][0]["receipt"], receipt(&case.name), "{}: {settled}", case.name);
        assert_eq!(provider.count(&case.name), 1, "{}: {settled}", case.name);
    }
    // And it goes on as if nothing had been.
    assert_eq!(scene.show("interim-one")["status"], "done");
}

fn settled(caller: &Caller, id: &str) -> Value {
    until_not(&["pending"], || caller.act(id))
}

/// Each stored answer is the beginning of what was sent for its effect, up to where a deadline ended it.
fn kept_as_sent(scene: &Scene) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("redb:{}", scene.harness.home().join("ledger.redb").display());
    let answers = runtime.block_on(async {
        let ledger = oncegate_ledger::open_for_reading(&url).await.unwrap();
        let records = ledger.scan(0, 10_000).await.unwrap();
        let effects = Effects::new(ledger);
        let mut answers = Vec::new();
        for record in records.iter().filter(|record| record.stream.kind == StreamKind::Effect) {
            if let Event::Responded { attempt, .. } = &record.event {
                let row = effects.get(record.stream.id).await.unwrap().unwrap();
                let label = row.label().to_owned();
                answers.push((label, effects.raw_answer(record.stream.id, *attempt).await.unwrap()));
            }
        }
        answers
    });
    assert!(answers.len() > 40, "{} answers", answers.len());
    for (label, kept) in answers {
        let sent = scene.pay.sent(label.rsplit([' ', ':', '/']).next().unwrap());
        assert!(!kept.is_empty() && sent.starts_with(&kept), "{label}: {} of {} bytes", kept.len(), sent.len());
    }
}

#[test]
fn slow_answers_hold_up_nobody_else() {
    let cases = Arc::new(Case::all("answers"));
    let (scene, _) = staged(&cases);
    let slow: Vec<&Case> = cases.iter().filter(|case| case.name.starts_with("sl") || case.name == "silence").collect();
    let caller = &scene.caller;
    std::thread::scope(|scope| {
        for case in &slow {
            scope.spawn(move || caller.show(&case.name));
        }
        let begun = Instant::now();
        while scene.shop.connections() < slow.len() {
            assert!(begun.elapsed() < SOON, "the slow ones do not come");
            std::thread::sleep(Duration::from_millis(5));
        }
        // All of them are under way for three seconds at least.
        let started = Instant::now();
        for _ in 0..3 {
            assert_eq!(scene.show("interim-one")["status"], "done");
        }
        let took = started.elapsed();
        eprintln!("three lookups beside {} slow ones took {took:?}", slow.len());
        assert!(took < SOON, "{took:?}");
    });
}
