//! Decodes `aws-chunked` bodies as they arrive: chunks with signatures, trailers with checksums.

use bytes::{Buf, Bytes};
use sha2::{Digest, Sha256};

use super::auth::SigningKey;
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;

/// Maximum length of the line before a chunk: a size, a signature and other extensions.
const MAX_CHUNK_LINE: usize = 1024;
/// Maximum bytes of all trailers.
const MAX_TRAILERS: usize = 16 * 1024;
/// Maximum bytes of line ends after the body.
const MAX_LINE_ENDS: usize = 4;
const SIGNATURE: &str = "chunk-signature";
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";
/// SHA-256 of the empty string, which is part of every chunk's string to sign.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// How the chunks of a body are protected.
#[derive(Clone, Debug)]
pub enum Framing {
    /// `STREAMING-UNSIGNED-PAYLOAD-TRAILER`: a checksum in the trailer.
    UnsignedTrailer,
    /// `STREAMING-AWS4-HMAC-SHA256-PAYLOAD`: a signature on each chunk.
    Signed(ChunkSigner),
    /// `STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER`: signatures on chunks and on the trailer.
    SignedTrailer(ChunkSigner),
    /// Any of them without verification: signatures are skipped.
    Open,
}

/// Signs the chunks of one body, each over the signature before it.
#[derive(Clone, Debug)]
pub struct ChunkSigner {
    pub(super) key: SigningKey,
    /// `20130524T000000Z`.
    pub(super) time: String,
    /// `20130524/us-east-1/s3/aws4_request`.
    pub(super) scope: String,
    /// Signature of the previous chunk; initially that of the request.
    pub(super) previous: String,
}

impl ChunkSigner {
    /// Checks the signature of the next chunk or of the trailers.
    fn check(&mut self, what: &str, hashes: &str, signature: &str) -> S3Result<()> {
        let Self { key, time, scope, previous } = self;
        let text = format!("AWS4-HMAC-SHA256-{what}\n{time}\n{scope}\n{previous}\n{hashes}");
        if !key.verify(&text, signature) {
            return Err(S3Error::from(S3Code::SignatureDoesNotMatch)
                .detail("StringToSign", text)
                .detail("SignatureProvided", signature));
        }
        self.previous = signature.to_owned();
        Ok(())
    }
}

/// Headers after the last chunk, names in lower case.
pub type Trailers = Vec<(String, String)>;

#[derive(Debug)]
enum State {
    /// The line with the length of the next chunk.
    ChunkLine,
    /// Bytes left of this chunk.
    Data(u64),
    /// The line end after a chunk's bytes.
    DataEnd,
    Trailer,
    Done,
}

/// Decodes one body. Input may be split anywhere; the decoded bytes are returned as slices of the
/// input. Bytes returned before an error must be discarded.
#[derive(Debug)]
pub struct Decoder {
    framing: Framing,
    /// Expected bytes of the body, if known.
    length: Option<u64>,
    seen: u64,
    state: State,
    /// The current line, until its end arrives.
    line: Vec<u8>,
    /// For the current chunk: its signature and the hash of its bytes so far.
    signature: String,
    hash: Sha256,
    trailers: Trailers,
    trailer_bytes: usize,
    trailer_signature: Option<String>,
    /// Bytes of line ends after the body.
    line_ends: usize,
}

impl Decoder {
    /// `length` is `x-amz-decoded-content-length`; if given, the body must have this length.
    pub fn new(framing: Framing, length: Option<u64>) -> Self {
        Self {
            framing,
            length,
            seen: 0,
            state: State::ChunkLine,
            line: Vec::new(),
            signature: String::new(),
            hash: Sha256::new(),
            trailers: Trailers::new(),
            trailer_bytes: 0,
            trailer_signature: None,
            line_ends: 0,
        }
    }

    /// Decodes the next bytes of the body and appends the object's bytes to `out`.
    pub fn push(&mut self, mut input: Bytes, out: &mut Vec<Bytes>) -> S3Result<()> {
        while !input.is_empty() {
            match self.state {
                State::ChunkLine => {
                    if self.read_line(&mut input, MAX_CHUNK_LINE)? {
                        self.start_chunk()?;
                    }
                }
                State::Data(left) => {
                    let piece = input.split_to(left.min(input.len() as u64) as usize);
                    if self.signer().is_some() {
                        self.hash.update(&piece);
                    }
                    let left = left - piece.len() as u64;
                    out.push(piece);
                    if left > 0 {
                        self.state = State::Data(left);
                    } else {
                        self.end_chunk()?;
                        self.state = State::DataEnd;
                    }
                }
                State::DataEnd => {
                    if self.read_line(&mut input, 2)? {
                        if !self.line.is_empty() {
                            return Err(malformed("a chunk is longer than it says"));
                        }
                        self.state = State::ChunkLine;
                    }
                }
                State::Trailer => {
                    if self.read_line(&mut input, MAX_TRAILERS)? {
                        self.read_trailer()?;
                        self.line.clear();
                    }
                }
                State::Done => self.pass_line_ends(&mut input)?,
            }
        }
        Ok(())
    }

