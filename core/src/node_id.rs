//! The id of a node, with its cached digest.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorCode, Result};
use crate::placement;

/// Id of a node: at least 8 letters, digits, `-`, `_`, starting with a letter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    text: Arc<str>,
    /// Placement needs it once for each node and object: hashing the text each time costs more than
    /// everything done with the digest.
    digest: u64,
}

impl NodeId {
    pub fn new(id: &str) -> Result<Self> {
        let ok = id.len() >= 8
            && id.starts_with(|c: char| c.is_ascii_alphabetic())
            && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if !ok {
            return Err(Error::new(ErrorCode::InvalidName, format!("invalid node id \"{id}\""))
                .hint("at least 8 letters, digits, '-' or '_', starting with a letter"));
        }
        Ok(Self::of(id.into()))
    }

    fn of(text: Arc<str>) -> Self {
        Self { digest: placement::digest(&text), text }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// [`placement::digest`] of the id.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeId").field(&self.text).finish()
    }
}

impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for NodeId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Arc::deserialize(from).map(Self::of)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_id_is_written_as_its_text_and_read_with_its_digest() {
        let id = NodeId::new("TGTaaaa1").unwrap();
        assert_eq!(id.digest(), placement::digest("TGTaaaa1"));
        let map = BTreeMap::from([(id.clone(), 1)]);
        let json = serde_json::to_string(&map).unwrap();
        assert_eq!(json, r#"{"TGTaaaa1":1}"#);
        assert_eq!(serde_json::from_str::<BTreeMap<NodeId, i32>>(&json).unwrap(), map);
        assert_eq!(
            (id.to_string(), format!("{id:?}")),
            ("TGTaaaa1".into(), "NodeId(\"TGTaaaa1\")".into())
        );
    }

    #[test]
    fn ids_sort_as_their_texts() {
        let id = |n: u32| NodeId::new(&format!("target-{n:04}")).unwrap();
        assert!((0..1_000).all(|n| id(n) < id(n + 1)));
    }
}
