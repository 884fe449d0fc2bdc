//! What libFuzzer said of a target, as a row.

use std::path::Path;

/// One target's run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) target: String,
    pub(super) failed: bool,
    runs: u64,
    seconds: u64,
    edges: u64,
    new: u64,
    memory_mib: u64,
    /// The input of a finding.
    input: Option<String>,
    /// The line that says what was found.
    found: Option<String>,
}

impl Row {
    /// Reads libFuzzer's log.
    pub(super) fn read(target: &str, succeeded: bool, log: &str) -> Self {
        let stat = |name: &str| {
            let found = log.lines().rev().find_map(|line| line.strip_prefix(&format!("stat::{name}:")));
            found.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
        };
        let runs = stat("number_of_executed_units");
        let per_second = stat("average_exec_per_sec");
        let wrong = ["panicked at", "ERROR: libFuzzer"];
        Self {
            target: target.to_owned(),
            failed: !succeeded,
            runs,
            seconds: runs.checked_div(per_second).unwrap_or_default(),
            edges: log.lines().rev().find_map(edges).unwrap_or_default(),
            new: stat("new_units_added"),
            memory_mib: stat("peak_rss_mb"),
            input: log.lines().find_map(|line| Some(line.split_once("Test unit written to ")?.1.to_owned())),
            found: log.lines().find(|line| wrong.iter().any(|word| line.contains(word))).map(str::to_owned),
        }
    }

    /// What to do with a finding.
    pub(super) fn finding(&self, root: &Path) -> String {
        let Self { target, input, found, .. } = self;
        let found = found.as_deref().unwrap_or("it ended without saying why");
        let log = root.join(format!("target/fuzz/{target}.log"));
        let Some(input) = input else { return format!("{target}: {found}; the log is {}", log.display()) };
        format!(
            "{target}: {found}\n  the input is {input}\n  again: cargo xtask fuzz {target} --input {input}\n  once it is \
             mended, move it to tests/fuzz/corpus/{target}: every `cargo test` tries it then"
        )
    }
}

/// `#1024 NEW cov: 812 ft: 1500 …` has the edges that were reached.
fn edges(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(" cov: ")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The rows under each other.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = format!(
        "{:<12} {:>10} {:>8} {:>8} {:>6} {:>10}  {}\n",
        "target", "runs", "runs/s", "edges", "new", "memory", "findings"
    );
    for row in rows {
        let per_second = row.runs.checked_div(row.seconds).unwrap_or(row.runs);
        let finding = if row.failed { "1" } else { "0" };
        table.push_str(&format!(
            "{:<12} {:>10} {per_second:>8} {:>8} {:>6} {:>6} MiB  {finding}\n",
            row.target, row.runs, row.edges, row.new, row.memory_mib
        ));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 40Mb
#5000\tDONE   cov: 812 ft: 1500 corp: 90/4Kb lim: 40 exec/s: 1000 rss: 60Mb
Done 5000 runs in 5 second(s)
stat::number_of_executed_units: 5000
stat::average_exec_per_sec:     1000
stat::new_units_added:          17
stat::slowest_unit_time_sec:    0
stat::peak_rss_mb:              60
";

    #[test]
    fn a_log_becomes_a_row() {
        let row = Row::read("policy", true, LOG);
        assert_eq!((row.runs, row.seconds, row.edges, row.new, row.memory_mib), (5000, 5, 812, 17, 60));
        assert!(!row.failed && row.input.is_none());
        assert!(table(&[row]).contains("policy             5000     1000      812     17     60 MiB  0"));
    }

    #[test]
    fn a_finding_says_where_its_input_is() {
        let log = "thread 'main' panicked at host/x.rs:1:2:\nboom\nTest unit written to /t/policy-crash-1\n";
        let said = Row::read("policy", false, log).finding(Path::new("/r"));
        assert!(said.contains("panicked at host/x.rs") && said.contains("--input /t/policy-crash-1"), "{said}");
        let silent = Row::read("policy", false, "").finding(Path::new("/r"));
        assert!(silent.contains("/r/target/fuzz/policy.log"), "{silent}");
    }
}
