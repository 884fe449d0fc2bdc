//! Who computes: of the calls that are open most wait for a provider, and few may hold the cores at once.
//!
//! A guest takes a turn before it begins and gives it back while it waits for an answer. Guests that come back from such
//! a wait have turns of their own, so that those that were begun are answered while others wait to begin. No component
//! and no tenant takes all of these: a tool that asks and then spins keeps its own calls waiting.

use std::any::Any;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::Semaphore;

use crate::call::Call;
use crate::engine::CALLS_AT_ONCE_MAX;
use crate::limits::{CALLS_GOING_ON_MAX, CALLS_OF_ONE_COMPONENT_GOING_ON_MAX, CALLS_OF_ONE_TENANT_GOING_ON_MAX};
use crate::shares::Shares;

/// The turns of a host.
pub(crate) struct Computing {
    begin: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
    of_component: Shares<[u8; 32]>,
    of_tenant: Shares<String>,
}

impl Default for Computing {
    fn default() -> Self {
        Self {
            begin: Arc::new(Semaphore::new(CALLS_AT_ONCE_MAX as usize)),
            go_on: Arc::new(Semaphore::new(CALLS_GOING_ON_MAX)),
            of_component: Shares::new(CALLS_OF_ONE_COMPONENT_GOING_ON_MAX),
            of_tenant: Shares::new(CALLS_OF_ONE_TENANT_GOING_ON_MAX),
        }
    }
}

impl Computing {
    /// The turn of a guest that has waited. Whoever waits for the last part holds the others: they are his share.
    async fn go_on(&self, component: &[u8; 32], tenant: &String) -> Held {
        let queues = [self.of_component.of(component), self.of_tenant.of(tenant), Arc::clone(&self.go_on)];
        let mut parts = Vec::with_capacity(queues.len());
        for queue in queues {
            // Never closed: it always comes.
            parts.push(queue.acquire_owned().await.ok());
        }
        Box::new(parts)
    }
}

/// Dropped, somebody else has the turn.
type Held = Box<dyn Any + Send>;

/// One guest's turn, or that it has none now.
#[derive(Default)]
pub(crate) struct Turn(Mutex<Option<Held>>);

impl Turn {
    /// Has the guest begin by a turn that its caller took.
    pub(crate) fn is(&self, taken: Held) {
        self.keep(Some(taken));
    }

    /// Takes the turn of a guest that begins, unless it has one.
    pub(crate) async fn begin(&self, of: &Computing) {
        if !self.has_one() {
            let turn = Arc::clone(&of.begin).acquire_owned().await.ok();
            self.keep(Some(Box::new(turn)));
        }
    }

    fn has_one(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The guest computes no more.
    pub(crate) fn end(&self) {
        self.keep(None);
    }

    fn keep(&self, turn: Option<Held>) {
        let before = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), turn);
        // Not under the lock: it wakes others.
        drop(before);
    }
}

/// Gives a call's turn back for as long as its guest waits for this; what is there at once is not waited for.
pub(crate) async fn while_waiting<T>(call: &Call, answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    let at_once = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
    if let Poll::Ready(answer) = at_once {
        return answer;
    }
    call.turn.end();
    let answer = answer.await;
    let tenant = call.tenant().to_owned();
    let turn = call.host.computing.go_on(&call.component.description.digest, &tenant).await;
    call.turn.keep(Some(turn));
    answer
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    async fn many(of: &Computing, component: u8, tenant: &str, count: usize) -> Vec<Held> {
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(timeout(SOON, of.go_on(&[component; 32], &tenant.to_owned())).await.unwrap());
        }
        held
    }

    async fn waits(of: &Computing, component: u8, tenant: &str) -> bool {
        timeout(Duration::ZERO, of.go_on(&[component; 32], &tenant.to_owned())).await.is_err()
    }

    #[tokio::test]
    async fn who_comes_back_does_not_wait_for_those_that_begin() {
        let of = Computing::default();
        let mut all = Vec::new();
        for _ in 0..CALLS_AT_ONCE_MAX {
            let turn = Turn::default();
            timeout(SOON, turn.begin(&of)).await.unwrap();
            all.push(turn);
        }
        assert!(timeout(Duration::ZERO, Turn::default().begin(&of)).await.is_err(), "all turns are taken");
        many(&of, 1, "acme", 1).await;
        all[0].end();
        timeout(SOON, Turn::default().begin(&of)).await.unwrap();
        let taken = Turn::default();
        taken.is(Box::new(()));
        timeout(SOON, taken.begin(&of)).await.unwrap();
        assert_eq!(of.begin.available_permits(), 1, "one with a turn takes no other");
    }

    #[tokio::test]
    async fn no_component_and_no_tenant_keeps_others_from_going_on() {
        let of = Computing::default();
        let component = CALLS_OF_ONE_COMPONENT_GOING_ON_MAX;
        let spinning = many(&of, 1, "acme", component).await;
        assert!(waits(&of, 1, "other").await);
        let more = many(&of, 2, "acme", CALLS_OF_ONE_TENANT_GOING_ON_MAX - component).await;
        assert!(waits(&of, 3, "acme").await);
        let rest = many(&of, 3, "other", CALLS_GOING_ON_MAX - CALLS_OF_ONE_TENANT_GOING_ON_MAX).await;
        assert!(waits(&of, 4, "third").await);
        drop(spinning);
        assert!(!waits(&of, 4, "third").await);
        drop((more, rest));
    }
}
