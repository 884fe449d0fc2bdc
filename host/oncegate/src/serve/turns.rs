//! Turns of guests: under load a call is told early that it was not begun, and those that were begun are
//! answered. Without this each call waits so long for its turn that nobody waits for its answer any more.
//!
//! No component and no tenant takes all turns, nor all places to wait in: what one of them does, others go on. A call
//! has a place for as long as it is open, and a turn until its guest first waits for a provider: of those that wait there
//! are many more than may compute at once.

use std::sync::Arc;
use std::time::Duration;

use oncegate_sandbox::engine::{CALLS_AT_ONCE_MAX, CALLS_OPEN_MAX};
use oncegate_sandbox::limits::{
    BYTES_OF_AN_OPEN_CALL, CALLS_OF_ONE_COMPONENT_MAX, CALLS_OF_ONE_COMPONENT_OPEN_MAX, CALLS_OF_ONE_TENANT_MAX,
    CALLS_OF_ONE_TENANT_OPEN_MAX, CALLS_OF_ONE_TENANT_WAITING_MAX, CALLS_WAITING_MAX,
};
use oncegate_sandbox::outcome::{Code, NextAction, Outcome};
use oncegate_sandbox::shares::Shares;
use oncegate_sandbox::{Ready, Running};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long a call that nobody waits for waits at a time.
const LONG: Duration = Duration::from_secs(600);
/// Seconds until a call that was not begun is worth another try.
const TRY_AFTER: u32 = 2;

/// Whose turn it is.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    component: [u8; 32],
    tenant: String,
    /// As how many open calls it counts: large arguments fill the memory of many small ones.
    counts: u32,
}

impl Whose {
    pub(super) fn of(ready: &Ready) -> Self {
        let counts = counts(ready.arguments_bytes());
        Self { component: ready.component(), tenant: ready.tenant().to_owned(), counts }
    }
}

/// One for each piece of so many bytes, and never more than one component may have open.
fn counts(bytes: usize) -> u32 {
    let pieces = bytes.div_ceil(BYTES_OF_AN_OPEN_CALL).clamp(1, CALLS_OF_ONE_COMPONENT_OPEN_MAX);
    u32::try_from(pieces).unwrap_or(u32::MAX)
}

/// A place and a turn: one guest may be run.
pub(super) struct Turn {
    open: Vec<OwnedSemaphorePermit>,
    computing: Vec<OwnedSemaphorePermit>,
}

impl Turn {
    /// Runs the call's guest.
    pub(super) fn start(self, ready: Ready) -> Running {
        ready.with_turn(self.computing).start_holding(self.open)
    }
}

/// So many of all, and so many of them for one component and one tenant.
struct Shared {
    all: Arc<Semaphore>,
    of_component: Shares<[u8; 32]>,
    of_tenant: Shares<String>,
    /// What each is called when there is none: of the component's, the tenant's and all.
    limits: [&'static str; 3],
}

impl Shared {
    /// In the order in which they came, of the same component, of the same tenant and of all. Whoever waits
    /// for the last holds the others: they are his share.
    async fn take(&self, whose: &Whose, many: u32, until: Instant) -> Result<Vec<OwnedSemaphorePermit>, &'static str> {
        let of_component = self.of_component.of(&whose.component);
        let queues = [of_component, self.of_tenant.of(&whose.tenant), Arc::clone(&self.all)];
        let mut parts = Vec::with_capacity(queues.len());
        for (queue, limit) in queues.into_iter().zip(self.limits) {
            let part = tokio::time::timeout_at(until, queue.acquire_many_owned(many)).await;
            parts.push(part.map_err(|_| limit)?.map_err(|_| limit)?);
        }
        Ok(parts)
    }
}

