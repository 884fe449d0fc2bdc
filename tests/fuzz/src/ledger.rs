//! Bytes of a ledger: a stored record, an event in it, an export, a frame of the socket.
//!
//! The first byte says which; the next two, where one bit is flipped of what was accepted.

use std::collections::BTreeSet;

use oncegate_ledger::outside::{read_record, write_record};
use oncegate_ledger::redb::{repeat_reply, repeat_request};
use oncegate_ledger::verify::verify_export;
use oncegate_ledger::{Event, Record, StreamId, StreamKind, export};

/// The format of events, in front of each.
const EVENT_FORMAT: u8 = 1;
/// Where records of this target lie.
const SEQ: u64 = 7;

pub(crate) fn run(data: &[u8]) {
    let [which, high, low, rest @ ..] = data else { return };
    let flip = usize::from(*high) << 8 | usize::from(*low);
    match which % 5 {
        0 => stored(rest, flip),
        1 => event(rest, flip),
        2 => exported(rest, flip),
        3 => frame(rest, |bytes| repeat_request(bytes).ok()),
        _ => frame(rest, |bytes| repeat_reply(bytes).ok()),
    }
}

/// Bytes in the place of a record.
fn stored(bytes: &[u8], flip: usize) {
    for seq in [SEQ, 0] {
        if let Ok(record) = read_record(seq, bytes) {
            assert_eq!(record.seq, seq, "another record's bytes");
            no_bit_differs(seq, bytes, flip);
            accepted(&record, flip);
        }
    }
}

/// An event that whoever can write the ledger has sealed as it has to be.
fn event(bytes: &[u8], flip: usize) {
    let sealed = [&[EVENT_FORMAT], bytes].concat();
    let digest = [0; 32];
    let stream = StreamId { kind: StreamKind::ALL[flip % StreamKind::ALL.len()], id: [9; 32] };
    let event = Event::LedgerCreated { id: [0; 16], at: 0 };
    let record = Record { seq: SEQ, stream, version: 1, event, digest, previous: [0; 32], sealed };
    let bytes = write_record(&record);
    if let Ok(record) = read_record(SEQ, &bytes) {
        accepted(&record, flip);
    }
    no_bit_differs(SEQ, &bytes, flip);
}

/// A record that was read: it is written as it was, its event too, and its export is believed.
fn accepted(record: &Record, flip: usize) {
    assert_eq!(read_record(record.seq, &write_record(record)).as_ref(), Ok(record));
    let mut bytes = Vec::new();
    ciborium::into_writer(&record.event, &mut bytes).expect("an event can be written");
    let again: Event = ciborium::from_reader(bytes.as_slice()).expect("what was written can be read");
    assert_eq!(again, record.event);
    no_bit_differs(record.seq, &write_record(record), flip);
    let line = export::line(record).to_string();
    let report = verify_export(line.as_bytes()).expect("memory can be read");
    let disbelieved = report.problems.iter().find(|problem| problem.what.starts_with("line "));
    assert!(disbelieved.is_none(), "{disbelieved:?} of {line}");
}

/// Whatever bit is flipped, what comes of it is not taken for a record.
fn no_bit_differs(seq: u64, bytes: &[u8], flip: usize) {
    let mut flipped = bytes.to_vec();
    let bits = flipped.len() * 8;
    flipped[flip % bits / 8] ^= 1 << (flip % 8);
    assert!(read_record(seq, &flipped).is_err(), "bit {} of a record is not looked at", flip % bits);
}

/// An export that is sound is not sound with another bit, nor without one of its lines.
fn exported(bytes: &[u8], flip: usize) {
    let sound = |bytes: &[u8]| verify_export(bytes).expect("memory can be read").is_sound();
    if bytes.is_empty() || !sound(bytes) {
        return;
    }
    let mut flipped = bytes.to_vec();
    let at = flip % flipped.len();
    flipped[at] ^= 1 << (flip % 8);
    assert!(!sound(&flipped), "byte {at} of an export is not looked at");
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let gone = flip % lines.len();
    let kept: Vec<&[u8]> = lines.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, line)| *line).collect();
    assert!(kept.is_empty() || !sound(&kept.concat()), "line {gone} of an export is not missed");
}

/// What is read off the socket is written as it was understood, and then as it was written.
fn frame(bytes: &[u8], repeat: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let whole = [&u32::try_from(bytes.len()).expect("a short input").to_be_bytes()[..], bytes].concat();
    let lengths: BTreeSet<usize> = [0, 3, bytes.len() / 2].into();
    for cut in lengths.into_iter().filter(|cut| *cut < whole.len()) {
        assert!(repeat(&whole[..cut]).is_none(), "a frame that was cut off is read");
    }
    // A length that nobody will send is no memory that is taken.
    let claimed = [&(64_u32 << 20).to_be_bytes()[..], bytes].concat();
    assert!(repeat(&claimed).is_none());
    if let Some(written) = repeat(&whole) {
        assert_eq!(repeat(&written).as_ref(), Some(&written), "what was written is read as something else");
    }
}
