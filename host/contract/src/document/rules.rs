//! What a question to a document database may hold: closed lists of operators, stages and expressions,
//! each of which only reads. What is not on a list does not exist.

use super::Node;
use crate::limits::QUERY_LIMIT_MAX;

/// Operators on one member of a filter.
const OPERATORS: &[&str] = &[
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$in",
    "$nin",
    "$all",
    "$exists",
    "$type",
    "$size",
    "$mod",
    "$not",
    "$elemMatch",
    "$regex",
    "$options",
];

/// Expressions of projections and groups: no code, no chance, nothing outside the document.
const EXPRESSIONS: &[&str] = &[
    "$abs",
    "$add",
    "$addToSet",
    "$and",
    "$arrayElemAt",
    "$arrayToObject",
    "$avg",
    "$ceil",
    "$cmp",
    "$concat",
    "$concatArrays",
    "$cond",
    "$count",
    "$dateToString",
    "$dayOfMonth",
    "$divide",
    "$eq",
    "$exp",
    "$filter",
    "$first",
    "$floor",
    "$gt",
    "$gte",
    "$hour",
    "$ifNull",
    "$in",
    "$indexOfArray",
    "$isArray",
    "$last",
    "$let",
    "$literal",
    "$log10",
    "$lt",
    "$lte",
    "$map",
    "$max",
    "$mergeObjects",
    "$min",
    "$minute",
    "$mod",
    "$month",
    "$multiply",
    "$ne",
    "$not",
    "$objectToArray",
    "$or",
    "$pow",
    "$push",
    "$reduce",
    "$round",
    "$second",
    "$size",
    "$slice",
    "$split",
    "$sqrt",
    "$strLenCP",
    "$strcasecmp",
    "$substrCP",
    "$subtract",
    "$sum",
    "$switch",
    "$toBool",
    "$toDate",
    "$toDecimal",
    "$toInt",
    "$toLong",
    "$toLower",
    "$toObjectId",
    "$toString",
    "$toUpper",
    "$trim",
    "$trunc",
    "$type",
    "$year",
    "$zip",
];

const STAGES: &[&str] = &[
    "$match",
    "$project",
    "$addFields",
    "$set",
    "$unset",
    "$sort",
    "$limit",
    "$skip",
    "$group",
    "$unwind",
    "$count",
    "$sortByCount",
    "$replaceRoot",
    "$replaceWith",
    "$lookup",
    "$unionWith",
    "$facet",
];

type Checked = Result<(), String>;

/// A collection of the endpoint's own database.
pub(super) fn collection(name: &str) -> Checked {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    if name.is_empty() || name.len() > 120 || !name.bytes().all(good) || name.starts_with('.') {
        return Err("a collection is letters, digits and _ - . and does not begin with a point".into());
    }
    match name == "system" || name.starts_with("system.") {
        true => Err("the server's own collections are not asked".into()),
        false => Ok(()),
    }
}

/// A filter, of `find` or `$match`.
pub(super) fn filter(node: &Node) -> Checked {
    let Node::Map(members) = node else { return Err("a filter is a document".into()) };
    for (name, value) in members {
        match (name.as_str(), value) {
            ("$and" | "$or" | "$nor", Node::List(parts)) => parts.iter().try_for_each(filter)?,
            ("$and" | "$or" | "$nor", _) => return Err(format!("{name} needs a list of filters")),
            (other, _) if other.starts_with('$') => return Err(not_on("operators of a filter", other)),
            (_, value) => condition(value)?,
        }
    }
    Ok(())
}

/// What a member is compared with: a value, or operators on it.
fn condition(node: &Node) -> Checked {
    match node {
        Node::Map(members) if members.iter().any(|(name, _)| name.starts_with('$')) => operators(members),
        other => literal(other),
    }
}

fn operators(members: &[(String, Node)]) -> Checked {
    for (name, value) in members {
        if !OPERATORS.contains(&name.as_str()) {
            return Err(not_on("operators of a filter", name));
        }
        match (name.as_str(), value) {
            ("$not", value) => condition(value)?,
            ("$elemMatch", Node::Map(inner)) if inner.iter().any(|(name, _)| OPERATORS.contains(&name.as_str())) => {
                operators(inner)?;
            }
            ("$elemMatch", value) => filter(value)?,
            ("$regex" | "$options", Node::Text(_)) => {}
            ("$regex" | "$options", _) => return Err(format!("{name} is constant text: a pattern is the contract's")),
            ("$in" | "$nin" | "$all", Node::List(list)) if list.iter().all(Node::is_scalar) => {}
            ("$in" | "$nin" | "$all", _) => return Err(format!("{name} needs a list of values")),
            ("$mod", value) => literal(value)?,
            (_, value) if value.is_scalar() => {}
            _ => return Err(format!("{name} needs one value")),
        }
    }
    Ok(())
}

