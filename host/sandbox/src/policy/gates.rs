//! What a policy asks for beside a grant: plans, permits, approvals, exclusive claims.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::elicited::{Door, is_elicited};
use super::reader::{Reader, Table};
use oncegate_contract::{Operation, Resolved, Role};

/// What an effect has to name before it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requires {
    /// A frozen plan that it is part of.
    pub plan: bool,
    /// A permit that covers it.
    pub permit: bool,
}

impl Requires {
    /// What both ask for.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { plan: self.plan || other.plan, permit: self.permit || other.permit }
    }

    /// The words of a policy.
    #[must_use]
    pub fn words(self) -> Vec<&'static str> {
        [("plan", self.plan), ("permit", self.permit)].iter().filter(|(_, is)| *is).map(|(word, _)| *word).collect()
    }
}

/// One `[[approve]]` entry: a person decides before the operation is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRule {
    /// Its line in the file.
    pub line: usize,
    /// The operation.
    pub operation: String,
    /// Only above this; none: always.
    pub when: Option<Above>,
    /// Whose approval counts; empty: anybody's who may write to the ledger.
    pub by: Vec<String>,
    /// Doors through which a client's answer counts as an approval; empty: none.
    pub elicitation_from: Vec<Door>,
}

/// A bound that a field has to pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Above {
    /// The field; for `money` its minor units are compared.
    pub field: String,
    /// Exact decimal text.
    pub above: String,
}

impl ApprovalRule {
    /// Whether these values need the approval. A field that is absent, no number, or the model's wording
    /// is above everything.
    #[must_use]
    pub fn applies(&self, values: &Resolved) -> bool {
        let Some(Above { field, above }) = &self.when else { return true };
        let found = values.field(field).filter(|found| matches!(found.role, Role::Key | Role::Bound));
        let number =
            found.and_then(|found| found.normal.as_deref()).map(|normal| normal.split(' ').next().unwrap_or(normal));
        number.and_then(|number| oncegate_contract::is_above(number, above)).unwrap_or(true)
    }

    /// Whether an approval by these meets it. An answer through a client is nobody's who is named in `by`,
    /// and not anybody's either: it counts through the doors that are listed, and there alone.
    #[must_use]
    pub fn is_met(&self, approved_by: &[String]) -> bool {
        approved_by.iter().any(|actor| {
            if is_elicited(actor) {
                return self.elicitation_from.iter().any(|door| door.is_of(actor));
            }
            self.by.is_empty() || self.by.contains(actor)
        })
    }
}

impl std::fmt::Display for ApprovalRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.when {
            None => f.write_str("always")?,
            Some(Above { field, above }) => write!(f, "when {field} is above {above}")?,
        }
        if !self.by.is_empty() {
            write!(f, ", by {}", self.by.join(" or "))?;
        }
        for (at, door) in self.elicitation_from.iter().enumerate() {
            let words = if at == 0 { ", also on the word of a client through" } else { " or" };
            write!(f, "{words} {door}")?;
        }
        Ok(())
    }
}

/// One `[[exclusive]]` entry: operations for one real-world purpose, of which one happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExclusiveRule {
    /// Its line in the file.
    pub line: usize,
    /// The name of the claim.
    pub name: String,
    /// Each operation with the fields whose values identify the purpose.
    pub by: BTreeMap<String, Vec<String>>,
}

/// A claim that one operation needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusive {
    /// The line of its entry.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// The operation's fields that identify the purpose.
    pub by: Vec<String>,
}

/// The claims of an operation. Each field that names one has to be there in every call and to be none
/// that a model words.
pub(super) fn exclusives(rules: &[ExclusiveRule], operation: &Operation) -> Result<Vec<Exclusive>, String> {
    let named = rules.iter().filter_map(|rule| Some((rule, rule.by.get(&operation.name)?)));
    named
        .map(|(rule, by)| {
            for name in by {
                let usable = operation
                    .field(name)
                    .is_some_and(|field| matches!(field.role, Role::Key | Role::Bound) && !field.optional);
                if !usable {
                    return Err(format!(
                        "[[exclusive]] at line {} names the field {name:?}, and {} has no key or bound field of that name that is always there",
                        rule.line, operation.name
                    ));
                }
            }
            Ok(Exclusive { line: rule.line, name: rule.name.clone(), by: by.clone() })
        })
        .collect()
}

/// `requires = ["plan", "permit"]`.
pub(super) fn requires<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Requires {
    let mut requires = Requires::default();
    for word in reader.strings(table, "requires").unwrap_or_default() {
        match word.as_str() {
            "plan" => requires.plan = true,
            "permit" => requires.permit = true,
            _ => reader.bad(table, "requires", "expected a list of \"plan\", \"permit\""),
        }
    }
    requires
}

pub(super) fn approvals<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Vec<ApprovalRule> {
    let tables = reader.list(root, "approve");
    tables.iter().filter_map(|table| approval(reader, table)).collect()
}

