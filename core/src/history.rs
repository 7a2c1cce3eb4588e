//! Storage of older object versions: a bucket's history is a separate bucket in the store, whose
//! names contain object and version.

use std::collections::BTreeMap;

use crate::erasure::BUCKET;
use crate::error::{Error, ErrorCode, Result};
use crate::name::MAX_OBJECT_NAME;

/// Custom metadata: id of the version.
pub const VERSION: &str = "s3:version-id";
/// Custom metadata: the version is a delete marker.
pub const MARKER: &str = "s3:delete-marker";
/// Version of objects written before the bucket kept versions, or while it does not.
pub const NULL: &str = "null";

/// Set in the id of a bucket's history.
const HISTORY: u64 = 1 << 63;
/// Set in the id of a bucket's tombstones.
const TOMBSTONES: u64 = 1 << 62;
/// Separates an object's name from the sort key of its versions.
const SEPARATOR: char = '\u{1}';
/// Digits of the sort key.
const DIGITS: usize = 16;

/// Id of the history of a bucket.
pub fn id(bucket_id: u64) -> u64 {
    bucket_id | HISTORY
}

/// Id under which a target stores tombstones of a bucket while copies may exist elsewhere.
pub fn tombstones(bucket_id: u64) -> u64 {
    bucket_id | TOMBSTONES
}

/// Custom metadata of a tombstone: its name is that of an older version, in the bucket's history.
pub const OLDER: &str = "older";

/// Whether a tombstone with this custom metadata is that of an older version of an object.
pub fn is_of_older_version(custom: &BTreeMap<String, String>) -> bool {
    custom.contains_key(OLDER)
}

/// Whether this is the id of a history.
pub fn is_history(id: u64) -> bool {
    id == self::id(bucket_id(id))
}

/// Whether this is the id of tombstones.
pub fn is_tombstones(id: u64) -> bool {
    id & TOMBSTONES != 0
}

/// The bucket of this history, tombstone or slice id; the id itself if it is none of them.
pub fn bucket_id(id: u64) -> u64 {
    id & BUCKET
}

/// Id of a version made at this time (unix nanoseconds): later ones sort first.
pub fn version_at(now_ns: u64) -> String {
    format!("{:016x}", u64::MAX - now_ns)
}

/// Common prefix of the names of all versions of an object.
pub fn prefix(object: &str) -> String {
    format!("{object}{SEPARATOR}")
}

/// Name of a version in the history; the null version is sorted by its modification time.
pub fn name(object: &str, version: &str, mtime_ns: u64) -> String {
    let own = version.len() == DIGITS && version.bytes().all(|b| b.is_ascii_hexdigit());
    let order = if own { version.to_owned() } else { version_at(mtime_ns) };
    format!("{object}{SEPARATOR}{order}")
}

/// Splits a name in the history into object and sort key.
pub fn split(name: &str) -> Option<(&str, &str)> {
    let at = name.len().checked_sub(DIGITS)?;
    let (object, order) = (name.get(..at)?, name.get(at..)?);
    Some((object.strip_suffix(SEPARATOR)?, order))
}

/// Refuses a name that is too long for its versions.
pub fn check_name(object: &str) -> Result<()> {
    if object.len() + DIGITS + SEPARATOR.len_utf8() <= MAX_OBJECT_NAME {
        return Ok(());
    }
    let most = MAX_OBJECT_NAME - DIGITS - SEPARATOR.len_utf8();
    let text = format!("names in a bucket that keeps versions have at most {most} bytes");
    Err(Error::new(ErrorCode::InvalidName, text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_an_object_sorts_first() {
        let old = name("a/b", &version_at(1_000), 0);
        let new = name("a/b", &version_at(2_000), 0);
        let null = name("a/b", NULL, 1_500);
        assert!(new < null && null < old);
        assert_eq!(split(&old).unwrap(), ("a/b", version_at(1_000).as_str()));
        assert_eq!(split("short"), None);
    }

    #[test]
    fn a_history_is_of_its_bucket() {
        assert_eq!((bucket_id(id(7)), bucket_id(tombstones(7))), (7, 7));
        assert!(is_tombstones(tombstones(7)) && !is_tombstones(id(7)));
        assert!(is_history(id(7)) && !is_history(7) && !is_history(tombstones(7)));
        assert_ne!(id(7), 7);
        assert!(check_name(&"n".repeat(MAX_OBJECT_NAME - 17)).is_ok());
        assert!(check_name(&"n".repeat(MAX_OBJECT_NAME - 16)).is_err());
    }
}
