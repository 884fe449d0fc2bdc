//! What must hold for every input.

use std::collections::{BTreeMap, BTreeSet};

use oncegate_contract::{
    Answer, Contract, Matches, Normalizer, Operation, Owner, Resolved, ResolvedField, Role, Value, classify,
    effect_key, fingerprint, match_candidates, normalize, parse_json, render, resolve, safe_text,
};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};
use unicode_normalization::UnicodeNormalization;

use crate::fixtures::{ALL, CAMPAIGN, Call, ORDERS, PAYOUT, REFUNDS, contract, key, operation};

const SALT: [u8; 16] = [7; 16];
const KEY: &str = "11111111-2222-8333-8444-555555555555";

fn refund_of(id: &str, charge: &str, amount: i64, reason: Option<&str>) -> (Operation, Resolved) {
    let refund = operation(REFUNDS, "create-refund");
    let call = Call::default().fetched("get-return", json!({ "id": id, "charge": charge, "amount": amount }));
    let call = reason.into_iter().fold(call, |call, reason| call.text("reason", reason));
    let resolved = call.resolve(&refund).unwrap();
    (refund, resolved)
}

fn payout(invoice: &str, amount: Json, currency: &str, memo: &str, reverse: bool) -> (Operation, Resolved) {
    let operation = operation(PAYOUT, "create-payout");
    let mut members = vec![("invoice", json!(invoice)), ("amount", amount), ("currency", json!(currency))];
    if reverse {
        members.reverse();
    }
    let arguments: Map<String, Json> = members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let resolved = Call::arguments(Json::Object(arguments)).text("memo", memo).resolve(&operation).unwrap();
    (operation, resolved)
}

fn word() -> impl Strategy<Value = String> {
    "[A-Za-z0-9éüñÅ-]{1,12}"
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<String>().prop_map(Value::Text),
        "[ -~]{0,12}".prop_map(Value::Text),
        prop::sample::select(vec!["&amount=1", "a\r\nHost: x", "../../admin", "%2e%2e", "\"}", "=", "R-1001", "ch_1"])
            .prop_map(|t| Value::Text(t.into())),
        any::<i64>().prop_map(Value::Integer),
        "[-+0-9.e]{0,9}".prop_map(Value::Decimal),
        any::<bool>().prop_map(Value::Boolean),
        json_document().prop_map(Value::Json),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
    ]
}

/// Text that would be a member, a line, a segment or a document if it were not encoded.
fn hostile() -> impl Strategy<Value = String> {
    let bits = vec![
        "&",
        "=",
        "?",
        "#",
        "/",
        "..",
        ".",
        "\\",
        "%",
        "%2f",
        "%2e",
        "%00",
        "\r\n",
        "\0",
        "\"",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        ";",
        "@",
        "+",
        " ",
        "é",
        "\u{202e}",
        "amount",
        "metadata[ref]",
        "Host: x",
        "a",
        "1",
    ];
    prop::collection::vec(prop::sample::select(bits), 0..8).prop_map(|bits| bits.concat())
}

