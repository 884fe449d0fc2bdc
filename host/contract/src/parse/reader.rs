//! Reading TOML tables key by key: each value with its line, each error kept, no key left unread.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::ContractError;
use crate::limits::{ERRORS_MAX, NAME_BYTES_MAX};

/// One contract text while it is read.
pub(super) struct Source<'a> {
    file: &'a str,
    line_starts: Vec<usize>,
    errors: RefCell<Vec<ContractError>>,
    lines: RefCell<BTreeMap<String, usize>>,
    partial: RefCell<BTreeSet<String>>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        Self {
            file,
            line_starts: std::iter::once(0).chain(breaks).collect(),
            errors: RefCell::default(),
            lines: RefCell::default(),
            partial: RefCell::default(),
        }
    }

    pub(super) fn line_at(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset).max(1)
    }

    pub(super) fn error(&self, line: usize, key: &str, message: impl Into<String>) {
        let mut errors = self.errors.borrow_mut();
        if errors.len() < ERRORS_MAX {
            errors.push(ContractError {
                file: self.file.to_owned(),
                line,
                key: key.to_owned(),
                message: message.into(),
            });
        }
    }

    /// Reports at a key that was read before.
    pub(super) fn error_at(&self, key: &str, message: impl Into<String>) {
        let line = self.line_of(key);
        self.error(line, key, message);
    }

    fn line_of(&self, key: &str) -> usize {
        let lines = self.lines.borrow();
        let mut at = key;
        loop {
            match (lines.get(at), at.rfind(['.', '['])) {
                (Some(line), _) => return *line,
                (None, Some(end)) => at = at.get(..end).unwrap_or_default(),
                (None, None) => return 1,
            }
        }
    }

    /// Whether a key was written, readable or not.
    pub(super) fn has(&self, path: &str) -> bool {
        self.lines.borrow().contains_key(path)
    }

    pub(super) fn error_count(&self) -> usize {
        self.errors.borrow().len()
    }

    /// Notes a list of which some entries could not be read: what is absent from it is no new error.
    pub(super) fn note_partial(&self, path: &str) {
        self.partial.borrow_mut().insert(path.to_owned());
    }

    pub(super) fn is_partial(&self, path: &str) -> bool {
        self.partial.borrow().contains(path)
    }

    pub(super) fn finish(self) -> (Vec<ContractError>, BTreeMap<String, usize>) {
        (self.errors.into_inner(), self.lines.into_inner())
    }
}

/// A value with the path of its key.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) path: String,
    pub(super) value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Item<'a> {
    pub(super) fn error(&self, message: impl Into<String>) {
        self.source.error(self.source.line_at(self.value.span().start), &self.path, message);
    }

    fn wrong_type(&self, wanted: &str) {
        self.error(format!("expected {wanted}, found {}", self.value.get_ref().type_str()));
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        let text = self.value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type("a string");
        }
        text
    }

    pub(super) fn integer(&self) -> Option<i64> {
        let number = self.value.get_ref().as_integer().map(|n| i64::from_str_radix(n.as_str(), n.radix()));
        match number {
            Some(Ok(number)) => Some(number),
            Some(Err(_)) => {
                self.error("the number is too large");
                None
            }
            None => {
                self.wrong_type("a whole number");
                None
            }
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        let truth = self.value.get_ref().as_bool();
        if truth.is_none() {
            self.wrong_type("true or false");
        }
        truth
    }

    pub(super) fn table(&self) -> Option<Table<'a>> {
        match self.value.get_ref() {
            DeValue::Table(table) => Some(Table::new(self.source, self.path.clone(), table, self.value.span().start)),
            _ => {
                self.wrong_type("a table");
                None
            }
        }
    }

    /// The elements of a list; a single value is not a list.
    pub(super) fn list(&self) -> Vec<Item<'a>> {
        match self.value.get_ref() {
            DeValue::Array(elements) => self.elements(elements),
            _ => {
                self.wrong_type("a list");
                Vec::new()
            }
        }
    }

    /// The elements of a list, or the single value.
    pub(super) fn one_or_many(&self) -> Vec<Item<'a>> {
        match self.value.get_ref() {
            DeValue::Array(elements) => self.elements(elements),
            _ => vec![self.clone()],
        }
    }

    fn elements(&self, elements: &'a toml::de::DeArray<'a>) -> Vec<Item<'a>> {
        let item = |(i, value): (usize, &'a Spanned<DeValue<'a>>)| {
            let path = format!("{}[{i}]", self.path);
            let line = self.source.line_at(value.span().start);
            self.source.lines.borrow_mut().insert(path.clone(), line);
            Item { source: self.source, path, value }
        };
        elements.iter().enumerate().map(item).collect()
    }

    /// Parses the text by a function whose error becomes an error of the contract.
    pub(super) fn parsed<T>(&self, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match parse(self.text()?) {
            Ok(value) => Some(value),
            Err(message) => {
                self.error(message);
                None
            }
        }
    }

    /// One word of a closed list.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.error(format!("\"{}\" is not one of: {}", short(text), known.join(", ")));
        }
        found
    }

    pub(super) fn slug(&self) -> Option<String> {
        self.parsed(|text| slug(text).map(str::to_owned))
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        self.parsed(super::duration::parse)
    }
}

