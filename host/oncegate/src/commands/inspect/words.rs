//! What a contract says, in words for a reviewer; shared by the page, the JSON and the comparison.

use std::time::Duration;

use oncegate_contract::{
    Condition, Conditions, Contract, Currency, Database, Dedupe, DedupeScope, EffectClass, Field, Operation, Query,
    Role, Rule, Source, StatusMatch, Test, Value,
};

/// Where a value comes from; what a model typed is said loudest.
pub(super) fn source(source: &Source) -> String {
    match source {
        Source::Lookup { operation, value } => {
            format!("resolved by the lookup {operation}, at {}", pointer(&value.to_string()))
        }
        Source::Context(fact) => format!("from the orchestrator: {fact}"),
        Source::Argument(at) => format!("TYPED BY THE MODEL: argument {}", pointer(&at.to_string())),
        Source::Content(at) => format!("SHA-256 of bytes TYPED BY THE MODEL: argument {}", pointer(&at.to_string())),
        Source::Plan => "from a frozen plan".to_owned(),
        Source::Const(value) => format!("constant: {}", constant(value)),
        Source::Guest => "the guest's word".to_owned(),
    }
}

/// As [`source`]; the answer of an effect that the operation completes is no lookup's.
pub(super) fn source_in(operation: &Operation, from: &Source) -> String {
    match from {
        Source::Lookup { operation: of, value } if operation.completes.as_ref() == Some(of) => {
            format!("from the provider's answer to {of}, at {}", pointer(&value.to_string()))
        }
        from => source(from),
    }
}

/// As [`source_in`]; a field that only the host fills, when it settles an effect, is no guest's word.
pub(super) fn source_of(contract: &Contract, operation: &Operation, field: &Field) -> String {
    if field.source != Source::Guest || asked_for(contract, operation) {
        return source_in(operation, &field.source);
    }
    let filled = settles(contract, operation).filter_map(|settled| {
        let from = settled.settle.as_ref()?.with.get(&field.name)?;
        Some(format!("by the host, from {from} of {}", settled.name))
    });
    let filled: Vec<String> = filled.collect();
    if filled.is_empty() { source(&field.source) } else { filled.join(", or ") }
}

/// Whether any tool may ask for the operation.
pub(super) fn asked_for(contract: &Contract, operation: &Operation) -> bool {
    contract.tools.values().any(|tool| tool.operations.contains(&operation.name))
}

/// The operations that this lookup settles.
pub(super) fn settles<'a>(contract: &'a Contract, lookup: &'a Operation) -> impl Iterator<Item = &'a Operation> {
    let by_it =
        |operation: &&Operation| operation.settle.as_ref().is_some_and(|settle| settle.operation == lookup.name);
    contract.operations.values().filter(by_it)
}

/// How much a source is worth: the higher, the less a model or a guest can choose.
pub(super) const fn strength(source: &Source) -> u8 {
    match source {
        Source::Const(_) => 4,
        Source::Lookup { .. } | Source::Plan => 3,
        Source::Context(_) => 2,
        Source::Argument(_) | Source::Content(_) => 1,
        Source::Guest => 0,
    }
}

fn pointer(text: &str) -> String {
    if text.is_empty() { "(the whole document)".to_owned() } else { text.to_owned() }
}

fn constant(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Decimal(number) => number.clone(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Json(json) => json.to_string(),
        Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
    }
}

/// What may be in the field.
pub(super) fn limits(field: &Field) -> Vec<String> {
    let mut limits = vec![field.kind.as_str().to_owned()];
    match (field.min, field.max) {
        (Some(min), Some(max)) => limits.push(format!("{min} to {max}")),
        (Some(min), None) => limits.push(format!("at least {min}")),
        (None, Some(max)) => limits.push(format!("at most {max}")),
        (None, None) => {}
    }
    if field.source != Source::Guest {
        limits.extend(rule(field.rule).map(str::to_owned));
    }
    limits.extend(normal_form(field));
    if field.optional {
        limits.push("may be left out".to_owned());
    }
    if field.pin {
        limits.push("pinned at its first value".to_owned());
    }
    limits
}

