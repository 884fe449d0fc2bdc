//! The state function against a world that knows what really happened.
//!
//! Every order of events that do not lie is tried, with senders that sleep and wake, over a provider
//! that dedupes within a generation. Two generations must never both have had their effect.

use std::collections::HashSet;

use oncegate_ledger::{Effect, Event, state};

use crate::samples::*;

const DEPTH: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Truth {
    Happened,
    Never,
    /// Its sender sleeps before the first byte.
    Later,
}

#[derive(Clone, Debug)]
struct World {
    effect: Option<Effect>,
    /// By attempt: its generation and what it did.
    attempts: Vec<(u8, u32, Truth)>,
}

impl World {
    fn key(&self) -> String {
        let row = self.effect.as_ref().map(|effect| {
            (effect.state, effect.generation, effect.attempts.clone(), effect.receipt.clone(), effect.frozen)
        });
        format!("{row:?}{:?}", self.attempts)
    }

    fn effects(&self) -> usize {
        let happened = self.attempts.iter().filter(|(_, _, truth)| *truth == Truth::Happened);
        happened.map(|(_, generation, _)| generation).collect::<HashSet<_>>().len()
    }

    fn stopped(&self, attempt: u8) -> bool {
        self.effect.as_ref().and_then(|effect| effect.attempt([attempt; 16])).is_some_and(|attempt| attempt.stopped)
    }

    fn apply(&self, event: &Event) -> Option<World> {
        let effect = state::next(self.effect.as_ref(), event).ok()?.without_bytes();
        Some(World { effect: Some(effect), attempts: self.attempts.clone() })
    }

    fn following(&self) -> Vec<World> {
        let mut worlds = Vec::new();
        let next = u8::try_from(self.attempts.len() + 1).unwrap();
        if next <= 3 {
            self.dispatches(next, &mut worlds);
        }
        for (index, (attempt, generation, truth)) in self.attempts.iter().enumerate() {
            for event in truthful(*attempt, *generation, *truth) {
                worlds.extend(self.apply(&event));
            }
            if *truth == Truth::Later && !self.stopped(*attempt) {
                let mut woken = self.clone();
                woken.attempts[index].2 = Truth::Happened;
                worlds.push(woken);
                worlds.extend(self.apply(&not_sent(*attempt)).map(|mut world| {
                    world.attempts[index].2 = Truth::Never;
                    world
                }));
            }
        }
        // What a lookup sees now: a sleeping sender's effect is honestly not there yet.
        let seen: Vec<u32> =
            self.attempts.iter().filter(|(_, _, truth)| *truth == Truth::Happened).map(|(_, g, _)| *g).collect();
        match seen.first() {
            Some(generation) => worlds.extend(self.apply(&one(&format!("r{generation}")))),
            None => worlds.extend(self.apply(&absent())),
        }
        worlds
    }

    fn dispatches(&self, attempt: u8, worlds: &mut Vec<World>) {
        for generation in 0..=2 {
            for resend in [false, true] {
                let event = Event::Dispatched(Box::new(dispatch(attempt, generation, resend)));
                let Some(world) = self.apply(&event) else {
                    continue;
                };
                for truth in [Truth::Happened, Truth::Never, Truth::Later] {
                    let mut world = world.clone();
                    world.attempts.push((attempt, generation, truth));
                    worlds.push(world);
                }
            }
        }
    }
}

/// What may honestly be recorded of an attempt.
fn truthful(attempt: u8, generation: u32, truth: Truth) -> Vec<Event> {
    let mut events = vec![lost(attempt, false)];
    if truth != Truth::Later {
        events.extend([lost(attempt, true), responded(attempt, b"raw"), classified(attempt, unknown())]);
    }
    match truth {
        Truth::Happened => events.push(classified(attempt, done(&format!("r{generation}")))),
        Truth::Never => events.extend([classified(attempt, refused()), not_sent(attempt)]),
        Truth::Later => {}
    }
    events
}

#[test]
fn no_honest_history_has_two_effects() {
    let mut seen = HashSet::new();
    let mut layer = vec![World { effect: None, attempts: Vec::new() }];
    for _ in 0..DEPTH {
        let mut following = Vec::new();
        for world in &layer {
            for next in world.following() {
                assert!(next.effects() <= 1, "two effects: {next:#?}");
                if seen.insert(next.key()) {
                    following.push(next);
                }
            }
        }
        layer = following;
    }
    println!("{} worlds", seen.len());
    assert!(seen.len() > 5_000, "the enumeration is not trivial: {}", seen.len());
}
