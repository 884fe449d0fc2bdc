//! From bytes to a pre-linked component: described, checked, compiled once, linked for its class.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use oncegate_contract::EffectClass;
use wasmtime::Engine;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};

use crate::cache::{Cache, CacheError};
use crate::describe::{Description, LoadError, ToolDescription};
use crate::guest::Guest;
use crate::limits::{COMPONENT_BYTES_MAX, Limits};
use crate::place::Place;
use crate::{effect, wasi};

/// Why a component does not load.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// The file cannot be read.
    #[error("the component {path} cannot be read")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is too large to be a component.
    #[error(
        "the component {path} has more than {COMPONENT_BYTES_MAX} bytes (limit component); no component is that large"
    )]
    TooLarge {
        /// The file.
        path: String,
    },
    /// It is not a component that may run here.
    #[error(transparent)]
    Refused(#[from] LoadError),
    /// It does not compile or the cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// It asks for something that its class is not given.
    #[error("the component cannot be linked for its effect class: {0}")]
    Link(String),
    /// The process that compiles it ended without a result.
    #[error("the component does not compile: {0}")]
    Compiler(String),
}

/// A component that is ready to run.
pub struct Loaded {
    /// All that is known without running it.
    pub description: Description,
    pub(crate) code: Code,
    tools: BTreeMap<String, usize>,
}

/// A component's compiled code.
pub(crate) enum Code {
    /// Linked in this process.
    Here(Linked),
    /// Ready for the processes that run it.
    #[cfg(target_os = "linux")]
    Runners(crate::runner::Sealed),
}

/// A component that is linked for its class.
pub(crate) struct Linked {
    pub(crate) pre: InstancePre<Guest>,
    /// In the order of the description.
    pub(crate) tools: Vec<LinkedTool>,
}

pub(crate) struct LinkedTool {
    pub(crate) index: ComponentExportIndex,
    pub(crate) returns: bool,
}

/// Where a tool's function is in a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) interface: Option<String>,
    pub(crate) name: String,
    pub(crate) returns: bool,
}

impl Loaded {
    /// The tool's number and its description.
    pub(crate) fn tool(&self, name: &str) -> Option<(usize, &ToolDescription)> {
        let index = *self.tools.get(name)?;
        Some((index, self.description.tools.get(index)?))
    }
}

/// Reads a component's file, bounded.
///
/// # Errors
/// [`ComponentError::Unreadable`] and [`ComponentError::TooLarge`].
pub fn read(path: &Path) -> Result<Vec<u8>, ComponentError> {
    let name = || path.display().to_string();
    let unreadable = |source| ComponentError::Unreadable { path: name(), source };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // Not by the file's own length: a device or a pipe says 0 and never ends.
    file.take(COMPONENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > COMPONENT_BYTES_MAX {
        return Err(ComponentError::TooLarge { path: name() });
    }
    Ok(bytes)
}

/// Describes a component, and makes its code ready for where it runs.
///
/// # Errors
/// [`ComponentError`]: every import that is not known is refused by name before it is compiled, and
/// linking for the class is the gate behind that.
pub(crate) fn load(bytes: &[u8], place: &Place, cache: &Cache, limits: &Limits) -> Result<Loaded, ComponentError> {
    let description = Description::read(bytes)?;
    let code = place.load(&description, bytes, cache, limits)?;
    let tools = description.tools.iter().enumerate().map(|(index, tool)| (tool.name.clone(), index)).collect();
    Ok(Loaded { description, code, tools })
}

/// The functions of a component's tools, in their order.
pub(crate) fn exports(description: &Description) -> Vec<Export> {
    let export = |tool: &ToolDescription| Export {
        interface: tool.interface.clone(),
        name: tool.name.clone(),
        returns: tool.result.is_some(),
    };
    description.tools.iter().map(export).collect()
}

/// Links compiled code for a class: what that class is not given cannot be reached.
pub(crate) fn link(
    engine: &Engine,
    component: &Component,
    class: EffectClass,
    exports: &[Export],
) -> Result<Linked, ComponentError> {
    let mut linker = Linker::new(engine);
    let fail = |error: wasmtime::Error| ComponentError::Link(format!("{error:#}"));
    wasi::link(&mut linker).map_err(fail)?;
    effect::link(&mut linker, class).map_err(fail)?;
    let pre = linker.instantiate_pre(component).map_err(fail)?;
    let absent = |export: &Export| ComponentError::Link(format!("the tool {} is not exported", export.name));
    let tool = |export: &Export| {
        let index = find(component, export).ok_or_else(|| absent(export))?;
        Ok(LinkedTool { index, returns: export.returns })
    };
    let tools = exports.iter().map(tool).collect::<Result<_, ComponentError>>()?;
    Ok(Linked { pre, tools })
}

fn find(component: &Component, export: &Export) -> Option<ComponentExportIndex> {
    let instance = match &export.interface {
        Some(name) => Some(component.get_export_index(None, name)?),
        None => None,
    };
    component.get_export_index(instance.as_ref(), &export.name)
}
