//! Turns of guests: under load a call is told early that it was not begun, and those that were begun are
//! answered. Without this each call waits so long for its turn that nobody waits for its answer any more.

use std::sync::Arc;
use std::time::Duration;

use oncegate_sandbox::outcome::{Code, NextAction, Outcome};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Guests at once, those included that run on after their call was answered `pending`: as many as the sandbox runs.
const TURNS_MAX: usize = 64;
/// Seconds until a call that was not begun is worth another try.
const TRY_AFTER: u32 = 2;

/// Who may run a guest now.
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TURNS_MAX)))
    }
}

impl Turns {
    /// A turn, for as long as it is held. Whoever has to answer in `within` waits for half of it: the other half
    /// is for the guest.
    ///
    /// # Errors
    /// None came: what the caller is told.
    pub(super) async fn take(&self, within: Duration) -> Result<OwnedSemaphorePermit, Box<Outcome>> {
        match tokio::time::timeout(within / 2, Arc::clone(&self.0).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Box::new(not_begun())),
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
}
