//! Segments of the log and the frames they are made of.
//!
//! ```text
//! header:  magic "FBSEGMNT", format u16, features (6 bytes, segment_state), segment u64, disk u64,
//!          salt u64, CRC-32C u32 of all before it, 0 u32, salt, CRC-32C and end of the frames again
//! frame:   magic u32, head u32, payload u32, CRC-32C u32, record, block table, payload,
//!          zeros to a multiple of 8
//! ```
//! `head` counts the bytes before the payload. The checksum covers salt, segment u64, offset u32,
//! the fixed fields before it, record and block table: a frame inside a payload, one that
//! was moved and one that stood there before cannot pass.

use crc_fast::{CrcAlgorithm, Digest};
use forebay_core::checksum::crc32c;
use forebay_core::{Error, Result};

use super::record::{Commit, Entry, commit_of, decode_entry, encode_entry, entry_bound};
use super::segment_state::{SegmentState, encode_features, knows_features};
use super::{
    BLOCK, FORMAT, FORMAT_2, MAX_PAYLOAD, MAX_RECORD, TABLE_ENTRY, bad_block, damaged, table_len,
    unknown_features, unknown_format,
};
use crate::record::{Record, Spot};

/// Bytes of the header of a segment.
pub(crate) const SEGMENT_HEADER: u64 = 64;
/// Bytes of the fixed part of a frame.
pub(crate) const FIXED: usize = 16;
/// Frames begin at multiples of this.
pub(crate) const ALIGN: u64 = 8;
/// Most bytes of a frame before its payload.
pub(crate) const MAX_HEAD: usize =
    FIXED + MAX_RECORD + (MAX_PAYLOAD / BLOCK * TABLE_ENTRY) as usize;

const SEGMENT_MAGIC: &[u8; 8] = b"FBSEGMNT";
/// Not valid UTF-8 and not to be met by chance in texts.
const FRAME_MAGIC: [u8; 4] = [0xfb, b'F', b'R', 0xf2];

/// The values that the frames of a segment are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Format of the records in the segment.
    pub(crate) format: u16,
    pub(crate) segment: u64,
    pub(crate) disk_id: u64,
    /// Random, and never sent anywhere.
    pub(crate) salt: u64,
}

impl SegmentHeader {
    /// The header of a segment in this state. `None`: as it was before headers had a state.
    pub(crate) fn encode(&self, state: Option<SegmentState>) -> [u8; SEGMENT_HEADER as usize] {
        let mut out = [0; SEGMENT_HEADER as usize];
        out[..8].copy_from_slice(SEGMENT_MAGIC);
        out[8..10].copy_from_slice(&self.format.to_le_bytes());
        out[10..16].copy_from_slice(&encode_features(state));
        out[16..24].copy_from_slice(&self.segment.to_le_bytes());
        out[24..32].copy_from_slice(&self.disk_id.to_le_bytes());
        out[32..40].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c(&out[..40]).to_le_bytes();
        out[40..44].copy_from_slice(&crc);
        out[48..56].copy_from_slice(&self.salt.to_le_bytes());
        out[56..60].copy_from_slice(&crc);
        out[60..].copy_from_slice(&state.map_or(0, SegmentState::end).to_le_bytes());
        out
    }

