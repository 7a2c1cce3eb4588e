//! The directory at the end of a zip archive, which lists its entries.

use std::io::{BufReader, Read};

use forebay_core::error::{Error, Result};
use forebay_core::shard::Stat;

use super::naming::{LegacyNames, NameEncoding, decode_name, extra_field};
use super::{LOCAL, cut_off, field, u16_at, u32_at, u64_at};
use crate::damaged;
use crate::index::{Member, Members, Packed, ShardIndex};
use crate::limits::Limits;
use crate::source::{ReadAt, Section, from_io};

const END: &[u8; 4] = b"PK\x05\x06";
const END_LEN: u64 = 22;
const END64: &[u8; 4] = b"PK\x06\x06";
const END64_LEN: u64 = 56;
const LOCATOR: &[u8; 4] = b"PK\x06\x07";
const LOCATOR_LEN: u64 = 20;
const ENTRY: &[u8; 4] = b"PK\x01\x02";
const ENTRY_LEN: usize = 46;
/// A signature after the entries.
const SIGNATURE: &[u8; 4] = b"PK\x05\x05";
/// Longest comment after the end record.
const MAX_COMMENT: u64 = 65_535;
/// Extra field with numbers of 64 bits.
const EXTRA_64: u16 = 1;
/// Extra field with times in seconds since 1970 (Info-ZIP's extended timestamp), and its flag for
/// the modification time, which comes first.
const EXTRA_TIMES: u16 = 0x5455;
const CHANGED: u8 = 1;
const FLAG_ENCRYPTED_DIRECTORY: u16 = 1 << 13;
const UNIX: u8 = 3;
const BUFFER_BYTES: usize = 64 << 10;

/// Maximum number of end records tried: data may contain bytes that look like one.
const MAX_END_RECORDS: usize = 64;

/// Position of the directory.
struct Directory {
    start: u64,
    size: u64,
    entries: Entries,
    /// Bytes before the archive proper (a self-extracting program, for example).
    prepended: u64,
}

/// Number of entries in the directory, from an end record.
#[derive(Clone, Copy)]
enum Entries {
    /// In 16 bits, which some writers let overflow.
    Low(u16),
    All(u64),
}

impl Entries {
    fn is(self, count: u64) -> bool {
        match self {
            Self::Low(low) => low == count as u16,
            Self::All(all) => all == count,
        }
    }
}

impl std::fmt::Display for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Low(low) => low.fmt(f),
            Self::All(all) => all.fmt(f),
        }
    }
}

/// Finds the members of a zip archive by its directory alone.
pub(crate) fn read_directory(source: &dyn ReadAt, limits: &Limits) -> Result<ShardIndex> {
    let directory = find(source)?;
    let section = Section::from(source, directory.start).take(directory.size);
    let mut input = BufReader::with_capacity(BUFFER_BYTES, section);
    let mut members = Members::new(limits);
    let mut packed = Vec::new();
    let mut unpacked = 0u64;
    let mut names = LegacyNames::default();
    let mut count = 0u64;
    while let Some(fixed) = next_entry(&mut input)? {
        count += 1;
        let entry = read_entry(&fixed, &mut input, &directory, limits)?;
        let Some(Entry { member, how, name_encoding }) = entry else { continue };
        unpacked = unpacked.saturating_add(member.size);
        limits.check_ratio(how.size, member.size).map_err(|e| named(e, &member.name))?;
        // Rejects members that all claim the same bytes.
        limits.check_ratio(source.size(), unpacked)?;
        names.note(members.list.len(), &name_encoding);
        members.push(member)?;
        packed.push(how);
    }
    if !directory.entries.is(count) {
        let claimed = directory.entries;
        return Err(damaged(format!("the zip archive claims {claimed} members and has {count}")));
    }
    names.decode(&mut members.list);
    Ok(ShardIndex::zip(members.list, packed))
}

fn named(error: Error, member: &str) -> Error {
    Error { message: format!("member \"{member}\" {}", error.message), ..error }
}

/// Finds the directory by its end record: the one that ends the file with its comment, otherwise
/// the last one that other bytes follow.
fn find(source: &dyn ReadAt) -> Result<Directory> {
    let size = source.size();
    let tail_len = size.min(END_LEN + MAX_COMMENT);
    let mut tail = vec![0; tail_len as usize];
    source.read_exact_at(&mut tail, size - tail_len)?;
    let records = || {
        let starts = (0..(tail.len() + 1).saturating_sub(END_LEN as usize)).rev();
        starts.filter(|at| tail[*at..].starts_with(END)).take(MAX_END_RECORDS)
    };
    let exact = records().filter(|at| behind(&tail[*at..]).is_some_and(|rest| rest.is_empty()));
    let followed = records().filter(|at| match behind(&tail[*at..]) {
        Some(rest) => !rest.is_empty() && !has_records(rest),
        // A truncated comment loses no member.
        None => !has_records(&tail[*at + END_LEN as usize..]),
    });
    let mut problem = None;
    for at in exact.chain(followed) {
        match described(source, &tail[at..], size - tail_len + at as u64) {
            Ok(directory) => return Ok(directory),
            Err(e) => problem = problem.or(Some(e)),
        }
    }
    Err(problem.unwrap_or_else(|| {
        damaged(format!("the zip archive ends at byte {size} without its directory"))
            .hint("it was cut off, or it is not a zip archive")
    }))
}

