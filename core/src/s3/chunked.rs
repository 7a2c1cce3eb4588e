//! `aws-chunked` bodies: chunks with signatures, trailers with checksums, decoded as they come.

use bytes::{Buf, Bytes};
use sha2::{Digest, Sha256};

use super::auth::SigningKey;
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;

/// Longest line before a chunk: a size, a signature and what else may come.
const MAX_CHUNK_LINE: usize = 1024;
/// Most bytes of all trailers.
const MAX_TRAILERS: usize = 16 * 1024;
/// Most bytes of line ends behind the body.
const MAX_LINE_ENDS: usize = 4;
const SIGNATURE: &str = "chunk-signature";
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";
/// SHA-256 of nothing, which the text of every chunk's signature has.
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
    /// Any of them where nobody's signature counts: signatures are passed over.
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
    /// Of the chunk before; of the request at first.
    pub(super) previous: String,
}

impl ChunkSigner {
    /// Checks the signature of the next link: a chunk or the trailers.
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

/// Headers behind the last chunk, names in lower case.
pub type Trailers = Vec<(String, String)>;

#[derive(Debug)]
enum State {
    /// The line that says how long the next chunk is.
    ChunkLine,
    /// Bytes left of this chunk.
    Data(u64),
    /// The line end behind a chunk's bytes.
    DataEnd,
    Trailer,
    Done,
}

/// Decodes one body. Bytes go in as they come, in pieces of any size; what is decoded comes out
/// as slices of them. Bytes that came out before an error must not be kept.
#[derive(Debug)]
pub struct Decoder {
    framing: Framing,
    /// Bytes that the body must hold, when that is known.
    length: Option<u64>,
    seen: u64,
    state: State,
    /// The line being read, until its end comes.
    line: Vec<u8>,
    /// Of the chunk being read: its signature and the hash of its bytes so far.
    signature: String,
    hash: Sha256,
    trailers: Trailers,
    trailer_bytes: usize,
    trailer_signature: Option<String>,
    /// Bytes of line ends behind the body.
    line_ends: usize,
}

impl Decoder {
    /// `length` is `x-amz-decoded-content-length`, which the body must have when it is given.
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

    /// Takes the next piece of the body and appends what it holds of the object to `out`.
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

    /// The end of the body: its trailers, or `IncompleteBody` when it is not all there.
    pub fn finish(mut self) -> S3Result<Trailers> {
        // Some clients leave out the empty line behind the last chunk or the trailers.
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

    /// Some clients end the body with an empty line too many.
    fn pass_line_ends(&mut self, input: &mut Bytes) -> S3Result<()> {
        self.line_ends += input.len();
        let are_line_ends = input.iter().all(|b| matches!(b, b'\r' | b'\n'));
        input.clear();
        match are_line_ends && self.line_ends <= MAX_LINE_ENDS {
            true => Ok(()),
            false => Err(malformed("there are bytes behind the last chunk")),
        }
    }

    /// Reads up to and with a line feed into `self.line`, without the line end. Whether the line
    /// is all there.
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

    /// The trailers must have the signature that goes with them.
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
