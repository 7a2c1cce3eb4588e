//! The length of keys that the index takes.

use std::ops::Bound;

use forebay_core::{Error, ErrorCode, Result};

/// Longest key in bytes: the library panics on longer ones, in look-ups and scans too.
const MAX_KEY_BYTES: usize = u16::MAX as usize;

/// Rejects a key that the library cannot hold, before the library panics on it.
pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY_BYTES {
        return Ok(());
    }
    let text = format!("a key of {} bytes: an index takes at most {MAX_KEY_BYTES}", key.len());
    Err(Error::new(ErrorCode::InvalidName, text))
}

/// The same position among the possible keys: a bound longer than [`MAX_KEY_BYTES`] is followed by
/// the keys that are greater than its first bytes that the library takes.
pub(super) fn within_key_limit(start: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match start {
        Bound::Included(mut key) | Bound::Excluded(mut key) if key.len() > MAX_KEY_BYTES => {
            key.truncate(MAX_KEY_BYTES);
            Bound::Excluded(key)
        }
        start => start,
    }
}
