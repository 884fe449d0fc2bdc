//! Checks an export, line by line, without the ledger that it came from.
//!
//! A line is believed only if it is, to the byte, what the sealed event in it exports to, and if the
//! sealed event has the digest that the line gives: nothing in it can differ unseen.

use std::collections::HashMap;
use std::io::BufRead;

use serde_json::Value;

use super::{Check, Checkpoint, Report, checkpoint_of};
use crate::record::{self, unseal};
use crate::{LedgerError, Record, Stored, StreamId, export, hex, sha256};

/// Reads a whole export and checks what [`super::verify`] checks of a ledger, but for what only the
/// ledger has: its heads, its lists and its marker. The last line says where the export ends.
///
/// # Errors
/// When the lines cannot be read; what is wrong with one is in the report.
pub fn verify_export(lines: impl BufRead) -> Result<Report, std::io::Error> {
    let mut check = Check::default();
    let mut end: Option<Checkpoint> = None;
    for (number, line) in (1_u64..).zip(lines.split(b'\n')) {
        let line = line?;
        if end.is_some() {
            check.problem(None, None, format!("line {number} comes after the end"));
            continue;
        }
        match read(&line) {
            Ok(Line::Record(record)) => check.exported(*record),
            Ok(Line::End(checkpoint)) => end = Some(checkpoint),
            Err(why) => check.problem(None, None, format!("line {number}: {why}")),
        }
    }
    Ok(check.ended(end))
}

enum Line {
    Record(Box<Record>),
    End(Checkpoint),
}

impl Check {
    fn exported(&mut self, mut record: Record) {
        self.links(&record);
        for bytes in record.event.stored_mut() {
            match bytes {
                Stored::Gone { .. } | Stored::Segment { .. } => self.dropped += 1,
                Stored::Inline(bytes) if bytes.len() > crate::INLINE_BYTES_MAX => self.byte_strings += 1,
                Stored::Inline(_) | Stored::Private(_) => {}
            }
        }
    }

    fn ended(mut self, end: Option<Checkpoint>) -> Report {
        self.numbers();
        let Some(end) = end else {
            self.problem(None, None, "it has no end: lines are missing".to_owned());
            return self.report("");
        };
        self.identity(&end.ledger);
        let found = checkpoint_of(&end.ledger, self.last_seq, &self.heads);
        if found != end {
            let what = format!(
                "it ends at record {} with {}, its end says {} with {}",
                found.seq, found.digest, end.seq, end.digest
            );
            self.problem(None, None, what);
        }
        self.report(&end.ledger)
    }
}

fn read(line: &[u8]) -> Result<Line, String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some(end) = value.get("checkpoint") {
        let end: Checkpoint = serde_json::from_value(end.clone()).map_err(|error| error.to_string())?;
        let again = serde_json::json!({ "checkpoint": end }).to_string();
        return if again == text { Ok(Line::End(end)) } else { Err("its end is not as it was exported".to_owned()) };
    }
    let record = record_of(&value).map_err(|error| error.to_string())?;
    let again = export::line(&record).to_string();
    if again != text {
        return Err("it is not as it was exported".to_owned());
    }
    Ok(Line::Record(Box::new(record)))
}

fn record_of(line: &Value) -> Result<Record, LedgerError> {
    let lacks = |name: &str| LedgerError::damaged(format!("it has no {name}"));
    let number = |name: &str| line[name].as_u64().ok_or_else(|| lacks(name));
    let bytes = |name: &str, value: &Value| value.as_str().and_then(unhex).ok_or_else(|| lacks(name));
    let digest =
        |name: &str| -> Result<[u8; 32], LedgerError> { bytes(name, &line[name])?.try_into().map_err(|_| lacks(name)) };
    let kind = serde_json::from_value(line["stream"]["kind"].clone()).map_err(|_| lacks("stream"))?;
    let id = bytes("stream", &line["stream"]["id"])?.try_into().map_err(|_| lacks("stream"))?;
    let stream = StreamId { kind, id };
    let sealed = line["sealed"].as_str().and_then(|text| unhex(text.strip_prefix("hex:")?));
    let sealed = sealed.ok_or_else(|| lacks("sealed event"))?;
    let (seq, version) = (number("seq")?, number("version")?);
    let (own, previous) = (digest("digest")?, digest("previous")?);
    if record::digest(stream, version, &previous, &sealed) != own {
        return Err(LedgerError::damaged(format!("record {seq} does not match its digest {}", hex(&own))));
    }
    let mut event = unseal(&sealed, &[])?;
    let found = byte_strings(&line["event"]);
    for stored in event.stored_mut() {
        if let Stored::Gone { digest, .. } = stored
            && let Some(bytes) = found.get(digest)
        {
            *stored = Stored::Inline(bytes.clone());
        }
    }
    Ok(Record { seq, stream, version, event, digest: own, previous, sealed })
}

/// Every byte string in the event as it is shown, by its digest: the large ones are only there.
fn byte_strings(event: &Value) -> HashMap<[u8; 32], Vec<u8>> {
    let mut found = HashMap::new();
    let mut left = vec![event];
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => {
                let bytes = text.strip_prefix("hex:").and_then(unhex);
                found.extend(bytes.map(|bytes| (sha256(&bytes), bytes)));
            }
            Value::Array(items) => left.extend(items),
            Value::Object(members) => left.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}
