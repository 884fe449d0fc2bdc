//! From bytes to a pre-linked component: described, checked, compiled once, linked for its class.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};

use crate::cache::{Cache, CacheError};
use crate::describe::{Description, LoadError, ToolDescription};
use crate::engine::Runtime;
use crate::guest::Guest;
use crate::limits::COMPONENT_BYTES_MAX;
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
}

/// A component that is ready to run.
pub struct Loaded {
    /// All that is known without running it.
    pub description: Description,
    pub(crate) pre: InstancePre<Guest>,
    tools: BTreeMap<String, LoadedTool>,
}

pub(crate) struct LoadedTool {
    pub(crate) export: ComponentExportIndex,
    pub(crate) returns: bool,
    pub(crate) index: usize,
}

impl Loaded {
    /// The tool's export and its description.
    pub(crate) fn tool(&self, name: &str) -> Option<(&LoadedTool, &ToolDescription)> {
        let tool = self.tools.get(name)?;
        Some((tool, self.description.tools.get(tool.index)?))
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

/// Describes, compiles and links a component.
///
/// # Errors
/// [`ComponentError`]: every import that is not known is refused by name before it is compiled, and
/// linking for the class is the gate behind that.
pub fn load(bytes: &[u8], runtime: &Runtime, cache: &Cache) -> Result<Loaded, ComponentError> {
    let description = Description::read(bytes)?;
    let component = cache.load(runtime, &description.digest, bytes)?;
    let mut linker = Linker::new(runtime.engine());
    let fail = |error: wasmtime::Error| ComponentError::Link(format!("{error:#}"));
    wasi::link(&mut linker).map_err(fail)?;
    effect::link(&mut linker, description.class).map_err(fail)?;
    let pre = linker.instantiate_pre(&component).map_err(fail)?;
    let tools = tools(&component, &description)?;
    Ok(Loaded { description, pre, tools })
}

fn tools(component: &Component, description: &Description) -> Result<BTreeMap<String, LoadedTool>, ComponentError> {
    let mut tools = BTreeMap::new();
    for (index, tool) in description.tools.iter().enumerate() {
        let export = export(component, tool)
            .ok_or_else(|| ComponentError::Link(format!("the tool {} is not exported", tool.name)))?;
        tools.insert(tool.name.clone(), LoadedTool { export, returns: tool.result.is_some(), index });
    }
    Ok(tools)
}

fn export(component: &Component, tool: &ToolDescription) -> Option<ComponentExportIndex> {
    let instance = match &tool.interface {
        Some(name) => Some(component.get_export_index(None, name)?),
        None => None,
    };
    component.get_export_index(instance.as_ref(), &tool.name)
}
