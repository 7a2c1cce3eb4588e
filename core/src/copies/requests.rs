//! Requests between targets about the copies of one object, and of many.
//!
//! The first version of these messages has one JSON object for all requests about one object. So all of
//! them have the same names of fields, and a field that is missing is false.

use serde::{Deserialize, Serialize};

use super::Stamp;
use crate::erasure::Slice;
use crate::name::{Bucket, NodeId};

/// `POST /internal/v1/copy/look` and `…/peek`: asks for the [`CopyLook`](super::CopyLook) of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookRequest {
    pub bucket: Bucket,
    pub name: String,
    /// Objects on a disk that is not in use count as missing; otherwise that is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_part: bool,
    /// `name` is that of an older version, in the bucket's history.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub older: bool,
}

/// `POST /internal/v1/copy/send`: asks for a copy of an object to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendRequest {
    pub bucket: Bucket,
    pub name: String,
    /// The target that should get it.
    pub by: NodeId,
    /// The copy of the receiver is damaged, so it accepts one that is not newer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
}

/// `POST /internal/v1/copy/send-versions`: asks for all older versions of an object to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendVersionsRequest {
    pub bucket: Bucket,
    pub name: String,
    /// The target that should get them.
    pub by: NodeId,
}

/// `POST /internal/v1/copy/remove`: states of an object up to a stamp are obsolete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveRequest {
    pub bucket: Bucket,
    pub name: String,
    #[serde(default)]
    pub stamp: Stamp,
    /// The target that changes the object at this moment; none if the change is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<NodeId>,
    #[serde(flatten)]
    pub reason: Reason,
    /// `name` is that of an older version, in the bucket's history.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub older: bool,
}

/// Why states of an object are obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ReasonFlags", into = "ReasonFlags")]
pub enum Reason {
    /// The object was deleted, by a removal with this stamp.
    Deleted,
    /// They were superseded by a copy with this stamp, which may be sent here too.
    Superseded,
    /// All targets that should have the state with this stamp have it.
    Replaced,
    /// The write of the state with exactly this stamp was never acknowledged.
    Undone,
}

/// [`Reason`] in JSON.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct ReasonFlags {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    written: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replaced: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    undone: bool,
}

impl From<ReasonFlags> for Reason {
    fn from(flags: ReasonFlags) -> Self {
        match flags {
            ReasonFlags { undone: true, .. } => Self::Undone,
            ReasonFlags { replaced: true, .. } => Self::Replaced,
            ReasonFlags { written: true, .. } => Self::Superseded,
            _ => Self::Deleted,
        }
    }
}

impl From<Reason> for ReasonFlags {
    fn from(reason: Reason) -> Self {
        Self {
            written: reason == Reason::Superseded,
            replaced: reason == Reason::Replaced,
            undone: reason == Reason::Undone,
        }
    }
}

/// `POST /internal/v1/copy/ensure`: asks the owner of an object to bring all its forms to their places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnsureRequest {
    pub bucket: Bucket,
    pub name: String,
    /// The newest state that the sender knows.
    #[serde(default)]
    pub stamp: Stamp,
}

/// `POST /internal/v1/copy/slice`: reads a slice of the state with this stamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceRequest {
    pub bucket: Bucket,
    pub name: String,
    #[serde(default)]
    pub stamp: Stamp,
    pub slice: Slice,
}

/// `POST /internal/v1/copy/survey`: asks a target for its [`CopyLook`](super::CopyLook)s of these
/// objects, in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SurveyRequest {
    pub bucket: Bucket,
    pub names: Vec<String>,
}
