//! A tool's types as an owned tree: what schemas, conversions and comparisons walk.

use std::fmt;

use serde::{Deserialize, Serialize};
use wit_parser::{Docs, Resolve, Type, TypeDefKind};

/// How deep a type may nest; deeper JSON is beyond what a model writes correctly.
pub const TYPE_DEPTH_MAX: usize = 32;
/// Types in one tool's signature: a few shared records can spell out an exponential tree.
pub const TYPE_NODES_MAX: usize = 4_096;
/// Bytes of one doc text that a model is shown.
const DOCS_BYTES_MAX: usize = 4_096;

/// A type and what its author says about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitType {
    /// Its form.
    pub kind: WitKind,
    /// The docs of the named type, if it has a name and docs.
    pub docs: Option<String>,
}

/// The form of a type. `list<u8>` is its own case because its JSON form is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WitKind {
    /// `bool`
    Bool,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
    /// `s8`
    S8,
    /// `s16`
    S16,
    /// `s32`
    S32,
    /// `s64`
    S64,
    /// `f32`
    F32,
    /// `f64`
    F64,
    /// `char`
    Char,
    /// `string`
    String,
    /// `list<u8>`
    Bytes,
    /// `list<…>`
    List(Box<WitType>),
    /// `option<…>`
    Option(Box<WitType>),
    /// `result<…, …>`
    Result(Option<Box<WitType>>, Option<Box<WitType>>),
    /// `tuple<…>`
    Tuple(Vec<WitType>),
    /// `record { … }`
    Record(Vec<WitField>),
    /// `variant { … }`
    Variant(Vec<WitCase>),
    /// `enum { … }`
    Enum(Vec<WitLabel>),
    /// `flags { … }`
    Flags(Vec<WitLabel>),
}

/// A field of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitField {
    /// Its WIT name.
    pub name: String,
    /// Its docs.
    pub docs: Option<String>,
    /// Its type.
    pub ty: WitType,
}

/// A case of a variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitCase {
    /// Its WIT name.
    pub name: String,
    /// Its docs.
    pub docs: Option<String>,
    /// What it carries.
    pub ty: Option<WitType>,
}

/// A case of an enum, or a flag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitLabel {
    /// Its WIT name.
    pub name: String,
    /// Its docs.
    pub docs: Option<String>,
}

impl WitType {
    /// Whether a property of this type may be left out.
    #[must_use]
    pub const fn is_option(&self) -> bool {
        matches!(self.kind, WitKind::Option(_))
    }
}

/// The WIT form of the structure, without docs and type names; equal texts are equal types.
impl fmt::Display for WitType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            WitKind::Bool => f.write_str("bool"),
            WitKind::U8 => f.write_str("u8"),
            WitKind::U16 => f.write_str("u16"),
            WitKind::U32 => f.write_str("u32"),
            WitKind::U64 => f.write_str("u64"),
            WitKind::S8 => f.write_str("s8"),
            WitKind::S16 => f.write_str("s16"),
            WitKind::S32 => f.write_str("s32"),
            WitKind::S64 => f.write_str("s64"),
            WitKind::F32 => f.write_str("f32"),
            WitKind::F64 => f.write_str("f64"),
            WitKind::Char => f.write_str("char"),
            WitKind::String => f.write_str("string"),
            WitKind::Bytes => f.write_str("list<u8>"),
            WitKind::List(item) => write!(f, "list<{item}>"),
            WitKind::Option(item) => write!(f, "option<{item}>"),
            WitKind::Result(ok, err) => write_result(f, ok.as_deref(), err.as_deref()),
            WitKind::Tuple(items) => write_all(f, "tuple<", items, ">"),
            WitKind::Record(fields) => write_all(f, "record { ", fields, " }"),
            WitKind::Variant(cases) => write_all(f, "variant { ", cases, " }"),
            WitKind::Enum(labels) => write_all(f, "enum { ", labels, " }"),
            WitKind::Flags(labels) => write_all(f, "flags { ", labels, " }"),
        }
    }
}

impl fmt::Display for WitField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)
    }
}

impl fmt::Display for WitCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ty {
            Some(ty) => write!(f, "{}({ty})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl fmt::Display for WitLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn write_all<T: fmt::Display>(f: &mut fmt::Formatter<'_>, open: &str, items: &[T], close: &str) -> fmt::Result {
    f.write_str(open)?;
    for (index, item) in items.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}{item}")?;
    }
    f.write_str(close)
}

fn write_result(f: &mut fmt::Formatter<'_>, ok: Option<&WitType>, err: Option<&WitType>) -> fmt::Result {
    match (ok, err) {
        (None, None) => f.write_str("result"),
        (Some(ok), None) => write!(f, "result<{ok}>"),
        (None, Some(err)) => write!(f, "result<_, {err}>"),
        (Some(ok), Some(err)) => write!(f, "result<{ok}, {err}>"),
    }
}

