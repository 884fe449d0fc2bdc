//! A future that its caller drives for as long as he waits for it, and that goes on in a task of its own when he has
//! gone.
//!
//! Most guests end within microseconds: a task for each costs a queue, a wake-up and often another thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// It panicked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

/// See the module. As with a task, a panic in it is no panic of its caller's.
pub(crate) struct Attached<T: Send + 'static> {
    /// None when it has ended.
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    tasks: TaskTracker,
    runtime: Option<Handle>,
    /// What waits for the tracker's tasks waits for this too.
    _counted: TaskTrackerToken,
}

impl<T: Send + 'static> Attached<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static, tasks: &TaskTracker) -> Self {
        let (tasks, _counted) = (tasks.clone(), tasks.token());
        Self { future: Some(Box::pin(future)), tasks, runtime: Handle::try_current().ok(), _counted }
    }
}

impl<T: Send + 'static> Future for Attached<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else { return Poll::Ready(Err(Panicked)) };
        // It is dropped after a panic and never polled again, so nobody sees what the panic left half done.
        let ended = match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(_) => Err(Panicked),
        };
        self.future = None;
        Poll::Ready(ended)
    }
}

impl<T: Send + 'static> Drop for Attached<T> {
    fn drop(&mut self) {
        if let (Some(future), Some(runtime)) = (self.future.take(), &self.runtime) {
            self.tasks.spawn_on(future, runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn it_ends_in_its_callers_task() {
        let tasks = TaskTracker::new();
        let here = tokio::task::try_id();
        let attached = Attached::new(async { tokio::task::try_id() }, &tasks);
        assert_eq!(attached.await, Ok(here));
        assert!(tasks.is_empty());
    }

    #[tokio::test]
    async fn it_goes_on_when_its_caller_has_gone() {
        let tasks = TaskTracker::new();
        let (goes, on) = oneshot::channel::<()>();
        let (sender, done) = oneshot::channel();
        let attached = Attached::new(
            async {
                on.await.unwrap();
                sender.send(7).unwrap();
            },
            &tasks,
        );
        assert!(timeout(Duration::ZERO, attached).await.is_err());
        tasks.close();
        assert!(timeout(Duration::ZERO, tasks.wait()).await.is_err(), "who waits for all waits for it");
        goes.send(()).unwrap();
        assert_eq!(done.await, Ok(7));
        tasks.wait().await;
    }

    #[tokio::test]
    async fn one_that_was_never_polled_is_run_all_the_same() {
        let tasks = TaskTracker::new();
        let (sender, done) = oneshot::channel();
        drop(Attached::new(async { sender.send(7).unwrap() }, &tasks));
        assert_eq!(done.await, Ok(7));
    }

    #[tokio::test]
    async fn its_panic_is_not_its_callers() {
        let tasks = TaskTracker::new();
        let attached = Attached::new(async { panic!("on purpose") }, &tasks);
        assert_eq!(attached.await, Err::<(), _>(Panicked));
        assert!(tasks.is_empty());
    }
}
