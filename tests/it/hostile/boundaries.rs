//! Each limit from both sides: what is one step below it passes, what is one step above is told its name.

use std::fmt::Write as _;

use oncegate_tests::attack::Attack;
use serde_json::{Value, json};

use super::guests::Served;

/// Small, so that steps are cheap; each test takes one of them to its edge.
const LIMITS: &str = "memory = \"8MiB\"\nhost-calls = 50\nhost-call-bytes = \"64KiB\"\nhandles = 20\nrandom = 64\n\
                      lookups = 5\nfield = 1000\nrequest = \"2KiB\"\nresult = 100\nlog = 100\neffects = 1\nresponse = 64";
const STDERR: &str = "(import \"wasi:cli/stderr@0.2.6\" \"get-stderr\" (func $stderr (result i32)))";
const WRITE: &str =
    "(import \"wasi:io/streams@0.2.6\" \"[method]output-stream.write\" (func $write (param i32 i32 i32 i32)))";
const RANDOM: &str = "(import \"wasi:random/random@0.2.6\" \"get-random-bytes\" (func $random (param i64 i32)))";

/// A guest with these imports, whose tool does this with `N` for the number of steps.
fn guest(name: &str, head: &str, imports: &str, act: &str, steps: usize) -> Attack {
    let act = act.replace("(N)", &format!("(i32.const {steps})")).replace("(N64)", &format!("(i64.const {steps})"));
    let text = format!(
        ";; Attacks: a limit.\n;; Must: know its edge.\n;; expect: edge\n{head}{imports}\n\
         (func $act (param $id i32) (param $id_length i32) (result i32)\n  (local $i i32)\n{act})\n"
    );
    Attack::from_text(name, &text).unwrap()
}

/// Does something `N` times.
fn times(what: &str) -> String {
    format!(
        "  (loop $again\n    {what}\n    (local.set $i (i32.add (local.get $i) (i32.const 1)))\n    \
         (br_if $again (i32.lt_u (local.get $i) (N))))\n"
    )
}

/// Traps where the host's last answer is an error, else says that all went well.
const UNLESS_REFUSED: &str = "  (if (i32.load8_u (global.get $answer)) (then unreachable))\n  (call $done)";

struct Edge {
    limit: &'static str,
    head: &'static str,
    imports: String,
    act: String,
    /// So much passes, and one more does not.
    passes: usize,
}

fn edge(limit: &'static str, imports: impl Into<String>, act: impl Into<String>, passes: usize) -> Edge {
    Edge { limit, head: "", imports: imports.into(), act: act.into(), passes }
}

fn edges() -> Vec<Edge> {
    let grow = "  (if (i32.eq (i32.const -1) (memory.grow (N))) (then unreachable))\n  (call $done)";
    let grow_table =
        "  (if (i32.eq (i32.const -1) (table.grow $table (ref.null func) (N))) (then unreachable))\n  (call $done)";
    let field = "  (i32.store (i32.const 96) (i32.const 65536))\n  (i32.store (i32.const 100) (N))\n  \
                 (memory.fill (i32.const 65536) (i32.const 97) (i32.const 60000))\n  (call $look)\n  (call $refund)\n";
    vec![
        // Two pages are there; 128 are allowed.
        edge("memory", "", grow, 126),
        edge("table-elements", "(table $table 1 funcref)", grow_table, 19_999),
        edge(
            "host-calls",
            "",
            times("(call $get (i32.const 208) (i32.const 6) (global.get $answer))") + "  (call $done)",
            50,
        ),
        edge("host-call-bytes", "", "  (call $get (i32.const 4096) (N) (global.get $answer))\n  (call $done)", 65_536),
        edge("handles", STDERR, times("(drop (call $stderr))") + "  (call $done)", 20),
        edge("random", RANDOM, "  (call $random (N64) (global.get $answer))\n  (call $done)", 64),
        edge("lookups", "", times("(call $look)") + UNLESS_REFUSED, 5),
        edge("field", "", field.to_owned() + UNLESS_REFUSED, 1_000),
        // As JSON it has quotation marks.
        edge(
            "result",
            "",
            "  (memory.fill (i32.const 4096) (i32.const 97) (i32.const 200))\n  (call $say (i32.const 4096) (N))",
            98,
        ),
    ]
}

fn served(guests: &[Attack], limits: &str) -> Served {
    Served::start(guests, limits)
}

fn call(served: &mut Served, guest: &Attack) -> Value {
    let (id, _) = served.begin(&guest.name);
    served.end(id)
}