/// Builds trees for one signature, within [`TYPE_NODES_MAX`].
pub(super) struct Reader<'a> {
    resolve: &'a Resolve,
    nodes: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(resolve: &'a Resolve) -> Self {
        Self { resolve, nodes: 0 }
    }

    /// The tree of `ty`, or why it has no JSON form.
    pub(super) fn read(&mut self, ty: &Type) -> Result<WitType, String> {
        self.at(ty, 0)
    }

    fn at(&mut self, ty: &Type, depth: usize) -> Result<WitType, String> {
        self.nodes += 1;
        if self.nodes > TYPE_NODES_MAX {
            return Err(format!(
                "its types spelt out have more than {TYPE_NODES_MAX} parts (limit type-parts); make them smaller"
            ));
        }
        if depth > TYPE_DEPTH_MAX {
            return Err(format!("its types nest deeper than {TYPE_DEPTH_MAX} (limit type-depth); flatten them"));
        }
        let plain = |kind| Ok(WitType { kind, docs: None });
        match ty {
            Type::Bool => plain(WitKind::Bool),
            Type::U8 => plain(WitKind::U8),
            Type::U16 => plain(WitKind::U16),
            Type::U32 => plain(WitKind::U32),
            Type::U64 => plain(WitKind::U64),
            Type::S8 => plain(WitKind::S8),
            Type::S16 => plain(WitKind::S16),
            Type::S32 => plain(WitKind::S32),
            Type::S64 => plain(WitKind::S64),
            Type::F32 => plain(WitKind::F32),
            Type::F64 => plain(WitKind::F64),
            Type::Char => plain(WitKind::Char),
            Type::String => plain(WitKind::String),
            Type::ErrorContext => Err(no_json("error-context")),
            Type::Id(id) => {
                let def = &self.resolve.types[*id];
                let mut ty = self.defined(&def.kind, depth + 1)?;
                ty.docs = docs(&def.docs).or(ty.docs);
                Ok(ty)
            }
        }
    }

    fn defined(&mut self, kind: &TypeDefKind, depth: usize) -> Result<WitType, String> {
        let kind = match kind {
            TypeDefKind::Type(ty) => return self.at(ty, depth),
            TypeDefKind::List(Type::U8) => WitKind::Bytes,
            TypeDefKind::List(item) => self.list(item, depth)?,
            TypeDefKind::Option(item) => self.option(item, depth)?,
            TypeDefKind::Result(result) => {
                WitKind::Result(self.boxed(result.ok.as_ref(), depth)?, self.boxed(result.err.as_ref(), depth)?)
            }
            TypeDefKind::Tuple(tuple) => {
                WitKind::Tuple(tuple.types.iter().map(|ty| self.at(ty, depth)).collect::<Result<_, _>>()?)
            }
            TypeDefKind::Record(record) => self.record(record, depth)?,
            TypeDefKind::Variant(variant) => self.variant(variant, depth)?,
            TypeDefKind::Enum(cases) => WitKind::Enum(labels(cases.cases.iter().map(|c| (&c.name, &c.docs)))),
            TypeDefKind::Flags(flags) => WitKind::Flags(labels(flags.flags.iter().map(|c| (&c.name, &c.docs)))),
            other => return Err(no_json(other.as_str())),
        };
        Ok(WitType { kind, docs: None })
    }

    /// An alias of `u8` makes a byte list as well.
    fn list(&mut self, item: &Type, depth: usize) -> Result<WitKind, String> {
        let item = self.at(item, depth)?;
        Ok(match item.kind {
            WitKind::U8 => WitKind::Bytes,
            _ => WitKind::List(Box::new(item)),
        })
    }

    fn option(&mut self, item: &Type, depth: usize) -> Result<WitKind, String> {
        let item = self.at(item, depth)?;
        if item.is_option() {
            return Err("an option of an option has no JSON form: null could be either; use a variant".into());
        }
        Ok(WitKind::Option(Box::new(item)))
    }

    fn record(&mut self, record: &wit_parser::Record, depth: usize) -> Result<WitKind, String> {
        let fields = record.fields.iter().map(|field| {
            Ok(WitField { name: field.name.clone(), docs: docs(&field.docs), ty: self.at(&field.ty, depth)? })
        });
        fields.collect::<Result<_, String>>().map(WitKind::Record)
    }

    fn variant(&mut self, variant: &wit_parser::Variant, depth: usize) -> Result<WitKind, String> {
        let cases = variant.cases.iter().map(|case| {
            Ok(WitCase {
                name: case.name.clone(),
                docs: docs(&case.docs),
                ty: case.ty.map(|ty| self.at(&ty, depth)).transpose()?,
            })
        });
        cases.collect::<Result<_, String>>().map(WitKind::Variant)
    }

    fn boxed(&mut self, ty: Option<&Type>, depth: usize) -> Result<Option<Box<WitType>>, String> {
        ty.map(|ty| self.at(ty, depth).map(Box::new)).transpose()
    }
}

fn no_json(what: &str) -> String {
    format!("a {what} has no JSON form; tools take and return plain values")
}

fn labels<'a>(cases: impl Iterator<Item = (&'a String, &'a Docs)>) -> Vec<WitLabel> {
    cases.map(|(name, text)| WitLabel { name: name.clone(), docs: docs(text) }).collect()
}

/// A doc text as a model may see it: no control, formatting or invisible characters, bounded.
pub(super) fn docs(docs: &Docs) -> Option<String> {
    let text = docs.contents.as_deref()?.trim();
    let mut shown = String::new();
    for c in text.chars().filter(|c| !is_hidden(*c)) {
        if shown.len() + c.len_utf8() > DOCS_BYTES_MAX {
            break;
        }
        shown.push(c);
    }
    (!shown.is_empty()).then_some(shown)
}

/// Characters that make a text read otherwise than it is stored: a reviewer must see what a model sees.
fn is_hidden(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}
