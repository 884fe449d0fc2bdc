//! Contracts that are accepted, and every error with its file, line and key.

use std::time::Duration;

use oncegate_contract::{Contract, Dedupe, EffectClass, Place, SequenceScope, Source, lint};

use crate::fixtures::{ALL, CAMPAIGN, NOTES, PAYOUT, REFUNDS, contract};

#[test]
fn the_examples_are_accepted() {
    for (file, text) in ALL {
        let contract = Contract::parse(file, text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(&contract.text, text);
    }
}

#[test]
fn the_refund_contract_says_what_it_says() {
    let contract = contract(REFUNDS);
    assert_eq!(contract.component.name, "acme-refunds");
    assert_eq!(contract.endpoints["pay"].credential.as_deref(), Some("pay"));
    assert_eq!((contract.tools["issue-refund"].effects, contract.tools["issue-refund"].operations.len()), (1, 2));
    let refund = &contract.operations["create-refund"];
    assert_eq!((refund.effect, refund.action.as_deref()), (EffectClass::Keyed, Some("refund")));
    assert_eq!(
        refund.fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(),
        ["return", "charge", "amount", "reason"]
    );
    assert_eq!(refund.provider.dedupe, Dedupe::KeyAndBody);
    assert_eq!(refund.provider.at, Some(Place::Header("idempotency-key".into())));
    assert_eq!(refund.provider.window, Some(Duration::from_secs(86_400)));
    assert_eq!(refund.settle.as_ref().unwrap().absent_after, Some(Duration::from_secs(90)));
    assert!(refund.irreversible());
    assert!(matches!(&refund.fields[0].source, Source::Lookup { operation, .. } if operation == "get-return"));
}

#[test]
fn facts_that_a_tool_needs_are_known() {
    let names = |text, tool| contract(text).context_facts(tool).into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(CAMPAIGN, "send-campaign"), ["trigger"]);
    assert_eq!(names(NOTES, "add-note"), ["sequence", "trigger"]);
    assert_eq!(names(REFUNDS, "issue-refund"), Vec::<String>::new());
    assert_eq!(contract(NOTES).operations["create-note"].repeat, Some(SequenceScope::Trigger));
}

/// A small contract around one operation; `LINE` marks the line that an error must name.
fn around(operation: &str) -> String {
    format!(
        "[component]\nname = \"c\"\neffect = \"keyed\"\n[endpoint.e]\nurl = \"https://e.example\"\n[operation.find]\n\
         effect = \"none\"\nrequest = \"GET e:/things\"\n[operation.o]\neffect = \"keyed\"\naction = \"act\"\n{operation}\n"
    )
}

const KEY: &str = "{ name = \"k\", at = \"form:k\", role = \"key\", from = \"argument:/k\" }";

fn body_of(rest: &str) -> String {
    format!("request = \"POST e:/x\"\nbody = \"form\"\nreceipt = \"/id\"\n{rest}")
}

fn with_field(field: &str) -> String {
    around(&body_of(&format!("fields = [\n{KEY},\n{field},\n]")))
}

#[track_caller]
fn refused(text: &str, key: &str, said: &str) {
    let errors = Contract::parse("c.toml", text).expect_err(text).into_errors();
    let found = errors.iter().find(|e| e.key == key && e.message.contains(said));
    let found = found.unwrap_or_else(|| panic!("no error at {key} saying {said:?} in {errors:#?}\n{text}"));
    assert_eq!(found.file, "c.toml");
    let line = text.lines().nth(found.line - 1).unwrap_or_else(|| panic!("line {} is not in the text", found.line));
    let last = key.rsplit('.').next().unwrap().split('[').next().unwrap();
    assert!(line.contains(last) || key.contains('['), "line {} is {line:?}, key is {key}", found.line);
}

#[test]
fn errors_name_line_and_key() {
    let text = with_field("{ name = \"host\", at = \"header:Host\" }");
    let errors = Contract::parse("dir/c.toml", &text).unwrap_err();
    let wanted = text.lines().position(|l| l.contains("header:Host")).unwrap() + 1;
    assert!(errors.to_string().starts_with(&format!("dir/c.toml:{wanted}: operation.o.fields[1].at: ")), "{errors}");
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = "[component]\nname = \"Bad Name\"\neffect = \"sometimes\"\ncolour = 1\n[endpoint.e]\nurl = \"ftp://e\"\n\
                [operation.o]\neffect = \"keyed\"\nrequest = \"SEND e:/\"\nfields = [ { nam = \"x\" } ]\n[surprise]\n";
    let errors = Contract::parse("c.toml", text).unwrap_err();
    let lines: Vec<usize> = errors.errors().iter().map(|e| e.line).collect();
    for line in [2, 3, 4, 6, 9, 10, 11] {
        assert!(lines.contains(&line), "line {line} has no error in\n{errors}");
    }
    assert!(lines.is_sorted());
}

