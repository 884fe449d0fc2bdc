//! The custom sections that a component carries, wherever a tool chain has put them.

use wasmparser::{CustomSectionReader, KnownCustom, Parser, Payload};

use super::LoadError;

/// The custom section of the contract.
pub const CONTRACT_SECTION: &str = "oncegate:contract";
/// The custom section of the WIT text.
pub const WIT_SECTION: &str = "oncegate:wit";
/// Bytes of one such section: a text that a person wrote and another one reads.
pub const SECTION_BYTES_MAX: usize = 256 * 1024;
/// Producers that are kept; a report has no use for more.
const PRODUCERS_MAX: usize = 32;

/// What the sections say.
#[derive(Debug, Default)]
pub(super) struct Sections {
    /// The contract's text.
    pub(super) contract: Option<String>,
    /// The WIT text.
    pub(super) wit: Option<String>,
    /// See [`super::Description::producers`].
    pub(super) producers: Vec<(String, String)>,
}

/// Reads the sections at every nesting depth: a linker leaves a static's section in the core module
/// inside the component, `oncegate pack` puts it at the top.
pub(super) fn read(bytes: &[u8]) -> Result<Sections, LoadError> {
    let mut contracts = Vec::new();
    let mut texts = Vec::new();
    let mut producers = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| LoadError::Invalid { message: error.to_string() })?;
        if let Payload::CustomSection(section) = payload {
            match section.name() {
                CONTRACT_SECTION => contracts.push(section.data()),
                WIT_SECTION => texts.push(section.data()),
                "producers" => note_producers(&section, &mut producers),
                _ => {}
            }
        }
    }
    Ok(Sections { contract: only(CONTRACT_SECTION, &contracts)?, wit: only(WIT_SECTION, &texts)?, producers })
}

fn only(section: &'static str, found: &[&[u8]]) -> Result<Option<String>, LoadError> {
    let data = match found {
        [] => return Ok(None),
        [data] => *data,
        _ => {
            return Err(LoadError::SectionTwice { section, count: found.len() });
        }
    };
    if data.len() > SECTION_BYTES_MAX {
        return Err(LoadError::SectionTooLarge { section, size: data.len() });
    }
    match std::str::from_utf8(data) {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(LoadError::SectionNotText { section }),
    }
}

/// A malformed producers section is skipped: it says nothing that matters.
fn note_producers(section: &CustomSectionReader<'_>, producers: &mut Vec<(String, String)>) {
    let KnownCustom::Producers(fields) = section.as_known() else {
        return;
    };
    for field in fields.into_iter().flatten() {
        for value in field.values.into_iter().flatten() {
            let made_by = format!("{} {}", value.name, value.version);
            let entry = (
                oncegate_contract::safe_text(field.name),
                made_by.trim().split(' ').map(oncegate_contract::safe_text).collect::<Vec<_>>().join(" "),
            );
            if producers.len() < PRODUCERS_MAX && !producers.contains(&entry) {
                producers.push(entry);
            }
        }
    }
}