    /// Reads the header of the segment that should be `segment` of disk `disk_id`, and the state of
    /// the segment. No state: the length of the file has it.
    ///
    /// All but format, state and salt is known, formats and states are few, and the salt and the
    /// end of the frames are stored twice: one sound copy of these and one sound checksum are
    /// enough. `Unsupported`: another version wrote it.
    pub(crate) fn decode(
        bytes: &[u8; SEGMENT_HEADER as usize],
        segment: u64,
        disk_id: u64,
    ) -> Result<(Self, Option<SegmentState>)> {
        let number = |at: usize| {
            bytes[at..].first_chunk::<8>().map_or(0, |chunk| u64::from_le_bytes(*chunk))
        };
        let end = |at: usize| {
            bytes[at..].first_chunk::<4>().map_or(0, |chunk| u32::from_le_bytes(*chunk))
        };
        let (first, second) = (&bytes[40..44], &bytes[56..60]);
        let stated = SegmentState::candidates([end(12), end(60)]).map(|s| (FORMAT, Some(s)));
        for (format, state) in stated.into_iter().chain([(FORMAT, None), (FORMAT_2, None)]) {
            for salt in [number(32), number(48)] {
                let header = Self { format, segment, disk_id, salt };
                let crc = &header.encode(state)[40..44];
                if crc == first || crc == second {
                    return Ok((header, state));
                }
            }
        }
        let sound =
            crc32c(&bytes[..40]).to_le_bytes() == *first && bytes.starts_with(SEGMENT_MAGIC);
        let what = "a segment of the log";
        let format = u16::from_le_bytes([bytes[8], bytes[9]]);
        let features = bytes[10..].first_chunk().copied().unwrap_or_default();
        let is_known = match format {
            FORMAT => knows_features(features),
            _ => features == encode_features(None),
        };
        Err(match sound {
            true if !matches!(format, FORMAT_2 | FORMAT) => unknown_format(what, format),
            true if !is_known => unknown_features(what),
            true => damaged("it belongs to another disk or has another segment's name"),
            false => damaged("its header fails its checksum"),
        })
    }

    /// Whether frames of `other` could be taken for those of this segment at the same places.
    pub(crate) fn takes_frames_of(&self, other: &Self) -> bool {
        self.bound() == other.bound()
    }

    /// The contribution of salt and segment to a frame's checksum; the rest is equal at one place.
    fn bound(&self) -> u32 {
        let mut bound = [0; 16];
        bound[..8].copy_from_slice(&self.salt.to_le_bytes());
        bound[8..].copy_from_slice(&self.segment.to_le_bytes());
        crc32c(&bound)
    }

    fn crc(&self, offset: u64, fixed: &[u8], rest: &[u8]) -> u32 {
        let mut bound = [0; 32];
        bound[..8].copy_from_slice(&self.salt.to_le_bytes());
        bound[8..16].copy_from_slice(&self.segment.to_le_bytes());
        bound[16..20].copy_from_slice(&(offset as u32).to_le_bytes());
        bound[20..].copy_from_slice(&fixed[..12]);
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&bound);
        digest.update(rest);
        digest.finalize() as u32
    }
}

/// The fields before a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fixed {
    /// Bytes before the payload.
    pub(crate) head: u32,
    pub(crate) payload: u32,
}

/// Whether a frame may begin with these bytes; a cheap check.
pub(crate) fn may_begin_frame(bytes: &[u8]) -> bool {
    bytes.starts_with(&FRAME_MAGIC)
}

impl Fixed {
    /// Reads the fixed fields, if a frame may begin with these bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        if *magic != FRAME_MAGIC {
            return None;
        }
        let (head, rest) = rest.split_first_chunk::<4>()?;
        let (payload, _) = rest.split_first_chunk::<4>()?;
        let fixed = Self { head: u32::from_le_bytes(*head), payload: u32::from_le_bytes(*payload) };
        let table = table_len(u64::from(fixed.payload));
        let fits = u64::from(fixed.payload) <= MAX_PAYLOAD
            && fixed.head as usize <= MAX_HEAD
            && u64::from(fixed.head) > FIXED as u64 + table;
        fits.then_some(fixed)
    }

    /// Bytes of the whole frame.
    pub(crate) fn frame_bytes(self) -> u64 {
        frame_bytes(self.head, u64::from(self.payload))
    }

    fn table(self) -> usize {
        table_len(u64::from(self.payload)) as usize
    }
}

/// Bytes that a frame takes in its segment.
pub(crate) fn frame_bytes(head: u32, payload: u64) -> u64 {
    (u64::from(head) + payload).next_multiple_of(ALIGN)
}

/// An upper bound for the bytes of the frame of an entry with this payload size, without building
/// it.
pub(crate) fn frame_bound(entry: &Entry, payload: u64) -> u64 {
    let head = (FIXED + entry_bound(entry)) as u64 + table_len(payload);
    (head + payload).next_multiple_of(ALIGN)
}