/// A value as it stands: no operator anywhere in it.
fn literal(node: &Node) -> Checked {
    match node {
        Node::List(nodes) => nodes.iter().try_for_each(literal),
        Node::Map(members) => members.iter().try_for_each(|(name, value)| match name.starts_with('$') {
            true => Err(format!("{name} stands beside members without \"$\"")),
            false => literal(value),
        }),
        _ => Ok(()),
    }
}

/// A projection, a group or another expression: constant.
pub(super) fn expression(node: &Node) -> Checked {
    match node {
        Node::Value(name) => Err(format!("\":{name}\": a value is bound in a filter or in $match, nowhere else")),
        Node::ObjectId(inner) | Node::Date(inner) | Node::Decimal(inner) => expression(inner),
        Node::List(nodes) => nodes.iter().try_for_each(expression),
        Node::Map(members) => members.iter().try_for_each(|(name, value)| {
            if name.starts_with('$') && !EXPRESSIONS.contains(&name.as_str()) {
                return Err(not_on("expressions", name));
            }
            expression(value)
        }),
        _ => Ok(()),
    }
}

/// Members, each up or down.
pub(super) fn sort(node: &Node) -> Checked {
    let Node::Map(members) = node else { return Err("a sort is a document such as {\"at\": -1}".into()) };
    let good = |(name, way): &(String, Node)| !name.starts_with('$') && matches!(way, Node::Integer(1 | -1));
    if members.is_empty() || !members.iter().all(good) {
        return Err("a sort has members with 1 or -1".into());
    }
    Ok(())
}

/// Every stage of a pipeline, those in nested ones too.
pub(super) fn pipeline(node: &Node) -> Checked {
    let Node::List(stages) = node else { return Err("a pipeline is a list of stages".into()) };
    for one in stages {
        match one {
            Node::Map(members) if members.len() == 1 => {
                members.iter().try_for_each(|(name, value)| stage(name, value))?
            }
            _ => return Err("a stage is a document with one member".into()),
        }
    }
    Ok(())
}

fn stage(name: &str, value: &Node) -> Checked {
    match name {
        "$match" => filter(value),
        "$sort" => sort(value),
        "$limit" | "$skip" => match value {
            Node::Integer(0..=QUERY_LIMIT_MAX) => Ok(()),
            _ => Err(format!("{name} is a whole number up to {QUERY_LIMIT_MAX}")),
        },
        "$count" => match value {
            Node::Text(text) if !text.starts_with('$') && !text.contains('.') => Ok(()),
            _ => Err("$count needs the name of a member".into()),
        },
        "$lookup" => join(value),
        "$unionWith" => union(value),
        "$facet" => match value {
            Node::Map(members) => members.iter().try_for_each(|(_, value)| pipeline(value)),
            _ => Err("$facet needs a pipeline for each member".into()),
        },
        name if STAGES.contains(&name) => expression(value),
        other => Err(not_on("stages", other)),
    }
}

/// `$lookup` reads another collection of the same database.
fn join(node: &Node) -> Checked {
    let Node::Map(members) = node else { return Err("$lookup needs a document".into()) };
    for (name, value) in members {
        match (name.as_str(), value) {
            ("from", Node::Text(from)) => collection(from)?,
            ("localField" | "foreignField" | "as", Node::Text(_)) => {}
            ("let", value) => expression(value)?,
            ("pipeline", value) => pipeline(value)?,
            _ => return Err(format!("$lookup has no \"{name}\" of that kind; it reads the same database only")),
        }
    }
    match members.iter().any(|(name, _)| name == "from") {
        true => Ok(()),
        false => Err("$lookup needs \"from\"".into()),
    }
}

fn union(node: &Node) -> Checked {
    match node {
        Node::Text(name) => collection(name),
        Node::Map(members) => members.iter().try_for_each(|(name, value)| match (name.as_str(), value) {
            ("coll", Node::Text(name)) => collection(name),
            ("pipeline", value) => pipeline(value),
            _ => Err("$unionWith has \"coll\" and \"pipeline\"".into()),
        }),
        _ => Err("$unionWith needs a collection".into()),
    }
}

fn not_on(list: &str, name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    format!("\"{name}\" is not on the list of {list}, all of which only read")
}
