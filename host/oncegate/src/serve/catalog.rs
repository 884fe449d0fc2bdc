//! The tools that are served: components and folders, the names they get, and what changes in folders.

mod loading;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use oncegate_sandbox::policy::{self, Policy};
use oncegate_sandbox::signature::beside;
use oncegate_sandbox::{ComponentError, Loaded, Sandbox};
use rmcp::model::Tool;

use super::stamp::{Stamp, stamp};
use super::tools::{self, STATUS_TOOL};
use crate::print::clean;
use loading::load_all;

/// Components in one folder; more is a folder of something else.
const FOLDER_FILES_MAX: usize = 1_000;
/// Characters of a tool's name: what clients of either revision take.
const NAME_CHARS_MAX: usize = 128;

/// One tool and what runs it.
pub(super) struct Entry {
    pub(super) tool: Tool,
    pub(super) component: Arc<Loaded>,
    /// The name inside its component.
    pub(super) function: String,
}

/// How names of tools are made of those in the components.
#[derive(Clone, Copy)]
pub(super) struct Naming {
    /// The component's name and a dot come first.
    pub(super) prefix: bool,
    /// `_` stands for `-`. No name in WIT has an underscore, so different names stay different.
    pub(super) underscores: bool,
}

impl Naming {
    fn name(self, component: &str, tool: &str) -> String {
        let name = if self.prefix { format!("{component}.{tool}") } else { tool.to_owned() };
        if self.underscores { name.replace('-', "_") } else { name }
    }
}

/// All tools at one time, and what their calls run under.
pub(super) struct Catalog {
    /// With the policy of that time.
    pub(super) sandbox: Sandbox,
    entries: BTreeMap<String, Entry>,
}

