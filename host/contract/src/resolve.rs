//! Taking each declared field from its source, checking the guest's copies against it.

mod candidates;
mod judge;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::error::FieldError;
use crate::field::{Currency, Field, Role, Source};
use crate::limits::{CONTEXT_BYTES_MAX, FETCHES_MAX, GIVEN_MAX, SEQUENCE_MAX};
use crate::operation::{Operation, SequenceScope};
use crate::value::Value;
use judge::{Finished, finish};

/// All that one call offers to take values from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// Facts from the orchestrator.
    pub context: &'a BTreeMap<String, String>,
    /// The tool's arguments.
    pub arguments: &'a Json,
    /// The lookups of this call, in order.
    pub lookups: &'a [Fetched],
    /// What the guest named.
    pub given: &'a [(String, Value)],
    /// The values that a frozen plan has for this call, by field.
    pub plan: &'a BTreeMap<String, Value>,
}

/// One lookup of this call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Its ordinal in the call.
    pub fetch: u32,
    /// The lookup operation.
    pub operation: String,
    /// A 2xx that meets `found-when`; others are no source.
    pub found: bool,
    /// The parsed answer.
    pub body: Json,
}

/// One field with the value that is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedField {
    /// The field's name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Where the value came from, as the contract says it.
    pub source: String,
    /// What is written.
    pub value: Value,
    /// The text that enters key or fingerprint; none for other roles.
    pub normal: Option<String>,
}

/// An operation's fields, resolved. The host stores it with the dispatch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// In declared order; optional fields that are absent are left out.
    pub fields: Vec<ResolvedField>,
    /// The lookups that the values came from, by ordinal.
    pub fetches: Vec<u32>,
    /// Scope, the scope's identity and the ordinal, where the operation repeats legitimately.
    pub sequence: Option<(SequenceScope, String, u64)>,
}

impl Resolved {
    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&ResolvedField> {
        self.fields.iter().find(|field| field.name == name)
    }

    pub(crate) fn of_role(&self, role: Role) -> impl Iterator<Item = &ResolvedField> {
        self.fields.iter().filter(move |field| field.role == role)
    }
}

/// Resolves an operation's fields from the sources of one call.
///
/// Where a field has a source, the source's value is written and a guest's copy is only compared.
/// All fields that name one lookup come from one fetch and, under one `*`, from one element.
///
/// # Errors
/// [`FieldError::ContextMissing`] when the orchestrator did not give a needed fact, and
/// [`FieldError::Invalid`] for everything else, naming the field. Nothing is ever guessed.
pub fn resolve(operation: &Operation, sources: &Sources<'_>) -> Result<Resolved, FieldError> {
    let given = given(operation, sources.given)?;
    if sources.lookups.len() > FETCHES_MAX {
        return Err(FieldError::invalid("lookup", format!("more than {FETCHES_MAX} lookups in one call")));
    }
    let mut work = Work { operation, sources, given, done: BTreeMap::new(), fetches: Vec::new() };
    work.run()?;
    let sequence = operation.repeat.map(|scope| sequence(scope, sources.context)).transpose()?;
    let Work { mut done, mut fetches, .. } = work;
    fetches.sort_unstable();
    fetches.dedup();
    Ok(Resolved { fields: in_order(operation, &mut done), fetches, sequence })
}

/// Resolves a lookup that the host runs itself, from values the host already has.
///
/// Used for settling: [`crate::settle_fields`] gives the values, and sources that belong to a call
/// (arguments, other lookups) are not asked.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_host(
    operation: &Operation,
    context: &BTreeMap<String, String>,
    values: &[(String, Value)],
) -> Result<Resolved, FieldError> {
    let given = given(operation, values)?;
    let mut done: BTreeMap<&str, Option<Finished>> = BTreeMap::new();
    for field in &operation.fields {
        let raw = match (&field.source, given.get(field.name.as_str())) {
            (Source::Const(value), _) => Some(value.clone()),
            (_, Some(value)) => Some((*value).clone()),
            (Source::Context(name), None) => Some(Value::Text(fact(context, name)?.to_owned())),
            (_, None) => None,
        };
        let currency = match &field.currency {
            Some(Currency::Code(code)) => Some(code.clone()),
            _ => None,
        };
        let finished = raw.map(|raw| finish(field, raw, currency.as_deref())).transpose()?;
        if finished.is_none() && !field.optional {
            return Err(FieldError::invalid(&field.name, "the settle rule gives no value for it"));
        }
        done.insert(&field.name, finished);
    }
    Ok(Resolved { fields: in_order(operation, &mut done), fetches: Vec::new(), sequence: None })
}

