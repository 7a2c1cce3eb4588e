//! Names: provider, bucket, object, node; their rules and their text forms.

mod bucket;
mod object;
mod provider;

pub use self::bucket::{Bucket, MAX_BUCKET_NAME, Namespace};
pub use self::object::{MAX_OBJECT_NAME, ObjectName};
pub use self::provider::Provider;
use crate::error::{Error, Result};
pub use crate::node_id::NodeId;

/// Names up to this total length are joined without a heap allocation.
const JOINED: usize = 128;

/// Returns an error if a text of a request is longer than any name that it could match; `field` is
/// its name in the request.
pub fn check_length(field: &str, text: &str, limit: usize) -> Result<()> {
    if text.len() <= limit {
        return Ok(());
    }
    Err(Error::invalid(format!("{field} has {} bytes, the limit is {limit}", text.len())))
}

/// Calls `f` with the concatenated texts; short ones need no heap allocation.
pub(crate) fn joined<const N: usize, R>(parts: [&str; N], f: impl FnOnce(&[u8]) -> R) -> R {
    let mut room = [0; JOINED];
    let mut end = 0;
    for part in parts {
        let Some(to) = room.get_mut(end..end + part.len()) else {
            return f(parts.concat().as_bytes());
        };
        to.copy_from_slice(part.as_bytes());
        end += part.len();
    }
    f(&room[..end])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn texts_longer_than_a_name_are_refused_with_field_and_limit() {
        assert!(check_length("prefix", &"y".repeat(1024), MAX_OBJECT_NAME).is_ok());
        let e = check_length("prefix", &"y".repeat(70_000), MAX_OBJECT_NAME).unwrap_err();
        assert_eq!(e.message, "prefix has 70000 bytes, the limit is 1024");
    }
}
