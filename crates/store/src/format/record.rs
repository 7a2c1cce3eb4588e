//! Records since format 2: compact entries of the log, each about one object.
//!
//! ```text
//! put:     kind 1 (payload behind it) or 2 (in files), flags u8, bucket id, name, sequence,
//!          generation as delta to the sequence, checksum kind u8, checksum unless the kind is 0,
//!          etag, version, backend version, epoch, mtime u64, atime as delta to mtime if flagged,
//!          time of validation as delta to mtime if flagged, number of custom pairs, pairs,
//!          extensions if flagged,
//!          of kind 2: number of files, id as delta to the sequence and size of each
//! remove:  kind 3, bucket id, name, sequence
//! ```
//! Numbers without a type are varints, deltas are signed, texts are those of `wire`.

use std::collections::BTreeMap;

use forebay_core::bucket::Class;
use forebay_core::checksum::{Checksum, ChecksumKind};
use forebay_core::object::PartSizes;
use forebay_core::{Error, Result};

use super::extensions::{decode_extensions, encode_extensions, skip_extensions};
use super::wire::{Reader, Writer};
use super::{FORMAT_2, MAX_RECORD, code_kind, damaged, kind_code};
use crate::extensions::Extensions;
use crate::record::{Extent, Place, Record, RecordMeta, Spot};

const PUT_HERE: u8 = 1;
const PUT_FILES: u8 = 2;
const REMOVE: u8 = 3;

const OWNED: u8 = 1;
const BACKED: u8 = 1 << 1;
const DIRTY: u8 = 1 << 2;
/// The object was accessed at another time than it was modified.
const ACCESSED: u8 = 1 << 3;
/// The object was compared with its backend.
const VALIDATED: u8 = 1 << 4;
const FLAGS_2: u8 = OWNED | BACKED | DIRTY | ACCESSED | VALIDATED;
/// The record has extensions; since format 3.
const EXTENDED: u8 = 1 << 5;
const FLAGS: u8 = FLAGS_2 | EXTENDED;

/// Name of the pair of custom metadata that holds the parts in which an object was uploaded.
const PARTS: &str = "forebay-parts";

/// More than a record takes beside its texts and files.
const FIXED_BOUND: usize = 128;
/// More than the length of a text, a file, or id and length of an extension, takes.
const EACH_BOUND: usize = 20;

/// One event of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Put(Box<Record>),
    Remove { bucket_id: u64, name: String, sequence: u64 },
}

impl Entry {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Put(record) => &record.name,
            Self::Remove { name, .. } => name,
        }
    }

    #[cfg(test)]
    pub(crate) fn sequence(&self) -> u64 {
        match self {
            Self::Put(record) => record.sequence,
            Self::Remove { sequence, .. } => *sequence,
        }
    }
}

/// Appends the record of an entry to `out`.
pub(super) fn encode_entry(out: &mut Vec<u8>, entry: &Entry) -> Result<()> {
    let start = out.len();
    let mut w = Writer { out };
    match entry {
        Entry::Put(record) => return encode_put(out, record),
        Entry::Remove { bucket_id, name, sequence } => {
            w.u8(REMOVE);
            w.varint(*bucket_id);
            w.text(name);
            w.varint(*sequence);
        }
    }
    check_len(out.len() - start, entry.name())
}

/// Rejects an entry whose record is too long or contradicts itself.
pub(crate) fn check_entry(entry: &Entry) -> Result<()> {
    if entry_bound(entry) > MAX_RECORD {
        return encode_entry(&mut Vec::new(), entry);
    }
    match entry {
        Entry::Put(record) => check_files(record),
        Entry::Remove { .. } => Ok(()),
    }
}

/// Appends the record of a put to `out`.
pub(super) fn encode_put(out: &mut Vec<u8>, record: &Record) -> Result<()> {
    let start = out.len();
    let mut w = Writer { out };
    w.u8(match record.place {
        Place::Log(_) => PUT_HERE,
        Place::Files(..) => PUT_FILES,
    });
    w.u8(flags(&record.meta));
    w.varint(record.bucket_id);
    w.text(&record.name);
    w.varint(record.sequence);
    encode_rest(&mut w, record);
    if let Place::Files(_, files) = &record.place {
        encode_files(&mut w, record, files)?;
    }
    check_len(out.len() - start, &record.name)
}

