//! Numbers that a seed decides.

use std::time::Duration;

use sha2::{Digest, Sha256};

/// SplitMix64: the same seed, the same numbers.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// For a part of a run: another part has other numbers.
    pub fn of(seed: u64, part: &str) -> Self {
        let digest = Sha256::new().chain_update(seed.to_be_bytes()).chain_update(part).finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Self(u64::from_be_bytes(first))
    }

    /// A number below `end`; 0 when there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }

    /// A time between two.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = u64::try_from(to.saturating_sub(from).as_micros()).unwrap_or(u64::MAX);
        from + Duration::from_micros(self.below(span))
    }

    /// One of these; none of none.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len() as u64);
        of.get(usize::try_from(at).unwrap_or_default())
    }

    /// Other words for the same thing, as a model would find them.
    pub fn words(&mut self) -> String {
        let opening = ["Hello", "Dear reader", "Good news", "As discussed", "Please note"];
        let middle = ["the lamp was broken", "lamp arrived damaged", "damaged in transit", "glass is cracked"];
        let (a, b) = (self.one(&opening).copied(), self.one(&middle).copied());
        format!("{}, {} ({})", a.unwrap_or_default(), b.unwrap_or_default(), self.below(1 << 32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all() {
        let numbers = |part| {
            let mut chance = Chance::of(7, part);
            (0..5).map(|_| chance.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(numbers("a"), numbers("a"));
        assert_ne!(numbers("a"), numbers("b"));
        assert_eq!(Chance::of(7, "a").below(0), 0);
        assert_ne!(Chance::of(7, "a").words(), Chance::of(7, "b").words());
    }
}
