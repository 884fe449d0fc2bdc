//! Figures by a declared name: so many names, and one for all others.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Names that have figures of their own: what a monitor keeps for each of them is bounded.
const NAMES_MAX: usize = 256;
/// What the rest is counted under; no tool and no operation can be called so.
const OTHERS: &str = "_other";

/// See the module.
pub(super) struct Named<T>(RwLock<BTreeMap<Box<str>, Arc<T>>>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Default> Named<T> {
    pub(super) fn of(&self, name: &str) -> Arc<T> {
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Arc::clone(known);
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let name = if all.len() < NAMES_MAX || all.contains_key(name) { name } else { OTHERS };
        Arc::clone(all.entry(name.into()).or_default())
    }

    pub(super) fn all(&self) -> Vec<(String, Arc<T>)> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, one)| (name.to_string(), Arc::clone(one))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_names_and_one_for_the_others() {
        let named: Named<()> = Named::default();
        for name in 0..NAMES_MAX + 100 {
            named.of(&format!("tool-{name}"));
        }
        assert_eq!(named.all().len(), NAMES_MAX + 1);
        assert!(named.all().iter().any(|(name, _)| name == OTHERS));
    }
}
