//! Guests that try to get past the host, judged by what the provider saw: exactly the members that
//! the contract declares, once each, and as many effects as one.

mod boundaries;
mod claims;
pub(crate) mod guests;
mod neighbours;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use oncegate_ledger::StateTag;
use oncegate_tests::client::Client;
use oncegate_tests::harness::{Guest, Harness, Options, Run};
use oncegate_tests::provider::Logged;
use oncegate_tests::provider::domains::Settings;
use oncegate_tests::provider::http;
use oncegate_tests::provider::mode::Mode;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::book;

/// Tight, so that attacks on time and on counts end soon.
const LIMITS: &str = "wall-time = \"2s\"\nlookups = 20\nhost-calls = 100\n";
/// No attack holds the host longer than its wall time and the start of a process.
const SOON: Duration = Duration::from_secs(20);
/// All headers that a request may have here; `x-trace` is the contract's.
const HEADERS: &[&str] = &[
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "user-agent",
    "x-trace",
];

pub(crate) fn guest() -> Guest {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let built = std::env::var_os("ONCEGATE_GUESTS").map_or_else(|| root.join("../target/guests"), PathBuf::from);
    Guest {
        component: built.join("hostile.wasm"),
        contract: fs::read_to_string(root.join("guests/hostile/contract.toml")).unwrap(),
    }
}

struct Attack(Harness);

impl Attack {
    fn start() -> Self {
        Self::with(LIMITS)
    }

    fn with(limits: &str) -> Self {
        let options = Options { limits: limits.to_owned(), ..Options::default() };
        Self(Harness::with(guest(), options).unwrap())
    }

    /// Has the guest do the steps and looks at all that the provider saw.
    fn run(&self, tool: &str, script: &Value) -> Heard {
        let file = self.0.folder().join("arguments.json");
        let arguments = json!({ "return_id": "R-1", "script": script });
        fs::write(&file, arguments.to_string()).unwrap();
        let mut command = self.0.command();
        command.arg("call").arg(self.0.component()).arg(tool).arg("--json");
        command.arg("--args").arg(format!("@{}", file.display()));
        command.args(["--context", "tenant=acme"]);
        let run = Run::of(&mut command).unwrap();
        assert!(run.took < SOON, "{:?}", run.took);
        let heard = Heard { json: run.json().unwrap(), code: run.code };
        self.nothing_undeclared_left();
        heard
    }

    fn provider(&self) -> Client {
        self.0.provider()
    }

    fn log(&self) -> Vec<Logged> {
        self.provider().log().unwrap()
    }

    /// Requests that make something happen, each with its members.
    fn sent(&self, path: &str) -> Vec<Vec<(String, String)>> {
        let log = self.log();
        let posts = log.iter().filter(|one| one.method == "POST" && one.path == path);
        posts.map(form).collect()
    }

    fn count(&self, kind: &str) -> usize {
        self.provider().count(kind).unwrap()
    }

    /// Nothing left for a provider that could make something happen.
    fn nothing_was_sent(&self) {
        let log = self.log();
        let acted = log.iter().find(|one| one.method != "GET");
        assert!(acted.is_none(), "{acted:?}");
    }

    fn nothing_undeclared_left(&self) {
        for request in self.log() {
            declared_only(&request);
        }
    }
}

/// What the agent heard.
struct Heard {
    json: Value,
    code: Option<i32>,
}

impl Heard {
    #[track_caller]
    fn is(&self, status: &str, code: Option<&str>) -> &Self {
        assert_eq!(self.json["status"], status, "{}", self.json);
        assert_eq!(self.json["code"].as_str(), code, "{}", self.json);
        let exit = match status {
            "done" | "already_done" => 0,
            "failed" => 1,
            "refused" => 3,
            _ => 4,
        };
        assert_eq!(self.code, Some(exit));
        self
    }

    /// What each step of the guest came to, in the guest's own words.
    fn steps(&self) -> Vec<String> {
        let steps = self.json["result"].as_array();
        steps
            .unwrap_or_else(|| panic!("no steps in {}", self.json))
            .iter()
            .map(|step| step.as_str().unwrap().to_owned())
            .collect()
    }
}

fn form(request: &Logged) -> Vec<(String, String)> {
    parsed(request).form_pairs()
}

