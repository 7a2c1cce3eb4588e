//! Multipart uploads: their state on a target, and gateways' requests to list them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bucket::BucketInfo;
use crate::error::{Error, Result};

/// Highest number of a part; parts are numbered from 1.
pub const MAX_PART: u32 = 10_000;

/// Key of the note of an internal upload: a shard that a job put aside. It ends with the job, and
/// with the process that the job runs in.
pub const ASIDE: &str = "forebay:aside";

/// A multipart upload in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Opaque; cannot be guessed.
    pub id: String,
    /// Name of the object.
    pub name: String,
    /// Start time, unix nanoseconds.
    #[serde(rename = "begun_ns")]
    pub started_ns: u64,
    /// Custom metadata of the future object; if absent, the existing metadata is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<BTreeMap<String, String>>,
    /// Whether the MD5 of each part is computed, and the object gets the ETag that S3 would give
    /// it.
    #[serde(default)]
    pub md5: bool,
    /// Notes of the front that started it; not used elsewhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
}

/// A complete part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub number: u32,
    /// Bytes.
    pub size: u64,
    /// MD5 in lower-case hexadecimal (its ETag in S3); empty if the upload does not compute it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub md5: String,
    /// When it was stored, unix nanoseconds.
    pub stored_ns: u64,
    /// Notes of the front that received it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
}

/// A part in a client's request to complete an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenPart {
    pub number: u32,
    /// Without quotes; not compared if empty.
    pub etag: String,
}

/// `POST /internal/v1/uploads`: the uploads of a bucket on one target, ordered by name and id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UploadsRequest {
    pub info: Arc<BucketInfo>,
    #[serde(default)]
    pub prefix: String,
    /// Only uploads after this name; of the same name, those after `after_id`, if it is given.
    #[serde(default)]
    pub after: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_id: Option<String>,
    /// Maximum rows of the answer.
    pub limit: usize,
}

/// The answer to [`UploadsRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UploadsPage {
    pub uploads: Vec<Upload>,
    /// Whether further uploads follow.
    pub more: bool,
}

/// Parses a client's part number: 1 to [`MAX_PART`].
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
