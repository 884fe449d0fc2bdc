//! From TOML text to a checked contract: every error is kept and reported with its line.

mod checks;
mod duration;
mod field;
mod operation;
mod query;
mod reader;

use std::collections::{BTreeMap, BTreeSet};

use toml::de::DeTable;

use crate::contract::{Component, Contract, Endpoint, Tool};
use crate::database::{Database, DatabaseAddress};
use crate::error::{ContractError, ContractErrors};
use crate::limits::{CONTRACT_BYTES_MAX, ENTRIES_MAX};
use crate::operation::{EffectClass, Operation};
use reader::{Item, Source, Table};

/// Parses and checks the text.
pub(crate) fn contract(file: &str, text: &str) -> Result<Contract, ContractErrors> {
    if text.len() > CONTRACT_BYTES_MAX {
        return Err(whole_text(file, format!("the contract is longer than {CONTRACT_BYTES_MAX} bytes")));
    }
    let source = Source::new(file, text);
    let (document, syntax) = DeTable::parse_recoverable(text);
    // The first one; those behind it are mostly what it makes of the rest.
    for error in syntax.into_iter().take(1) {
        let line = source.line_at(error.span().map_or(0, |span| span.start));
        source.error(line, "", error.message().replace('\n', " "));
    }
    let parts = read(&Table::new(&source, String::new(), document.get_ref(), 0));
    checks::check(&source, &parts);
    let (errors, lines) = source.finish();
    let Parts { component, endpoints, tools, operations, .. } = parts;
    match (ContractErrors::new(errors), component) {
        (None, Some(component)) => {
            Ok(Contract { component, endpoints, tools, operations, text: text.to_owned(), lines })
        }
        (Some(errors), _) => Err(errors),
        // What could not be read always left an error; should that ever be untrue, fail closed.
        (None, None) => Err(whole_text(file, "the contract cannot be read".to_owned())),
    }
}

fn whole_text(file: &str, message: String) -> ContractErrors {
    ContractErrors::single(ContractError { file: file.to_owned(), line: 1, key: String::new(), message })
}

/// What was read, before the parts are checked against each other.
struct Parts {
    component: Option<Component>,
    endpoints: BTreeMap<String, Endpoint>,
    tools: BTreeMap<String, Tool>,
    operations: BTreeMap<String, Operation>,
    /// Names that are declared but could not be read: their absence is no second error.
    broken: BTreeSet<String>,
}

fn read(document: &Table<'_>) -> Parts {
    let component = document.need("component").and_then(|item| component(&item.table()?));
    let mut broken = BTreeSet::new();
    let endpoints = entries(document.get("endpoint"), &mut broken, |_, table| endpoint(table));
    let tools = entries(document.get("tool"), &mut broken, |_, table| tool(table));
    let mut operations = entries(document.get("operation"), &mut broken, operation::read);
    document.finish();
    link_completions(&mut operations);
    Parts { component, endpoints, tools, operations, broken }
}

/// Lets each operation know which one completes it; a second one is an error of the checks.
fn link_completions(operations: &mut BTreeMap<String, Operation>) {
    let completing = operations.values().filter_map(|o| Some((o.name.clone(), o.completes.clone()?)));
    for (name, target) in completing.collect::<Vec<_>>() {
        if let Some(target) = operations.get_mut(&target) {
            target.completed_by.get_or_insert(name);
        }
    }
}

fn entries<'a, T>(
    item: Option<Item<'a>>,
    broken: &mut BTreeSet<String>,
    read: impl Fn(&str, &Table<'a>) -> Option<T>,
) -> BTreeMap<String, T> {
    let Some(table) = item.as_ref().and_then(Item::table) else {
        return BTreeMap::new();
    };
    let entries = table.entries();
    if entries.len() > ENTRIES_MAX {
        table.error(format!("more than {ENTRIES_MAX} entries"));
    }
    let mut all = BTreeMap::new();
    for (name, item) in entries.into_iter().take(ENTRIES_MAX) {
        if let Err(message) = reader::slug(&name) {
            item.error(message);
        }
        match item.table().and_then(|table| read(&name, &table)) {
            Some(value) => drop(all.insert(name, value)),
            None => drop(broken.insert(name)),
        }
    }
    all
}

const CLASSES: &[(&str, EffectClass)] = &[("none", EffectClass::None), ("keyed", EffectClass::Keyed)];

fn component(table: &Table<'_>) -> Option<Component> {
    let name = table.need("name").and_then(|item| item.slug());
    let effect = table.need("effect").and_then(|item| item.word(CLASSES));
    table.finish();
    Some(Component { name: name?, effect: effect? })
}

/// A database's URL, or one that a request's path can be put behind.
fn endpoint_url(text: &str) -> Result<(), String> {
    match Database::of_url(text) {
        Some(_) => DatabaseAddress::parse(text).map(drop),
        None => crate::render::check_base_url(text),
    }
}

fn endpoint(table: &Table<'_>) -> Option<Endpoint> {
    let url = table.need("url").and_then(|item| item.parsed(|text| endpoint_url(text).map(|()| text.to_owned())));
    let credential = table.get("credential").and_then(|item| item.slug());
    table.finish();
    Some(Endpoint { url: url?, credential })
}

fn tool(table: &Table<'_>) -> Option<Tool> {
    let operations = table.get("operations").map(|item| item.list()).unwrap_or_default();
    let operations = operations.iter().filter_map(Item::slug).collect();
    let effects = table.get("effects").and_then(|item| {
        let number = item.integer()?;
        let effects = u32::try_from(number).ok();
        if effects.is_none() {
            item.error("a number of effects is between 0 and 4294967295");
        }
        effects
    });
    table.finish();
    Some(Tool { operations, effects: effects.unwrap_or(1) })
}
