//! Bits that flip at rest, in the ledger's file, its segments or its head marker: each read is right
//! or refused by name; never silently wrong, never a panic.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::RedbLedger;
use crate::samples::*;
use crate::{Effects, Ledger, StateTag, Stored, StreamId};

const EFFECTS: u8 = 24;
const FLIPS: usize = 2_000;
const SEEDS: [u64; 2] = [7, 11];

async fn make(path: &Path) {
    let effects = Effects::new(Arc::new(RedbLedger::init(path, 1).unwrap()));
    for key in 0..EFFECTS {
        let length = if key % 8 == 0 { 40_000 } else { 300 };
        let row = effects.append([key; 32], 0, dispatched(1, 0), Vec::new()).await.unwrap();
        let row = effects.advance([key; 32], Some(&row), responded(1, &vec![key; length]), Vec::new()).await.unwrap();
        effects.advance([key; 32], Some(&row), classified(1, done("re_1")), Vec::new()).await.unwrap();
    }
}

/// Everything that a host would read, or the first error.
async fn contents(ledger: &RedbLedger) -> Result<Vec<String>, crate::LedgerError> {
    let mut all = Vec::new();
    for key in 0..EFFECTS {
        for mut record in ledger.read(StreamId::effect([key; 32])).await? {
            for bytes in record.event.stored_mut() {
                *bytes = Stored::Inline(ledger.load(bytes).await?);
            }
            all.push(format!("{} {:?}", record.seq, ciborium::Value::serialized(&record.event).unwrap()));
        }
    }
    all.push(format!("{:?}", ledger.list(StateTag::Done, None, 100).await?));
    all.push(format!("{:?}", ledger.scan(0, 1_000).await?));
    Ok(all)
}

/// The files of a ledger, as they were closed.
struct Files(Vec<(PathBuf, Vec<u8>)>);

impl Files {
    fn of(ledger: &Path) -> Files {
        let segment = super::beside(ledger, "segments").join("000001.seg");
        let paths = [ledger.to_owned(), segment, super::marker::path(ledger)];
        Files(paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect())
    }

    fn restore(&self) {
        for (path, bytes) in &self.0 {
            std::fs::write(path, bytes).unwrap();
        }
    }

    /// Flips one bit of one of them and says of which. Most of the ledger's file is unused: a bit is
    /// flipped where something lies.
    fn flip(&self, random: &mut SmallRng) -> usize {
        let which = match random.random_range(0..10) {
            0..=6 => 0,
            7 | 8 => 1,
            _ => 2,
        };
        let (path, sound) = &self.0[which];
        let mut bytes = sound.clone();
        let at = loop {
            let at = random.random_range(0..bytes.len());
            if bytes[at] != 0 {
                break at;
            }
        };
        bytes[at] ^= 1 << random.random_range(0..8);
        std::fs::write(path, bytes).unwrap();
        which
    }
}

/// The name of an error, without what it says.
fn name(error: &crate::LedgerError) -> String {
    format!("{error:?}").split([' ', '{']).next().unwrap_or_default().to_owned()
}

/// Flips so many bits, one at a time, with this seed; refusals by file and name, and how many were
/// without effect.
async fn flip_bits(seed: u64, flips: usize) -> (BTreeMap<(usize, String), usize>, usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    make(&path).await;
    let truth = contents(&RedbLedger::open(&path).unwrap()).await.unwrap();
    let files = Files::of(&path);
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut refused, mut harmless) = (BTreeMap::new(), 0);
    for flip in 0..flips {
        let which = files.flip(&mut random);
        let read = match RedbLedger::open(&path) {
            Ok(ledger) => contents(&ledger).await,
            Err(error) => Err(error),
        };
        match read {
            Err(error) => *refused.entry((which, name(&error))).or_default() += 1,
            Ok(read) if read == truth => harmless += 1,
            Ok(read) => {
                let wrong = read.iter().zip(&truth).find(|(read, truth)| read != truth);
                panic!("seed {seed}, flip {flip}, file {which} was read silently: {wrong:?}");
            }
        }
        files.restore();
    }
    (refused, harmless)
}

#[test]
fn two_thousand_flipped_bits_are_never_read_silently() {
    let threads: Vec<_> = SEEDS
        .map(|seed| {
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(flip_bits(seed, FLIPS / SEEDS.len()))
            })
        })
        .into_iter()
        .collect();
    let (mut refused, mut harmless) = (BTreeMap::<(usize, String), usize>::new(), 0);
    for thread in threads {
        // A panic that gets out of the ledger ends the thread.
        let (by_name, without_effect) = thread.join().unwrap();
        by_name.into_iter().for_each(|(name, count)| *refused.entry(name).or_default() += count);
        harmless += without_effect;
    }
    println!("{FLIPS} flips, seeds {SEEDS:?}: {harmless} without effect, refused {refused:?}");
    let of_file =
        |file: usize| refused.iter().filter(|((of, _), _)| *of == file).map(|(_, count)| count).sum::<usize>();
    assert_eq!(of_file(0) + of_file(1) + of_file(2) + harmless, FLIPS);
    assert!(of_file(0) > FLIPS / 4 && of_file(1) > FLIPS / 10, "the flips hit something: {refused:?}");
}

/// The check above would see a read that is wrong: what is compared differs by any one bit.
#[tokio::test]
async fn another_history_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (directory.path().join("one.redb"), directory.path().join("other.redb"));
    make(&one).await;
    make(&other).await;
    let read = |path: PathBuf| async move { contents(&RedbLedger::open(&path).unwrap()).await.unwrap() };
    // Two ledgers of one history differ in their ids alone, which only the scan of all streams reads.
    let (one, other) = (read(one).await, read(other).await);
    assert_eq!(one[..one.len() - 1], other[..one.len() - 1]);
    assert_ne!(one.last(), other.last());
}