/// Who may run a guest now.
pub(super) struct Turns {
    open: Shared,
    computing: Shared,
    places: Arc<Semaphore>,
    places_of_tenant: Shares<String>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            open: Shared {
                all: Arc::new(Semaphore::new(CALLS_OPEN_MAX as usize)),
                of_component: Shares::new(CALLS_OF_ONE_COMPONENT_OPEN_MAX),
                of_tenant: Shares::new(CALLS_OF_ONE_TENANT_OPEN_MAX),
                limits: ["calls-of-one-component-open", "calls-of-one-tenant-open", "calls-open"],
            },
            computing: Shared {
                all: Arc::new(Semaphore::new(CALLS_AT_ONCE_MAX as usize)),
                of_component: Shares::new(CALLS_OF_ONE_COMPONENT_MAX),
                of_tenant: Shares::new(CALLS_OF_ONE_TENANT_MAX),
                limits: ["calls-of-one-component", "calls-of-one-tenant", "calls-at-once"],
            },
            places: Arc::new(Semaphore::new(CALLS_WAITING_MAX)),
            places_of_tenant: Shares::new(CALLS_OF_ONE_TENANT_WAITING_MAX),
        }
    }
}

impl Turns {
    /// A turn. Whoever has to answer in `within` waits for half of it: the other half is for the guest.
    ///
    /// # Errors
    /// None came, or too many wait for one: what the caller is told.
    pub(super) async fn take(&self, whose: &Whose, within: Duration) -> Result<Turn, Box<Outcome>> {
        let told = |limit| Box::new(not_begun(limit));
        let own = self.places_of_tenant.of(&whose.tenant);
        let _own_place = own.try_acquire_owned().map_err(|_| told("calls-of-one-tenant-waiting"))?;
        let _place = self.places.try_acquire().map_err(|_| told("calls-waiting"))?;
        self.next(whose, within / 2).await.map_err(told)
    }

    /// How many calls wait for a turn.
    pub(super) fn waiting(&self) -> usize {
        CALLS_WAITING_MAX.saturating_sub(self.places.available_permits())
    }

    async fn next(&self, whose: &Whose, within: Duration) -> Result<Turn, &'static str> {
        let until = Instant::now() + within;
        let open = self.open.take(whose, whose.counts, until).await?;
        Ok(Turn { open, computing: self.computing.take(whose, 1, until).await? })
    }

    /// A turn, however long that takes: for a call that nobody waits for.
    pub(super) async fn wait(&self, whose: &Whose) -> Turn {
        loop {
            if let Ok(turn) = self.next(whose, LONG).await {
                return turn;
            }
        }
    }
}

fn not_begun(limit: &str) -> Outcome {
    let message = "Too many calls are under way; this one was not begun. Call again with the same arguments.";
    Outcome {
        limit: Some(limit.to_owned()),
        next_action: NextAction::CallAgain,
        retry_after: Some(TRY_AFTER),
        ..Outcome::refused(Code::ToolLimit, message)
    }
}

#[cfg(test)]
mod tests {
    use oncegate_sandbox::shares;

    use super::*;

    const WITHIN: Duration = Duration::from_millis(20);
    const LATER: Duration = Duration::from_secs(600);

    fn whose(component: u8, tenant: &str) -> Whose {
        Whose { component: [component; 32], tenant: tenant.to_owned(), counts: 1 }
    }

    async fn many(turns: &Turns, whose: &Whose, count: usize) -> Vec<Turn> {
        let mut taken = Vec::new();
        for _ in 0..count {
            taken.push(turns.take(whose, LATER).await.unwrap());
        }
        taken
    }

    async fn refused(turns: &Turns, whose: &Whose) -> Option<String> {
        let told = turns.take(whose, WITHIN).await.err()?;
        assert_eq!((told.code, told.next_action), (Some(Code::ToolLimit), NextAction::CallAgain));
        told.limit
    }

