//! The layouts of everything the store writes; no other module knows a byte of them.
//!
//! ```text
//! object file:  payload | block table | record | footer [| record | footer]...
//! block table:  CRC-32C of each 64 KiB block of the payload, u32 each
//! record:       magic "FBRECORD", format u16, ... , CRC-32C of all before it
//! footer:       length of the record u32, format u16, 0 u16, magic "FBFOOTER"
//!
//! companion:    magic "FBCOMPAN", format u16, 0 u16, CRC-32C u32 of all that follows,
//!               generation u64, payload
//! ```
//! Numbers are little-endian. A change of metadata appends a record and a footer; the last footer
//! that stands before a sound record counts, so a torn append leaves the record before it.

use forebay_core::bucket::Class;
use forebay_core::checksum::{Checksum, ChecksumKind, crc32c};
use forebay_core::{Error, ErrorCode, Result};

use super::record::{Record, RecordMeta};

/// Version of the layouts above; part of `disk.json`, of every record and of every footer.
pub const FORMAT: u16 = 1;
/// Bytes of payload that one checksum covers.
pub(crate) const BLOCK: u64 = 1 << BLOCK_SHIFT;
const BLOCK_SHIFT: u8 = 16;
/// Bytes of one entry of the block table.
pub(crate) const TABLE_ENTRY: u64 = 4;
/// Bytes of a footer.
pub(crate) const FOOTER: usize = 16;
/// Longest record: bounds what a reader of a damaged file allocates.
pub(crate) const MAX_RECORD: usize = 256 << 10;
/// Files occupy whole pages of the file system.
const PAGE: u64 = 4096;
/// What a record without custom metadata takes at most, roughly; for reservations.
const USUAL_RECORD: u64 = 512;

/// Version of the layout of companions; another one is as good as none.
const COMPANION_FORMAT: u16 = 1;
const COMPANION_MAGIC: &[u8; 8] = b"FBCOMPAN";
const RECORD_MAGIC: &[u8; 8] = b"FBRECORD";
const FOOTER_MAGIC: &[u8; 8] = b"FBFOOTER";

const FLAG_BACKED: u16 = 1;
const FLAG_DIRTY: u16 = 2;

/// Number of blocks of a payload.
pub(crate) fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK)
}

/// Length of the block table of a payload.
pub(crate) fn table_len(size: u64) -> u64 {
    blocks(size) * TABLE_ENTRY
}

/// Space on the disk that an object with a payload of `size` bytes takes.
pub(crate) fn stored_bytes(size: u64, name: &str) -> u64 {
    (size + table_len(size) + USUAL_RECORD + name.len() as u64).next_multiple_of(PAGE)
}

/// Key of an object in the index; keys of one bucket sort by name.
pub(crate) fn key(bucket_id: u64, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + name.len());
    key.extend_from_slice(&bucket_id.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

/// What [`key`] was made of.
pub(crate) fn parse_key(key: &[u8]) -> Result<(u64, &str)> {
    let (id, name) = key.split_first_chunk::<8>().ok_or_else(|| damaged("a key is too short"))?;
    let name = std::str::from_utf8(name).map_err(|_| damaged("a name is not UTF-8"))?;
    Ok((u64::from_be_bytes(*id), name))
}

/// The record that stands behind an object's payload, with its footer.
pub(crate) fn encode_trailer(record: &Record) -> Result<Vec<u8>> {
    let mut out = encode_record(record, &record.name)?;
    let len = out.len() as u32;
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&0u16.to_le_bytes());
    out.extend_from_slice(FOOTER_MAGIC);
    Ok(out)
}

/// The same record as the index keeps it: without the name, which the key has.
pub(crate) fn encode_value(record: &Record) -> Result<Vec<u8>> {
    encode_record(record, "")
}

/// Reads what [`encode_value`] wrote.
pub(crate) fn decode_value(key: &[u8], value: &[u8], disk: usize) -> Result<Record> {
    let (bucket_id, name) = parse_key(key)?;
    let mut record = decode_record(value)?;
    if record.bucket_id != bucket_id {
        return Err(damaged("an entry of the index belongs to another bucket"));
    }
    record.name = name.to_owned();
    record.disk = disk;
    Ok(record)
}

