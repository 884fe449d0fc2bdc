//! Changes of an operation's fields: what may be sent, who decides it, and what is compared.

use oncegate_contract::{EffectClass, Field, Operation, Role, Rule, Source, ValueKind};

use super::{Log, Way, was_is};
use crate::commands::inspect::words;

pub(super) fn compare(log: &mut Log, old: &Operation, new: &Operation) {
    let at = |field: &Field, key: &str| format!("operation.{}.fields.{}{key}", new.name, field.name);
    for field in &new.fields {
        match old.field(&field.name) {
            None => log.add(
                Way::More,
                at(field, ""),
                format!("is new: {} at {}, {}", field.role.as_str(), words::place(field), words::source(&field.source)),
            ),
            Some(before) => one(log, new.effect, &|key| at(field, key), before, field),
        }
    }
    for field in old.fields.iter().filter(|field| new.field(&field.name).is_none()) {
        let (way, what) = gone(old, field);
        log.add(way, at(field, ""), what);
    }
    let order = |operation: &Operation| operation.fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
    let (mut before, mut now) = (order(old), order(new));
    before.retain(|name| now.contains(name));
    now.retain(|name| before.contains(name));
    if before != now {
        log.add(Way::Other, format!("operation.{}.fields", new.name), "are written in another order");
    }
}

/// What the absence of a field allows.
fn gone(operation: &Operation, field: &Field) -> (Way, &'static str) {
    match (&field.source, field.role) {
        (Source::Const(_), _) => (Way::More, "is gone: the constant that it sent no longer holds the request to it"),
        (_, Role::Generated) => (Way::Less, "is gone"),
        _ if operation.effect == EffectClass::None => (Way::More, "is gone: the lookup is no longer narrowed by it"),
        _ => (Way::More, "is gone: it is no longer sent, nor compared with what was done"),
    }
}

fn one(log: &mut Log, class: EffectClass, at: &dyn Fn(&str) -> String, old: &Field, new: &Field) {
    log.same(Way::More, &at(".at"), &words::place(old), &words::place(new));
    if old.role != new.role {
        let compared = |role: Role| matches!(role, Role::Key | Role::Bound);
        let way = if compared(new.role) && !compared(old.role) { Way::Less } else { Way::More };
        log.add(way, at(".role"), was_is(old.role.as_str(), new.role.as_str()));
    }
    if old.kind != new.kind {
        log.add(kinds(old.kind, new.kind), at(".type"), was_is(old.kind.as_str(), new.kind.as_str()));
    }
    if old.source != new.source {
        let (way, word) = sources(&old.source, &new.source);
        log.add(
            way,
            at(".from"),
            format!("{word}: {}", was_is(&words::source(&old.source), &words::source(&new.source))),
        );
    }
    if old.rule != new.rule {
        let way = if new.rule == Rule::Equal { Way::Less } else { Way::More };
        let said = |rule: Rule| words::rule(rule).unwrap_or("it must be equal");
        log.add(way, at(".rule"), was_is(said(old.rule), said(new.rule)));
    }
    bounds(log, at, old, new);
    let form = |field: &Field| words::normal_form(field).unwrap_or_default();
    let compared = class == EffectClass::Keyed && new.role != Role::Generated;
    log.same(if compared { Way::More } else { Way::Other }, &at(".normalize"), &form(old), &form(new));
    flags(log, at, old, new);
}

/// Numbers and truth values can say less than texts.
const fn kinds(old: ValueKind, new: ValueKind) -> Way {
    match (old, new) {
        (
            ValueKind::Text | ValueKind::Json | ValueKind::Bytes,
            ValueKind::Integer | ValueKind::Decimal | ValueKind::Boolean,
        ) => Way::Less,
        _ => Way::More,
    }
}

/// Whether a model or a guest can choose more than before.
fn sources(old: &Source, new: &Source) -> (Way, &'static str) {
    let chosen = matches!(old, Source::Guest | Source::Argument(_) | Source::Content(_));
    match (words::strength(old), words::strength(new)) {
        _ if matches!(new, Source::Const(_)) && !chosen => (Way::More, "the author writes it now"),
        (before, now) if now < before => (Way::More, "a weaker source"),
        (before, now) if now > before => (Way::Less, "a stronger source"),
        _ => (Way::More, "another source"),
    }
}

fn bounds(log: &mut Log, at: &dyn Fn(&str) -> String, old: &Field, new: &Field) {
    let said = |bound: Option<i64>| bound.map(|bound| bound.to_string()).unwrap_or_default();
    let looser_max = match (old.max, new.max) {
        (Some(_), None) => true,
        (Some(old), Some(new)) => new > old,
        (None, _) => false,
    };
    let looser_min = match (old.min, new.min) {
        (Some(_), None) => true,
        (Some(old), Some(new)) => new < old,
        (None, _) => false,
    };
    let way = |looser| if looser { Way::More } else { Way::Less };
    log.same(way(looser_max), &at(".max"), &said(old.max), &said(new.max));
    log.same(way(looser_min), &at(".min"), &said(old.min), &said(new.min));
}

fn flags(log: &mut Log, at: &dyn Fn(&str) -> String, old: &Field, new: &Field) {
    match (old.optional, new.optional) {
        (false, true) => log.add(Way::More, at(".optional"), "it may be left out now"),
        (true, false) => log.add(Way::Less, at(".optional"), "it must be there now"),
        _ => {}
    }
    match (old.pin, new.pin) {
        (true, false) => log.add(Way::More, at(".pin"), "it no longer keeps its first value"),
        (false, true) => log.add(Way::Less, at(".pin"), "it keeps its first value"),
        _ => {}
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    log.same(Way::Other, &at(".media-type"), &text(&old.media_type), &text(&new.media_type));
    log.same(Way::Other, &at(".filename"), &text(&old.filename), &text(&new.filename));
}
