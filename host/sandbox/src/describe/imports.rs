//! Which imports the host offers, what each means to a reviewer, and why others are refused.
//!
//! The list is closed. It gives the message; the guarantee is the linker, which has nothing else.

use wit_parser::{Resolve, TypeDefKind, WorldId, WorldItem, WorldKey};

use super::LoadError;

/// The door to effects, without its patch version.
pub(super) const EFFECT: &str = "oncegate:effect/effect@0.1";
/// The door to lookups, without its patch version.
pub(super) const LOOKUP: &str = "oncegate:effect/lookup@0.1";

/// One import of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// As the component names it.
    pub name: String,
    /// What it lets the component do, or why it is refused.
    pub meaning: &'static str,
    /// Whether the host offers it.
    pub known: bool,
}

impl Import {
    pub(super) fn is_door(&self, door: &str) -> bool {
        without_patch(&self.name) == door
    }
}

/// Offered interfaces without patch version, and what each means for a reviewer.
const OFFERED: &[(&str, &str)] = &[
    (EFFECT, "can ask for the effects that its contract declares"),
    (LOOKUP, "can ask for the lookups that its contract declares"),
    ("oncegate:effect/context@0.1", "can read the orchestrator's facts that its contract declares"),
    ("oncegate:effect/types@0.1", "names of types, no function"),
    ("wasi:io/error@0.2", "error texts of streams"),
    ("wasi:io/poll@0.2", "can wait"),
    ("wasi:io/streams@0.2", "reads and writes streams that another interface hands out"),
    ("wasi:cli/stdin@0.2", "standard input, always empty"),
    ("wasi:cli/stdout@0.2", "standard output, captured and capped"),
    ("wasi:cli/stderr@0.2", "standard error, captured and capped"),
    ("wasi:cli/environment@0.2", "environment and arguments, always empty"),
    ("wasi:cli/exit@0.2", "can end its own call"),
    ("wasi:cli/terminal-input@0.2", "never a terminal"),
    ("wasi:cli/terminal-output@0.2", "never a terminal"),
    ("wasi:cli/terminal-stdin@0.2", "never a terminal"),
    ("wasi:cli/terminal-stdout@0.2", "never a terminal"),
    ("wasi:cli/terminal-stderr@0.2", "never a terminal"),
    ("wasi:clocks/monotonic-clock@0.2", "can measure time and wait, within its time limit"),
    ("wasi:clocks/wall-clock@0.2", "can read the date"),
    ("wasi:random/random@0.2", "can ask for random bytes"),
    ("wasi:random/insecure@0.2", "can ask for random bytes"),
    ("wasi:random/insecure-seed@0.2", "can ask for random bytes"),
    ("wasi:filesystem/types@0.2", "names of file functions; without a directory there is no file to use them on"),
    ("wasi:filesystem/preopens@0.2", "directories handed to it: always none"),
];

/// Refused by prefix, with the reason; the first that fits counts.
const REFUSED: &[(&str, &str)] = &[
    ("wasi:sockets/", "opens network connections past the effect door; leave networking out of the build"),
    ("wasi:http/", "sends requests past the effect door; leave wasi:http out of the build"),
    ("oncegate:effect/", "this host offers types, lookup, context and effect of oncegate:effect@0.1"),
    ("wasi:", "not among the WASI 0.2 interfaces that this host offers closed"),
    ("", "unknown: this host offers oncegate:effect@0.1 and a few closed WASI 0.2 interfaces, nothing else"),
];

const NOT_AN_INTERFACE: &str =
    "imported outside a package's interface: this host offers only whole interfaces, by their full name";

/// Classifies every import; an unknown one refuses the component.
pub(super) fn classify(resolve: &Resolve, world: WorldId) -> Result<Vec<Import>, LoadError> {
    let imports: Vec<Import> =
        resolve.worlds[world].imports.iter().filter_map(|(key, item)| import(resolve, key, item)).collect();
    let refused: Vec<Import> = imports.iter().filter(|i| !i.known).cloned().collect();
    if refused.is_empty() { Ok(imports) } else { Err(LoadError::RefusedImports(refused)) }
}

fn import(resolve: &Resolve, key: &WorldKey, item: &WorldItem) -> Option<Import> {
    let name = resolve.name_world_key(key);
    match (key, item) {
        (WorldKey::Interface(_), WorldItem::Interface { .. }) => Some(of_interface(name)),
        // An alias of an imported interface's type: nothing of its own. A resource is a thing that
        // somebody would have to hand in.
        (_, WorldItem::Type { id, .. }) if !matches!(resolve.types[*id].kind, TypeDefKind::Resource) => None,
        _ => Some(Import { name, meaning: NOT_AN_INTERFACE, known: false }),
    }
}

/// An import that was known when it was last read; none if it is not known here.
pub(super) fn offered(name: String) -> Option<Import> {
    Some(of_interface(name)).filter(|import| import.known)
}

fn of_interface(name: String) -> Import {
    let plain = without_patch(&name);
    let offered = OFFERED.iter().find(|(offered, _)| *offered == plain);
    let known = offered.is_some();
    let meaning = offered
        .or_else(|| REFUSED.iter().find(|(prefix, _)| name.starts_with(prefix)))
        .map_or("unknown", |(_, meaning)| meaning);
    Import { name, meaning, known }
}

/// `wasi:io/poll@0.2.6` → `wasi:io/poll@0.2`; pre-releases and other versions stay as they are, and
/// so are not found.
fn without_patch(name: &str) -> &str {
    let Some((_, version)) = name.split_once('@') else {
        return name;
    };
    let mut parts = version.split('.');
    let numeric =
        |part: Option<&str>| part.is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    let patch = version.rsplit('.').next().map_or(0, str::len);
    let plain = numeric(parts.next()) && numeric(parts.next()) && numeric(parts.next());
    if plain && parts.next().is_none() { &name[..name.len() - patch - 1] } else { name }
}

/// One line for each import: its name and the reason.
pub(super) fn listed(imports: &[Import]) -> String {
    imports.iter().map(|import| format!("  `{}`: {}", import.name, import.meaning)).collect::<Vec<_>>().join("\n")
}