    #[tokio::test]
    async fn whoever_gets_no_turn_is_told_which_limit_that_is() {
        let turns = Turns::default();
        let mut taken = many(&turns, &whose(1, "acme"), CALLS_OF_ONE_COMPONENT_MAX).await;
        assert_eq!(refused(&turns, &whose(1, "acme")).await.as_deref(), Some("calls-of-one-component"));
        assert_eq!(refused(&turns, &whose(1, "other")).await.as_deref(), Some("calls-of-one-component"));
        let more = CALLS_OF_ONE_TENANT_MAX - CALLS_OF_ONE_COMPONENT_MAX;
        taken.extend(many(&turns, &whose(2, "acme"), more).await);
        assert_eq!(refused(&turns, &whose(2, "acme")).await.as_deref(), Some("calls-of-one-tenant"));
        let more = CALLS_AT_ONCE_MAX as usize - CALLS_OF_ONE_TENANT_MAX;
        taken.extend(many(&turns, &whose(3, "other"), more).await);
        assert_eq!(refused(&turns, &whose(4, "third")).await.as_deref(), Some("calls-at-once"));
        taken.pop();
        assert_eq!(refused(&turns, &whose(4, "third")).await, None);
    }

    #[tokio::test]
    async fn many_more_are_open_than_compute_and_none_of_them_takes_the_places_of_others() {
        let turns = Turns::default();
        let wait_for_a_provider = async |component: u8, tenant: &str, count: usize| {
            let mut open = Vec::new();
            for _ in 0..count {
                open.push(turns.take(&whose(component, tenant), LATER).await.unwrap().open);
            }
            open
        };
        let component = CALLS_OF_ONE_COMPONENT_OPEN_MAX;
        let mut open = wait_for_a_provider(1, "acme", component).await;
        assert_eq!(refused(&turns, &whose(1, "other")).await.as_deref(), Some("calls-of-one-component-open"));
        open.extend(wait_for_a_provider(2, "acme", CALLS_OF_ONE_TENANT_OPEN_MAX - component).await);
        assert_eq!(refused(&turns, &whose(3, "acme")).await.as_deref(), Some("calls-of-one-tenant-open"));
        open.extend(wait_for_a_provider(3, "other", CALLS_OPEN_MAX as usize - CALLS_OF_ONE_TENANT_OPEN_MAX).await);
        assert_eq!(refused(&turns, &whose(4, "third")).await.as_deref(), Some("calls-open"));
        open.pop();
        assert_eq!(refused(&turns, &whose(4, "third")).await, None);
    }

    #[test]
    fn large_arguments_count_as_many_calls() {
        assert_eq!((counts(0), counts(BYTES_OF_AN_OPEN_CALL), counts(BYTES_OF_AN_OPEN_CALL + 1)), (1, 1, 2));
        assert_eq!(counts(usize::MAX) as usize, CALLS_OF_ONE_COMPONENT_OPEN_MAX, "it can be begun");
    }

    #[tokio::test]
    async fn so_many_wait_and_no_more_and_none_of_them_takes_the_places_of_others() {
        let turns = Arc::new(Turns::default());
        let all = Arc::clone(&turns.computing.all).acquire_many_owned(CALLS_AT_ONCE_MAX).await.unwrap();
        let wait = |tenant: &'static str| {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.take(&whose(1, tenant), LATER).await.is_ok() })
        };
        let mut waiting: Vec<_> = (0..CALLS_OF_ONE_TENANT_WAITING_MAX).map(|_| wait("acme")).collect();
        let others = CALLS_WAITING_MAX - CALLS_OF_ONE_TENANT_WAITING_MAX;
        while turns.places.available_permits() > others {
            tokio::task::yield_now().await;
        }
        assert_eq!(refused(&turns, &whose(2, "acme")).await.as_deref(), Some("calls-of-one-tenant-waiting"));
        waiting.extend((0..others).map(|_| wait("other")));
        while turns.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(refused(&turns, &whose(2, "third")).await.as_deref(), Some("calls-waiting"), "told at once");
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        drop(all);
    }

    #[tokio::test]
    async fn who_holds_nothing_is_forgotten() {
        let turns = Turns::default();
        for tenant in 0..1_000 {
            drop(turns.take(&whose(1, &tenant.to_string()), LATER).await);
        }
        assert!(turns.computing.of_tenant.kept() <= shares::KEPT);
    }
}