fn json_document() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
        prop::sample::select(vec!["refund", "re_1", KEY, "R-1001", "ch_1"]).prop_map(Json::from),
    ];
    let name = prop_oneof![
        prop::sample::select(vec!["id", "object", "data", "metadata", "ref", "error", "code", "charge", "amount"])
            .prop_map(str::to_owned),
        any::<String>(),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::vec((name.clone(), inner), 0..6)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn rewording_gives_the_same_key_and_fingerprint(id in word(), a in ".{0,60}", b in ".{0,60}", amount in 0_i64..1_000_000) {
        let (operation, first) = refund_of(&id, "ch_1", amount, Some(&a));
        let print = fingerprint(&first, SALT);
        for again in [Some(b.as_str()), None] {
            let (_, other) = refund_of(&id, "ch_1", amount, again);
            prop_assert_eq!(key(&operation, &first), key(&operation, &other));
            prop_assert_eq!(print.differing(&other), Vec::<String>::new());
            prop_assert_eq!(&print, &fingerprint(&other, SALT));
        }
    }

    #[test]
    fn a_changed_bound_field_gives_the_same_key_and_another_fingerprint(
        id in word(), charge in word(), other_charge in word(), amount in 0_i64..1_000_000, other_amount in 0_i64..1_000_000,
    ) {
        let (operation, first) = refund_of(&id, &charge, amount, None);
        let (_, second) = refund_of(&id, &other_charge, other_amount, None);
        prop_assert_eq!(key(&operation, &first), key(&operation, &second));
        let mut changed = Vec::new();
        changed.extend((charge != other_charge).then(|| "charge".to_owned()));
        changed.extend((amount != other_amount).then(|| "amount".to_owned()));
        prop_assert_eq!(fingerprint(&first, SALT).differing(&second), changed.clone());
        prop_assert_eq!(fingerprint(&first, SALT) == fingerprint(&second, SALT), changed.is_empty());
    }

    #[test]
    fn every_bound_field_of_every_source_is_in_the_fingerprint(
        minor in 0_i64..1_000_000, other_minor in 0_i64..1_000_000, currency in 0_usize..4, other_currency in 0_usize..4,
    ) {
        let codes = ["USD", "EUR", "JPY", "KWD"];
        let (operation, first) = payout("i-1", json!(minor), codes[currency], "a", false);
        let (_, second) = payout("I-1", json!(other_minor), codes[other_currency], "b", true);
        prop_assert_eq!(key(&operation, &first), key(&operation, &second));
        let mut changed = Vec::new();
        changed.extend((minor != other_minor || currency != other_currency).then(|| "amount".to_owned()));
        changed.extend((currency != other_currency).then(|| "currency".to_owned()));
        prop_assert_eq!(fingerprint(&first, SALT).differing(&second), changed);
    }

    #[test]
    fn reordering_spacing_unicode_and_money_spellings_change_nothing(
        invoice in word(), minor in 0_i64..10_000_000, memo in ".{0,20}", left in "[ \t\u{a0}]{0,3}", right in "[ \n\u{3000}]{0,3}", spelling in 0_usize..6, lower: bool,
    ) {
        let (operation, first) = payout(&invoice, json!(minor), "USD", "", false);
        let major = format!("{}.{:02}", minor / 100, minor % 100);
        let amount = match spelling {
            0 => json!(minor),
            1 => json!(major),
            2 => json!(format!("{major} USD")),
            3 => json!(format!("usd  {major}")),
            4 => json!(format!(" 00{major}\u{a0}USD ")),
            _ if minor % 100 == 0 => json!(format!("{} USD", minor / 100)),
            _ => json!(format!("+{major}")),
        };
        let spaced = format!("{left}{}{right}", if lower { invoice.to_lowercase() } else { invoice.clone() });
        let (_, other) = payout(&spaced, amount, &format!("{left}usd{right}"), &memo, true);
        prop_assert_eq!(key(&operation, &first), key(&operation, &other));
        prop_assert_eq!(fingerprint(&first, SALT).differing(&other), Vec::<String>::new());
    }

    #[test]
    fn unicode_forms_of_one_text_are_one_key(thread in "[a-zéüñÅạ가]{1,8}", text in ".{0,20}") {
        let note = operation(crate::fixtures::NOTES, "create-note");
        let of = |thread: String| {
            let call = Call::arguments(json!({ "thread": thread })).context("trigger", "t").context("sequence", "1");
            let resolved = call.text("text", &text).resolve(&note).unwrap();
            (key(&note, &resolved), render(&note, "https://n.example", &resolved, Some(KEY)).unwrap())
        };
        let composed = of(thread.nfc().collect());
        prop_assert_eq!(&composed, &of(thread.nfd().collect()));
        prop_assert_eq!(&composed, &of(format!(" {}\n", thread.nfd().collect::<String>())));
    }

    #[test]
    fn recipients_in_any_order_and_spelling_are_the_same_keys(names in prop::collection::btree_set("[a-z]{1,6}", 1..6), seed in any::<u64>()) {
        let email = operation(CAMPAIGN, "send-email");
        let names: Vec<String> = names.into_iter().collect();
        let plain: Vec<String> = names.iter().map(|n| format!("{n}@example.org")).collect();
        let mut odd: Vec<String> = names.iter().map(|n| format!(" {}@EXAMPLE.org", n.to_uppercase())).collect();
        let turn = usize::try_from(seed % odd.len() as u64).unwrap();
        odd.rotate_left(turn);
        let keys = |list: &[String]| -> BTreeSet<_> {
            list.iter().map(|to| {
                let call = Call::arguments(json!({ "recipients": list })).context("trigger", "spring").text("to", to);
                key(&email, &call.resolve(&email).unwrap())
            }).collect()
        };
        let first = keys(&plain);
        prop_assert_eq!(first.len(), plain.len());
        prop_assert_eq!(first, keys(&odd));
    }

    #[test]
    fn no_two_part_lists_collide(a in parts(), b in parts()) {
        let same = a == b;
        prop_assert_eq!(key_of(&a) == key_of(&b), same);
    }

    #[test]
    fn moving_a_byte_between_neighbours_changes_the_key(text in "[a-c|:/]{2,8}", cut in 1_usize..8, other in 1_usize..8) {
        let split = |at: usize| { let at = at.min(text.len() - 1); vec![text[..at].to_owned(), text[at..].to_owned()] };
        prop_assert_eq!(key_of(&split(cut)) == key_of(&split(other)), split(cut) == split(other));
    }

    #[test]
    fn owner_and_epoch_are_in_the_key(a in prop::array::uniform3("[ab/]{0,3}"), b in prop::array::uniform3("[ab/]{0,3}"), e in 0_u32..3, f in 0_u32..3) {
        let (operation, resolved) = refund_of("R-1", "c", 1, None);
        let of = |o: &[String; 3], epoch| effect_key(&operation, &Owner { tenant: &o[0], account: &o[1], owner: &o[2] }, &resolved, epoch).unwrap();
        prop_assert_eq!(of(&a, e) == of(&b, f), a == b && e == f);
    }

    #[test]
    fn what_is_sent_holds_exactly_the_declared_members(given in prop::collection::vec((name(), value()), 0..8), answer in json_document()) {
        for (text, operation_name) in [(REFUNDS, "create-refund"), (CAMPAIGN, "send-email"), (PAYOUT, "create-payout"), (ORDERS, "get-order"), (ORDERS, "get-customer"), (REFUNDS, "find-refund")] {
            let operation = operation(text, operation_name);
            for body in [answer.clone(), json!({ "id": "R-1001", "charge": "ch_1", "amount": 4200, "customer": "c1" })] {
                let arguments = json!({ "recipients": ["ada@example.org"], "invoice": "i1", "amount": "5", "currency": "USD", "order_id": body["id"] });
                let mut call = Call::arguments(arguments).context("trigger", "t").fetched("get-return", body.clone()).fetched("get-order", body);
                call.given.clone_from(&given);
                if let Ok(resolved) = call.resolve(&operation) {
                    check_members(&operation, &resolved)?;
                }
            }
        }
    }

    #[test]
    fn hostile_values_of_declared_fields_stay_values(a in hostile(), b in hostile(), id in hostile()) {
        let text = |name: &str, value: &str| (name.to_owned(), Value::Text(value.to_owned()));
        let cases = [
            (REFUNDS, "create-refund", vec![text("reason", &a)]),
            (CAMPAIGN, "send-email", vec![text("subject", &a), text("text", &b)]),
            (PAYOUT, "create-payout", vec![text("memo", &a)]),
            (REFUNDS, "find-refund", vec![text("charge", &a)]),
            (CAMPAIGN, "list-emails", vec![text("to", &a)]),
            (ORDERS, "get-order", vec![]),
            (ORDERS, "get-customer", vec![]),
        ];
        for (contract, name, given) in cases {
            let operation = operation(contract, name);
            let body = json!({ "id": "R-1", "charge": b, "amount": 4200, "customer": id });
            let arguments = json!({ "recipients": ["ada@example.org"], "invoice": "i1", "amount": "5", "currency": "USD", "order_id": id });
            let mut call = Call::arguments(arguments).context("trigger", "t").fetched("get-return", body.clone()).fetched("get-order", body);
            call.given = given;
            let resolved = call.resolve(&operation);
            prop_assert!(resolved.is_ok() || name.starts_with("create") || name.starts_with("send"), "{:?}", resolved);
            if let Ok(resolved) = resolved {
                check_members(&operation, &resolved)?;
            }
        }
    }

    #[test]
    fn a_declared_generated_field_is_sent_as_it_is(reason in ".{0,300}", amount in prop::option::of(0_i64..=4200)) {
        let refund = operation(REFUNDS, "create-refund");
        let call = Call::default().fetched("get-return", json!({ "id": "R-1", "charge": "ch", "amount": 4200 })).text("reason", &reason);
        let call = amount.into_iter().fold(call, |call, n| call.give("amount", Value::Integer(n)));
        let request = render(&refund, "https://p.example", &call.resolve(&refund).unwrap(), Some(KEY)).unwrap();
        let sent: Vec<(String, String)> = url::form_urlencoded::parse(&request.body).into_owned().collect();
        let wanted = [("metadata[return]", "R-1".to_owned()), ("charge", "ch".into()), ("amount", amount.unwrap_or(4200).to_string()), ("metadata[reason]", reason), ("metadata[ref]", KEY.into())];
        prop_assert_eq!(sent, wanted.map(|(n, v)| (n.to_owned(), v)).to_vec());
    }

    #[test]
    fn no_bytes_make_a_judgement_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), document in json_document(), status in any::<u16>(), complete: bool) {
        let (refund, resolved) = refund_of("R-1001", "ch_1", 4200, None);
        let lookup = operation(REFUNDS, "find-refund");
        let _ = parse_json(&bytes);
        for body in [bytes, document.to_string().into_bytes()] {
            let answer = Answer { status, headers: vec![("link".into(), body.clone())], body, complete };
            let verdict = classify(&refund, &answer);
            if !complete {
                prop_assert!(matches!(verdict, oncegate_contract::Verdict::Unknown { .. }), "an incomplete answer is unknown");
            }
            let matches = match_candidates(&refund, &lookup, &resolved, KEY, &answer, &[]);
            let undetermined = matches!(matches, Matches::Undetermined { .. });
            prop_assert!(complete || undetermined);
        }
    }

    #[test]
    fn normal_forms_are_stable(text in ".{0,24}", number in any::<i64>()) {
        for name in Normalizer::names() {
            let normalizer = Normalizer::from_name(name).unwrap();
            for input in [Value::Text(text.clone()), Value::Integer(number)] {
                if let Ok(normal) = normalize(normalizer, &input, Some("USD")) && normalizer != Normalizer::Money {
                    prop_assert_eq!(normalize(normalizer, &Value::Text(normal.clone()), None), Ok(normal));
                }
            }
        }
    }

    #[test]
    fn damaged_contracts_never_panic(which in 0..ALL.len(), at in any::<prop::sample::Index>(), cut in 0_usize..40, put in ".{0,12}") {
        let chars: Vec<char> = ALL[which].1.chars().collect();
        let start = at.index(chars.len());
        let end = (start + cut).min(chars.len());
        let text: String = chars[..start].iter().copied().chain(put.chars()).chain(chars[end..].iter().copied()).collect();
        if let Err(errors) = Contract::parse("c.toml", &text) {
            let lines = text.lines().count().max(1) + 1;
            prop_assert!(errors.errors().iter().all(|e| e.line >= 1 && e.line <= lines && !e.message.is_empty()), "{}", errors);
        }
    }

    #[test]
    fn shown_text_is_safe(text in any::<String>()) {
        let shown = safe_text(&text);
        prop_assert!(!shown.is_empty() && shown.len() <= 200);
        prop_assert!(shown.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@+-".contains(&b)));
    }
}

