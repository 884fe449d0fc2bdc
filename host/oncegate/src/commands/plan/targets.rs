//! Reading a list of targets: JSON, CSV, or what a tool that only reads returns.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use oncegate_contract::{Contract, Source, Value, ValueKind};
use oncegate_sandbox::describe::{ToolDescription, WitKind, WitType};
use oncegate_sandbox::plan::{Target, Unresolved};
use oncegate_sandbox::schema::property;
use serde_json::{Map, Value as Json};

use crate::exit::usage;
use crate::home;

/// Bytes of a list that are read: ten thousand targets of some kilobytes each.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Columns of a CSV list; a tool has far fewer properties.
const COLUMNS_MAX: usize = 1_000;
/// In front of a column or member that is a value of the plan's own.
const OWN: &str = "plan.";

/// A list as it was read, and the lines that cannot be.
#[derive(Debug, Default, PartialEq)]
pub(super) struct List {
    pub(super) targets: Vec<Target>,
    pub(super) unresolved: Vec<Unresolved>,
}

impl List {
    fn add(&mut self, place: String, target: Result<(Json, BTreeMap<String, Value>), String>) {
        match target {
            Ok((arguments, values)) => self.targets.push(Target { place, arguments, values }),
            Err(why) => self.unresolved.push(Unresolved { place, why }),
        }
    }
}

/// What a list may give: the tool's properties, and the fields that the contract takes from a plan.
pub(super) struct Reader {
    properties: BTreeMap<String, WitType>,
    fields: BTreeMap<String, ValueKind>,
}

impl Reader {
    pub(super) fn of(tool: &ToolDescription, contract: &Contract) -> Self {
        let spread = match &tool.params[..] {
            [(_, WitType { kind: WitKind::Record(fields), .. })] if tool.spread => Some(fields),
            _ => None,
        };
        let properties = match spread {
            Some(fields) => fields.iter().map(|field| (property(&field.name), field.ty.clone())).collect(),
            None => tool.params.iter().map(|(name, ty)| (property(name), ty.clone())).collect(),
        };
        let operations = tool.operations.iter().filter_map(|name| contract.operations.get(name));
        let fields = operations.flat_map(|operation| &operation.fields).filter(|field| field.source == Source::Plan);
        Self { properties, fields: fields.map(|field| (field.name.clone(), field.kind)).collect() }
    }

    pub(super) fn file(&self, path: &Path) -> anyhow::Result<List> {
        let text = home::read_text(path, "the list", LIST_BYTES_MAX)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let read = match path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) if extension.eq_ignore_ascii_case("csv") => self.csv(text),
            Some(extension) if extension.eq_ignore_ascii_case("json") => {
                serde_json::from_str(text).context("it is no JSON document").and_then(|list| self.json(&list))
            }
            _ => return Err(usage(format!("--targets {}: give a file named .json or .csv", path.display()))),
        };
        read.with_context(|| format!("the list {} cannot be used", path.display()))
    }

    /// A JSON array of targets.
    pub(super) fn json(&self, list: &Json) -> anyhow::Result<List> {
        let items = list.as_array().context("it is no array of targets")?;
        let mut read = List::default();
        for (index, item) in items.iter().enumerate() {
            read.add(format!("target {}", index + 1), self.item(item));
        }
        Ok(read)
    }

    fn item(&self, item: &Json) -> Result<(Json, BTreeMap<String, Value>), String> {
        let object = item.as_object().ok_or("it is no object with the tool's arguments")?;
        let arguments = object.get("arguments").filter(|_| !self.properties.contains_key("arguments"));
        let Some(arguments) = arguments else { return Ok((item.clone(), BTreeMap::new())) };
        if let Some(other) = object.keys().find(|name| *name != "arguments" && *name != "plan") {
            return Err(format!("beside `arguments` there may be `plan`, not `{other}`"));
        }
        let mut values = BTreeMap::new();
        match object.get("plan") {
            None | Some(Json::Null) => {}
            Some(Json::Object(own)) => {
                for (name, value) in own {
                    let kind = self.field(name)?;
                    values.extend(from_json(kind, value)?.map(|value| (name.clone(), value)));
                }
            }
            Some(_) => return Err("`plan` is no object".to_owned()),
        }
        Ok((arguments.clone(), values))
    }

    fn field(&self, name: &str) -> Result<ValueKind, String> {
        let known = self.fields.get(name).copied();
        known.ok_or_else(|| format!("the contract takes no field `{name}` of this tool from a plan"))
    }

    /// CSV whose first line names the columns.
    fn csv(&self, text: &str) -> anyhow::Result<List> {
        let mut records = records(text)?.into_iter();
        let columns = self.columns(&records.next().context("it has no header")?.1)?;
        let mut read = List::default();
        for (line, record) in records {
            // A line that does not have the header's cells shifts meaning: the whole list is in doubt.
            let (cells, wanted) = (record.len(), columns.len());
            anyhow::ensure!(cells == wanted, "line {line} has {cells} cells, and the header has {wanted}");
            let mut arguments = Map::new();
            let mut values = BTreeMap::new();
            let mut wrong = None;
            for (column, cell) in columns.iter().zip(&record) {
                let read = match column {
                    Column::Argument(name, ty) => {
                        argument(cell, ty).map(|value| arguments.extend(value.map(|value| (name.clone(), value))))
                    }
                    Column::Own(name, kind) => {
                        own(cell, *kind).map(|value| values.extend(value.map(|value| (name.clone(), value))))
                    }
                };
                if let Err(why) = read {
                    wrong = wrong.or(Some(format!("{}: {why}", column.name())));
                }
            }
            read.add(format!("line {line}"), wrong.map_or(Ok((arguments.into(), values)), Err));
        }
        Ok(read)
    }

    fn columns(&self, header: &[String]) -> anyhow::Result<Vec<Column>> {
        let mut columns: Vec<Column> = Vec::new();
        for name in header.iter().map(|name| name.trim()) {
            let column = match (self.properties.get(name), name.strip_prefix(OWN)) {
                (Some(ty), _) => Column::Argument(name.to_owned(), ty.clone()),
                (None, Some(field)) => Column::Own(field.to_owned(), self.field(field).map_err(anyhow::Error::msg)?),
                (None, None) => {
                    let known: Vec<_> = self.properties.keys().map(String::as_str).collect();
                    anyhow::bail!("the tool has no property `{name}`; it has {}", known.join(", "));
                }
            };
            anyhow::ensure!(
                !columns.iter().any(|one| one.name() == column.name()),
                "the column `{name}` is there twice"
            );
            columns.push(column);
        }
        Ok(columns)
    }
}

