//! Descriptions of made components: what loads, and the name of everything that does not.

use super::dummy::{component, tool, with};
use super::*;

const WIT: &str = "package acme:refunds@0.1.0;
interface tools {
    /// What a refund came to.
    record receipt { id: string, amount: u64 }
    variant problem { not-found, other(string) }
    /// Pays a return back.
    issue-refund: func(return-id: string, reason: option<string>) -> result<receipt, problem>;
}
world refunds { include oncegate:effect/actor@0.1.0; export tools; }
";

const CONTRACT: &str = r#"
[component]
name = "acme-refunds"
effect = "keyed"
[endpoint.pay]
url = "https://pay.example"
credential = "pay"
[tool.issue-refund]
operations = ["create-refund"]
[operation.create-refund]
effect = "keyed"
action = "refund"
request = "POST pay:/refunds"
body = "json"
fields = [ { name = "return", at = "json:/return", role = "key", from = "argument:/return_id" } ]
receipt = "/id"
"#;

pub(crate) fn refunds() -> Vec<u8> {
    with(component(WIT), &[(CONTRACT_SECTION, CONTRACT.as_bytes()), (WIT_SECTION, WIT.as_bytes())])
}

fn refusal(bytes: &[u8]) -> String {
    match Description::read(bytes) {
        Ok(description) => panic!("it loads: {:?}", description.imports),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_whole_component_is_described() {
    let bytes = refunds();
    let description = Description::read(&bytes).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(description.name, "acme-refunds");
    assert_eq!(description.size, bytes.len());
    assert!(description.has_contract);
    assert_eq!(description.class, EffectClass::Keyed);
    assert_eq!(description.world.as_deref(), Some("acme:refunds/refunds@0.1.0"));
    assert!(description.digest_text().starts_with("sha256:"));
    let tool = description.tool("issue-refund").unwrap();
    assert_eq!(tool.interface.as_deref(), Some("acme:refunds/tools@0.1.0"));
    assert_eq!(tool.description.as_deref(), Some("Pays a return back."));
    assert_eq!(tool.operations, ["create-refund"]);
    assert_eq!(tool.effects, 1);
    assert!(tool.acts() && !tool.spread);
    assert!(description.imports.iter().all(|import| import.known));
    assert!(
        description
            .producers
            .iter()
            .any(|(field, value)| field == "processed-by" && value.starts_with("wit-component"))
    );
}

#[test]
fn sections_count_at_any_depth_and_only_once() {
    let twice = with(refunds(), &[(CONTRACT_SECTION, CONTRACT.as_bytes())]);
    assert!(refusal(&twice).contains("2 custom sections `oncegate:contract`"));
    let twice = with(refunds(), &[(WIT_SECTION, WIT.as_bytes())]);
    assert!(refusal(&twice).contains("2 custom sections `oncegate:wit`"));
    // One in a core module inside a component, the other one at the top.
    let mut module = wasm_encoder::Module::new();
    module.section(&wasm_encoder::CustomSection { name: CONTRACT_SECTION.into(), data: CONTRACT.as_bytes().into() });
    let mut nested = refunds();
    use wasm_encoder::ComponentSection as _;
    wasm_encoder::ModuleSection(&module).append_to_component(&mut nested);
    assert!(refusal(&nested).contains("2 custom sections"));
    // Alone in the core module it counts.
    let mut alone = with(component(WIT), &[(WIT_SECTION, WIT.as_bytes())]);
    wasm_encoder::ModuleSection(&module).append_to_component(&mut alone);
    assert!(Description::read(&alone).unwrap().has_contract);
}

#[test]
fn sections_are_bounded_text() {
    let base = component(WIT);
    let binary = with(base.clone(), &[(CONTRACT_SECTION, b"\xff\xfe")]);
    assert!(refusal(&binary).contains("not UTF-8"));
    let long = vec![b'#'; SECTION_BYTES_MAX + 1];
    let long = with(base, &[(CONTRACT_SECTION, &long)]);
    assert!(refusal(&long).contains("bytes and 262144 are allowed"));
}

#[test]
fn other_files_are_named() {
    assert!(refusal(b"hello").contains("some other file"));
    assert!(refusal(b"").contains("some other file"));
    assert!(refusal(b"\0asm\x01\0\0\0").contains("a core module"));
    let big = vec![0; COMPONENT_BYTES_MAX + 1];
    assert!(refusal(&big).contains("are allowed"));
    let mut cut = refunds();
    cut.truncate(cut.len() / 2);
    assert!(refusal(&cut).contains("not valid"));
}

#[test]
fn no_truncation_or_bit_flip_panics() {
    let bytes = refunds();
    for at in (0..bytes.len()).step_by(41) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let _ = Description::read(&changed);
        let _ = Description::read(&bytes[..at]);
    }
}

#[test]
fn a_door_needs_a_contract_of_its_class() {
    let bare = with(component(WIT), &[(WIT_SECTION, WIT.as_bytes())]);
    assert!(refusal(&bare).contains("`oncegate:effect/effect@0.1.0` but carries no contract"));
    let lies = with(component(WIT), &[(CONTRACT_SECTION, b"[component]\nname = \"acme\"\neffect = \"none\"\n")]);
    assert!(refusal(&lies).contains("the contract says `effect = \"none\"` but"));
    let broken = with(component(WIT), &[(CONTRACT_SECTION, b"[component]\nnam = 1\n")]);
    assert!(refusal(&broken).contains("oncegate:contract:2"));
}

#[test]
fn a_contract_must_fit_the_tools() {
    let contract = CONTRACT.replace("[tool.issue-refund]", "[tool.issue-refunds]");
    let sections: [(&str, &[u8]); 2] = [(CONTRACT_SECTION, contract.as_bytes()), (WIT_SECTION, WIT.as_bytes())];
    assert!(refusal(&with(component(WIT), &sections)).contains("issue-refunds"));
    let contract = CONTRACT.replace("argument:/return_id", "argument:/return");
    let sections: [(&str, &[u8]); 2] = [(CONTRACT_SECTION, contract.as_bytes()), (WIT_SECTION, WIT.as_bytes())];
    assert!(refusal(&with(component(WIT), &sections)).contains("argument"));
}

#[test]
fn a_pure_tool_needs_nothing() {
    let wit = "package acme:sums@0.1.0; world w { export add: func(a: s32, b: s32) -> s32; }";
    let description = Description::read(&component(wit)).unwrap();
    assert_eq!(description.class, EffectClass::None);
    assert!(!description.has_contract && description.contract.operations.is_empty());
    assert!(description.imports.is_empty());
    let tool = description.tool("add").unwrap();
    assert_eq!(tool.interface, None);
    assert_eq!(tool.signature(), "func(a: s32, b: s32) -> s32");
    assert!(!tool.acts());
    let named = with(component(wit), &[(WIT_SECTION, wit.as_bytes())]);
    assert_eq!(Description::read(&named).unwrap().name, "sums");
}

fn importing(import: &str, package: &str) -> Vec<u8> {
    component(&format!("package a:b@0.1.0;\nworld w {{ import {import}; export run: func(); }}\n{package}"))
}

#[test]
fn imports_are_a_closed_list() {
    let cases = [
        ("wasi:sockets/tcp@0.2.6", "wasi:sockets@0.2.6", "tcp", "opens network"),
        ("wasi:http/types@0.2.6", "wasi:http@0.2.6", "types", "sends requests"),
        ("wasi:cli/run@0.2.6", "wasi:cli@0.2.6", "run", "not among the WASI"),
        ("wasi:io/poll@0.3.0", "wasi:io@0.3.0", "poll", "not among the WASI"),
        ("wasi:io/poll@0.2.0-rc.1", "wasi:io@0.2.0-rc.1", "poll", "not among the WASI"),
        ("wasi:io/poll", "wasi:io", "poll", "not among the WASI"),
        ("evil:net/open@1.0.0", "evil:net@1.0.0", "open", "unknown"),
    ];
    for (import, package, interface, why) in cases {
        let package = format!("package {package} {{ interface {interface} {{ f: func(); }} }}");
        let text = refusal(&importing(import, &package));
        assert!(text.contains(&format!("`{import}`")) && text.contains(why), "{text}");
    }
    let inline = refusal(&importing("f: func()", ""));
    assert!(inline.contains("`f`: imported outside"), "{inline}");
    for import in ["wasi:io/poll@0.2.0", "wasi:io/poll@0.2.12"] {
        let package = import.replace("/poll", "");
        let package = format!("package {package} {{ interface poll {{ f: func(); }} }}");
        let description = Description::read(&importing(import, &package)).unwrap();
        assert_eq!(description.imports[0].name, import);
        assert_eq!(description.imports[0].meaning, "can wait");
    }
}

#[test]
fn the_wit_text_must_be_the_truth() {
    let sections = |wit: &str| {
        let sections: [(&str, &[u8]); 2] = [(CONTRACT_SECTION, CONTRACT.as_bytes()), (WIT_SECTION, wit.as_bytes())];
        with(component(WIT), &sections)
    };
    let lies = [
        ("return-id: string,", "return-no: string,", "and in the binary"),
        ("return-id: string,", "return-id: u32,", "and in the binary"),
        ("reason: option<string>", "reason: string", "and in the binary"),
        ("reason: option<string>)", "reason: option<string>, x: u8)", "and in the binary"),
        ("amount: u64", "amount: s64", "and in the binary"),
        ("amount: u64", "total: u64", "and in the binary"),
        ("not-found,", "gone,", "and in the binary"),
        ("other(string)", "other", "and in the binary"),
        ("result<receipt, problem>", "receipt", "and in the binary"),
        ("issue-refund: func", "issue-refunds: func", "does not export `issue-refunds`"),
        ("interface tools", "interface more", "does not export"),
        ("refunds@0.1.0", "refunds@0.1.1", "does not export"),
        ("world refunds {", "world extra {} world refunds {", "has 2 worlds"),
        ("interface tools {", "interface tools", "expected"),
        ("package acme:refunds@0.1.0;", "package oncegate:effect@0.1.0;", "built in"),
    ];
    for (true_part, lie, why) in lies {
        let wit = WIT
            .replace(true_part, lie)
            .replace("export tools;", if lie == "interface more" { "export more;" } else { "export tools;" });
        assert_ne!(wit, WIT);
        let text = refusal(&sections(&wit));
        assert!(text.contains(why), "{lie}: {text}");
    }
    // Names of types and docs are no part of the truth that is compared.
    let renamed = WIT.replace("receipt", "paid-back").replace("/// Pays a return back.", "/// Other words.");
    assert!(Description::read(&sections(&renamed)).is_ok());
}

#[test]
fn functions_that_the_text_does_not_have_are_no_tools() {
    let binary = "package a:b@0.1.0; interface extra { noise: func(); resource r { m: func(); } }
        world w { export run: func(); export init: func() -> u32; export extra; }";
    let text = "package a:b@0.1.0; world w { export run: func(); }";
    let bytes = with(component(binary), &[(WIT_SECTION, text.as_bytes())]);
    let description = Description::read(&bytes).unwrap();
    assert_eq!(description.tools.len(), 1);
    assert!(refusal(&component(binary)).contains("belongs to a resource"));
}

#[test]
fn two_tools_of_one_name_and_no_tool_are_refused() {
    let wit = "package a:b@0.1.0; interface x { run: func(); } interface y { run: func(); }
        world w { export x; export y; }";
    assert!(refusal(&component(wit)).contains("two exported functions are named `run`"));
    let wit = "package a:b@0.1.0; interface run { run: func(); }
        world w { export wasi:cli/run@0.2.6; }
        package wasi:cli@0.2.6 { interface run { run: func(); } }";
    assert!(refusal(&component(wit)).contains("no function that could be a tool"));
}

#[test]
fn types_without_a_json_form_are_refused() {
    let case = |types: &str, signature: &str| {
        let wit = format!("package a:b@0.1.0; interface t {{ {types} run: {signature}; }} world w {{ export t; }}");
        refusal(&component(&wit))
    };
    assert!(case("resource r;", "func() -> r").contains("own has no JSON form"));
    assert!(case("", "func(a: option<option<u8>>)").contains("option of an option"));
    let deep = format!("func(a: {}u8{})", "list<".repeat(40), ">".repeat(40));
    assert!(case("", &deep).contains("nest deeper"));
    let mut types = String::from("record t0 { a: u8, b: u8 }");
    for n in 1..14 {
        types += &format!(" record t{n} {{ a: t{}, b: t{} }}", n - 1, n - 1);
    }
    assert!(case(&types, "func(a: t13)").contains("more than 4096 parts"));
}

#[test]
fn docs_show_a_reviewer_what_a_model_sees() {
    let tool = tool("", "func()");
    assert_eq!(tool.description, None);
    let wit = "package a:b@0.1.0; world w {
        /// Seen\u{e0041}\u{200b} text.
        /// Second line.
        export run: func(); }";
    // WIT itself refuses some control characters; tags and zero-width characters pass it.
    let bytes = with(component(&wit.replace(['\u{e0041}', '\u{200b}'], "")), &[(WIT_SECTION, wit.as_bytes())]);
    let shown = Description::read(&bytes).map(|d| d.tools[0].description.clone());
    match shown {
        Ok(text) => assert_eq!(text.as_deref(), Some("Seen text.\nSecond line.")),
        Err(error) => assert!(error.to_string().contains("cannot be used"), "{error}"),
    }
}

#[test]
fn features_are_those_of_the_engine() {
    for absent in [
        WasmFeatures::THREADS,
        WasmFeatures::GC,
        WasmFeatures::TAIL_CALL,
        WasmFeatures::EXCEPTIONS,
        WasmFeatures::MEMORY64,
        WasmFeatures::RELAXED_SIMD,
        WasmFeatures::FUNCTION_REFERENCES,
        WasmFeatures::CM_ASYNC,
    ] {
        assert!(!features().intersects(absent), "{absent:?}");
    }
}