    /// Ends the body; returns its trailers, or `IncompleteBody` if it is not complete.
    pub fn finish(mut self) -> S3Result<Trailers> {
        // Some clients omit the empty line after the last chunk or the trailers.
        let ended = match self.state {
            State::Done => true,
            State::Trailer if self.line.is_empty() => {
                matches!(self.framing, Framing::Signed(_))
                    || self.trailer_signature.is_some()
                    || matches!(self.framing, Framing::UnsignedTrailer | Framing::Open)
            }
            _ => false,
        };
        if !ended || self.length.is_some_and(|length| length != self.seen) {
            return Err(S3Code::IncompleteBody.into());
        }
        self.check_trailers()?;
        Ok(self.trailers)
    }

    /// Some clients send an extra empty line at the end of the body.
    fn pass_line_ends(&mut self, input: &mut Bytes) -> S3Result<()> {
        self.line_ends += input.len();
        let are_line_ends = input.iter().all(|b| matches!(b, b'\r' | b'\n'));
        input.clear();
        match are_line_ends && self.line_ends <= MAX_LINE_ENDS {
            true => Ok(()),
            false => Err(malformed("there are bytes behind the last chunk")),
        }
    }

    /// Reads up to and including a line feed into `self.line`, without the line end. Returns
    /// whether the line is complete.
    fn read_line(&mut self, input: &mut Bytes, most: usize) -> S3Result<bool> {
        let end = input.iter().position(|b| *b == b'\n');
        let part = end.unwrap_or(input.len());
        if self.line.len() + part > most {
            return Err(malformed("a line between chunks is too long"));
        }
        self.line.extend_from_slice(&input[..part]);
        input.advance(part + usize::from(end.is_some()));
        if end.is_some() && self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(end.is_some())
    }

    /// Reads `SIZE[;chunk-signature=SIGNATURE]`.
    fn start_chunk(&mut self) -> S3Result<()> {
        let line = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&line).map_err(|_| malformed("a chunk has no size"))?;
        let (size, extension) = line.split_once(';').unwrap_or((line, ""));
        let size = size.trim();
        let digits = !size.is_empty() && size.bytes().all(|b| b.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16)
            .ok()
            .filter(|_| digits)
            .ok_or_else(|| malformed("a chunk has no size"))?;
        let signature = extension.split(';').filter_map(|e| e.trim().split_once('='));
        let signature = signature.into_iter().find(|(name, _)| *name == SIGNATURE);
        match (signature, self.signer().is_some()) {
            (Some((_, signature)), true) => self.signature = signature.to_owned(),
            (None, true) => {
                return Err(S3Error::new(S3Code::AccessDenied, "a chunk has no signature"));
            }
            (_, false) => {}
        }
        self.seen = self.seen.saturating_add(size);
        if self.length.is_some_and(|length| self.seen > length) {
            return Err(malformed("there are more bytes than x-amz-decoded-content-length says"));
        }
        if size > 0 {
            self.state = State::Data(size);
            return Ok(());
        }
        self.state = State::Trailer;
        self.end_chunk()
    }

    fn end_chunk(&mut self) -> S3Result<()> {
        let hash = std::mem::take(&mut self.hash).finalize();
        let signature = std::mem::take(&mut self.signature);
        match self.signer() {
            None => Ok(()),
            Some(signer) => {
                signer.check("PAYLOAD", &format!("{EMPTY}\n{}", hex::encode(hash)), &signature)
            }
        }
    }

    /// Reads `name:value`; an empty line ends the trailers.
    fn read_trailer(&mut self) -> S3Result<()> {
        let bad = || S3Error::from(S3Code::MalformedTrailerError);
        if self.line.is_empty() {
            // AWS's own example has an empty line before the signature of the trailers, and some
            // clients end the last chunk with one before the trailers.
            let waits = match self.framing {
                Framing::Signed(_) => false,
                Framing::SignedTrailer(_) => self.trailer_signature.is_none(),
                Framing::UnsignedTrailer | Framing::Open => self.trailers.is_empty(),
            };
            if !waits {
                self.state = State::Done;
            }
            return Ok(());
        }
        if matches!(self.framing, Framing::Signed(_)) {
            return Err(bad());
        }
        self.trailer_bytes += self.line.len();
        if self.trailer_bytes > MAX_TRAILERS {
            return Err(bad());
        }
        let line = std::str::from_utf8(&self.line).map_err(|_| bad())?;
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if name == TRAILER_SIGNATURE {
            self.trailer_signature = Some(value);
        } else if self.trailer_signature.is_some() || name.is_empty() {
            return Err(bad());
        } else {
            self.trailers.push((name, value));
        }
        Ok(())
    }

    /// Checks the signature of the trailers.
    fn check_trailers(&mut self) -> S3Result<()> {
        let Framing::SignedTrailer(signer) = &mut self.framing else { return Ok(()) };
        let Some(signature) = &self.trailer_signature else {
            return Err(S3Error::new(S3Code::AccessDenied, "the trailers have no signature"));
        };
        let mut hash = Sha256::new();
        for (name, value) in &self.trailers {
            hash.update(format!("{name}:{value}\n"));
        }
        signer.check("TRAILER", &hex::encode(hash.finalize()), signature)
    }

    fn signer(&mut self) -> Option<&mut ChunkSigner> {
        match &mut self.framing {
            Framing::UnsignedTrailer | Framing::Open => None,
            Framing::Signed(signer) | Framing::SignedTrailer(signer) => Some(signer),
        }
    }
}

fn malformed(message: &'static str) -> S3Error {
    S3Error::new(S3Code::InvalidRequest, message)
}

#[cfg(test)]
#[path = "chunked_tests.rs"]
mod tests;