/// An upper bound for the length of the record of an entry, without building it.
pub(super) fn entry_bound(entry: &Entry) -> usize {
    let Entry::Put(record) = entry else {
        return FIXED_BOUND + entry.name().len();
    };
    let meta = &record.meta;
    let texts = [&record.name, &meta.etag, &meta.version, &meta.backend_version];
    let sum = meta.checksum.as_ref().map_or(0, |c| c.value.len());
    let custom = meta.custom.iter().map(|(k, v)| k.len() + v.len() + 2 * EACH_BOUND);
    let files = match &record.place {
        Place::Log(_) => 0,
        Place::Files(_, files) => files.len() * EACH_BOUND,
    };
    let texts = texts.iter().map(|t| t.len()).sum::<usize>();
    let parts = meta.parts.runs().len() * 2 * EACH_BOUND;
    let extensions = meta.extensions.fields().iter().map(|field| field.value.len() + EACH_BOUND);
    let (custom, extensions) = (custom.sum::<usize>(), extensions.sum::<usize>());
    FIXED_BOUND + texts + sum + custom + extensions + parts + files
}

/// Encodes the fields of a record that follow its identity; entries of the index use the same
/// layout.
pub(super) fn encode_rest(w: &mut Writer<'_>, record: &Record) {
    let meta = &record.meta;
    w.delta(record.generation, record.sequence);
    match &meta.checksum {
        Some(sum) if sum.kind != ChecksumKind::None => {
            w.u8(kind_code(sum.kind));
            w.text(&sum.value);
        }
        _ => w.u8(0),
    }
    w.text(&meta.etag);
    w.text(&meta.version);
    w.text(&meta.backend_version);
    w.varint(meta.epoch);
    w.u64(meta.mtime_ns);
    if meta.atime_ns != meta.mtime_ns {
        w.delta(meta.atime_ns, meta.mtime_ns);
    }
    if meta.validated_ns != 0 {
        w.delta(meta.validated_ns, meta.mtime_ns);
    }
    let with_parts = meta.parts.as_text().map(|text| {
        let mut custom = meta.custom.clone();
        custom.insert(PARTS.to_owned(), text);
        custom
    });
    let custom = with_parts.as_ref().unwrap_or(&meta.custom);
    w.varint(custom.len() as u64);
    for (k, v) in custom {
        w.text(k);
        w.text(v);
    }
    encode_extensions(w, &meta.extensions);
}

/// Only the sizes of files are written, so they must add up to the object's.
fn check_files(record: &Record) -> Result<()> {
    let Place::Files(_, files) = &record.place else { return Ok(()) };
    let total = files.iter().try_fold(0u64, |sum, f| sum.checked_add(f.size));
    if total == Some(record.size) {
        return Ok(());
    }
    let Record { name, size, .. } = record;
    Err(Error::internal(format!("object \"{name}\" has {size} bytes, its files have others")))
}

pub(super) fn encode_files(w: &mut Writer<'_>, record: &Record, files: &[Extent]) -> Result<()> {
    check_files(record)?;
    w.varint(files.len() as u64);
    for file in files {
        w.delta(file.id, record.sequence);
        w.varint(file.size);
    }
    Ok(())
}

pub(super) fn flags(meta: &RecordMeta) -> u8 {
    let flag = |on: bool, flag: u8| if on { flag } else { 0 };
    flag(meta.class == Class::Owned, OWNED)
        | flag(meta.backed, BACKED)
        | flag(meta.dirty, DIRTY)
        | flag(meta.atime_ns != meta.mtime_ns, ACCESSED)
        | flag(meta.validated_ns != 0, VALIDATED)
        | flag(!meta.extensions.is_empty(), EXTENDED)
}

/// Rejects flags that records of a format do not have.
pub(super) fn check_flags(flags: u8, format: u16) -> Result<()> {
    let known = if format == FORMAT_2 { FLAGS_2 } else { FLAGS };
    if flags & !known != 0 {
        return Err(damaged("a record has unknown flags"));
    }
    Ok(())
}

/// Reads what [`encode_entry`] wrote; `format`, `spot` and `size` are those of the frame it was in.
pub(super) fn decode_entry(bytes: &[u8], format: u16, spot: Spot, size: u64) -> Result<Entry> {
    let mut r = Reader { rest: bytes };
    let kind = r.u8()?;
    let entry = match kind {
        PUT_HERE | PUT_FILES => {
            let flags = r.u8()?;
            check_flags(flags, format)?;
            let (bucket_id, name, sequence) = (r.varint()?, r.text()?, r.varint()?);
            let (generation, meta) = decode_rest(&mut r, flags, sequence)?;
            let (place, size) = match kind {
                PUT_HERE => (Place::Log(spot), size),
                _ if size > 0 => return Err(damaged("a record has a payload and files")),
                _ => {
                    let (files, size) = decode_files(&mut r, sequence)?;
                    (Place::Files(spot, files), size)
                }
            };
            let record =
                Record { bucket_id, name, size, generation, sequence, meta, place, disk: 0 };
            Entry::Put(Box::new(record))
        }
        REMOVE if size > 0 => return Err(damaged("a removal has a payload")),
        REMOVE => Entry::Remove { bucket_id: r.varint()?, name: r.text()?, sequence: r.varint()? },
        _ => return Err(damaged("a record is of an unknown kind")),
    };
    if !r.rest.is_empty() {
        return Err(damaged("a record has bytes to spare"));
    }
    Ok(entry)
}

