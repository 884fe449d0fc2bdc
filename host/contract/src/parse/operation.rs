//! One `[operation.NAME]`.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use toml::de::DeValue;

use super::reader::{Item, Table, short};
use crate::condition::{Condition, Conditions, StatusMatch, Test};
use crate::field::Field;
use crate::limits::FIELDS_MAX;
use crate::operation::{
    BodyKind, Dedupe, DedupeScope, EffectClass, FormerRecipe, Operation, ProviderTerms, Revokes, SequenceScope, Settle,
};
use crate::place::{PathTemplate, Place};
use crate::pointer::Pointer;

const BODIES: &[(&str, BodyKind)] = &[
    ("form", BodyKind::Form),
    ("json", BodyKind::Json),
    ("multipart", BodyKind::Multipart),
    ("bytes", BodyKind::Bytes),
    ("none", BodyKind::None),
];
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const SCOPES: &[(&str, SequenceScope)] = &[("trigger", SequenceScope::Trigger), ("run", SequenceScope::Run)];

/// Reads one operation; errors are left in the source.
pub(super) fn read(name: &str, table: &Table<'_>) -> Option<Operation> {
    let effect = table.need("effect").and_then(|item| item.word(super::CLASSES));
    let request = table.need("request").and_then(|item| item.parsed(request));
    let query = match &request {
        Some((method, _, path)) => super::query::read(table, method, &path.text),
        None => super::query::read(table, "", ""),
    };
    let body = table.get("body").map_or(Some(BodyKind::None), |item| item.word(BODIES));
    let mut operation = blank(name);
    operation.action = slug_at(table, "action");
    operation.fields = table.get("fields").map(|item| fields(&item)).unwrap_or_default();
    operation.reference = table.get("reference").and_then(|item| item.parsed(Place::parse));
    operation.provider = provider(table.get("provider"));
    operation.settle = table.get("settle").and_then(|item| settle(&item.table()?));
    answers(&mut operation, table);
    life(&mut operation, table);
    table.finish();
    let (method, endpoint, path) = request?;
    Some(Operation { effect: effect?, body: body?, method, endpoint, path, query, ..operation })
}

/// An operation that says nothing yet.
fn blank(name: &str) -> Operation {
    Operation {
        name: name.to_owned(),
        effect: EffectClass::Keyed,
        action: None,
        method: String::new(),
        endpoint: String::new(),
        path: PathTemplate { text: String::new(), segments: Vec::new(), query: Vec::new() },
        query: None,
        body: BodyKind::None,
        fields: Vec::new(),
        reference: None,
        receipt: None,
        found_when: Vec::new(),
        done_when: Vec::new(),
        accepted_when: Vec::new(),
        no_effect_when: Vec::new(),
        duplicate_when: Vec::new(),
        status_is_proof: Vec::new(),
        headers: Vec::new(),
        provider: provider(None),
        settle: None,
        undone_by: None,
        revokes: None,
        repeat: None,
        completes: None,
        complete_within: None,
        completed_by: None,
        ensure: false,
        was: Vec::new(),
    }
}

/// What the provider's answers mean.
fn answers(operation: &mut Operation, table: &Table<'_>) {
    let conditions = |key| table.get(key).map(|item| conditions(&item)).unwrap_or_default();
    operation.receipt = table.get("receipt").and_then(|item| item.parsed(plain_pointer));
    operation.found_when = conditions("found-when");
    operation.done_when = conditions("done-when");
    operation.accepted_when = conditions("accepted-when");
    operation.no_effect_when = conditions("no-effect-when");
    operation.duplicate_when = conditions("duplicate-when");
    let proof = table.get("status-is-proof").map(|item| statuses(&item));
    operation.status_is_proof = proof.unwrap_or_default();
    operation.headers = table.get("headers").map(|item| headers(&item)).unwrap_or_default();
}

/// How the effect repeats, ends and relates to other operations.
fn life(operation: &mut Operation, table: &Table<'_>) {
    operation.undone_by = slug_at(table, "undone-by");
    operation.revokes = table.get("revokes").and_then(|item| revokes(&item.table()?));
    operation.repeat = repeat(table);
    operation.completes = slug_at(table, "completes");
    operation.complete_within = table.get("complete-within").and_then(|item| item.duration());
    operation.ensure = table.get("ensure").and_then(|item| item.boolean()).unwrap_or(false);
    operation.was = table.get("was").map(|item| former(&item)).unwrap_or_default();
}

fn slug_at(table: &Table<'_>, key: &'static str) -> Option<String> {
    table.get(key).and_then(|item| item.slug())
}

