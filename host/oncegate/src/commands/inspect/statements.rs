//! The closed table of statements that the guarantee rests on: who makes each, what this contract
//! says, and what follows when it is false.

use oncegate_contract::{Contract, Dedupe, EffectClass, Operation, Role, Source};

use super::words;

/// One statement of the table.
pub(super) struct Statement {
    /// What is stated.
    pub(super) stated: &'static str,
    /// `contract` (the author) or `policy` (the operator).
    pub(super) by: &'static str,
    /// What happens when it is false.
    pub(super) if_false: &'static str,
    /// What is said here: the operation or endpoint, and the words; empty: nothing is.
    pub(super) said: Vec<(String, String)>,
}

/// The whole table, in the order of the guarantee.
pub(super) fn table(contract: &Contract) -> Vec<Statement> {
    let mut table = authors(contract);
    table.extend(operators(contract));
    table
}

fn statement(stated: &'static str, by: &'static str, if_false: &'static str, said: Vec<(String, String)>) -> Statement {
    Statement { stated, by, if_false, said }
}

/// What the author states in the contract.
fn authors(contract: &Contract) -> Vec<Statement> {
    vec![
        statement(
            "an operation with `effect = \"none\"` has none",
            "contract",
            "it has its effect each time it is asked for",
            each(contract, |o| (!acts(o)).then(|| words::request(contract, o))),
        ),
        statement(
            "`no-effect-when` is proof that nothing happened",
            "contract",
            "an effect that happened is done again",
            each(contract, |o| makes(o, !o.no_effect_when.is_empty(), |o| words::conditions(&o.no_effect_when))),
        ),
        statement(
            "the provider's dedupe: kind, place, window and scope",
            "contract",
            "a stored request that is sent again is done twice",
            each(contract, |o| makes(o, o.provider.dedupe != Dedupe::None, dedupe)),
        ),
        statement(
            "`absent-after` is long enough, and the settle lookup finds every such object with its credential",
            "contract",
            "an effect that exists is taken for absent and done again",
            each(contract, |o| makes(o, only_a_person(o).is_none(), words::settle)),
        ),
        statement(
            "each key part is unique and permanent",
            "contract",
            "two things share a key and the second is not done, or one has two keys and is done twice",
            each(contract, |o| acts(o).then(|| key_parts(o))),
        ),
    ]
}

/// What the operator states in the policy.
fn operators(contract: &Contract) -> Vec<Statement> {
    let acting = contract.operations.values().any(acts);
    let operator = |words: &str| {
        contract
            .endpoints
            .keys()
            .filter(|_| acting)
            .map(|name| (format!("endpoint {name}"), words.to_owned()))
            .collect()
    };
    vec![
        statement(
            "an account's name always means the same account at the provider",
            "policy",
            "what was done at one account is looked for at another, not found, and done again",
            operator("policy: [endpoint] account"),
        ),
        statement(
            "`egress = \"direct\"`: no relay sends what this host did not hand over",
            "policy",
            "a request counted as not sent is sent later, after it was done again",
            operator("policy: [endpoint] egress; relayed unless it says so"),
        ),
        statement(
            "nobody else uses this credential",
            "policy",
            "somebody else does the same without this ledger",
            credentials(contract, acting),
        ),
        statement(
            "a restored ledger was rightly trusted",
            "policy",
            "effects that the lost part knew are done again",
            if acting {
                vec![("ledger".to_owned(), "an operator's recorded decision, only after a restore".to_owned())]
            } else {
                Vec::new()
            },
        ),
    ]
}

fn acts(operation: &Operation) -> bool {
    operation.effect == EffectClass::Keyed
}

fn each(contract: &Contract, said: impl Fn(&Operation) -> Option<String>) -> Vec<(String, String)> {
    contract.operations.values().filter_map(|operation| Some((operation.name.clone(), said(operation)?))).collect()
}

