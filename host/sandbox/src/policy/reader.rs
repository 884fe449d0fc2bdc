//! Reads TOML tables key by key, so that every error has a file, a line and a key.

use toml::de::{DeTable, DeValue};

use super::{PolicyError, PolicyErrors};

/// Collects errors.
pub(super) struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    errors: Vec<PolicyError>,
}

/// A table of the file and its name.
#[derive(Clone)]
pub(super) struct Table<'a> {
    pub(super) path: String,
    pub(super) line: usize,
    entries: &'a DeTable<'a>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, errors: Vec::new() }
    }

    /// Counted from 1.
    fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    pub(super) fn error(&mut self, line: usize, key: &str, message: impl Into<String>) {
        self.errors.push(PolicyError { file: self.file.into(), line, key: key.into(), message: message.into() });
    }

    pub(super) fn syntax(&mut self, error: &toml::de::Error) {
        let line = error.span().map_or(1, |span| self.line(span.start));
        self.error(line, "syntax", error.message().trim());
    }

    pub(super) fn finish<T>(mut self, value: T) -> Result<T, PolicyErrors> {
        if self.errors.is_empty() {
            return Ok(value);
        }
        self.errors.sort_by_key(|error| error.line);
        Err(PolicyErrors(self.errors))
    }

    pub(super) const fn root(entries: &'a DeTable<'a>) -> Table<'a> {
        Table { path: String::new(), line: 1, entries }
    }

    /// Reports every key that is not known, or that belongs to a later version.
    pub(super) fn only(&mut self, table: &Table<'a>, known: &[&str], later: &[&str]) {
        for key in table.entries.keys() {
            let name = key.get_ref().as_ref();
            let (line, path) = (self.line(key.span().start), table.key(name));
            if later.contains(&name) {
                self.error(line, &path, "not in this version; nothing is granted while a policy asks for what cannot be enforced, so take it out");
            } else if !known.contains(&name) {
                let known = known.join(", ");
                self.error(line, &path, format!("unknown key; known here: {known}"));
            }
        }
    }

    /// The value of a key and its line.
    pub(super) fn get(&self, table: &Table<'a>, key: &str) -> Option<(&'a DeValue<'a>, usize)> {
        let (name, value) = table.entries.iter().find(|(name, _)| name.get_ref().as_ref() == key)?;
        Some((value.get_ref(), self.line(name.span().start)))
    }

    fn typed<T>(
        &mut self,
        table: &Table<'a>,
        key: &str,
        asked: &str,
        take: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<T> {
        let (value, line) = self.get(table, key)?;
        let taken = take(value);
        if taken.is_none() {
            let given = value.type_str();
            self.error(line, &table.key(key), format!("expected {asked}, got {given}"));
        }
        taken
    }

    pub(super) fn string(&mut self, table: &Table<'a>, key: &str) -> Option<&'a str> {
        self.typed(table, key, "a string", DeValue::as_str)
    }

    pub(super) fn boolean(&mut self, table: &Table<'a>, key: &str) -> Option<bool> {
        self.typed(table, key, "true or false", DeValue::as_bool)
    }

    pub(super) fn strings(&mut self, table: &Table<'a>, key: &str) -> Option<Vec<String>> {
        self.typed(table, key, "a list of strings", |value| {
            let items = value.as_array()?.iter();
            items.map(|item| item.get_ref().as_str().map(str::to_owned)).collect()
        })
    }

    pub(super) fn table(&mut self, table: &Table<'a>, key: &str) -> Option<Table<'a>> {
        let line = self.get(table, key)?.1;
        let entries = self.typed(table, key, "a table", DeValue::as_table)?;
        Some(Table { path: table.key(key), line, entries })
    }

    /// The keys of a table.
    pub(super) fn keys(&self, table: &Table<'a>) -> Vec<String> {
        table.entries.keys().map(|key| key.get_ref().as_ref().to_owned()).collect()
    }

    /// The tables in a table, each with its key.
    pub(super) fn tables(&mut self, table: &Table<'a>) -> Vec<(String, Table<'a>)> {
        let names: Vec<&str> = table.entries.keys().map(|key| key.get_ref().as_ref()).collect();
        names.into_iter().filter_map(|name| Some((name.to_owned(), self.table(table, name)?))).collect()
    }

    /// The tables of `[[key]]`.
    pub(super) fn list(&mut self, table: &Table<'a>, key: &str) -> Vec<Table<'a>> {
        let asked = format!("one or more [[{key}]] tables");
        let found = self.typed(table, key, &asked, |value| {
            let items = value.as_array()?.iter();
            items.map(|item| Some((item.get_ref().as_table()?, item.span().start))).collect::<Option<Vec<_>>>()
        });
        let tables = found.unwrap_or_default().into_iter();
        tables.map(|(entries, offset)| Table { path: key.to_owned(), line: self.line(offset), entries }).collect()
    }

    /// A string, or a list of strings.
    pub(super) fn one_or_more(&mut self, table: &Table<'a>, key: &str) -> Vec<String> {
        let found = self.typed(table, key, "a string or a list of strings", |value| match value.as_str() {
            Some(one) => Some(vec![one.to_owned()]),
            None => value.as_array()?.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect(),
        });
        found.unwrap_or_default()
    }

    /// The line of a key, or of its table when it is not there.
    pub(super) fn line_of(&self, table: &Table<'a>, key: &str) -> usize {
        self.get(table, key).map_or(table.line, |(_, line)| line)
    }

    /// Reports a key whose value cannot be used.
    pub(super) fn bad(&mut self, table: &Table<'a>, key: &str, message: impl Into<String>) {
        let line = self.line_of(table, key);
        self.error(line, &table.key(key), message);
    }
}

impl Table<'_> {
    /// The key's full name.
    pub(super) fn key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}
