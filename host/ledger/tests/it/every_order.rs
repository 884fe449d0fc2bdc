//! Every order of what every actor can do to one effect, up to a depth, and the invariants by name.
//!
//! Method: breadth first from nothing. Each row that differs from all before meets each event of each
//! actor, the foolish and the lying ones too; what the state function allows is a step, and each step
//! is held against each invariant. Beside the row goes what its history said, so that an invariant
//! does not believe the row about itself.

mod invariants;
mod violations;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use oncegate_ledger::{Effect, Event, Outcome, SettleVerdict, StateTag, Stored, answer, may_resend, state};

use self::invariants::{INVARIANTS, SENDERS, Step};
use crate::samples::*;
use crate::states::{generous, resent};

/// Events in a row. Seven reach each state with two attempts and a contradiction after it.
const DEPTH: usize = 7;
/// What the depth must at least have visited, so that no change empties the enumeration unseen.
const ROWS_MIN: usize = 30_000;
const STEPS_MIN: usize = 100_000;

/// Who causes an event. Model and guest are not among them: they only ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Host,
    SettleRule,
    Operator,
    PlanEngine,
    Retention,
}

const ACTORS: [Actor; 5] = [Actor::Host, Actor::SettleRule, Actor::Operator, Actor::PlanEngine, Actor::Retention];

#[derive(Clone)]
struct Move {
    actor: Actor,
    event: Event,
}

/// A row, and what its history said whatever the row says.
#[derive(Clone)]
struct World {
    row: Effect,
    /// The downstream key of each generation that was sent.
    keys: BTreeMap<u32, String>,
    /// Attempts whose raw answer was appended.
    raw: BTreeSet<[u8; 16]>,
    /// The first receipt ever known.
    receipt: Option<String>,
}

fn host_events() -> Vec<Event> {
    let at = 1_000;
    let mut other_key = dispatch(2, 0, true);
    other_key.downstream_key = "og-another".to_owned();
    let mut other_epoch = dispatch(1, 0, false);
    other_epoch.epoch = 1;
    let mut events = vec![
        Event::AwaitingApproval(proposal(9)),
        dispatched(1, 0),
        dispatched(2, 1),
        dispatched(3, 2),
        resent(2, 0),
        resent(3, 1),
        Event::Dispatched(Box::new(other_key)),
        Event::Dispatched(Box::new(other_epoch)),
        Event::ClassifyFailed { attempt: [1; 16], at, why: "panic".into() },
        Event::Diverged { at, why: "late".into(), evidence: Stored::empty() },
        Event::FailedLater { at, why: "chargeback".into(), evidence: Stored::empty(), actor: None, decision: None },
        Event::Completed { at, receipt: None, evidence: Stored::empty() },
        Event::Completed { at, receipt: Some("r2".into()), evidence: Stored::empty() },
        Event::Stranded { at, why: "late".into() },
        Event::Undone { by: [1; 32], at },
    ];
    for attempt in [1, 2] {
        events.extend([
            responded(attempt, b"raw"),
            classified(attempt, done("r1")),
            classified(attempt, done("r2")),
            classified(attempt, Outcome::Issued { receipt: Some("r1".into()) }),
            classified(attempt, Outcome::Issued { receipt: None }),
            classified(attempt, refused()),
            classified(attempt, unknown()),
            lost(attempt, false),
            lost(attempt, true),
            not_sent(attempt),
        ]);
    }
    events
}

fn settle_events() -> Vec<Event> {
    vec![
        one("r1"),
        one("r2"),
        settled(SettleVerdict::One { receipt: "r3".into(), mismatched: vec!["amount".into()] }),
        settled(SettleVerdict::Many { receipts: vec!["r1".into(), "r2".into()] }),
        absent(),
        settled(SettleVerdict::Undetermined { why: "500".into() }),
        Event::Confirmed { at: 1_000, receipt: "r1".into() },
    ]
}

