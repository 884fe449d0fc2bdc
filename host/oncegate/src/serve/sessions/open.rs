//! Which sessions are open: whose they are, what runs in them, and since when nothing does.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::RequestId;
use rmcp::transport::streamable_http_server::session::SessionId;

use crate::serve::cancelled::Cancelled;
use crate::serve::tokens::Identity;

/// Sessions at once; each holds a task and some buffers.
const SESSIONS_MAX: usize = 1_024;
/// Of these, what one token's tenant may have: others need room as well.
const SESSIONS_EACH_MAX: usize = 256;
/// Requests under way in one session; each may hold a guest's memory.
const RUNNING_MAX: usize = 64;

/// All open sessions.
#[derive(Default)]
pub(super) struct Open(Mutex<Table>);

#[derive(Default)]
struct Table {
    sessions: HashMap<SessionId, Session>,
    /// Those that are about to begin, by whose they will be.
    beginning: Vec<Identity>,
}

struct Session {
    /// None until its client is told of it, which may never be: the client may have gone.
    whose: Option<Identity>,
    running: HashSet<RequestId>,
    cancelled: Cancelled,
    /// Responses that are being sent.
    streams: usize,
    /// When anything happened last.
    last: Instant,
}

/// There is no room for another session.
pub(super) struct Full;

/// Why a request does not run.
pub(super) enum Repeated {
    /// Another runs under its id.
    Id,
    /// Another was cancelled under its id.
    Cancelled,
    /// Too many run.
    TooMany,
}

/// Room for a session that is about to begin.
pub(super) struct Beginning {
    open: Arc<Open>,
    whose: Identity,
}

/// One request inside a session, for as long as its response is being sent.
pub(super) struct Stream {
    open: Arc<Open>,
    id: SessionId,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for one more.
    pub(super) fn begin(self: &Arc<Self>, whose: &Identity) -> Result<Beginning, Full> {
        let mut table = self.lock();
        let owned = table.sessions.values().filter_map(|session| session.whose.as_ref()).chain(&table.beginning);
        let own = owned.filter(|one| one.same_tenant(whose)).count();
        let all = table.sessions.len() + table.beginning.len();
        if all >= SESSIONS_MAX || own >= SESSIONS_EACH_MAX {
            return Err(Full);
        }
        table.beginning.push(whose.clone());
        Ok(Beginning { open: Arc::clone(self), whose: whose.clone() })
    }

    /// The SDK has made a session.
    pub(super) fn made(&self, id: SessionId) {
        let session = Session {
            whose: None,
            running: HashSet::new(),
            cancelled: Cancelled::default(),
            streams: 0,
            last: Instant::now(),
        };
        self.lock().sessions.insert(id, session);
    }

    /// Enters a session, if it is there and theirs who ask.
    pub(super) fn enter(self: &Arc<Self>, id: &SessionId, whose: &Identity) -> Option<Stream> {
        let mut table = self.lock();
        let session = table.sessions.get_mut(id).filter(|session| session.whose.as_ref() == Some(whose))?;
        session.streams += 1;
        session.last = Instant::now();
        Some(Stream { open: Arc::clone(self), id: Arc::clone(id) })
    }

    /// The request was answered, or never will be.
    pub(super) fn free(&self, id: &SessionId, request: &RequestId) {
        if let Some(session) = self.lock().sessions.get_mut(id) {
            session.running.remove(request);
            session.last = Instant::now();
        }
    }

    /// The request's answer is not sent any more.
    fn cancel(&self, id: &SessionId, request: &RequestId) {
        if let Some(session) = self.lock().sessions.get_mut(id)
            && session.running.remove(request)
        {
            session.cancelled.add(request);
        }
    }

    pub(super) fn end(&self, id: &SessionId) {
        self.lock().sessions.remove(id);
    }

    /// Sessions in which nothing has happened for so long, nothing runs, and nobody listens.
    pub(super) fn idle(&self, idle: Duration) -> Vec<SessionId> {
        let table = self.lock();
        let rests =
            |session: &Session| session.running.is_empty() && session.streams == 0 && session.last.elapsed() >= idle;
        table.sessions.iter().filter(|(_, session)| rests(session)).map(|(id, _)| Arc::clone(id)).collect()
    }
}

