//! What a component is, read from its bytes alone: nothing is compiled and nothing is run.
//!
//! A [`Description`] exists only for a component that this host would load: valid under the
//! engine's feature set, importing nothing but what the host offers, with at most one contract that
//! fits it and a WIT text that describes exactly its types.

mod census;
mod imports;
mod kept;
mod sections;
mod tools;
mod wit_text;
mod wit_type;

use std::fmt;

use oncegate_contract::{Contract, ContractError, ContractErrors, EffectClass, Interface, fits};
use sha2::{Digest, Sha256};
use wasmparser::{Parser, Validator, WasmFeatures};
use wit_component::DecodedWasm;

pub use imports::Import;
pub use sections::{CONTRACT_SECTION, SECTION_BYTES_MAX, WIT_SECTION};
pub use tools::ToolDescription;
pub use wit_text::BUILT_IN_WIT;
pub use wit_type::{TYPE_DEPTH_MAX, TYPE_NODES_MAX, WitCase, WitField, WitKind, WitLabel, WitType};

use crate::limits::COMPONENT_BYTES_MAX;

/// The WebAssembly features that a guest may use: those of the engine's profile, and no others.
///
/// Absent on purpose: threads, garbage collection, function references, tail calls, exceptions,
/// relaxed SIMD, 64-bit memories and component-model async.
#[must_use]
pub const fn features() -> WasmFeatures {
    WasmFeatures::WASM2
        .union(WasmFeatures::EXTENDED_CONST)
        .union(WasmFeatures::MULTI_MEMORY)
        .union(WasmFeatures::COMPONENT_MODEL)
}

/// Why a component is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is bigger than any guest has a reason to be.
    #[error(
        "the component has {size} bytes and {limit} are allowed (limit component); strip its debug information or leave unused code out"
    )]
    TooLarge {
        /// Bytes given.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// It makes more than an instance may have, counted through all its parts.
    #[error("the component exceeds the limit {limit}: it makes {found} and {max} are allowed")]
    OverLimit {
        /// The limit's name.
        limit: &'static str,
        /// What it makes.
        found: u64,
        /// What is allowed.
        max: u64,
    },
    /// It runs code that is not in it.
    #[error("the component instantiates a module or component that it is handed; build it into the component")]
    HandedIn,
    /// The bytes are something else.
    #[error("this is {what}, not a WebAssembly component; {hint}")]
    NotAComponent {
        /// What it is.
        what: &'static str,
        /// How to get a component.
        hint: &'static str,
    },
    /// The bytes do not validate under [`features`].
    #[error("the component is not valid under the features this host offers: {message}")]
    Invalid {
        /// The validator's words.
        message: String,
    },
    /// It validates, but no WIT can be read from it.
    #[error("the component's types cannot be read as WIT: {message}")]
    Undecodable {
        /// The decoder's words.
        message: String,
    },
    /// Two contracts, or two WIT texts: nobody could say which one counts.
    #[error("the binary has {count} custom sections `{section}` and exactly one can count; build again with one")]
    SectionTwice {
        /// Its name.
        section: &'static str,
        /// How many were found, at any depth.
        count: usize,
    },
    /// A section is bigger than a text that a person wrote.
    #[error("the custom section `{section}` has {size} bytes and {SECTION_BYTES_MAX} are allowed (limit section)")]
    SectionTooLarge {
        /// Its name.
        section: &'static str,
        /// Bytes found.
        size: usize,
    },
    /// A section is no text.
    #[error("the custom section `{section}` is not UTF-8 text; embed the file as it is")]
    SectionNotText {
        /// Its name.
        section: &'static str,
    },
    /// The contract does not parse.
    #[error("{0}")]
    Contract(ContractErrors),
    /// The contract does not belong to this component.
    #[error("{}", lines(.0))]
    ContractDoesNotFit(Vec<ContractError>),
    /// It imports a door that only a contract opens.
    #[error(
        "the component imports `{import}` but carries no contract, so it could use none of it; embed one in the custom section `{CONTRACT_SECTION}` or with `oncegate pack`"
    )]
    ContractMissing {
        /// The import.
        import: String,
    },
    /// `effect = "none"`, with a door to effects.
    #[error(
        "the contract says `effect = \"none\"` but the component imports `{import}`; build it for the world `reader`, or declare its class"
    )]
    ClassContradicted {
        /// The import.
        import: String,
    },
    /// Imports that the host does not offer.
    #[error("the component imports what this host does not offer:\n{}", imports::listed(.0))]
    RefusedImports(Vec<Import>),
    /// The WIT text does not parse or is not one world.
    #[error("the WIT text in `{WIT_SECTION}` cannot be used: {message}")]
    WitInvalid {
        /// What is wrong and where.
        message: String,
    },
    /// The WIT text is about another component.
    #[error("the WIT text in `{WIT_SECTION}` does not describe this component: {message}")]
    WitDiffers {
        /// The first difference.
        message: String,
    },
    /// A function takes or returns what has no JSON form.
    #[error("the exported function `{tool}` cannot be a tool: {message}")]
    NotATool {
        /// The function.
        tool: String,
        /// Why not, and what to do.
        message: String,
    },
    /// Two interfaces export functions of one name.
    #[error("two exported functions are named `{tool}`; tools need distinct names")]
    ToolTwice {
        /// The name.
        tool: String,
    },
    /// Nothing to call.
    #[error("the component exports no function that could be a tool; export one from its world or from an interface")]
    NoTools,
}

