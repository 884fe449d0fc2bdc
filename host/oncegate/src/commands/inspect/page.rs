//! The page for people. Everything in it that the author wrote is cleaned.

use std::fmt::Write as _;

use oncegate_contract::{Contract, EffectClass, Field, Operation, Role, lint};
use oncegate_sandbox::describe::{Description, ToolDescription};
use serde_json::Value;

use super::changes::{Change, Way, does_more};
use super::{statements, words};
use crate::print::{Tone, clean, hex};

/// How deep the alternatives of an argument's schema are followed for one line.
const KINDS_DEPTH_MAX: usize = 4;

/// Writing into a string cannot fail.
macro_rules! put {
    ($text:expr, $($arg:tt)*) => {{ let _ = writeln!($text, "{}", clean(&format!($($arg)*))); }};
}

fn head(text: &mut String, title: &str) {
    let _ = writeln!(text, "\n{}", Tone::Head.paint(title));
}

/// One page about one component.
pub(super) fn text(description: &Description, signature: &str) -> String {
    let mut text = format!("{}\n", Tone::Head.paint(&clean(&description.name)));
    identity(&mut text, description, signature);
    head(&mut text, "Imports");
    for import in &description.imports {
        put!(text, "  {}: {}", import.name, import.meaning);
    }
    if description.imports.is_empty() {
        put!(text, "  none");
    }
    head(&mut text, "Tools");
    for found in &description.tools {
        tool(&mut text, found);
    }
    let contract = &description.contract;
    if !contract.operations.is_empty() {
        head(&mut text, "Operations");
        let acting = |operation: &&Operation| operation.effect == EffectClass::Keyed;
        let (acting, reading): (Vec<_>, Vec<_>) = contract.operations.values().partition(acting);
        for found in acting.into_iter().chain(reading) {
            operation(&mut text, contract, found);
        }
        head(&mut text, "Statements that the guarantee rests on");
        rests_on(&mut text, contract);
    }
    remarks(&mut text, contract);
    head(&mut text, "It cannot");
    for line in cannot(description) {
        put!(text, "  {line}");
    }
    text
}

fn identity(text: &mut String, description: &Description, signature: &str) {
    put!(text, "  digest     {}", description.digest_text());
    put!(text, "  signature  {signature}");
    put!(text, "  size       {} bytes", description.size);
    let class = match (description.has_contract, description.class) {
        (false, _) => "none, and no contract: it only computes",
        (true, EffectClass::None) => "none: it reads, and cannot cause an effect",
        (true, EffectClass::Keyed) => "keyed: it acts, each effect at most once for its key",
    };
    put!(text, "  effect     {class}");
    if description.has_contract {
        put!(text, "  contract   sha256:{}", hex(&description.contract.digest()));
    }
    if let Some(world) = &description.world {
        put!(text, "  world      {world}");
    }
    for (field, value) in &description.producers {
        put!(text, "  made with  {value} ({field}, on its own word)");
    }
}

fn tool(text: &mut String, tool: &ToolDescription) {
    let acts = match (tool.acts(), tool.operations.is_empty()) {
        (true, _) => format!("acts, at most {} per call", effects(tool.effects)),
        (false, false) => "reads only".to_owned(),
        (false, true) => "only computes".to_owned(),
    };
    put!(text, "  {}: {acts}", tool.name);
    put!(text, "      arguments   {}", arguments(&tool.input_schema));
    put!(
        text,
        "      operations  {}",
        if tool.operations.is_empty() { "none".to_owned() } else { tool.operations.join(", ") }
    );
    if let Some(first) = tool.description.as_deref().and_then(|words| words.lines().next()) {
        put!(text, "      tells the agent  {first}");
    }
}

/// The properties of a JSON Schema in a line: name, type, and whether it may be left out.
fn arguments(schema: &Value) -> String {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let said: Vec<String> = properties
        .map(|(name, property)| {
            let optional = if required.contains(&name.as_str()) { "" } else { ", optional" };
            format!("{name} ({}{optional})", kinds(property).join(" or "))
        })
        .collect();
    if said.is_empty() { "none".to_owned() } else { said.join(", ") }
}

