//! What can settle an open effect: the rule of the contract that it was dispatched under.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncegate_contract::Contract;
use oncegate_ledger::state::Effect;
use oncegate_ledger::{Event, Ledger, StreamId, StreamKind};

/// How an effect that nobody knows of comes to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settling {
    /// No lookup will ever settle it, and why.
    Never(&'static str),
    /// Not found for so long after its sender stopped, it is absent.
    After(Duration),
    /// Its contract cannot be read.
    NotKnown,
}

/// The contracts that rows were dispatched under, each read once.
pub(super) struct Contracts {
    ledger: Arc<dyn Ledger>,
    known: BTreeMap<[u8; 32], Option<Contract>>,
}

impl Contracts {
    pub(super) fn of(ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger, known: BTreeMap::new() }
    }

    pub(super) async fn settling(&mut self, row: &Effect) -> Settling {
        if row.frozen {
            return Settling::Never("something contradicts it");
        }
        let Some(dispatch) = row.dispatch.as_deref() else { return Settling::NotKnown };
        if !self.known.contains_key(&dispatch.contract) {
            let contract = self.read(dispatch.contract).await;
            self.known.insert(dispatch.contract, contract);
        }
        rule(self.known.get(&dispatch.contract).and_then(Option::as_ref), &dispatch.operation)
    }

    /// How long the provider remembers the row's key, by the contract that it was sent under.
    pub(super) async fn window(&mut self, row: &Effect) -> Option<Duration> {
        let dispatch = row.dispatch.as_deref()?;
        if !self.known.contains_key(&dispatch.contract) {
            let contract = self.read(dispatch.contract).await;
            self.known.insert(dispatch.contract, contract);
        }
        self.known.get(&dispatch.contract)?.as_ref()?.operations.get(&dispatch.operation)?.provider.window
    }

    async fn read(&self, digest: [u8; 32]) -> Option<Contract> {
        let records = self.ledger.read(StreamId { kind: StreamKind::Contract, id: digest }).await.ok()?;
        let text = records.into_iter().find_map(|record| match record.event {
            Event::ContractSeen { text, .. } => Some(text),
            _ => None,
        })?;
        Contract::parse("the stored contract", &text).ok()
    }
}

fn rule(contract: Option<&Contract>, operation: &str) -> Settling {
    let Some(operation) = contract.and_then(|contract| contract.operations.get(operation)) else {
        return Settling::NotKnown;
    };
    match &operation.settle {
        None => Settling::Never("its contract has no settle rule"),
        Some(settle) => {
            settle.absent_after.map_or(Settling::Never("its contract has no absent-after"), Settling::After)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract(settle: &str) -> Contract {
        let text = format!(
            "[component]\nname = \"a\"\neffect = \"keyed\"\n[endpoint.e]\nurl = \"https://e.example\"\n\
            [tool.t]\noperations = [\"o\"]\n[operation.find]\neffect = \"none\"\nrequest = \"GET e:/x\"\n\
            fields = [ {{ name = \"k\", at = \"query:k\" }} ]\n\
            [operation.o]\neffect = \"keyed\"\naction = \"x\"\nrequest = \"POST e:/x\"\nbody = \"json\"\nreceipt = \"/id\"\n\
            reference = \"json:/r\"\nfields = [ {{ name = \"k\", at = \"json:/k\", role = \"key\", from = \"argument:/k\" }} ]\n{settle}"
        );
        Contract::parse("c.toml", &text).unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn without_a_rule_only_a_person_knows() {
        let without = contract("");
        assert_eq!(rule(Some(&without), "o"), Settling::Never("its contract has no settle rule"));
        assert_eq!(rule(Some(&without), "p"), Settling::NotKnown);
        assert_eq!(rule(None, "o"), Settling::NotKnown);
    }
}
