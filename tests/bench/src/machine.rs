//! The machine that a run was made on, as far as it says something about figures.

use std::fs;

use serde::{Deserialize, Serialize};

/// What the absolute figures hold for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// The processor's own name.
    pub processor: String,
    /// Kernel and its release.
    pub kernel: String,
    /// Memory, GiB.
    pub memory_gib: u64,
    /// The file system under the ledgers.
    pub file_system: String,
    /// Load of the last minute when the run began: other work makes ratios noisy.
    pub load: String,
}

impl Machine {
    /// Reads it from the kernel; what it does not say is empty.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let kib = value(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: value(&read("/proc/cpuinfo"), "model name"),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            memory_gib: kib >> 20,
            file_system: file_system(&read("/proc/mounts")),
            load: read("/proc/loadavg").split_whitespace().next().unwrap_or_default().to_owned(),
        }
    }
}

fn value(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

/// That of the folder for temporary files, where ledgers of a run lie.
fn file_system(mounts: &str) -> String {
    let folder = std::env::temp_dir();
    let under = |line: &&str| line.split(' ').nth(1).is_some_and(|at| folder.starts_with(at));
    let longest = mounts.lines().filter(under).max_by_key(|line| line.split(' ').nth(1).map_or(0, str::len));
    longest.and_then(|line| line.split(' ').nth(2)).unwrap_or_default().to_owned()
}