fn name() -> impl Strategy<Value = String> {
    let known =
        vec!["return", "charge", "amount", "reason", "to", "subject", "memo", "id", "Host", "metadata[ref]", "_method"];
    prop_oneof![prop::sample::select(known).prop_map(str::to_owned), any::<String>()]
}

fn parts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ab,:|\u{0}]{1,4}", 1..4)
}

/// The key of an operation with as many key parts as there are values.
fn key_of(values: &[String]) -> oncegate_contract::EffectKey {
    let part = |i: usize| format!("{{ name = \"p{i}\", role = \"key\", from = \"argument:/p{i}\" }}");
    let parts: Vec<_> = (0..values.len()).map(part).collect();
    let text = format!(
        "[component]\nname = \"c\"\neffect = \"keyed\"\n[endpoint.e]\nurl = \"https://e.example\"\n[operation.o]\neffect = \"keyed\"\n\
         action = \"a\"\nrequest = \"POST e:/\"\nreceipt = \"/id\"\nfields = [ {} ]\n",
        parts.join(", ")
    );
    let field = |(i, value): (usize, &String)| ResolvedField {
        name: format!("p{i}"),
        role: Role::Key,
        source: String::new(),
        value: Value::Text(value.clone()),
        normal: Some(value.clone()),
    };
    let fields = values.iter().enumerate().map(field).collect();
    key(&contract(&text).operations["o"], &Resolved { fields, fetches: Vec::new(), sequence: None })
}

