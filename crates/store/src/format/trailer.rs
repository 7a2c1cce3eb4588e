//! The trailer behind the payload of an object file. It identifies the object.
//!
//! ```text
//! object file:  payload | block table | record | footer
//! record:       magic "FBRECORD", format u16, 0 u16, put in files, CRC-32C u32 of all before it
//! footer:       length of the record u32, format u16, 0 u16, magic "FBFOOTER"
//! ```
//! Format 1 appended a record and a footer for each change of metadata: of these the last that are
//! sound count, so a torn append leaves the record before it.

use forebay_core::checksum::crc32c;
use forebay_core::{Error, Result};

use super::record::{decode_entry, encode_put};
use super::wire::Reader;
use super::{Entry, FOOTER, FORMAT, FORMAT_2, damaged, unknown_format, v1};
use crate::record::{Place, Record, Spot};

pub(super) const RECORD_MAGIC: &[u8; 8] = b"FBRECORD";
const FOOTER_MAGIC: &[u8; 8] = b"FBFOOTER";

/// Encodes the record behind an object's payload and its block table, with its footer.
pub(crate) fn encode_trailer(record: &Record) -> Result<Vec<u8>> {
    if !matches!(record.place, Place::Files(..)) {
        let name = &record.name;
        return Err(Error::internal(format!("object \"{name}\" of the log is not for a file")));
    }
    let mut out = Vec::with_capacity(192 + record.name.len());
    out.extend_from_slice(RECORD_MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    encode_put(&mut out, record)?;
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    push_footer(&mut out, FORMAT);
    Ok(out)
}

/// Ends a record, which is all of `out`.
pub(super) fn push_footer(out: &mut Vec<u8>, format: u16) {
    let len = out.len() as u32;
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&format.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(FOOTER_MAGIC);
}

/// Finds the record in the end of an object file. `None`: there is no footer at all.
///
/// A record of format 1 gets its generation as sequence and as id of its one file.
pub(crate) fn decode_tail(tail: &[u8]) -> Result<Option<Record>> {
    let mut problem = None;
    let mut end = tail.len();
    while end >= FOOTER {
        if tail[end - 8..end] == *FOOTER_MAGIC {
            match decode_trailer(&tail[..end], end == tail.len()) {
                Ok(record) => return Ok(Some(record)),
                Err(e) => problem = problem.or(Some(e)),
            }
        }
        end -= 1;
    }
    problem.map_or(Ok(None), Err)
}

/// Reads the record whose footer ends `bytes`. `last`: nothing follows in the file.
fn decode_trailer(bytes: &[u8], last: bool) -> Result<Record> {
    let (before, footer) = bytes.split_at(bytes.len() - FOOTER);
    let mut r = Reader { rest: footer };
    let (len, format, zero) = (r.u32()? as usize, r.u16()?, r.u16()?);
    let start = before.len().checked_sub(len).ok_or_else(|| damaged("a record is cut off"))?;
    let record = &before[start..];
    match format {
        1 => v1::decode_record(record),
        // A payload may contain bytes that look like a trailer.
        FORMAT_2 | FORMAT if !last => Err(damaged("a file goes on behind its footer")),
        FORMAT_2 | FORMAT if zero != 0 => Err(damaged("a footer has bytes that mean nothing")),
        FORMAT_2 | FORMAT => decode_record(record, format),
        _ => Err(unknown_format("an object file", format)),
    }
}

/// Reads a record whose footer has this format.
fn decode_record(bytes: &[u8], format: u16) -> Result<Record> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged("a record is empty"))?;
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(damaged("a record fails its checksum"));
    }
    let mut r = Reader { rest: body };
    if r.take::<8>()? != *RECORD_MAGIC {
        return Err(damaged("a record has no magic"));
    }
    if r.u16()? != format {
        return Err(damaged("a record and its footer have different formats"));
    }
    if r.u16()? != 0 {
        return Err(damaged("a record has bytes that mean nothing"));
    }
    match decode_entry(r.rest, format, Spot::default(), 0)? {
        Entry::Put(record) if matches!(record.place, Place::Files(..)) => Ok(*record),
        _ => Err(damaged("the record of a file does not name it")),
    }
}
