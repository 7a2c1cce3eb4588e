//! Format of log entries and snapshots in the file: a checksum, then JSON.

use forebay_core::checksum::crc32c;
use forebay_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Format version of the file. 1 was a log of one gateway's commands; 2 is a Raft log with its
/// vote.
pub(crate) const FORMAT: u64 = 2;
/// Format version of a file with commands or a state that contain users: programs that know only
/// [`FORMAT`] would drop them, and refuse the file.
pub(crate) const FORMAT_WITH_USERS: u64 = 3;

/// CRC-32C of the JSON, little-endian, then the JSON.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(value)
        .map_err(|e| Error::internal(format!("metadata does not serialize: {e}")))?;
    let mut record = Vec::with_capacity(json.len() + 4);
    record.extend_from_slice(&crc32c(&json).to_le_bytes());
    record.extend_from_slice(&json);
    Ok(record)
}

/// Reads what [`encode`] wrote; `what` names the record in the error.
pub(crate) fn decode<T: DeserializeOwned>(record: &[u8], what: &str) -> Result<T> {
    let (sum, json) = record
        .split_first_chunk::<4>()
        .ok_or_else(|| damaged(format!("{what} is cut short at {} bytes", record.len())))?;
    if crc32c(json) != u32::from_le_bytes(*sum) {
        return Err(damaged(format!("{what} does not match its checksum")));
    }
    serde_json::from_slice(json).map_err(|e| damaged(format!("{what} is unreadable: {e}")))
}

/// The error for a damaged file.
pub(crate) fn damaged(what: impl std::fmt::Display) -> Error {
    Error::internal(format!("the cluster's metadata is damaged: {what}"))
        .hint("move meta.redb away; the other gateways have it too, else `forebay cluster restore` begins one from a backup")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_is_noticed() {
        let good = encode(&vec!["a", "b"]).unwrap();
        assert_eq!(decode::<Vec<String>>(&good, "entry 1").unwrap(), ["a", "b"]);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let e = decode::<Vec<String>>(&bad, "entry 1").unwrap_err();
            assert!(e.message.contains("entry 1"), "{e}");
        }
        assert!(decode::<Vec<String>>(&good[..3], "entry 1").is_err());
    }
}
