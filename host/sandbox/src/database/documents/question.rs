//! The command that is sent: the contract's shape, the call's scalars, the host's caps.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Decimal128, Document, doc};
use oncegate_contract::{DocumentCommand, Documents, Node, Value};

use crate::database::{DatabaseError, Values};
use crate::policy::DatabaseGrant;

/// Writes the command. A shape that values could change cannot be written here: each is one scalar.
pub(super) fn command(
    grant: &DatabaseGrant,
    documents: &Documents,
    values: &Values<'_>,
) -> Result<Document, DatabaseError> {
    let fill = Fill { values };
    // One more than is kept, so that it is known whether there is more.
    let most = i64::from(grant.rows_max) + 1;
    let limit = documents.limit.map_or(most, |limit| most.min(i64::from(limit)));
    let mut command = match documents.command {
        DocumentCommand::Find => {
            let mut command = doc! { "find": &documents.collection };
            command.insert("filter", documents.filter.as_ref().map_or(Ok(Bson::Document(doc! {})), |n| fill.node(n))?);
            for (name, node) in [("projection", &documents.projection), ("sort", &documents.sort)] {
                if let Some(node) = node {
                    command.insert(name, fill.node(node)?);
                }
            }
            command.extend(doc! { "limit": limit, "batchSize": limit, "singleBatch": true });
            command
        }
        DocumentCommand::Aggregate => {
            let mut pipeline = documents.pipeline.iter().map(|node| fill.node(node)).collect::<Result<Vec<_>, _>>()?;
            pipeline.push(Bson::Document(doc! { "$limit": most }));
            let name = &documents.collection;
            doc! { "aggregate": name, "pipeline": pipeline, "cursor": { "batchSize": most }, "allowDiskUse": false }
        }
    };
    command.insert("maxTimeMS", i64::try_from(grant.within.as_millis()).unwrap_or(i64::MAX));
    if let Some(level) = &grant.rule.read_concern {
        command.insert("readConcern", doc! { "level": level });
    }
    Ok(command)
}

struct Fill<'a> {
    values: &'a Values<'a>,
}

impl Fill<'_> {
    fn node(&self, node: &Node) -> Result<Bson, DatabaseError> {
        Ok(match node {
            Node::Null => Bson::Null,
            Node::Boolean(truth) => Bson::Boolean(*truth),
            Node::Integer(number) => Bson::Int64(*number),
            Node::Text(text) => Bson::String(text.clone()),
            Node::List(nodes) => Bson::Array(nodes.iter().map(|one| self.node(one)).collect::<Result<_, _>>()?),
            Node::Map(members) => {
                let member = |(name, one): &(String, Node)| Ok((name.clone(), self.node(one)?));
                Bson::Document(members.iter().map(member).collect::<Result<Document, DatabaseError>>()?)
            }
            Node::Value(name) => scalar(self.value(name)?)?,
            Node::ObjectId(inner) => {
                Bson::ObjectId(ObjectId::parse_str(self.text(inner)?).map_err(|_| bad("an object id"))?)
            }
            Node::Date(inner) => {
                Bson::DateTime(DateTime::parse_rfc3339_str(self.text(inner)?).map_err(|_| bad("an RFC 3339 time"))?)
            }
            Node::Decimal(inner) => decimal(&self.text(inner)?)?,
        })
    }

    fn value(&self, name: &str) -> Result<&Value, DatabaseError> {
        let found = self.values.get(name).copied().flatten();
        found.ok_or_else(|| bad("there: each place of a filter needs its value"))
    }

    fn text(&self, node: &Node) -> Result<String, DatabaseError> {
        match node {
            Node::Text(text) => Ok(text.clone()),
            Node::Value(name) => match self.value(name)? {
                Value::Text(text) | Value::Decimal(text) => Ok(text.clone()),
                Value::Integer(number) => Ok(number.to_string()),
                _ => Err(bad("text")),
            },
            _ => Err(bad("text")),
        }
    }
}

fn scalar(value: &Value) -> Result<Bson, DatabaseError> {
    match value {
        Value::Text(text) => Ok(Bson::String(text.clone())),
        Value::Integer(number) => Ok(Bson::Int64(*number)),
        Value::Decimal(text) => decimal(text),
        Value::Boolean(truth) => Ok(Bson::Boolean(*truth)),
        Value::Bytes(bytes) => Ok(Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.clone() })),
        Value::Json(_) => Err(bad("a scalar")),
    }
}

fn decimal(text: &str) -> Result<Bson, DatabaseError> {
    text.parse::<Decimal128>().map(Bson::Decimal128).map_err(|_| bad("a decimal number"))
}

fn bad(wanted: &str) -> DatabaseError {
    DatabaseError::Value { code: "bound".to_owned(), message: format!("a bound value is not {wanted}") }
}

#[cfg(test)]
mod tests;
