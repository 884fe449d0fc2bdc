//! Rules about one field: what may be a key, where values come from, which normalisers go with it.

use super::At;
use crate::field::{Currency, Field, Role, Rule, Source, ValueKind};
use crate::normalize::Normalizer;
use crate::operation::EffectClass;
use crate::place::Place;

impl At<'_> {
    /// One field by itself, and against the rest of its operation.
    pub(super) fn field(&self, i: usize, field: &Field) {
        let op = self.operation;
        let key = |name: &str| format!("fields[{i}]{name}");
        if op.fields.iter().take(i).any(|other| other.name == field.name) {
            self.error(&key(".name"), format!("there are two fields \"{}\"", field.name));
        }
        if field.at.is_none() && field.role != Role::Key {
            self.error(&key(""), "a field that is not sent (no \"at\") is only of use with role = \"key\"");
        }
        if let Some(Place::Header(name)) = &field.at
            && name.replace('_', "-").contains("idempotency-key")
        {
            self.error(&key(".at"), "the host writes idempotency keys: use provider.dedupe-at");
        }
        if field.optional && (field.role == Role::Key || matches!(field.at, Some(Place::Path(_) | Place::Body))) {
            self.error(&key(".optional"), "a key part, a path placeholder or a whole body is never absent");
        }
        if matches!((field.min, field.max), (Some(min), Some(max)) if min > max) {
            self.error(&key(".min"), "\"min\" is above \"max\"");
        }
        self.kind(&key, field);
        self.role(&key, field);
        self.source(&key, field);
        self.normalizers(&key, field);
    }

    fn kind(&self, key: &dyn Fn(&str) -> String, field: &Field) {
        let text_place = matches!(field.at, Some(Place::Path(_) | Place::Query(_) | Place::Header(_) | Place::Form(_)));
        if field.kind == ValueKind::Bytes && text_place {
            self.error(&key(".type"), "bytes go to a part, a whole body or a JSON member (as base64)");
        }
        if field.kind == ValueKind::Json && matches!(field.at, Some(Place::Path(_) | Place::Header(_))) {
            self.error(&key(".type"), "a JSON document does not go to a path or a header");
        }
        let many = matches!(field.at, Some(Place::Part(_) | Place::Body));
        if !many && (field.media_type.is_some() || field.filename.is_some()) {
            self.error(&key(""), "\"media-type\" and \"filename\" go with a part or a whole body");
        }
        if matches!(field.kind, ValueKind::Boolean | ValueKind::Json) && (field.min.is_some() || field.max.is_some()) {
            self.error(&key(""), format!("\"min\" and \"max\" say nothing about type = \"{}\"", field.kind.as_str()));
        }
    }

    fn role(&self, key: &dyn Fn(&str) -> String, field: &Field) {
        if field.role == Role::Transport && !matches!(field.source, Source::Const(_)) {
            self.error(&key(".role"), "a transport field is a constant: from = \"const\" with \"value\"");
        }
        if field.role != Role::Key {
            if field.pin {
                self.error(&key(".pin"), "\"pin\" goes with role = \"key\"");
            }
            return;
        }
        if !self.keyed() {
            return;
        }
        match &field.source {
            Source::Guest => self.error(
                &key(""),
                "a key part needs a source; the guest's word would be a key that the model can mint: give \"from\"",
            ),
            Source::Const(_) => self.error(&key(".from"), "a constant does not tell one effect from another"),
            _ => {}
        }
        if matches!(field.kind, ValueKind::Json) {
            self.error(&key(".type"), "a JSON document is not an identifier: it never enters a key");
        }
        if field.at.as_ref().is_some_and(Place::in_array) {
            self.error(&key(".at"), "one request is one effect: no key part inside an array");
        }
    }

    fn source(&self, key: &dyn Fn(&str) -> String, field: &Field) {
        if let Source::Lookup { operation, .. } = &field.source {
            match self.parts.operations.get(operation) {
                None if self.parts.broken.contains(operation) => {}
                None => self.error(&key(".from"), format!("there is no operation \"{operation}\"")),
                // Its own answer is all that tells how to complete it.
                Some(_) if self.operation.completes.as_ref() == Some(operation) => {}
                Some(lookup) if lookup.effect != EffectClass::None => {
                    self.error(
                        &key(".from"),
                        format!(
                            "\"{operation}\" is no lookup: it has an effect, and this operation does not complete it"
                        ),
                    );
                }
                Some(_) => {}
            }
            if !self.keyed() && *operation == self.operation.name {
                self.error(&key(".from"), "a lookup cannot be resolved from itself");
            }
        }
        let sourced = matches!(field.source, Source::Argument(_) | Source::Lookup { .. });
        if field.rule != Rule::Equal && !sourced {
            self.error(&key(".rule"), "\"rule\" compares with from = \"lookup:…\" or \"argument:…\"");
        }
        let number = matches!(field.kind, ValueKind::Integer | ValueKind::Decimal);
        if field.rule == Rule::AtMost && (!number || field.role == Role::Key) {
            self.error(
                &key(".rule"),
                "\"at-most\" is for numbers (type = \"integer\" or \"decimal\") that are not key parts",
            );
        }
    }

    fn normalizers(&self, key: &dyn Fn(&str) -> String, field: &Field) {
        let money = field.normalize.contains(&Normalizer::Money);
        if money != field.currency.is_some() {
            self.error(
                &key(".normalize"),
                "\"money\" and \"currency\" go together: currency = \"USD\" or \"field:NAME\"",
            );
        }
        if let Some(Currency::Field(name)) = &field.currency {
            match self.operation.field(name) {
                None if self.partial => {}
                Some(other) if other.currency.is_none() && other.kind == ValueKind::Text && !other.optional => {}
                _ => self.error(&key(".currency"), format!("\"{name}\" is not a text field of this operation")),
            }
        }
        if field.normalize.len() > 4 {
            self.error(&key(".normalize"), "more than four normalisers");
        }
        for normalizer in &field.normalize {
            if !normalizer.accepts(field.kind) {
                let (name, kind) = (normalizer.name(), field.kind.as_str());
                self.error(&key(".normalize"), format!("\"{name}\" does not go with type = \"{kind}\""));
            }
        }
        let last = field.normalize.len().saturating_sub(1);
        if field.normalize.iter().take(last).any(|n| !n.is_textual()) {
            self.error(&key(".normalize"), "only trim, lower, upper and nfc may stand before another normaliser");
        }
    }
}
