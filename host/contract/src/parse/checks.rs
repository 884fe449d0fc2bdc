//! Rules between the parts of a contract. What breaks one can never be sent, so it is an error here.

mod field;
mod query;
mod relations;
mod settle;

use std::collections::{BTreeMap, BTreeSet};

use super::Parts;
use super::reader::Source as Text;
use crate::condition::StatusMatch;
use crate::field::{Role, Source};
use crate::operation::{BodyKind, Dedupe, EffectClass, Operation};
use crate::place::Place;

/// Checks everything; errors are left in the source.
pub(super) fn check(text: &Text<'_>, parts: &Parts) {
    for (name, operation) in &parts.operations {
        let path = format!("operation.{name}");
        let partial = text.is_partial(&format!("{path}.fields"));
        let at = At { text, path, operation, parts, partial };
        at.class();
        at.request();
        at.query();
        at.places();
        for (i, field) in operation.fields.iter().enumerate() {
            at.field(i, field);
        }
        at.references();
        at.completes();
        at.undoes();
        at.settle();
        at.former();
    }
    for (name, tool) in &parts.tools {
        for (i, operation) in tool.operations.iter().enumerate() {
            if !parts.operations.contains_key(operation) && !parts.broken.contains(operation) {
                text.error_at(
                    &format!("tool.{name}.operations[{i}]"),
                    format!("there is no operation \"{operation}\""),
                );
            }
        }
        relations::tool(text, parts, name, tool);
    }
}

struct At<'a> {
    text: &'a Text<'a>,
    path: String,
    operation: &'a Operation,
    parts: &'a Parts,
    /// Some fields could not be read, so nothing is said about absent ones.
    partial: bool,
}