/// The guest's values by name; a name that is not declared, or given twice, is refused.
fn given<'a>(operation: &Operation, list: &'a [(String, Value)]) -> Result<BTreeMap<&'a str, &'a Value>, FieldError> {
    if list.len() > GIVEN_MAX {
        return Err(FieldError::invalid("fields", format!("more than {GIVEN_MAX} fields are given")));
    }
    let mut given = BTreeMap::new();
    for (name, value) in list {
        if operation.field(name).is_none() {
            return Err(FieldError::invalid(name, "the contract declares no such field for this operation"));
        }
        if given.insert(name.as_str(), value).is_some() {
            return Err(FieldError::invalid(name, "given twice"));
        }
    }
    Ok(given)
}

fn in_order(operation: &Operation, done: &mut BTreeMap<&str, Option<Finished>>) -> Vec<ResolvedField> {
    let mut fields = Vec::new();
    for field in &operation.fields {
        if let Some(Some(finished)) = done.remove(field.name.as_str()) {
            fields.push(ResolvedField {
                name: field.name.clone(),
                role: field.role,
                source: field.source.text(),
                normal: field.is_identity().then_some(finished.normal),
                value: finished.value,
            });
        }
    }
    fields
}

pub(crate) fn fact<'a>(context: &'a BTreeMap<String, String>, name: &str) -> Result<&'a str, FieldError> {
    match context.get(name).map(String::as_str) {
        None | Some("") => Err(FieldError::ContextMissing { name: name.to_owned() }),
        Some(text) if text.len() > CONTEXT_BYTES_MAX => {
            Err(FieldError::invalid(name, format!("the context fact is longer than {CONTEXT_BYTES_MAX} bytes")))
        }
        Some(text) => Ok(text),
    }
}

fn sequence(
    scope: SequenceScope,
    context: &BTreeMap<String, String>,
) -> Result<(SequenceScope, String, u64), FieldError> {
    let id = fact(context, scope.as_str())?.to_owned();
    let text = fact(context, "sequence")?;
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    match text.parse::<u64>() {
        Ok(n) if plain && n <= SEQUENCE_MAX => Ok((scope, id, n)),
        _ => Err(FieldError::invalid("sequence", "the sequence is a whole number from 1, without leading zeros")),
    }
}

/// Fields that must be resolved together: those of one lookup, those of the arguments, or one alone.
struct Group<'a> {
    fields: Vec<&'a Field>,
}

struct Work<'a> {
    operation: &'a Operation,
    sources: &'a Sources<'a>,
    given: BTreeMap<&'a str, &'a Value>,
    done: BTreeMap<&'a str, Option<Finished>>,
    fetches: Vec<u32>,
}

impl<'a> Work<'a> {
    /// A group waits for the currencies it needs from other groups.
    fn run(&mut self) -> Result<(), FieldError> {
        let mut waiting = self.groups();
        while !waiting.is_empty() {
            let before = waiting.len();
            let (ready, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|group| self.is_ready(group));
            for group in ready {
                self.resolve_group(&group)?;
            }
            waiting = later;
            if waiting.len() == before {
                return Err(FieldError::invalid("currency", "amounts and currencies wait for each other"));
            }
        }
        Ok(())
    }

