//! Work on threads of its own: files, and drivers that start tasks which must not outlive a lookup.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::DatabaseError;

/// Lookups at once that take a thread; more wait their turn.
const THREADS_MAX: usize = 8;

/// Runs `work` on one of a few threads.
pub(super) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DatabaseError> + Send + 'static,
) -> Result<T, DatabaseError> {
    static TURNS: OnceLock<Arc<Semaphore>> = OnceLock::new();
    let turns = TURNS.get_or_init(|| Arc::new(Semaphore::new(THREADS_MAX))).clone();
    let turn = turns.acquire_owned().await.map_err(|error| DatabaseError::NotSetUp(error.to_string()))?;
    let done = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    done.await.unwrap_or_else(|error| Err(DatabaseError::NotSetUp(format!("the lookup stopped: {error}"))))
}

/// Runs a driver in a runtime that ends with it: whatever it had started, connections too, is dropped.
pub(super) async fn drive<T, F>(within: Duration, work: impl FnOnce() -> F + Send + 'static) -> Result<T, DatabaseError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, DatabaseError>>,
{
    run(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| DatabaseError::NotSetUp(error.to_string()))?;
        let done = runtime.block_on(async { timeout(within, work()).await.unwrap_or(Err(DatabaseError::TimedOut)) });
        runtime.shutdown_background();
        done
    })
    .await
}
