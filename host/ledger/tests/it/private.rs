//! Encryption under a key per object, and erasing: what is on disk, what answers afterwards, and what a crash at
//! each step leaves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use oncegate_ledger::private::store::{Held, KeyFolder, KeyStore};
use oncegate_ledger::private::{Erasure, Master, MasterKey, PrivateLedger, Terms, is_withheld};
use oncegate_ledger::redb::RedbLedger;
use oncegate_ledger::state::{Answer, Sender, StateTag};
use oncegate_ledger::verify::{verify, verify_with};
use oncegate_ledger::{
    Append, Effects, Event, Expect, KeyName, Ledger, LedgerError, LedgerIdentity, Outcome, Record, SettleVerdict,
    Stored, StreamId, StreamKind, TaskBegun, TaskEnding, TaskOwner, answer,
};

use super::samples;

const MARKER: &str = "marker-7c1e";

fn secret_bytes(length: usize) -> Stored {
    let mut bytes = MARKER.as_bytes().to_vec();
    bytes.resize(length.max(bytes.len()), b'.');
    Stored::Inline(bytes)
}

fn dispatched(parent: Option<&str>) -> Event {
    let mut dispatch = samples::dispatch(1, 0, false);
    dispatch.label = format!("refund {MARKER}");
    dispatch.fields = secret_bytes(100);
    dispatch.request = secret_bytes(30_000);
    dispatch.lookups = vec![("get-return".into(), [10; 32], secret_bytes(70_000))];
    dispatch.ties.parent = parent.map(str::to_owned);
    Event::Dispatched(Box::new(dispatch))
}

fn responded() -> Event {
    samples::responded(1, format!("HTTP/1.1 200 OK\r\n\r\n{{\"id\":\"re_1\",\"note\":\"{MARKER}\"}}").as_bytes())
}

fn master(n: u8) -> Terms {
    let master = MasterKey::parse(&format!("{n:02x}").repeat(32)).unwrap();
    Terms { encrypt: true, master: Master::Named(master) }
}

struct Home {
    folder: tempfile::TempDir,
    stored: Arc<dyn Ledger>,
}

impl Home {
    fn new() -> Home {
        let folder = tempfile::tempdir().unwrap();
        let stored: Arc<dyn Ledger> = Arc::new(RedbLedger::init(&folder.path().join("l.redb"), 1).unwrap());
        Home { folder, stored }
    }

    fn keys(&self) -> Arc<dyn KeyStore> {
        Arc::new(KeyFolder::of(&self.folder.path().join("l.redb")))
    }

    fn private(&self, terms: Terms) -> Arc<PrivateLedger> {
        Arc::new(PrivateLedger::new(Arc::clone(&self.stored), self.keys(), terms))
    }

    fn holds(&self, text: &str) -> bool {
        holds(self.folder.path(), text.as_bytes())
    }
}

fn holds(folder: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holds(&path, bytes);
        }
        std::fs::read(&path).is_ok_and(|found| found.windows(bytes.len()).any(|window| window == bytes))
    })
}

async fn done(ledger: &Arc<PrivateLedger>, key: u8, parent: Option<&str>) {
    let effects = Effects::new(Arc::clone(ledger) as Arc<dyn Ledger>);
    let id = [key; 32];
    effects.append(id, 0, dispatched(parent), Vec::new()).await.unwrap();
    effects.append(id, 1, responded(), Vec::new()).await.unwrap();
    let receipt = format!("re_{key}");
    effects.append(id, 2, samples::classified(1, samples::done(&receipt)), Vec::new()).await.unwrap();
}

fn erasure(decision: &str) -> Erasure {
    Erasure { actor: "ann".into(), reason: "asked for".into(), decision: decision.into(), at: 5_000 }
}

async fn row(ledger: &Arc<PrivateLedger>, key: u8) -> oncegate_ledger::Effect {
    Effects::new(Arc::clone(ledger) as Arc<dyn Ledger>).get([key; 32]).await.unwrap().unwrap()
}

async fn raw_answer(ledger: &Arc<PrivateLedger>, key: u8) -> Result<Vec<u8>, LedgerError> {
    Effects::new(Arc::clone(ledger) as Arc<dyn Ledger>).raw_answer([key; 32], [1; 16]).await
}

