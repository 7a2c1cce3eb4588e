//! Counts the bytes of a chunked body.

use std::io;

/// Where in the encoding the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPart {
    Size,
    Extension,
    Data,
    /// The line end after data.
    DataEnd,
    /// In a trailer; `true` at the start of a line.
    Trailer(bool),
    End,
}

/// A chunked body that is being read.
#[derive(Debug)]
pub(crate) struct Chunks {
    part: ChunkPart,
    /// Bytes of the current chunk that have not been read.
    left: u64,
    /// Bytes of all chunks so far.
    pub(crate) bytes: u64,
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self { part: ChunkPart::Size, left: 0, bytes: 0 }
    }

    /// Counts the next bytes of the connection. Returns whether the body is complete.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> io::Result<bool> {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.part == ChunkPart::Data {
                let n = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                (self.left, self.bytes) = (self.left - n as u64, self.bytes + n as u64);
                bytes = &bytes[n..];
                if self.left == 0 {
                    self.part = ChunkPart::DataEnd;
                }
                continue;
            }
            self.part = match (self.part, byte) {
                (ChunkPart::End, _) => return Err(invalid("bytes after the last chunk")),
                (ChunkPart::Size | ChunkPart::Extension, b'\n') if self.left == 0 => {
                    ChunkPart::Trailer(true)
                }
                (ChunkPart::Size | ChunkPart::Extension, b'\n') => ChunkPart::Data,
                (ChunkPart::Size, b';') => ChunkPart::Extension,
                (ChunkPart::DataEnd, b'\n') => ChunkPart::Size,
                (ChunkPart::Trailer(true), b'\n') => ChunkPart::End,
                (ChunkPart::Trailer(false), b'\n') => ChunkPart::Trailer(true),
                (part, b'\r') => part,
                (ChunkPart::Size, digit) => {
                    let value = char::from(digit).to_digit(16);
                    let value = value.ok_or_else(|| invalid("no size of a chunk"))?;
                    self.left = self.left * 16 + u64::from(value);
                    ChunkPart::Size
                }
                (ChunkPart::DataEnd, _) => return Err(invalid("a chunk longer than its size")),
                (ChunkPart::Trailer(_), _) => ChunkPart::Trailer(false),
                (part, _) => part,
            };
            bytes = rest;
        }
        Ok(self.part == ChunkPart::End)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const BODY: &[u8] =
        b"5\r\nabcde\r\n1a;name=v\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nx: y\r\n\r\n";

    #[test]
    fn a_body_is_complete_at_its_last_byte_however_it_is_divided() {
        for step in 1..=BODY.len() {
            let mut chunks = Chunks::new();
            let ends: Vec<bool> = BODY.chunks(step).map(|b| chunks.take(b).unwrap()).collect();
            let (last, others) = ends.split_last().unwrap();
            assert!(*last && !others.contains(&true), "{step}: {ends:?}");
            assert_eq!(chunks.bytes, 31, "{step}");
        }
    }

    #[test]
    fn other_bytes_are_an_error() {
        assert!(Chunks::new().take(b"x\r\n").is_err());
        assert!(Chunks::new().take(b"1\r\nab").is_err());
        assert!(Chunks::new().take(b"0\r\n\r\nx").is_err());
    }
}
