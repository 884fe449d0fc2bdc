//! Every order of what every actor can do to one effect, up to a depth, and the invariants by name.
//!
//! Method: breadth first from nothing. Each row that differs from all before meets each event of each
//! actor, the foolish and the lying ones too; what the state function allows is a step, and each step
//! is held against each invariant. Beside the row goes what its history said, so that an invariant
//! does not believe the row about itself.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use oncegate_ledger::{
    Answer, Effect, Event, Expect, Outcome, Sender, SettleVerdict, StateTag, Stored, StreamId, answer, effects,
    may_resend, state,
};

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

struct Step<'a> {
    before: Option<&'a World>,
    event: &'a Event,
    after: &'a World,
}

impl Step<'_> {
    fn row_before(&self) -> Option<&Effect> {
        self.before.map(|world| &world.row)
    }

    fn dispatch(&self) -> Option<&oncegate_ledger::Dispatch> {
        match self.event {
            Event::Dispatched(dispatch) => Some(dispatch),
            _ => None,
        }
    }
}

type Invariant = (&'static str, fn(&Step<'_>) -> bool);

const INVARIANTS: [Invariant; 19] = [
    ("at most one live attempt per key", one_live_attempt),
    ("a new generation begins only when every sender before it has stopped", senders_stopped),
    ("nothing leaves unknown without evidence or a decision", unknown_is_left_by_evidence),
    ("a receipt is immutable", receipts_are_immutable),
    ("no receipt is lost", no_receipt_is_lost),
    ("no byte after a revocation of this epoch", no_byte_after_revocation),
    ("a revocation is sticky", revocation_is_sticky),
    ("the downstream key never changes within a generation", one_key_per_generation),
    ("a generation rises only by proof for every attempt", generation_needs_proof),
    ("raw bytes exist for every answered attempt", answers_have_raw_bytes),
    ("each transition appends exactly one event", one_event_each),
    ("an epoch is another key: it never changes", epoch_is_fixed),
    ("no attempt is forgotten but by retention", attempts_stay),
    ("no-effect has a proof for each attempt", no_effect_is_proven),
    ("done has a receipt", done_has_a_receipt),
    ("done and undone are final but for an undoing or a decision", final_states),
    ("only an operator thaws", only_an_operator_thaws),
    ("a dispatch is what the answer or the resend rule permits", dispatches_are_permitted),
    ("an answer permits a dispatch only where nothing happened", permissions_are_earned),
];

fn one_live_attempt(step: &Step<'_>) -> bool {
    step.after.row.attempts.iter().filter(|attempt| attempt.is_open()).count() <= 1
}

fn senders_stopped(step: &Step<'_>) -> bool {
    let fresh = step.dispatch().is_some_and(|dispatch| !dispatch.resend);
    !fresh || step.row_before().is_none_or(|before| before.attempts.iter().all(|attempt| attempt.stopped))
}

fn unknown_is_left_by_evidence(step: &Step<'_>) -> bool {
    if step.row_before().is_none_or(|before| before.state != StateTag::Unknown)
        || step.after.row.state == StateTag::Unknown
    {
        return true;
    }
    match step.event {
        // Evidence: the answer came after all, the sender counted no byte, a lookup found out.
        Event::Responded { .. } | Event::Classified { .. } | Event::NotSent { .. } => true,
        Event::Settled { verdict, .. } => {
            matches!(verdict, SettleVerdict::One { .. } | SettleVerdict::Absent { .. })
        }
        // The provider's own dedupe answers.
        Event::Dispatched(dispatch) => dispatch.resend && dispatch.provider_dedupes,
        // A decision.
        Event::Decided { .. } | Event::Superseded { .. } => true,
        _ => false,
    }
}

fn receipts_are_immutable(step: &Step<'_>) -> bool {
    step.before.is_none_or(|before| before.receipt.is_none() || before.receipt == step.after.row.receipt)
}

fn receipts_of(event: &Event) -> Vec<&str> {
    match event {
        Event::Classified { outcome: Outcome::Done { receipt }, .. }
        | Event::Settled { verdict: SettleVerdict::One { receipt, .. }, .. }
        | Event::Confirmed { receipt, .. }
        | Event::Completed { receipt: Some(receipt), .. }
        | Event::Decided { outcome: Outcome::Done { receipt }, .. } => vec![receipt],
        Event::Classified { outcome: Outcome::Issued { receipt }, .. } => receipt.iter().map(String::as_str).collect(),
        Event::Settled { verdict: SettleVerdict::Many { receipts }, .. } => {
            receipts.iter().map(String::as_str).collect()
        }
        _ => Vec::new(),
    }
}

fn no_receipt_is_lost(step: &Step<'_>) -> bool {
    // What contradicts it must have been decided first, so that only one is left to keep.
    let before = match step.event {
        Event::Pruned(_) => &[],
        _ => step.row_before().map_or(&[][..], |before| &before.other_receipts),
    };
    let mut receipts = before.iter().map(String::as_str).chain(receipts_of(step.event));
    let after = &step.after.row;
    receipts
        .all(|receipt| after.receipt.as_deref() == Some(receipt) || after.other_receipts.iter().any(|r| r == receipt))
}

fn no_byte_after_revocation(step: &Step<'_>) -> bool {
    let revoked = |row: &Effect| row.state == StateTag::Revoked || row.revoke_wished;
    step.dispatch().is_none() || step.row_before().is_none_or(|before| !revoked(before))
}

