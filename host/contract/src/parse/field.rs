//! One entry of `fields`.

use super::reader::{Item, Table, short};
use crate::field::{Currency, Field, Role, Rule, Source, ValueKind};
use crate::normalize::Normalizer;
use crate::place::Place;
use crate::pointer::Pointer;
use crate::value::Value;

const ROLES: &[(&str, Role)] =
    &[("key", Role::Key), ("bound", Role::Bound), ("generated", Role::Generated), ("transport", Role::Transport)];

const KINDS: &[(&str, ValueKind)] = &[
    ("text", ValueKind::Text),
    ("integer", ValueKind::Integer),
    ("decimal", ValueKind::Decimal),
    ("boolean", ValueKind::Boolean),
    ("json", ValueKind::Json),
    ("bytes", ValueKind::Bytes),
];

const RULES: &[(&str, Rule)] = &[("equal", Rule::Equal), ("at-most", Rule::AtMost), ("one-of", Rule::OneOf)];

/// Facts that an orchestrator gives.
const FACTS: &[&str] = &["tenant", "trigger", "run", "sequence", "plan", "permit", "parent"];

/// Reads one field; errors are left in the source.
pub(super) fn read(table: &Table<'_>) -> Option<Field> {
    let before = table.source.error_count();
    let name = table.need("name").and_then(|item| item.parsed(field_name));
    let at = table.get("at").and_then(|item| item.parsed(Place::parse));
    let role = table.get("role").map_or(Some(Role::Bound), |item| item.word(ROLES));
    let kind = table.get("type").map_or(Some(ValueKind::Text), |item| item.word(KINDS));
    let source = source(table);
    let rule = table.get("rule").map_or(Some(Rule::Equal), |item| item.word(RULES));
    let normalize = table.get("normalize").map(|item| normalizers(&item)).unwrap_or_default();
    let currency = table.get("currency").and_then(|item| item.parsed(currency));
    let min = table.get("min").and_then(|item| item.integer());
    let max = table.get("max").and_then(|item| item.integer());
    let optional = table.get("optional").and_then(|item| item.boolean()).unwrap_or(false);
    let pin = table.get("pin").and_then(|item| item.word(&[("trigger", true)])).unwrap_or(false);
    let media_type = table.get("media-type").and_then(|item| item.parsed(media_type));
    let filename = table.get("filename").and_then(|item| item.parsed(filename));
    table.finish();
    if table.source.error_count() > before {
        return None;
    }
    Some(Field {
        name: name?,
        at,
        role: role?,
        kind: kind?,
        source: source?,
        rule: rule?,
        normalize,
        currency,
        min,
        max,
        optional,
        pin,
        media_type,
        filename,
    })
}

fn field_name(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !text.is_empty() && text.len() <= crate::limits::NAME_BYTES_MAX && text.bytes().all(good) {
        Ok(text.to_owned())
    } else {
        Err(format!("\"{}\" is not a field name: letters, digits, \"-\" and \"_\", at most 64", short(text)))
    }
}

fn normalizers(item: &Item<'_>) -> Vec<Normalizer> {
    let parse = |text: &str| {
        Normalizer::from_name(text).ok_or_else(|| {
            format!("\"{}\" is not a normaliser; the list is closed: {}", short(text), Normalizer::names().join(", "))
        })
    };
    item.one_or_many().iter().filter_map(|one| one.parsed(parse)).collect()
}

fn currency(text: &str) -> Result<Currency, String> {
    if let Some(name) = text.strip_prefix("field:") {
        return field_name(name).map(Currency::Field);
    }
    match crate::normalize::currency_exponent(text) {
        Some(_) => Ok(Currency::Code(text.to_owned())),
        None => Err(format!("\"{}\" is neither an ISO 4217 code such as USD nor field:NAME", short(text))),
    }
}

fn media_type(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"!#$&^_.+-/".contains(&b);
    let parts = text.split('/').filter(|part| !part.is_empty()).count();
    if parts == 2 && text.matches('/').count() == 1 && text.len() <= 100 && text.bytes().all(good) {
        Ok(text.to_owned())
    } else {
        Err(format!("\"{}\" is not a media type such as application/pdf", short(text)))
    }
}

fn filename(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"._- ".contains(&b);
    if !text.is_empty() && text.len() <= 100 && !text.starts_with('.') && text.bytes().all(good) {
        Ok(text.to_owned())
    } else {
        Err("a file name is letters, digits, spaces and . _ -".into())
    }
}

/// `from`, with `value` where the source needs one.
fn source(table: &Table<'_>) -> Option<Source> {
    let value = table.get("value");
    let Some(from) = table.get("from") else {
        if let Some(value) = value {
            value.error("\"value\" goes with from = \"lookup:NAME\" or from = \"const\"");
        }
        return Some(Source::Guest);
    };
    let text = from.text()?;
    let (kind, rest) = text.split_once(':').map_or((text, None), |(k, r)| (k, Some(r)));
    let takes_value = matches!(kind, "lookup" | "const");
    match &value {
        Some(value) if !takes_value => value.error("\"value\" goes with from = \"lookup:NAME\" or from = \"const\""),
        None if takes_value => from.error(format!("from = \"{kind}…\" needs \"value\"")),
        _ => {}
    }
    match (kind, rest) {
        ("context", Some(name)) if FACTS.contains(&name) => Some(Source::Context(name.to_owned())),
        ("context", _) => {
            from.error(format!("a context fact is one of: {}", FACTS.join(", ")));
            None
        }
        ("argument", Some(pointer)) => from.parsed(|_| named_pointer(pointer)).map(Source::Argument),
        ("content", Some(pointer)) => from.parsed(|_| named_pointer(pointer)).map(Source::Content),
        ("lookup", Some(name)) => {
            let operation = from.parsed(|_| super::reader::slug(name).map(str::to_owned));
            let value = value?.parsed(Pointer::parse);
            Some(Source::Lookup { operation: operation?, value: value? })
        }
        ("plan", None) => Some(Source::Plan),
        ("const", None) => constant(&value?).map(Source::Const),
        _ => {
            from.error(format!(
                "\"{}\" is not a source; use context:FACT, argument:/POINTER, lookup:OPERATION, content:/POINTER, plan, \
                 const, or leave \"from\" out for the guest's word",
                short(text)
            ));
            None
        }
    }
}

fn named_pointer(text: &str) -> Result<Pointer, String> {
    let pointer = Pointer::parse(text)?;
    if pointer.segments().is_empty() {
        return Err("name one argument, as in argument:/return_id".into());
    }
    Ok(pointer)
}

fn constant(item: &Item<'_>) -> Option<Value> {
    use toml::de::DeValue;
    match item.value.get_ref() {
        DeValue::String(text) => Some(Value::Text(text.to_string())),
        DeValue::Integer(_) => item.integer().map(Value::Integer),
        DeValue::Boolean(truth) => Some(Value::Boolean(*truth)),
        _ => {
            item.error("a constant is text, a whole number or a truth value; write a decimal as text");
            None
        }
    }
}
