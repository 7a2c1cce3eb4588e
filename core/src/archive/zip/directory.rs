//! The directory at the end of a zip archive, which alone says what is in it.

use std::io::{BufReader, Read};

use super::{cut_off, field, u16_at, u32_at, u64_at};
use crate::archive::damaged;
use crate::archive::index::{Member, Members, Packed, ShardIndex};
use crate::archive::limits::Limits;
use crate::archive::source::{ReadAt, Section, from_io};
use crate::archive::stat::Stat;
use crate::error::{Error, Result};

const END: &[u8; 4] = b"PK\x05\x06";
const END_LEN: u64 = 22;
const END64: &[u8; 4] = b"PK\x06\x06";
const END64_LEN: u64 = 56;
const LOCATOR: &[u8; 4] = b"PK\x06\x07";
const LOCATOR_LEN: u64 = 20;
const ENTRY: &[u8; 4] = b"PK\x01\x02";
const ENTRY_LEN: usize = 46;
/// Longest comment behind the end record.
const MAX_COMMENT: u64 = 65_535;
/// Extra field with numbers of 64 bits.
const EXTRA_64: u16 = 1;
/// Extra field with times in seconds since 1970 (Info-ZIP's extended timestamp), and its flag for the
/// time of change, which comes first.
const EXTRA_TIMES: u16 = 0x5455;
const CHANGED: u8 = 1;
const FLAG_ENCRYPTED_DIRECTORY: u16 = 1 << 13;
const UNIX: u8 = 3;
const STEP: usize = 64 << 10;

/// Where the directory lies.
struct Directory {
    start: u64,
    size: u64,
    entries: u64,
    /// Bytes before the archive proper (a program that unpacks it, for example).
    prepended: u64,
}

/// Finds the members of a zip archive by its directory alone.
pub(crate) fn read_directory(source: &dyn ReadAt, limits: &Limits) -> Result<ShardIndex> {
    let directory = find(source)?;
    let section = Section::from(source, directory.start).take(directory.size);
    let mut input = BufReader::with_capacity(STEP, section);
    let mut members = Members::new(limits);
    let mut packed = Vec::new();
    let mut unpacked = 0u64;
    for _ in 0..directory.entries {
        let Some((member, how)) = read_entry(&mut input, &directory, limits)? else { continue };
        unpacked = unpacked.saturating_add(member.size);
        limits.check_ratio(how.size, member.size).map_err(|e| named(e, &member.name))?;
        // Members may not all claim the same bytes.
        limits.check_ratio(source.size(), unpacked)?;
        members.push(member)?;
        packed.push(how);
    }
    Ok(ShardIndex::zip(members.list, packed))
}

fn named(error: Error, member: &str) -> Error {
    Error { message: format!("member \"{member}\" {}", error.message), ..error }
}

fn find(source: &dyn ReadAt) -> Result<Directory> {
    let size = source.size();
    let tail_len = size.min(END_LEN + MAX_COMMENT);
    let mut tail = vec![0; tail_len as usize];
    source.read_exact_at(&mut tail, size - tail_len)?;
    let at = (0..(tail.len() + 1).saturating_sub(END_LEN as usize))
        .rev()
        .find(|at| tail[*at..].starts_with(END) && comment_fits(&tail[*at..]))
        .ok_or_else(|| {
            damaged(format!("the zip archive ends at byte {size} without its directory"))
                .hint("it was cut off, or it is not a zip archive")
        })?;
    let record = &tail[at..];
    let end_at = size - tail_len + at as u64;
    let (disk, first_disk) = (u16_at(record, 4)?, u16_at(record, 6)?);
    let entries = u64::from(u16_at(record, 10)?);
    let (len, start) = (u64::from(u32_at(record, 12)?), u64::from(u32_at(record, 16)?));
    let large = disk == u16::MAX
        || entries == u64::from(u16::MAX)
        || len == u64::from(u32::MAX)
        || start == u64::from(u32::MAX);
    if large && let Some(directory) = find_large(source, end_at)? {
        return Ok(directory);
    }
    if disk != 0 || first_disk != 0 {
        return Err(Error::unsupported("a zip archive of several files is not read"));
    }
    placed(end_at, len, start, entries)
}

fn comment_fits(record: &[u8]) -> bool {
    let told = u16_at(record, 20).map(usize::from);
    told.is_ok_and(|told| END_LEN as usize + told == record.len())
}

