//! Finds the end of a chunked body (RFC 9112, 7.1) while its bytes pass. It rejects exactly what
//! `hyper` rejects: both have to agree on the byte after the body.

/// A position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunks {
    /// Before the first digit of a chunk's size.
    Start,
    /// After a digit; the size so far.
    Size(u64),
    /// In white space after a size.
    Space(u64),
    Extension(u64),
    /// After the carriage return of a line with a size.
    SizeEnd(u64),
    /// This many bytes before the end of a chunk's content.
    Data(u64),
    DataCr,
    DataLf,
    /// After the last chunk, or after a trailer's line.
    Line,
    Trailer,
    TrailerLf,
    LastLf,
    /// After the body.
    End,
    /// Not a valid chunked body.
    Broken,
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self::Start
    }

    /// Number of content bytes that come next, whatever they are.
    pub(crate) fn data(self) -> u64 {
        match self {
            Self::Data(left) => left,
            _ => 0,
        }
    }

    /// Consumes bytes of the body; returns how many belong to it. The rest is after its end.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !matches!(self, Self::End | Self::Broken) {
            if let Self::Data(left) = self {
                let n = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += n;
                *left -= n as u64;
                if *left == 0 {
                    *self = Self::DataCr;
                }
            } else {
                *self = self.after(bytes[at]);
                at += 1;
            }
        }
        at
    }

    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Start, _) => Self::digit(0, byte),
            (Self::Size(size) | Self::Space(size), b'\t' | b' ') => Self::Space(size),
            (Self::Size(size) | Self::Space(size), b';') => Self::Extension(size),
            (Self::Size(size) | Self::Space(size) | Self::Extension(size), b'\r') => {
                Self::SizeEnd(size)
            }
            (Self::Size(size), _) => Self::digit(size, byte),
            (Self::Extension(size), byte) if byte != b'\n' => Self::Extension(size),
            (Self::SizeEnd(0), b'\n') => Self::Line,
            (Self::SizeEnd(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::Line, b'\r') => Self::LastLf,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::Line | Self::Trailer, _) => Self::Trailer,
            (Self::TrailerLf, b'\n') => Self::Line,
            (Self::LastLf, b'\n') => Self::End,
            _ => Self::Broken,
        }
    }

    fn digit(size: u64, byte: u8) -> Self {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        let size = digit.and_then(|digit| size.checked_mul(16)?.checked_add(digit));
        size.map_or(Self::Broken, Self::Size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> (usize, Chunks) {
        let mut chunks = Chunks::new();
        let n = chunks.take(text.as_bytes());
        // The same, byte by byte.
        let mut single = Chunks::new();
        let one: usize = text.as_bytes().iter().map(|byte| single.take(&[*byte])).sum();
        assert_eq!((n, chunks), (one, single), "{text}");
        (n, chunks)
    }

    #[test]
    fn a_body_ends_behind_its_last_chunk_and_its_trailers() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "A \t;name=\"v\"\r\n0\r\n\r\n12345\r\n000\r\n\r\n",
            "1\r\n\n\r\n0;x\r\nsum: 1\r\nother:\r\n\r\n",
        ] {
            let behind = format!("{body}GET /");
            assert_eq!(taken(&behind), (body.len(), Chunks::End));
            for end in 0..body.len() {
                let (n, chunks) = taken(&body[..end]);
                assert_eq!(n, end);
                assert!(!matches!(chunks, Chunks::End | Chunks::Broken), "{body} {end}");
            }
        }
    }

    #[test]
    fn a_body_that_is_not_chunked_is_found_out() {
        for body in [
            "\r\n",
            "x\r\n",
            " 1\r\n",
            "+1\r\n",
            "1\n",
            "1 2\r\n",
            "1;a\nb\r\n",
            "1\r\nab\r\n",
            "1\r\na\n",
            "0\r\n\rx",
            "0\r\nsum: 1\rx",
            "11111111111111111\r\n",
        ] {
            assert_eq!(taken(body).1, Chunks::Broken, "{body:?}");
        }
        assert_eq!(taken("ffffffffffffffff\r\n").1, Chunks::Data(u64::MAX));
    }
}
