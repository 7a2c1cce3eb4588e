//! The section of the nodes' public keys in the cluster's state.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::Role;
use crate::error::{Error, ErrorCode, Result};
use crate::name::NodeId;
use crate::sign::PublicKey;

/// Version of the section that this program writes.
const SECTION_VERSION: u32 = 1;
/// How long after the change proofs by the cluster's secret still count, seconds: nodes learn of the
/// change one after the other.
const CHANGE_S: u64 = 60;

/// The public keys of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeKeys {
    /// Version of the section; 0: not in use.
    #[serde(deserialize_with = "supported_version")]
    pub version: u32,
    /// Unix seconds since when all members have keys, and prove with them who they are; 0: some have
    /// none yet.
    pub since_s: u64,
    pub keys: BTreeMap<NodeId, NodeKeyRecord>,
}

/// A section without keys.
pub static NO_NODE_KEYS: NodeKeys = NodeKeys { version: 0, since_s: 0, keys: BTreeMap::new() };

/// The key of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeKeyRecord {
    pub role: Role,
    pub key: PublicKey,
}

impl NodeKeys {
    /// Whether no command has changed the section.
    pub fn is_untouched(&self) -> bool {
        self.version == 0
    }

    /// Whether all members prove with their keys who they are.
    pub fn are_required(&self) -> bool {
        self.since_s > 0
    }

    pub fn get(&self, id: &str) -> Option<&NodeKeyRecord> {
        self.keys.get(&NodeId::new(id).ok()?)
    }

    /// Whether a proof by the cluster's secret counts that was signed at `signed_s`, unix seconds.
    pub fn take_secret(&self, signed_s: u64) -> bool {
        !self.are_required() || signed_s <= self.since_s + CHANGE_S
    }

    pub(super) fn record(&mut self, id: NodeId, record: NodeKeyRecord) {
        self.version = SECTION_VERSION;
        self.keys.insert(id, record);
    }
}

/// Refuses a section of a later version.
fn supported_version<'de, D: Deserializer<'de>>(input: D) -> Result<u32, D::Error> {
    match u32::deserialize(input)? {
        version @ ..=SECTION_VERSION => Ok(version),
        version => Err(D::Error::custom(format!(
            "keys of nodes of version {version}; this program reads {SECTION_VERSION}"
        ))),
    }
}

/// Refuses the key of a node whose process is alive with another one, and a node without a key where
/// all others have one. `lives`: another process of the node may still act.
pub fn check_key(keys: &NodeKeys, id: &NodeId, key: Option<&PublicKey>, lives: bool) -> Result<()> {
    let Some(key) = key else {
        if !keys.are_required() {
            return Ok(());
        }
        let text = format!("{id} has no key of its own, as all nodes of this cluster have");
        return Err(Error::new(ErrorCode::Unsupported, text)
            .hint("start it with the version of forebay that the other nodes have"));
    };
    key.check()?;
    if lives && keys.get(id.as_str()).is_some_and(|known| known.key != *key) {
        let text = format!("{id} is alive with another key: this one is not accepted");
        return Err(Error::new(ErrorCode::Conflict, text).hint(
            "if its folder was lost, stop it, and start it again when it counts as down; \
             otherwise somebody else uses its id",
        ));
    }
    Ok(())
}
