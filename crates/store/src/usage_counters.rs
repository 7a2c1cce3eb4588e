//! The accounts of a disk, kept beside the index and changed with it, so that opening needs no
//! scan.

use std::collections::BTreeMap;

use super::bucket_counts::WholeCounts;
use super::log::Position;
use super::record::Record;

/// The accounts of one segment of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentUsage {
    /// Bytes of all its frames, header and damaged stretches included.
    pub(crate) len: u64,
    /// Bytes of frames that are the newest of their objects.
    pub(crate) live: u64,
    /// Bytes of removals, which stay while an older segment may hold the records that they remove.
    pub(crate) removals: u64,
    /// Smallest sequence of a record in it.
    pub(crate) oldest: u64,
}

impl SegmentUsage {
    /// Bytes that rewriting the segment would free.
    pub(crate) fn dead(&self) -> u64 {
        self.len.saturating_sub(self.live + self.removals)
    }
}

/// The accounts of one disk at one position of its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageCounters {
    /// Everything before it is in the index.
    pub(crate) position: Position,
    pub(crate) objects: u64,
    /// Bytes of payload.
    pub(crate) bytes: u64,
    /// Space of object files.
    pub(crate) files: u64,
    pub(crate) segments: BTreeMap<u64, SegmentUsage>,
    /// By bucket id; none of a bucket without objects here.
    buckets: BTreeMap<u64, WholeCounts>,
    /// Sums over the segments.
    log: u64,
    live: u64,
}

/// A change of the accounts of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    Live(i64),
    Removal(u64),
    /// The segment ends here now.
    End(u64),
    /// It holds a record of this sequence.
    Sequence(u64),
}

impl UsageCounters {
    /// Space that live objects take.
    pub(crate) fn stored(&self) -> u64 {
        self.files + self.live
    }

    /// Space of the log that no object needs.
    pub(crate) fn dead(&self) -> u64 {
        self.log.saturating_sub(self.live)
    }

    /// Counts a record that was added to the index.
    pub(crate) fn add(&mut self, record: &Record) {
        self.objects += 1;
        self.bytes += record.size;
        self.files += record.file_bytes();
        self.buckets.entry(record.bucket_id).or_default().add(record);
    }

    /// Counts a record that was removed from the index.
    pub(crate) fn subtract(&mut self, record: &Record) {
        self.objects = self.objects.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(record.size);
        self.files = self.files.saturating_sub(record.file_bytes());
        if let Some(counts) = self.buckets.get_mut(&record.bucket_id) {
            counts.subtract(record);
            if counts.objects == 0 {
                self.buckets.remove(&record.bucket_id);
            }
        }
    }

    /// The counters of one bucket.
    pub(crate) fn bucket(&self, id: u64) -> WholeCounts {
        self.buckets.get(&id).copied().unwrap_or_default()
    }

    /// The counters of all buckets that have objects on the disk.
    pub(crate) fn buckets(&self) -> &BTreeMap<u64, WholeCounts> {
        &self.buckets
    }

    /// Sets the counters of all buckets.
    pub(crate) fn set_buckets(&mut self, buckets: BTreeMap<u64, WholeCounts>) {
        self.buckets = buckets;
    }

    /// Changes the accounts of a segment. Changes of a removed segment are ignored.
    pub(crate) fn shift(&mut self, segment: u64, shift: Shift) {
        let known = self.segments.contains_key(&segment);
        if !known && !matches!(shift, Shift::End(_)) {
            return;
        }
        let new = || SegmentUsage { oldest: u64::MAX, ..SegmentUsage::default() };
        let s = self.segments.entry(segment).or_insert_with(new);
        match shift {
            Shift::Live(by) => {
                let before = s.live;
                s.live = s.live.saturating_add_signed(by);
                self.live = (self.live + s.live).saturating_sub(before);
            }
            Shift::Removal(bytes) => s.removals += bytes,
            Shift::End(end) => {
                let grown = end.saturating_sub(s.len);
                s.len += grown;
                self.log += grown;
            }
            Shift::Sequence(sequence) => s.oldest = s.oldest.min(sequence),
        }
    }