/// The normalisers, and the currency of an amount.
pub(super) fn normal_form(field: &Field) -> Option<String> {
    let names: Vec<&str> = field.normalize.iter().map(|normalizer| normalizer.name()).collect();
    let currency = match &field.currency {
        Some(Currency::Code(code)) => format!(" in {code}"),
        Some(Currency::Field(name)) => format!(" in the currency of {name}"),
        None => String::new(),
    };
    (!names.is_empty()).then(|| format!("normalised: {}{currency}", names.join(", ")))
}

/// What a guest may choose where there is a source.
pub(super) const fn rule(rule: Rule) -> Option<&'static str> {
    match rule {
        Rule::Equal => None,
        Rule::AtMost => Some("the guest may choose less"),
        Rule::OneOf => Some("the guest may choose one of them"),
    }
}

/// Where the field is written.
pub(super) fn place(field: &Field) -> String {
    field.at.as_ref().map_or_else(|| "not sent".to_owned(), ToString::to_string)
}

/// Method and whole URL, as the contract gives it.
pub(super) fn request(contract: &Contract, operation: &Operation) -> String {
    let base = contract
        .endpoints
        .get(&operation.endpoint)
        .map_or(operation.endpoint.as_str(), |endpoint| endpoint.url.as_str());
    let between = if operation.query.is_some() && !operation.path.text.is_empty() { ":" } else { "" };
    format!("{} {}{between}{}", operation.method, base.trim_end_matches('/'), operation.path.text)
}

/// The kind of database that an operation asks.
pub(super) fn database(contract: &Contract, operation: &Operation) -> Option<Database> {
    operation.query.as_ref()?;
    Database::of_url(&contract.endpoints.get(&operation.endpoint)?.url)
}

/// How a database is kept from being written to.
pub(super) const fn kept(kind: Database) -> &'static str {
    match kind {
        Database::Postgres | Database::Mysql => {
            "in a read-only transaction that is rolled back, under the login and role that the policy names and doctor examines"
        }
        Database::Sqlite => {
            "read-only, from the file that the policy names, under an authoriser that knows reading alone"
        }
        Database::Mongodb => "by find and aggregate alone, under the login that the policy names and doctor examines",
    }
}

/// What is asked of a database: the contract's keys and their constant text.
pub(super) fn asked(operation: &Operation) -> Vec<(&'static str, String)> {
    operation.query.as_ref().map(Query::lines).unwrap_or_default()
}

/// The name of the secret that is sent along.
pub(super) fn credential<'a>(contract: &'a Contract, operation: &Operation) -> Option<&'a str> {
    contract.endpoints.get(&operation.endpoint)?.credential.as_deref()
}

pub(super) const fn class(class: EffectClass) -> &'static str {
    match class {
        EffectClass::None => "none",
        EffectClass::Keyed => "keyed",
    }
}

pub(super) fn of_role(operation: &Operation, role: Role) -> impl Iterator<Item = &Field> {
    operation.fields.iter().filter(move |field| field.role == role)
}

/// Conditions, any of which must hold.
pub(super) fn conditions(conditions: &Conditions) -> String {
    conditions.iter().map(condition).collect::<Vec<_>>().join(", or ")
}

/// One condition.
pub(super) fn condition(condition: &Condition) -> String {
    let statuses: Vec<String> = condition
        .status
        .iter()
        .map(|status| match status {
            StatusMatch::Code(code) => code.to_string(),
            StatusMatch::Class(class) => format!("{class}xx"),
        })
        .collect();
    let status = if statuses.is_empty() { "2xx".to_owned() } else { statuses.join(" or ") };
    let test = match &condition.test {
        None => String::new(),
        Some((at, Test::Exists(true))) => format!(" with {at}"),
        Some((at, Test::Exists(false))) => format!(" without {at}"),
        Some((at, Test::In(values))) => {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            format!(" with {at} = {}", values.join(" or "))
        }
    };
    format!("{status}{test}")
}

/// What the contract says of the provider's own idempotency.
pub(super) fn dedupe(operation: &Operation) -> String {
    let terms = &operation.provider;
    let kind = match terms.dedupe {
        Dedupe::None => return "the provider drops no repeats".to_owned(),
        Dedupe::Key => "the provider drops repeats of a key, without comparing bodies",
        Dedupe::KeyAndBody => "the provider drops repeats of a key and refuses another body under it",
    };
    let at = terms.at.as_ref().map(|at| format!(", given at {at}")).unwrap_or_default();
    let window = terms
        .window
        .map_or_else(|| "for a time that is not told".to_owned(), |window| format!("for {}", duration(window)));
    let scope = match terms.scope {
        DedupeScope::Credential => "one credential",
        DedupeScope::Account => "the account",
    };
    format!("{kind}{at}, {window}, within {scope}")
}

