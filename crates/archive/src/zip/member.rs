//! The data of one member of a zip archive.

use std::io::{self, BufReader, Read};

use crc_fast::{CrcAlgorithm, Digest};
use forebay_core::error::{Error, Result};
use forebay_core::size::ByteRange;

use super::{LOCAL, u16_at, u32_at};
use crate::damaged;
use crate::index::{Member, Packed};
use crate::source::{ReadAt, into_io};

const LOCAL_LEN: usize = 30;
const FLAG_ENCRYPTED: u16 = 1;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// The range of a member's packed data in the file; refuses members that cannot be unpacked.
pub fn data_range(source: &dyn ReadAt, member: &Member, packed: &Packed) -> Result<ByteRange> {
    check(member, packed)?;
    let mut header = [0; LOCAL_LEN];
    source.read_exact_at(&mut header, member.offset)?;
    if u32_at(&header, 0)?.to_le_bytes() != *LOCAL {
        return Err(damaged(format!(
            "member \"{}\" has no header at byte {}",
            member.name, member.offset
        )));
    }
    let skipped = u64::from(u16_at(&header, 26)?) + u64::from(u16_at(&header, 28)?);
    let start = member.offset + LOCAL_LEN as u64 + skipped;
    match start.checked_add(packed.size).filter(|end| *end <= source.size()) {
        Some(end) => Ok(ByteRange { start, end }),
        None => Err(damaged(format!("member \"{}\" reaches beyond the archive", member.name))),
    }
}

fn check(member: &Member, packed: &Packed) -> Result<()> {
    let name = &member.name;
    if packed.flags & FLAG_ENCRYPTED != 0 {
        return Err(Error::unsupported(format!("member \"{name}\" is encrypted")));
    }
    match packed.method {
        STORED if packed.size != member.size => {
            Err(damaged(format!("member \"{name}\" is stored in two sizes")))
        }
        STORED | DEFLATED => Ok(()),
        other => Err(Error::unsupported(format!(
            "member \"{name}\" is compressed by {}, which is not read",
            method_name(other)
        ))
        .hint("write it stored or deflated")),
    }
}

fn method_name(method: u16) -> String {
    match method {
        1 => "shrinking".into(),
        6 => "imploding".into(),
        9 => "deflate64".into(),
        12 => "bzip2".into(),
        14 => "lzma".into(),
        93 => "zstd".into(),
        95 => "xz".into(),
        98 => "ppmd".into(),
        99 => "an encrypting method".into(),
        other => format!("method {other}"),
    }
}

/// Whether a member's data is stored uncompressed.
pub fn is_stored(packed: &Packed) -> bool {
    packed.method == STORED
}

/// Unpacks a member from its packed bytes; the last read fails if length or checksum differ from
/// the directory.
pub fn unpack<'a>(
    member: &Member,
    packed: &Packed,
    input: impl Read + Send + 'a,
) -> Result<Box<dyn Read + Send + 'a>> {
    check(member, packed)?;
    let input = BufReader::new(input.take(packed.size));
    let data: Box<dyn Read + Send + 'a> = match packed.method {
        DEFLATED => Box::new(flate2::bufread::DeflateDecoder::new(input)),
        _ => Box::new(input),
    };
    Ok(Box::new(Checked {
        data,
        name: member.name.clone(),
        left: member.size,
        crc: Digest::new(CrcAlgorithm::Crc32IsoHdlc),
        wanted: packed.crc32,
    }))
}

struct Checked<R> {
    data: R,
    name: String,
    left: u64,
    crc: Digest,
    wanted: u32,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let bad = |what: &str| into_io(damaged(format!("member \"{}\" {what}", self.name)));
        let n = self.data.read(buf).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => bad("ends early"),
            _ => e,
        })?;
        self.left = self
            .left
            .checked_sub(n as u64)
            .ok_or_else(|| bad("unpacks to more than the directory says"))?;
        self.crc.update(&buf[..n]);
        if n == 0 && self.left > 0 {
            return Err(bad("ends early"));
        }
        if n == 0 && self.crc.finalize() as u32 != self.wanted {
            return Err(bad("fails its checksum"));
        }
        Ok(n)
    }
}
