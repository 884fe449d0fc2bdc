//! So many of something for each component, tenant or whoever else shares it: what one takes, others go on without.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// Shares that are remembered before those that nobody holds are looked for.
pub const KEPT: usize = 64;

/// So many each; those who have none and wait for none are forgotten.
pub struct Shares<K> {
    each: usize,
    held: Mutex<HashMap<K, Weak<Semaphore>>>,
}

impl<K: Hash + Eq + Clone> Shares<K> {
    /// So many each.
    #[must_use]
    pub fn new(each: usize) -> Self {
        Self { each, held: Mutex::default() }
    }

    /// The share of one of them.
    pub fn of(&self, key: &K) -> Arc<Semaphore> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = held.get(key).and_then(Weak::upgrade) {
            return share;
        }
        if held.len() >= KEPT {
            held.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(self.each));
        held.insert(key.clone(), Arc::downgrade(&share));
        share
    }

    /// How many are remembered.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
