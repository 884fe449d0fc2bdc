//! From bytes to a pre-linked component: described, checked, compiled once, linked for its class.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncegate_contract::EffectClass;
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;
use wasmtime::Engine;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};

use crate::cache::{Cache, CacheError};
use crate::describe::{Description, LoadError, ToolDescription};
use crate::guest::Guest;
use crate::host::Host;
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
    /// Its code was to be compiled anew, from a file that is another one by now.
    #[error("the component {path} was changed after it was loaded")]
    Changed {
        /// The file.
        path: String,
    },
}

/// A component that is ready to run.
pub struct Loaded {
    /// All that is known without running it.
    pub description: Description,
    code: OnceCell<Code>,
    /// Where its bytes are, if its code is to be had later.
    path: Option<PathBuf>,
    tools: BTreeMap<String, usize>,
}

/// Where a component's bytes are, for whoever needs them after all.
pub(crate) enum Source<'a> {
    /// At hand.
    Bytes(&'a [u8]),
    /// In a file, which may have been changed since.
    File(&'a Path),
}

impl Source<'_> {
    /// The bytes with this digest.
    pub(crate) fn of(&self, digest: &[u8; 32]) -> Result<Cow<'_, [u8]>, ComponentError> {
        match self {
            Self::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Self::File(path) => {
                let bytes = read(path)?;
                let same = <[u8; 32]>::from(Sha256::digest(&bytes)) == *digest;
                let changed = || ComponentError::Changed { path: path.display().to_string() };
                if same { Ok(Cow::Owned(bytes)) } else { Err(changed()) }
            }
        }
    }
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

    /// Its code, which may still have to be read or even compiled.
    pub(crate) async fn code(self: &Arc<Self>, host: &Host) -> Result<&Code, ComponentError> {
        match self.code.get() {
            Some(code) => Ok(code),
            None => Box::pin(self.code.get_or_try_init(|| self.late_code(host))).await,
        }
    }

    async fn late_code(self: &Arc<Self>, host: &Host) -> Result<Code, ComponentError> {
        let (place, cache, limits) = (Arc::clone(&host.place), Arc::clone(&host.cache), host.policy.limits);
        let component = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let source = Source::File(component.path.as_deref().unwrap_or(Path::new("")));
            place.load(&component.description, &source, &cache, &limits)
        });
        read.await
            .unwrap_or_else(|_| Err(ComponentError::Compiler("the host failed while reading its code".to_owned())))
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

/// Describes a component, and makes its code ready for where it runs. One that has loaded before is not read again: the
/// digest of its bytes says what it is.
///
/// # Errors
/// [`ComponentError`]: every import that is not known is refused by name before it is compiled, and
/// linking for the class is the gate behind that.
pub(crate) fn load(bytes: &[u8], place: &Place, cache: &Cache, limits: &Limits) -> Result<Loaded, ComponentError> {
    let known = cache.description(Sha256::digest(bytes).into());
    let is_new = known.is_none();
    let description = known.map_or_else(|| Description::read(bytes), Ok)?;
    let code = place.load(&description, &Source::Bytes(bytes), cache, limits)?;
    if is_new {
        cache.keep_description(&description);
    }
    Ok(loaded(description, OnceCell::new_with(Some(code)), None))
}

/// The same, and of a component that has loaded before and whose code is kept, the code is read when it is first called.
/// What would be refused was refused when it was kept; code that turns out to be damaged is compiled anew.
///
/// # Errors
/// As for [`load`].
pub(crate) fn load_for_later(
    path: &Path,
    bytes: &[u8],
    place: &Place,
    cache: &Cache,
    limits: &Limits,
) -> Result<Loaded, ComponentError> {
    let digest = Sha256::digest(bytes).into();
    let kept = place.seems_kept(&digest, cache).then(|| cache.description(digest)).flatten();
    match kept {
        Some(description) => Ok(loaded(description, OnceCell::new(), Some(path.to_owned()))),
        None => load(bytes, place, cache, limits),
    }
}

fn loaded(description: Description, code: OnceCell<Code>, path: Option<PathBuf>) -> Loaded {
    let tools = description.tools.iter().enumerate().map(|(index, tool)| (tool.name.clone(), index)).collect();
    Loaded { description, code, path, tools }
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
