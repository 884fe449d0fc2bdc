//! The identity of an effect: its key, the recipe it was made by, and the key sent downstream.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::FieldError;
use crate::field::{Currency, Field, Role, Source};
use crate::operation::{EffectClass, FormerRecipe, Operation, SequenceScope};
use crate::resolve::{Resolved, Sources, resolve};
use crate::value::hex;

/// Canonical encoding: every item is its length (eight bytes, little end first) and its bytes, so no
/// two different lists of items are one text. The first item names kind and version.
pub(crate) struct Encoder(Sha256);

impl Encoder {
    pub(crate) fn new(version: &str) -> Self {
        let mut encoder = Self(Sha256::new());
        encoder.text(version);
        encoder
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub(crate) fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// The identity of the thing that must happen at most once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EffectKey(pub [u8; 32]);

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EffectKey({self})")
    }
}

/// Whose effect it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The account at the provider.
    pub account: &'a str,
    /// The owner of the action: the contract's name under its signer or lineage.
    pub owner: &'a str,
}

/// The effect key.
///
/// # Errors
/// [`FieldError::Invalid`] when the operation has no effect, or a key part is not resolved.
pub fn effect_key(
    operation: &Operation,
    owner: &Owner<'_>,
    resolved: &Resolved,
    epoch: u32,
) -> Result<EffectKey, FieldError> {
    let action = match (&operation.action, operation.effect) {
        (Some(action), EffectClass::Keyed) => action,
        _ => {
            return Err(FieldError::invalid(&operation.name, "an operation without an effect has no effect key"));
        }
    };
    let mut parts = Vec::new();
    for field in operation.fields.iter().filter(|f| f.role == Role::Key) {
        let normal = resolved.field(&field.name).and_then(|f| f.normal.as_deref());
        let normal = normal.ok_or_else(|| FieldError::invalid(&field.name, "the key part is not resolved"))?;
        parts.push((field.name.as_str(), normal));
    }
    match (operation.repeat, &resolved.sequence) {
        (None, None) => {}
        (Some(scope), Some((given, _, _))) if scope == *given => {}
        _ => {
            return Err(FieldError::invalid("sequence", "the sequence is not resolved"));
        }
    }
    let sequence = resolved.sequence.as_ref().map(|(scope, id, n)| (*scope, id.as_str(), *n));
    Ok(EffectKey(encode_key(owner, action, &parts, sequence, epoch)))
}

/// The encoding of version 1, fixed by `tests/vectors/key.json`.
fn encode_key(
    owner: &Owner<'_>,
    action: &str,
    parts: &[(&str, &str)],
    sequence: Option<(SequenceScope, &str, u64)>,
    epoch: u32,
) -> [u8; 32] {
    let mut encoder = Encoder::new("oncegate effect key v1");
    encoder.text(owner.tenant);
    encoder.text(owner.account);
    encoder.text(owner.owner);
    encoder.text(action);
    encoder.number(parts.len() as u64);
    for (name, value) in parts {
        encoder.text(name);
        encoder.text(value);
    }
    match sequence {
        None => encoder.number(0),
        Some((scope, id, n)) => {
            encoder.number(1);
            encoder.text(scope.as_str());
            encoder.text(id);
            encoder.number(n);
        }
    }
    encoder.number(u64::from(epoch));
    encoder.digest()
}

/// The digest of how an operation makes its key: action, part names, order, types, sources,
/// normalisers and sequence. Another recipe could give one thing two keys.
pub fn recipe(operation: &Operation) -> [u8; 32] {
    let parts: Vec<_> = operation.fields.iter().filter(|f| f.role == Role::Key).collect();
    encode_recipe(operation.action.as_deref().unwrap_or_default(), &parts, operation.repeat)
}

/// The digests of the earlier recipes that the contract lists under `was`.
pub fn former_recipes(operation: &Operation) -> Vec<[u8; 32]> {
    let digest =
        |former: &FormerRecipe| encode_recipe(&former.action, &former.fields.iter().collect::<Vec<_>>(), former.repeat);
    operation.was.iter().map(digest).collect()
}

/// The same call as the earlier recipes under `was` resolve it, each with the operation of then.
///
/// # Errors
/// As [`crate::resolve`]: an earlier key that cannot be made is not the same as one without a row.
pub fn formers(operation: &Operation, sources: &Sources<'_>) -> Result<Vec<(Operation, Resolved)>, FieldError> {
    let resolved = |former: &FormerRecipe| {
        let earlier = Operation {
            action: Some(former.action.clone()),
            fields: former.fields.clone(),
            repeat: former.repeat,
            ..operation.clone()
        };
        let declared = sources.given.iter().filter(|(name, _)| earlier.field(name).is_some());
        let given: Vec<_> = declared.cloned().collect();
        let resolved = resolve(&earlier, &Sources { given: &given, ..*sources })?;
        Ok((earlier, resolved))
    };
    operation.was.iter().map(resolved).collect()
}

/// The keys that the earlier recipes under `was` give to the same call, at every one of which a row
/// may already answer.
///
/// # Errors
/// As [`formers`].
pub fn former_keys(
    operation: &Operation,
    owner: &Owner<'_>,
    sources: &Sources<'_>,
    epoch: u32,
) -> Result<Vec<EffectKey>, FieldError> {
    let earlier = formers(operation, sources)?;
    earlier.iter().map(|(operation, resolved)| effect_key(operation, owner, resolved, epoch)).collect()
}

fn encode_recipe(action: &str, parts: &[&Field], repeat: Option<SequenceScope>) -> [u8; 32] {
    let mut encoder = Encoder::new("oncegate recipe v1");
    encoder.text(action);
    encoder.number(parts.len() as u64);
    for part in parts {
        encoder.text(&part.name);
        encoder.text(part.kind.as_str());
        encoder.text(&part.source.text());
        match &part.source {
            Source::Lookup { value, .. } => encoder.text(&value.to_string()),
            _ => encoder.text(""),
        }
        encoder.number(part.normalize.len() as u64);
        for normalizer in &part.normalize {
            encoder.text(normalizer.name());
        }
        encoder.text(&match &part.currency {
            None => String::new(),
            Some(Currency::Code(code)) => code.clone(),
            Some(Currency::Field(name)) => format!("field:{name}"),
        });
        encoder.text(if part.pin { "trigger" } else { "" });
    }
    encoder.text(repeat.map_or("", SequenceScope::as_str));
    encoder.digest()
}

/// The key that the provider sees: 36 characters in the form of a UUID, which every provider's
/// length and alphabet allows. It follows from effect key and generation and from nothing else.
pub fn downstream_key(key: &EffectKey, generation: u32) -> String {
    let mut encoder = Encoder::new("oncegate downstream key v1");
    encoder.bytes(&key.0);
    encoder.number(u64::from(generation));
    let digest = encoder.digest();
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(digest) {
        *to = from;
    }
    uuid::Builder::from_custom_bytes(bytes).into_uuid().hyphenated().to_string()
}