/// The bytes after an end record and its comment; `None` if the comment is truncated.
fn behind(record: &[u8]) -> Option<&[u8]> {
    let comment = u16_at(record, 20).ok()?;
    record.get(END_LEN as usize + usize::from(comment)..)
}

/// Whether the bytes after an end record belong to a zip archive; the record is then part of an
/// archive nested in a truncated one.
fn has_records(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|window| window == ENTRY || window == LOCAL)
}

/// The directory that the end record at `end_at` describes, using the 64-bit records before it if
/// there are any: some writers add these where 32 bits suffice.
fn described(source: &dyn ReadAt, record: &[u8], end_at: u64) -> Result<Directory> {
    let (disk, first_disk) = (u16_at(record, 4)?, u16_at(record, 6)?);
    let entries = u16_at(record, 10)?;
    let (len, start) = (u64::from(u32_at(record, 12)?), u64::from(u32_at(record, 16)?));
    let is_large = disk == u16::MAX
        || entries == u16::MAX
        || len == u64::from(u32::MAX)
        || start == u64::from(u32::MAX);
    match find_large(source, end_at) {
        Ok(Some(directory)) => return Ok(directory),
        Err(e) if is_large => return Err(e),
        // The bytes only looked like a 64-bit record.
        Ok(None) | Err(_) => {}
    }
    if disk != 0 || first_disk != 0 {
        return Err(Error::unsupported("a zip archive of several files is not read"));
    }
    placed(source, end_at, len, start, Entries::Low(entries))
}

/// The directory from the zip64 records; `None` if there are none.
fn find_large(source: &dyn ReadAt, end_at: u64) -> Result<Option<Directory>> {
    let Some(locator_at) = end_at.checked_sub(LOCATOR_LEN) else { return Ok(None) };
    let mut locator = [0; LOCATOR_LEN as usize];
    source.read_exact_at(&mut locator, locator_at)?;
    if !locator.starts_with(LOCATOR) {
        return Ok(None);
    }
    let stored_offset = u64_at(&locator, 8)?;
    // At the stored offset, or (if bytes were prepended to the archive) directly before the
    // locator.
    for at in [Some(stored_offset), locator_at.checked_sub(END64_LEN)].into_iter().flatten() {
        if at.checked_add(END64_LEN).is_none_or(|end| end > locator_at) {
            continue;
        }
        let mut record = [0; END64_LEN as usize];
        source.read_exact_at(&mut record, at)?;
        if !record.starts_with(END64) {
            continue;
        }
        if u32_at(&record, 16)? != 0 || u32_at(&record, 20)? != 0 {
            return Err(Error::unsupported("a zip archive of several files is not read"));
        }
        let entries = Entries::All(u64_at(&record, 32)?);
        return placed(source, at, u64_at(&record, 40)?, u64_at(&record, 48)?, entries).map(Some);
    }
    Err(damaged("the zip archive's 64-bit end record is not where it should be"))
}

/// Locates the directory: it ends where its end record begins, whatever was prepended to the
/// archive; or it begins at the stored offset, and other bytes lie between it and the end record.
fn placed(
    source: &dyn ReadAt,
    end: u64,
    size: u64,
    stored_offset: u64,
    entries: Entries,
) -> Result<Directory> {
    let before_end = end.checked_sub(size).ok_or_else(cut_off)?;
    let prepended = before_end.checked_sub(stored_offset);
    if size == 0 {
        let prepended = prepended.ok_or_else(cut_off)?;
        return Ok(Directory { start: before_end, size, entries, prepended });
    }
    let as_stored = (stored_offset < before_end).then_some((stored_offset, 0));
    let places = prepended.map(|prepended| (before_end, prepended));
    for (start, prepended) in places.into_iter().chain(as_stored) {
        let mut signature = [0; 4];
        source.read_exact_at(&mut signature, start)?;
        if signature == *ENTRY {
            return Ok(Directory { start, size, entries, prepended });
        }
    }
    Err(match prepended {
        Some(_) => damaged("the zip archive's directory is damaged"),
        None => cut_off(),
    })
}

