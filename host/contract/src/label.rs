//! Text from outside, made safe to show to an agent or a person.

use sha2::{Digest, Sha256};

use crate::field::Role;
use crate::key::Encoder;
use crate::limits::{LABEL_PARTS_MAX, SAFE_TEXT_BYTES_MAX};
use crate::operation::Operation;
use crate::resolve::Resolved;
use crate::value::hex;

/// The text itself if it is `[A-Za-z0-9._:@+-]{1,200}`, else `sha256:` and twelve hex digits.
pub fn safe_text(text: &str) -> String {
    let safe = |b: u8| b.is_ascii_alphanumeric() || b"._:@+-".contains(&b);
    if !text.is_empty() && text.len() <= SAFE_TEXT_BYTES_MAX && text.bytes().all(safe) {
        return text.to_owned();
    }
    let digest = hex(&Sha256::digest(text.as_bytes()));
    format!("sha256:{}", digest.get(..12).unwrap_or(&digest))
}

/// A short name of one effect: its action and key parts, as in `refund R-1001`.
pub fn label(operation: &Operation, resolved: &Resolved) -> String {
    let action = operation.action.as_deref().unwrap_or(&operation.name);
    let mut words = vec![action.to_owned()];
    words.extend(
        resolved.of_role(Role::Key).take(LABEL_PARTS_MAX).filter_map(|field| field.normal.as_deref()).map(safe_text),
    );
    if let Some((_, _, n)) = resolved.sequence {
        words.push(n.to_string());
    }
    words.join(" ")
}

/// A digest of the generated fields: two calls with one key and another digest were worded anew.
pub fn generated_digest(resolved: &Resolved) -> [u8; 32] {
    let mut encoder = Encoder::new("oncegate generated fields v1");
    for field in resolved.of_role(Role::Generated) {
        encoder.text(&field.name);
        encoder.text(&field.value.canonical());
    }
    encoder.digest()
}