/// An operator who looked may say that it exists after all, once something contradicted the row.
fn found_to_exist(step: &Step<'_>) -> bool {
    let frozen = step.row_before().is_some_and(|before| before.frozen);
    frozen && matches!(step.event, Event::Decided { outcome: Outcome::Done { .. }, .. })
}

fn revocation_is_sticky(step: &Step<'_>) -> bool {
    if found_to_exist(step) {
        return true;
    }
    let revoked = step.row_before().is_some_and(|before| before.state == StateTag::Revoked);
    !revoked || matches!(step.after.row.state, StateTag::Revoked | StateTag::Superseded)
}

fn one_key_per_generation(step: &Step<'_>) -> bool {
    let (Some(before), Some(dispatch)) = (step.before, step.dispatch()) else { return true };
    before.keys.get(&dispatch.generation).is_none_or(|key| *key == dispatch.downstream_key)
}

fn generation_needs_proof(step: &Step<'_>) -> bool {
    let Some(before) = step.row_before() else { return step.after.row.generation == 0 || is_pruned(step.event) };
    let rose = step.after.row.generation - before.generation;
    rose == 0 || (rose == 1 && before.attempts.iter().all(|attempt| attempt.proof))
}

fn answers_have_raw_bytes(step: &Step<'_>) -> bool {
    step.after.row.attempts.iter().all(|attempt| {
        let stored = step.after.raw.contains(&attempt.id);
        attempt.responded == stored && (attempt.outcome.is_none() || stored)
    })
}

/// In the state function one version, in the batch one append that expects the version before it.
fn one_event_each(step: &Step<'_>) -> bool {
    let version = step.row_before().map_or(0, |before| before.version);
    let (append, row) = effects::step([1; 32], step.row_before(), step.event.clone()).unwrap();
    let exactly = append.stream == StreamId::effect([1; 32])
        && append.expect == Expect::Version(version)
        && append.event.as_ref() == Some(step.event)
        && append.state == Some(row.state);
    exactly && step.after.row.version == version + 1
}

fn epoch_is_fixed(step: &Step<'_>) -> bool {
    step.row_before().is_none_or(|before| before.epoch == step.after.row.epoch)
}

fn is_pruned(event: &Event) -> bool {
    matches!(event, Event::Pruned(_))
}

fn attempts_stay(step: &Step<'_>) -> bool {
    let Some(before) = step.row_before().filter(|_| !is_pruned(step.event)) else { return true };
    let after = &step.after.row.attempts;
    before.attempts.len() <= after.len() && before.attempts.iter().zip(after).all(|(old, new)| old.id == new.id)
}

fn no_effect_is_proven(step: &Step<'_>) -> bool {
    let row = &step.after.row;
    let proven = !row.attempts.is_empty() && row.attempts.iter().all(|attempt| attempt.proof);
    row.state != StateTag::NoEffect || row.frozen || row.tombstone.is_some() || proven
}

fn done_has_a_receipt(step: &Step<'_>) -> bool {
    let row = &step.after.row;
    row.state != StateTag::Done || row.receipt.as_ref().is_some_and(|receipt| !receipt.is_empty())
}

fn final_states(step: &Step<'_>) -> bool {
    use StateTag::{Done, Superseded, Undone};
    let after = step.after.row.state;
    match step.row_before().map(|before| before.state) {
        Some(Done) => matches!(after, Done | Undone | Superseded),
        Some(Undone) => matches!(after, Undone | Superseded) || found_to_exist(step),
        Some(Superseded) => after == Superseded,
        _ => true,
    }
}

fn only_an_operator_thaws(step: &Step<'_>) -> bool {
    let thawed = step.row_before().is_some_and(|before| before.frozen) && !step.after.row.frozen;
    !thawed || matches!(step.event, Event::Decided { .. })
}

fn dispatches_are_permitted(step: &Step<'_>) -> bool {
    let (Some(before), Some(dispatch)) = (step.row_before(), step.dispatch()) else { return true };
    if dispatch.resend {
        return may_resend(before, &generous()).is_ok();
    }
    answer(Some(before), &[], Sender::Stopped) == Answer::Dispatch { generation: dispatch.generation }
}

fn permissions_are_earned(step: &Step<'_>) -> bool {
    let row = &step.after.row;
    let mut earned = true;
    for sender in SENDERS {
        if let Answer::Dispatch { .. } = answer(Some(row), &[], sender) {
            let may = matches!(row.state, StateTag::Planned | StateTag::AwaitingApproval | StateTag::NoEffect);
            let proven = row.attempts.iter().all(|attempt| attempt.proof) && row.unclassified_attempt().is_none();
            earned &= may && proven && row.receipt.is_none() && !row.frozen && !row.revoke_wished;
        }
        // Rule 1: other values are refused before the state is looked at.
        let other = ["amount".to_owned()];
        if row.binds() && !matches!(row.state, StateTag::Undone | StateTag::Superseded) {
            earned &= answer(Some(row), &other, sender) == Answer::KeyReused(other.to_vec());
        }
    }
    let may_resend = may_resend(row, &generous()).is_ok();
    earned && (!may_resend || (row.state == StateTag::Unknown && !row.frozen && !row.revoke_wished))
}

const SENDERS: [Sender; 3] = [Sender::Running, Sender::Stopped, Sender::NotKnown];

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