/// What a component without a contract declares: nothing.
fn no_contract(package: Option<&str>) -> Result<Contract, LoadError> {
    let named = |name: &str| {
        let text = format!("[component]\nname = \"{name}\"\neffect = \"none\"\n");
        Contract::parse(CONTRACT_SECTION, &text)
    };
    let mut contract = package
        .map_or_else(|| named("component"), named)
        .or_else(|_| named("component"))
        .map_err(LoadError::Contract)?;
    contract.text.clear();
    Ok(contract)
}

fn lines<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// All that a component could ever be asked to do, and all that it can reach.
#[derive(Debug, Clone)]
pub struct Description {
    /// SHA-256 of the bytes: pins code, contract and WIT text together.
    pub digest: [u8; 32],
    /// Bytes of the component.
    pub size: usize,
    /// The contract's component name, else the WIT package's name.
    pub name: String,
    /// The contract; an empty one of class `none` where the component carries none.
    pub contract: Contract,
    /// Whether it carries a contract; one that does not is a pure tool without operations.
    pub has_contract: bool,
    /// The WIT text it carries, docs included.
    pub wit: Option<String>,
    /// The class that the contract declares and the imports do not contradict.
    pub class: EffectClass,
    /// Every import, in the component's order; all of them known.
    pub imports: Vec<Import>,
    /// The tools, in the order of the WIT text, else of the binary.
    pub tools: Vec<ToolDescription>,
    /// What the binary says made it, as (field, "name version"): the author's word, nothing relies
    /// on it.
    pub producers: Vec<(String, String)>,
    /// The world's name in the WIT text, as `package/world`.
    pub world: Option<String>,
}

impl Description {
    /// Reads a component, or says why this host would not load it.
    ///
    /// # Errors
    /// The first reason found, in the order: size, validity, what it makes, sections, imports, contract, class,
    /// WIT text, tools, and whether the contract fits the tools.
    pub fn read(bytes: &[u8]) -> Result<Description, LoadError> {
        validate(bytes)?;
        census::check(bytes)?;
        let sections = sections::read(bytes)?;
        let (resolve, world) = decode(bytes)?;
        let imports = imports::classify(&resolve, world)?;
        let contract = sections
            .contract
            .as_deref()
            .map(|text| Contract::parse(CONTRACT_SECTION, text))
            .transpose()
            .map_err(LoadError::Contract)?;
        let class = class(contract.as_ref(), &imports)?;
        let text = sections.wit.as_deref().map(wit_text::parse).transpose()?;
        let mut tools = tools::read((&resolve, world), text.as_ref())?;
        if let Some(contract) = &contract {
            tools::bind(&mut tools, contract);
            check_fits(contract, &imports, &tools)?;
        }
        let package = text.as_ref().map(wit_text::WitText::package_name);
        let has_contract = contract.is_some();
        let contract = match contract {
            Some(contract) => contract,
            None => no_contract(package.as_deref())?,
        };
        Ok(Description {
            digest: Sha256::digest(bytes).into(),
            size: bytes.len(),
            name: contract.component.name.clone(),
            contract,
            has_contract,
            class,
            imports,
            tools,
            producers: sections.producers,
            world: text.as_ref().map(wit_text::WitText::world_name),
            wit: sections.wit,
        })
    }