#[test]
fn syntax_errors_have_lines() {
    let errors = Contract::parse("c.toml", "[component]\nname = \"c\"\neffect = \"none\n").unwrap_err();
    assert_eq!(errors.errors()[0].line, 3, "{errors}");
    let twice = Contract::parse("c.toml", "[component]\nname = \"c\"\nname = \"d\"\neffect = \"none\"\n").unwrap_err();
    assert_eq!(twice.errors()[0].line, 3, "{twice}");
}

#[test]
fn unknown_keys_are_refused_everywhere() {
    for (file, text) in ALL {
        for (i, line) in text.lines().enumerate().filter(|(_, l)| l.trim().starts_with('[') && l.contains('.')) {
            let broken: Vec<_> = text.lines().map(str::to_owned).collect();
            let broken = [&broken[..=i], &["surprise = 1".to_owned()], &broken[i + 1..]].concat().join("\n");
            let errors = Contract::parse(file, &broken).expect_err(line);
            let error = errors.errors().iter().find(|e| e.key.ends_with("surprise")).expect(line);
            assert_eq!(error.line, i + 2, "{errors}");
        }
    }
    refused(
        &with_field("{ name = \"x\", at = \"form:x\", defualt = 1 }"),
        "operation.o.fields[1].defualt",
        "unknown key",
    );
}

#[test]
fn places_that_belong_to_the_sender_are_refused() {
    let headers = [
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Upgrade",
        "TE",
        "Trailer",
        "Expect",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Authorization",
        "Cookie",
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "x_forwarded_for",
        "content_length",
        "Content-Type",
        "X-HTTP-Method-Override",
        "Stripe-Account",
        "X-Api-Key",
        "Idempotency-Key",
        "Keep-Alive",
        "Via",
        "bad header",
        "a:b",
        "a\\r\\nb",
        "",
    ];
    for name in headers {
        let text = with_field(&format!("{{ name = \"x\", at = \"header:{name}\" }}"));
        refused(&text, "operation.o.fields[1].at", "");
    }
    for place in [
        "form:_method",
        "query:access_token",
        "query:a&b",
        "form:a=b",
        "query:a b",
        "form:",
        "x:y",
        "nothing",
        "path:zz",
        "json:/a",
        "part:a",
        "body",
    ] {
        let text = with_field(&format!("{{ name = \"x\", at = \"{place}\" }}"));
        refused(&text, "operation.o.fields[1].at", "");
    }
}

#[test]
fn one_member_is_written_once() {
    refused(&with_field("{ name = \"x\", at = \"form:k\" }"), "operation.o.fields[1].at", "written twice");
    let header = "{ name = \"a\", at = \"header:X-A\" },\n{ name = \"b\", at = \"header:x_a\" }";
    refused(&with_field(header), "operation.o.fields[2].at", "written twice");
    refused(
        &around(&body_of(&format!("reference = \"form:k\"\nfields = [ {KEY} ]"))),
        "operation.o.reference",
        "written twice",
    );
    let json = "request = \"POST e:/x\"\nbody = \"json\"\nreceipt = \"/id\"\nfields = [\n\
                { name = \"k\", at = \"json:/a\", role = \"key\", from = \"argument:/k\" },\n{ name = \"l\", at = \"json:/a/b\" } ]";
    refused(&around(json), "operation.o.fields[1].at", "written twice");
    let query = "request = \"POST e:/x?a=1\"\nreceipt = \"/id\"\nfields = [ { name = \"k\", at = \"query:a\", role = \"key\", from = \"argument:/k\" } ]";
    refused(&around(query), "operation.o.fields[0].at", "written twice");
    let inside = "{ name = \"a\", at = \"form:a\" },\n{ name = \"b\", at = \"form:a[b]\" }";
    refused(&with_field(inside), "operation.o.fields[2].at", "written twice");
    refused(&with_field("{ name = \"k\", at = \"form:z\" }"), "operation.o.fields[1].name", "two fields");
}