/// What an operation with effects says, if it makes the statement at all.
fn makes(operation: &Operation, makes: bool, words: impl Fn(&Operation) -> String) -> Option<String> {
    (acts(operation) && makes).then(|| words(operation))
}

/// The operations whose lost answers no lookup settles, and why. They rest on no statement for it.
pub(super) fn unsettled(contract: &Contract) -> Vec<(&str, &'static str)> {
    let acting = contract.operations.values().filter(|operation| acts(operation));
    acting.filter_map(|operation| Some((operation.name.as_str(), only_a_person(operation)?))).collect()
}

fn only_a_person(operation: &Operation) -> Option<&'static str> {
    match &operation.settle {
        None => Some("no settle rule"),
        Some(settle) if settle.absent_after.is_none() => {
            Some("a settle lookup may find it, not finding it is no proof")
        }
        Some(_) => None,
    }
}

fn dedupe(operation: &Operation) -> String {
    let again = match (operation.provider.dedupe, operation.provider.window) {
        (Dedupe::KeyAndBody, Some(_)) => "; a lost request may be sent again within that window",
        _ => "; a lost request is never sent again",
    };
    format!("{}{again}", words::dedupe(operation))
}

fn key_parts(operation: &Operation) -> String {
    let part = |name: &str, source: &Source| format!("{name} ({})", words::source_in(operation, source));
    let mut parts: Vec<String> =
        words::of_role(operation, Role::Key).map(|field| part(&field.name, &field.source)).collect();
    if let Some(scope) = operation.repeat {
        parts.push(format!("sequence (from the orchestrator, counted within one {})", scope.as_str()));
    }
    parts.join(", ")
}

fn credentials(contract: &Contract, acting: bool) -> Vec<(String, String)> {
    let named = contract
        .endpoints
        .iter()
        .filter(|_| acting)
        .filter_map(|(name, endpoint)| Some((name, endpoint.credential.as_ref()?)));
    named.map(|(name, credential)| (format!("endpoint {name}"), format!("credential {credential}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_closed_and_says_who_states_what() {
        let contract = Contract::undeclared("a");
        let table = table(&contract);
        assert_eq!(table.iter().map(|statement| statement.by).collect::<Vec<_>>()[4..6], ["contract", "policy"]);
        assert_eq!(table.len(), 9);
        assert!(table.iter().all(|statement| statement.said.is_empty()));
    }

    const ACTING: &str = "[component]\nname = \"a\"\neffect = \"keyed\"\n[endpoint.e]\nurl = \"https://e.example\"\n\
        [tool.t]\noperations = [\"o\"]\n[operation.o]\neffect = \"keyed\"\naction = \"x\"\nrequest = \"POST e:/x\"\nbody = \"json\"\n\
        receipt = \"/id\"\nfields = [ { name = \"k\", at = \"json:/k\", role = \"key\", from = \"argument:/k\" } ]\n";

    fn parsed(text: &str) -> Contract {
        Contract::parse("c.toml", text).unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn a_lost_request_is_sent_again_only_on_a_statement_about_key_and_body() {
        let terms = |dedupe: &str| {
            let terms = format!(
                "[operation.o.provider]\ndedupe = \"{dedupe}\"\ndedupe-at = \"header:Idempotency-Key\"\ndedupe-window = \"24h\"\n"
            );
            table(&parsed(&format!("{ACTING}{terms}")))[2].said[0].1.clone()
        };
        assert!(terms("key").ends_with("a lost request is never sent again"));
        assert!(terms("key-and-body").ends_with("a lost request may be sent again within that window"));
    }

    #[test]
    fn an_operation_is_listed_only_under_what_it_states() {
        let contract = parsed(ACTING);
        let table = table(&contract);
        // No proof, no dedupe, no settle rule; the key part is stated all the same.
        assert!(table[1..4].iter().all(|statement| statement.said.is_empty()));
        assert_eq!(table[4].said[0].0, "o");
        assert_eq!(unsettled(&contract), [("o", "no settle rule")]);
    }
}
