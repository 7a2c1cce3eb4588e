//! Requests to a target about a bucket's backend: the bucket's existence there, its listing, and
//! the writes to it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bucket::BucketInfo;
use crate::list_page::Detail;
use crate::name::Bucket;
use crate::placement;
use crate::state::{ClusterState, Node};

/// Path at which a target lists a backend: [`BackendListRequest`], answered as
/// [`LIST_PATH`](super::LIST_PATH) is. An empty page with `more` set means that the listing is
/// still in progress.
pub const BACKEND_LIST_PATH: &str = "/internal/v1/backend/list";

/// `POST /internal/v1/backend/head`: asks whether this bucket exists at its backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendHeadRequest {
    pub info: Arc<BucketInfo>,
    /// Checks only whether this target may call the endpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub endpoint_only: bool,
}

/// `POST /internal/v1/backend/list` on a target: lists one bucket at its backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendListRequest {
    pub info: Arc<BucketInfo>,
    #[serde(default)]
    pub prefix: String,
    /// Names strictly greater than this.
    #[serde(default)]
    pub after: String,
    pub limit: usize,
    /// All pages will be requested in order: they may come from one listing.
    pub whole: bool,
    /// That listing is continued to its end, however slowly it is read.
    pub to_the_end: bool,
    /// Accepts a listing that was taken at this time or later; in unix nanoseconds.
    pub since_ns: u64,
    /// The encoding of the [`ListPage`](super::ListPage) in the answer.
    pub detail: Detail,
}

/// The targets that may list a bucket's backend; the first one caches its listings.
pub fn listers<'a>(state: &'a ClusterState, bucket: &Bucket) -> Vec<&'a Node> {
    let digest = placement::digest(&bucket.uname());
    let first = placement::highest(state.alive_targets(), digest);
    let others = state.alive_targets().filter(|node| first.is_none_or(|f| f.id != node.id));
    first.into_iter().chain(others).collect()
}

/// `POST /internal/v1/backend/changes`: the writes to a bucket's backend through this target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendChangesRequest {
    pub bucket_id: u64,
    /// Position from which changes are returned; if absent, only the current position is.
    #[serde(default)]
    pub since: Option<JournalMark>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendChanges {
    pub mark: JournalMark,
    /// In order; `None`: the journal no longer has all of them.
    pub changes: Option<Vec<Change>>,
}

/// A position in a target's journal of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalMark {
    pub journal: u64,
    pub at: u64,
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub name: String,
    pub now: Changed,
}

/// The content at the backend after a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    There {
        size: u64,
        version: String,
        etag: String,
        mtime_ns: u64,
    },
    Gone,
    /// The write failed; the content is unknown.
    Unknown,
}