/// The fields that distinguish one commit of an object from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    pub generation: u64,
    /// See [`Record::evictable`].
    pub evictable: bool,
}

/// The commit of a sound record whose payload is behind it. Reads only the fields that this takes.
/// `None` if it is of another object or of another kind, or if it has extensions: these decide
/// whether the payload can be read.
pub(super) fn commit_of(bytes: &[u8], bucket_id: u64, name: &str) -> Option<Commit> {
    let mut r = Reader { rest: bytes };
    let (kind, flags) = (r.u8().ok()?, r.u8().ok()?);
    let is_plain = kind == PUT_HERE && flags & EXTENDED == 0;
    let is_it = is_plain && r.varint().ok()? == bucket_id && r.text_is(name).ok()?;
    let sequence = is_it.then(|| r.varint().ok())??;
    let generation = r.delta(sequence).ok()?;
    Some(Commit { generation, evictable: flags & (BACKED | DIRTY) == BACKED })
}

/// Generation and metadata, as [`encode_rest`] wrote them. The flags are checked before.
pub(super) fn decode_rest(
    r: &mut Reader<'_>,
    flags: u8,
    sequence: u64,
) -> Result<(u64, RecordMeta)> {
    let generation = r.delta(sequence)?;
    let checksum = match code_kind(r.u8()?)? {
        ChecksumKind::None => None,
        kind => Some(Checksum { kind, value: r.text()? }),
    };
    let (etag, version, backend_version) = (r.text()?, r.text()?, r.text()?);
    let (epoch, mtime_ns) = (r.varint()?, r.u64()?);
    let atime_ns = if flags & ACCESSED != 0 { r.delta(mtime_ns)? } else { mtime_ns };
    let validated_ns = if flags & VALIDATED != 0 { r.delta(mtime_ns)? } else { 0 };
    let pairs = r.varint()?;
    let mut custom: BTreeMap<_, _> =
        (0..pairs).map(|_| Ok((r.text()?, r.text()?))).collect::<Result<_>>()?;
    let parts = custom.get(PARTS).and_then(|text| PartSizes::from_text(text));
    if parts.is_some() {
        custom.remove(PARTS);
    }
    let extensions =
        if flags & EXTENDED != 0 { decode_extensions(r)? } else { Extensions::default() };
    let meta = RecordMeta {
        checksum,
        etag,
        version,
        backend_version,
        class: if flags & OWNED != 0 { Class::Owned } else { Class::Cache },
        backed: flags & BACKED != 0,
        dirty: flags & DIRTY != 0,
        epoch,
        validated_ns,
        atime_ns,
        mtime_ns,
        custom,
        parts: parts.unwrap_or_default(),
        extensions,
    };
    Ok((generation, meta))
}

/// Skips the fields that [`decode_rest`] reads. Returns the time of modification.
pub(super) fn skip_rest(r: &mut Reader<'_>, flags: u8) -> Result<u64> {
    r.varint()?;
    if r.u8()? != 0 {
        r.skip_text()?;
    }
    for _ in 0..3 {
        r.skip_text()?;
    }
    r.varint()?;
    let mtime_ns = r.u64()?;
    for flag in [ACCESSED, VALIDATED] {
        if flags & flag != 0 {
            r.varint()?;
        }
    }
    for _ in 0..r.varint()? {
        r.skip_text()?;
        r.skip_text()?;
    }
    if flags & EXTENDED != 0 {
        skip_extensions(r)?;
    }
    Ok(mtime_ns)
}

/// The files of an object, and the bytes in all of them.
pub(super) fn decode_files(r: &mut Reader<'_>, sequence: u64) -> Result<(Vec<Extent>, u64)> {
    let count = r.varint()?;
    let mut files = Vec::new();
    let mut total = 0u64;
    for _ in 0..count {
        let file = Extent { id: r.delta(sequence)?, size: r.varint()? };
        total = total
            .checked_add(file.size)
            .ok_or_else(|| damaged("the files of an object are too large"))?;
        files.push(file);
    }
    Ok((files, total))
}

fn check_len(len: usize, name: &str) -> Result<()> {
    if len > MAX_RECORD {
        return Err(Error::invalid(format!(
            "metadata of object \"{name}\" takes {len} bytes, the limit is {MAX_RECORD}"
        ))
        .hint("store less custom metadata"));
    }
    Ok(())
}
