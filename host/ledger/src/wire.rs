//! How byte arrays look in CBOR: as byte strings, not as lists of numbers.

/// A list of named digests.
pub(crate) mod named {
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_bytes::{ByteArray, Bytes};

    pub(crate) fn serialize<S: Serializer>(list: &[(String, [u8; 32])], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|(name, digest)| (name.as_str(), Bytes::new(digest))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, [u8; 32])>, D::Error> {
        let list = Vec::<(String, ByteArray<32>)>::deserialize(from)?;
        Ok(list.into_iter().map(|(name, digest)| (name, digest.into_array())).collect())
    }
}

/// A list of digests.
pub(crate) mod digests {
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_bytes::{ByteArray, Bytes};

    pub(crate) fn serialize<S: Serializer>(list: &[[u8; 32]], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|digest| Bytes::new(digest)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<[u8; 32]>, D::Error> {
        let list = Vec::<ByteArray<32>>::deserialize(from)?;
        Ok(list.into_iter().map(ByteArray::into_array).collect())
    }
}

/// A credential's name and version.
pub(crate) mod credential {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_bytes::{ByteArray, Bytes};

    pub(crate) fn serialize<S: Serializer>(value: &Option<(String, [u8; 8])>, to: S) -> Result<S::Ok, S::Error> {
        let value = value.as_ref().map(|(name, version)| (name.as_str(), Bytes::new(version)));
        value.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<(String, [u8; 8])>, D::Error> {
        let value = Option::<(String, ByteArray<8>)>::deserialize(from)?;
        Ok(value.map(|(name, version)| (name, version.into_array())))
    }
}

/// The lookups that resolved a key.
pub(crate) mod lookups {
    use serde::{Deserialize, Deserializer, Serializer};
    use serde_bytes::{ByteArray, Bytes};

    use crate::Stored;

    type Lookups = Vec<(String, [u8; 32], Stored)>;

    pub(crate) fn serialize<S: Serializer>(list: &[(String, [u8; 32], Stored)], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|(name, digest, bytes)| (name.as_str(), Bytes::new(digest), bytes)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Lookups, D::Error> {
        let list = Vec::<(String, ByteArray<32>, Stored)>::deserialize(from)?;
        Ok(list.into_iter().map(|(name, digest, bytes)| (name, digest.into_array(), bytes)).collect())
    }
}
