//! What changed between two versions of a component, and what of that widens what it can do.
//!
//! Whatever is not plainly narrower counts as wider: a gate that says "no more than before" must
//! be right.

mod field;
mod operation;

use std::collections::BTreeSet;

use oncegate_contract::{Contract, EffectClass};
use oncegate_sandbox::describe::{Description, ToolDescription};

/// Which way a change goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It can do more, or the guarantee rests on more.
    More,
    /// It can do less.
    Less,
    /// Neither.
    Other,
}

impl Way {
    /// The word in JSON.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Less => "less",
            Self::Other => "other",
        }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// Which way it goes.
    pub(super) way: Way,
    /// The contract's key, or the part of the component.
    pub(super) at: String,
    /// What it was and what it is.
    pub(super) what: String,
}

/// Whether the new version can do more.
pub(super) fn does_more(changes: &[Change]) -> bool {
    changes.iter().any(|change| change.way == Way::More)
}

/// Every change from `old` to `new`.
pub(super) fn between(old: &Description, new: &Description) -> Vec<Change> {
    let mut log = Log::default();
    imports(&mut log, old, new);
    let by_name = |tools: &[ToolDescription]| tools.iter().map(|tool| tool.name.clone()).collect::<BTreeSet<_>>();
    log.names("tool", &by_name(&old.tools), &by_name(&new.tools));
    for new_tool in &new.tools {
        if let Some(old_tool) = old.tool(&new_tool.name) {
            tool(&mut log, old_tool, new_tool);
        }
    }
    contracts(&mut log, &old.contract, &new.contract);
    log.0
}

/// The changes found so far.
#[derive(Default)]
struct Log(Vec<Change>);

impl Log {
    fn add(&mut self, way: Way, at: impl Into<String>, what: impl Into<String>) {
        self.0.push(Change { way, at: at.into(), what: what.into() });
    }

    /// Names that came are more, names that went are less.
    fn names(&mut self, kind: &str, old: &BTreeSet<String>, new: &BTreeSet<String>) {
        for name in new.difference(old) {
            self.add(Way::More, format!("{kind} {name}"), "is new");
        }
        for name in old.difference(new) {
            self.add(Way::Less, format!("{kind} {name}"), "is gone");
        }
    }

    /// A text that is what it was, or else goes `way`.
    fn same(&mut self, way: Way, at: &str, old: &str, new: &str) {
        if old != new {
            self.add(way, at, was_is(old, new));
        }
    }
}

fn was_is(old: &str, new: &str) -> String {
    let named = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    format!("was {}, is {}", named(old), named(new))
}

/// Patch versions of an interface offer the same.
fn imports(log: &mut Log, old: &Description, new: &Description) {
    let names = |description: &Description| -> BTreeSet<String> {
        description.imports.iter().map(|import| without_patch(&import.name).to_owned()).collect()
    };
    log.names("import", &names(old), &names(new));
}

fn without_patch(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((front, patch)) if name.contains('@') && patch.bytes().all(|byte| byte.is_ascii_digit()) => front,
        _ => name,
    }
}

fn tool(log: &mut Log, old: &ToolDescription, new: &ToolDescription) {
    let at = |key: &str| format!("tool.{}.{key}", new.name);
    if old.effects != new.effects {
        let way = if new.effects > old.effects { Way::More } else { Way::Less };
        log.add(way, at("effects"), format!("was {} per call, is {}", old.effects, new.effects));
    }
    let set = |operations: &[String]| operations.iter().cloned().collect::<BTreeSet<_>>();
    log.names(&at("operations:"), &set(&old.operations), &set(&new.operations));
    log.same(Way::Other, &at("signature"), &old.signature(), &new.signature());
    if old.description != new.description {
        log.add(Way::Other, at("description"), "what it tells the agent is other text");
    }
    if old.input_schema != new.input_schema && old.signature() == new.signature() {
        log.add(Way::Other, at("arguments"), "what the agent is told of them is other text");
    }
}

fn contracts(log: &mut Log, old: &Contract, new: &Contract) {
    let acts = new.operations.values().any(|operation| operation.effect == EffectClass::Keyed);
    if old.component.name != new.component.name {
        let way = if acts { Way::More } else { Way::Other };
        let what = was_is(&old.component.name, &new.component.name);
        log.add(
            way,
            "component.name",
            format!("{what}; it is part of every key, so effects done under the old name are not recognised"),
        );
    }
    match (old.component.effect, new.component.effect) {
        (EffectClass::None, EffectClass::Keyed) => {
            log.add(Way::More, "component.effect", "was none, is keyed: it can act now")
        }
        (EffectClass::Keyed, EffectClass::None) => log.add(Way::Less, "component.effect", "was keyed, is none"),
        _ => {}
    }
    endpoints(log, old, new);
    log.names("operation", &old.operations.keys().cloned().collect(), &new.operations.keys().cloned().collect());
    for (name, new) in &new.operations {
        if let Some(old) = old.operations.get(name) {
            operation::compare(log, old, new);
        }
    }
}

fn endpoints(log: &mut Log, old: &Contract, new: &Contract) {
    for (name, endpoint) in &new.endpoints {
        let at = |key: &str| format!("endpoint.{name}{key}");
        let Some(before) = old.endpoints.get(name) else {
            log.add(Way::More, at(""), format!("is new, at {}", endpoint.url));
            continue;
        };
        log.same(Way::More, &at(".url"), &before.url, &endpoint.url);
        let credential = |endpoint: &oncegate_contract::Endpoint| endpoint.credential.clone().unwrap_or_default();
        let way = if endpoint.credential.is_none() { Way::Less } else { Way::More };
        log.same(way, &at(".credential"), &credential(before), &credential(endpoint));
    }
    for (name, endpoint) in old.endpoints.iter().filter(|(name, _)| !new.endpoints.contains_key(*name)) {
        log.add(Way::Less, format!("endpoint.{name}"), format!("is gone; it was at {}", endpoint.url));
    }
}

#[cfg(test)]
mod tests;
