//! A ledger as JSON lines, one record each, for people and other programs.

use std::io::Write;

use ciborium::Value as Cbor;
use serde_json::{Value, json};

use crate::verify::{Heads, checkpoint_of};
use crate::{Ledger, LedgerError, PAGE_MAX, Record, Stored, hex};

/// Why an export stopped.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The ledger could not be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The lines could not be written.
    #[error("the export could not be written: {0}")]
    Write(#[from] std::io::Error),
}

/// Writes every record from `from_seq` on as one line of JSON, with large bytes inside, and a last line
/// with the checkpoint over them. Byte strings are `"hex:…"`. Returns how many records.
/// [`crate::verify::verify_export`] checks a whole export, without the ledger.
///
/// # Errors
/// The first record that cannot be read, or line that cannot be written, ends it.
pub async fn export(ledger: &dyn Ledger, from_seq: u64, to: &mut (dyn Write + Send)) -> Result<u64, ExportError> {
    let mut count = 0;
    let mut from = from_seq;
    let mut heads = Heads::new();
    loop {
        let page = ledger.scan(from, PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        heads.extend(page.iter().map(|record| (record.stream, (record.version, record.digest))));
        for record in page {
            let line = line(&with_bytes(ledger, record).await?);
            writeln!(to, "{line}")?;
            count += 1;
        }
    }
    let end = checkpoint_of(&hex(&ledger.identity().id), from - 1, &heads);
    writeln!(to, "{}", json!({ "checkpoint": end }))?;
    to.flush()?;
    Ok(count)
}

async fn with_bytes(ledger: &dyn Ledger, mut record: Record) -> Result<Record, LedgerError> {
    for bytes in record.event.stored_mut() {
        if matches!(bytes, Stored::Segment { .. }) {
            *bytes = Stored::Inline(ledger.load(bytes).await?);
        }
    }
    Ok(record)
}

/// One record as JSON.
pub fn line(record: &Record) -> Value {
    let event = Cbor::serialized(&record.event).map(to_json).unwrap_or(Value::Null);
    json!({
        "seq": record.seq,
        "stream": { "kind": record.stream.kind, "id": hex(&record.stream.id) },
        "version": record.version,
        "event": event,
        "digest": hex(&record.digest),
        "previous": hex(&record.previous),
        "sealed": format!("hex:{}", hex(&record.sealed)),
    })
}

fn to_json(value: Cbor) -> Value {
    match value {
        Cbor::Bytes(bytes) => Value::String(format!("hex:{}", hex(&bytes))),
        Cbor::Text(text) => Value::String(text),
        Cbor::Bool(value) => Value::Bool(value),
        Cbor::Integer(number) => {
            let number = i128::from(number);
            u64::try_from(number).map(Value::from).or(i64::try_from(number).map(Value::from)).unwrap_or(Value::Null)
        }
        Cbor::Float(number) => Value::from(number),
        Cbor::Array(items) => Value::Array(items.into_iter().map(to_json).collect()),
        Cbor::Map(pairs) => {
            let named = pairs.into_iter().filter_map(|(key, value)| Some((key.into_text().ok()?, to_json(value))));
            Value::Object(named.collect())
        }
        _ => Value::Null,
    }
}