fn approval<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<ApprovalRule> {
    reader.only(table, &["operation", "when", "by", "elicitation-from"], &[]);
    let operation = name(reader, table, "operation");
    let when = match reader.get(table, "when") {
        // What cannot be read must not become "never".
        Some(_) => Some(above(reader, table)?),
        None => None,
    };
    let by = reader.strings(table, "by").unwrap_or_default();
    if reader.get(table, "by").is_some() && (by.is_empty() || by.iter().any(|actor| actor.trim().is_empty())) {
        reader.bad(table, "by", "expected the names of those who may approve; without `by` anybody may");
    }
    if by.iter().any(|actor| is_elicited(actor)) {
        reader.bad(table, "by", "an answer through a client is nobody's name; `elicitation-from` says where it counts");
    }
    let elicitation_from = elicitation_from(reader, table);
    Some(ApprovalRule { line: table.line, operation: operation?, when, by, elicitation_from })
}

/// `elicitation-from = ["stdio", "token:desk"]`.
fn elicitation_from<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Vec<Door> {
    const KEY: &str = "elicitation-from";
    if reader.get(table, KEY).is_none() {
        return Vec::new();
    }
    if reader.get(table, "by").is_some() {
        reader.bad(table, KEY, "`by` names people, and an answer through a client names nobody: give one of the two");
    }
    let named = reader.strings(table, KEY).unwrap_or_default();
    let doors: Option<Vec<Door>> = named.iter().map(|text| Door::parse(text)).collect();
    match doors.filter(|doors| !doors.is_empty()) {
        Some(doors) => doors,
        None => {
            reader.bad(
                table,
                KEY,
                "expected a list of \"stdio\" and \"token:NAME\"; without it no client's answer counts",
            );
            Vec::new()
        }
    }
}

fn above<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<Above> {
    let when = reader.table(table, "when")?;
    reader.only(&when, &["field", "above"], &[]);
    let field = name(reader, &when, "field");
    let above = reader.get(&when, "above").and_then(|(value, _)| number(value));
    if above.is_none() {
        reader.bad(&when, "above", "expected a whole number, or a decimal one as text, such as \"99.50\"");
    }
    Some(Above { field: field?, above: above? })
}

/// Whole numbers as they are, others as text: a float has no single text.
fn number(value: &DeValue<'_>) -> Option<String> {
    let text = match value.as_integer() {
        Some(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok()?.to_string(),
        None => value.as_str()?.to_owned(),
    };
    oncegate_contract::is_above(&text, "0").map(|_| text)
}

pub(super) fn exclusive_rules<'a>(reader: &mut Reader<'a>, root: &Table<'a>) -> Vec<ExclusiveRule> {
    let tables = reader.list(root, "exclusive");
    let mut rules: Vec<ExclusiveRule> = Vec::new();
    for table in &tables {
        let Some(rule) = exclusive(reader, table) else { continue };
        if rules.iter().any(|known| known.name == rule.name) {
            reader.bad(table, "name", "another [[exclusive]] has this name; two entries would be two claims");
        }
        rules.push(rule);
    }
    rules
}

fn exclusive<'a>(reader: &mut Reader<'a>, table: &Table<'a>) -> Option<ExclusiveRule> {
    reader.only(table, &["name", "operations", "by"], &[]);
    let name = name(reader, table, "name");
    let operations = reader.strings(table, "operations").unwrap_or_default();
    if operations.is_empty() {
        reader.bad(table, "operations", "missing; name the operations that share the purpose");
    }
    let by = match reader.get(table, "by").map(|(value, _)| value) {
        Some(DeValue::Table(_)) => mapped(reader, table, &operations)?,
        Some(_) => {
            let fields = reader.strings(table, "by")?;
            operations.iter().map(|operation| (operation.clone(), fields.clone())).collect()
        }
        None => BTreeMap::new(),
    };
    let lengths: Vec<usize> = by.values().map(Vec::len).collect();
    let same = lengths.iter().all(|length| *length > 0 && Some(length) == lengths.first());
    if !operations.iter().all(|operation| by.contains_key(operation)) || !same {
        reader.bad(
            table,
            "by",
            "expected fields that identify the purpose: a list for all operations, or a table with a field or a list for each, of one length",
        );
    }
    Some(ExclusiveRule { line: table.line, name: name?, by })
}

/// `by = { create-refund = "return", store-credit = ["goods"] }`.
fn mapped<'a>(
    reader: &mut Reader<'a>,
    table: &Table<'a>,
    operations: &[String],
) -> Option<BTreeMap<String, Vec<String>>> {
    let by = reader.table(table, "by")?;
    let known: Vec<&str> = operations.iter().map(String::as_str).collect();
    reader.only(&by, &known, &[]);
    let mut fields = BTreeMap::new();
    for operation in operations {
        let named = match reader.get(&by, operation).map(|(value, _)| value) {
            Some(DeValue::String(_)) => reader.string(&by, operation).map(|field| vec![field.to_owned()]),
            Some(_) => reader.strings(&by, operation),
            None => None,
        };
        fields.extend(named.map(|named| (operation.clone(), named)));
    }
    Some(fields)
}

/// A name that must be there.
fn name<'a>(reader: &mut Reader<'a>, table: &Table<'a>, key: &str) -> Option<String> {
    if reader.get(table, key).is_none() {
        reader.bad(table, key, "missing");
        return None;
    }
    let name = reader.string(table, key)?;
    if oncegate_contract::safe_text(name) != name {
        reader.bad(table, key, "expected a name of letters, digits and . _ : @ + -");
    }
    Some(name.to_owned())
}
