//! Every hostile guest of `tests/cases/hostile`, served by the built program beside a good one: each comes to what its
//! file expects, the provider counts no effect too many, and the good one goes on being served.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use oncegate_tests::attack::{self, Attack};
use oncegate_tests::harness::{Guest, Harness, Options, TENANT};
use oncegate_tests::mcp::{ANSWER_WITHIN, Stdio};
use oncegate_tests::provider::Logged;
use oncegate_tests::provider::domains::Effect;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// Calls that are under way at once.
const AT_ONCE: usize = 12;
/// Servers at once.
const SERVERS: usize = 2;

/// One server with some hostile guests and the good one.
pub(crate) struct Served {
    pub(crate) harness: Harness,
    pub(crate) client: Stdio,
    _folder: TempDir,
    next: usize,
    within_ms: Option<u64>,
}

impl Served {
    pub(crate) fn start(attacks: &[Attack], limits: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("oncegate-hostile-").tempdir().unwrap();
        let good = Attack::named("good").unwrap();
        write(folder.path(), &good);
        let mut policy = String::new();
        for attack in attacks.iter().filter(|attack| attack.name != "good") {
            let digest = write(folder.path(), attack);
            if attack.is_named() {
                policy.push_str(&granted(&digest, &attack.contract().unwrap()));
            }
        }
        let guest = Guest { component: folder.path().join("good.wasm"), contract: good.contract().unwrap() };
        let limits = format!("answer-within = \"60s\"\n{limits}");
        let harness = Harness::with(guest, Options { limits, policy, ..Options::default() }).unwrap();
        let mut command = harness.command();
        command.arg("serve").arg(folder.path()).args(["--prefix", "--context", &format!("tenant={TENANT}")]);
        let client = Stdio::start(&mut command).unwrap();
        Self { harness, client, _folder: folder, next: 0, within_ms: None }
    }

    /// Calls that begin after this are answered so soon.
    pub(crate) fn answer_within_ms(&mut self, ms: u64) {
        self.within_ms = Some(ms);
    }

    /// Begins a call for a return that nobody else asks for; the call's id and the return's number.
    pub(crate) fn begin(&mut self, name: &str) -> (i64, usize) {
        self.next += 1;
        let arguments = json!({ "return_id": format!("R-{}", self.next) });
        let mut params = json!({ "name": format!("{name}.act"), "arguments": arguments });
        if let Some(within) = self.within_ms {
            params["_meta"]["dev.oncegate/answer-within-ms"] = json!(within);
        }
        (self.client.request("tools/call", &params).unwrap(), self.next)
    }

    pub(crate) fn end(&mut self, id: i64) -> Value {
        let mut answer = self.client.answer(id, ANSWER_WITHIN).unwrap();
        assert!(answer.get("result").is_some(), "{answer:#}");
        answer["result"]["structuredContent"].take()
    }

    /// A call of the good guest; one that was slow on a busy machine is made again.
    pub(crate) fn good(&mut self) {
        let started = Instant::now();
        let (mut id, number) = self.begin("good");
        loop {
            let told = self.end(id);
            if matches!(told["status"].as_str(), Some("done" | "already_done")) {
                break;
            }
            assert!(started.elapsed() < ANSWER_WITHIN, "{told:#}\n{}", self.client.errors());
            self.next = number - 1;
            id = self.begin("good").0;
        }
        assert_eq!(refunds(&self.harness.provider().effects().unwrap(), number), 1);
    }
}

