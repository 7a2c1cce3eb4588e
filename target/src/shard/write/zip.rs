//! ZIP as a stream of stored members: local headers in front, the directory at the end, ZIP64
//! where 32 bits do not suffice.
//!
//! Written here because a batch may name one thing twice, and so may its archive.

use bytes::{BufMut, Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};
use forebay_core::shard::Stat;
use forebay_core::{Error, Result};

/// Members up to this size are held until their checksum is known, so that it precedes them; the
/// checksum of larger ones follows their data.
const HELD: u64 = 1 << 20;
const MAX32: u64 = u32::MAX as u64;

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END64: u32 = 0x0606_4b50;
const END64_LOCATOR: u32 = 0x0706_4b50;
const END: u32 = 0x0605_4b50;

const UTF8_NAME: u16 = 1 << 11;
const CHECKSUM_BEHIND: u16 = 1 << 3;
/// Extra field with numbers of 64 bits.
const EXTRA_64: u16 = 1;
/// Extra field with the modification time in seconds since 1970 (Info-ZIP's extended timestamp), as
/// its flag indicates, and the length of the whole field.
const EXTRA_TIMES: u16 = 0x5455;
const CHANGED: u8 = 1;
const TIMES_LEN: u16 = 9;
/// Version that a reader needs: for folders, or ZIP64.
const VERSION: u16 = 20;
const VERSION64: u16 = 45;
/// Attributes are those of Unix.
const UNIX: u16 = 3 << 8;
/// Type of a regular file, beside its mode.
const REGULAR: u32 = 0o100_000;

#[derive(Default)]
pub(super) struct ZipWriter {
    out: BytesMut,
    /// Bytes taken so far.
    taken: u64,
    directory: BytesMut,
    count: u64,
    open: Option<Open>,
}

struct Open {
    name: Vec<u8>,
    size: u64,
    offset: u64,
    /// The member's entry in another archive.
    stat: Option<Stat>,
    crc: Digest,
    /// Data of a member that is held until its end.
    held: Option<BytesMut>,
}

impl Open {
    fn stat(&self) -> Stat {
        self.stat.unwrap_or_default()
    }

    /// The time for an extra field of its own: DOS has a resolution of two seconds. `None` if only
    /// the time of DOS is known, or beyond the field's 31 bits (2038).
    fn changed(&self) -> Option<i32> {
        let stat = self.stat.filter(|stat| !stat.local)?;
        i32::try_from(stat.mtime).ok()
    }
}

impl ZipWriter {
    pub(super) fn begin(&mut self, name: &str, size: u64, stat: Option<Stat>) -> Result<()> {
        if name.len() > usize::from(u16::MAX) {
            return Err(Error::invalid("the name of a zip's member has at most 65535 bytes"));
        }
        let crc = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
        let held = (size <= HELD).then(|| BytesMut::with_capacity(size as usize));
        let open = Open { name: name.into(), size, offset: self.at(), stat, crc, held };
        if open.held.is_none() {
            self.local_header(&open, 0);
        }
        self.open = Some(open);
        Ok(())
    }

    pub(super) fn data(&mut self, bytes: &[u8]) {
        let Some(open) = &mut self.open else { return };
        open.crc.update(bytes);
        match &mut open.held {
            Some(held) => held.extend_from_slice(bytes),
            None => self.out.extend_from_slice(bytes),
        }
    }

    pub(super) fn end(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        let crc = open.crc.finalize() as u32;
        let (held, streamed) = (open.held.take(), open.size > HELD);
        match held {
            Some(data) => {
                self.local_header(&open, crc);
                self.out.extend_from_slice(&data);
            }
            None => {
                self.out.put_u32_le(DESCRIPTOR);
                self.out.put_u32_le(crc);
                // Compressed and uncompressed: a stored member's sizes are equal.
                for _ in 0..2 {
                    if open.size >= MAX32 {
                        self.out.put_u64_le(open.size);
                    } else {
                        self.out.put_u32_le(low(open.size));
                    }
                }
            }
        }
        self.directory_entry(&open, crc, streamed);
        self.count += 1;
    }