/// Finds the last sound record in the end of an object file. `None`: there is no footer at all.
pub(crate) fn decode_tail(tail: &[u8]) -> Result<Option<Record>> {
    let mut problem = None;
    let mut end = tail.len();
    while end >= FOOTER {
        if tail[end - 8..end] == *FOOTER_MAGIC {
            match decode_trailer(&tail[..end]) {
                Ok(record) => return Ok(Some(record)),
                Err(e) => problem = problem.or(Some(e)),
            }
        }
        end -= 1;
    }
    problem.map_or(Ok(None), Err)
}

fn decode_trailer(bytes: &[u8]) -> Result<Record> {
    let footer = &bytes[bytes.len() - FOOTER..];
    let mut r = Reader { rest: footer };
    let len = r.u32()? as usize;
    let format = r.u16()?;
    if format != FORMAT {
        return Err(unknown_format("an object file", format));
    }
    let end = bytes.len() - FOOTER;
    let start = end.checked_sub(len).ok_or_else(|| damaged("a record is cut off"))?;
    decode_record(&bytes[start..end])
}

fn encode_record(record: &Record, name: &str) -> Result<Vec<u8>> {
    let meta = &record.meta;
    let mut w = Writer { out: Vec::with_capacity(192 + name.len()) };
    w.out.extend_from_slice(RECORD_MAGIC);
    w.u16(FORMAT);
    w.u16(if meta.backed { FLAG_BACKED } else { 0 } | if meta.dirty { FLAG_DIRTY } else { 0 });
    w.out.push(class_code(meta.class));
    w.out.push(meta.checksum.as_ref().map_or(0, |c| kind_code(c.kind)));
    w.out.push(BLOCK_SHIFT);
    w.out.push(0);
    w.u64(record.bucket_id);
    w.u64(record.generation);
    w.u64(record.size);
    w.u64(meta.epoch);
    w.u64(meta.validated_ns);
    w.u64(meta.atime_ns);
    w.u64(meta.mtime_ns);
    w.text(name);
    w.text(meta.checksum.as_ref().map_or("", |c| &c.value));
    w.text(&meta.etag);
    w.text(&meta.version);
    w.text(&meta.backend_version);
    w.u32(meta.custom.len() as u32);
    for (k, v) in &meta.custom {
        w.text(k);
        w.text(v);
    }
    let crc = crc32c(&w.out);
    w.u32(crc);
    if w.out.len() > MAX_RECORD {
        return Err(Error::invalid(format!(
            "metadata of object \"{}\" takes {} bytes, the limit is {MAX_RECORD}",
            record.name,
            w.out.len()
        ))
        .hint("store less custom metadata"));
    }
    Ok(w.out)
}

fn decode_record(bytes: &[u8]) -> Result<Record> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged("a record is empty"))?;
    if !body.starts_with(RECORD_MAGIC) {
        return Err(damaged("a record has no magic"));
    }
    let mut r = Reader { rest: &body[RECORD_MAGIC.len()..] };
    let format = r.u16()?;
    if format != FORMAT {
        return Err(unknown_format("a record", format));
    }
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(damaged("a record fails its checksum"));
    }
    let flags = r.u16()?;
    let class = code_class(r.u8()?)?;
    let kind = code_kind(r.u8()?)?;
    if r.u8()? != BLOCK_SHIFT {
        return Err(damaged("a record has another block size"));
    }
    r.u8()?;
    let (bucket_id, generation, size) = (r.u64()?, r.u64()?, r.u64()?);
    let (epoch, validated_ns) = (r.u64()?, r.u64()?);
    let (atime_ns, mtime_ns) = (r.u64()?, r.u64()?);
    let name = r.text()?;
    let value = r.text()?;
    let checksum = (kind != ChecksumKind::None).then_some(Checksum { kind, value });
    let (etag, version, backend_version) = (r.text()?, r.text()?, r.text()?);
    let pairs = r.u32()?;
    let custom = (0..pairs).map(|_| Ok((r.text()?, r.text()?))).collect::<Result<_>>()?;
    if !r.rest.is_empty() {
        return Err(damaged("a record has bytes to spare"));
    }
    let meta = RecordMeta {
        checksum,
        etag,
        version,
        backend_version,
        class,
        backed: flags & FLAG_BACKED != 0,
        dirty: flags & FLAG_DIRTY != 0,
        epoch,
        validated_ns,
        atime_ns,
        mtime_ns,
        custom,
    };
    Ok(Record { bucket_id, name, size, generation, meta, disk: 0 })
}

