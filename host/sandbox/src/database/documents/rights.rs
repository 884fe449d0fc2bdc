//! What a login of a document database can do beside reading, by the server's own word.

use std::collections::BTreeSet;

use mongodb::bson::{Bson, Document};

use super::RoleFinding;

/// Actions by which a login reads. Everything else, known or not, is more.
const READING: [&str; 12] = [
    "find",
    "listCollections",
    "listIndexes",
    "listSearchIndexes",
    "collStats",
    "dbStats",
    "dbHash",
    "indexStats",
    "planCacheRead",
    "changeStream",
    "killCursors",
    "listDatabases",
];

/// Each action of the login that is not on the list; and that it has none at all.
pub(super) fn findings(status: &Document, database: &str) -> Vec<RoleFinding> {
    let told = status.get_document("authInfo").and_then(|info| info.get_array("authenticatedUserPrivileges"));
    let Ok(privileges) = told else {
        let what = "the server does not say what its login may do".to_owned();
        return vec![RoleFinding { refused: true, what }];
    };
    let mut reads = false;
    let mut more = BTreeSet::new();
    for privilege in privileges.iter().filter_map(Bson::as_document) {
        let on = resource(privilege);
        let Ok(actions) = privilege.get_array("actions") else {
            more.insert(format!("what it may do on {on} is not told"));
            continue;
        };
        for action in actions {
            match action.as_str() {
                Some("find") => reads = true,
                Some(action) if READING.contains(&action) => {}
                Some(action) => {
                    more.insert(format!("it may {} on {on}", oncegate_contract::safe_text(action)));
                }
                None => {
                    more.insert(format!("what it may do on {on} is not told"));
                }
            }
        }
    }
    if !reads && more.is_empty() {
        // Nobody is logged in, or the server checks nobody.
        more.insert(format!("it is not known to be able to read {database} and nothing more"));
    }
    more.into_iter().map(|what| RoleFinding { refused: true, what }).collect()
}

fn resource(privilege: &Document) -> String {
    let Ok(resource) = privilege.get_document("resource") else { return "something".to_owned() };
    let name = |key| resource.get_str(key).ok().filter(|name| !name.is_empty()).unwrap_or("*");
    match resource.get_bool("cluster").or(resource.get_bool("anyResource")) {
        Ok(true) => "the whole server".to_owned(),
        _ => oncegate_contract::safe_text(&format!("{}.{}", name("db"), name("collection"))),
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    fn told(privileges: Vec<Document>) -> Vec<String> {
        let status = doc! { "authInfo": { "authenticatedUserPrivileges": privileges }, "ok": 1 };
        findings(&status, "shop").into_iter().map(|found| found.what).collect()
    }

    #[test]
    fn a_reader_only_reads() {
        let reads = doc! { "resource": { "db": "shop", "collection": "" }, "actions": ["find", "listIndexes"] };
        assert_eq!(told(vec![reads]), Vec::<String>::new());
    }

    #[test]
    fn whatever_else_it_may_is_refused() {
        let writes = doc! { "resource": { "db": "shop", "collection": "orders" }, "actions": ["find", "insert"] };
        assert_eq!(told(vec![writes]), ["it may insert on shop.orders"]);
        let server = doc! { "resource": { "cluster": true }, "actions": ["find", "shutdown"] };
        assert_eq!(told(vec![server]), ["it may shutdown on the whole server"]);
        assert_eq!(told(vec![doc! { "resource": { "anyResource": true } }]).len(), 1);
    }

    #[test]
    fn a_server_that_checks_nobody_is_refused() {
        assert_eq!(told(Vec::new()).len(), 1);
        assert!(findings(&doc! { "ok": 1 }, "shop")[0].refused);
    }
}
