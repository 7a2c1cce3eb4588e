//! Uploads in parts: what a target knows of them, and how gateways ask for a list of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bucket::BucketInfo;
use crate::error::{Error, Result};

/// Highest number of a part; parts are numbered from 1.
pub const MAX_PART: u32 = 10_000;

/// A note of uploads that no client began: shards that a job put aside. They end with the job, and
/// with the process that it runs in.
pub const ASIDE: &str = "forebay:aside";

/// An object that is being uploaded in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Opaque; nobody can guess it.
    pub id: String,
    /// Name of the object.
    pub name: String,
    /// When it was begun, unix nanoseconds.
    #[serde(rename = "begun_ns")]
    pub started_ns: u64,
    /// Custom metadata that the object will have; what is there is kept when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<BTreeMap<String, String>>,
    /// MD5 is computed of each part, and the object gets the ETag that S3 gives it.
    #[serde(default)]
    pub md5: bool,
    /// What the front that began it wants to know later; nobody else looks at it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
}

/// A part that is there in full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub number: u32,
    /// Bytes.
    pub size: u64,
    /// MD5 in lower-case hexadecimal (its ETag in S3); empty when the upload asks for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub md5: String,
    /// When it was stored, unix nanoseconds.
    pub stored_ns: u64,
    /// What the front that took it wants to know later.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
}

/// A part that a client names to complete an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenPart {
    pub number: u32,
    /// Without quotes; not compared when empty.
    pub etag: String,
}

/// `POST /internal/v1/uploads`: the uploads of a bucket that one target has, ordered by name and id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UploadsRequest {
    pub info: Arc<BucketInfo>,
    #[serde(default)]
    pub prefix: String,
    /// Only those after this name; of this very name those after `after_id`, if it is given.
    #[serde(default)]
    pub after: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_id: Option<String>,
    /// Most rows of the answer.
    pub limit: usize,
}

/// The answer to [`UploadsRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UploadsPage {
    pub uploads: Vec<Upload>,
    /// Whether others follow.
    pub more: bool,
}

/// The number of a part, as a client wrote it: 1 to [`MAX_PART`].
pub fn part_number(text: &str) -> Result<u32> {
    match text.parse() {
        Ok(number) if (1..=MAX_PART).contains(&number) => Ok(number),
        _ => Err(Error::invalid(format!("invalid part number \"{text}\""))
            .hint(format!("parts are numbered from 1 to {MAX_PART}"))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_numbered_from_one() {
        assert_eq!(part_number("1").unwrap(), 1);
        assert_eq!(part_number("10000").unwrap(), MAX_PART);
        for wrong in ["", "0", "-1", "10001", "1.0", "one", "99999999999999999999"] {
            assert_eq!(part_number(wrong).unwrap_err().code.status(), 400, "{wrong}");
        }
    }
}