fn operator_events() -> Vec<Event> {
    vec![
        approved(9),
        approved(8),
        denied(),
        revoke_wished(),
        revoked(),
        superseded(),
        decided(done("r1")),
        decided(done("r2")),
        decided(refused()),
    ]
}

/// What everybody could try whatever the row is.
fn alphabet() -> Vec<Move> {
    let by = |actor: Actor, events: Vec<Event>| events.into_iter().map(move |event| Move { actor, event });
    let plan = vec![Event::Planned(proposal(9)), Event::Amended(proposal(8))];
    by(Actor::Host, host_events())
        .chain(by(Actor::SettleRule, settle_events()))
        .chain(by(Actor::Operator, operator_events()))
        .chain(by(Actor::PlanEngine, plan))
        .chain(by(Actor::Retention, lying_tombstones()))
        .collect()
}

/// Retention that is wrong about the row: only where there is no row any more is it all there is.
fn lying_tombstones() -> Vec<Event> {
    let history = [dispatched(1, 0), responded(1, b"raw"), classified(1, done("r9"))];
    let done = state::fold(&history).unwrap().unwrap().to_tombstone(5_000).unwrap();
    let mut unknown = done.clone();
    unknown.state = StateTag::Unknown;
    [done, unknown].map(|tombstone| Event::Pruned(Box::new(tombstone))).to_vec()
}

/// What retention would honestly do to this row.
fn honest_tombstone(row: &Effect) -> Option<Move> {
    let tombstone = row.to_tombstone(5_000).ok()?;
    Some(Move { actor: Actor::Retention, event: Event::Pruned(Box::new(tombstone)) })
}

fn follow(before: Option<&World>, event: &Event) -> Option<World> {
    let row = state::next(before.map(|world| &world.row), event).ok()?.without_bytes();
    let (mut keys, mut raw, receipt) =
        before.map_or_else(Default::default, |world| (world.keys.clone(), world.raw.clone(), world.receipt.clone()));
    match event {
        Event::Dispatched(dispatch) => {
            keys.entry(dispatch.generation).or_insert_with(|| dispatch.downstream_key.clone());
        }
        Event::Responded { attempt, .. } => {
            raw.insert(*attempt);
        }
        _ => {}
    }
    let receipt = receipt.or(row.receipt.clone());
    Some(World { row, keys, raw, receipt })
}

/// Everything that decides what can follow; times and versions do not.
fn essence(row: &Effect) -> String {
    let attempts: Vec<_> = row.attempts.iter().map(|a| (a.id[0], a.generation, a.ended.is_some(), a.proof)).collect();
    let answers: Vec<_> =
        row.attempts.iter().map(|a| (a.stopped, a.responded, &a.outcome, a.classify_failures, a.resend)).collect();
    format!(
        "{:?}",
        (
            (row.state, row.generation, row.epoch, attempts, answers, &row.receipt),
            (&row.other_receipts, row.confirmed, row.diverged, row.frozen, row.revoke_wished),
            (&row.superseded_by, row.approved, row.failed_later.is_some(), row.tombstone.is_some()),
            row.proposal.as_ref().map(|proposal| proposal.request_digest),
            row.dispatch.as_ref().map(|dispatch| (dispatch.attempt, dispatch.generation)),
        )
    )
}

#[derive(Default)]
struct Visited {
    rows: HashSet<String>,
    steps: usize,
    refusals: usize,
    states: BTreeSet<StateTag>,
    by_actor: BTreeMap<Actor, usize>,
    checks: BTreeMap<&'static str, usize>,
}

impl Visited {
    fn step(&mut self, before: Option<&World>, tried: &Move, after: &World) {
        let step = Step { before, event: &tried.event, after };
        for (name, holds) in INVARIANTS {
            let what = || format!("{:#?}\n{:?}\n{:#?}", step.row_before(), step.event, step.after.row);
            assert!(holds(&step), "{name}: {}", what());
            *self.checks.entry(name).or_default() += 1;
        }
        self.steps += 1;
        self.states.insert(after.row.state);
        *self.by_actor.entry(tried.actor).or_default() += 1;
    }

