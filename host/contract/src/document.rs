//! A question to a document database: constant JSON of a contract with places for scalar values.
//!
//! A text `":name"` in a filter or in `$match` is a place. Only there: elsewhere the database would read
//! a bound text such as `"$secret"` as the name of a field. A value is always a scalar, so it can be no
//! operator and no document, and the shape of what is asked is the contract's alone.

mod rules;

use serde_json::Value as Json;

use crate::json::parse_json;
use crate::limits::{BINDS_MAX, NAME_BYTES_MAX, QUERY_DEPTH_MAX, STATEMENT_BYTES_MAX};
use crate::statement::is_name;

/// The commands that a contract can have sent. The list is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentCommand {
    /// `find`.
    Find,
    /// `aggregate`.
    Aggregate,
}

impl DocumentCommand {
    /// The word of a request.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "FIND" => Some(Self::Find),
            "AGGREGATE" => Some(Self::Aggregate),
            _ => None,
        }
    }
}

/// One node of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// Null.
    Null,
    /// A truth value.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A document, members in order.
    Map(Vec<(String, Node)>),
    /// A place for a value.
    Value(String),
    /// `{"$oid": …}`: an object id of 24 hexadecimal digits.
    ObjectId(Box<Node>),
    /// `{"$date": …}`: an instant in RFC 3339.
    Date(Box<Node>),
    /// `{"$numberDecimal": …}`: an exact decimal number.
    Decimal(Box<Node>),
}

/// What is asked of one collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    /// The command.
    pub command: DocumentCommand,
    /// The collection.
    pub collection: String,
    /// Which documents; for `find`.
    pub filter: Option<Node>,
    /// Which members of them; for `find`.
    pub projection: Option<Node>,
    /// In which order; for `find`.
    pub sort: Option<Node>,
    /// How many at most; for `find`.
    pub limit: Option<u32>,
    /// The stages; for `aggregate`.
    pub pipeline: Vec<Node>,
    texts: Vec<(&'static str, String)>,
}

impl Documents {
    /// A question that asks for everything in the collection, to be narrowed.
    ///
    /// # Errors
    /// The collection's name is none, or belongs to the server.
    pub fn of(command: DocumentCommand, collection: &str) -> Result<Self, String> {
        rules::collection(collection)?;
        let collection = collection.to_owned();
        let (filter, projection, sort, limit) = (None, None, None, None);
        Ok(Self { command, collection, filter, projection, sort, limit, pipeline: Vec::new(), texts: Vec::new() })
    }

    /// Takes `filter`, `projection`, `sort` or `pipeline`, as JSON text.
    ///
    /// # Errors
    /// A text that tells which part is not on the lists of what only reads.
    pub fn set(&mut self, key: &'static str, text: &str) -> Result<(), String> {
        if text.len() > STATEMENT_BYTES_MAX {
            return Err(format!("longer than {STATEMENT_BYTES_MAX} bytes"));
        }
        let node = read(&parse_json(text.as_bytes())?, QUERY_DEPTH_MAX)?;
        match key {
            "filter" => {
                rules::filter(&node)?;
                self.filter = Some(node);
            }
            "projection" => {
                rules::expression(&node)?;
                self.projection = Some(node);
            }
            "sort" => {
                rules::sort(&node)?;
                self.sort = Some(node);
            }
            _ => {
                rules::pipeline(&node)?;
                let Node::List(stages) = node else { return Err("a pipeline is a list of stages".into()) };
                self.pipeline = stages;
            }
        }
        self.texts.push((key, text.to_owned()));
        match self.names().len() {
            count if count > BINDS_MAX => Err(format!("more than {BINDS_MAX} places for values")),
            _ => Ok(()),
        }
    }

    /// The names of the places for values, each once, in order.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for node in self.filter.iter().chain(&self.pipeline) {
            node.names(&mut names);
        }
        names
    }

    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = self.texts.clone();
        lines.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        lines
    }
}

impl Node {
    fn names<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::Value(name) if !names.contains(&name.as_str()) => names.push(name),
            Self::List(nodes) => nodes.iter().for_each(|node| node.names(names)),
            Self::Map(members) => members.iter().for_each(|(_, node)| node.names(names)),
            Self::ObjectId(node) | Self::Date(node) | Self::Decimal(node) => node.names(names),
            _ => {}
        }
    }

    /// Whether it is one value, not a list or document.
    fn is_scalar(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Map(_))
    }
}

fn read(json: &Json, depth: usize) -> Result<Node, String> {
    let deeper = depth.checked_sub(1).ok_or_else(|| format!("nested deeper than {QUERY_DEPTH_MAX}"))?;
    Ok(match json {
        Json::Null => Node::Null,
        Json::Bool(truth) => Node::Boolean(*truth),
        Json::Number(number) => {
            Node::Integer(number.as_i64().ok_or("a number is whole; write {\"$numberDecimal\": \"1.5\"} for others")?)
        }
        Json::String(text) => text_node(text)?,
        Json::Array(elements) => Node::List(elements.iter().map(|one| read(one, deeper)).collect::<Result<_, _>>()?),
        Json::Object(members) => match constructed(members)? {
            Some(node) => node,
            None => {
                let member = |(name, one): (&String, &Json)| Ok((member_name(name)?, read(one, deeper)?));
                Node::Map(members.iter().map(member).collect::<Result<_, String>>()?)
            }
        },
    })
}

/// `:name` is a place; every other text is itself.
fn text_node(text: &str) -> Result<Node, String> {
    let Some(name) = text.strip_prefix(':') else { return Ok(Node::Text(text.to_owned())) };
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts && name.chars().all(is_name) && name.len() <= NAME_BYTES_MAX {
        Ok(Node::Value(name.to_owned()))
    } else {
        Err("a text that begins with \":\" is a place for a value, :name; give other such texts by a constant field"
            .into())
    }
}

fn constructed(members: &serde_json::Map<String, Json>) -> Result<Option<Node>, String> {
    let Some((name, value)) = members.iter().next().filter(|_| members.len() == 1) else { return Ok(None) };
    let make = match name.as_str() {
        "$oid" => Node::ObjectId,
        "$date" => Node::Date,
        "$numberDecimal" => Node::Decimal,
        _ => return Ok(None),
    };
    let text = value.as_str().ok_or_else(|| format!("{name} needs a text or a place"))?;
    Ok(Some(make(Box::new(text_node(text)?))))
}

fn member_name(name: &str) -> Result<String, String> {
    if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
        return Err("a member's name is 1 to 200 bytes without control characters".into());
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests;