    /// Drops the accounts of a removed segment.
    pub(crate) fn forget(&mut self, segment: u64) {
        if let Some(s) = self.segments.remove(&segment) {
            self.log = self.log.saturating_sub(s.len);
            self.live = self.live.saturating_sub(s.live);
        }
    }

    /// Sets the accounts of a segment.
    pub(crate) fn adopt(&mut self, segment: u64, accounts: SegmentUsage) {
        self.forget(segment);
        self.log += accounts.len;
        self.live += accounts.live;
        self.segments.insert(segment, accounts);
    }

    /// Whether a removal of this sequence, in `segment`, still hides a record on a rebuild.
    pub(crate) fn hides(&self, segment: u64, sequence: u64) -> bool {
        self.segments.iter().any(|(id, s)| *id != segment && s.oldest < sequence)
    }

    /// Encodes the accounts of the disk as a whole; segments and buckets have entries of their
    /// own.
    pub(crate) fn encode(&self) -> [u8; 40] {
        let mut out = [0; 40];
        let fields =
            [self.position.segment, self.position.offset, self.objects, self.bytes, self.files];
        for (slot, field) in out.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        out
    }

    /// Decodes the result of [`Self::encode`], without segments and buckets. `None` if
    /// the bytes are not valid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [segment, offset, objects, bytes, files] = numbers(bytes)?;
        let position = Position { segment, offset };
        Some(Self { position, objects, bytes, files, ..Self::default() })
    }
}

impl SegmentUsage {
    pub(crate) fn encode(&self) -> [u8; 32] {
        let mut out = [0; 32];
        let fields = [self.len, self.live, self.removals, self.oldest];
        for (slot, field) in out.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [len, live, removals, oldest] = numbers(bytes)?;
        Some(Self { len, live, removals, oldest })
    }
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    if bytes.len() != N * 8 {
        return None;
    }
    let mut out = [0; N];
    for (number, chunk) in out.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_le_bytes(chunk.try_into().ok()?);
    }
    Some(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn usage_counters(segments: [(u64, SegmentUsage); 2]) -> UsageCounters {
        let mut usage_counters = UsageCounters { files: 5, ..UsageCounters::default() };
        segments.into_iter().for_each(|(id, s)| usage_counters.adopt(id, s));
        usage_counters
    }

    #[test]
    fn dead_space_is_what_no_object_needs() {
        let a = SegmentUsage { len: 100, live: 30, removals: 10, oldest: 1 };
        let b = SegmentUsage { len: 50, live: 50, removals: 0, oldest: 7 };
        let t = usage_counters([(1, a), (2, b)]);
        assert_eq!((t.stored(), t.dead(), a.dead(), b.dead()), (85, 70, 60, 0));
    }

    #[test]
    fn a_removal_counts_while_another_segment_is_older() {
        let a = SegmentUsage { oldest: 4, ..SegmentUsage::default() };
        let b = SegmentUsage { oldest: 7, ..SegmentUsage::default() };
        let t = usage_counters([(1, a), (2, b)]);
        assert!(t.hides(2, 5));
        assert!(!t.hides(2, 4));
        assert!(!t.hides(1, 5));
    }

    #[test]
    fn sums_follow_every_shift() {
        let mut t = UsageCounters::default();
        t.shift(3, Shift::Live(10));
        assert_eq!(t, UsageCounters::default(), "a segment begins with its first frame");
        t.shift(3, Shift::End(100));
        t.shift(3, Shift::Live(60));
        t.shift(3, Shift::Live(-20));
        t.shift(3, Shift::End(90));
        t.shift(4, Shift::End(50));
        assert_eq!((t.stored(), t.dead()), (40, 110));
        t.forget(3);
        assert_eq!((t.stored(), t.dead()), (0, 50));
    }

    #[test]
    fn accounts_are_read_as_they_were_written() {
        let position = Position { segment: 3, offset: 99 };
        let t =
            UsageCounters { position, objects: 1, bytes: 2, files: 3, ..UsageCounters::default() };
        assert_eq!(UsageCounters::decode(&t.encode()), Some(t));
        let s = SegmentUsage { len: 9, live: 8, removals: 7, oldest: u64::MAX };
        assert_eq!(SegmentUsage::decode(&s.encode()), Some(s));
        assert_eq!(SegmentUsage::decode(b"short"), None);
    }
}