impl Catalog {
    pub(super) fn tool(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// All tools in the order of their names, the host's own among them.
    pub(super) fn tools(&self) -> Vec<&Entry> {
        self.entries.values().collect()
    }

    /// Whether a token's tenant may know of the tool: those that the policy lets do nothing are not shown to it.
    pub(super) fn is_for(&self, entry: &Entry, tenant: Option<&str>) -> bool {
        let description = &entry.component.description;
        let reaches = !description.contract.operations.is_empty();
        let admitted = |tenant| policy::admit(self.sandbox.policy(), &description.digest, tenant).is_ok();
        !reaches || tenant.is_none_or(admitted)
    }

    /// Whether every tenant of either is shown the same tools, with the same words.
    pub(super) fn shows_the_same_as(&self, other: &Self) -> bool {
        let rules = [self, other].into_iter().flat_map(|one| &one.sandbox.policy().components);
        let tenants: BTreeSet<&str> = rules.flat_map(|rule| rule.tenants.iter().map(String::as_str)).collect();
        let all = tenants.into_iter().map(Some).chain([None]);
        all.into_iter().all(|tenant| self.shown(tenant).eq(other.shown(tenant)))
    }

    fn shown(&self, tenant: Option<&str>) -> impl Iterator<Item = &Tool> {
        self.entries.values().filter(move |entry| self.is_for(entry, tenant)).map(|entry| &entry.tool)
    }

    /// Adds all tools of a component, or none of them and says why.
    fn add(&mut self, component: &Arc<Loaded>, trusted: bool, naming: Naming) -> Result<(), String> {
        let description = &component.description;
        let mut added = Vec::new();
        for tool in &description.tools {
            let name = naming.name(&description.name, &tool.name);
            check_name(&name)?;
            if let Some(other) = self.entries.get(&name) {
                let other = clean(&other.component.description.name);
                return Err(format!(
                    "its tool {name} has the name of a tool of the component {other}; serve them with --prefix, or apart"
                ));
            }
            let tool = (name.clone(), tool.name.clone(), tools::describe(description, tool, name, trusted));
            added.push(tool);
        }
        for (name, function, tool) in added {
            self.entries.insert(name, Entry { tool, component: Arc::clone(component), function });
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let safe = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name == STATUS_TOOL || name.len() > NAME_CHARS_MAX || !name.chars().all(safe) {
        return Err(format!("{} cannot be the name of a tool here", clean(name)));
    }
    Ok(())
}

/// A component's file, and its signature's where there is one: a new signature makes it known anew.
type Stamps = (Stamp, Option<Stamp>);

struct Seen {
    stamp: Stamps,
    /// None: it was refused, which was said once.
    component: Option<Arc<Loaded>>,
}

/// The places that components come from, and what was found there.
pub(super) struct Shelf {
    sandbox: Sandbox,
    naming: Naming,
    fixed: Vec<(PathBuf, Arc<Loaded>)>,
    folders: Vec<PathBuf>,
    seen: BTreeMap<PathBuf, Seen>,
    /// Files that had changed at the last look; one that changes still is being written.
    unsettled: BTreeMap<PathBuf, Stamps>,
}

impl Shelf {
    /// Loads everything. A component that is named must load; in a folder the others are served.
    pub(super) fn open(sandbox: Sandbox, places: &[PathBuf], naming: Naming) -> anyhow::Result<(Self, Catalog)> {
        let mut shelf = Self {
            sandbox,
            naming,
            fixed: Vec::new(),
            folders: Vec::new(),
            seen: BTreeMap::new(),
            unsettled: BTreeMap::new(),
        };
        let (folders, files): (Vec<_>, Vec<_>) = places.iter().cloned().partition(|place| place.is_dir());
        shelf.folders = folders;
        let found = shelf.files()?;
        let all: Vec<&Path> = files.iter().chain(found.keys()).map(PathBuf::as_path).collect();
        let mut loaded = load_all(&shelf.sandbox, &all).into_iter();
        for (place, component) in files.iter().zip(loaded.by_ref()) {
            shelf.fixed.push((place.clone(), component?));
        }
        for ((path, stamp), component) in found.into_iter().zip(loaded) {
            shelf.saw(path, stamp, component);
        }
        let catalog = shelf.catalog(true)?;
        Ok((shelf, catalog))
    }

    /// The tools as they are under another policy, which later changes of folders are looked at under too.
    pub(super) fn under(&mut self, policy: Policy) -> anyhow::Result<Catalog> {
        self.sandbox = self.sandbox.under(policy);
        self.catalog(false)
    }

    /// Looks at the folders again; the new catalog if something has changed. A file is taken when two
    /// looks see the same of it, so that one that is being copied is not.
    pub(super) fn look(&mut self) -> Option<Catalog> {
        let files = match self.files() {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!("{error:#}");
                return None;
            }
        };
        let before = self.seen.len();
        self.seen.retain(|path, _| files.contains_key(path));
        let mut changed = self.seen.len() != before;
        let unsettled = std::mem::take(&mut self.unsettled);
        for (path, stamp) in files {
            if self.seen.get(&path).is_some_and(|seen| seen.stamp == stamp) {
                continue;
            }
            if unsettled.get(&path) == Some(&stamp) {
                let component = self.sandbox.load_for_later(&path);
                self.saw(path, stamp, component);
                changed = true;
            } else {
                self.unsettled.insert(path, stamp);
            }
        }
        if !changed {
            return None;
        }
        // Collisions leave the newcomer out; they end nothing that is served already.
        self.catalog(false).ok()
    }

    /// A file of a folder, and what came of loading it.
    fn saw(&mut self, path: PathBuf, stamp: Stamps, component: Result<Arc<Loaded>, ComponentError>) {
        let component = match component {
            Ok(component) => Some(component),
            Err(error) => {
                let error = anyhow::Error::new(error);
                tracing::warn!("{} is not served: {}", path.display(), clean(&format!("{error:#}")));
                None
            }
        };
        self.seen.insert(path, Seen { stamp, component });
    }

    fn catalog(&self, strict: bool) -> anyhow::Result<Catalog> {
        let mut catalog = Catalog { sandbox: self.sandbox.clone(), entries: BTreeMap::new() };
        let found = self.seen.iter().filter_map(|(path, seen)| Some((path, seen.component.as_ref()?)));
        for (path, component) in self.fixed.iter().map(|(path, component)| (path, component)).chain(found) {
            let digest = component.description.digest;
            // Text for a model is the author's word; the operator has read it who names these bytes.
            let trusted = self.sandbox.policy().components.iter().any(|rule| rule.digest == Some(digest));
            match catalog.add(component, trusted, self.naming) {
                Ok(()) => {}
                Err(why) if strict => bail!("{} is not served: {why}", path.display()),
                Err(why) => tracing::warn!("{} is not served: {why}", path.display()),
            }
        }
        Ok(catalog)
    }

    fn files(&self) -> anyhow::Result<BTreeMap<PathBuf, Stamps>> {
        let mut files = BTreeMap::new();
        for folder in &self.folders {
            let unreadable = || format!("the folder {} cannot be read", folder.display());
            for entry in std::fs::read_dir(folder).with_context(unreadable)? {
                let path = entry.with_context(unreadable)?.path();
                if path.extension().is_some_and(|extension| extension == "wasm")
                    && let Some(stamp) = stamp(&path)
                {
                    let signature = super::stamp::stamp(&beside(&path));
                    files.insert(path, (stamp, signature));
                }
            }
            if files.len() > FOLDER_FILES_MAX {
                bail!("{} has more than {FOLDER_FILES_MAX} components", folder.display());
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_and_checked() {
        let name = |prefix, underscores, tool| Naming { prefix, underscores }.name("acme-refunds", tool);
        assert_eq!(name(false, false, "issue-refund"), "issue-refund");
        assert_eq!(name(true, false, "issue-refund"), "acme-refunds.issue-refund");
        assert_eq!(name(false, true, "issue-refund"), "issue_refund");
        assert_eq!(name(true, true, "issue-refund"), "acme_refunds.issue_refund");
        // What would take the name of the host's own tool.
        assert!(check_name(&name(false, false, "effect-status")).is_ok());
        assert!(check_name(&name(false, true, "effect-status")).is_err());
    }
}