/// Writes the component; its digest.
fn write(folder: &Path, attack: &Attack) -> String {
    let bytes = attack.component().unwrap_or_else(|error| panic!("{}: {error:#}", attack.name));
    fs::write(folder.join(format!("{}.wasm", attack.name)), &bytes).unwrap();
    Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Lines of the policy that grant a component all that its contract declares.
fn granted(digest: &str, contract: &str) -> String {
    let contract: toml::Table = contract.parse().unwrap();
    let operations = contract.get("operation").and_then(toml::Value::as_table);
    let names: Vec<_> = operations.into_iter().flatten().map(|(name, _)| format!("\"{name}\"")).collect();
    let names = names.join(", ");
    format!("\n[[component]]\ndigest = \"sha256:{digest}\"\ntenants = [\"{TENANT}\"]\ngrant = [{names}]\n")
}

fn refunds(effects: &[Effect], number: usize) -> usize {
    let of = |effect: &&Effect| effect.kind == "refund" && effect.object["charge"] == format!("ch_{number}");
    effects.iter().filter(of).count()
}

/// What the provider saw of one call.
struct Saw {
    effects: Vec<Effect>,
    log: Vec<Logged>,
}

impl Saw {
    fn count(&self, kind: &str, number: usize) -> usize {
        let id = format!("R-{number}");
        match kind {
            "refund" => refunds(&self.effects, number),
            "asked" => {
                self.log.iter().filter(|one| one.method == "GET" && one.path.ends_with(&format!("/{id}"))).count()
            }
            kind => self.effects.iter().filter(|one| one.kind == kind && one.object["thread"] == id).count(),
        }
    }
}

/// Where the answer or the provider's count is not as expected.
fn judge(attack: &Attack, number: usize, told: &Value, saw: &Saw) -> Vec<String> {
    let mut wrong = Vec::new();
    let outside = {
        let mut rest = told.clone();
        rest["result"] = Value::Null;
        rest.to_string()
    };
    for (key, value) in attack.expects() {
        let found = match key.as_str() {
            "status" | "code" | "limit" => told[&key].as_str().unwrap_or("none").to_owned(),
            "result" => told["result"].as_str().map_or_else(|| told["result"].to_string(), str::to_owned),
            "effects" => told["effects"].as_array().map_or(0, Vec::len).to_string(),
            "truncated" => told["truncated_by_host"].to_string(),
            "not-says" if outside.contains(&value) => format!("says {value}"),
            "not-says" => value.clone(),
            "refund" | "note" | "asked" => saw.count(&key, number).to_string(),
            other => panic!("{}: what is {other}?", attack.name),
        };
        let met = match value.strip_prefix("<=") {
            Some(most) => found.parse::<usize>().unwrap() <= most.parse().unwrap(),
            None => found == value,
        };
        if !met {
            wrong.push(format!("{}: {key} is {found} and not {value}: {told}", attack.name));
        }
    }
    // Whatever a file says: no return is refunded twice.
    if saw.count("refund", number) > 1 {
        wrong.push(format!("{}: refunded twice", attack.name));
    }
    wrong
}

/// Runs those that have the same limits; what was not as expected.
fn run(attacks: &[Attack], limits: &str) -> Vec<String> {
    let mut served = Served::start(attacks, limits);
    let mut wrong = Vec::new();
    for some in attacks.chunks(AT_ONCE) {
        let begun: Vec<_> = some.iter().map(|attack| served.begin(&attack.name)).collect();
        let told: Vec<_> = begun.iter().map(|(id, _)| served.end(*id)).collect();
        let provider = served.harness.provider();
        let saw = Saw { effects: provider.effects().unwrap(), log: provider.log().unwrap() };
        for ((attack, (_, number)), told) in some.iter().zip(begun).zip(told) {
            wrong.extend(judge(attack, number, &told, &saw));
        }
        served.good();
    }
    wrong
}

fn refused_at_load(attack: &Attack) -> bool {
    attack.expected("load").as_deref() == Some("refused")
}

#[test]
fn there_are_many_and_each_expects_something() {
    let attacks = attack::all().unwrap();
    assert!(attacks.len() >= 60, "only {}", attacks.len());
    let broken = attacks.iter().filter_map(|attack| Some(format!("{}: {:#}", attack.name, attack.component().err()?)));
    let broken: Vec<_> = broken.collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    for attack in attacks {
        let (load, status) = (attack.expected("load"), attack.expected("status"));
        assert!(load.is_some() != status.is_some(), "{}", attack.name);
        assert!(load.is_some() || attack.expected("refund").is_some(), "{}", attack.name);
    }
}

#[test]
fn each_comes_to_what_its_file_expects_and_the_good_one_goes_on() {
    let attacks = attack::all().unwrap().into_iter().filter(|attack| !refused_at_load(attack));
    let mut by_limits: BTreeMap<String, Vec<Attack>> = BTreeMap::new();
    for attack in attacks {
        by_limits.entry(attack.limits()).or_default().push(attack);
    }
    let (groups, wrong) = (Mutex::new(by_limits), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..SERVERS {
            scope.spawn(|| {
                loop {
                    let group = groups.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
                    let Some((limits, attacks)) = group else { break };
                    let found = run(&attacks, &limits);
                    wrong.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_must_not_load_is_refused_with_its_reason_and_the_good_one_is_served() {
    let attacks: Vec<_> = attack::all().unwrap().into_iter().filter(refused_at_load).collect();
    assert!(attacks.len() >= 20, "only {}", attacks.len());
    let mut served = Served::start(&attacks, "");
    let list = served.client.ask("tools/list", &json!({})).unwrap();
    let names: Vec<_> = list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["effect_status", "good.act"]);
    let errors = served.client.errors();
    let mut wrong = Vec::new();
    for attack in &attacks {
        let file = format!("{}.wasm is not served: ", attack.name);
        let told = errors.lines().find_map(|line| line.split_once(&file)).map(|(_, told)| told);
        let says = attack.expected("says").unwrap();
        if told.is_none_or(|told| !told.contains(&says)) {
            wrong.push(format!("{}: expected {says:?}, was told {told:?}", attack.name));
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    served.good();
}

#[test]
fn what_a_guest_says_of_its_tools_is_told_by_whoever_named_it_and_hides_nothing() {
    let attacks = ["docs-that-instruct", "docs-of-a-stranger"].map(|name| Attack::named(name).unwrap());
    let mut served = Served::start(&attacks, "");
    let list = served.client.ask("tools/list", &json!({})).unwrap();
    let text = |name: &str| {
        let tools = list["tools"].as_array().unwrap();
        let tool = tools.iter().find(|tool| tool["name"] == format!("{name}.act")).unwrap();
        tool["description"].as_str().unwrap().to_owned()
    };
    let named = text("docs-that-instruct");
    assert!(named.contains("previous instructions") && named.contains("Hidden words"), "{named:?}");
    assert_eq!(text("docs-of-a-stranger"), "The tool act of docs-of-a-stranger.");
    let hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{feff}');
    assert!(!list.to_string().contains(hidden), "{list:#}");
}
