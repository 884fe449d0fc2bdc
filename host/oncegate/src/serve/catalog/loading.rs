//! Loading many components at once, by as many threads as there are cores.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use oncegate_sandbox::{ComponentError, Loaded, Sandbox};

/// Threads, however many cores there are: each may hold a component's bytes.
const THREADS_MAX: usize = 8;

/// What came of one component.
type Result = std::result::Result<Arc<Loaded>, ComponentError>;

/// Loads these, and says of each what came of it, in their order.
pub(super) fn load_all(sandbox: &Sandbox, paths: &[&Path]) -> Vec<Result> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = cores.min(THREADS_MAX).min(paths.len());
    if threads < 2 {
        return paths.iter().map(|path| sandbox.load_for_later(path)).collect();
    }
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(paths.len()));
    let work = || {
        while let Some((at, path)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, paths.get(at)?)))
        {
            let one = sandbox.load_for_later(path);
            found.lock().unwrap_or_else(PoisonError::into_inner).push((at, one));
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, one)| one).collect()
}
