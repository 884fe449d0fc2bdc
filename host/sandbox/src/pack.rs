//! Puts a contract and a WIT text into a component that a tool chain made without them.

use std::io::Read;
use std::path::Path;

use wasm_encoder::{ComponentSection, CustomSection};
use wit_component::WitPrinter;
use wit_parser::{Resolve, SourceMap};

use crate::describe::{BUILT_IN_WIT, CONTRACT_SECTION, Description, LoadError, SECTION_BYTES_MAX, WIT_SECTION};

/// The component with both custom sections at its end.
///
/// # Errors
/// If it already carries one of them, or if the outcome is not a component that
/// [`Description::read`] accepts: what comes out loads.
pub fn pack(component: &[u8], contract_text: &str, wit_text: &str) -> Result<Vec<u8>, LoadError> {
    let mut packed = component.to_vec();
    for (name, text) in [(CONTRACT_SECTION, contract_text), (WIT_SECTION, wit_text)] {
        if text.len() > SECTION_BYTES_MAX {
            return Err(LoadError::SectionTooLarge { section: name, size: text.len() });
        }
        let section = CustomSection { name: name.into(), data: text.as_bytes().into() };
        section.append_to_component(&mut packed);
    }
    Description::read(&packed)?;
    Ok(packed)
}

/// One WIT text from a directory of `.wit` files and its `deps`, docs included, as [`pack`] takes
/// it; a single file is taken as it is.
///
/// # Errors
/// If the files cannot be read or are not one package.
pub fn wit_text(dir: &Path) -> Result<String, LoadError> {
    let invalid = |message: String| LoadError::WitInvalid { message: format!("{}: {message}", dir.display()) };
    if dir.is_file() {
        // As many bytes as one section may have, and one more that `pack` then refuses.
        let file = std::fs::File::open(dir).map_err(|error| invalid(error.to_string()))?;
        let mut text = String::new();
        let read = file.take(SECTION_BYTES_MAX as u64 + 1).read_to_string(&mut text);
        return read.map(|_| text).map_err(|error| invalid(error.to_string()));
    }
    let mut built_in = SourceMap::default();
    for (file, text) in BUILT_IN_WIT {
        built_in.push_str(file, text);
    }
    let built_in = built_in.parse().map_err(|(map, error)| invalid(error.render(&map)))?;
    let mut resolve = Resolve::new();
    // A `deps` directory usually has its own copy of the built-in package; that copy then counts
    // for reading this directory, and the real one when the outcome is read again.
    if !dir.join("deps").is_dir() {
        resolve.push_group(built_in).map_err(|error| invalid(error.to_string()))?;
    }
    let (package, _) = resolve.push_dir(dir).map_err(|error| invalid(format!("{error:#}")))?;
    let nested: Vec<_> = resolve
        .topological_packages()
        .into_iter()
        .filter(|id| *id != package && resolve.packages[*id].name.namespace != "oncegate")
        .collect();
    let mut printer = WitPrinter::default();
    printer.print(&resolve, package, &nested).map_err(|error| invalid(format!("{error:#}")))?;
    Ok(printer.output.to_string())
}

#[cfg(test)]
mod tests;