    /// The tool of that name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&ToolDescription> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The digest as policies and reports write it: `sha256:` and 64 hexadecimal digits.
    #[must_use]
    pub fn digest_text(&self) -> String {
        digest_text(&self.digest)
    }
}

/// `sha256:` and 64 hexadecimal digits.
#[must_use]
pub fn digest_text(digest: &[u8; 32]) -> String {
    use fmt::Write as _;
    digest.iter().fold(String::from("sha256:"), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn validate(bytes: &[u8]) -> Result<(), LoadError> {
    if bytes.len() > COMPONENT_BYTES_MAX {
        return Err(LoadError::TooLarge { size: bytes.len(), limit: COMPONENT_BYTES_MAX });
    }
    if Parser::is_core_wasm(bytes) {
        return Err(LoadError::NotAComponent {
            what: "a core module",
            hint: "build for `wasm32-wasip2`, or wrap it with `wasm-tools component new`",
        });
    }
    if !Parser::is_component(bytes) {
        return Err(LoadError::NotAComponent {
            what: "some other file",
            hint: "give the `.wasm` file that the build made",
        });
    }
    Validator::new_with_features(features())
        .validate_all(bytes)
        .map(drop)
        .map_err(|error| LoadError::Invalid { message: error.to_string() })
}

fn decode(bytes: &[u8]) -> Result<(wit_parser::Resolve, wit_parser::WorldId), LoadError> {
    // The decoder asserts what it expects of a component; bytes that break an assertion are a
    // refused component, not a dead host. It holds no state that unwinding could spoil.
    let decoded = std::panic::catch_unwind(|| wit_component::decode(bytes));
    match decoded {
        Ok(Ok(DecodedWasm::Component(resolve, world))) => Ok((resolve, world)),
        Ok(Ok(DecodedWasm::WitPackage(..))) => {
            Err(LoadError::NotAComponent { what: "a WIT package", hint: "give the component that implements it" })
        }
        Ok(Err(error)) => Err(LoadError::Undecodable { message: format!("{error:#}") }),
        Err(_) => Err(LoadError::Undecodable {
            message: "its type section has a form that the decoder does not expect".into(),
        }),
    }
}

fn class(contract: Option<&Contract>, imports: &[Import]) -> Result<EffectClass, LoadError> {
    let of = |door: &str| imports.iter().find(|import| import.is_door(door));
    let Some(contract) = contract else {
        return match of(imports::EFFECT).or_else(|| of(imports::LOOKUP)) {
            Some(import) => Err(LoadError::ContractMissing { import: import.name.clone() }),
            None => Ok(EffectClass::None),
        };
    };
    match (contract.component.effect, of(imports::EFFECT)) {
        (EffectClass::None, Some(import)) => Err(LoadError::ClassContradicted { import: import.name.clone() }),
        (class, _) => Ok(class),
    }
}

fn check_fits(contract: &Contract, imports: &[Import], tools: &[ToolDescription]) -> Result<(), LoadError> {
    let interface = Interface {
        imports_effect: imports.iter().any(|import| import.is_door(imports::EFFECT)),
        imports_lookup: imports.iter().any(|import| import.is_door(imports::LOOKUP)),
        tools: tools.iter().map(|tool| (tool.name.clone(), tool.input_schema.clone())).collect(),
    };
    let errors = fits(contract, CONTRACT_SECTION, &interface);
    if errors.is_empty() { Ok(()) } else { Err(LoadError::ContractDoesNotFit(errors)) }
}

#[cfg(test)]
pub(crate) mod dummy;
#[cfg(test)]
pub(crate) mod tests;
