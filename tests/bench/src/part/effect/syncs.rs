//! How often this process syncs, counted by `strace`.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Long enough for `strace` to attach itself to all threads.
const ATTACHES: Duration = Duration::from_millis(400);

/// The syncs that this work makes; none where nothing can count them.
pub(super) fn of(work: impl FnOnce()) -> Option<u64> {
    let file = tempfile::NamedTempFile::new().ok()?;
    let mut strace = attach(file.path().to_str()?)?;
    std::thread::sleep(ATTACHES);
    work();
    std::thread::sleep(ATTACHES);
    // Asked to end, it lets go of this process and writes what it saw.
    let _ = Command::new("kill").args(["-INT", &strace.id().to_string()]).status();
    strace.wait().ok()?;
    let text = std::fs::read_to_string(file.path()).ok()?;
    let count = text.lines().filter(|line| line.contains("sync(") && !line.contains("resumed")).count();
    (count > 0).then_some(count as u64)
}

fn attach(file: &str) -> Option<Child> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", "trace=fdatasync,fsync,msync,sync_file_range", "-o", file]);
    strace.args(["-p", &std::process::id().to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
    strace.stderr(Stdio::null()).spawn().ok()
}