#[test]
fn keys_are_identifiers_with_sources() {
    let field = |rest: &str| around(&body_of(&format!("fields = [\n{{ name = \"k\", role = \"key\", {rest} }} ]")));
    refused(&field("at = \"form:k\""), "operation.o.fields[0]", "needs a source");
    refused(&field("at = \"form:k\", from = \"const\", value = \"x\""), "operation.o.fields[0].from", "constant");
    refused(
        &field("at = \"form:k\", from = \"argument:/k\", type = \"json\""),
        "operation.o.fields[0].type",
        "never enters a key",
    );
    refused(&field("at = \"form:k[0]\", from = \"argument:/k\""), "operation.o.fields[0].at", "array");
    refused(&field("at = \"form:k[]\", from = \"argument:/k\""), "operation.o.fields[0].at", "array");
    refused(
        &field("at = \"form:k\", from = \"argument:/k\", optional = true"),
        "operation.o.fields[0].optional",
        "never absent",
    );
    refused(
        &field("at = \"form:k\", from = \"argument:/k\", normalize = \"slug\""),
        "operation.o.fields[0].normalize",
        "closed",
    );
    refused(
        &field("at = \"form:k\", from = \"argument:/k\", normalize = [\"email\", \"trim\"]"),
        "operation.o.fields[0].normalize",
        "stand before",
    );
    refused(&field("at = \"form:k\", from = \"argument:/a/*/b/*\""), "operation.o.fields[0].from", "one \"*\"");
    refused(&field("at = \"form:k\", from = \"context:mood\""), "operation.o.fields[0].from", "context fact");
    refused(&field("at = \"form:k\", from = \"lookup:o\", value = \"/id\""), "operation.o.fields[0].from", "no lookup");
    refused(
        &field("at = \"form:k\", from = \"lookup:none\", value = \"/id\""),
        "operation.o.fields[0].from",
        "no operation",
    );
    refused(&field("at = \"form:k\", from = \"lookup:find\""), "operation.o.fields[0].from", "needs \"value\"");
    refused(&around(&body_of("fields = []")), "operation.o", "role = \"key\"");
}

#[test]
fn operations_are_checked_whole() {
    let rest = |rest: &str| around(&body_of(&format!("fields = [ {KEY} ]\n{rest}")));
    refused(&rest("found-when = { status = 200 }"), "operation.o.found-when", "belongs to");
    refused(&rest("no-effect-when = { status = 200 }"), "operation.o.no-effect-when", "no proof");
    refused(&rest("no-effect-when = { status = \"5xx\" }"), "operation.o.no-effect-when", "no proof");
    refused(&rest("no-effect-when = { at = \"/error\" }"), "operation.o.no-effect-when", "status");
    refused(&rest("done-when = { status = 99 }"), "operation.o.done-when.status", "between");
    refused(&rest("done-when = { status = \"2x\" }"), "operation.o.done-when.status", "class");
    refused(&rest("done-when = { equals = 1 }"), "operation.o.done-when", "need \"at\"");
    refused(&rest("done-when = { at = \"/a\", equals = 1, in = [2] }"), "operation.o.done-when", "one of");
    refused(&rest("done-when = { at = \"/a\", equals = 1.5 }"), "operation.o.done-when.equals", "compare");
    refused(&rest("done-when = { at = \"a\" }"), "operation.o.done-when.at", "begins with");
    refused(&rest("repeat = \"sequence\""), "operation.o.repeat", "scope");
    refused(&rest("ensure = true"), "operation.o.ensure", "settle");
    refused(&rest("undone-by = \"o\""), "operation.o.undone-by", "keyed operation");
    refused(&rest("complete-within = \"5m\""), "operation.o.complete-within", "completes");
    refused(&rest("complete-within = \"5 minutes\""), "operation.o.complete-within", "duration");
    refused(&rest("[operation.o.provider]\ndedupe = \"key\""), "operation.o.provider", "go together");
    refused(
        &rest("[operation.o.provider]\ndedupe = \"key\"\ndedupe-at = \"header:Authorization\""),
        "operation.o.provider.dedupe-at",
        "credential",
    );
    refused(
        &rest("[operation.o.settle]\noperation = \"o\"\nreceipt = \"/id\""),
        "operation.o.settle.operation",
        "no lookup",
    );
    refused(
        &rest("[operation.o.settle]\noperation = \"find\"\nreceipt = \"/id\"\nwith = { a = \"k\" }"),
        "operation.o.settle.with.a",
        "no field",
    );
    refused(
        &rest("[operation.o.settle]\noperation = \"find\"\nreceipt = \"/id\"\nmust-equal = { z = \"/z\" }"),
        "operation.o.settle.must-equal.z",
        "no field",
    );
    refused(&rest("[tool.t]\noperations = [\"nope\"]"), "tool.t.operations[0]", "no operation");
    for (request, said) in [
        ("POST other:/x", "no [endpoint.other]"),
        ("POST e:x", "begins with"),
        ("post e:/x", "method"),
        ("POST /x", "METHOD ENDPOINT"),
        ("POST e:/a/../b", "segment"),
        ("POST e:/a//b", "segment"),
        ("POST e:/a%2e", "plain URL text"),
        ("POST e:/{a", "closed"),
        ("POST e:/{a}/{a}", "twice"),
        ("POST e:/{a}", "path:a"),
        ("POST e:/x?q={k}", "constant"),
        ("POST e:/x#f", "plain URL text"),
    ] {
        let text = around(&format!("request = \"{request}\"\nreceipt = \"/id\"\nbody = \"form\"\nfields = [ {KEY} ]"));
        refused(&text, "operation.o.request", said);
    }
    refused(
        &around(&format!("request = \"GET e:/x\"\nreceipt = \"/id\"\nbody = \"form\"\nfields = [ {KEY} ]")),
        "operation.o.body",
        "no body",
    );
}

