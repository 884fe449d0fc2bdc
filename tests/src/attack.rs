//! Hostile guests as small text files: each says what it attacks and what must come of it, and holds a core module
//! without its frame, or a whole component.
//!
//! The lines at the top of a file, after `;; `:
//! - `Attacks:` and `Must:` are for people;
//! - `expect:` what the test checks, as `key=value` words (a value with spaces in quotation marks);
//! - `uses:` parts of the frame: `realloc`, `reads`, `acts` (all, where the line is missing);
//! - `memory:` pages that the memory begins with;
//! - `contract:`, `wit:`, `text:` other files than `acts`, `tools` and the `wit` itself: contract, types, and the text
//!   that the component carries about its types;
//! - `sections:` which custom sections it carries: `contract`, `wit`, `broken` (no UTF-8), `huge` (a megabyte),
//!   `full` and `overfull` (as large as one may be, and a byte more);
//! - `make:` what becomes of the file: `cut N` keeps N bytes, `pad N` grows it to N, `module` leaves the core module;
//! - `policy: silent` where the policy does not name the component;
//! - `limits:` lines of the policy's `[limits]`, separated by `;`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use oncegate_sandbox::describe::{BUILT_IN_WIT, CONTRACT_SECTION, SECTION_BYTES_MAX, WIT_SECTION};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, SourceMap, UnresolvedPackageGroup};

use crate::harness::root;

/// One hostile guest.
#[derive(Clone, Debug)]
pub struct Attack {
    /// The file's name without `.wat`, and the component's.
    pub name: String,
    directives: BTreeMap<String, String>,
    body: String,
}

/// The folder of the files.
fn folder() -> PathBuf {
    root().join("tests/cases/hostile")
}