fn parsed(request: &Logged) -> http::Request {
    http::Request {
        method: request.method.clone(),
        path: request.path.clone(),
        query: request.query.clone(),
        headers: Vec::new(),
        body: request.body.clone().into_bytes(),
    }
}

/// Each header, path, query and body member is one that the contract declares, and is there once.
fn declared_only(request: &Logged) {
    let mut headers: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    headers.sort_unstable();
    let known = headers.iter().all(|name| HEADERS.contains(name));
    assert!(known && headers.windows(2).all(|two| two[0] != two[1]), "{request:?}");
    let host = request.headers.iter().find(|(name, _)| name == "host").unwrap();
    assert!(host.1.starts_with("127.0.0.1:"), "{request:?}");
    let folder = request.path.rsplit_once('/').unwrap().0;
    match (request.method.as_str(), folder) {
        ("GET", "/returns") => assert_eq!((request.path.as_str(), request.query.as_str()), ("/returns/R-1", "")),
        ("GET", "/orders") => assert!(request.query.matches(['=', '&']).count() <= 1, "{request:?}"),
        ("GET", "/v1") => assert_eq!(request.query.matches(['=', '&']).count(), 1, "{request:?}"),
        ("POST", "/v1") if request.path == "/v1/refunds" => refund_members(request),
        ("POST", "/v1") if request.path == "/v1/notes" => note_members(request),
        _ => panic!("no operation sends {request:?}"),
    }
    assert!(request.method == "POST" || request.body.is_empty(), "{request:?}");
}

fn refund_members(request: &Logged) {
    let members = form(request);
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    let declared = ["metadata[return]", "charge", "amount", "metadata[reason]", "metadata[ref]"];
    assert_eq!(names, declared, "{request:?}");
    let values: BTreeMap<&str, &str> = members.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!((values["metadata[return]"], values["charge"]), ("R-1", "ch_1"));
    let amount = values["amount"];
    let number: i64 = amount.parse().unwrap();
    assert!((1..=50_000).contains(&number) && number.to_string() == amount, "{request:?}");
}

fn note_members(request: &Logged) {
    let body: Value = serde_json::from_str(&request.body).unwrap();
    let names: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(names, ["thread", "text"], "{request:?}");
    assert_eq!(body["thread"], "R-1");
}

fn text(name: &str, value: &str) -> Value {
    json!({ "name": name, "value": { "text": value } })
}

fn look() -> Value {
    json!({ "fetch": { "operation": "get-return", "fields": [] } })
}

fn perform(operation: &str, fields: &[Value]) -> Value {
    json!({ "perform": { "operation": operation, "fields": fields } })
}

/// A refund with the fields that its contract wants, and these.
fn refund(more: &[Value]) -> Value {
    let reason = [text("reason", "too large")];
    perform("create-refund", &[&reason, more].concat())
}

fn note(words: &str) -> Value {
    perform("leave-note", &[text("text", words)])
}

fn order(fields: &[Value]) -> Value {
    json!({ "fetch": { "operation": "get-order", "fields": fields } })
}

// Attacks on the host's time and memory.

#[test]
fn a_loop_without_end_is_stopped() {
    let attack = Attack::start();
    let heard = attack.run("act", &json!([{ "spin": null }]));
    heard.is("refused", Some("tool_limit"));
    assert!(heard.json["message"].as_str().unwrap().contains("wall-time"), "{}", heard.json);
    attack.nothing_was_sent();
}

#[test]
fn a_loop_without_end_behind_an_effect_takes_nothing_back() {
    let attack = Attack::start();
    attack.run("act", &json!([look(), refund(&[]), { "spin": null }])).is("done", None);
    assert_eq!(attack.count("refund"), 1);
    attack.run("act", &json!([look(), refund(&[])])).is("already_done", None);
    assert_eq!(attack.count("refund"), 1);
}

#[test]
fn memory_ends_at_its_limit() {
    let attack = Attack::start();
    let heard = attack.run("act", &json!([{ "allocate": null }]));
    if heard.json["status"] == "done" {
        let mebibytes: u32 = heard.steps()[0].split(' ').next().unwrap().parse().unwrap();
        assert!(mebibytes <= 64, "{}", heard.json);
    } else {
        heard.is("refused", Some("tool_limit"));
    }
}