impl At<'_> {
    fn error(&self, key: &str, message: impl Into<String>) {
        let path = if key.is_empty() { self.path.clone() } else { format!("{}.{key}", self.path) };
        self.text.error_at(&path, message);
    }

    fn written(&self, key: &str) -> bool {
        self.text.has(&format!("{}.{key}", self.path))
    }

    fn keyed(&self) -> bool {
        self.operation.effect == EffectClass::Keyed
    }

    fn class(&self) {
        let op = self.operation;
        if !self.keyed() {
            return self.class_none();
        }
        if self.parts.component.as_ref().is_some_and(|c| c.effect == EffectClass::None) {
            self.error("effect", "the component says effect = \"none\", so no operation of it may be keyed");
        }
        if op.action.is_none() && !self.written("action") {
            self.error("", "a keyed operation needs \"action\": one word that says what happens");
        }
        let told = self.written("receipt") || self.written("status-is-proof");
        if !told {
            self.error("", "a keyed operation needs \"receipt\": where the answer has the provider's identifier");
        }
        let keys = op.fields.iter().filter(|f| f.role == Role::Key).count();
        if keys == 0 && op.repeat.is_none() && !self.partial {
            self.error("", "a keyed operation needs at least one field with role = \"key\"");
        }
        if !op.found_when.is_empty() {
            self.error("found-when", "\"found-when\" belongs to operations with effect = \"none\"");
        }
        self.proofs();
    }

    fn class_none(&self) {
        let op = self.operation;
        let misplaced = [
            ("action", op.action.is_some()),
            ("reference", op.reference.is_some()),
            ("done-when", !op.done_when.is_empty()),
            ("accepted-when", !op.accepted_when.is_empty()),
            ("no-effect-when", !op.no_effect_when.is_empty()),
            ("duplicate-when", !op.duplicate_when.is_empty()),
            ("status-is-proof", !op.status_is_proof.is_empty()),
            ("provider.dedupe", op.provider.dedupe != Dedupe::None),
            ("provider.dedupe-at", op.provider.at.is_some()),
            ("settle", op.settle.is_some()),
            ("undone-by", op.undone_by.is_some()),
            ("revokes", op.revokes.is_some()),
            ("repeat", op.repeat.is_some()),
            ("completes", op.completes.is_some()),
            ("complete-within", op.complete_within.is_some()),
            ("ensure", op.ensure),
            ("was", !op.was.is_empty()),
        ];
        for (key, _) in misplaced.iter().filter(|(_, present)| *present) {
            self.error(key, "an operation with effect = \"none\" has no effect to say this about");
        }
        for (i, condition) in op.found_when.iter().enumerate() {
            let success = |s: &StatusMatch| matches!(s, StatusMatch::Code(200..=299) | StatusMatch::Class(2));
            if !condition.status.iter().all(success) {
                self.error("found-when", format!("condition {i}: only a 2xx answer can be found"));
            }
        }
    }

    /// A proof that also matches success proves nothing.
    fn proofs(&self) {
        for condition in &self.operation.no_effect_when {
            if condition.status.is_empty() {
                self.error("no-effect-when", "proof that nothing happened names its \"status\"");
            }
            let success = |s: &StatusMatch| matches!(s, StatusMatch::Code(200..=299) | StatusMatch::Class(2));
            if condition.test.is_none() && condition.status.iter().any(success) {
                self.error(
                    "no-effect-when",
                    "a 2xx status alone is no proof that nothing happened; add \"at\" and \"equals\"",
                );
            }
            if condition.test.is_none() && condition.status.contains(&StatusMatch::Class(5)) {
                self.error(
                    "no-effect-when",
                    "\"5xx\" is no proof: the provider may have finished first; list exact statuses",
                );
            }
        }
    }

    fn request(&self) {
        let op = self.operation;
        if !self.parts.endpoints.contains_key(&op.endpoint) && !self.parts.broken.contains(&op.endpoint) {
            self.error("request", format!("there is no [endpoint.{}]", op.endpoint));
        }
        if op.body != BodyKind::None && matches!(op.method.as_str(), "GET" | "HEAD") {
            self.error("body", format!("{} has no body", op.method));
        }
        let placeholders = op.path.placeholders();
        let distinct: BTreeSet<_> = placeholders.iter().collect();
        if distinct.len() != placeholders.len() {
            self.error("request", "a placeholder stands twice in the path");
        }
        for name in distinct {
            let place = Place::Path((*name).to_owned());
            if !self.partial && !op.fields.iter().any(|f| f.at.as_ref() == Some(&place)) {
                self.error("request", format!("no field is at = \"path:{name}\""));
            }
        }
        let bodies = op.fields.iter().filter(|f| f.at == Some(Place::Body)).count();
        if op.body == BodyKind::Bytes && bodies != 1 && !self.partial {
            self.error("body", "body = \"bytes\" needs exactly one field at = \"body\"");
        }
    }

    /// All places of the request, the host's own included: none twice, none inside another.
    fn places(&self) {
        let op = self.operation;
        let mut taken: Vec<(String, Place)> = Vec::new();
        let constants = op.path.query.iter().map(|(name, _)| ("request".to_owned(), Place::Query(name.clone())));
        let fields = op.fields.iter().enumerate();
        let fields = fields.filter_map(|(i, f)| Some((format!("fields[{i}].at"), f.at.clone()?)));
        let reference = op.reference.iter().map(|p| ("reference".to_owned(), p.clone()));
        let dedupe = op.provider.at.iter().filter(|p| op.reference.as_ref() != Some(*p));
        let dedupe = dedupe.map(|p| ("provider.dedupe-at".to_owned(), p.clone()));
        for (key, place) in constants.chain(fields).chain(reference).chain(dedupe) {
            if let Some((other, _)) = taken.iter().find(|(_, t)| clash(t, &place)) {
                self.error(&key, format!("\"{place}\" is written twice: see {}.{other}", self.path));
            }
            self.fits_body(&key, &place);
            taken.push((key, place));
        }
        for (key, place) in [("reference", &op.reference), ("provider.dedupe-at", &op.provider.at)] {
            if matches!(place, Some(Place::Path(_) | Place::Body)) {
                self.error(key, "the host's key is written to a query, header, form, json or part place");
            }
        }
    }

    fn fits_body(&self, key: &str, place: &Place) {
        let op = self.operation;
        let (wanted, fits) = match place {
            Place::Form(_) => ("form", op.body == BodyKind::Form),
            Place::Json(_) => ("json", op.body == BodyKind::Json),
            Place::Part(_) => ("multipart", op.body == BodyKind::Multipart),
            Place::Body => ("bytes", op.body == BodyKind::Bytes),
            Place::Path(name) if !op.path.placeholders().contains(&name.as_str()) => {
                return self.error(key, format!("the request has no placeholder {{{name}}}"));
            }
            Place::Path(_) | Place::Query(_) | Place::Header(_) | Place::Bind(_) => return,
        };
        if !fits {
            let body = op.body.as_str();
            self.error(key, format!("\"{place}\" needs body = \"{wanted}\"; this operation has body = \"{body}\""));
        }
    }

    fn references(&self) {
        let op = self.operation;
        let terms = &op.provider;
        let at = terms.at.is_some();
        if (terms.dedupe != Dedupe::None) != at {
            self.error("provider", "\"dedupe\" and \"dedupe-at\" go together: where does the provider read the key?");
        }
        if terms.window.is_some() && !at {
            self.error("provider.dedupe-window", "a window needs \"dedupe\" and \"dedupe-at\"");
        }
        if op.ensure && op.settle.is_none() {
            self.error("ensure", "\"ensure\" runs the settle lookup first: declare \"settle\"");
        }
        if !op.accepted_when.is_empty() && op.settle.is_none() && op.completed_by.is_none() {
            self.error(
                "accepted-when",
                "what is not final is settled by a lookup or by an operation that completes it: declare \"settle\", \
                 or another operation with \"completes\"",
            );
        }
    }

    fn former(&self) {
        for (i, recipe) in self.operation.was.iter().enumerate() {
            let mut names = BTreeMap::new();
            for (j, field) in recipe.fields.iter().enumerate() {
                let key = format!("was[{i}].fields[{j}]");
                if field.role != Role::Key || matches!(field.source, Source::Guest | Source::Const(_)) {
                    self.error(&key, "an earlier recipe lists its key parts, each with role = \"key\" and a source");
                }
                if names.insert(&field.name, j).is_some() {
                    self.error(&key, "this name stands twice");
                }
            }
        }
    }
}

/// Whether two places would write the same member, or one inside the other.
fn clash(a: &Place, b: &Place) -> bool {
    match (a, b) {
        (Place::Json(_), Place::Json(_)) | (Place::Form(_), Place::Form(_)) => match (a.mirrored(), b.mirrored()) {
            (Some(x), Some(y)) => x.segments().iter().zip(y.segments()).all(|(x, y)| x == y),
            _ => a == b,
        },
        (Place::Header(a), Place::Header(b)) => a.replace('_', "-") == b.replace('_', "-"),
        _ => a == b,
    }
}
