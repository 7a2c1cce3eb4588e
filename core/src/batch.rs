//! A batch request and the plan that splits it by owning target.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::name::{Bucket, NodeId, ObjectName};
use crate::placement;
use crate::size::{ByteRange, outside};
use crate::state::ClusterState;

/// Maximum entries in one request.
pub const MAX_ENTRIES: usize = 1_000_000;
/// Maximum buckets in one request.
pub const MAX_BUCKETS: usize = 4096;

/// One requested entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchEntry {
    /// Index into [`BatchRequest::buckets`].
    pub bucket: u32,
    pub name: ObjectName,
    /// A member of the shard `name`; empty for the object itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub archpath: String,
    /// Offset and length of a part (of the member, if one is named); no length is "to the end".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(u64, Option<u64>)>,
}

impl BatchEntry {
    /// The whole of one object.
    pub fn whole(bucket: u32, name: ObjectName) -> Self {
        Self { bucket, name, archpath: String::new(), range: None }
    }

    /// The requested bytes of content of `size` bytes. All of them must exist: a shorter answer
    /// would look complete.
    pub fn resolve(&self, size: u64) -> Result<ByteRange> {
        let Some((start, length)) = self.range else { return Ok(ByteRange::whole(size)) };
        let end = length.map_or(Some(size.max(start)), |n| start.checked_add(n));
        match end {
            Some(end) if end <= size => Ok(ByteRange { start, end }),
            _ => {
                let last = end.map_or(String::new(), |e| e.saturating_sub(1).to_string());
                Err(outside(size, &format!("{start}-{last}")))
            }
        }
    }
}

/// The native batch request: entries are answered by their position in `entries`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRequest {
    pub buckets: Vec<Bucket>,
    pub entries: Vec<BatchEntry>,
    /// Whether answers must come in the order of `entries`, or each as soon as it is ready.
    #[serde(default = "yes")]
    pub ordered: bool,
}

fn yes() -> bool {
    true
}

impl BatchRequest {
    /// Checks the size of the request.
    pub fn check_size(&self) -> Result<()> {
        if self.entries.len() > MAX_ENTRIES {
            return Err(Error::invalid(format!("a batch has at most {MAX_ENTRIES} entries")));
        }
        if self.buckets.len() > MAX_BUCKETS {
            return Err(Error::invalid(format!("a batch names at most {MAX_BUCKETS} buckets")));
        }
        Ok(())
    }

    /// A request for some of this request's entries, in the given order.
    pub fn subset(&self, indices: &[usize]) -> Self {
        Self {
            buckets: self.buckets.clone(),
            entries: indices.iter().map(|&i| self.entries[i].clone()).collect(),
            ordered: self.ordered,
        }
    }
}

/// The entries that each target answers, under one version of the cluster's state.
#[derive(Debug, Default)]
pub struct BatchPlan {
    /// Indices of entries by owner, ascending.
    pub by_owner: BTreeMap<NodeId, Vec<usize>>,
    /// Entries without an owner now: dead target, unknown bucket.
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

/// The target with most entries, which assembles a v1 batch because it fetches least from others.
pub fn assembler(plan: &BatchPlan) -> Option<&NodeId> {
    plan.by_owner.iter().max_by_key(|(_, list)| list.len()).map(|(id, _)| id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn entry(range: Option<(u64, Option<u64>)>) -> BatchEntry {
        BatchEntry { range, ..BatchEntry::whole(0, ObjectName::new("o").unwrap()) }
    }

    #[test]
    fn a_range_is_all_there_or_an_error() {
        let at = |range, size| entry(range).resolve(size).map(|r| (r.start, r.end));
        assert_eq!(at(None, 0), Ok((0, 0)));
        assert_eq!(at(Some((2, Some(3))), 5), Ok((2, 5)));
        assert_eq!(at(Some((2, None)), 5), Ok((2, 5)));
        assert_eq!(at(Some((5, None)), 5), Ok((5, 5)));
        for (start, length) in [(2, Some(4)), (6, None), (6, Some(0)), (1, Some(u64::MAX))] {
            let error = at(Some((start, length)), 5).unwrap_err();
            assert_eq!(error.code, ErrorCode::RangeNotSatisfiable, "{start} {length:?}");
        }
    }

    #[test]
    fn an_entry_of_a_client_that_knows_no_members_reads_as_a_whole_object() {
        let old = r#"{"bucket":3,"name":"a/b"}"#;
        let whole = BatchEntry::whole(3, ObjectName::new("a/b").unwrap());
        assert_eq!(serde_json::from_str::<BatchEntry>(old).unwrap(), whole);
        assert_eq!(serde_json::to_string(&whole).unwrap(), old);
        let part = BatchEntry { archpath: "m".into(), range: Some((1, None)), ..whole };
        let text = serde_json::to_string(&part).unwrap();
        assert_eq!(serde_json::from_str::<BatchEntry>(&text).unwrap(), part);
    }
}