#[test]
fn recursion_without_end_is_stopped() {
    let attack = Attack::start();
    let heard = attack.run("act", &json!([{ "recurse": null }]));
    assert_eq!(heard.json["status"], "refused", "{}", heard.json);
    attack.nothing_was_sent();
}

#[test]
fn a_flood_of_output_is_capped_and_reaches_nobody() {
    // It ends by itself, also on a machine that has much else to do.
    let attack = Attack::with("wall-time = \"15s\"\nanswer-within = \"20s\"");
    let heard = attack.run("act", &json!([{ "flood": 10_000_000 }, look(), refund(&[])]));
    heard.is("done", None);
    assert!(heard.json.to_string().len() < 5_000);
    assert_eq!(attack.count("refund"), 1);
}

#[test]
fn lookups_and_host_calls_are_counted() {
    let attack = Attack::start();
    attack.run("act", &json!([{ "fetch-often": 50 }]));
    assert_eq!(attack.log().len(), 20);
    let heard = attack.run("act", &json!([{ "context-often": 5_000 }]));
    heard.is("refused", Some("tool_limit"));
    assert!(heard.json["message"].as_str().unwrap().contains("host-calls"), "{}", heard.json);
}

#[test]
fn a_result_without_bounds_is_refused_and_its_effect_told() {
    let attack = Attack::start();
    let heard = attack.run("act", &json!([{ "swell": 3_000_000 }]));
    heard.is("refused", Some("tool_limit"));
    let heard = attack.run("act", &json!([look(), refund(&[]), { "swell": 3_000_000 }]));
    heard.is("done", None);
    assert_eq!(heard.json["effects"][0]["receipt"], "re_000001");
}

// Attacks on what is sent.

#[test]
fn amounts_out_of_range_or_of_another_type_are_not_sent() {
    let integers = [i64::MIN, -1, 0, 50_001, 1 << 53, i64::MAX].map(|n| json!({ "integer": n }));
    let words = ["", "5e2", "0x1F4", "500.5", "NaN", "-0", "500,00", "5 00", "٥٠٠"];
    let texts = words.map(|word| json!({ "text": word }));
    let others = [
        json!({ "truth": true }),
        json!({ "json": "[500]" }),
        json!({ "json": "{\"$gt\":0}" }),
        json!({ "json": "5e2" }),
        json!({ "bytes": "NTAw" }),
        json!({ "decimal": "0.5" }),
        json!({ "decimal": "99999999999999999999999999999" }),
    ];
    let amounts = integers.iter().chain(&texts).chain(&others);
    refuses_each(amounts.map(|value| vec![json!({ "name": "amount", "value": value })]));
}

#[test]
fn an_amount_is_sent_in_one_form_however_it_is_given() {
    let attack = Attack::start();
    let forms = [json!({ "text": "+500" }), json!({ "integer": 500 }), json!({ "decimal": "500" })];
    let asks = forms.map(|value| refund(&[json!({ "name": "amount", "value": value })]));
    attack.run("act", &json!([look(), asks[0], asks[1], asks[2]]));
    let sent = attack.sent("/v1/refunds");
    assert_eq!((sent.len(), sent[0][2].1.as_str()), (1, "500"));
}

#[test]
fn a_field_that_is_not_declared_stops_the_request() {
    let names = [
        "Idempotency-Key",
        "idempotency-key",
        "Host",
        "host",
        "Authorization",
        "Content-Length",
        "Transfer-Encoding",
        ":authority",
        "metadata[ref]",
        "ref",
        "currency",
        "Amount",
        "amount ",
        "amount[]",
        "charge\0",
        "",
        "../amount",
        "__proto__",
    ];
    refuses_each(names.iter().map(|name| vec![text(name, "1")]));
}

#[test]
fn a_field_given_twice_stops_the_request() {
    let amount = |n: i64| json!({ "name": "amount", "value": { "integer": n } });
    let twice = [
        vec![text("reason", "other words")],
        vec![text("reason", "too large")],
        vec![amount(100), amount(50_000)],
        vec![text("charge", "ch_1"), text("charge", "ch_2")],
        vec![text("charge", "ch_1"), text("charge", "ch_1")],
    ];
    refuses_each(twice.into_iter());
}