    fn tell(&self) {
        println!("depth {DEPTH}: {} rows, {} steps, {} refusals", self.rows.len(), self.steps, self.refusals);
        println!("by actor: {:?}", self.by_actor);
        self.checks.iter().for_each(|(name, count)| println!("{count} × {name}"));
    }
}

/// Tries everything on one row; gives the rows that were not seen before.
fn expand(before: Option<&World>, alphabet: &[Move], visited: &mut Visited) -> Vec<World> {
    let mut following = Vec::new();
    let honest = before.and_then(|world| honest_tombstone(&world.row));
    for tried in alphabet.iter().chain(&honest) {
        let Some(after) = follow(before, &tried.event) else {
            visited.refusals += 1;
            continue;
        };
        visited.step(before, tried, &after);
        if visited.rows.insert(essence(&after.row)) {
            following.push(after);
        }
    }
    following
}

/// Every row that any order of events reaches within `depth`, each once.
fn enumerate(depth: usize, visited: &mut Visited) -> Vec<World> {
    let alphabet = alphabet();
    let mut layer = expand(None, &alphabet, visited);
    let mut all = layer.clone();
    for _ in 1..depth {
        layer = layer.iter().flat_map(|world| expand(Some(world), &alphabet, visited)).collect();
        all.extend(layer.iter().cloned());
    }
    all
}

#[test]
fn every_order_of_events_keeps_every_invariant() {
    let mut visited = Visited::default();
    enumerate(DEPTH, &mut visited);
    visited.tell();
    assert_eq!(visited.states.len(), StateTag::ALL.len(), "every state was reached");
    let moved: Vec<Actor> = visited.by_actor.keys().copied().collect();
    assert_eq!(moved, ACTORS, "every actor moved a row");
    assert_eq!(visited.checks.len(), INVARIANTS.len(), "every invariant was looked at");
    assert!(visited.rows.len() >= ROWS_MIN && visited.steps >= STEPS_MIN, "the enumeration is not trivial");
}

/// Depth of the enumeration whose rows meet each event under each clock.
const CLOCKED_DEPTH: usize = 5;
const HOUR_MS: u64 = 3_600_000;

/// What another clock would have said.
type Clock = fn(u64) -> u64;

/// A clock that says something else: stopped at nothing, an hour either way, at the end of time.
const CLOCKS: [(&str, Clock); 4] = [
    ("at nothing", |_| 0),
    ("an hour back", |at| at.saturating_sub(HOUR_MS)),
    ("an hour ahead", |at| at.saturating_add(HOUR_MS)),
    ("at the end of time", |_| u64::MAX),
];

/// The same event, stamped by another clock.
fn restamped(event: &Event, clock: Clock) -> Event {
    let mut value = ciborium::Value::serialized(event).unwrap();
    restamp(&mut value, clock);
    value.deserialized().unwrap()
}

fn restamp(value: &mut ciborium::Value, clock: Clock) {
    match value {
        ciborium::Value::Array(items) => items.iter_mut().for_each(|item| restamp(item, clock)),
        ciborium::Value::Map(pairs) => {
            for (name, value) in pairs {
                match value.as_integer().and_then(|at| u64::try_from(at).ok()) {
                    Some(at) if name.as_text() == Some("at") => *value = clock(at).into(),
                    _ => restamp(value, clock),
                }
            }
        }
        _ => {}
    }
}

/// The same row, had all its events been stamped by another clock.
fn row_of_another_clock(row: &Effect, clock: Clock) -> Effect {
    let mut row = row.clone();
    for attempt in &mut row.attempts {
        attempt.at = clock(attempt.at);
        attempt.ended = attempt.ended.map(clock);
    }
    for at in [&mut row.updated_at, &mut row.state_since, &mut row.first_dispatch_at_of_generation] {
        *at = clock(*at);
    }
    if let Some(dispatch) = &mut row.dispatch {
        dispatch.at = clock(dispatch.at);
    }
    row
}

