//! Resumes an entry whose source is lost while the entry is being sent.

use bytes::Bytes;
use forebay_core::checksum::{ChecksumKind, Hasher};
use forebay_core::{Error, ErrorCode, Result};

/// The sent part of an entry. When the entry is requested again it may have been replaced, so the
/// repeated bytes are compared with the sent ones.
pub(super) struct Sent {
    total: u64,
    bytes: u64,
    sum: Hasher,
    again: Option<Again>,
}

struct Again {
    /// Sent bytes that were not received again yet.
    left: u64,
    sum: Hasher,
}

impl Sent {
    /// The state of an entry of `total` bytes before anything is sent.
    pub(super) fn new(total: u64) -> Self {
        Self { total, bytes: 0, sum: hasher(), again: None }
    }

    /// From now on the entry is received again from its start.
    pub(super) fn restart(&mut self) {
        self.again = Some(Again { left: self.bytes, sum: hasher() });
    }

    /// The part of the next bytes that is to be sent; `more` follow. An error if their content
    /// differs from the sent bytes.
    pub(super) fn take(
        &mut self,
        mut bytes: Bytes,
        total: u64,
        more: bool,
        name: &str,
    ) -> Result<Bytes> {
        if total != self.total {
            return Err(changed(name));
        }
        if let Some(again) = &mut self.again {
            let seen = bytes.split_to(bytes.len().min(again.left as usize));
            again.left -= seen.len() as u64;
            again.sum.update(&seen);
            if again.left > 0 {
                return Ok(Bytes::new());
            }
            if again.sum.clone().finish() != self.sum.clone().finish() {
                return Err(changed(name));
            }
            self.again = None;
        }
        // Most entries consist of one chunk, which is never compared.
        if more {
            self.sum.update(&bytes);
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes)
    }
}

fn hasher() -> Hasher {
    ChecksumKind::Xxhash2.hasher()
}

fn changed(name: &str) -> Error {
    Error::new(ErrorCode::ObjectChanged, format!("{name} was replaced while it was read"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn take(sent: &mut Sent, bytes: &'static str, more: bool) -> Result<Bytes> {
        sent.take(Bytes::from_static(bytes.as_bytes()), 10, more, "x")
    }

    #[test]
    fn what_went_out_does_not_go_out_again() {
        let mut sent = Sent::new(10);
        assert_eq!(take(&mut sent, "0123", true).unwrap(), "0123");
        sent.restart();
        assert_eq!(take(&mut sent, "01", true).unwrap(), "");
        sent.restart();
        assert_eq!(take(&mut sent, "012", true).unwrap(), "");
        assert_eq!(take(&mut sent, "345", true).unwrap(), "45");
        sent.restart();
        assert_eq!(take(&mut sent, "0123456789", false).unwrap(), "6789");
    }

    #[test]
    fn a_beginning_of_another_content_is_an_error() {
        let mut sent = Sent::new(10);
        take(&mut sent, "0123", true).unwrap();
        sent.restart();
        assert_eq!(take(&mut sent, "01x3", true).unwrap_err().code, ErrorCode::ObjectChanged);
        let mut sent = Sent::new(10);
        take(&mut sent, "0123", true).unwrap();
        sent.restart();
        let other = sent.take("012345".into(), 6, false, "x").unwrap_err();
        assert_eq!(other.code, ErrorCode::ObjectChanged, "another size");
    }
}