#[test]
fn a_component_without_effects_has_no_keyed_operation() {
    let text = REFUNDS.replacen("effect = \"keyed\"", "effect = \"none\"", 1);
    refused(&text, "operation.create-refund.effect", "the component says");
}

#[test]
fn urls_hide_nothing() {
    for url in [
        "http://u:p@e.example",
        "https://e.example/?a=1",
        "https://e.example/#f",
        "file:///etc",
        "e.example",
        "https://e.example/a/../b",
        "https://e.example/%2e",
        "https://e.example\\\\x",
        "https://",
    ] {
        let text = around(&body_of(&format!("fields = [ {KEY} ]"))).replace("https://e.example", url);
        refused(&text, "endpoint.e.url", "");
    }
}

#[test]
fn lints_show_the_risks() {
    let codes = |text: &str| lint(&contract(text)).into_iter().map(|l| (l.code, l.place)).collect::<Vec<_>>();
    assert_eq!(codes(REFUNDS), []);
    assert!(codes(CAMPAIGN).contains(&("key-from-model", "operation.send-email.fields[1]".into())));
    assert!(codes(PAYOUT).contains(&("no-settle", "operation.create-payout".into())));
    let text = with_field("{ name = \"memo\", at = \"form:memo\" }");
    assert!(codes(&text).contains(&("bound-without-source", "operation.o.fields[1]".into())));
    let resolved = REFUNDS.replace("value = \"/id\" }", "value = \"/id\", normalize = \"upper\" }");
    assert!(codes(&resolved).contains(&("normalised-source", "operation.create-refund.fields[0]".into())));
    let text = REFUNDS.replace("reference = ", "# ");
    assert!(codes(&text).contains(&("no-reference", "operation.create-refund".into())));
}

#[test]
fn hostile_contracts_end_in_errors() {
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let tables = format!("a{} = 1", ".a".repeat(5000));
    for text in [
        String::new(),
        "\0".into(),
        "[".into(),
        format!("x = {deep}"),
        tables,
        "=".repeat(10_000),
        "x".repeat(300_000),
        "\u{feff}[component]".into(),
    ] {
        assert!(Contract::parse("c.toml", &text).is_err());
    }
    let many: String = (0..1000).map(|i| format!("[operation.o{i}]\n")).collect();
    let errors = Contract::parse("c.toml", &many).unwrap_err();
    assert!(errors.errors().len() <= oncegate_contract::limits::ERRORS_MAX);
}

#[test]
fn one_mistake_is_one_error() {
    for (wrong, right) in [
        ("at = \"path:id\"", "at = \"paht:id\""),
        ("role = \"key\",   from", "role = \"kye\",   from"),
        ("at = \"form:charge\", ", "at = \"header:Host\", "),
        ("request = \"GET pay:/v1/refunds\"", "request = \"GTE pay:/v1/refunds\""),
        ("url = \"https://api.pay.example\"", "url = \"api.pay.example\""),
        ("receipt   = \"/id\"", "receipt   = \"id\""),
    ] {
        let text = REFUNDS.replacen(wrong, right, 1);
        assert_ne!(text, REFUNDS);
        let errors = Contract::parse("c.toml", &text).unwrap_err();
        let line = text.lines().position(|l| l.contains(right)).unwrap() + 1;
        assert!(errors.errors().iter().all(|e| e.line == line), "{right}:\n{errors}");
    }
}