/// The fixed part of the next entry; `None` at the directory's end.
fn next_entry(input: &mut impl Read) -> Result<Option<[u8; ENTRY_LEN]>> {
    let mut fixed = [0; ENTRY_LEN];
    let mut first = [0; 1];
    // At the very end there are no bytes; anything else is a complete entry or an error.
    if input.read(&mut first).map_err(from_io)? == 0 {
        return Ok(None);
    }
    fixed[0] = first[0];
    fill(input, &mut fixed[1..4])?;
    if fixed.starts_with(SIGNATURE) {
        return Ok(None);
    }
    if !fixed.starts_with(ENTRY) {
        return Err(damaged("the zip archive's directory is damaged"));
    }
    fill(input, &mut fixed[4..])?;
    Ok(Some(fixed))
}

/// A member with the fields that only the directory has.
struct Entry {
    member: Member,
    how: Packed,
    name_encoding: NameEncoding,
}

/// Reads the rest of a directory entry; `None` for one that is not a file with data.
fn read_entry(
    fixed: &[u8; ENTRY_LEN],
    input: &mut impl Read,
    directory: &Directory,
    limits: &Limits,
) -> Result<Option<Entry>> {
    let lens = [u16_at(fixed, 28)?, u16_at(fixed, 30)?, u16_at(fixed, 32)?];
    let mut rest = vec![0; lens.into_iter().map(usize::from).sum()];
    fill(input, &mut rest)?;
    let (name, rest) = rest.split_at(usize::from(lens[0]));
    let extra = &rest[..usize::from(lens[1])];
    if name.len() > limits.name_bytes {
        return Err(damaged(format!(
            "a member's name has {} bytes; the limit is {}",
            name.len(),
            limits.name_bytes
        )));
    }
    let flags = u16_at(fixed, 8)?;
    if flags & FLAG_ENCRYPTED_DIRECTORY != 0 {
        return Err(Error::unsupported("the zip archive's directory is encrypted"));
    }
    let [mut size, mut packed, mut offset] = [
        u64::from(u32_at(fixed, 24)?),
        u64::from(u32_at(fixed, 20)?),
        u64::from(u32_at(fixed, 42)?),
    ];
    widen(extra, [&mut size, &mut packed, &mut offset])?;
    let offset = offset
        .checked_add(directory.prepended)
        .filter(|at| at.checked_add(packed).is_some_and(|end| end <= directory.start));
    let (name, name_encoding) = decode_name(name, flags, extra);
    let Some(offset) = offset else {
        return Err(damaged(format!("member \"{name}\" lies outside of the zip archive")));
    };
    let made_on = fixed[5];
    let mode = u32_at(fixed, 38)? >> 16;
    // Links, devices and folders have no data. `zip` marks its standard input as a pipe.
    let is_bare =
        matches!(mode & 0o170_000, 0o040_000 | 0o120_000 | 0o020_000 | 0o060_000 | 0o140_000);
    if name.ends_with('/') || (made_on == UNIX && is_bare) {
        return Ok(None);
    }
    let method = u16_at(fixed, 10)?;
    let crc32 = u32_at(fixed, 16)?;
    let how = Packed { method, flags, size: packed, crc32 };
    let is_set = made_on == UNIX && mode != 0;
    let mode = if is_set { mode } else { u32::from(Stat::default().mode) };
    let stat = match changed(extra) {
        Some(at) => Stat::new(i64::from(at), mode),
        None => Stat::of_dos(u16_at(fixed, 14)?, u16_at(fixed, 12)?, mode),
    };
    let member = Member { name, offset, size, stat, is_sparse: false };
    Ok(Some(Entry { member, how, name_encoding }))
}

/// The modification time in seconds since 1970 from an extra field, if there is one. Damaged fields
/// are ignored.
fn changed(extra: &[u8]) -> Option<i32> {
    let (flags, times) = extra_field(extra, EXTRA_TIMES)?.split_first()?;
    let at = times.first_chunk().copied().map(i32::from_le_bytes);
    at.filter(|_| flags & CHANGED != 0)
}

/// Reads numbers that do not fit into 32 bits from an extra field, in this order.
fn widen(mut extra: &[u8], numbers: [&mut u64; 3]) -> Result<()> {
    if numbers.iter().all(|n| **n != u64::from(u32::MAX)) {
        return Ok(());
    }
    while extra.len() >= 4 {
        let (id, len) = (u16_at(extra, 0)?, usize::from(u16_at(extra, 2)?));
        let data = extra.get(4..4 + len).ok_or_else(cut_off)?;
        if id == EXTRA_64 {
            let mut at = 0;
            for number in numbers {
                if *number == u64::from(u32::MAX) {
                    *number = field(data, at).map(u64::from_le_bytes)?;
                    at += 8;
                }
            }
            return Ok(());
        }
        extra = &extra[4 + len..];
    }
    Ok(())
}

fn fill(input: &mut impl Read, buf: &mut [u8]) -> Result<()> {
    input.read_exact(buf).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => cut_off(),
        _ => from_io(e),
    })
}