/// Reads the rendered request back by other parsers and compares it with the declaration.
fn check_members(operation: &Operation, resolved: &Resolved) -> Result<(), TestCaseError> {
    let base = "https://host.example:8443/base";
    let Ok(request) = render(operation, base, resolved, Some(KEY)) else {
        return Ok(());
    };
    let url = url::Url::parse(&request.url).unwrap();
    prop_assert_eq!(url.origin().ascii_serialization(), "https://host.example:8443");
    prop_assert!(url.fragment().is_none() && url.username().is_empty());
    let segments = url.path_segments().unwrap().count();
    prop_assert_eq!(segments, 1 + operation.path.segments.len());
    let query: Vec<String> = url.query_pairs().map(|(n, _)| n.into_owned()).collect();
    let mut wanted: Vec<String> = operation.path.query.iter().map(|(n, _)| n.clone()).collect();
    wanted.extend(sent(operation, resolved, "query:"));
    prop_assert_eq!(query, wanted);
    let mut headers: Vec<String> =
        request.headers.iter().map(|(n, _)| n.clone()).filter(|n| n != "content-type").collect();
    prop_assert!(request.headers.iter().all(|(_, v)| v.bytes().all(|b| (b' '..=b'~').contains(&b))));
    let dedupe = operation.provider.at.is_some();
    prop_assert_eq!(headers.pop(), dedupe.then(|| "idempotency-key".to_owned()));
    prop_assert!(headers.is_empty());
    let reference = operation.reference.as_ref().map(ToString::to_string);
    match operation.body.as_str() {
        "form" => {
            let names: Vec<String> = url::form_urlencoded::parse(&request.body).map(|(n, _)| n.into_owned()).collect();
            let mut wanted = sent(operation, resolved, "form:");
            wanted.extend(reference.and_then(|r| r.strip_prefix("form:").map(str::to_owned)));
            prop_assert_eq!(names, wanted);
        }
        "json" => {
            let body = parse_json(&request.body).unwrap();
            let mut wanted = sent(operation, resolved, "json:");
            wanted.extend(reference.and_then(|r| r.strip_prefix("json:").map(str::to_owned)));
            let mut leaves = Vec::new();
            collect_leaves(&body, String::new(), &wanted, &mut leaves);
            let wanted: BTreeSet<String> = wanted.into_iter().collect();
            prop_assert_eq!(leaves.len(), wanted.len());
            prop_assert_eq!(leaves.into_iter().collect::<BTreeSet<_>>(), wanted);
        }
        _ => prop_assert!(request.body.is_empty()),
    }
    Ok(())
}

fn sent(operation: &Operation, resolved: &Resolved, kind: &str) -> Vec<String> {
    let fields = operation.fields.iter().filter(|f| resolved.field(&f.name).is_some());
    fields.filter_map(|f| f.at.as_ref()?.to_string().strip_prefix(kind).map(str::to_owned)).collect()
}

fn collect_leaves(json: &Json, path: String, declared: &[String], leaves: &mut Vec<String>) {
    match json {
        Json::Object(members) if !declared.contains(&path) => {
            for (name, value) in members {
                collect_leaves(value, format!("{path}/{name}"), declared, leaves);
            }
        }
        _ => leaves.push(path),
    }
}

#[test]
fn sources_are_borrowed_only() {
    // The public entry point takes plain borrows, so a host can resolve without copying a call.
    let context = BTreeMap::new();
    let arguments = json!({ "order_id": "1" });
    let sources = oncegate_contract::Sources {
        context: &context,
        arguments: &arguments,
        lookups: &[],
        given: &[],
        plan: &BTreeMap::new(),
    };
    assert!(resolve(&operation(ORDERS, "get-order"), &sources).is_ok());
}
