//! Rules about settling: a lookup that could never find the effect would settle nothing.

use super::At;
use crate::field::{Role, Source};
use crate::operation::{EffectClass, Operation, Settle};
use crate::place::Place;

impl At<'_> {
    /// The lookup exists, is filled, and shows what candidates are matched by.
    pub(super) fn settle(&self) {
        let op = self.operation;
        let Some(settle) = &op.settle else { return };
        let Some(lookup) = self.parts.operations.get(&settle.operation) else {
            if self.parts.broken.contains(&settle.operation) {
                return;
            }
            return self.error("settle.operation", format!("there is no operation \"{}\"", settle.operation));
        };
        if lookup.effect != EffectClass::None {
            return self.error("settle.operation", format!("\"{}\" is no lookup: it has an effect", settle.operation));
        }
        self.settle_with(settle, lookup);
        let named = settle.must_equal.keys().map(|name| ("settle.must-equal", name));
        for (key, name) in named.chain(settle.matching.keys().map(|name| ("settle.match", name))) {
            if op.field(name).is_none() && !self.partial {
                self.error(&format!("{key}.{name}"), format!("this operation has no field \"{name}\""));
            }
        }
        if op.reference.is_some() {
            let shown = settle.reference.is_some() || op.reference.as_ref().and_then(Place::mirrored).is_some();
            if !shown {
                self.error("settle", "where does a candidate show the reference? give settle.reference = \"/pointer\"");
            }
            return;
        }
        for field in op.fields.iter().filter(|f| f.role == Role::Key) {
            let shown = settle.matching.contains_key(&field.name)
                || settle.must_equal.contains_key(&field.name)
                || field.at.as_ref().and_then(Place::mirrored).is_some();
            if !shown {
                let name = &field.name;
                self.error(
                    "settle",
                    format!(
                        "where does a candidate show the key part \"{name}\"? give match = {{ {name} = \"/pointer\" }}"
                    ),
                );
            }
        }
    }

    fn settle_with(&self, settle: &Settle, lookup: &Operation) {
        let op = self.operation;
        for (theirs, ours) in &settle.with {
            let key = format!("settle.with.{theirs}");
            let theirs_partial = self.text.is_partial(&format!("operation.{}.fields", lookup.name));
            match lookup.field(theirs) {
                None if theirs_partial => {}
                None => self.error(&key, format!("\"{}\" has no field \"{theirs}\"", lookup.name)),
                Some(field) if matches!(field.source, Source::Const(_)) => {
                    self.error(&key, "that field of the lookup is a constant");
                }
                Some(_) => {}
            }
            let reference = ours == "reference" && op.needs_downstream_key();
            if op.field(ours).is_none() && !reference && !self.partial {
                self.error(&key, format!("this operation has no field \"{ours}\""));
            }
        }
        for field in &lookup.fields {
            let filled = settle.with.contains_key(&field.name)
                || field.optional
                || matches!(field.source, Source::Const(_) | Source::Context(_));
            if !filled {
                let name = &field.name;
                self.error(
                    "settle.with",
                    format!("the lookup's field \"{name}\" is not filled: add {name} = \"FIELD\""),
                );
            }
        }
    }
}
