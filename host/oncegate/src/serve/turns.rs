//! Turns of guests: under load a call is told early that it was not begun, and those that were begun are
//! answered. Without this each call waits so long for its turn that nobody waits for its answer any more.

use std::sync::Arc;
use std::time::Duration;

use oncegate_sandbox::outcome::{Code, NextAction, Outcome};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Guests at once, those included that run on after their call was answered `pending`: as many as the sandbox runs.
const TURNS_MAX: usize = 64;
/// Calls at once that wait for a turn. Each holds its arguments, and a client that has gone may have left many.
const WAITING_MAX: usize = 512;
/// How long a call that nobody waits for waits at a time.
const LONG: Duration = Duration::from_secs(600);
/// Seconds until a call that was not begun is worth another try.
const TRY_AFTER: u32 = 2;

/// Who may run a guest now.
pub(super) struct Turns {
    free: Arc<Semaphore>,
    places: Semaphore,
}

impl Default for Turns {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(TURNS_MAX)), places: Semaphore::new(WAITING_MAX) }
    }
}

impl Turns {
    /// A turn, for as long as it is held. Whoever has to answer in `within` waits for half of it: the other half
    /// is for the guest.
    ///
    /// # Errors
    /// None came, or too many wait for one: what the caller is told.
    pub(super) async fn take(&self, within: Duration) -> Result<OwnedSemaphorePermit, Box<Outcome>> {
        let Ok(_place) = self.places.try_acquire() else { return Err(Box::new(not_begun())) };
        self.next(within / 2).await.ok_or_else(|| Box::new(not_begun()))
    }

    async fn next(&self, within: Duration) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(within, Arc::clone(&self.free).acquire_owned()).await.ok()?.ok()
    }

    /// A turn, however long that takes: for a call that nobody waits for.
    pub(super) async fn wait(&self) -> OwnedSemaphorePermit {
        loop {
            if let Some(turn) = self.next(LONG).await {
                return turn;
            }
        }
    }
}

fn not_begun() -> Outcome {
    let message = "Too many calls are under way; this one was not begun. Call again with the same arguments.";
    Outcome {
        next_action: NextAction::CallAgain,
        retry_after: Some(TRY_AFTER),
        ..Outcome::refused(Code::ToolLimit, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_gets_no_turn_is_told() {
        let turns = Turns::default();
        let within = Duration::from_millis(20);
        let mut taken = Vec::new();
        for _ in 0..TURNS_MAX {
            taken.push(turns.take(Duration::from_secs(60)).await.unwrap());
        }
        let told = turns.take(within).await.unwrap_err();
        assert_eq!((told.code, told.next_action), (Some(Code::ToolLimit), NextAction::CallAgain));
        taken.pop();
        assert!(turns.take(within).await.is_ok());
    }

    #[tokio::test]
    async fn so_many_wait_and_no_more() {
        let turns = Arc::new(Turns::default());
        let _all = Arc::clone(&turns.free).acquire_many_owned(64).await.unwrap();
        let wait = || {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take(Duration::from_secs(600)).await.is_ok() })
        };
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| wait()).collect();
        while turns.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(turns.take(Duration::from_secs(600)).await.is_err(), "told at once");
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