/// How the effect relates to those of other operations: a word for it, and what is said.
pub(super) fn relations(operation: &Operation) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    if let Some(completing) = &operation.completed_by {
        said.push(("in two steps", format!("it is issued first; {completing} makes it final")));
    }
    if let Some(target) = &operation.completes {
        let time = operation.complete_within.map_or_else(
            || "however late".to_owned(),
            |within| format!("within {} of its dispatch, and never after that", duration(within)),
        );
        said.push(("completes", format!("the effect of {target} in the same call, {time}")));
    }
    if let Some(revokes) = &operation.revokes {
        let of = &revokes.operation;
        said.push((
            "undoes",
            format!("the effect of {of} whose receipt is at {}; {of} may then be done again", revokes.at),
        ));
    }
    said
}

/// How the host finds out what became of an effect.
pub(super) fn settle(operation: &Operation) -> String {
    let Some(settle) = &operation.settle else {
        return "none: after a lost answer only a person can say whether it happened".to_owned();
    };
    let by = if operation.reference.is_some() { "its reference" } else { "all its key parts" };
    let equal: Vec<&str> = settle.must_equal.keys().map(String::as_str).collect();
    let equal = if equal.is_empty() { String::new() } else { format!(", {} must agree", equal.join(", ")) };
    let absent = settle.absent_after.map_or_else(
        || "; not finding it never proves anything".to_owned(),
        |after| format!("; not finding it counts {} after its sender stopped", duration(after)),
    );
    format!("by the lookup {}, matched by {by}{equal}{absent}", settle.operation)
}

/// As contracts write it.
pub(super) fn duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms >= unit && ms.is_multiple_of(unit) {
            return format!("{}{name}", ms / unit);
        }
    }
    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &str) -> Vec<Field> {
        let text = format!(
            "[component]\nname = \"a\"\neffect = \"keyed\"\n[endpoint.e]\nurl = \"https://e.example/\"\n[tool.t]\noperations = [\"look\", \"o\"]\n\
            [operation.look]\neffect = \"none\"\nrequest = \"GET e:/look\"\n\
            [operation.o]\neffect = \"keyed\"\naction = \"x\"\nrequest = \"POST e:/x\"\nbody = \"json\"\nreceipt = \"/id\"\nfields = [{lines}]\n"
        );
        let contract = Contract::parse("c.toml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        contract.operations["o"].fields.clone()
    }

    #[test]
    fn who_decides_a_key_part_is_said_plainly() {
        let said: Vec<String> = fields(
            r#"{ name = "a", at = "json:/a", role = "key", from = "lookup:look", value = "/id" },
            { name = "b", at = "json:/b", role = "key", from = "context:trigger" },
            { name = "c", at = "json:/c", role = "key", from = "argument:/who" },
            { name = "d", at = "json:/d", from = "const", value = "v1" },
            { name = "e", at = "json:/e", role = "generated" },"#,
        )
        .iter()
        .map(|field| source(&field.source))
        .collect();
        assert_eq!(
            said,
            [
                "resolved by the lookup look, at /id",
                "from the orchestrator: trigger",
                "TYPED BY THE MODEL: argument /who",
                "constant: \"v1\"",
                "the guest's word"
            ]
        );
    }

    #[test]
    fn limits_are_listed() {
        let fields = fields(
            r#"{ name = "k", at = "json:/k", role = "key", from = "context:run", normalize = ["trim", "lower"] },
            { name = "n", at = "json:/n", type = "integer", from = "lookup:look", value = "/n", rule = "at-most", max = 9 },"#,
        );
        assert_eq!(limits(&fields[0]), ["text", "normalised: trim, lower"]);
        assert_eq!(limits(&fields[1]), ["integer", "at most 9", "the guest may choose less"]);
    }

    #[test]
    fn durations_are_short() {
        let said = [90_000, 86_400_000, 300_000, 1_500, 0].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(said, ["90s", "1d", "5m", "1500ms", "0ms"]);
    }
}
