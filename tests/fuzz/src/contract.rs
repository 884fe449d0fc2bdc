//! A contract, as its author wrote it: read whole or refused with lines, and never in two ways.

use oncegate_contract::{Contract, Interface, Operation, PathTemplate, Place, Pointer, Source, fits, lint, recipe};

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Contract::parse("c.toml", text) {
        Ok(contract) => accepted(&contract, text),
        Err(errors) => {
            let lines = text.lines().count().max(1) + 1;
            assert!(!errors.errors().is_empty());
            for error in errors.errors() {
                assert!((1..=lines).contains(&error.line) && !error.message.is_empty(), "{error}");
            }
        }
    }
}

fn accepted(contract: &Contract, text: &str) {
    assert_eq!(Contract::parse("c.toml", text).as_ref(), Ok(contract), "read twice, it is two contracts");
    same_but_for_a_comment(contract, text);
    let unknown = format!("{text}\n[nobody-knows-this]\n");
    assert!(Contract::parse("c.toml", &unknown).is_err(), "an unknown key is an error");
    let _ = (lint(contract), fits(contract, "c.toml", &Interface::default()));
    for (name, tool) in &contract.tools {
        let _ = contract.context_facts(name);
        assert!(tool.operations.iter().all(|operation| contract.operations.contains_key(operation)));
    }
    for operation in contract.operations.values() {
        printed_and_read_again(operation);
    }
}

fn same_but_for_a_comment(contract: &Contract, text: &str) {
    let other = Contract::parse("c.toml", &format!("{text}\n# nothing\n")).expect("a comment changes nothing");
    assert_ne!(other.digest(), contract.digest(), "the digest is of the text");
    assert_eq!(other.component, contract.component);
    assert_eq!(other.endpoints, contract.endpoints);
    assert_eq!(other.tools, contract.tools);
    assert_eq!(other.operations, contract.operations);
    for (name, operation) in &contract.operations {
        assert_eq!(recipe(operation), recipe(&other.operations[name]));
    }
}

fn printed_and_read_again(operation: &Operation) {
    assert_eq!(PathTemplate::parse(&operation.path.text).as_ref(), Ok(&operation.path));
    let places = operation.fields.iter().filter_map(|field| field.at.as_ref());
    for place in places.chain(&operation.reference).chain(&operation.provider.at) {
        assert_eq!(Place::parse(&place.to_string()).as_ref(), Ok(place));
    }
    let sources = operation.fields.iter().filter_map(|field| match &field.source {
        Source::Argument(pointer) | Source::Content(pointer) => Some(pointer),
        Source::Lookup { value, .. } => Some(value),
        _ => None,
    });
    for pointer in sources.chain(&operation.receipt) {
        assert_eq!(Pointer::parse(&pointer.to_string()).as_ref(), Ok(pointer));
    }
}
