//! The example contracts, and short ways to one call of their operations.

use std::cell::RefCell;
use std::collections::BTreeMap;

use oncegate_contract::{
    Answer, Contract, EffectKey, Fetched, FieldError, Operation, Owner, Resolved, Sources, Value, effect_key, resolve,
};
use serde_json::{Value as Json, json};

pub(crate) const REFUNDS: &str = include_str!("../fixtures/refunds.toml");
pub(crate) const CAMPAIGN: &str = include_str!("../fixtures/campaign.toml");
pub(crate) const NOTES: &str = include_str!("../fixtures/notes.toml");
pub(crate) const ORDERS: &str = include_str!("../fixtures/orders.toml");
pub(crate) const PAYOUT: &str = include_str!("../fixtures/payout.toml");
pub(crate) const POSTS: &str = include_str!("../fixtures/posts.toml");
pub(crate) const ALL: &[(&str, &str)] = &[
    ("refunds.toml", REFUNDS),
    ("campaign.toml", CAMPAIGN),
    ("notes.toml", NOTES),
    ("orders.toml", ORDERS),
    ("payout.toml", PAYOUT),
    ("posts.toml", POSTS),
];

pub(crate) fn contract(text: &str) -> Contract {
    Contract::parse("contract.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

thread_local! {
    /// Properties ask for one operation thousands of times.
    static PARSED: RefCell<BTreeMap<String, Contract>> = RefCell::default();
}

pub(crate) fn operation(text: &str, name: &str) -> Operation {
    PARSED.with_borrow_mut(|parsed| {
        let contract = parsed.entry(text.to_owned()).or_insert_with(|| contract(text));
        contract.operations.get(name).unwrap().clone()
    })
}

/// One call's sources, owned.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    pub(crate) context: BTreeMap<String, String>,
    pub(crate) arguments: Json,
    pub(crate) lookups: Vec<Fetched>,
    pub(crate) given: Vec<(String, Value)>,
}

impl Call {
    pub(crate) fn arguments(arguments: Json) -> Self {
        Self { arguments, ..Self::default() }
    }

    pub(crate) fn context(mut self, name: &str, value: &str) -> Self {
        self.context.insert(name.into(), value.into());
        self
    }

    pub(crate) fn give(mut self, name: &str, value: Value) -> Self {
        self.given.push((name.into(), value));
        self
    }

    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        self.give(name, Value::Text(value.into()))
    }

    pub(crate) fn fetched(mut self, operation: &str, body: Json) -> Self {
        let fetch = u32::try_from(self.lookups.len()).unwrap();
        self.lookups.push(Fetched { fetch, operation: operation.into(), found: true, body });
        self
    }

    pub(crate) fn resolve(&self, operation: &Operation) -> Result<Resolved, FieldError> {
        let Self { context, arguments, lookups, given } = self;
        resolve(operation, &Sources { context, arguments, lookups, given, plan: &BTreeMap::new() })
    }
}

pub(crate) fn the_return() -> Json {
    json!({ "id": "R-1001", "charge": "ch_1", "amount": 4200, "status": "approved" })
}

pub(crate) fn refund_call() -> Call {
    Call::default().fetched("get-return", the_return()).text("reason", "damaged in transit")
}

pub(crate) const OWNER: Owner<'_> = Owner { tenant: "acme", account: "acme-eu", owner: "acme-refunds" };

pub(crate) fn key(operation: &Operation, resolved: &Resolved) -> EffectKey {
    effect_key(operation, &OWNER, resolved, 0).unwrap()
}

pub(crate) fn answer(status: u16, body: &str) -> Answer {
    Answer { status, headers: Vec::new(), body: body.as_bytes().to_vec(), complete: true }
}

pub(crate) fn message(error: &FieldError) -> String {
    error.to_string()
}
