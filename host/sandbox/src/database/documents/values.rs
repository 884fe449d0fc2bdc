//! Values of documents, exactly: 64-bit integers as numbers, decimals and times as text.

use mongodb::bson::Bson;
use serde_json::{Map, Value as Json};

use crate::database::DatabaseError;
use crate::database::rows;

/// Deepest document that is passed on; the server's own bound is 100.
const DEPTH_MAX: usize = 60;

/// A value as JSON.
pub(super) fn json(value: &Bson) -> Result<Json, DatabaseError> {
    deep(value, DEPTH_MAX)
}

fn deep(value: &Bson, depth: usize) -> Result<Json, DatabaseError> {
    let unusable = |what: &str| DatabaseError::Unusable(what.to_owned());
    let deeper = depth.checked_sub(1).ok_or_else(|| unusable("a document is nested too deeply"))?;
    Ok(match value {
        Bson::Null | Bson::Undefined => Json::Null,
        Bson::Boolean(truth) => (*truth).into(),
        Bson::Int32(number) => (*number).into(),
        Bson::Int64(number) => (*number).into(),
        Bson::Double(number) => rows::float(*number),
        Bson::Decimal128(number) => number.to_string().into(),
        Bson::String(text) => text.as_str().into(),
        Bson::ObjectId(id) => id.to_hex().into(),
        Bson::DateTime(at) => at.try_to_rfc3339_string().map_err(|_| unusable("a time is beyond the calendar"))?.into(),
        Bson::Binary(binary) => rows::bytes(&binary.bytes),
        Bson::Array(list) => list.iter().map(|one| deep(one, deeper)).collect::<Result<Vec<_>, _>>()?.into(),
        Bson::Document(document) => {
            let members = document.iter().map(|(name, one)| Ok((name.clone(), deep(one, deeper)?)));
            Json::Object(members.collect::<Result<Map<_, _>, DatabaseError>>()?)
        }
        _ => return Err(unusable("a member has a type that JSON has no form for: leave it out by the projection")),
    })
}