/// `GET shop:/returns/{id}`.
fn request(text: &str) -> Result<(String, String, PathTemplate), String> {
    let shape = || "a request is METHOD ENDPOINT:/PATH, as in \"GET shop:/returns/{id}\"".to_owned();
    let (method, target) = text.split_once(' ').ok_or_else(shape)?;
    if super::query::WORDS.contains(&method) {
        return question(method, target);
    }
    let (endpoint, path) = target.split_once(':').ok_or_else(shape)?;
    if !METHODS.contains(&method) {
        return Err(format!("method \"{}\" is not one of {}", short(method), METHODS.join(", ")));
    }
    super::reader::slug(endpoint)?;
    Ok((method.to_owned(), endpoint.to_owned(), PathTemplate::parse(path)?))
}

/// `SQL books`, `FIND books:orders`.
fn question(method: &str, target: &str) -> Result<(String, String, PathTemplate), String> {
    let (endpoint, collection) = match (method, target.split_once(':')) {
        ("SQL", None) => (target, ""),
        ("SQL", Some(_)) => return Err("a request by SQL is SQL ENDPOINT, with a \"statement\"".into()),
        (_, Some(pair)) => pair,
        (_, None) => return Err(format!("a request by {method} is {method} ENDPOINT:COLLECTION")),
    };
    super::reader::slug(endpoint)?;
    let path = PathTemplate { text: collection.to_owned(), segments: Vec::new(), query: Vec::new() };
    Ok((method.to_owned(), endpoint.to_owned(), path))
}

fn fields(item: &Item<'_>) -> Vec<Field> {
    let list = item.list();
    if list.len() > FIELDS_MAX {
        item.error(format!("more than {FIELDS_MAX} fields"));
    }
    let read: Vec<Field> = list.iter().take(FIELDS_MAX).filter_map(|one| super::field::read(&one.table()?)).collect();
    if read.len() < list.len() {
        item.source.note_partial(&item.path);
    }
    read
}

/// A condition, or a list of which any must hold.
fn conditions(item: &Item<'_>) -> Conditions {
    item.one_or_many().iter().filter_map(|one| condition(&one.table()?)).collect()
}

fn condition(table: &Table<'_>) -> Option<Condition> {
    let status = table.get("status").map(|item| status_list(&item)).unwrap_or_default();
    let at = table.get("at").and_then(|item| item.parsed(Pointer::parse));
    let equals = table.get("equals").map(|item| Test::In(scalar(&item).into_iter().collect()));
    let list = table.get("in").map(|item| Test::In(item.list().iter().filter_map(scalar).collect()));
    let exists = table.get("exists").and_then(|item| item.boolean()).map(Test::Exists);
    table.finish();
    let mut tests: Vec<Test> = [equals, list, exists].into_iter().flatten().collect();
    if tests.len() > 1 {
        table.error(
            "one condition has one of \"equals\", \"in\" and \"exists\"; a list of conditions means any of them",
        );
        return None;
    }
    match (at, tests.pop()) {
        (Some(at), Some(test)) => Some(Condition { status, test: Some((at, test)) }),
        (Some(at), None) => Some(Condition { status, test: Some((at, Test::Exists(true))) }),
        (None, Some(_)) => {
            table.error("\"equals\", \"in\" and \"exists\" need \"at\", a pointer into the answer");
            None
        }
        (None, None) if status.is_empty() => {
            table.error("a condition needs \"status\" or \"at\"");
            None
        }
        (None, None) => Some(Condition { status, test: None }),
    }
}

fn scalar(item: &Item<'_>) -> Option<Json> {
    match item.value.get_ref() {
        DeValue::String(text) => Some(Json::from(text.as_ref())),
        DeValue::Integer(_) => item.integer().map(Json::from),
        DeValue::Boolean(truth) => Some(Json::from(*truth)),
        _ => {
            item.error("compare with text, a whole number or a truth value");
            None
        }
    }
}

fn status_list(item: &Item<'_>) -> Vec<StatusMatch> {
    let list = item.one_or_many();
    if list.is_empty() {
        item.error("an empty list of statuses never holds");
    }
    list.iter().filter_map(status).collect()
}

fn status(item: &Item<'_>) -> Option<StatusMatch> {
    if let DeValue::String(text) = item.value.get_ref() {
        let class = text.strip_suffix("xx").and_then(|digit| digit.parse::<u16>().ok());
        if let Some(class @ 2..=5) = class {
            return Some(StatusMatch::Class(class));
        }
        item.error("a class of statuses is \"2xx\", \"3xx\", \"4xx\" or \"5xx\"");
        return None;
    }
    let code = item.integer().and_then(|number| u16::try_from(number).ok()).filter(|code| (200..=599).contains(code));
    if code.is_none() {
        item.error("a status is a number between 200 and 599, or a class such as \"2xx\"");
    }
    code.map(StatusMatch::Code)
}

fn statuses(item: &Item<'_>) -> Vec<u16> {
    let codes = item.one_or_many();
    let code = |one: &Item<'_>| match status(one)? {
        StatusMatch::Code(code) if (200..300).contains(&code) => Some(code),
        _ => {
            one.error("a status that is proof is one number between 200 and 299");
            None
        }
    };
    codes.iter().filter_map(code).collect()
}

