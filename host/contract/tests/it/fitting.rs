//! A contract and a component's interface.

use oncegate_contract::{Interface, fits};
use serde_json::json;

use crate::fixtures::{CAMPAIGN, ORDERS, PAYOUT, REFUNDS, contract};

fn campaign_schema() -> serde_json::Value {
    json!({ "type": "object", "properties": {
        "recipients": { "anyOf": [ { "type": "array", "items": { "type": "string" } }, { "type": "null" } ] } } })
}

#[test]
fn what_belongs_together_fits() {
    let tools = vec![("send-campaign".into(), campaign_schema()), ("other".into(), json!({}))];
    let interface = Interface { imports_effect: true, imports_lookup: false, tools };
    assert_eq!(fits(&contract(CAMPAIGN), "c.toml", &interface), []);
    let schema = json!({ "properties": { "r": { "$ref": "#/$defs/r" } }, "$defs": { "r": { "type": "string" } } });
    let refunds = REFUNDS.replace("argument:/return_id", "argument:/r");
    let interface =
        Interface { imports_effect: true, imports_lookup: true, tools: vec![("issue-refund".into(), schema)] };
    assert_eq!(fits(&contract(&refunds), "c.toml", &interface), []);
}

#[test]
fn what_does_not_is_reported_with_its_line() {
    let interface = Interface {
        imports_effect: true,
        imports_lookup: false,
        tools: vec![("read-order".into(), json!({ "properties": {} }))],
    };
    let errors = fits(&contract(ORDERS), "orders.toml", &interface);
    let keys: Vec<_> = errors.iter().map(|e| (e.line, e.key.as_str())).collect();
    let wanted = [
        (3, "component.effect"),
        (12, "operation.get-order.effect"),
        (14, "operation.get-order.fields[0].from"),
        (18, "operation.get-customer.effect"),
    ];
    assert_eq!(keys, wanted, "{errors:#?}");
    let nothing = fits(&contract(REFUNDS), "r.toml", &Interface::default());
    assert_eq!(nothing.len(), 1);
    assert!(nothing[0].to_string().starts_with("r.toml:11: tool.issue-refund: "), "{}", nothing[0]);
}

#[test]
fn a_float_argument_never_enters_a_key() {
    let member = |kind: &str| json!({ "type": kind });
    let schema = json!({ "properties": { "invoice": member("number"), "amount": member("integer"),
        "currency": member("string"), "file": member("string"), "account": member("string") } });
    let interface = Interface { imports_effect: true, imports_lookup: true, tools: vec![("pay-out".into(), schema)] };
    let errors = fits(&contract(PAYOUT), "p.toml", &interface);
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert!(errors.iter().all(|e| e.message.contains("float")));
}

#[test]
fn schemas_that_refer_to_themselves_end() {
    let schema = json!({ "$ref": "#" });
    let interface =
        Interface { imports_effect: true, imports_lookup: true, tools: vec![("issue-refund".into(), schema)] };
    assert_eq!(fits(&contract(REFUNDS), "r.toml", &interface).len(), 1);
}