/// The types that a schema allows, as far as a line can say.
fn kinds(schema: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    gather(schema, KINDS_DEPTH_MAX, &mut names);
    names.dedup();
    if names.is_empty() { vec!["one of several"] } else { names }
}

fn gather<'a>(schema: &'a Value, depth: usize, names: &mut Vec<&'a str>) {
    if schema.get("enum").is_some() {
        names.push("one of a list");
        return;
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.as_slice(),
        kind => std::slice::from_ref(kind),
    };
    names.extend(kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null"));
    let ways = ["anyOf", "oneOf"].iter().filter_map(|word| schema.get(*word)?.as_array()).flatten();
    for way in ways.filter(|_| depth > 0) {
        gather(way, depth - 1, names);
    }
}

fn effects(count: u32) -> String {
    format!("{count} effect{}", if count == 1 { "" } else { "s" })
}

fn operation(text: &mut String, contract: &Contract, operation: &Operation) {
    let kind = match (operation.effect, &operation.action) {
        (EffectClass::None, _) if !words::asked_for(contract, operation) => {
            let settled: Vec<&str> = words::settles(contract, operation).map(|settled| settled.name.as_str()).collect();
            format!(
                "looks up; run only by the host, to settle {}",
                if settled.is_empty() { "nothing".to_owned() } else { settled.join(", ") }
            )
        }
        (EffectClass::None, _) => "looks up".to_owned(),
        (EffectClass::Keyed, Some(action)) => format!("does \"{action}\""),
        (EffectClass::Keyed, None) => "acts".to_owned(),
    };
    put!(text, "  {}: {kind}", operation.name);
    let credential = words::credential(contract, operation)
        .map_or_else(|| "no credential".to_owned(), |name| format!("credential {name}"));
    put!(
        text,
        "      request     {} (endpoint {}, body {}, {credential})",
        words::request(contract, operation),
        operation.endpoint,
        operation.body.as_str()
    );
    if let Some(kind) = words::database(contract, operation) {
        put!(text, "      database    {}: {}", kind.name(), words::kept(kind));
        for (key, asked) in words::asked(operation) {
            put!(text, "      {key:<11} {}", asked.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    for role in [Role::Key, Role::Bound, Role::Generated, Role::Transport] {
        for found in words::of_role(operation, role) {
            field(text, contract, operation, found);
        }
    }
    if operation.effect == EffectClass::Keyed {
        keyed(text, operation);
    } else if !operation.found_when.is_empty() {
        put!(text, "      found when  {}", words::conditions(&operation.found_when));
    }
    if !operation.headers.is_empty() {
        put!(text, "      the guest sees the answer's headers {}", operation.headers.join(", "));
    }
}

fn field(text: &mut String, contract: &Contract, operation: &Operation, field: &Field) {
    let name = match (operation.effect, field.role) {
        (EffectClass::None, _) => "field",
        (_, Role::Key) => "key part",
        (_, Role::Bound) => "bound",
        (_, Role::Generated) => "generated",
        (_, Role::Transport) => "transport",
    };
    put!(
        text,
        "      {name:<11} {} at {}: {}; {}",
        field.name,
        words::place(field),
        words::source_of(contract, operation, field),
        words::limits(field).join(", ")
    );
}

fn keyed(text: &mut String, operation: &Operation) {
    if let Some(scope) = operation.repeat {
        put!(text, "      key part    sequence: from the orchestrator, counted within one {}", scope.as_str());
    }
    let receipt = operation.receipt.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    put!(text, "      receipt     at {receipt}");
    let reference =
        operation.reference.as_ref().map_or_else(|| "none".to_owned(), |place| format!("the host's, at {place}"));
    put!(text, "      reference   {reference}");
    let conditions = [
        ("done when", &operation.done_when),
        ("issued when", &operation.accepted_when),
        ("no effect", &operation.no_effect_when),
        ("duplicate", &operation.duplicate_when),
    ];
    for (name, found) in conditions {
        if !found.is_empty() {
            put!(text, "      {name:<11} {}", words::conditions(found));
        }
    }
    if !operation.status_is_proof.is_empty() {
        let codes: Vec<String> = operation.status_is_proof.iter().map(ToString::to_string).collect();
        put!(text, "      done when   the status alone is {}", codes.join(" or "));
    }
    put!(text, "      dedupe      {}", words::dedupe(operation));
    put!(text, "      settled     {}", words::settle(operation));
    let undo =
        operation.undone_by.as_ref().map_or_else(|| "irreversible".to_owned(), |name| format!("undone by {name}"));
    put!(text, "      afterwards  {undo}");
    for (word, said) in words::relations(operation) {
        put!(text, "      {word:<11} {said}");
    }
    if operation.ensure {
        put!(text, "      before      its settle lookup is run first; what it finds is not done again");
    }
}

fn rests_on(text: &mut String, contract: &Contract) {
    for statement in statements::table(contract) {
        let by = if statement.by == "contract" { "the author, in the contract" } else { "the operator, in the policy" };
        put!(text, "  {} (by {by})", statement.stated);
        for (of, says) in &statement.said {
            put!(text, "      {of}: {says}");
        }
        if statement.said.is_empty() {
            put!(text, "      not stated here");
        }
        put!(text, "      if it is false: {}", statement.if_false);
    }
    let unsettled = statements::unsettled(contract);
    if !unsettled.is_empty() {
        put!(text, "  After a lost answer only a person can say that it did not happen, for:");
        for (name, why) in unsettled {
            put!(text, "      {name}: {why}");
        }
    }
}

fn remarks(text: &mut String, contract: &Contract) {
    let lints = lint(contract);
    if !lints.is_empty() {
        head(text, "What a reviewer should ask about");
        for lint in lints {
            put!(text, "  {}: {} [{}]", lint.place, lint.message, lint.code);
        }
    }
}

/// What is impossible, whatever the code does.
pub(super) fn cannot(description: &Description) -> Vec<String> {
    let contract = &description.contract;
    let mut lines = vec![
        "open a connection, a file, an environment variable or another program".to_owned(),
        "see, choose or send a credential; the host attaches it last".to_owned(),
    ];
    if contract.operations.is_empty() {
        lines.push("ask for any request at all: no operation is declared".to_owned());
        return lines;
    }
    let urls: Vec<&str> = contract.endpoints.values().map(|endpoint| endpoint.url.as_str()).collect();
    lines.push(format!(
        "have anything sent but the operations above, to {} or where the policy binds their endpoints",
        urls.join(", ")
    ));
    lines.push("choose a method, host, account, header or member that is not declared above; the host writes the whole request".to_owned());
    lines.push("do any of it without a policy that grants it by name, for a tenant that the policy names".to_owned());
    if description.class == EffectClass::None {
        lines.push("cause an effect: the door to effects is not linked".to_owned());
        return lines;
    }
    for tool in &description.tools {
        lines.push(match tool.effects {
            0 => format!("cause an effect through {}", tool.name),
            count => format!("cause more than {} in one call of {}", effects(count), tool.name),
        });
    }
    lines.push(
        "cause a second effect for one key, unless a statement above is false or an operator decides so on record"
            .to_owned(),
    );
    lines
}

/// What changed between two versions; what widened first.
pub(super) fn comparison(old: &Description, new: &Description, changes: &[Change]) -> String {
    let mut text = String::new();
    put!(text, "old  {} {}", old.digest_text(), old.name);
    put!(text, "new  {} {}", new.digest_text(), new.name);
    for (way, title) in
        [(Way::More, "It can do more"), (Way::Less, "It can do less"), (Way::Other, "Otherwise changed")]
    {
        let found: Vec<&Change> = changes.iter().filter(|change| change.way == way).collect();
        if found.is_empty() {
            continue;
        }
        head(&mut text, title);
        for change in found {
            put!(text, "  {}: {}", change.at, change.what);
        }
    }
    let verdict = match (does_more(changes), changes.is_empty(), old.digest == new.digest) {
        (true, ..) => Tone::Bad.paint("the new version can do more than the old one"),
        (false, _, true) => Tone::Good.paint("they are the same component"),
        (false, true, false) => Tone::Good.paint("the code differs; it can do the same as before"),
        (false, false, false) => Tone::Good.paint("the new version can do no more than the old one"),
    };
    let _ = writeln!(text, "\n{verdict}");
    text
}