fn headers(item: &Item<'_>) -> Vec<String> {
    let header = |text: &str| {
        let good = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        let secret = ["set-cookie", "authorization", "www-authenticate", "proxy-authenticate"];
        let name = text.to_ascii_lowercase();
        match good && !secret.contains(&name.as_str()) {
            true => Ok(name),
            false => Err("not a header that a guest may see".to_owned()),
        }
    };
    item.list().iter().filter_map(|one| one.parsed(header)).collect()
}

fn provider(item: Option<Item<'_>>) -> ProviderTerms {
    let nothing = ProviderTerms { dedupe: Dedupe::None, at: None, window: None, scope: DedupeScope::Credential };
    let Some(table) = item.as_ref().and_then(Item::table) else {
        return nothing;
    };
    let kinds = [("none", Dedupe::None), ("key", Dedupe::Key), ("key-and-body", Dedupe::KeyAndBody)];
    let scopes = [("credential", DedupeScope::Credential), ("account", DedupeScope::Account)];
    let terms = ProviderTerms {
        dedupe: table.get("dedupe").and_then(|item| item.word(&kinds)).unwrap_or(Dedupe::None),
        at: table.get("dedupe-at").and_then(|item| item.parsed(Place::parse)),
        window: table.get("dedupe-window").and_then(|item| item.duration()),
        scope: table.get("dedupe-scope").and_then(|item| item.word(&scopes)).unwrap_or(DedupeScope::Credential),
    };
    table.finish();
    terms
}

fn settle(table: &Table<'_>) -> Option<Settle> {
    let operation = table.need("operation").and_then(|item| item.slug());
    let with = table.get("with").map(|item| names(&item)).unwrap_or_default();
    let each = table.get("each").and_then(|item| item.parsed(plain_pointer));
    let receipt = table.need("receipt").and_then(|item| item.parsed(plain_pointer));
    let must_equal = table.get("must-equal").map(|item| pointers(&item)).unwrap_or_default();
    let matching = table.get("match").map(|item| pointers(&item)).unwrap_or_default();
    let reference = table.get("reference").and_then(|item| item.parsed(plain_pointer));
    let absent_after = table.get("absent-after").and_then(|item| item.duration());
    table.finish();
    Some(Settle { operation: operation?, with, each, receipt: receipt?, must_equal, matching, reference, absent_after })
}

fn plain_pointer(text: &str) -> Result<Pointer, String> {
    let pointer = Pointer::parse(text)?;
    if pointer.has_any() { Err("no \"*\" here: the host must know which value it reads".into()) } else { Ok(pointer) }
}

fn names(item: &Item<'_>) -> BTreeMap<String, String> {
    let Some(table) = item.table() else {
        return BTreeMap::new();
    };
    let entry = |(key, item): (String, Item<'_>)| Some((key, item.text()?.to_owned()));
    table.entries().into_iter().filter_map(entry).collect()
}

fn pointers(item: &Item<'_>) -> BTreeMap<String, Pointer> {
    let Some(table) = item.table() else {
        return BTreeMap::new();
    };
    let entry = |(key, item): (String, Item<'_>)| Some((key, item.parsed(plain_pointer)?));
    table.entries().into_iter().filter_map(entry).collect()
}

fn revokes(table: &Table<'_>) -> Option<Revokes> {
    let operation = table.need("operation").and_then(|item| item.slug());
    let by = table.need("by").and_then(|item| item.word(&[("receipt", ())]));
    let at = table.need("at").and_then(|item| item.parsed(Place::parse));
    table.finish();
    by?;
    Some(Revokes { operation: operation?, at: at? })
}

/// `repeat = "sequence"` with `scope = "trigger"` or `"run"`.
fn repeat(table: &Table<'_>) -> Option<SequenceScope> {
    let scope = table.get("scope");
    let Some(repeat) = table.get("repeat") else {
        if let Some(scope) = scope {
            scope.error("\"scope\" goes with repeat = \"sequence\"");
        }
        return None;
    };
    repeat.word(&[("sequence", ())])?;
    match scope {
        Some(scope) => scope.word(SCOPES),
        None => {
            repeat.error("a sequence needs its scope: scope = \"trigger\" or scope = \"run\"");
            None
        }
    }
}

/// Earlier recipes: `was = [ { action = "refund", fields = [ … ] } ]`.
fn former(item: &Item<'_>) -> Vec<FormerRecipe> {
    let recipe = |one: &Item<'_>| {
        let table = one.table()?;
        let action = table.need("action").and_then(|item| item.slug());
        let fields = table.need("fields").map(|item| fields(&item)).unwrap_or_default();
        let repeat = repeat(&table);
        table.finish();
        Some(FormerRecipe { action: action?, fields, repeat })
    };
    item.list().iter().filter_map(recipe).collect()
}