    pub(super) fn take(&mut self) -> Bytes {
        self.taken += self.out.len() as u64;
        self.out.split().freeze()
    }

    pub(super) fn ready(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(mut self) -> Bytes {
        let (start, size) = (self.at(), self.directory.len() as u64);
        let directory = std::mem::take(&mut self.directory);
        self.out.extend_from_slice(&directory);
        let count16 = u16::try_from(self.count).unwrap_or(u16::MAX);
        if self.count >= u64::from(u16::MAX) || start >= MAX32 || size >= MAX32 {
            let end64 = self.at();
            self.out.put_u32_le(END64);
            self.out.put_u64_le(44);
            self.out.put_u16_le(UNIX | VERSION64);
            self.out.put_u16_le(VERSION64);
            self.out.put_u64_le(0);
            self.out.put_u64_le(self.count);
            self.out.put_u64_le(self.count);
            self.out.put_u64_le(size);
            self.out.put_u64_le(start);
            self.out.put_u32_le(END64_LOCATOR);
            self.out.put_u32_le(0);
            self.out.put_u64_le(end64);
            self.out.put_u32_le(1);
        }
        self.out.put_u32_le(END);
        self.out.put_u32_le(0);
        self.out.put_u16_le(count16);
        self.out.put_u16_le(count16);
        self.out.put_u32_le(low(size));
        self.out.put_u32_le(low(start));
        self.out.put_u16_le(0);
        self.out.freeze()
    }

    fn at(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    fn local_header(&mut self, open: &Open, crc: u32) {
        let streamed = open.size > HELD;
        let large = open.size >= MAX32;
        let out = &mut self.out;
        out.put_u32_le(LOCAL);
        put_common(out, large, streamed, open.stat());
        let size = if streamed { 0 } else { open.size };
        out.put_u32_le(crc);
        out.put_u32_le(if large { u32::MAX } else { low(size) });
        out.put_u32_le(if large { u32::MAX } else { low(size) });
        out.put_u16_le(open.name.len() as u16);
        let changed = open.changed();
        out.put_u16_le(if large { 20 } else { 0 } + changed.map_or(0, |_| TIMES_LEN));
        out.extend_from_slice(&open.name);
        if large {
            // Its presence means that the sizes behind the data have 64 bits.
            out.put_u16_le(EXTRA_64);
            out.put_u16_le(16);
            out.put_u64_le(size);
            out.put_u64_le(size);
        }
        put_changed(out, changed);
    }

    fn directory_entry(&mut self, open: &Open, crc: u32, streamed: bool) {
        let mut extra = BytesMut::new();
        if open.size >= MAX32 {
            extra.put_u64_le(open.size);
            extra.put_u64_le(open.size);
        }
        if open.offset >= MAX32 {
            extra.put_u64_le(open.offset);
        }
        let large = !extra.is_empty();
        let changed = open.changed();
        let out = &mut self.directory;
        out.put_u32_le(CENTRAL);
        out.put_u16_le(UNIX | if large { VERSION64 } else { VERSION });
        put_common(out, large, streamed, open.stat());
        out.put_u32_le(crc);
        out.put_u32_le(low(open.size));
        out.put_u32_le(low(open.size));
        out.put_u16_le(open.name.len() as u16);
        let large_len = if large { extra.len() as u16 + 4 } else { 0 };
        out.put_u16_le(large_len + changed.map_or(0, |_| TIMES_LEN));
        // No comment, first disk, no internal attributes.
        out.put_bytes(0, 6);
        out.put_u32_le((REGULAR | u32::from(open.stat().mode)) << 16);
        out.put_u32_le(low(open.offset));
        out.extend_from_slice(&open.name);
        if large {
            out.put_u16_le(EXTRA_64);
            out.put_u16_le(extra.len() as u16);
            out.extend_from_slice(&extra);
        }
        put_changed(out, changed);
    }
}

fn put_changed(out: &mut BytesMut, changed: Option<i32>) {
    let Some(at) = changed else { return };
    out.put_u16_le(EXTRA_TIMES);
    out.put_u16_le(TIMES_LEN - 4);
    out.put_u8(CHANGED);
    out.put_i32_le(at);
}

/// Version needed, flags, method "stored", time and date: the same in both kinds of header.
fn put_common(out: &mut BytesMut, large: bool, streamed: bool, stat: Stat) {
    let (date, time) = stat.dos();
    out.put_u16_le(if large { VERSION64 } else { VERSION });
    out.put_u16_le(UTF8_NAME | if streamed { CHECKSUM_BEHIND } else { 0 });
    out.put_u16_le(0);
    out.put_u16_le(time);
    out.put_u16_le(date);
}

/// A number of at most 32 bits, or the mark for the ZIP64 field.
fn low(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Cursor, Read, Seek, SeekFrom};

    use super::*;

    #[test]
    fn more_members_than_sixteen_bits_count_are_all_found() {
        let mut writer = ZipWriter::default();
        for n in 0..70_000 {
            writer.begin(&format!("m/{n}"), 1, None).unwrap();
            writer.data(&[n as u8]);
            writer.end();
        }
        let mut archive = zip::ZipArchive::new(Cursor::new(writer.finish())).unwrap();
        assert_eq!(archive.len(), 70_000);
        let mut last = Vec::new();
        archive.by_name("m/69999").unwrap().read_to_end(&mut last).unwrap();
        assert_eq!(last, [69_999_u32 as u8]);
    }

    /// An archive whose middle is zeroes that are not kept.
    struct Sparse {
        head: Bytes,
        zeroes: u64,
        tail: Bytes,
        at: u64,
    }

    impl Read for Sparse {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let (head, body) = (self.head.len() as u64, self.head.len() as u64 + self.zeroes);
            let read = if self.at < head {
                (&self.head[self.at as usize..]).read(buffer)?
            } else if self.at < body {
                let n = buffer.len().min((body - self.at) as usize);
                buffer[..n].fill(0);
                n
            } else {
                let from = ((self.at - body) as usize).min(self.tail.len());
                (&self.tail[from..]).read(buffer)?
            };
            self.at += read as u64;
            Ok(read)
        }
    }

