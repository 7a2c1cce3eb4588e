//! A location of an object, and the slot of four words that holds it.

use crate::record::{Place, Record};

pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// A [`Known`] in four words:
///
/// ```text
/// upper half of the digest u32, segment u32 | offset u32, length u24, disk u8
/// epoch u32, time of validation in seconds u32 | last access in nanoseconds u64
/// ```
/// A length of 0: nothing is noted.
pub(super) type Slot = [u64; 4];

/// A location of an object, and the fields of its record that may have changed since it was
/// written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) disk: usize,
    pub(crate) segment: u64,
    pub(crate) offset: u32,
    /// Bytes of the frame: head and payload.
    pub(crate) len: u32,
    /// As in the record's metadata; the time of validation in whole seconds.
    pub(crate) epoch: u64,
    pub(crate) validated_ns: u64,
    pub(crate) atime_ns: u64,
}

impl Known {
    /// `None` if the object is in files, or its numbers are too large for a slot.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let Place::Log(spot) = &record.place else { return None };
        let meta = &record.meta;
        let known = Self {
            disk: record.disk,
            segment: spot.segment,
            offset: spot.offset,
            len: u32::try_from(record.size.checked_add(u64::from(spot.head))?).ok()?,
            epoch: meta.epoch,
            validated_ns: meta.validated_ns / SECOND_NS * SECOND_NS,
            atime_ns: meta.atime_ns,
        };
        (Self::unpack(known.pack(0)?) == known).then_some(known)
    }

    pub(super) fn pack(self, digest: u64) -> Option<Slot> {
        let narrow = |n: u64| u32::try_from(n).ok().map(u64::from);
        let len = Some(u64::from(self.len)).filter(|len| (1..1 << 24).contains(len))?;
        let disk = u64::from(u8::try_from(self.disk).ok()?);
        Some([
            digest >> 32 << 32 | narrow(self.segment)?,
            u64::from(self.offset) << 32 | len << 8 | disk,
            narrow(self.epoch)? << 32 | narrow(self.validated_ns / SECOND_NS)?,
            self.atime_ns,
        ])
    }

    pub(super) fn unpack(slot: Slot) -> Self {
        let low = |word: u64| word & u64::from(u32::MAX);
        Self {
            disk: (slot[1] & 0xff) as usize,
            segment: low(slot[0]),
            offset: (slot[1] >> 32) as u32,
            len: low(slot[1]) as u32 >> 8,
            epoch: slot[2] >> 32,
            validated_ns: low(slot[2]) * SECOND_NS,
            atime_ns: slot[3],
        }
    }
}

pub(super) fn is_empty(slot: &Slot) -> bool {
    slot[1] as u32 >> 8 == 0
}

pub(super) fn is_of(slot: &Slot, digest: u64) -> bool {
    slot[0] >> 32 == digest >> 32 && !is_empty(slot)
}
