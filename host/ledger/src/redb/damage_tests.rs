//! Bits that flip at rest: refused, or without effect on what is read; never silently wrong.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::{Rng, SeedableRng};

use super::RedbLedger;
use crate::samples::*;
use crate::{Effects, Ledger, StateTag, Stored, StreamId};

const EFFECTS: u8 = 24;
const FLIPS: usize = 300;

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

#[tokio::test]
async fn flipped_bits_are_never_read_silently() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("l.redb");
    make(&path).await;
    let truth = contents(&RedbLedger::open(&path).unwrap()).await.unwrap();
    let segment: PathBuf = super::beside(&path, "segments").join("000001.seg");
    // The file is mostly unused: flip where something lies.
    let sound = std::fs::read(&path).unwrap();
    let used: Vec<usize> = (0..sound.len()).filter(|at| sound[*at] != 0).collect();
    let sound_segment = std::fs::read(&segment).unwrap();
    let mut random = rand::rngs::SmallRng::seed_from_u64(7);
    let (mut refused, mut harmless) = (0, 0);
    for flip in 0..FLIPS {
        let bit = 1 << random.random_range(0..8);
        if flip % 10 == 0 {
            let mut bytes = sound_segment.clone();
            bytes[random.random_range(0..sound_segment.len())] ^= bit;
            std::fs::write(&segment, bytes).unwrap();
        } else {
            let mut bytes = sound.clone();
            bytes[used[random.random_range(0..used.len())]] ^= bit;
            std::fs::write(&path, bytes).unwrap();
        }
        let read = match RedbLedger::open(&path) {
            Ok(ledger) => contents(&ledger).await,
            Err(error) => Err(error),
        };
        match read {
            Err(_) => refused += 1,
            Ok(read) if read == truth => harmless += 1,
            Ok(read) => {
                let wrong = read.iter().zip(&truth).find(|(read, truth)| read != truth);
                panic!("flip {flip} was read silently: {wrong:?}");
            }
        }
        std::fs::write(&path, &sound).unwrap();
        std::fs::write(&segment, &sound_segment).unwrap();
    }
    println!("{refused} refused, {harmless} without effect");
    assert!(refused > FLIPS / 4, "the flips hit something: {refused} refused");
}