/// The records of a CSV text (RFC 4180), each with the line that it begins on; blank lines are none.
fn records(text: &str) -> anyhow::Result<Vec<(usize, Vec<String>)>> {
    let mut parser = csv_core::Reader::new();
    let mut input = text.as_bytes();
    let mut line = 1;
    let (mut cells, mut ends) = (vec![0; input.len() + 1], vec![0; COLUMNS_MAX]);
    let mut records = Vec::new();
    loop {
        let blank = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        line += lines(&input[..blank]);
        input = &input[blank..];
        let (begins, mut cells_used, mut ends_used) = (line, 0, 0);
        let more = loop {
            let (result, read, written, ended) =
                parser.read_record(input, &mut cells[cells_used..], &mut ends[ends_used..]);
            line += lines(&input[..read]);
            input = &input[read..];
            cells_used += written;
            ends_used += ended;
            match result {
                // The end of the input is told by asking once more.
                csv_core::ReadRecordResult::InputEmpty => {}
                csv_core::ReadRecordResult::Record => break true,
                csv_core::ReadRecordResult::End => break false,
                csv_core::ReadRecordResult::OutputFull | csv_core::ReadRecordResult::OutputEndsFull => {
                    anyhow::bail!("line {begins} has more than {COLUMNS_MAX} cells");
                }
            }
        };
        if !more {
            return Ok(records);
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let spans = starts.zip(ends.iter().copied()).take(ends_used);
        // Cells of a text that is UTF-8, cut at its commas and quotes, are UTF-8.
        let record = spans.map(|(from, to)| String::from_utf8_lossy(&cells[from..to]).into_owned()).collect();
        records.push((begins, record));
    }
}

fn lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

enum Column {
    Argument(String, WitType),
    Own(String, ValueKind),
}

impl Column {
    fn name(&self) -> String {
        match self {
            Self::Argument(name, _) => name.clone(),
            Self::Own(name, _) => format!("{OWN}{name}"),
        }
    }
}

/// A cell as the tool's type wants it; an empty one is absent where the property may be.
fn argument(cell: &str, ty: &WitType) -> Result<Option<Json>, String> {
    let number = |json: Option<Json>, what: &str| json.map(Some).ok_or_else(|| format!("this is no {what}"));
    match &ty.kind {
        WitKind::Option(_) if cell.is_empty() => Ok(None),
        WitKind::Option(inner) => argument(cell, inner),
        WitKind::String | WitKind::Char | WitKind::Bytes | WitKind::Enum(_) => Ok(Some(cell.into())),
        WitKind::Bool => match cell {
            "true" => Ok(Some(true.into())),
            "false" => Ok(Some(false.into())),
            _ => Err("this is neither true nor false".to_owned()),
        },
        WitKind::U8 | WitKind::U16 | WitKind::U32 | WitKind::U64 => {
            number(cell.parse::<u64>().ok().map(Json::from), "whole number from 0")
        }
        WitKind::S8 | WitKind::S16 | WitKind::S32 | WitKind::S64 => {
            number(cell.parse::<i64>().ok().map(Json::from), "whole number")
        }
        WitKind::F32 | WitKind::F64 => number(cell.parse::<f64>().ok().map(Json::from), "number"),
        _ => serde_json::from_str(cell).map(Some).map_err(|error| format!("this is no JSON: {error}")),
    }
}

/// A cell as the contract's field wants it; an empty one is absent.
fn own(cell: &str, kind: ValueKind) -> Result<Option<Value>, String> {
    match kind {
        _ if cell.is_empty() => Ok(None),
        ValueKind::Json => {
            serde_json::from_str(cell).map(|json| Some(Value::Json(json))).map_err(|error| format!("no JSON: {error}"))
        }
        kind => from_json(kind, &cell.into()),
    }
}

/// A JSON value as the contract's field wants it.
fn from_json(kind: ValueKind, json: &Json) -> Result<Option<Value>, String> {
    use base64::Engine;
    match (kind, json) {
        (_, Json::Null) => Ok(None),
        (ValueKind::Json, _) => Ok(Some(Value::Json(json.clone()))),
        (ValueKind::Bytes, Json::String(text)) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            bytes.map(|bytes| Some(Value::Bytes(bytes))).map_err(|error| format!("this is no base64: {error}"))
        }
        // Everything else is read as text or number, and typed by the contract.
        _ => Value::from_json(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reader() -> Reader {
        let ty = |kind| WitType { docs: None, kind };
        let option = |kind| ty(WitKind::Option(Box::new(ty(kind))));
        let properties = BTreeMap::from([
            ("to".to_owned(), ty(WitKind::String)),
            ("count".to_owned(), ty(WitKind::U32)),
            ("note".to_owned(), option(WitKind::String)),
            ("tags".to_owned(), ty(WitKind::List(Box::new(ty(WitKind::String))))),
        ]);
        Reader { properties, fields: BTreeMap::from([("amount".to_owned(), ValueKind::Integer)]) }
    }

    fn target(place: &str, arguments: Json, amount: Option<Value>) -> Target {
        let values = amount.map(|amount| ("amount".to_owned(), amount)).into_iter().collect();
        Target { place: place.to_owned(), arguments, values }
    }

    #[test]
    fn cells_become_what_the_tool_takes() {
        let text = "to,count,note,tags,plan.amount\n\
                    \"Zoë, \"\"Z\"\"\",7,,\"[\"\"a\"\", \"\"b\"\"]\",4200\n\
                    \"two\nlines\",0,x,[],\n";
        let read = reader().csv(text).unwrap();
        assert_eq!(read.unresolved, []);
        assert_eq!(
            read.targets,
            [
                target(
                    "line 2",
                    json!({ "to": "Zoë, \"Z\"", "count": 7, "tags": ["a", "b"] }),
                    Some(Value::Text("4200".to_owned()))
                ),
                target("line 3", json!({ "to": "two\nlines", "count": 0, "note": "x", "tags": [] }), None),
            ]
        );
    }

    #[test]
    fn every_line_that_cannot_be_read_is_named() {
        let read = reader().csv("to,count,tags\na,1.5,[]\nb,2,[]\nc,3,no\n").unwrap();
        assert_eq!(read.targets.len(), 1);
        let places: Vec<_> = read.unresolved.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, ["line 2", "line 4"]);
        assert!(read.unresolved[0].why.starts_with("count: "), "{:?}", read.unresolved);
    }

    #[test]
    fn a_header_names_what_there_is_once() {
        for (header, part) in
            [("to,colour\n", "no property `colour`"), ("to,to\n", "twice"), ("to,plan.colour\n", "no field `colour`")]
        {
            let error = reader().csv(header).unwrap_err().to_string();
            assert!(error.contains(part), "{header}: {error}");
        }
        assert!(reader().csv("to,count\na\n").is_err(), "a short line is no target");
    }

    #[test]
    fn json_targets_may_carry_the_plans_values() {
        let list = json!([{ "to": "a" }, { "arguments": { "to": "b" }, "plan": { "amount": 5 } }, { "arguments": {}, "x": 1 }, 7]);
        let read = reader().json(&list).unwrap();
        assert_eq!(
            read.targets,
            [
                target("target 1", json!({ "to": "a" }), None),
                target("target 2", json!({ "to": "b" }), Some(Value::Integer(5)))
            ]
        );
        assert_eq!(read.unresolved.len(), 2);
    }
}
