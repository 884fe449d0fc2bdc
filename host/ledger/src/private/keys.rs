//! Keys in memory: made, unwrapped, remembered for a while, wiped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zeroize::Zeroizing;

use super::cipher::{self, Secret};
use super::store::{Held, KeyStore, file_stem};
use crate::{KeyName, LedgerError, hex, sha256};

/// Keys that are remembered: as many objects as are worked on at once.
const KEYS_MAX: usize = 4_096;
const DOMAIN: &[u8] = b"oncegate wrapped key 1";
/// In front of a wrapped key.
const MAGIC: &[u8] = b"OGKEY1\n\0";
const MASTER_ID_BYTES: usize = 8;

/// The key that wraps all others.
#[derive(Clone)]
pub struct MasterKey(Secret);

impl MasterKey {
    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// What is wrong with it; nothing of the key itself.
    pub fn parse(text: &str) -> Result<MasterKey, String> {
        let digits = super::unhex(text.trim());
        let key = digits.ok_or("a master key has 64 hexadecimal digits, as `openssl rand -hex 32` prints them")?;
        Ok(MasterKey(Zeroizing::new(key)))
    }

    /// What tells master keys apart, and tells nothing of them.
    fn id(&self) -> [u8; MASTER_ID_BYTES] {
        let digest = sha256(&[b"oncegate master key 1".as_slice(), self.0.as_slice()].concat());
        std::array::from_fn(|at| digest[at])
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("<a master key>")
    }
}

impl PartialEq for MasterKey {
    fn eq(&self, other: &MasterKey) -> bool {
        self.id() == other.id()
    }
}

/// The master key that the policy names.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Master {
    /// None: one is kept beside the ledger, where it protects against whoever gets the ledger without the folder
    /// of keys, and against nobody who gets both.
    #[default]
    Beside,
    /// This one.
    Named(MasterKey),
    /// One that cannot be read, and why.
    Unreadable(String),
}

/// The keys of one ledger.
pub(super) struct Keys {
    ledger: [u8; 16],
    store: Arc<dyn KeyStore>,
    master: Master,
    known: Mutex<HashMap<KeyName, Arc<Secret>>>,
}

/// A key to encrypt with, and what holds it until something that it encrypted is durable.
pub(super) struct Obtained {
    pub(super) secret: Arc<Secret>,
    pub(super) held: Option<Held>,
}

impl Keys {
    pub(super) fn new(ledger: [u8; 16], store: Arc<dyn KeyStore>, master: Master) -> Keys {
        Keys { ledger, store, master, known: Mutex::default() }
    }

    pub(super) fn store(&self) -> &Arc<dyn KeyStore> {
        &self.store
    }

    /// The key of this name, made if there is none.
    pub(super) fn obtain(&self, name: &KeyName) -> Result<Obtained, LedgerError> {
        if let Some(secret) = self.remembered(name) {
            return Ok(Obtained { secret, held: None });
        }
        let wrapped = match self.store.get(name)? {
            Some(wrapped) => wrapped,
            None => {
                let drawn = Zeroizing::new(rand::random::<[u8; 32]>());
                self.wrap(name, &drawn)?
            }
        };
        let (kept, held) = self.store.keep(name, &wrapped)?;
        Ok(Obtained { secret: Arc::new(self.unwrap(name, &kept)?), held: Some(held) })
    }

    /// The key of this name; none where it is gone.
    pub(super) fn find(&self, name: &KeyName) -> Result<Option<Arc<Secret>>, LedgerError> {
        if let Some(secret) = self.remembered(name) {
            return Ok(Some(secret));
        }
        let Some(wrapped) = self.store.get(name)? else { return Ok(None) };
        let secret = Arc::new(self.unwrap(name, &wrapped)?);
        self.remember(*name, Arc::clone(&secret));
        Ok(Some(secret))
    }

    /// Whether a key could be made and unwrapped now.
    pub(super) fn probe(&self) -> Result<(), LedgerError> {
        let name = KeyName { kind: crate::event::ObjectKind::Effect, id: [0; 32], generation: 0 };
        let wrapped = self.wrap(&name, &Zeroizing::new(rand::random()))?;
        self.unwrap(&name, &wrapped).map(drop)
    }

    /// Forgets a key that is destroyed; it is wiped when its last user is done.
    pub(super) fn forget(&self, name: &KeyName) {
        self.known().remove(name);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<KeyName, Arc<Secret>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remembered(&self, name: &KeyName) -> Option<Arc<Secret>> {
        self.known().get(name).map(Arc::clone)
    }

    /// Something that it encrypted is durable: it is one that is used.
    pub(super) fn remember(&self, name: KeyName, secret: Arc<Secret>) {
        let mut known = self.known();
        if known.len() >= KEYS_MAX {
            known.clear();
        }
        known.insert(name, secret);
    }

    fn bound(&self, name: &KeyName) -> Vec<u8> {
        let mut bound = DOMAIN.to_vec();
        bound.extend(self.ledger);
        bound.extend(cipher::named(name));
        bound
    }

    fn wrap(&self, name: &KeyName, secret: &Secret) -> Result<Vec<u8>, LedgerError> {
        let master = match &self.master {
            Master::Named(master) => master.clone(),
            Master::Unreadable(why) => {
                return Err(LedgerError::unavailable(format!(
                    "nothing can be encrypted, and nothing is stored in clear instead: {why}"
                )));
            }
            Master::Beside => self.beside(true)?.ok_or_else(|| LedgerError::unavailable("it has no master key"))?,
        };
        let mut wrapped = MAGIC.to_vec();
        wrapped.extend(master.id());
        wrapped.extend(cipher::seal(&master.0, &self.bound(name), secret.as_slice())?);
        Ok(wrapped)
    }

    fn unwrap(&self, name: &KeyName, wrapped: &[u8]) -> Result<Secret, LedgerError> {
        let damaged = || LedgerError::damaged(format!("the key {} is not what was written", file_stem(name)));
        let rest = wrapped.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let (id, sealed) = rest.split_first_chunk::<MASTER_ID_BYTES>().ok_or_else(damaged)?;
        let master = self.master_with(id)?;
        let plain = Zeroizing::new(cipher::open(&master.0, &self.bound(name), sealed).ok_or_else(damaged)?);
        let secret = plain.as_slice().try_into().map_err(|_| damaged())?;
        Ok(Zeroizing::new(secret))
    }

    /// The master key that a key was wrapped by: the policy's, or the one that was used while it named none.
    fn master_with(&self, id: &[u8; MASTER_ID_BYTES]) -> Result<MasterKey, LedgerError> {
        if let Master::Named(master) = &self.master
            && master.id() == *id
        {
            return Ok(master.clone());
        }
        if let Some(master) = self.beside(false)?.filter(|master| master.id() == *id) {
            return Ok(master);
        }
        let why = match &self.master {
            Master::Unreadable(why) => why.clone(),
            Master::Named(_) => format!("it is wrapped by another master key than the policy names ({})", hex(id)),
            Master::Beside => {
                format!("the policy names no master key ([privacy] key-from), and it is under {}", hex(id))
            }
        };
        Err(LedgerError::Locked { why })
    }

    fn beside(&self, make: bool) -> Result<Option<MasterKey>, LedgerError> {
        let Some(text) = self.store.master(make)? else { return Ok(None) };
        let text = Zeroizing::new(text);
        let parsed = std::str::from_utf8(&text).ok().and_then(|text| MasterKey::parse(text).ok());
        parsed.map(Some).ok_or_else(|| LedgerError::damaged("the master key beside it is not what was written"))
    }
}
