//! A batch request and the plan that splits it by owning target.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::name::{Bucket, NodeId, ObjectName};
use crate::placement;
use crate::state::ClusterState;

/// Most entries in one request.
pub const MAX_ENTRIES: usize = 1_000_000;

/// One thing asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchEntry {
    /// Index into [`BatchRequest::buckets`].
    pub bucket: u32,
    pub name: ObjectName,
}

/// The native batch request: entries are answered by their position in `entries`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRequest {
    pub buckets: Vec<Bucket>,
    pub entries: Vec<BatchEntry>,
    /// Whether answers must come in the order of `entries`, or as soon as each is ready.
    #[serde(default = "yes")]
    pub ordered: bool,
}

fn yes() -> bool {
    true
}

impl BatchRequest {
    /// The request for some of this one's entries, in the order given.
    pub fn subset(&self, indices: &[usize]) -> Self {
        Self {
            buckets: self.buckets.clone(),
            entries: indices.iter().map(|&i| self.entries[i].clone()).collect(),
            ordered: self.ordered,
        }
    }
}

/// Which target answers which entries, under one version of the cluster's state.
#[derive(Debug, Default)]
pub struct BatchPlan {
    /// Indices of entries by owner, ascending.
    pub by_owner: BTreeMap<NodeId, Vec<usize>>,
    /// Entries that have no owner now: dead target, unknown bucket.
    pub failed: Vec<(usize, Error)>,
}

/// Plans the entries listed in `wanted` (indices into the request).
pub fn plan(
    state: &ClusterState,
    request: &BatchRequest,
    wanted: impl IntoIterator<Item = usize>,
) -> BatchPlan {
    let buckets: Vec<_> = request.buckets.iter().map(|b| (b.uname(), state.bucket(b))).collect();
    let mut plan = BatchPlan::default();
    for index in wanted {
        let entry = &request.entries[index];
        let owner = match buckets.get(entry.bucket as usize) {
            Some((uname, Ok(info))) => {
                let name = entry.name.as_str();
                let digest = placement::object_digest(uname, name);
                placement::owner_by_digest(state, info, digest, name)
            }
            Some((_, Err(e))) => Err(e.clone()),
            None => Err(Error::invalid(format!("entry {index} names bucket {}", entry.bucket))),
        };
        match owner {
            Ok(node) => match plan.by_owner.get_mut(&node.id) {
                Some(list) => list.push(index),
                None => {
                    plan.by_owner.insert(node.id.clone(), vec![index]);
                }
            },
            Err(e) => plan.failed.push((index, e)),
        }
    }
    plan
}

/// The target with most entries: the one to assemble a v1 batch, as it pulls least.
pub fn assembler(plan: &BatchPlan) -> Option<&NodeId> {
    plan.by_owner.iter().max_by_key(|(_, list)| list.len()).map(|(id, _)| id)
}