/// No clock, of the event or of all events before it, makes legal what is not.
fn no_clock_makes_it_legal(row: &Effect, alphabet: &[(Event, Vec<Event>)]) -> usize {
    let mut asked = 0;
    let others = [row_of_another_clock(row, CLOCKS[0].1), row_of_another_clock(row, CLOCKS[3].1)];
    for (event, stamped) in alphabet {
        let legal = state::next(Some(row), event).map(|after| after.state).ok();
        for (other, (clock, _)) in stamped.iter().zip(CLOCKS) {
            let by_clock = state::next(Some(row), other).map(|after| after.state).ok();
            assert_eq!(legal, by_clock, "{event:?} is another thing {clock}: {row:#?}");
            asked += 1;
        }
        for other in &others {
            let by_clock = state::next(Some(other), event).map(|after| after.state).ok();
            assert_eq!(legal, by_clock, "{event:?} is another thing after another clock: {row:#?}");
            asked += 1;
        }
    }
    asked
}

/// What a call hears is not the clock's to say.
fn no_clock_changes_the_answer(row: &Effect) {
    for (clock, shift) in CLOCKS {
        let other = row_of_another_clock(row, shift);
        for sender in SENDERS {
            assert_eq!(answer(Some(row), &[], sender), answer(Some(&other), &[], sender), "{clock}: {row:#?}");
        }
    }
}

/// A permission to resend ends by the latest of host's clock and stamps, and never comes back.
fn clocks_only_end_a_permission(row: &Effect) -> bool {
    let window = 86_400_000;
    let resend_at = |row: &Effect, clock: u64| {
        let mut terms = generous();
        (terms.window_ms, terms.latest_clock_ms) = (Some(window), clock);
        may_resend(row, &terms).is_ok()
    };
    let first = row.first_dispatch_at_of_generation;
    let ladder = [0, first, row.updated_at, row.updated_at + HOUR_MS, first + window - 1, first + window, u64::MAX];
    let may: Vec<bool> = ladder.iter().map(|clock| resend_at(row, *clock)).collect();
    assert!(may.windows(2).all(|pair| pair[0] || !pair[1]), "a permission came back: {may:?} {row:#?}");
    assert!(!may[5] && !may[6], "a permission outlived its window: {row:#?}");
    assert_eq!(may[0], may[2], "a clock set back is not asked: {row:#?}");
    // One late stamp in the ledger ends it, however early the host's own clock is.
    let mut stamped = row.clone();
    stamped.updated_at = first + window;
    assert!(!resend_at(&stamped, 0), "the highest stamp was not looked at: {row:#?}");
    may[0]
}

#[test]
fn time_never_grants() {
    let rows = enumerate(CLOCKED_DEPTH, &mut Visited::default());
    let alphabet: Vec<(Event, Vec<Event>)> = alphabet()
        .into_iter()
        .map(|tried| (CLOCKS.map(|(_, clock)| restamped(&tried.event, clock)).to_vec(), tried.event))
        .map(|(stamped, event)| (event, stamped))
        .collect();
    let moved =
        alphabet.iter().filter(|(event, stamped)| event.at().is_some_and(|at| stamped[2].at() == Some(at + HOUR_MS)));
    assert_eq!(moved.count(), alphabet.len(), "every event of an effect has a stamp, and the clocks move it");
    let (mut asked, mut permitted) = (0, 0);
    for world in &rows {
        asked += no_clock_makes_it_legal(&world.row, &alphabet);
        no_clock_changes_the_answer(&world.row);
        permitted += usize::from(clocks_only_end_a_permission(&world.row));
    }
    println!("depth {CLOCKED_DEPTH}: {} rows, {asked} clocked events, {permitted} rows that may resend", rows.len());
    assert!(asked > 500_000 && permitted > 20, "the clocks were asked: {asked}, {permitted}");
}
