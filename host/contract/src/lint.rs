//! What a contract may say and had better not: each finding is a risk that a reviewer should see.

use crate::contract::Contract;
use crate::database::Query;
use crate::field::{Field, Role, Source};
use crate::operation::{Dedupe, EffectClass, Operation};

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lint {
    /// Which kind, for filters and tests.
    pub code: &'static str,
    /// The key it is about.
    pub place: String,
    /// The risk, and what to do.
    pub message: String,
}

/// Finds what is risky in a contract that is valid.
pub fn lint(contract: &Contract) -> Vec<Lint> {
    let mut found = Vec::new();
    for operation in contract.operations.values() {
        if operation.effect == EffectClass::Keyed {
            keyed(operation, &mut found);
            related(contract, operation, &mut found);
        }
        asked(contract, operation, &mut found);
        let used = contract.tools.values().any(|tool| tool.operations.contains(&operation.name));
        let settles =
            contract.operations.values().filter_map(|o| o.settle.as_ref()).any(|s| s.operation == operation.name);
        if !used && !settles {
            let message = "no tool asks for this operation; remove it, or name it in a tool's operations";
            found.push(note("unused-operation", format!("operation.{}", operation.name), message));
        }
    }
    found
}

/// What is asked of a database.
fn asked(contract: &Contract, operation: &Operation, found: &mut Vec<Lint>) {
    let Some(Query::Sql(statement)) = &operation.query else { return };
    let place = format!("operation.{}.statement", operation.name);
    if !statement.begins_as_select() {
        let message = "it does not begin as a SELECT: the database will refuse whatever writes or gives no rows";
        found.push(note("not-a-select", place.clone(), message));
    }
    if selects_all(statement.text()) {
        let message = "it selects *: columns that are added to the table later reach the guest; name them";
        found.push(note("select-star", place.clone(), message));
    }
    let values = contract.operations.values().flat_map(|o| &o.fields);
    let by_row = values.filter_map(|field| match &field.source {
        Source::Lookup { operation: of, value } if *of == operation.name => Some(value.to_string()),
        _ => None,
    });
    if by_row.into_iter().any(|at| at.starts_with("/rows/0")) && !statement.has_word("order") {
        let message = "a value is taken from its first row, and nothing says which row is first: is there only one? else add ORDER BY";
        found.push(note("first-of-any-order", place, message));
    }
}

/// `SELECT *` or `SELECT a.*`; a product or `count(*)` is neither.
fn selects_all(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let opens =
        |word: &str| word.ends_with(',') || ["select", "distinct", "all"].contains(&word.to_lowercase().as_str());
    words
        .windows(2)
        .any(|pair| opens(pair[0]) && (pair[1].starts_with('*') || pair[1].trim_end_matches(',').ends_with(".*")))
}

/// What an operation says of another one.
fn related(contract: &Contract, operation: &Operation, found: &mut Vec<Lint>) {
    let place = |key: &str| format!("operation.{}{key}", operation.name);
    if operation.completes.is_some() && operation.complete_within.is_none() {
        let message = "no complete-within: what is issued waits for ever, and is never shown as stranded";
        found.push(note("no-complete-within", place(".completes"), message));
    }
    let undone = operation.revokes.as_ref().and_then(|revokes| contract.operations.get(&revokes.operation));
    if undone.is_some_and(|undone| undone.undone_by.as_ref() != Some(&operation.name)) {
        let message = "what it revokes does not name it in undone-by, so a reviewer reads that effect as irreversible";
        found.push(note("undoing-unnamed", place(".revokes"), message));
    }
}

fn note(code: &'static str, place: String, message: &str) -> Lint {
    Lint { code, place, message: message.to_owned() }
}

fn keyed(operation: &Operation, found: &mut Vec<Lint>) {
    let place = |key: &str| format!("operation.{}{key}", operation.name);
    let mut say = |code, key: &str, message| found.push(note(code, place(key), message));
    match &operation.settle {
        None => say("no-settle", "", "no settle rule: after a lost answer only a person can say whether it happened"),
        Some(settle) if settle.absent_after.is_none() => {
            say(
                "no-absent-after",
                ".settle",
                "no absent-after: \"not found\" never becomes proof that nothing happened",
            );
        }
        Some(_) => {}
    }
    if operation.reference.is_none() && operation.settle.is_some() {
        say(
            "no-reference",
            "",
            "no reference: candidates are matched by key parts, which another sender may have used too",
        );
    }
    if operation.method == "GET" || operation.method == "HEAD" {
        say("effect-by-get", ".request", "an effect by GET: caches and proxies may repeat it without asking");
    }
    if operation.provider.dedupe != Dedupe::None && operation.provider.window.is_none() {
        say(
            "no-dedupe-window",
            ".provider",
            "no dedupe-window: the host never sends again, because it cannot know how long the provider remembers",
        );
    }
    if operation.provider.dedupe == Dedupe::Key {
        say("dedupe-by-key-only", ".provider", "the provider does not compare bodies: a lost answer is not sent again");
    }
    for (i, field) in operation.fields.iter().enumerate() {
        for (code, message) in field_lints(operation, field) {
            found.push(note(code, place(&format!(".fields[{i}]")), message));
        }
    }
}

fn field_lints(operation: &Operation, field: &Field) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let sourced = matches!(field.source, Source::Lookup { .. } | Source::Context(_));
    match (field.role, &field.source) {
        (Role::Key, Source::Argument(_)) => found.push((
            "key-from-model",
            "this key part is typed by the model: another spelling is another effect; resolve it from a lookup or the context",
        )),
        (Role::Bound, Source::Guest) => found.push((
            "bound-without-source",
            "the guest's word is all there is for this bound field; give it a source, or role = \"generated\"",
        )),
        _ => {}
    }
    if field.role == Role::Key && sourced && !field.normalize.is_empty() {
        found.push((
            "normalised-source",
            "a normaliser on a resolved part states that the provider treats the merged values as one; is that so?",
        ));
    }
    let irreversible_text = field.role == Role::Generated && field.max.is_none();
    if irreversible_text && operation.irreversible() {
        found.push(("unbounded-text", "generated text without \"max\" in an irreversible effect"));
    }
    found
}
