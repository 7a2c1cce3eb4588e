//! Entries of the index. The index is a cache of the log: this layout may change, and an index with
//! another layout is rebuilt.
//!
//! ```text
//! value:  layout u8, flags u8, sequence, generation ... extensions as in a record, then
//!         segment, offset and head of the frame, then 0, size  or  1, number of files, id and size
//!         of each
//! ```

use forebay_core::Result;

use super::record::{
    check_flags, decode_files, decode_rest, encode_files, encode_rest, flags, skip_rest,
};
use super::wire::{Reader, Writer};
use super::{FORMAT, damaged, parse_key};
use crate::record::{Place, Record, Spot};

/// The same since format 2: only an index of format 3 has records with extensions.
const LAYOUT: u8 = 3;
const IN_LOG: u8 = 0;
const IN_FILES: u8 = 1;

/// The value of a record's entry; its [`key`](super::key) has bucket and name.
pub(crate) fn encode_value(record: &Record) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(96);
    let mut w = Writer { out: &mut out };
    w.u8(LAYOUT);
    w.u8(flags(&record.meta));
    w.varint(record.sequence);
    encode_rest(&mut w, record);
    let spot = record.spot();
    w.varint(spot.segment);
    w.varint(u64::from(spot.offset));
    w.varint(u64::from(spot.head));
    match &record.place {
        Place::Log(_) => {
            w.u8(IN_LOG);
            w.varint(record.size);
        }
        Place::Files(_, files) => {
            w.u8(IN_FILES);
            encode_files(&mut w, record, files)?;
        }
    }
    Ok(out)
}

/// Reads what [`encode_value`] wrote.
pub(crate) fn decode_value(key: &[u8], value: &[u8], disk: usize) -> Result<Record> {
    let (bucket_id, name) = parse_key(key)?;
    let mut r = Reader { rest: value };
    if r.u8()? != LAYOUT {
        return Err(damaged("an entry of the index has another layout"));
    }
    let flags = r.u8()?;
    check_flags(flags, FORMAT)?;
    let sequence = r.varint()?;
    let (generation, meta) = decode_rest(&mut r, flags, sequence)?;
    let (segment, offset, head) = (r.varint()?, short(r.varint()?)?, short(r.varint()?)?);
    let spot = Spot { segment, offset, head };
    let (place, size) = match r.u8()? {
        IN_LOG => (Place::Log(spot), r.varint()?),
        IN_FILES => {
            let (files, size) = decode_files(&mut r, sequence)?;
            (Place::Files(spot, files), size)
        }
        _ => return Err(damaged("an entry of the index has no place")),
    };
    if !r.rest.is_empty() {
        return Err(damaged("an entry of the index has bytes to spare"));
    }
    let name = name.to_owned();
    Ok(Record { bucket_id, name, size, generation, sequence, meta, place, disk })
}

/// The fields of an entry that a listing of sizes needs, and its sequence among the changes of the
/// target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glance {
    pub(crate) sequence: u64,
    pub(crate) size: u64,
    pub(crate) mtime_ns: u64,
}

/// Decodes, of a value that [`encode_value`] wrote, only the fields that a listing of sizes needs.
pub(crate) fn glance_value(value: &[u8]) -> Result<Glance> {
    let mut r = Reader { rest: value };
    if r.u8()? != LAYOUT {
        return Err(damaged("an entry of the index has another layout"));
    }
    let flags = r.u8()?;
    let sequence = r.varint()?;
    let mtime_ns = skip_rest(&mut r, flags)?;
    let _spot = (r.varint()?, r.varint()?, r.varint()?);
    let size = match r.u8()? {
        IN_LOG => r.varint()?,
        IN_FILES => decode_files(&mut r, sequence)?.1,
        _ => return Err(damaged("an entry of the index has no place")),
    };
    Ok(Glance { sequence, size, mtime_ns })
}

fn short(v: u64) -> Result<u32> {
    u32::try_from(v).map_err(|_| damaged("an entry of the index has no such place"))
}
