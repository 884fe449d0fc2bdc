//! The bound fields of an effect as salted hashes: they tell what differs after the bytes are gone.

use serde::{Deserialize, Serialize};

use crate::field::Role;
use crate::key::Encoder;
use crate::resolve::{Resolved, ResolvedField};

/// The bound fields of one effect, each by its own salted hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Random per effect, so that equal values of two effects do not show.
    pub salt: [u8; 16],
    /// Names and hashes, in declared order.
    pub fields: Vec<(String, [u8; 32])>,
}

/// The fingerprint of the bound fields.
pub fn fingerprint(resolved: &Resolved, salt: [u8; 16]) -> Fingerprint {
    let fields = resolved.of_role(Role::Bound).map(|field| (field.name.clone(), hash(field, &salt))).collect();
    Fingerprint { salt, fields }
}

impl Fingerprint {
    /// The names of bound fields that are changed, added or missing in other values.
    pub fn differing(&self, resolved: &Resolved) -> Vec<String> {
        let now = fingerprint(resolved, self.salt);
        let mut names = Vec::new();
        for (name, hash) in &now.fields {
            if !self.fields.iter().any(|(n, h)| n == name && h == hash) {
                names.push(name.clone());
            }
        }
        let missing = self.fields.iter().filter(|(name, _)| !now.fields.iter().any(|(n, _)| n == name));
        names.extend(missing.map(|(name, _)| name.clone()));
        names
    }
}

fn hash(field: &ResolvedField, salt: &[u8; 16]) -> [u8; 32] {
    let mut encoder = Encoder::new("oncegate bound field v1");
    encoder.bytes(salt);
    encoder.text(&field.name);
    match &field.normal {
        Some(normal) => encoder.text(normal),
        None => encoder.text(&field.value.canonical()),
    }
    encoder.digest()
}