/// The directory as the zip64 records tell it; `None` when there are none.
fn find_large(source: &dyn ReadAt, end_at: u64) -> Result<Option<Directory>> {
    let Some(locator_at) = end_at.checked_sub(LOCATOR_LEN) else { return Ok(None) };
    let mut locator = [0; LOCATOR_LEN as usize];
    source.read_exact_at(&mut locator, locator_at)?;
    if !locator.starts_with(LOCATOR) {
        return Ok(None);
    }
    let told = u64_at(&locator, 8)?;
    // Where it says, or (when something was put before the archive) right before the locator.
    for at in [Some(told), locator_at.checked_sub(END64_LEN)].into_iter().flatten() {
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
        let entries = u64_at(&record, 32)?;
        return placed(at, u64_at(&record, 40)?, u64_at(&record, 48)?, entries).map(Some);
    }
    Err(damaged("the zip archive's 64-bit end record is not where it should be"))
}

/// The directory ends where its end record begins, whatever was put before the archive.
fn placed(end: u64, size: u64, told: u64, entries: u64) -> Result<Directory> {
    let start = end.checked_sub(size).ok_or_else(cut_off)?;
    let prepended = start.checked_sub(told).ok_or_else(cut_off)?;
    if entries > size / ENTRY_LEN as u64 {
        return Err(damaged(format!("the zip archive claims {entries} members in {size} bytes")));
    }
    Ok(Directory { start, size, entries, prepended })
}

/// The next entry of the directory; `None` for one that is not a regular file.
fn read_entry(
    input: &mut impl Read,
    directory: &Directory,
    limits: &Limits,
) -> Result<Option<(Member, Packed)>> {
    let mut fixed = [0; ENTRY_LEN];
    fill(input, &mut fixed)?;
    if !fixed.starts_with(ENTRY) {
        return Err(damaged("the zip archive's directory is damaged"));
    }
    let lens = [u16_at(&fixed, 28)?, u16_at(&fixed, 30)?, u16_at(&fixed, 32)?];
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
    let flags = u16_at(&fixed, 8)?;
    if flags & FLAG_ENCRYPTED_DIRECTORY != 0 {
        return Err(Error::unsupported("the zip archive's directory is encrypted"));
    }
    let [mut size, mut packed, mut offset] = [
        u64::from(u32_at(&fixed, 24)?),
        u64::from(u32_at(&fixed, 20)?),
        u64::from(u32_at(&fixed, 42)?),
    ];
    widen(extra, [&mut size, &mut packed, &mut offset])?;
    let offset = offset
        .checked_add(directory.prepended)
        .filter(|at| at.checked_add(packed).is_some_and(|end| end <= directory.start));
    let name = String::from_utf8_lossy(name).into_owned();
    let Some(offset) = offset else {
        return Err(damaged(format!("member \"{name}\" lies outside of the zip archive")));
    };
    let made_on = fixed[5];
    let mode = u32_at(&fixed, 38)? >> 16;
    // Where a mode is told, its type decides: links and devices are nobody's data.
    let other = made_on == UNIX && !matches!(mode & 0o170_000, 0 | 0o100_000);
    if name.ends_with('/') || other {
        return Ok(None);
    }
    let method = u16_at(&fixed, 10)?;
    let crc32 = u32_at(&fixed, 16)?;
    let how = Packed { method, flags, size: packed, crc32 };
    let is_told = made_on == UNIX && mode != 0;
    let mode = if is_told { mode } else { u32::from(Stat::default().mode) };
    let stat = match changed(extra) {
        Some(at) => Stat::new(i64::from(at), mode),
        None => Stat::of_dos(u16_at(&fixed, 14)?, u16_at(&fixed, 12)?, mode),
    };
    Ok(Some((Member { name, offset, size, stat }, how)))
}

/// The time of change in seconds since 1970, where extra fields have one. Damaged ones have none.
fn changed(mut extra: &[u8]) -> Option<i32> {
    loop {
        let (&[id, id_high, len, len_high], rest) = extra.split_first_chunk()?;
        let len = usize::from(u16::from_le_bytes([len, len_high]));
        let (data, rest) = rest.split_at_checked(len)?;
        if u16::from_le_bytes([id, id_high]) == EXTRA_TIMES {
            let (flags, times) = data.split_first()?;
            let at = times.first_chunk().copied().map(i32::from_le_bytes);
            return at.filter(|_| flags & CHANGED != 0);
        }
        extra = rest;
    }
}

/// Numbers that did not fit into 32 bits stand in an extra field, in this order.
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
