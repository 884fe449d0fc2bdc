//! A client's own idempotency key, as a cross-check: it is part of no effect's identity.
//!
//! What an effect is follows from what it is about. A client that sends a key says only that this is the
//! call that it made before. If it is another effect, client and tool disagree about what is repeated, and
//! neither a second effect nor the first one's receipt would be right: the call is refused.

use oncegate_ledger::{Event, Record, StreamId};

/// Characters of a key: what clients and providers use is a UUID or a short text.
pub const CLIENT_KEY_CHARS_MAX: usize = 255;

/// A key that can be used. Only its digest is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientKey(String);

impl ClientKey {
    /// Takes a client's text.
    ///
    /// # Errors
    /// What is wrong with it: length or characters.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || text.len() > CLIENT_KEY_CHARS_MAX || !plain {
            return Err(format!(
                "An idempotency key has 1 to {CLIENT_KEY_CHARS_MAX} visible ASCII characters and no spaces"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// The key of one call, and what tells the call from others.
pub(crate) struct Used {
    pub(crate) stream: StreamId,
    /// Digest of tool, arguments and facts.
    pub(crate) call: [u8; 32],
}

/// What a key's history says of an effect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// It was used for this effect.
    Same,
    /// It may be used for it, and then was.
    New,
    /// It was used for something else.
    Other,
}

/// Reads the history of a key. What is older than the replay window counts no more. A call of several
/// effects uses one key for all of them.
pub(crate) fn says(records: &[Record], effect: [u8; 32], call: Option<[u8; 32]>, since: u64) -> Says {
    let uses = records.iter().filter_map(|record| match &record.event {
        Event::ClientKeyUsed { effect, call, at } if *at >= since => Some((*effect, *call)),
        _ => None,
    });
    let uses: Vec<_> = uses.collect();
    if uses.iter().any(|(known, _)| *known == effect) {
        return Says::Same;
    }
    let same_call = call.is_some_and(|call| uses.iter().any(|(_, known)| *known == call));
    if uses.is_empty() || same_call { Says::New } else { Says::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(uses: &[(u8, u8, u64)]) -> Vec<Record> {
        let record = |(version, (effect, call, at)): (u64, &(u8, u8, u64))| Record {
            seq: version,
            stream: StreamId::client_key("acme", "k"),
            version,
            event: Event::ClientKeyUsed { effect: [*effect; 32], call: [*call; 32], at: *at },
            digest: [0; 32],
            previous: [0; 32],
            sealed: Vec::new(),
        };
        (1..).zip(uses).map(record).collect()
    }

    #[test]
    fn a_key_is_of_one_call() {
        let used = history(&[(1, 9, 100)]);
        assert_eq!(says(&[], [1; 32], None, 0), Says::New);
        assert_eq!(says(&used, [1; 32], None, 0), Says::Same);
        assert_eq!(says(&used, [2; 32], None, 0), Says::Other);
        assert_eq!(says(&used, [2; 32], Some([9; 32]), 0), Says::New, "another effect of the same call");
        assert_eq!(says(&used, [2; 32], Some([8; 32]), 0), Says::Other);
        assert_eq!(says(&used, [2; 32], None, 101), Says::New, "long ago");
    }

    #[test]
    fn a_key_is_short_and_plain() {
        assert!(ClientKey::parse("0b9e4d62-8f0c-4b5a-9c77-1d3f0a6f2f10").is_ok());
        assert!(ClientKey::parse(&"k".repeat(CLIENT_KEY_CHARS_MAX)).is_ok());
        for wrong in ["", "a b", "a\n", "é", &"k".repeat(CLIENT_KEY_CHARS_MAX + 1)] {
            assert!(ClientKey::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
