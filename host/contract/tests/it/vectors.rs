//! The published vectors. They never change; they were computed by another program.

use oncegate_contract::{
    Contract, EffectKey, Normalizer, Operation, Owner, Resolved, ResolvedField, Role, SequenceScope, Value,
    downstream_key, effect_key, fingerprint, normalize, recipe,
};
use serde_json::Value as Json;

fn vectors(text: &str) -> Vec<Json> {
    let file: Json = serde_json::from_str(text).unwrap();
    assert!(file["note"].as_str().unwrap().contains("never change"));
    let list = file["vectors"].as_array().unwrap().clone();
    assert!(!list.is_empty());
    list
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let byte = |i: usize| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap();
    std::array::from_fn(byte)
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap()
}

/// An operation with the given key parts, each a TOML table without its place.
fn keyed(action: &str, parts: &[String], repeat: Option<&str>) -> Operation {
    let repeat = repeat.map(|scope| format!("repeat = \"sequence\"\nscope = \"{scope}\"\n")).unwrap_or_default();
    let toml = format!(
        "[component]\nname = \"c\"\neffect = \"keyed\"\n[endpoint.e]\nurl = \"https://e.example\"\n\
         [operation.find]\neffect = \"none\"\nrequest = \"GET e:/\"\n\
         [operation.o]\neffect = \"keyed\"\naction = \"{action}\"\nrequest = \"POST e:/\"\nreceipt = \"/id\"\n{repeat}\
         fields = [ {} ]\n",
        parts.join(", ")
    );
    let contract = Contract::parse("vector", &toml).unwrap_or_else(|errors| panic!("{toml}\n{errors}"));
    contract.operations["o"].clone()
}

#[test]
fn keys() {
    for vector in vectors(include_str!("../vectors/key.json")) {
        let pairs: Vec<(&str, &str)> =
            vector["parts"].as_array().unwrap().iter().map(|p| (text(&p[0]), text(&p[1]))).collect();
        let parts: Vec<_> = pairs
            .iter()
            .map(|(name, _)| format!("{{ name = \"{name}\", role = \"key\", from = \"argument:/{name}\" }}"))
            .collect();
        let sequence = &vector["sequence"];
        let scope = sequence.get(0).and_then(Json::as_str);
        let operation = keyed(text(&vector["action"]), &parts, scope);
        let field = |(name, value): &(&str, &str)| ResolvedField {
            name: (*name).to_owned(),
            role: Role::Key,
            source: String::new(),
            value: Value::Text((*value).to_owned()),
            normal: Some((*value).to_owned()),
        };
        let scope = scope.map(|s| if s == "run" { SequenceScope::Run } else { SequenceScope::Trigger });
        let resolved = Resolved {
            fields: pairs.iter().map(field).collect(),
            fetches: Vec::new(),
            sequence: scope.map(|s| (s, text(&sequence[1]).to_owned(), sequence[2].as_u64().unwrap())),
        };
        let [tenant, account, owner] = ["tenant", "account", "owner"].map(|k| text(&vector[k]));
        let epoch = u32::try_from(vector["epoch"].as_u64().unwrap()).unwrap();
        let key = effect_key(&operation, &Owner { tenant, account, owner }, &resolved, epoch).unwrap();
        assert_eq!(key.to_string(), text(&vector["key"]), "{vector}");
    }
}

#[test]
fn recipes() {
    for vector in vectors(include_str!("../vectors/recipe.json")) {
        let part = |part: &Json| {
            let mut members = vec!["role = \"key\"".to_owned()];
            members.extend(part.as_object().unwrap().iter().map(|(name, value)| format!("{name} = {value}")));
            format!("{{ {} }}", members.join(", "))
        };
        let parts: Vec<_> = vector["parts"].as_array().unwrap().iter().map(part).collect();
        let operation = keyed(text(&vector["action"]), &parts, vector["repeat"].as_str());
        assert_eq!(hex(&recipe(&operation)), text(&vector["recipe"]), "{vector}");
    }
}

#[test]
fn fingerprints() {
    for vector in vectors(include_str!("../vectors/fingerprint.json")) {
        let field = ResolvedField {
            name: text(&vector["name"]).into(),
            role: Role::Bound,
            source: String::new(),
            value: Value::Boolean(true),
            normal: Some(text(&vector["normal"]).into()),
        };
        let resolved = Resolved { fields: vec![field], fetches: Vec::new(), sequence: None };
        let print = fingerprint(&resolved, bytes(text(&vector["salt"])));
        assert_eq!(hex(&print.fields[0].1), text(&vector["hash"]), "{vector}");
    }
}

#[test]
fn downstream_keys() {
    for vector in vectors(include_str!("../vectors/downstream.json")) {
        let generation = u32::try_from(vector["generation"].as_u64().unwrap()).unwrap();
        let key = downstream_key(&EffectKey(bytes(text(&vector["key"]))), generation);
        assert_eq!(key, text(&vector["downstream"]), "{vector}");
        assert!(key.len() <= 64 && key.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase() || b == b'-'));
    }
}

#[test]
fn normal_forms() {
    for vector in vectors(include_str!("../vectors/normalize.json")) {
        let input = &vector["input"];
        let value = match (input["text"].as_str(), input["integer"].as_i64(), input["decimal"].as_str()) {
            (Some(text), _, _) => Value::Text(text.into()),
            (_, Some(number), _) => Value::Integer(number),
            (_, _, Some(text)) => Value::Decimal(text.into()),
            _ => panic!("{vector}"),
        };
        let normalizer = Normalizer::from_name(text(&vector["normalizer"])).unwrap();
        let normal = normalize(normalizer, &value, vector["currency"].as_str());
        assert_eq!(normal.as_ref().ok().map(String::as_str), vector["normal"].as_str(), "{vector} gave {normal:?}");
        if let (Ok(normal), true) = (normal, normalizer != Normalizer::Money) {
            let again = normalize(normalizer, &Value::Text(normal.clone()), None);
            assert_eq!(again, Ok(normal), "{vector}: a normal form is its own normal form");
        }
    }
}

#[test]
fn every_normaliser_has_vectors() {
    let vectors = vectors(include_str!("../vectors/normalize.json"));
    for name in Normalizer::names() {
        assert!(vectors.iter().filter(|v| v["normalizer"] == name).count() >= 3, "{name}");
    }
}
