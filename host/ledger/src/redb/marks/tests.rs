//! The order of writes and syncs, over slots that are told what to answer.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn mark(seq: u64) -> Mark {
    Mark { ledger: [1; 16], seq, digest: [seq as u8; 32] }
}

/// What is done to the slots; each waits for its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Wrote(u64, u64),
    Synced,
}

struct Played {
    done: Mutex<Sender<Done>>,
    writes: Mutex<Vec<LedgerError>>,
    syncs: Mutex<Receiver<Result<(), LedgerError>>>,
}

impl Slots for Played {
    fn write(&self, mark: Mark, round: u64) -> Result<(), LedgerError> {
        self.done.lock().unwrap().send(Done::Wrote(mark.seq, round)).unwrap();
        self.writes.lock().unwrap().pop().map_or(Ok(()), Err)
    }

    fn sync(&self) -> Result<(), LedgerError> {
        self.done.lock().unwrap().send(Done::Synced).unwrap();
        self.syncs.lock().unwrap().recv().unwrap()
    }
}

struct Scene {
    marking: Marking,
    done: Receiver<Done>,
    syncs: Sender<Result<(), LedgerError>>,
}

/// Writes fail so often, with this, before they succeed.
fn scene(failures: Vec<LedgerError>) -> Scene {
    let ((tell, done), (syncs, outcomes)) = (channel(), channel());
    let slots = Played { done: Mutex::new(tell), writes: Mutex::new(failures), syncs: Mutex::new(outcomes) };
    Scene { marking: Marking::over(0, 1, Box::new(slots)).unwrap(), done, syncs }
}

impl Scene {
    fn next(&self) -> Done {
        self.done.recv_timeout(PATIENCE).unwrap()
    }

    #[track_caller]
    fn until(&self, what: impl Fn(&Marks) -> bool) {
        let started = std::time::Instant::now();
        while !what(self.marking.marks()) {
            assert!(started.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn full() -> LedgerError {
    LedgerError::Full { why: "no space".to_owned() }
}

#[test]
fn a_mark_is_written_when_it_is_made_and_durable_later() {
    let scene = scene(Vec::new());
    let marks = scene.marking.marks();
    assert_eq!((marks.wait(), marks.unmarked()), (Ok(()), None), "nothing was asked for");
    marks.mark(mark(1));
    assert_eq!((scene.done.try_recv(), marks.marked(), marks.named()), (Ok(Done::Wrote(1, 1)), Ok(()), 1));
    assert_eq!(marks.unmarked(), Some(1));
    assert_eq!(scene.next(), Done::Synced);
    scene.syncs.send(Ok(())).unwrap();
    scene.until(|marks| marks.unmarked().is_none());
}

#[test]
fn what_is_written_while_a_slot_is_synced_takes_the_next_one() {
    let scene = scene(Vec::new());
    let marks = scene.marking.marks();
    marks.mark(mark(1));
    assert_eq!((scene.next(), scene.next()), (Done::Wrote(1, 1), Done::Synced));
    (2..=4).for_each(|seq| marks.mark(mark(seq)));
    scene.syncs.send(Ok(())).unwrap();
    assert_eq!([scene.next(), scene.next(), scene.next()], [2, 3, 4].map(|seq| Done::Wrote(seq, 2)));
    assert_eq!(scene.next(), Done::Synced);
    assert_eq!(marks.unmarked(), Some(2));
    scene.syncs.send(Ok(())).unwrap();
    scene.until(|marks| marks.unmarked().is_none());
}

#[test]
fn a_write_that_fails_refuses_until_it_is_written() {
    let scene = scene(vec![full()]);
    let marks = scene.marking.marks();
    marks.mark(mark(1));
    assert_eq!((marks.marked(), marks.named()), (Err(full()), 0));
    assert_eq!(marks.wait(), Err(full()));
    // It is tried again, with nobody asking.
    assert_eq!([scene.next(), scene.next(), scene.next()], [Done::Wrote(1, 1), Done::Wrote(1, 1), Done::Synced]);
    assert_eq!((marks.marked(), marks.named()), (Ok(()), 1));
    scene.syncs.send(Ok(())).unwrap();
    scene.until(|marks| marks.unmarked().is_none());
}

#[test]
fn a_sync_that_fails_gives_up_no_slot_and_writes_again() {
    let scene = scene(Vec::new());
    let marks = scene.marking.marks();
    marks.mark(mark(1));
    assert_eq!((scene.next(), scene.next()), (Done::Wrote(1, 1), Done::Synced));
    for _ in 0..2 {
        scene.syncs.send(Err(full())).unwrap();
        // The slot behind the one that is not durable: that of round 0 is the last good one, and stays.
        assert_eq!((scene.next(), scene.next()), (Done::Wrote(1, 2), Done::Synced));
    }
    scene.syncs.send(Ok(())).unwrap();
    scene.until(|marks| marks.unmarked().is_none() && marks.failing().is_none());
    marks.mark(mark(2));
    assert_eq!((scene.next(), scene.next()), (Done::Wrote(2, 3), Done::Synced));
    scene.syncs.send(Ok(())).unwrap();
}

#[test]
fn what_was_written_is_durable_before_the_end() {
    let scene = scene(Vec::new());
    scene.marking.marks().mark(mark(7));
    scene.syncs.send(Ok(())).unwrap();
    drop(scene.marking);
    assert_eq!((scene.done.try_recv(), scene.done.try_recv()), (Ok(Done::Wrote(7, 1)), Ok(Done::Synced)));
}