    fn groups(&self) -> Vec<Group<'a>> {
        let mut named: BTreeMap<String, Vec<&'a Field>> = BTreeMap::new();
        for field in &self.operation.fields {
            let group = match &field.source {
                Source::Argument(_) | Source::Content(_) => "argument".to_owned(),
                Source::Lookup { operation, .. } => format!("lookup:{operation}"),
                _ => format!("field:{}", field.name),
            };
            named.entry(group).or_default().push(field);
        }
        named.into_values().map(|fields| Group { fields }).collect()
    }

    fn is_ready(&self, group: &Group<'_>) -> bool {
        group.fields.iter().all(|field| match &field.currency {
            Some(Currency::Field(name)) => {
                self.done.contains_key(name.as_str()) || group.fields.iter().any(|f| f.name == *name)
            }
            _ => true,
        })
    }

    fn resolve_group(&mut self, group: &Group<'a>) -> Result<(), FieldError> {
        let Some(first) = group.fields.first() else {
            return Ok(());
        };
        match &first.source {
            Source::Lookup { operation, .. } => {
                let found = self.sources.lookups.iter().filter(|f| f.found && f.operation == *operation);
                let documents: Vec<_> = found.map(|f| (Some(f.fetch), &f.body)).collect();
                if documents.is_empty() {
                    let message =
                        format!("its source is the lookup {operation}, and this call has no found answer of it");
                    return Err(FieldError::invalid(&first.name, message));
                }
                self.choose_from(group, &documents)
            }
            Source::Argument(_) | Source::Content(_) => self.choose_from(group, &[(None, self.sources.arguments)]),
            _ => {
                let value = self.alone(first)?;
                self.done.insert(&first.name, value);
                Ok(())
            }
        }
    }

    fn choose_from(&mut self, group: &Group<'a>, documents: &[(Option<u32>, &Json)]) -> Result<(), FieldError> {
        let known = |name: &str| self.text_of(name);
        let chosen = candidates::choose(&group.fields, &self.given, documents, &known)?;
        self.fetches.extend(chosen.fetch);
        self.done.extend(chosen.values);
        Ok(())
    }

    fn text_of(&self, name: &str) -> Option<String> {
        let finished = self.done.get(name)?.as_ref()?;
        Some(finished.value.canonical())
    }

    /// A field whose source is the plan that the orchestrator named.
    fn planned(
        &self,
        field: &Field,
        copy: Option<&Value>,
        currency: Option<&str>,
    ) -> Result<Option<Finished>, FieldError> {
        fact(self.sources.context, "plan")?;
        let raw = self.sources.plan.get(&field.name).cloned();
        if raw.is_none() && !field.optional && field.role != Role::Generated {
            return Err(FieldError::invalid(&field.name, "the plan has no value for it"));
        }
        Ok(judge::judge(field, raw, copy, currency)?.value)
    }

    /// A field whose source is the context, the contract, the plan or the guest.
    fn alone(&self, field: &Field) -> Result<Option<Finished>, FieldError> {
        let copy = self.given.get(field.name.as_str()).copied();
        let currency = match &field.currency {
            Some(Currency::Code(code)) => Some(code.clone()),
            Some(Currency::Field(name)) => self.text_of(name),
            None => None,
        };
        let raw = match &field.source {
            Source::Context(name) => Value::Text(fact(self.sources.context, name)?.to_owned()),
            Source::Const(value) => value.clone(),
            Source::Plan => return self.planned(field, copy, currency.as_deref()),
            _ => match copy {
                Some(value) => value.clone(),
                // A generated text may be left out: it identifies nothing.
                None if field.optional || field.role == Role::Generated => return Ok(None),
                None => {
                    return Err(FieldError::invalid(&field.name, "missing: the guest gives it"));
                }
            },
        };
        let judged = judge::judge(field, Some(raw), copy, currency.as_deref())?;
        Ok(judged.value)
    }
}

/// The normal form of a value that a provider shows for a field; none if it has none.
pub(crate) fn reread(field: &Field, json: &Json, currency: Option<&str>) -> Option<String> {
    // What a provider shows for content is the hash that was sent, not the bytes.
    let value = match &field.source {
        Source::Content(_) => Value::from_json(json).ok()?,
        _ => judge::read(field, Some(json)).ok()?,
    };
    finish(field, value?, currency).ok().map(|finished| finished.normal)
}
