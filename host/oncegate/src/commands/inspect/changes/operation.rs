//! Changes of one operation: its request, its key, and what it states about its provider.

use std::collections::{BTreeMap, BTreeSet};

use oncegate_contract::{
    Condition, Conditions, Dedupe, DedupeScope, EffectClass, Operation, Settle, former_recipes, recipe,
};

use super::{Log, Way, field, was_is};
use crate::commands::inspect::words;

pub(super) fn compare(log: &mut Log, old: &Operation, new: &Operation) {
    let at = |key: &str| format!("operation.{}.{key}", new.name);
    let class = |operation: &Operation| words::class(operation.effect);
    if old.effect != new.effect {
        let why = match new.effect {
            EffectClass::Keyed => "it can act now",
            EffectClass::None => "repeats are sent without asking the ledger",
        };
        log.add(Way::More, at("effect"), format!("{}: {why}", was_is(class(old), class(new))));
    }
    request(log, old, new);
    if old.effect == EffectClass::Keyed && new.effect == EffectClass::Keyed {
        key(log, old, new);
        provider(log, old, new);
        settles(log, old, new);
        relations(log, old, new);
    }
    field::compare(log, old, new);
    answers(log, old, new);
}

fn request(log: &mut Log, old: &Operation, new: &Operation) {
    let at = |key: &str| format!("operation.{}.{key}", new.name);
    let line = |operation: &Operation| format!("{} {}:{}", operation.method, operation.endpoint, operation.path.text);
    log.same(Way::More, &at("request"), &line(old), &line(new));
    log.same(Way::More, &at("body"), old.body.as_str(), new.body.as_str());
    let asked = |operation: &Operation| words::asked(operation).into_iter().collect::<BTreeMap<_, _>>();
    let (before, now) = (asked(old), asked(new));
    let keys: BTreeSet<&str> = before.keys().chain(now.keys()).copied().collect();
    for key in keys {
        let said = |found: &BTreeMap<&str, String>| found.get(key).cloned().unwrap_or_default();
        log.same(Way::More, &at(key), &said(&before), &said(&now));
    }
}

fn key(log: &mut Log, old: &Operation, new: &Operation) {
    let at = |key: &str| format!("operation.{}.{key}", new.name);
    if recipe(old) != recipe(new) && former_recipes(new).contains(&recipe(old)) {
        let what =
            "is made in another way; the old one is listed under \"was\", so what was done under it is recognised";
        log.add(Way::Other, at("key"), what);
    } else if recipe(old) != recipe(new) {
        log.add(
            Way::More,
            at("key"),
            "is made in another way, so effects done under the old key may not be recognised and could be done again",
        );
    }
    let action = |operation: &Operation| operation.action.clone().unwrap_or_default();
    log.same(Way::Other, &at("action"), &action(old), &action(new));
    let scope = |operation: &Operation| operation.repeat.map(|scope| scope.as_str()).unwrap_or_default();
    let way = if new.repeat.is_some() { Way::More } else { Way::Less };
    log.same(way, &at("repeat"), scope(old), scope(new));
    for former in old.was.iter().filter(|former| !new.was.contains(former)) {
        log.add(Way::More, at("was"), format!("the earlier key of {} is no longer answered for", former.action));
    }
    for former in new.was.iter().filter(|former| !old.was.contains(former)) {
        log.add(Way::Other, at("was"), format!("an earlier key of {} is answered for", former.action));
    }
}

fn provider(log: &mut Log, old: &Operation, new: &Operation) {
    let at = |key: &str| format!("operation.{}.provider.{key}", new.name);
    let trust = |dedupe: Dedupe| match dedupe {
        Dedupe::None => 0,
        Dedupe::Key => 1,
        Dedupe::KeyAndBody => 2,
    };
    let (before, now) = (&old.provider, &new.provider);
    let what = was_is(&words::dedupe(old), &words::dedupe(new));
    if before.dedupe != now.dedupe {
        let way = if trust(now.dedupe) > trust(before.dedupe) { Way::More } else { Way::Less };
        log.add(way, at("dedupe"), what);
        return;
    }
    if before.at != now.at {
        log.add(Way::More, at("dedupe-at"), what.clone());
    }
    if before.window != now.window {
        let way = if now.window > before.window { Way::More } else { Way::Less };
        log.add(way, at("dedupe-window"), what.clone());
    }
    if before.scope != now.scope {
        let way = if now.scope == DedupeScope::Account { Way::More } else { Way::Less };
        log.add(way, at("dedupe-scope"), what);
    }
}

fn settles(log: &mut Log, old: &Operation, new: &Operation) {
    let at = |key: &str| format!("operation.{}.{key}", new.name);
    match (&old.settle, &new.settle) {
        (None, None) => {}
        (None, Some(settle)) => {
            let way = if settle.absent_after.is_some() { Way::More } else { Way::Other };
            log.add(way, at("settle"), format!("is new: {}", words::settle(new)));
        }
        (Some(_), None) => {
            log.add(Way::Less, at("settle"), "is gone: after a lost answer only a person can say whether it happened")
        }
        (Some(before), Some(now)) => settle(log, &at("settle"), before, now),
    }
    let place = |operation: &Operation| operation.reference.as_ref().map(ToString::to_string).unwrap_or_default();
    let way = if old.reference.is_none() { Way::Less } else { Way::More };
    log.same(way, &at("reference"), &place(old), &place(new));
}