    impl Seek for Sparse {
        fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
            let end = self.head.len() as u64 + self.zeroes + self.tail.len() as u64;
            self.at = match to {
                SeekFrom::Start(at) => at,
                SeekFrom::End(by) => end.saturating_add_signed(by),
                SeekFrom::Current(by) => self.at.saturating_add_signed(by),
            };
            Ok(self.at)
        }
    }

    #[test]
    fn members_larger_than_four_gib_and_behind_them_are_found() {
        let zeroes = vec![0; 16 << 20];
        let size: u64 = (4 << 30) + (16 << 20);
        let mut writer = ZipWriter::default();
        // With a time, so that there are both extra fields.
        let stat = Some(Stat::new(1_700_000_001, 0o600));
        writer.begin("huge", size, stat).unwrap();
        let head = writer.take();
        for _ in 0..size / zeroes.len() as u64 {
            writer.data(&zeroes);
            writer.take();
        }
        writer.end();
        writer.begin("behind", 3, stat).unwrap();
        writer.data(b"abc");
        writer.end();
        let whole = Sparse { head, zeroes: size, tail: writer.finish(), at: 0 };
        let mut archive = zip::ZipArchive::new(whole).unwrap();
        let huge = archive.by_name("huge").unwrap();
        assert_eq!((huge.size(), huge.unix_mode()), (size, Some(0o100_600)));
        drop(huge);
        let mut behind = Vec::new();
        archive.by_name("behind").unwrap().read_to_end(&mut behind).unwrap();
        assert_eq!(behind, b"abc");
    }
}