#[test]
fn a_copy_that_differs_from_its_source_stops_the_request() {
    let copies = [("return", "R-2"), ("charge", "ch_2"), ("charge", ""), ("charge", "CH_1")];
    refuses_each(copies.iter().map(|(name, value)| vec![text(name, value)]));
    let attack = Attack::start();
    let heard = attack.run("act", &json!([refund(&[])]));
    assert_eq!(heard.json["status"], "refused", "{}", heard.json);
    attack.nothing_was_sent();
}

/// Asks for a refund with each of these fields beside the right ones, in one call; none is made.
#[track_caller]
fn refuses_each(fields: impl Iterator<Item = Vec<Value>>) {
    let attack = Attack::start();
    let asks: Vec<Value> = fields.map(|fields| refund(&fields)).collect();
    let script = [vec![look()], asks.clone()].concat();
    let heard = attack.run("act", &json!(script));
    assert_eq!(heard.json["status"], "refused", "{}", heard.json);
    for (ask, step) in asks.iter().zip(&heard.steps()[1..]) {
        assert!(step.contains("InvalidField"), "{ask}: {step}");
    }
    attack.nothing_was_sent();
    assert_eq!(book::rows(&attack.0).len(), 0);
}

#[test]
fn too_many_fields_and_too_long_ones_stop_the_request() {
    let attack = Attack::start();
    let many = json!({ "perform": { "operation": "create-refund", "fields": [], "more": 10_000 } });
    let long = |bytes: u32| {
        let reason = json!({ "name": "reason", "value": { "long": bytes } });
        perform("create-refund", &[reason])
    };
    for step in [many, long(501), long(1 << 20), long(3 << 20), long(16 << 20)] {
        let heard = attack.run("act", &json!([look(), step]));
        assert_eq!(heard.json["status"], "refused", "{}", heard.json);
        attack.nothing_was_sent();
    }
    assert_eq!(book::rows(&attack.0).len(), 0);
}

#[test]
fn text_cannot_leave_its_place_in_a_form() {
    for words in [
        "x&amount=1&charge=ch_2",
        "x%26amount=1",
        "x\r\n\r\nPOST /v1/refunds HTTP/1.1\r\nHost: a\r\n\r\n",
        "a=b;c+d%00",
        "\u{202e}re\u{0}\u{7f}",
        "é\u{301}\u{1f600}",
    ] {
        let attack = Attack::start();
        attack.run("act", &json!([look(), perform("create-refund", &[text("reason", words)])]));
        let sent = attack.sent("/v1/refunds");
        assert!(sent.len() <= 1);
        for members in sent {
            assert_eq!(members[3].1, words);
        }
        assert!(attack.count("refund") <= 1);
    }
}

#[test]
fn text_cannot_leave_its_place_in_json() {
    for words in ["\",\"thread\":\"R-2", "\\\",\"x\":1,\"", "\u{2028}\u{0}\n", "</script>"] {
        let attack = Attack::start();
        attack.run("act", &json!([note(words)])).is("done", None);
        let log = attack.log();
        let body: Value = serde_json::from_str(&log.last().unwrap().body).unwrap();
        assert_eq!(body, json!({ "thread": "R-1", "text": words }));
        assert_eq!(attack.count("note"), 1);
    }
}

/// Values that would change a request if they were pasted into it.
const BREAKOUTS: &[&str] = &[
    "",
    ".",
    "..",
    "../returns/R-1",
    "%2e%2e",
    "%2E%2E%2Freturns%2FR-1",
    "..%2f..",
    "a/b",
    "/",
    "//evil.example/x",
    "http://evil.example/x",
    "@evil.example",
    "a\\b",
    "..\\..",
    "a?admin=1",
    "a&admin=1",
    "a=b&c=d",
    "a#b",
    "a;b",
    "a%00b",
    "a\0b",
    "a b",
    "\t",
    "a\r\nX-Evil: 1",
    "a\nX-Evil: 1",
    "a\rX-Evil: 1",
    "a HTTP/1.1\r\nHost: evil\r\n\r\n",
    "a\u{85}b",
    "a\u{7f}b",
    "é",
    "．．／",
    "+",
    "%",
    "%zz",
];

