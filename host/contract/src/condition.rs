//! Conditions on a provider's answer: a status, and one test on its JSON.

use serde_json::Value as Json;

use crate::pointer::Pointer;

/// Which statuses a condition accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusMatch {
    /// Exactly this one.
    Code(u16),
    /// All of one hundred: `"2xx"` is 2.
    Class(u16),
}

impl StatusMatch {
    pub(crate) fn accepts(&self, status: u16) -> bool {
        match self {
            Self::Code(code) => *code == status,
            Self::Class(class) => status / 100 == *class,
        }
    }
}

/// What the value at a pointer must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// Present and not null, or absent.
    Exists(bool),
    /// One of these.
    In(Vec<Json>),
}

/// One condition; all that it says must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Accepted statuses; none given means 2xx.
    pub status: Vec<StatusMatch>,
    /// A test on the JSON body.
    pub test: Option<(Pointer, Test)>,
}

/// Conditions of which any must hold; empty when the contract gives none.
pub type Conditions = Vec<Condition>;

impl Condition {
    /// Whether an answer meets the condition; a body that is not JSON meets no test.
    pub(crate) fn holds(&self, status: u16, body: Option<&Json>) -> bool {
        let status_holds = match self.status.as_slice() {
            [] => status / 100 == 2,
            list => list.iter().any(|s| s.accepts(status)),
        };
        status_holds && self.test.as_ref().is_none_or(|(at, test)| body.is_some_and(|b| test_holds(at, test, b)))
    }
}

fn test_holds(at: &Pointer, test: &Test, body: &Json) -> bool {
    let holds = |value: Option<&Json>| match test {
        Test::Exists(wanted) => value.is_some() == *wanted,
        Test::In(list) => value.is_some_and(|v| list.contains(v)),
    };
    match at.split_any() {
        None => holds(at.get(body)),
        Some((array, inner)) => match array.get(body) {
            Some(Json::Array(elements)) => elements.iter().any(|element| holds(inner.get(element))),
            _ => holds(None),
        },
    }
}

pub(crate) fn any(conditions: &Conditions, status: u16, body: Option<&Json>) -> bool {
    conditions.iter().any(|condition| condition.holds(status, body))
}
