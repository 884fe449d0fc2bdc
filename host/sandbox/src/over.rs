//! Which limit a guest exceeded: the engine refuses a growth or ends a run, this gives it the limit's name.

use wasmtime::component::ResourceTableError;
use wasmtime::{ResourceLimiter, Trap, WasmBacktrace};

use crate::limits::{CORE_INSTANCES_PER_COMPONENT, MEMORIES_PER_COMPONENT, TABLE_ELEMENTS_MAX, TABLES_PER_COMPONENT};

/// Ends a guest that exceeded the limit of this name, where no answer to it could say so.
#[derive(Debug, thiserror::Error)]
#[error("the limit {0} is used up")]
pub(crate) struct OverLimit(pub(crate) &'static str);

/// What the engine says where it has no type for it, and the limit that this is. A test brings each about.
const SAID: [(&str, &str); 7] = [
    ("store handle limit exceeded", "handles"),
    ("resource table has no free keys", "handles"),
    ("requested len ", "random"),
    ("instance count too high", "instances"),
    ("memory count too high", "memories"),
    ("table count too high", "tables"),
    ("core module instances, which exceeds", "instances"),
];
/// What it says when more is copied out of a guest than one call may copy.
const COPIED: &str = "fuel allocated for hostcalls has been exhausted";

/// The limit that ended a run with this error; none where no limit did.
pub(crate) fn limit_of(error: &wasmtime::Error, growth: &Growth) -> Option<&'static str> {
    if let Some(OverLimit(name)) = error.downcast_ref::<OverLimit>() {
        return Some(name);
    }
    if error.downcast_ref::<Trap>() == Some(&Trap::StackOverflow) {
        return Some("stack");
    }
    if let Some(ResourceTableError::Full) = error.downcast_ref::<ResourceTableError>() {
        return Some("handles");
    }
    let cause = error.root_cause().to_string();
    if cause.contains(COPIED) {
        // No guest is on the stack any more when its result is read.
        return Some(if error.is::<WasmBacktrace>() { "host-call-bytes" } else { "result" });
    }
    let said = SAID.iter().find(|(text, _)| cause.contains(text));
    said.map(|(_, name)| *name).or(growth.refused)
}

/// Bytes of all memories together, which wasmtime's own limits count each by itself; and the first growth
/// that was refused. A guest sees that as its own failure; the host must not.
pub(crate) struct Growth {
    used: usize,
    memory_bytes_max: usize,
    refused: Option<&'static str>,
}

impl Growth {
    pub(crate) const fn new(memory_bytes_max: usize) -> Self {
        Self { used: 0, memory_bytes_max, refused: None }
    }

    fn refuse_unless(&mut self, fits: bool, limit: &'static str) -> bool {
        if !fits {
            self.refused.get_or_insert(limit);
        }
        fits
    }
}

impl ResourceLimiter for Growth {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let total = self.used.saturating_sub(current).saturating_add(desired);
        let fits = total <= self.memory_bytes_max;
        if fits {
            self.used = total;
        }
        Ok(self.refuse_unless(fits, "memory"))
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.refuse_unless(desired <= TABLE_ELEMENTS_MAX, "table-elements"))
    }

    // The pool has the same bounds; these hold where there is no pool.
    fn instances(&self) -> usize {
        CORE_INSTANCES_PER_COMPONENT as usize
    }

    fn tables(&self) -> usize {
        TABLES_PER_COMPONENT as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_PER_COMPONENT as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memories_share_one_limit() {
        let mut growth = Growth::new(100);
        assert!(growth.memory_growing(0, 60, None).unwrap());
        assert!(growth.memory_growing(0, 40, None).unwrap());
        assert!(!growth.memory_growing(40, 41, None).unwrap());
        assert!(growth.memory_growing(60, 60, None).unwrap());
        assert_eq!(growth.refused, Some("memory"));
    }

    #[test]
    fn the_first_refused_growth_names_what_follows() {
        let mut growth = Growth::new(100);
        let trap = || wasmtime::Error::from(Trap::UnreachableCodeReached);
        assert_eq!(limit_of(&trap(), &growth), None);
        assert!(growth.table_growing(0, TABLE_ELEMENTS_MAX, None).unwrap());
        assert!(!growth.table_growing(0, TABLE_ELEMENTS_MAX + 1, None).unwrap());
        assert!(!growth.memory_growing(0, 101, None).unwrap());
        assert_eq!(limit_of(&trap(), &growth), Some("table-elements"));
        assert_eq!(limit_of(&OverLimit("host-calls").into(), &growth), Some("host-calls"));
        assert_eq!(limit_of(&wasmtime::Error::from(Trap::StackOverflow), &growth), Some("stack"));
    }
}