/// Sends lookups with each of the values at one place, and gives those that left with their value.
fn sent_with(fields: impl Fn(&str) -> Vec<Value>) -> Vec<(&'static str, Logged)> {
    let limits = LIMITS.replace("lookups = 20", "lookups = 100");
    let attack = Attack::with(&limits);
    let script: Vec<Value> = BREAKOUTS.iter().map(|value| order(&fields(value))).collect();
    let heard = attack.run("act", &json!(script));
    let left = BREAKOUTS.iter().zip(heard.steps());
    let left = left.filter(|(_, step)| step.ends_with("Settlement::None")).map(|(value, _)| *value);
    let left: Vec<&str> = left.collect();
    let log = attack.log();
    assert_eq!(left.len(), log.len(), "{left:?}");
    assert!(!left.is_empty(), "{}", heard.json);
    left.into_iter().zip(log).collect()
}

#[test]
fn a_value_stays_one_path_segment() {
    for (value, request) in sent_with(|value| vec![text("id", value)]) {
        let segments: Vec<&str> = request.path.split('/').collect();
        assert_eq!((segments.len(), segments[1]), (3, "orders"), "{value:?}: {request:?}");
        let decoded = percent_decode_str(segments[2]).decode_utf8().unwrap();
        assert_eq!(decoded, value, "{request:?}");
        assert_eq!(request.query, "", "{value:?}");
        assert!(!["", ".", ".."].contains(&&*decoded), "{request:?}");
        assert!(segments[2].bytes().all(|byte| byte.is_ascii_graphic()), "{request:?}");
    }
}

#[test]
fn a_value_stays_one_member_of_the_query() {
    for (value, request) in sent_with(|value| vec![text("id", "O-1"), text("view", value)]) {
        assert_eq!(request.path, "/orders/O-1", "{value:?}");
        let member = ("view".to_owned(), value.to_owned());
        assert_eq!(parsed(&request).query_pairs(), [member], "{request:?}");
    }
}

#[test]
fn a_value_stays_one_header() {
    for (value, request) in sent_with(|value| vec![text("id", "O-1"), text("trace", value)]) {
        let trace = request.headers.iter().find(|(name, _)| name == "x-trace");
        assert_eq!(trace.map(|(_, text)| text.as_str()), Some(value.trim()), "{request:?}");
        assert!(!value.chars().any(char::is_control), "{value:?} was sent");
    }
}

#[test]
fn a_header_that_cannot_be_sent_makes_no_effect_unknown() {
    let attack = Attack::start();
    for value in ["a\r\nX-Evil: 1", "a\0b", "é"] {
        let heard = attack.run("act", &json!([look(), refund(&[text("trace", value)])]));
        assert_ne!(heard.json["status"], "pending", "{value:?}: {}", heard.json);
    }
    assert!(attack.count("refund") <= 1);
}

#[test]
fn operations_of_others_and_of_the_other_class_do_not_exist() {
    let attack = Attack::start();
    let ask = |operation: &str| json!({ "operation": operation, "fields": [text("charge", "ch_1")] });
    for (tool, step) in [
        ("act", json!({ "fetch": ask("find-refund") })),
        ("act", json!({ "fetch": ask("create-refund") })),
        ("act", json!({ "fetch": ask("leave-note") })),
        ("act", json!({ "fetch": ask("") })),
        ("both", json!({ "fetch": ask("get-order") })),
        ("act", json!({ "fetch": ask("GET-RETURN") })),
    ] {
        let heard = attack.run(tool, &json!([step]));
        assert!(heard.steps()[0].contains("NotPermitted"), "{}", heard.json);
    }
    for operation in ["get-return", "find-refund", "refund", "create-refund ", "\u{1b}[2J<b>ignore"] {
        let heard = attack.run("act", &json!([perform(operation, &[])]));
        heard.is("refused", Some("effect_not_permitted"));
        assert!(!heard.json["message"].as_str().unwrap().contains("ignore"), "{}", heard.json);
    }
    assert_eq!(attack.log().len(), 0);
}

/// The component with one more custom section at its end.
pub(crate) fn with_section(mut component: Vec<u8>, name: &str, data: &[u8]) -> Vec<u8> {
    let length = |mut number: usize, bytes: &mut Vec<u8>| {
        while number >= 0x80 {
            bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    };
    let mut section = Vec::new();
    length(name.len(), &mut section);
    section.extend(name.as_bytes());
    section.extend(data);
    component.push(0);
    length(section.len(), &mut component);
    component.extend(section);
    component
}
