//! Rules between operations: what completes another, and what undoes it.

use super::{At, Parts, Text};
use crate::contract::Tool;
use crate::field::Role;
use crate::operation::{EffectClass, Operation};

/// The effects of a tool that completes what it makes: the one, and the one that makes it final.
const TWO_STEPS: u32 = 2;

impl At<'_> {
    /// Another operation with an effect; one that could not be read is no second error.
    fn other(&self, key: &str, name: &str) -> Option<&Operation> {
        let found = self.parts.operations.get(name);
        let keyed = found.filter(|found| found.effect == EffectClass::Keyed && found.name != self.operation.name);
        if keyed.is_none() && !self.parts.broken.contains(name) {
            self.error(key, format!("there is no other keyed operation \"{name}\""));
        }
        keyed
    }

    /// Something can be completed that is issued first, by one operation, which can name it.
    pub(super) fn completes(&self) {
        let op = self.operation;
        let Some(name) = &op.completes else {
            if op.complete_within.is_some() {
                self.error("complete-within", "\"complete-within\" goes with \"completes\"");
            }
            return;
        };
        let Some(target) = self.other("completes", name) else { return };
        if target.accepted_when.is_empty() {
            self.error("completes", format!("\"{name}\" is never issued: it has no \"accepted-when\""));
        }
        if let Some(first) = target.completed_by.as_ref().filter(|first| **first != op.name) {
            self.error("completes", format!("\"{name}\" is completed by \"{first}\" already"));
        }
    }

    /// What undoes names what it undoes by its receipt, and is named by it.
    pub(super) fn undoes(&self) {
        let op = self.operation;
        if let Some(name) = &op.undone_by
            && let Some(undoing) = self.other("undone-by", name)
            && undoing.revokes.as_ref().is_none_or(|revokes| revokes.operation != op.name)
        {
            self.error("undone-by", format!("\"{name}\" does not say that it revokes \"{}\"", op.name));
        }
        let Some(revokes) = &op.revokes else { return };
        if let Some(target) = self.other("revokes.operation", &revokes.operation)
            && target.endpoint != op.endpoint
        {
            let name = &target.name;
            self.error(
                "revokes.operation",
                format!("\"{name}\" is at another endpoint: its receipts mean nothing here"),
            );
        }
        match op.fields.iter().find(|f| f.at.as_ref() == Some(&revokes.at)) {
            None if self.partial => {}
            None => self.error("revokes.at", "no field of this operation is at that place"),
            Some(field) if field.role == Role::Key => {}
            Some(_) => self.error("revokes.at", "what is undone is told by a key part: the field needs role = \"key\""),
        }
    }
}

/// A tool that completes an effect has made it in the same call.
pub(super) fn tool(text: &Text<'_>, parts: &Parts, name: &str, tool: &Tool) {
    let completing = tool.operations.iter().filter_map(|one| parts.operations.get(one)?.completes.as_ref());
    for target in completing {
        if !tool.operations.contains(target) {
            let message = format!("an operation of it completes \"{target}\", which this tool cannot ask for; add it");
            text.error_at(&format!("tool.{name}.operations"), message);
        } else if tool.effects < TWO_STEPS {
            let message = format!("\"{target}\" and what completes it are two effects: effects = {TWO_STEPS}");
            text.error_at(&format!("tool.{name}.effects"), message);
        }
    }
}