/// Text of a contract, short enough to repeat in an error.
pub(super) fn short(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(60).collect()
}

/// Lower-case words joined by `-`.
pub(super) fn slug(text: &str) -> Result<&str, String> {
    let word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if starts && text.len() <= NAME_BYTES_MAX && text.split('-').all(word) {
        Ok(text)
    } else {
        Err(format!(
            "\"{}\" is not a name: lower-case letters and digits in words joined by \"-\", beginning with a letter, at \
             most {NAME_BYTES_MAX}",
            short(text)
        ))
    }
}

/// A table of which every key must be asked for.
pub(super) struct Table<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) path: String,
    pub(super) line: usize,
    table: &'a DeTable<'a>,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    pub(super) fn new(source: &'a Source<'a>, path: String, table: &'a DeTable<'a>, start: usize) -> Self {
        let line = source.line_at(start);
        source.lines.borrow_mut().entry(path.clone()).or_insert(line);
        Self { source, path, line, table, asked: RefCell::default() }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn item(&self, key: &Spanned<std::borrow::Cow<'a, str>>, value: &'a Spanned<DeValue<'a>>) -> Item<'a> {
        let path = self.path_of(&short(key.get_ref()));
        let line = self.source.line_at(key.span().start);
        self.source.lines.borrow_mut().insert(path.clone(), line);
        Item { source: self.source, path, value }
    }

    /// The value of a key, if it is there.
    pub(super) fn get(&self, key: &'static str) -> Option<Item<'a>> {
        self.asked.borrow_mut().push(key);
        self.table.iter().find(|(k, _)| k.get_ref() == key).map(|(k, v)| self.item(k, v))
    }

    /// The value of a key that must be there.
    pub(super) fn need(&self, key: &'static str) -> Option<Item<'a>> {
        let item = self.get(key);
        if item.is_none() {
            self.error(format!("\"{key}\" is missing"));
        }
        item
    }

    pub(super) fn error(&self, message: impl Into<String>) {
        self.source.error(self.line, &self.path, message);
    }

    /// Every entry, for tables whose keys are the author's names.
    pub(super) fn entries(&self) -> Vec<(String, Item<'a>)> {
        self.table.iter().map(|(k, v)| (k.get_ref().to_string(), self.item(k, v))).collect()
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(&self) {
        let asked = self.asked.borrow();
        for (key, value) in self.table {
            if !asked.contains(&key.get_ref().as_ref()) {
                let mut known = asked.clone();
                known.sort_unstable();
                self.item(key, value);
                let line = self.source.line_at(key.span().start);
                let message = format!("unknown key; known here: {}", known.join(", "));
                self.source.error(line, &self.path_of(&short(key.get_ref())), message);
            }
        }
    }
}