fn settle(log: &mut Log, at: &str, old: &Settle, new: &Settle) {
    let finds = |s: &Settle| {
        (
            s.operation.clone(),
            s.with.clone(),
            s.each.clone(),
            s.receipt.clone(),
            s.matching.clone(),
            s.reference.clone(),
        )
    };
    if finds(old) != finds(new) {
        log.add(Way::More, at, "what counts as finding the effect is another thing");
    }
    for (name, place) in &old.must_equal {
        if new.must_equal.get(name) != Some(place) {
            log.add(Way::More, format!("{at}.must-equal"), format!("{name} need not agree at {place} any more"));
        }
    }
    for (name, place) in &new.must_equal {
        if old.must_equal.get(name) != Some(place) {
            log.add(Way::Less, format!("{at}.must-equal"), format!("{name} must agree at {place}"));
        }
    }
    let after = |settle: &Settle| settle.absent_after.map(words::duration).unwrap_or_default();
    let looser = match (old.absent_after, new.absent_after) {
        (None, Some(_)) => true,
        (Some(old), Some(new)) => new < old,
        (_, None) => false,
    };
    log.same(if looser { Way::More } else { Way::Less }, &format!("{at}.absent-after"), &after(old), &after(new));
}

fn relations(log: &mut Log, old: &Operation, new: &Operation) {
    let at = |key: &str| format!("operation.{}.{key}", new.name);
    if old.undone_by != new.undone_by {
        let undo = |operation: &Operation| operation.undone_by.clone().unwrap_or_default();
        // The receipt of an effect that can be undone is not confirmed by a lookup.
        let way = if new.undone_by.is_some() { Way::More } else { Way::Less };
        log.add(way, at("undone-by"), was_is(&undo(old), &undo(new)));
    }
    if old.revokes != new.revokes {
        let way = if new.revokes.is_some() { Way::More } else { Way::Less };
        let of = |operation: &Operation| {
            operation.revokes.as_ref().map(|r| format!("{} by {}", r.operation, r.at)).unwrap_or_default()
        };
        log.add(way, at("revokes"), was_is(&of(old), &of(new)));
    }
    if (&old.completes, old.complete_within) != (&new.completes, new.complete_within) {
        let way = if new.completes.is_some() { Way::More } else { Way::Less };
        let of = |operation: &Operation| {
            let within = operation.complete_within.map(words::duration).map(|within| format!(" within {within}"));
            format!("{}{}", operation.completes.clone().unwrap_or_default(), within.unwrap_or_default())
        };
        log.add(way, at("completes"), was_is(&of(old), &of(new)));
    }
    match (old.ensure, new.ensure) {
        (true, false) => log.add(Way::More, at("ensure"), "its lookup is no longer run before it is done"),
        (false, true) => log.add(Way::Less, at("ensure"), "its lookup is run before it is done"),
        _ => {}
    }
}

/// What is made of the provider's answer, and what the guest sees of it.
fn answers(log: &mut Log, old: &Operation, new: &Operation) {
    let at = |key: &str| format!("operation.{}.{key}", new.name);
    let receipt = |operation: &Operation| operation.receipt.as_ref().map(ToString::to_string).unwrap_or_default();
    log.same(Way::More, &at("receipt"), &receipt(old), &receipt(new));
    conditions(log, &at("no-effect-when"), &old.no_effect_when, &new.no_effect_when);
    conditions(log, &at("accepted-when"), &old.accepted_when, &new.accepted_when);
    conditions(log, &at("duplicate-when"), &old.duplicate_when, &new.duplicate_when);
    defaulted(log, &at("done-when"), &old.done_when, &new.done_when);
    defaulted(log, &at("found-when"), &old.found_when, &new.found_when);
    listed(log, &at("status-is-proof"), &old.status_is_proof, &new.status_is_proof);
    listed(log, &at("headers"), &old.headers, &new.headers);
}

fn listed<T: PartialEq + ToString>(log: &mut Log, at: &str, old: &[T], new: &[T]) {
    for value in new.iter().filter(|value| !old.contains(value)) {
        log.add(Way::More, at, format!("{} is new", value.to_string()));
    }
    for value in old.iter().filter(|value| !new.contains(value)) {
        log.add(Way::Less, at, format!("{} is gone", value.to_string()));
    }
}

/// Any of them suffices, so one more accepts more.
fn conditions(log: &mut Log, at: &str, old: &Conditions, new: &Conditions) {
    let said = |condition: &Condition| words::condition(condition);
    for condition in new.iter().filter(|condition| !old.contains(condition)) {
        log.add(Way::More, at, format!("{} is believed now", said(condition)));
    }
    for condition in old.iter().filter(|condition| !new.contains(condition)) {
        log.add(Way::Less, at, format!("{} is no longer believed", said(condition)));
    }
}

/// None means any 2xx, which accepts more than a list does.
fn defaulted(log: &mut Log, at: &str, old: &Conditions, new: &Conditions) {
    match (old.is_empty(), new.is_empty()) {
        (false, true) => log.add(Way::More, at, format!("was {}, is any 2xx", words::conditions(old))),
        (true, false) => log.add(Way::Less, at, format!("was any 2xx, is {}", words::conditions(new))),
        _ => conditions(log, at, old, new),
    }
}