/// Appends the head of a frame at `offset` to `out`: all of it but payload and zeros.
pub(crate) fn encode_head(
    out: &mut Vec<u8>,
    segment: &SegmentHeader,
    offset: u64,
    entry: &Entry,
    payload: &[u8],
) -> Result<Spot> {
    let start = out.len();
    if payload.len() as u64 > MAX_PAYLOAD || offset > u64::from(u32::MAX) {
        return Err(Error::internal(format!("object \"{}\" does not fit a segment", entry.name())));
    }
    out.extend_from_slice(&FRAME_MAGIC);
    out.extend_from_slice(&[0; 12]);
    encode_entry(out, entry)?;
    for block in payload.chunks(BLOCK as usize) {
        out.extend_from_slice(&crc32c(block).to_le_bytes());
    }
    let frame = &mut out[start..];
    let head = frame.len() as u32;
    frame[4..8].copy_from_slice(&head.to_le_bytes());
    frame[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let crc = segment.crc(offset, frame, &frame[FIXED..]);
    frame[12..16].copy_from_slice(&crc.to_le_bytes());
    Ok(Spot { segment: segment.segment, offset: offset as u32, head })
}

/// Reads the head of a frame at `offset`; `head` is exactly the head. The payload is not checked.
pub(crate) fn decode_head(head: &[u8], segment: &SegmentHeader, offset: u64) -> Result<Entry> {
    let fixed = Fixed::decode(head).filter(|f| f.head as usize == head.len());
    let fixed = fixed.ok_or_else(|| damaged("a frame has no sound beginning"))?;
    let (first, rest) = head.split_at(FIXED);
    if segment.crc(offset, first, rest).to_le_bytes() != first[12..] {
        return Err(damaged("a frame fails its checksum"));
    }
    let offset = u32::try_from(offset).map_err(|_| damaged("a frame lies too far behind"))?;
    let spot = Spot { segment: segment.segment, offset, head: fixed.head };
    let record = &rest[..rest.len() - fixed.table()];
    decode_entry(record, segment.format, spot, u64::from(fixed.payload))
}

/// A sound frame with a payload.
pub(crate) struct Opened<'a> {
    pub(crate) commit: Commit,
    pub(crate) payload: &'a [u8],
    record: &'a [u8],
    format: u16,
    spot: Spot,
}

impl Opened<'_> {
    /// All of the record.
    pub(crate) fn record(&self) -> Option<Record> {
        match decode_entry(self.record, self.format, self.spot, self.payload.len() as u64) {
            Ok(Entry::Put(record)) => Some(*record),
            _ => None,
        }
    }
}

/// Reads a frame at `offset` and checks every byte. Decodes only as much as one commit of a known
/// object needs. `None` if it is damaged, or not of this object, or if its record has extensions.
pub(crate) fn open_frame<'a>(
    frame: &'a [u8],
    segment: &SegmentHeader,
    offset: u64,
    bucket_id: u64,
    name: &str,
) -> Option<Opened<'a>> {
    let fixed = Fixed::decode(frame)?;
    let (head, payload) = frame.split_at_checked(fixed.head as usize)?;
    let (first, rest) = head.split_at(FIXED);
    let (record, table) = rest.split_at(rest.len().checked_sub(fixed.table())?);
    let is_sound = payload.len() == fixed.payload as usize
        && segment.crc(offset, first, rest).to_le_bytes() == first[12..]
        && bad_block(payload, table).is_none();
    let commit = is_sound.then(|| commit_of(record, bucket_id, name))??;
    let offset = u32::try_from(offset).ok()?;
    let spot = Spot { segment: segment.segment, offset, head: fixed.head };
    Some(Opened { commit, payload, record, format: segment.format, spot })
}

/// The block table at the end of a sound head.
pub(crate) fn split_table(head: &[u8], payload: u64) -> &[u8] {
    &head[head.len().saturating_sub(table_len(payload) as usize)..]
}
