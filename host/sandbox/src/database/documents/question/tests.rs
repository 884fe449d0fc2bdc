//! Whatever is bound, the command has the contract's shape.

use std::collections::BTreeMap;
use std::time::Duration;

use oncegate_contract::DatabaseAddress;

use super::*;
use crate::policy::DatabaseRule;

fn grant() -> DatabaseGrant {
    let address = DatabaseAddress::parse("mongodb://db.example/shop").unwrap();
    DatabaseGrant { address, rule: DatabaseRule::default(), rows_max: 10, within: Duration::from_secs(2) }
}

fn find(filter: &str, value: &Value) -> Result<Document, DatabaseError> {
    let mut documents = Documents::of(DocumentCommand::Find, "orders").unwrap();
    documents.set("filter", filter).unwrap();
    command(&grant(), &documents, &BTreeMap::from([("x", Some(value))]))
}

/// Names of all members, in order, and where documents and lists are.
fn shape(bson: &Bson, out: &mut String) {
    match bson {
        Bson::Document(document) => {
            for (name, value) in document {
                out.push_str(&format!("{{{name}"));
                shape(value, out);
                out.push('}');
            }
        }
        Bson::Array(list) => list.iter().for_each(|one| {
            out.push('[');
            shape(one, out);
        }),
        _ => out.push('.'),
    }
}

#[test]
fn no_value_changes_the_shape_of_what_is_asked() {
    let filter = r#"{"$or": [{"a": ":x"}, {"b": {"$in": [1, ":x"]}}], "c": {"d": ":x"}}"#;
    let mut wanted = String::new();
    shape(&Bson::Document(find(filter, &Value::Integer(1)).unwrap()), &mut wanted);
    for text in ["$where", "{\"$gt\": \"\"}", "\0", ":x", "$secret", "'; return true; //", "", "\u{202e}"] {
        let asked = find(filter, &Value::Text(text.to_owned())).unwrap();
        let mut found = String::new();
        shape(&Bson::Document(asked.clone()), &mut found);
        assert_eq!(found, wanted, "{text:?}");
        assert_eq!(asked.get_document("filter").unwrap().get_document("c").unwrap().get_str("d").unwrap(), text);
    }
    let document = Value::Json(serde_json::json!({ "$gt": "" }));
    assert!(matches!(find(filter, &document), Err(DatabaseError::Value { .. })));
}

#[test]
fn values_have_the_declared_types_and_the_host_adds_its_caps() {
    let asked = find(r#"{"_id": {"$oid": ":x"}}"#, &Value::Text("0123456789abcdef01234567".into())).unwrap();
    assert!(matches!(asked.get_document("filter").unwrap().get("_id"), Some(Bson::ObjectId(_))));
    assert_eq!((asked.get_i64("limit").unwrap(), asked.get_bool("singleBatch").unwrap()), (11, true));
    assert_eq!(asked.get_i64("maxTimeMS").unwrap(), 2_000);
    assert!(find(r#"{"_id": {"$oid": ":x"}}"#, &Value::Text("no".into())).is_err());
    let asked = find(r#"{"a": {"$gte": {"$numberDecimal": ":x"}}}"#, &Value::Decimal("1.50".into())).unwrap();
    assert!(asked.to_string().contains("1.50"), "{asked}");
    let mut documents = Documents::of(DocumentCommand::Aggregate, "orders").unwrap();
    documents.set("pipeline", r#"[{"$match": {"a": ":x"}}]"#).unwrap();
    let value = Value::Boolean(true);
    let asked = command(&grant(), &documents, &BTreeMap::from([("x", Some(&value))])).unwrap();
    assert_eq!(asked.get_array("pipeline").unwrap().last(), Some(&Bson::Document(doc! { "$limit": 11_i64 })));
}