impl Beginning {
    /// The session has begun: it is theirs who asked for it.
    pub(super) fn began(self, id: &SessionId) {
        if let Some(session) = self.open.lock().sessions.get_mut(id) {
            session.whose = Some(self.whose.clone());
        }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        let mut table = self.open.lock();
        if let Some(at) = table.beginning.iter().position(|whose| *whose == self.whose) {
            table.beginning.swap_remove(at);
        }
    }
}

impl Stream {
    /// Runs a request under its id, unless one does already.
    pub(super) fn run(&self, request: &RequestId) -> Result<(), Repeated> {
        let mut table = self.open.lock();
        let Some(session) = table.sessions.get_mut(&self.id) else { return Ok(()) };
        if session.running.contains(request) {
            return Err(Repeated::Id);
        }
        if session.cancelled.has(request) {
            return Err(Repeated::Cancelled);
        }
        if session.running.len() >= RUNNING_MAX {
            return Err(Repeated::TooMany);
        }
        session.running.insert(request.clone());
        Ok(())
    }

    pub(super) fn free(&self, request: &RequestId) {
        self.open.free(&self.id, request);
    }

    pub(super) fn cancel(&self, request: &RequestId) {
        self.open.cancel(&self.id, request);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(session) = self.open.lock().sessions.get_mut(&self.id) {
            session.streams = session.streams.saturating_sub(1);
            session.last = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(open: &Arc<Open>, id: &str, whose: &Identity) -> bool {
        let Ok(beginning) = open.begin(whose) else { return false };
        open.made(id.into());
        beginning.began(&id.into());
        true
    }

    #[test]
    fn a_session_is_its_owners() {
        let open = Arc::<Open>::default();
        let (acme, other) = (Identity::of("acme", None), Identity::of("other", None));
        assert!(begun(&open, "s", &acme));
        assert!(open.enter(&"s".into(), &acme).is_some());
        assert!(open.enter(&"s".into(), &other).is_none());
        assert!(open.enter(&"s".into(), &Identity::of("acme", Some("P-1"))).is_none(), "another permit");
        assert!(open.enter(&"t".into(), &acme).is_none());
    }

    #[test]
    fn no_tenant_takes_all_the_room() {
        let open = Arc::<Open>::default();
        let (acme, other) = (Identity::of("acme", None), Identity::of("other", None));
        for n in 0..SESSIONS_EACH_MAX {
            assert!(begun(&open, &n.to_string(), &acme));
        }
        assert!(!begun(&open, "more", &acme));
        assert!(!begun(&open, "more", &Identity::of("acme", Some("P-1"))), "the same tenant with a permit");
        assert!(begun(&open, "other", &other));
        open.end(&"0".into());
        let waiting = open.begin(&acme);
        assert!(waiting.is_ok() && open.begin(&acme).is_err(), "room is given once");
        drop(waiting);
        assert!(begun(&open, "again", &acme));
    }

    #[test]
    fn what_runs_is_not_idle_and_its_id_is_taken() {
        let open = Arc::<Open>::default();
        let acme = Identity::of("acme", None);
        assert!(begun(&open, "s", &acme));
        let idle = || open.idle(Duration::ZERO).len();
        assert_eq!(idle(), 1);
        let stream = open.enter(&"s".into(), &acme).unwrap();
        let request = RequestId::Number(1);
        assert!(stream.run(&request).is_ok());
        let second = open.enter(&"s".into(), &acme).unwrap();
        assert!(matches!(second.run(&request), Err(Repeated::Id)));
        assert!(second.run(&RequestId::String("1".into())).is_ok());
        drop((stream, second));
        assert_eq!(idle(), 0, "the client went away, and the calls go on");
        open.free(&"s".into(), &request);
        open.free(&"s".into(), &RequestId::String("1".into()));
        assert_eq!(idle(), 1);
    }
}