#[test]
fn one_step_below_a_limit_passes_and_one_above_is_told_its_name() {
    let edges = edges();
    let at = |edge: &Edge, more: usize, side: &str| {
        guest(&format!("{}-{side}", edge.limit), edge.head, &edge.imports, &edge.act, edge.passes + more)
    };
    let guests: Vec<_> = edges.iter().flat_map(|edge| [at(edge, 0, "below"), at(edge, 1, "above")]).collect();
    let mut served = served(&guests, LIMITS);
    let mut wrong = String::new();
    for (edge, sides) in edges.iter().zip(guests.chunks(2)) {
        let (below, above) = (call(&mut served, &sides[0]), call(&mut served, &sides[1]));
        if below["status"] != "done" {
            writeln!(wrong, "{} below: {below}", edge.limit).unwrap();
        }
        if (above["code"].as_str(), above["limit"].as_str()) != (Some("tool_limit"), Some(edge.limit)) {
            writeln!(wrong, "{} above: {above}", edge.limit).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    served.good();
}

#[test]
fn as_many_effects_as_the_policy_allows_and_no_more() {
    let act = "  (call $look)\n  (call $refund)\n  \
               (call $perform (i32.const 128) (i32.const 10) (i32.const 4104) (i32.const 1) (global.get $answer))\n  (call $done)";
    let words = "(data (i32.const 4096) \"text\")\n\
                 (data (i32.const 4104) \"\\00\\10\\00\\00\\04\")\n\
                 (data (i32.const 4120) \"\\40\\00\\00\\00\\09\")";
    let two = guest("two", ";; contract: acts-twice\n", words, act, 0);
    let mut served = served(std::slice::from_ref(&two), LIMITS);
    let told = call(&mut served, &two);
    assert_eq!((&told["code"], &told["limit"]), (&json!("tool_limit"), &json!("effects")), "{told:#}");
    assert_eq!((&told["status"], &told["detail"]), (&json!("pending"), &json!("incomplete")), "{told:#}");
    let counts = served.harness.provider().counts().unwrap();
    assert_eq!((counts["refund"], counts["note"]), (1, 0));

    let mut served = Served::start(std::slice::from_ref(&two), "effects = 2");
    assert_eq!(call(&mut served, &two)["code"], Value::Null);
    let counts = served.harness.provider().counts().unwrap();
    assert_eq!((counts["refund"], counts["note"]), (1, 1));
}

#[test]
fn a_request_is_as_large_as_it_may_be_and_no_larger() {
    let act = "  (i32.store (i32.const 96) (i32.const 65536))\n  (i32.store (i32.const 100) (N))\n  \
               (memory.fill (i32.const 65536) (i32.const 97) (i32.const 60000))\n  (call $look)\n  (call $refund)\n"
        .to_owned()
        + UNLESS_REFUSED;
    let limits = "request = \"2KiB\"";
    let first = guest("first", "", "", &act, 500);
    let mut served = Served::start(std::slice::from_ref(&first), limits);
    assert_eq!(call(&mut served, &first)["status"], "done");
    let log = served.harness.provider().log().unwrap();
    let sent = log.iter().find(|one| one.method == "POST").unwrap();
    let url = served.harness.provider_url().len() + sent.path.len();
    let kind = "content-type".len() + sent.headers.iter().find(|(name, _)| name == "content-type").unwrap().1.len();
    let most = 500 + 2048 - (url + kind + sent.body.len());

    let guests = [guest("below", "", "", &act, most), guest("above", "", "", &act, most + 1)];
    let mut served = Served::start(&guests, limits);
    let (below, above) = (call(&mut served, &guests[0]), call(&mut served, &guests[1]));
    assert_eq!(below["status"], "done", "{below:#}");
    assert_eq!((&above["code"], &above["limit"]), (&json!("tool_limit"), &json!("request")), "{above:#}");
    assert_eq!(served.harness.provider().count("refund").unwrap(), 1);
}

#[test]
fn lookups_may_be_answered_with_so_many_bytes_together() {
    let act = times("(call $look)") + UNLESS_REFUSED;
    let guests = [guest("few", "", "", &act, 2), guest("many", "", "", &act, 40)];
    let mut served = Served::start(&guests, "lookup-bytes = \"4KiB\"");
    assert_eq!(call(&mut served, &guests[0])["status"], "done");
    let many = call(&mut served, &guests[1]);
    assert_eq!((&many["code"], &many["limit"]), (&json!("tool_limit"), &json!("lookup-bytes")), "{many:#}");
}

#[test]
fn what_is_cut_is_cut_at_its_limit_and_that_is_said() {
    // Says the body of the lookup's answer.
    let body = "  (call $look)\n  (call $say (i32.load (i32.const 1032)) (i32.load (i32.const 1036)))";
    let print = "  (call $write (call $stderr) (i32.const 4096) (N) (global.get $answer))\n  (call $done)";
    let imports = format!("{STDERR}\n{WRITE}");
    let guests = [
        guest("response", "", "", body, 0),
        guest("log-below", "", &imports, print, 100),
        guest("log-above", "", &imports, print, 101),
    ];
    let mut served = served(&guests, LIMITS);
    let told = call(&mut served, &guests[0]);
    assert_eq!(told["result"].as_str().unwrap().len(), 64, "{told:#}");
    for guest in &guests[1..] {
        assert_eq!(call(&mut served, guest)["status"], "done");
    }
    let left_out = |name: &str| {
        let heard = served.client.heard.iter().find(|message| message["params"]["logger"] == format!("{name}.act"));
        heard.unwrap()["params"]["data"]["bytes_left_out"].clone()
    };
    assert_eq!((left_out("log-below"), left_out("log-above")), (json!(0), json!(1)));
    let errors = served.client.errors();
    assert!(errors.contains("cut at the limit response"), "{errors}");
}

/// Instances, memories, tables: a component that has as many as it may have runs.
#[test]
fn a_component_with_as_much_as_it_may_have_loads_and_one_with_more_does_not() {
    let frame = "(core module $m (memory (export \"memory\") 1)\n\
                 (func (export \"realloc\") (param i32 i32 i32 i32) (result i32) i32.const 8)\n\
                 (func (export \"act\") (param i32 i32) (result i32)\n\
                   (i32.store (i32.const 16) (i32.const 32)) (i32.const 12)))\n\
                 (core instance $i (instantiate $m))\n";
    let end = "(func (export \"act\") (param \"x\" string) (result string) (canon lift (core func $i \"act\")\n\
               (memory (core memory $i \"memory\")) (realloc (core func $i \"realloc\"))))\n";
    let whole = |name: &str, module: &str, more: usize| {
        let instances = "(core instance (instantiate $more))\n".repeat(more);
        let text = format!(
            ";; Attacks: a limit.\n;; Must: know its edge.\n;; expect: edge\n;; contract: pure\n;; sections: contract\n\
             (component\n{frame}(core module $more {module})\n{instances}{end})\n"
        );
        Attack::from_text(name, &text).unwrap()
    };
    let section = |name: &str, size: &str| guest(name, &format!(";; sections: {size} wit\n"), "", "  (call $done)", 0);
    let guests = [
        whole("instances-below", "", 39),
        whole("instances-above", "", 40),
        whole("memories-below", "(memory 1)", 3),
        whole("memories-above", "(memory 1)", 4),
        whole("tables-below", "(table 1 funcref)", 8),
        whole("tables-above", "(table 1 funcref)", 9),
        section("section-below", "full"),
        section("section-above", "overfull"),
    ];
    let mut served = Served::start(&guests, "");
    let list = served.client.ask("tools/list", &json!({})).unwrap().to_string();
    let errors = served.client.errors();
    for pair in guests.chunks(2) {
        let limit = pair[0].name.trim_end_matches("-below");
        assert!(list.contains(&format!("\"{}.act\"", pair[0].name)), "{limit}: {errors}");
        let told = errors.lines().find(|line| line.contains(&format!("{}.wasm is not served", pair[1].name))).unwrap();
        assert!(told.contains(&format!("limit {limit}")), "{told}");
    }
    for name in ["instances-below", "memories-below", "tables-below"] {
        let params = json!({ "name": format!("{name}.act"), "arguments": { "x": "y" } });
        let told = served.client.ask("tools/call", &params).unwrap();
        assert_eq!(told["structuredContent"]["status"], "done", "{told:#}");
    }
    served.good();
}

#[test]
fn an_argument_is_as_long_as_it_may_be_and_no_longer() {
    let guest = guest("argument", "", "", "  (call $done)", 0);
    let mut served = Served::start(&[guest], "");
    let mut call = |bytes: usize| {
        let params = json!({ "name": "argument.act", "arguments": { "return_id": "x".repeat(bytes) } });
        served.client.ask("tools/call", &params).unwrap()["structuredContent"].take()
    };
    assert_eq!(call(1 << 20)["status"], "done");
    let told = call((1 << 20) + 1);
    assert_eq!((&told["status"], &told["code"]), (&json!("refused"), &json!("invalid_arguments")), "{told:#}");
}
