//! Listing of a target's own records of one bucket.

use serde::{Deserialize, Serialize};

use super::is_zero;
use crate::list_page::Detail;

/// Path at which a target lists its records: [`ListRequest`], answered by a page in the form of its
/// detail.
pub const LIST_PATH: &str = "/internal/v1/list";

/// `POST /internal/v1/list` on a target: its records of one bucket, in name order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListRequest {
    /// Id of the bucket: a recreated bucket of the same name has another id.
    pub bucket_id: u64,
    #[serde(default)]
    pub prefix: String,
    /// Names strictly greater than this.
    #[serde(default)]
    pub after: String,
    /// Names not greater than this, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    pub limit: usize,
    /// Whether the members of shards are listed after each shard.
    #[serde(default)]
    pub archive: bool,
    /// The encoding of the [`ListPage`](super::ListPage) in the answer.
    #[serde(default)]
    pub detail: Detail,
    /// Whether records on a disk that is not in use may be omitted; otherwise that is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_part: bool,
    /// Whether partly cached objects of a backend are listed too. They are not `present`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parts: bool,
    /// Version of the cluster's state by which the targets were chosen; 0 if no other target is
    /// asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chosen_by: u64,
}
