//! Sources of an archive's bytes, and errors that pass through `std::io`.

use std::io::{self, Read};

use forebay_core::error::{Error, Result};

use super::damaged;

/// Bytes with random access.
pub trait ReadAt: Send + Sync {
    /// Total number of bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset`. Reading beyond the end is an error.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
}

impl ReadAt for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let part = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(buf.len())?))
            .ok_or_else(|| damaged(format!("the archive ends before byte {offset}")))?;
        buf.copy_from_slice(part);
        Ok(())
    }
}

/// A part of a source, read from its start to its end.
pub(crate) struct Section<'a> {
    source: &'a dyn ReadAt,
    at: u64,
    end: u64,
}

impl<'a> Section<'a> {
    /// From `start` to the end of the source.
    pub(crate) fn from(source: &'a dyn ReadAt, start: u64) -> Self {
        Self { source, at: start, end: source.size() }
    }
}

impl Read for Section<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = (self.end.saturating_sub(self.at)).min(buf.len() as u64) as usize;
        if n > 0 {
            self.source.read_exact_at(&mut buf[..n], self.at).map_err(into_io)?;
            self.at += n as u64;
        }
        Ok(n)
    }
}

/// Wraps an error to pass it through `std::io`; [`from_io`] unwraps it.
pub fn into_io(error: Error) -> io::Error {
    io::Error::other(error)
}

/// The error that [`into_io`] wrapped; otherwise the decoder's error about its input.
pub fn from_io(error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(own) => own,
        // Decoders of an inner stream wrap the error of the stream a second time.
        Err(other) => match other.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(own) => own.clone(),
            None => match other.kind() {
                io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull => Error::from(other),
                _ => damaged(format!("the compressed data is damaged: {other}")),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::error::ErrorCode;

    use super::*;

    #[test]
    fn an_error_survives_its_way_through_io() {
        let error = Error::new(ErrorCode::Corrupt, "block 7").hint("look");
        assert_eq!(from_io(into_io(error.clone())), error);
        let foreign = from_io(io::Error::new(io::ErrorKind::InvalidData, "bad crc"));
        assert_eq!(foreign.code, ErrorCode::InvalidArgument);
        assert!(foreign.message.contains("bad crc"));
    }
}
