//! How many instances, memories and tables a component makes, through all its parts: a few lines of nested
//! components can ask for a billion, and compiling them would be the first to feel it.

use wasmparser::{
    ComponentAlias, ComponentExternalKind as Kind, ComponentInstance, ComponentOuterAliasKind as OuterKind, Instance,
    Parser, Payload,
};

use super::LoadError;
use crate::engine::MEMORY_BYTES_CEILING;
use crate::limits::{
    CORE_INSTANCES_PER_COMPONENT, MEMORIES_PER_COMPONENT, NESTED_INSTANCES_PER_COMPONENT, TABLE_ELEMENTS_MAX,
    TABLES_PER_COMPONENT,
};

const PAGE_BYTES: u64 = 64 << 10;

/// What one instance of something makes, its parts included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Made {
    core_instances: u64,
    instances: u64,
    memories: u64,
    memory_bytes: u64,
    tables: u64,
    /// Of the largest table.
    table_elements: u64,
}

impl Made {
    fn and(self, other: Self) -> Self {
        Self {
            core_instances: self.core_instances.saturating_add(other.core_instances),
            instances: self.instances.saturating_add(other.instances),
            memories: self.memories.saturating_add(other.memories),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            tables: self.tables.saturating_add(other.tables),
            table_elements: self.table_elements.max(other.table_elements),
        }
    }
}

/// A module or component being read. What it was handed (an import, another instance's export) is not known.
#[derive(Default)]
struct Part {
    is_module: bool,
    made: Made,
    modules: Vec<Option<Made>>,
    components: Vec<Option<Made>>,
}

/// Refuses a component that makes more than the limits allow.
pub(super) fn check(bytes: &[u8]) -> Result<(), LoadError> {
    let made = count(bytes)?;
    let limits = [
        ("instances", made.core_instances, u64::from(CORE_INSTANCES_PER_COMPONENT)),
        ("instances", made.instances, u64::from(NESTED_INSTANCES_PER_COMPONENT)),
        ("memories", made.memories, u64::from(MEMORIES_PER_COMPONENT)),
        ("memory", made.memory_bytes, MEMORY_BYTES_CEILING as u64),
        ("tables", made.tables, u64::from(TABLES_PER_COMPONENT)),
        ("table-elements", made.table_elements, TABLE_ELEMENTS_MAX as u64),
    ];
    match limits.into_iter().find(|(_, found, max)| found > max) {
        Some((limit, found, max)) => Err(LoadError::OverLimit { limit, found, max }),
        None => Ok(()),
    }
}

fn count(bytes: &[u8]) -> Result<Made, LoadError> {
    let mut open: Vec<Part> = Vec::new();
    let mut whole = Made::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(invalid)?;
        match &payload {
            Payload::Version { encoding, .. } => {
                open.push(Part { is_module: *encoding == wasmparser::Encoding::Module, ..Part::default() });
            }
            Payload::End(_) => match (open.pop(), open.last_mut()) {
                (Some(part), Some(outer)) if part.is_module => outer.modules.push(Some(part.made)),
                (Some(part), Some(outer)) => outer.components.push(Some(part.made)),
                (Some(part), None) => whole = part.made,
                (None, _) => {}
            },
            _ => note(&payload, &mut open)?,
        }
    }
    Ok(whole)
}

fn note(payload: &Payload<'_>, open: &mut [Part]) -> Result<(), LoadError> {
    match payload {
        Payload::MemorySection(memories) => {
            for memory in memories.clone() {
                let memory_bytes = memory.map_err(invalid)?.initial.saturating_mul(PAGE_BYTES);
                add(open, Some(Made { memories: 1, memory_bytes, ..Made::default() }))?;
            }
        }
        Payload::TableSection(tables) => {
            for table in tables.clone() {
                let table_elements = table.map_err(invalid)?.ty.initial;
                add(open, Some(Made { tables: 1, table_elements, ..Made::default() }))?;
            }
        }
        Payload::InstanceSection(instances) => {
            for instance in instances.clone() {
                if let Instance::Instantiate { module_index, .. } = instance.map_err(invalid)? {
                    let made = open.last().and_then(|part| known(&part.modules, module_index));
                    add(open, made.map(|made| made.and(Made { core_instances: 1, ..Made::default() })))?;
                }
            }
        }
        Payload::ComponentInstanceSection(instances) => {
            for instance in instances.clone() {
                if let ComponentInstance::Instantiate { component_index, .. } = instance.map_err(invalid)? {
                    let made = open.last().and_then(|part| known(&part.components, component_index));
                    add(open, made.map(|made| made.and(Made { instances: 1, ..Made::default() })))?;
                }
            }
        }
        _ => named(payload, open)?,
    }
    Ok(())
}

/// What gives a module or a component another index.
fn named(payload: &Payload<'_>, open: &mut [Part]) -> Result<(), LoadError> {
    match payload {
        Payload::ComponentAliasSection(aliases) => {
            for alias in aliases.clone() {
                match alias.map_err(invalid)? {
                    ComponentAlias::InstanceExport { kind, .. } => push(open, kind, None),
                    ComponentAlias::Outer { kind: OuterKind::CoreModule, count, index } => {
                        let made = outer(open, count).and_then(|part| known(&part.modules, index));
                        push(open, Kind::Module, made);
                    }
                    ComponentAlias::Outer { kind: OuterKind::Component, count, index } => {
                        let made = outer(open, count).and_then(|part| known(&part.components, index));
                        push(open, Kind::Component, made);
                    }
                    _ => {}
                }
            }
        }
        Payload::ComponentImportSection(imports) => {
            for import in imports.clone() {
                push(open, import.map_err(invalid)?.ty.kind(), None);
            }
        }
        Payload::ComponentExportSection(exports) => {
            for export in exports.clone() {
                let export = export.map_err(invalid)?;
                let part = open.last();
                let made = match export.kind {
                    Kind::Module => part.and_then(|part| known(&part.modules, export.index)),
                    Kind::Component => part.and_then(|part| known(&part.components, export.index)),
                    _ => None,
                };
                push(open, export.kind, made);
            }
        }
        _ => {}
    }
    Ok(())
}

fn known(parts: &[Option<Made>], index: u32) -> Option<Made> {
    parts.get(index as usize).copied().flatten()
}

fn outer(open: &[Part], count: u32) -> Option<&Part> {
    open.len().checked_sub(1 + count as usize).and_then(|at| open.get(at))
}

fn push(open: &mut [Part], kind: Kind, made: Option<Made>) {
    let Some(part) = open.last_mut() else { return };
    match kind {
        Kind::Module => part.modules.push(made),
        Kind::Component => part.components.push(made),
        _ => {}
    }
}

fn add(open: &mut [Part], made: Option<Made>) -> Result<(), LoadError> {
    let made = made.ok_or(LoadError::HandedIn)?;
    if let Some(part) = open.last_mut() {
        part.made = part.made.and(made);
    }
    Ok(())
}

fn invalid(error: wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Invalid { message: error.to_string() }
}