/// All of them, in the order of their names.
///
/// # Errors
/// A file cannot be read, or does not say what it attacks.
pub fn all() -> Result<Vec<Attack>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder().join("guests"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wat") {
            found.push(Attack::read(&path).with_context(|| path.display().to_string())?);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

impl Attack {
    /// The one of that name.
    ///
    /// # Errors
    /// As [`all`].
    pub fn named(name: &str) -> Result<Self> {
        Self::read(&folder().join("guests").join(format!("{name}.wat")))
    }

    fn read(path: &Path) -> Result<Self> {
        let name = path.file_stem().and_then(|name| name.to_str()).context("no name")?;
        Self::from_text(name, &fs::read_to_string(path)?)
    }

    /// One from the text of such a file.
    ///
    /// # Errors
    /// It does not say what it attacks.
    pub fn from_text(name: &str, text: &str) -> Result<Self> {
        let (head, body): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with(";; "));
        let directive = |line: &&str| {
            let (key, value) = line.trim_start_matches(";; ").split_once(": ")?;
            Some((key.to_owned(), value.to_owned()))
        };
        let directives: BTreeMap<String, String> = head.iter().filter_map(directive).collect();
        for key in ["Attacks", "Must", "expect"] {
            if !directives.contains_key(key) {
                bail!("the file has no line `;; {key}: …`");
            }
        }
        Ok(Self { name: name.to_owned(), directives, body: body.join("\n") })
    }

    fn directive(&self, key: &str) -> Option<&str> {
        self.directives.get(key).map(String::as_str)
    }

    /// The words of `expect:`.
    pub fn expects(&self) -> Vec<(String, String)> {
        words(self.directive("expect").unwrap_or_default())
    }

    /// What `expect:` says of this.
    pub fn expected(&self, key: &str) -> Option<String> {
        self.expects().into_iter().find_map(|(name, value)| (name == key).then_some(value))
    }

    /// Whether the policy names the component.
    pub fn is_named(&self) -> bool {
        self.directive("policy") != Some("silent")
    }

    /// Lines of a policy's `[limits]`.
    pub fn limits(&self) -> String {
        self.directive("limits").unwrap_or_default().replace("; ", "\n")
    }

    /// The contract, with the guest's own name in it.
    ///
    /// # Errors
    /// There is no such file.
    pub fn contract(&self) -> Result<String> {
        let file = format!("contracts/{}.toml", self.directive("contract").unwrap_or("acts"));
        Ok(part(&file)?.replace("\"NAME\"", &format!("\"{}\"", self.name)))
    }

    /// The component's bytes.
    ///
    /// # Errors
    /// The text does not assemble.
    pub fn component(&self) -> Result<Vec<u8>> {
        let is_component = self.body.trim_start().starts_with("(component");
        let bare = if is_component { wat::parse_str(&self.body)? } else { self.of_module()? };
        if self.directive("make") == Some("module") {
            return self.module();
        }
        let mut bytes = bare;
        for section in self.directive("sections").unwrap_or("contract wit").split(' ') {
            let (name, data) = match section {
                "contract" => (CONTRACT_SECTION, self.contract()?.into_bytes()),
                "full" => (CONTRACT_SECTION, full(self.contract()?, SECTION_BYTES_MAX)),
                "overfull" => (CONTRACT_SECTION, full(self.contract()?, SECTION_BYTES_MAX + 1)),
                "broken" => (CONTRACT_SECTION, vec![0xff, 0xfe]),
                "huge" => (CONTRACT_SECTION, vec![b'#'; 1 << 20]),
                "wit" => (WIT_SECTION, self.text()?.into_bytes()),
                other => bail!("no section {other}"),
            };
            bytes.extend(custom_section(name, &data));
        }
        if let Some((_, size)) = self.directive("make").and_then(|make| make.split_once(' ')) {
            bytes.resize(size.parse()?, 0);
        }
        Ok(bytes)
    }

    fn wit(&self) -> Result<String> {
        part(&format!("wit/{}.wit", self.directive("wit").unwrap_or("tools")))
    }

    fn text(&self) -> Result<String> {
        self.directive("text").map_or_else(|| self.wit(), |text| part(&format!("wit/{text}.wit")))
    }

    /// The core module: the frame's imports, the guest's, the frame, the guest.
    fn module(&self) -> Result<Vec<u8>> {
        let mut parts = vec![part("prelude/alone.wat")?];
        for name in self.directive("uses").unwrap_or("realloc reads acts").split(' ') {
            parts.push(part(&format!("prelude/{name}.wat"))?);
        }
        if let Some(pages) = self.directive("memory") {
            parts[0] = parts[0].replace("(export \"memory\") 2)", &format!("(export \"memory\") {pages})"));
        }
        parts.push(self.body.clone());
        let lines: Vec<&str> = parts.iter().flat_map(|part| part.lines()).collect();
        let (imports, rest): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(|line| line.starts_with("(import "));
        let text = format!("(module\n{}\n{}\n)", imports.join("\n"), rest.join("\n"));
        wat::parse_str(&text).with_context(|| self.name.clone())
    }

    fn of_module(&self) -> Result<Vec<u8>> {
        let mut module = self.module()?;
        // What it does not import is left out.
        let main = self.wit()?.replace("world tool {", &format!("world tool {{\n{}", part("wit/imports.part")?));
        let mut built_in = SourceMap::default();
        for (file, text) in BUILT_IN_WIT {
            built_in.push_str(file, text);
        }
        let built_in = built_in.parse().map_err(|(map, error)| anyhow::anyhow!(error.render(&map)))?;
        let group = |name: &str, text: &str| {
            let parsed = UnresolvedPackageGroup::parse(Path::new(name), text);
            parsed.map_err(|(map, error)| anyhow::anyhow!(error.render(&map)))
        };
        let mut resolve = Resolve::new();
        let package = resolve
            .push_groups(group("tool.wit", &main)?, vec![built_in, group("stubs.wit", &part("wit/stubs.wit")?)?]);
        let package = package.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        let world = *resolve.packages[package].worlds.values().next().context("no world")?;
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
        // What is wrong with it is for the host to find.
        ComponentEncoder::default().module(&module)?.validate(false).encode().with_context(|| self.name.clone())
    }
}

/// The contract with a comment behind it.
fn full(mut contract: String, size: usize) -> Vec<u8> {
    contract.push_str("\n#");
    let mut bytes = contract.into_bytes();
    bytes.resize(size, b'#');
    bytes
}

fn part(file: &str) -> Result<String> {
    let path = folder().join(file);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// `key=value` words; a value may stand in quotation marks.
fn words(line: &str) -> Vec<(String, String)> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while let Some(at) = rest.find(['=', '<']) {
        let key = rest[..at].trim().to_owned();
        let (bound, after) = match rest[at..].strip_prefix("<=") {
            Some(after) => ("<=", after),
            None => ("", &rest[at + 1..]),
        };
        let (value, left) = value(after);
        words.push((key, format!("{bound}{value}")));
        rest = left.trim_start();
    }
    words
}

fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(' ').unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            _ => value.push(c),
        }
    }
    (value, "")
}

fn custom_section(name: &str, data: &[u8]) -> Vec<u8> {
    let mut body = leb(name.len());
    body.extend(name.as_bytes());
    body.extend(data);
    [vec![0], leb(body.len()), body].concat()
}

fn leb(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_have_quotation_marks_and_bounds() {
        let told = words("status=done says=\"effect = \\\"none\\\"\" refund<=1 limit=x");
        let told: Vec<_> = told.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(told, [("status", "done"), ("says", "effect = \"none\""), ("refund", "<=1"), ("limit", "x")]);
    }
}