/// One of each event with something private in it, each in a stream of its own.
fn every_kind() -> Vec<(StreamId, Event)> {
    let mut proposal = samples::proposal(9);
    proposal.label = format!("refund {MARKER}");
    (proposal.fields, proposal.request) = (secret_bytes(50), secret_bytes(50));
    let why = || format!("no: {MARKER}");
    let (attempt, at) = ([1; 16], 1_000);
    let evidence = || secret_bytes(20_000);
    let task = TaskBegun {
        owner: TaskOwner::default(),
        tool: "t".into(),
        component: [0; 32],
        name: "n".into(),
        arguments: secret_bytes(40),
        context: Default::default(),
        host: [0; 16],
        at,
        until: 2_000,
    };
    let tombstone = {
        let done = [dispatched(None), samples::classified(1, samples::done("re_1"))];
        let events = [&done[0], &responded(), &done[1]].map(Clone::clone);
        let mut row = oncegate_ledger::state::fold(events.iter()).unwrap().unwrap();
        row.reason = Some(why());
        row.failed_later = Some(why());
        row.to_tombstone(at).unwrap()
    };
    let of_effects = [
        Event::Planned(proposal.clone()),
        Event::Amended(proposal.clone()),
        Event::AwaitingApproval(proposal),
        dispatched(None),
        Event::Evidence { attempt, offset: 0, bytes: evidence(), at, echoes: false },
        responded(),
        Event::NotSent { attempt, at, why: why() },
        Event::Lost { attempt, at, why: why(), sender_stopped: true },
        Event::Classified { attempt, at, outcome: Outcome::NoEffect { reason: why() } },
        Event::Classified { attempt, at, outcome: Outcome::Unknown { why: why() } },
        Event::ClassifyFailed { attempt, at, why: why() },
        Event::Settled {
            at,
            by: "rule".into(),
            verdict: SettleVerdict::Undetermined { why: why() },
            evidence: evidence(),
        },
        Event::Diverged { at, why: why(), evidence: evidence() },
        Event::FailedLater { at, why: why(), evidence: evidence(), actor: None, decision: None },
        Event::Completed { at, receipt: None, evidence: evidence() },
        Event::Stranded { at, why: why() },
        Event::Pruned(Box::new(tombstone)),
    ];
    let mut all: Vec<(StreamId, Event)> =
        (1_u8..).zip(of_effects).map(|(n, event)| (StreamId::effect([n; 32]), event)).collect();
    let plan = StreamId { kind: StreamKind::Plan, id: [1; 32] };
    let (actor, plan_name) = ("ann".to_owned(), "p".to_owned());
    let frozen =
        Event::PlanFrozen { plan: plan_name, effects: vec![], document: secret_bytes(60), actor, at, parent: None };
    all.push((plan, frozen));
    all.push((StreamId::task([1; 32]), Event::TaskBegun(Box::new(task))));
    let ended = Event::TaskEnded { ending: TaskEnding::Answered, result: secret_bytes(60), at };
    all.push((StreamId::task([2; 32]), ended));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_private_of_any_event_is_on_disk_and_all_of_it_is_read_back() {
    let clear = Home::new();
    let off = clear.private(Terms::default());
    let home = Home::new();
    let on = home.private(master(1));
    for (stream, event) in every_kind() {
        off.append(vec![Append::new(stream, Expect::Any, event.clone())]).await.unwrap();
        on.append(vec![Append::new(stream, Expect::Any, event.clone())]).await.unwrap();
        let stored = home.stored.read(stream).await.unwrap().pop().unwrap();
        assert!(matches!(stored.event, Event::Private(_)), "{}", event.name());
        let mut read = on.read(stream).await.unwrap().pop().unwrap().event;
        for bytes in read.stored_mut() {
            assert_eq!(bytes.len(), on.load(bytes).await.unwrap().len() as u64);
            *bytes = Stored::Inline(on.load(bytes).await.unwrap());
        }
        assert_eq!(read, event);
        assert_eq!(stored.event.plain().at(), event.at());
    }
    assert!(clear.holds(MARKER), "the control");
    assert!(!clear.folder.path().join("l.redb.keys").exists(), "no key where nothing is encrypted");
    assert!(!home.holds(MARKER));
    // A second handle reads it by the keys alone, and one with another master key does not, and says why.
    let again = home.private(Terms { encrypt: false, ..master(1) });
    assert_eq!(row(&again, 4).await.label(), format!("refund {MARKER}"));
    let other = home.private(master(2));
    let locked = row(&other, 4).await;
    assert_eq!(locked.label(), "refund (not readable)");
    let error = other.load(&locked.dispatch.unwrap().request).await.unwrap_err();
    assert!(matches!(&error, LedgerError::Locked { why } if why.contains("another master key")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_effect_answers_compares_and_tells_nothing() {
    let home = Home::new();
    let ledger = home.private(master(1));
    done(&ledger, 1, Some("case-1")).await;
    done(&ledger, 2, Some("case-1")).await;
    done(&ledger, 3, Some("case-2")).await;
    let before = row(&ledger, 1).await;
    let keys = home.keys().list().unwrap();
    assert_eq!(keys.len(), 2, "one key for each parent");
    let found = ledger.erasable_of_parent("acme", "case-1").await.unwrap();
    assert_eq!((found.rows.len(), found.open.len(), found.clear.len()), (2, 0, 0));
    ledger.erase(&found, &erasure("d1")).await.unwrap();

    // Another process that never saw the key, and one that had it in memory.
    for ledger in [home.private(master(1)), Arc::clone(&ledger)] {
        let row = row(&ledger, 1).await;
        assert_eq!((row.state, row.receipt.as_deref(), row.erasures), (StateTag::Done, Some("re_1"), 1));
        assert_eq!(row.label(), "refund (erased)");
        assert_eq!(row.fingerprint(), before.fingerprint());
        assert_eq!(row.generated(), None);
        assert_eq!(answer(Some(&row), &[], Sender::Stopped), Answer::Replay);
        assert_eq!(answer(Some(&row), &["amount".into()], Sender::Stopped), Answer::KeyReused(vec!["amount".into()]));
        assert_eq!(raw_answer(&ledger, 1).await, Err(LedgerError::Erased));
        assert!(raw_answer(&ledger, 3).await.is_ok(), "another parent's is as it was");
    }
    assert_eq!(home.keys().list().unwrap().len(), 1);
    assert!(home.keys().marked().unwrap().is_empty());
    // Chains, and histories without a key: sound, also of the keys.
    let keys = home.keys();
    let report = verify_with(&*home.stored, Some(&*keys)).await.unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);

    // What comes later under the same parent has the next key; what was erased stays so.
    done(&ledger, 4, Some("case-1")).await;
    assert_eq!(row(&ledger, 4).await.label(), format!("refund {MARKER}"));
    assert!(ledger.erasable_of_parent("acme", "case-1").await.unwrap().rows.iter().all(|(key, _)| *key == [4; 32]));
    let parent = home.stored.read(StreamId::parent("acme", "case-1")).await.unwrap();
    let told: Vec<String> = parent.iter().map(|record| record.event.name()).collect();
    assert_eq!(told, ["key-retired", "erased", "key-destroyed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_without_a_parent_has_its_own_key_and_outlives_erasing_and_pruning() {
    let home = Home::new();
    let ledger = home.private(master(1));
    done(&ledger, 1, None).await;
    let found = ledger.erasable_of_effect([1; 32]).await.unwrap();
    ledger.erase(&found, &erasure("d1")).await.unwrap();
    assert!(home.keys().list().unwrap().is_empty());
    assert!(ledger.erasable_of_effect([1; 32]).await.unwrap().is_empty());
    // Evidence that comes later is kept, under the next key.
    let effects = Effects::new(Arc::clone(&ledger) as Arc<dyn Ledger>);
    let late = Event::FailedLater {
        at: 6_000,
        why: format!("charged back {MARKER}"),
        evidence: Stored::empty(),
        actor: None,
        decision: None,
    };
    let erased = row(&ledger, 1).await;
    effects.advance([1; 32], Some(&erased), late, Vec::new()).await.unwrap();
    assert!(row(&ledger, 1).await.failed_later.unwrap().ends_with(MARKER));
    let before = row(&ledger, 1).await;
    effects.bury(&[([1; 32], before)], 7_000).await.unwrap();
    ledger.forget(vec![StreamId::effect([1; 32])]).await.unwrap();
    let buried = row(&ledger, 1).await;
    assert_eq!((buried.state, buried.receipt.as_deref(), buried.erasures), (StateTag::Done, Some("re_1"), 1));
    assert_eq!(buried.label(), "refund (erased)");
    assert!(verify(&*home.stored).await.unwrap().is_sound());
    let found = ledger.erasable_of_effect([1; 32]).await.unwrap();
    ledger.erase(&found, &erasure("d2")).await.unwrap();
    assert!(is_withheld(row(&ledger, 1).await.failed_later.as_deref().unwrap()));
    assert!(home.keys().list().unwrap().is_empty());
    let keys = home.keys();
    assert!(verify_with(&*home.stored, Some(&*keys)).await.unwrap().is_sound());
    assert!(!home.holds(MARKER));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_before_an_effect_belonged_to_something_is_erased_with_it() {
    let home = Home::new();
    let ledger = home.private(master(1));
    let mut proposal = samples::proposal(9);
    proposal.label = format!("refund {MARKER}");
    proposal.request = secret_bytes(80);
    let effects = Effects::new(Arc::clone(&ledger) as Arc<dyn Ledger>);
    effects.append([1; 32], 0, Event::Planned(proposal), Vec::new()).await.unwrap();
    effects.append([1; 32], 1, dispatched(Some("case-1")), Vec::new()).await.unwrap();
    effects.append([1; 32], 2, responded(), Vec::new()).await.unwrap();
    effects.append([1; 32], 3, samples::classified(1, samples::done("re_1")), Vec::new()).await.unwrap();
    assert_eq!(home.keys().list().unwrap().len(), 2);
    let found = ledger.erasable_of_parent("acme", "case-1").await.unwrap();
    ledger.erase(&found, &erasure("d1")).await.unwrap();
    assert!(home.keys().list().unwrap().is_empty() && home.keys().marked().unwrap().is_empty());
    let erased = row(&ledger, 1).await;
    for text in [erased.label(), &erased.proposal.as_ref().unwrap().label] {
        assert_eq!(text, "refund (erased)");
    }
    let keys = home.keys();
    let report = verify_with(&*home.stored, Some(&*keys)).await.unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert!(ledger.erasable_of_parent("acme", "case-1").await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_open_is_not_erased() {
    let home = Home::new();
    let ledger = home.private(master(1));
    done(&ledger, 1, Some("case-1")).await;
    let effects = Effects::new(Arc::clone(&ledger) as Arc<dyn Ledger>);
    effects.append([2; 32], 0, dispatched(Some("case-1")), Vec::new()).await.unwrap();
    let found = ledger.erasable_of_parent("acme", "case-1").await.unwrap();
    assert_eq!((found.rows.len(), found.open.len()), (1, 1));
    assert!(found.open[0].2.contains("it must be done"), "{}", found.open[0].2);
    // It is told even if it is asked for all the same: the other one's key is the same.
    let open = ledger.erasable_of_effect([2; 32]).await.unwrap();
    assert!(open.rows.is_empty());
    assert!(home.keys().list().unwrap().len() == 1 && raw_answer(&ledger, 1).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_did_not_hear_of_an_erasure_uses_the_next_key() {
    let home = Home::new();
    let (ours, theirs) = (home.private(master(1)), home.private(master(1)));
    done(&ours, 1, Some("case-1")).await;
    done(&theirs, 2, Some("case-1")).await;
    let found = ours.erasable_of_parent("acme", "case-1").await.unwrap();
    // Between the look and the commit a new effect comes: nothing is erased.
    done(&theirs, 3, Some("case-1")).await;
    assert!(ours.erase(&found, &erasure("d1")).await.unwrap_err().is_conflict());
    for key in 1..=3 {
        assert!(raw_answer(&ours, key).await.is_ok());
    }
    // One that is under way uses the next key, and is in the way of nothing but itself.
    let found = ours.erasable_of_parent("acme", "case-1").await.unwrap();
    assert_eq!(found.rows.len(), 3);
    ours.erase(&found, &erasure("d1")).await.unwrap();
    for key in 1..=3 {
        assert_eq!(raw_answer(&theirs, key).await, Err(LedgerError::Erased));
    }
    // `theirs` has the destroyed key in memory, and its version of the parent is stale.
    done(&theirs, 4, Some("case-1")).await;
    assert!(raw_answer(&ours, 4).await.is_ok() && raw_answer(&home.private(master(1)), 4).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_key_is_damage_and_the_effect_answers_all_the_same() {
    let home = Home::new();
    let ledger = home.private(master(1));
    done(&ledger, 1, Some("case-1")).await;
    let name = home.keys().list().unwrap()[0];
    home.keys().destroy(&name).unwrap();
    let ledger = home.private(master(1));
    let row = row(&ledger, 1).await;
    assert_eq!((row.state, row.receipt.as_deref()), (StateTag::Done, Some("re_1")));
    assert_eq!(row.label(), "refund (not readable)");
    assert_eq!(answer(Some(&row), &[], Sender::Stopped), Answer::Replay);
    let error = raw_answer(&ledger, 1).await.unwrap_err();
    assert!(matches!(error, LedgerError::KeyMissing { .. }) && error.is_damaged(), "{error}");
    let keys = home.keys();
    let report = verify_with(&*home.stored, Some(&*keys)).await.unwrap();
    assert!(report.problems.iter().any(|problem| problem.what.contains("no erasure is on record")));
    assert!(verify(&*home.stored).await.unwrap().is_sound(), "the records themselves are as they were written");
    // An operator may say that it is gone for good.
    let found = ledger.erasable_of_parent("acme", "case-1").await.unwrap();
    ledger.erase(&found, &erasure("d1")).await.unwrap();
    assert!(verify_with(&*home.stored, Some(&*keys)).await.unwrap().is_sound());
    assert_eq!(raw_answer(&ledger, 1).await, Err(LedgerError::Erased));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ciphertext_is_of_no_use_in_another_row() {
    let home = Home::new();
    let ledger = home.private(master(1));
    done(&ledger, 1, Some("case-1")).await;
    let moved = home.stored.read(StreamId::effect([1; 32])).await.unwrap();
    let to = StreamId::effect([2; 32]);
    for record in moved {
        home.stored.append(vec![Append::new(to, Expect::Any, record.event)]).await.unwrap();
    }
    let row = row(&ledger, 2).await;
    assert_eq!(row.label(), "refund (not readable)");
    let error = ledger.load(&row.dispatch.unwrap().request).await.unwrap_err();
    assert!(matches!(error, LedgerError::Damaged { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn switching_on_and_off_leaves_everything_readable() {
    let home = Home::new();
    let off = home.private(Terms { encrypt: false, ..master(1) });
    done(&off, 1, Some("case-1")).await;
    let on = home.private(master(1));
    assert_eq!(row(&on, 1).await.label(), format!("refund {MARKER}"));
    done(&on, 2, Some("case-1")).await;
    off.set_encrypt(false);
    assert_eq!(row(&off, 2).await.label(), format!("refund {MARKER}"));
    // A row that is encrypted stays so, the tombstone too, and one that is not is not made private by its end.
    let effects = Effects::new(Arc::clone(&off) as Arc<dyn Ledger>);
    for key in [1, 2] {
        let before = row(&off, key).await;
        effects.bury(&[([key; 32], before)], 9_000).await.unwrap();
        let last = home.stored.read(StreamId::effect([key; 32])).await.unwrap().pop().unwrap();
        assert_eq!(matches!(last.event, Event::Private(_)), key == 2);
    }
    assert!(verify(&*home.stored).await.unwrap().is_sound());
    let found = on.erasable_of_parent("acme", "case-1").await.unwrap();
    assert_eq!((found.rows.len(), found.clear.len()), (1, 1), "what was stored in clear is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_gives_its_credential_away_is_encrypted_in_any_case() {
    let home = Home::new();
    let ledger = home.private(Terms::default());
    let effects = Effects::new(Arc::clone(&ledger) as Arc<dyn Ledger>);
    effects.append([1; 32], 0, samples::dispatched(1, 0), Vec::new()).await.unwrap();
    let piece = Event::Evidence { attempt: [1; 16], offset: 0, bytes: secret_bytes(11), at: 1_000, echoes: true };
    effects.append([1; 32], 1, piece, Vec::new()).await.unwrap();
    let Event::Responded { attempt, at, sent_bytes, ended, .. } = responded() else { unreachable!() };
    let whole = [MARKER.as_bytes(), b" and more"].concat();
    let digest = <[u8; 32] as From<_>>::from(<sha2::Sha256 as sha2::Digest>::digest(&whole));
    let rest = Stored::Inline(b" and more".to_vec());
    let total = whole.len() as u64;
    let answer = Event::Responded { attempt, at, head_and_tail: rest, total, digest, sent_bytes, ended, echoes: true };
    effects.append([1; 32], 2, answer, Vec::new()).await.unwrap();
    assert!(!home.holds(MARKER));
    assert_eq!(raw_answer(&home.private(Terms::default()), 1).await.unwrap(), whole);
    assert!(home.folder.path().join("l.redb.keys/master").exists());
    // A policy that names a master key later reads what the one beside the ledger wraps.
    assert_eq!(raw_answer(&home.private(master(1)), 1).await.unwrap(), whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_master_key_nothing_is_stored_in_clear_instead() {
    let home = Home::new();
    let ledger = home.private(Terms { encrypt: true, master: Master::Unreadable("it is not set".into()) });
    let effects = Effects::new(Arc::clone(&ledger) as Arc<dyn Ledger>);
    let error = effects.append([1; 32], 0, dispatched(None), Vec::new()).await.unwrap_err();
    assert!(error.to_string().contains("it is not set"), "{error}");
    assert!(home.stored.read(StreamId::effect([1; 32])).await.unwrap().is_empty());
}

/// Keys and a ledger that stop working after so many steps.
struct Failing {
    left: Arc<AtomicUsize>,
    keys: Arc<dyn KeyStore>,
    ledger: Arc<dyn Ledger>,
}

fn step(left: &AtomicUsize) -> Result<(), LedgerError> {
    let stopped = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err();
    if stopped { Err(LedgerError::Unavailable { why: "the process was killed".into() }) } else { Ok(()) }
}

impl KeyStore for Failing {
    fn get(&self, name: &KeyName) -> Result<Option<Vec<u8>>, LedgerError> {
        self.keys.get(name)
    }
    fn keep(&self, name: &KeyName, wrapped: &[u8]) -> Result<(Vec<u8>, Held), LedgerError> {
        self.keys.keep(name, wrapped)
    }
    fn destroy(&self, name: &KeyName) -> Result<bool, LedgerError> {
        step(&self.left)?;
        self.keys.destroy(name)
    }
    fn claim(&self, name: &KeyName) -> Result<Option<Held>, LedgerError> {
        self.keys.claim(name)
    }
    fn list(&self) -> Result<Vec<KeyName>, LedgerError> {
        self.keys.list()
    }
    fn mark(&self, name: &KeyName, begun: bool) -> Result<(), LedgerError> {
        step(&self.left)?;
        self.keys.mark(name, begun)
    }
    fn marked(&self) -> Result<Vec<KeyName>, LedgerError> {
        self.keys.marked()
    }
    fn master(&self, make: bool) -> Result<Option<Vec<u8>>, LedgerError> {
        self.keys.master(make)
    }
}

#[async_trait]
impl Ledger for Failing {
    async fn append(&self, batch: Vec<Append>) -> Result<Vec<u64>, LedgerError> {
        step(&self.left)?;
        self.ledger.append(batch).await
    }
    async fn read(&self, stream: StreamId) -> Result<Vec<Record>, LedgerError> {
        self.ledger.read(stream).await
    }
    async fn scan(&self, from: u64, limit: usize) -> Result<Vec<Record>, LedgerError> {
        self.ledger.scan(from, limit).await
    }
    async fn list(&self, state: StateTag, after: Option<StreamId>, limit: usize) -> Result<Vec<StreamId>, LedgerError> {
        self.ledger.list(state, after, limit).await
    }
    async fn load(&self, bytes: &Stored) -> Result<Vec<u8>, LedgerError> {
        self.ledger.load(bytes).await
    }
    async fn forget(&self, streams: Vec<StreamId>) -> Result<u64, LedgerError> {
        self.ledger.forget(streams).await
    }
    async fn sweep(&self) -> Result<u64, LedgerError> {
        self.ledger.sweep().await
    }
    fn identity(&self) -> LedgerIdentity {
        self.ledger.identity()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_that_is_interrupted_anywhere_is_whole_or_has_not_begun() {
    for parent in [Some("case-1"), None] {
        let mut whole = false;
        for steps in 0.. {
            let home = Home::new();
            done(&home.private(master(1)), 1, parent).await;
            let left = Arc::new(AtomicUsize::new(steps));
            let failing = || Failing { left: Arc::clone(&left), keys: home.keys(), ledger: Arc::clone(&home.stored) };
            let dying = PrivateLedger::new(Arc::new(failing()), Arc::new(failing()), master(1));
            let found = match parent {
                Some(parent) => dying.erasable_of_parent("acme", parent).await.unwrap(),
                None => dying.erasable_of_effect([1; 32]).await.unwrap(),
            };
            whole = dying.erase(&found, &erasure("d1")).await.is_ok();
            let next = home.private(master(1));
            let on_record = row(&next, 1).await.erasures == 1;
            // On record, nobody reads it any more, whether or not the key is gone; else it is as it was.
            assert_eq!(row(&next, 1).await.label() == "refund (erased)", on_record, "{steps}");
            assert_eq!(raw_answer(&next, 1).await == Err(LedgerError::Erased), on_record, "{steps}");
            next.finish(6_000).await.unwrap();
            assert_eq!(home.keys().list().unwrap().is_empty(), on_record, "{steps}");
            let keys = home.keys();
            assert!(verify_with(&*home.stored, Some(&*keys)).await.unwrap().is_sound(), "{steps}");
            if on_record {
                assert!(home.keys().marked().unwrap().is_empty(), "{steps}");
                let again = next.finish(7_000).await.unwrap();
                assert_eq!(again, 0);
            }
            if whole {
                assert!(steps >= 4, "every step was interrupted: {steps}");
                break;
            }
        }
        assert!(whole);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_meet_at_a_new_parent_use_one_key() {
    let home = Home::new();
    let writers: Vec<_> = (1_u8..=8).map(|n| (n, home.private(master(1)))).collect();
    let tasks: Vec<_> = writers
        .into_iter()
        .map(|(n, ledger)| tokio::spawn(async move { done(&ledger, n, Some("case-1")).await }))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(home.keys().list().unwrap().len(), 1);
    let reader = home.private(master(1));
    for key in 1..=8 {
        assert!(raw_answer(&reader, key).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_nothing_is_under_are_destroyed() {
    let home = Home::new();
    let ledger = home.private(master(1));
    done(&ledger, 1, Some("case-1")).await;
    // A commit that is refused leaves the key that was made for it.
    let effects = Effects::new(Arc::clone(&ledger) as Arc<dyn Ledger>);
    let permit = Append::new(StreamId::permit("acme", "p"), Expect::Remaining { at_least: 1 }, {
        Event::PermitReserved { effect: [2; 32], amount: 1, at: 1 }
    });
    assert!(effects.append([2; 32], 0, dispatched(None), vec![permit]).await.is_err());
    assert_eq!(home.keys().list().unwrap().len(), 2);
    let tidied = ledger.tidy(9_000).await.unwrap();
    assert_eq!((tidied.finished, tidied.unused), (0, 1));
    assert_eq!(home.keys().list().unwrap().len(), 1);
    assert!(raw_answer(&ledger, 1).await.is_ok());
    // A task's key goes with the task.
    let task = StreamId::task([5; 32]);
    let begun = every_kind().into_iter().find(|(_, event)| matches!(event, Event::TaskBegun(_))).unwrap().1;
    ledger.append(vec![Append::new(task, Expect::Version(0), begun)]).await.unwrap();
    assert_eq!(home.keys().list().unwrap().len(), 2);
    ledger.append(vec![Append::new(task, Expect::Any, Event::TaskDropped { at: 9_000 })]).await.unwrap();
    assert_eq!(home.keys().list().unwrap().len(), 1);
}
