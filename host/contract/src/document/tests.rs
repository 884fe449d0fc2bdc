//! Whatever could write, run code or take a value for an operator is refused, however deep it hides.

use super::*;

fn aggregate(pipeline: &str) -> Result<Documents, String> {
    let mut documents = Documents::of(DocumentCommand::Aggregate, "orders")?;
    documents.set("pipeline", pipeline)?;
    Ok(documents)
}

fn find(filter: &str) -> Result<Documents, String> {
    let mut documents = Documents::of(DocumentCommand::Find, "orders")?;
    documents.set("filter", filter)?;
    Ok(documents)
}

#[test]
fn what_only_reads_is_taken() {
    for pipeline in [
        r#"[{"$match": {"customer": ":who", "total": {"$gte": ":least"}}}, {"$sort": {"at": -1}}, {"$limit": 5}]"#,
        r#"[{"$group": {"_id": "$customer", "sum": {"$sum": "$total"}}}, {"$project": {"sum": 1}}]"#,
        r#"[{"$lookup": {"from": "lines", "localField": "_id", "foreignField": "order", "as": "lines"}}, {"$unwind": "$lines"}]"#,
        r#"[{"$lookup": {"from": "lines", "as": "l", "pipeline": [{"$match": {"order": ":id"}}]}}]"#,
        r#"[{"$facet": {"a": [{"$count": "n"}]}}, {"$unionWith": {"coll": "old", "pipeline": [{"$skip": 1}]}}]"#,
    ] {
        aggregate(pipeline).unwrap_or_else(|error| panic!("{pipeline}: {error}"));
    }
    let found = find(r#"{"$or": [{"_id": {"$oid": ":id"}}, {"at": {"$gt": {"$date": ":since"}}}], "open": true}"#);
    assert_eq!(found.unwrap().names(), ["id", "since"]);
}

#[test]
fn stages_that_write_or_run_code_are_refused_at_any_depth() {
    let hostile = [
        r#"{"$out": "stolen"}"#,
        r#"{"$merge": {"into": "orders"}}"#,
        r#"{"$match": {"$where": "sleep(1)"}}"#,
        r#"{"$match": {"$expr": {"$function": {"body": "f", "args": [], "lang": "js"}}}}"#,
        r#"{"$match": {"a": {"$elemMatch": {"$where": "1"}}}}"#,
        r#"{"$project": {"x": {"$function": {"body": "f", "args": [], "lang": "js"}}}}"#,
        r#"{"$group": {"_id": null, "x": {"$accumulator": {"lang": "js"}}}}"#,
        r#"{"$addFields": {"x": [{"y": {"$function": {}}}]}}"#,
        r#"{"$lookup": {"from": {"db": "admin", "coll": "users"}, "as": "x"}}"#,
        r#"{"$lookup": {"from": "system.users", "as": "x"}}"#,
        r#"{"$currentOp": {}}"#,
        r#"{"$collStats": {}}"#,
        r#"{"$sample": {"size": 1}}"#,
        r#"{"$match": {}, "$out": "x"}"#,
        r#"{"$changeStream": {}}"#,
    ];
    for stage in hostile {
        let nested = [
            format!("[{stage}]"),
            format!(r#"[{{"$lookup": {{"from": "lines", "as": "l", "pipeline": [{stage}]}}}}]"#),
            format!(r#"[{{"$facet": {{"a": [{stage}]}}}}]"#),
            format!(r#"[{{"$unionWith": {{"coll": "old", "pipeline": [{stage}]}}}}]"#),
        ];
        for pipeline in nested {
            assert!(aggregate(&pipeline).is_err(), "{pipeline}");
        }
    }
}

#[test]
fn a_value_stands_only_where_it_is_a_value() {
    for pipeline in [
        r#"[{"$project": {"x": ":name"}}]"#,
        r#"[{"$group": {"_id": ":name"}}]"#,
        r#"[{"$limit": ":n"}]"#,
        r#"[{"$sort": {"a": ":way"}}]"#,
        r#"[{"$match": {"a": {"$regex": ":pattern"}}}]"#,
        r#"[{"$match": ":all"}]"#,
        r#"[{"$match": {"$and": ":all"}}]"#,
        r#"[{"$match": {"a": {"$in": ":list"}}}]"#,
        r#"[{"$match": {"a": {"$elemMatch": ":x"}}}]"#,
        r#"[{"$lookup": {"from": ":coll", "as": "x"}}]"#,
        r#"[{"$unwind": ":path"}]"#,
    ] {
        assert!(aggregate(pipeline).is_err(), "{pipeline}");
    }
    assert!(find(r#"{"a": {"$in": [":one", ":two"]}}"#).is_ok());
    assert!(find(r#"{"a": ":"}"#).is_err() && find(r#"{"a": ": b"}"#).is_err());
}

#[test]
fn names_are_plain_and_documents_have_each_member_once() {
    for name in ["", "a$b", "system.users", "a b", ".a", "a/b", "a\u{0}"] {
        assert!(Documents::of(DocumentCommand::Find, name).is_err(), "{name:?}");
    }
    assert!(find(r#"{"a": 1, "a": 2}"#).is_err());
    assert!(find(r#"{"a": 1.5}"#).is_err());
    assert!(find(&format!("{}1{}", "{\"a\":".repeat(40), "}".repeat(40))).is_err());
}
