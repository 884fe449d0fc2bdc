//! The WIT text that travels with a component, read together with the built-in package.

use std::path::Path;

use wit_parser::{Resolve, SourceMap, UnresolvedPackageGroup, WorldId};

use super::{LoadError, WIT_SECTION};

/// The package `oncegate:effect@0.1.0`, as (file name, text).
pub const BUILT_IN_WIT: [(&str, &str); 5] = [
    ("types.wit", include_str!("../../../../wit/types.wit")),
    ("lookup.wit", include_str!("../../../../wit/lookup.wit")),
    ("context.wit", include_str!("../../../../wit/context.wit")),
    ("effect.wit", include_str!("../../../../wit/effect.wit")),
    ("worlds.wit", include_str!("../../../../wit/worlds.wit")),
];

/// A parsed text and the one world of its package.
pub(super) struct WitText {
    pub(super) resolve: Resolve,
    pub(super) world: WorldId,
}

impl WitText {
    /// The package's name without namespace and version.
    pub(super) fn package_name(&self) -> String {
        self.package().map_or_else(String::new, |p| p.name.clone())
    }

    /// `namespace:package/world@version`.
    pub(super) fn world_name(&self) -> String {
        let world = &self.resolve.worlds[self.world].name;
        self.package().map_or_else(|| world.clone(), |package| package.interface_id(world))
    }

    fn package(&self) -> Option<&wit_parser::PackageName> {
        let package = self.resolve.worlds[self.world].package?;
        Some(&self.resolve.packages[package].name)
    }
}

/// Parses the text of the section; its package must have exactly one world.
pub(super) fn parse(text: &str) -> Result<WitText, LoadError> {
    let invalid = |message: String| LoadError::WitInvalid { message };
    let mut resolve = Resolve::new();
    let mut built_in = SourceMap::default();
    for (file, text) in BUILT_IN_WIT {
        built_in.push_str(file, text);
    }
    let built_in = built_in.parse().map_err(|(map, error)| invalid(error.render(&map)))?;
    let mine = UnresolvedPackageGroup::parse(Path::new(WIT_SECTION), text)
        .map_err(|(map, error)| invalid(error.render(&map)))?;
    let clash = |name: &wit_parser::PackageName| name.namespace == "oncegate";
    if clash(&mine.main.name) || mine.nested.iter().any(|nested| clash(&nested.name)) {
        return Err(invalid(
            "it defines a package of the namespace `oncegate`; that one is built in, only include or import it".into(),
        ));
    }
    let package = resolve.push_groups(mine, vec![built_in]).map_err(|error| invalid(error.to_string()))?;
    let worlds = &resolve.packages[package].worlds;
    match worlds.values().copied().collect::<Vec<_>>()[..] {
        [world] => Ok(WitText { resolve, world }),
        _ => {
            Err(invalid(format!("its package has {} worlds and must have exactly one, the component's", worlds.len())))
        }
    }
}
