//! Components for tests, made from WIT alone: every function traps.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, dummy_module, embed_component_metadata};
use wit_parser::{LiftLowerAbi, ManglingAndAbi, Resolve, SourceMap, UnresolvedPackageGroup};

use super::{BUILT_IN_WIT, Description, ToolDescription};
use wasm_encoder::{ComponentSection, CustomSection};

/// A component of the WIT text's only world, without custom sections of ours.
pub(crate) fn component(wit: &str) -> Vec<u8> {
    let mut built_in = SourceMap::default();
    for (file, text) in BUILT_IN_WIT {
        built_in.push_str(file, text);
    }
    let built_in = built_in.parse().map_err(|(_, e)| e).unwrap();
    let mine = UnresolvedPackageGroup::parse(Path::new("test.wit"), wit).map_err(|(map, e)| e.render(&map)).unwrap();
    let mut resolve = Resolve::new();
    let package = resolve.push_groups(mine, vec![built_in]).unwrap();
    let world = *resolve.packages[package].worlds.values().next().unwrap();
    let abi = ManglingAndAbi::Legacy(LiftLowerAbi::Sync);
    let mut module = dummy_module(&resolve, world, abi);
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

/// The component with these custom sections at its end.
pub(crate) fn with(mut component: Vec<u8>, sections: &[(&str, &[u8])]) -> Vec<u8> {
    for (name, data) in sections {
        let section = CustomSection { name: (*name).into(), data: (*data).into() };
        section.append_to_component(&mut component);
    }
    component
}

/// The only tool of a component whose world exports `run` with this signature, after `types`.
pub(crate) fn tool(types: &str, signature: &str) -> ToolDescription {
    let wit = format!(
        "package test:tool@0.1.0;\ninterface tools {{ {types} run: {signature}; }}\nworld w {{ export tools; }}"
    );
    let bytes = with(component(&wit), &[(super::WIT_SECTION, wit.as_bytes())]);
    let description = Description::read(&bytes).unwrap_or_else(|error| panic!("{error}"));
    description.tools.into_iter().next().unwrap()
}
