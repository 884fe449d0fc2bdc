//! Stands between hosts and the database, knows nothing of what passes, and spoils it by position: each connection
//! is cut after so many bytes of one direction, and the positions sweep over all that a connection says, the moments
//! between a commit and its acknowledgement among them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

/// What is passed on at once: small, so that a cut can fall inside any message.
const CHUNK_BYTES: usize = 512;
/// A connection that fell silent is closed after so long.
const SILENT: Duration = Duration::from_millis(1_200);
/// What one connection says while it lives a while: greeting, prepared statements, a dozen commits.
const SWEPT_BYTES: u64 = 24_000;
/// Coprime to the range, and near its golden section: any few connections in a row are spread over it.
const STEP_BYTES: u64 = 14_833;

/// How connections go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spoil {
    /// Not at all.
    #[default]
    Nothing,
    /// Both directions end at the position.
    Cut,
    /// One direction ends at the position, the other goes on.
    HalfClosed,
    /// Nothing passes from the position on, and nobody is told.
    Silent,
    /// Every piece waits up to so many milliseconds, in both directions.
    Delayed(u64),
}

struct Shared {
    spoil: Mutex<Spoil>,
    to: Mutex<u16>,
    opened: AtomicU64,
    spoiled: AtomicU64,
}

/// A listening proxy. Its threads end with their connections, or with the process.
#[derive(Clone)]
pub struct Proxy {
    /// Where it listens, on loopback.
    pub port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// In front of this port of loopback.
    ///
    /// # Errors
    /// There is no port to be had.
    pub fn before(port: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let own = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            spoil: Mutex::default(),
            to: Mutex::new(port),
            opened: AtomicU64::new(0),
            spoiled: AtomicU64::new(0),
        });
        let proxy = Self { port: own, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // A database that is away is seen by its client as a connection that ends.
                thread::spawn(move || shared.relay(client).ok());
            }
        });
        Ok(proxy)
    }

    /// From now on.
    pub fn spoil(&self, spoil: Spoil) {
        *self.shared.spoil.lock().unwrap_or_else(PoisonError::into_inner) = spoil;
    }

    /// Leads to another server from now on.
    pub fn lead_to(&self, port: u16) {
        *self.shared.to.lock().unwrap_or_else(PoisonError::into_inner) = port;
    }

    /// How many connections were spoiled.
    #[must_use]
    pub fn spoiled(&self) -> u64 {
        self.shared.spoiled.load(Ordering::Relaxed)
    }
}

/// One direction of a connection.
struct Way {
    from: TcpStream,
    to: TcpStream,
    /// Where it goes wrong, counted from when connections began to; none: the other direction does.
    at: Option<u64>,
    /// Bytes until then.
    left: Option<u64>,
    spoil: Spoil,
    /// Set by the direction that went wrong.
    silent: Arc<AtomicBool>,
    seed: u64,
}

impl Shared {
    fn relay(self: Arc<Self>, client: TcpStream) -> Result<()> {
        let server = TcpStream::connect(("127.0.0.1", *self.to.lock().unwrap_or_else(PoisonError::into_inner)))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let at = number.wrapping_mul(STEP_BYTES) % SWEPT_BYTES;
        let silent = Arc::new(AtomicBool::new(false));
        let way = |from: &TcpStream, to: &TcpStream, own: bool, seed| -> Result<Way> {
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let (at, silent) = (own.then_some(at), Arc::clone(&silent));
            Ok(Way { from, to, at, left: None, spoil: Spoil::Nothing, silent, seed })
        };
        let asked = way(&client, &server, number.is_multiple_of(2), number)?;
        let answered = way(&server, &client, !number.is_multiple_of(2), number ^ 0xff)?;
        let counted = Arc::clone(&self);
        let back = thread::spawn(move || answered.pass(&counted));
        asked.pass(&self);
        // A panic there ends no more than that direction.
        back.join().ok();
        Ok(())
    }
}

impl Way {
    fn pass(mut self, shared: &Shared) {
        let mut bytes = [0; CHUNK_BYTES];
        loop {
            self.look(shared);
            let most = self.left.map_or(CHUNK_BYTES as u64, |left| left.min(CHUNK_BYTES as u64));
            if most == 0 {
                shared.spoiled.fetch_add(1, Ordering::Relaxed);
                return self.go_wrong();
            }
            let Some(piece) = usize::try_from(most).ok().and_then(|most| bytes.get_mut(..most)) else { return };
            let Ok(count @ 1..) = self.from.read(piece) else { break };
            self.wait();
            if self.silent.load(Ordering::Relaxed) {
                continue;
            }
            if self.to.write_all(&piece[..count]).is_err() {
                break;
            }
            self.left = self.left.map(|left| left - count as u64);
        }
        // The other side hears the end of this direction; it may have gone.
        self.to.shutdown(Shutdown::Write).ok();
    }

    /// How connections go wrong just now.
    fn look(&mut self, shared: &Shared) {
        self.spoil = *shared.spoil.lock().unwrap_or_else(PoisonError::into_inner);
        let cuts = matches!(self.spoil, Spoil::Cut | Spoil::HalfClosed | Spoil::Silent);
        self.left = if cuts { self.left.or(self.at) } else { None };
    }

    fn wait(&mut self) {
        let Spoil::Delayed(most) = self.spoil else { return };
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        thread::sleep(Duration::from_millis((self.seed >> 33) % (most + 1)));
    }

    fn go_wrong(self) {
        match self.spoil {
            Spoil::HalfClosed => {
                self.to.shutdown(Shutdown::Write).ok();
                self.from.shutdown(Shutdown::Read).ok();
                return;
            }
            Spoil::Silent => {
                self.silent.store(true, Ordering::Relaxed);
                thread::sleep(SILENT);
            }
            Spoil::Cut | Spoil::Nothing | Spoil::Delayed(_) => {}
        }
        // One of them may have gone already.
        self.from.shutdown(Shutdown::Both).ok();
        self.to.shutdown(Shutdown::Both).ok();
    }
}