/// A companion of the object `generation`, as its file holds it.
pub(crate) fn encode_companion(generation: u64, payload: &[u8]) -> Vec<u8> {
    let mut body = Writer { out: Vec::with_capacity(8 + payload.len()) };
    body.u64(generation);
    body.out.extend_from_slice(payload);
    let mut w = Writer { out: Vec::with_capacity(16 + body.out.len()) };
    w.out.extend_from_slice(COMPANION_MAGIC);
    w.u16(COMPANION_FORMAT);
    w.u16(0);
    w.u32(crc32c(&body.out));
    w.out.append(&mut body.out);
    w.out
}

/// The payload of a companion, if it is a sound one of this object.
pub(crate) fn decode_companion(mut bytes: Vec<u8>, generation: u64) -> Result<Vec<u8>> {
    let mut r = Reader { rest: &bytes };
    if r.take::<8>()? != *COMPANION_MAGIC {
        return Err(damaged("a companion has no magic"));
    }
    let format = r.u16()?;
    if format != COMPANION_FORMAT {
        return Err(unknown_format("a companion", format));
    }
    r.u16()?;
    if r.u32()? != crc32c(r.rest) {
        return Err(damaged("a companion fails its checksum"));
    }
    if r.u64()? != generation {
        return Err(damaged("a companion belongs to another object"));
    }
    let head = bytes.len() - r.rest.len();
    Ok(bytes.split_off(head))
}

/// Space on the disk of a companion of this size.
pub(crate) fn companion_space(size: u64) -> u64 {
    size.next_multiple_of(PAGE)
}

fn class_code(class: Class) -> u8 {
    match class {
        Class::Owned => 1,
        Class::Cache => 2,
    }
}

fn code_class(code: u8) -> Result<Class> {
    match code {
        1 => Ok(Class::Owned),
        2 => Ok(Class::Cache),
        _ => Err(damaged("a record has an unknown class")),
    }
}

const KINDS: [ChecksumKind; 7] = [
    ChecksumKind::None,
    ChecksumKind::Xxhash,
    ChecksumKind::Xxhash2,
    ChecksumKind::Md5,
    ChecksumKind::Crc32c,
    ChecksumKind::Sha256,
    ChecksumKind::Sha512,
];

fn kind_code(kind: ChecksumKind) -> u8 {
    KINDS.iter().position(|k| *k == kind).map_or(0, |i| i as u8)
}

fn code_kind(code: u8) -> Result<ChecksumKind> {
    KINDS
        .get(usize::from(code))
        .copied()
        .ok_or_else(|| damaged("a record has an unknown checksum kind"))
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorCode::Corrupt, what)
}

/// The refusal of data that another version of Forebay wrote.
pub(crate) fn unknown_format(what: &str, found: u16) -> Error {
    Error::unsupported(format!(
        "{what} has on-disk format {found}; this version of Forebay reads format {FORMAT}"
    ))
    .hint("start the version that wrote it, or give an empty folder")
}

struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn u16(&mut self, v: u16) {
        self.out.extend_from_slice(&v.to_le_bytes());
    }

    fn u32(&mut self, v: u32) {
        self.out.extend_from_slice(&v.to_le_bytes());
    }

    fn u64(&mut self, v: u64) {
        self.out.extend_from_slice(&v.to_le_bytes());
    }

    fn text(&mut self, s: &str) {
        self.u32(s.len() as u32);
        self.out.extend_from_slice(s.as_bytes());
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) =
            self.rest.split_first_chunk::<N>().ok_or_else(|| damaged("a record is cut off"))?;
        self.rest = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8> {
        self.take::<1>().map(|[b]| b)
    }

    fn u16(&mut self) -> Result<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String> {
        let len = self.u32()? as usize;
        let (head, rest) =
            self.rest.split_at_checked(len).ok_or_else(|| damaged("a record is cut off"))?;
        self.rest = rest;
        String::from_utf8(head.to_vec()).map_err(|_| damaged("a record holds text not in UTF-8"))
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
