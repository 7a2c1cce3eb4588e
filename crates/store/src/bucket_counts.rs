//! The counters of one bucket on one disk, and their form in the index.

use super::record::Record;

/// Bytes of an encoded [`WholeCounts`].
const ENCODED_BYTES: usize = 24;

/// Whole copies under one bucket id on one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WholeCounts {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// Smallest access time that a record had when it was added, since there was none.
    pub(crate) oldest_ns: u64,
}

impl WholeCounts {
    pub(crate) fn add(&mut self, record: &Record) {
        let atime_ns = record.meta.atime_ns;
        self.oldest_ns = if self.objects == 0 { atime_ns } else { self.oldest_ns.min(atime_ns) };
        self.objects += 1;
        self.bytes += record.size;
    }

    pub(crate) fn subtract(&mut self, record: &Record) {
        self.objects = self.objects.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(record.size);
    }

    pub(crate) fn encode(&self) -> [u8; ENCODED_BYTES] {
        let mut out = [0; ENCODED_BYTES];
        let fields = [self.objects, self.bytes, self.oldest_ns];
        for (slot, field) in out.chunks_exact_mut(8).zip(fields) {
            slot.copy_from_slice(&field.to_le_bytes());
        }
        out
    }

    /// Decodes the result of [`Self::encode`]. `None` if the bytes are not valid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let number = |n: usize| {
            let field = bytes.get(n * 8..(n + 1) * 8)?;
            field.try_into().ok().map(u64::from_le_bytes)
        };
        let counts = Self { objects: number(0)?, bytes: number(1)?, oldest_ns: number(2)? };
        (bytes.len() == ENCODED_BYTES).then_some(counts)
    }
}

/// Partial objects of one bucket on one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartialCounts {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordMeta;

    #[test]
    fn counters_are_read_as_they_were_written() {
        let counts = WholeCounts { objects: 3, bytes: 1 << 40, oldest_ns: 7 };
        assert_eq!(WholeCounts::decode(&counts.encode()), Some(counts));
        assert_eq!(WholeCounts::decode(&counts.encode()[..23]), None);
        assert_eq!(WholeCounts::decode(&[0; 25]), None);
    }

    #[test]
    fn the_bound_is_that_of_the_oldest_copy_since_the_bucket_was_empty() {
        let record = |atime_ns| {
            let meta = RecordMeta { atime_ns, ..RecordMeta::default() };
            Record::for_test("o", 10, 1, meta)
        };
        let mut counts = WholeCounts::default();
        [record(30), record(20), record(40)].iter().for_each(|r| counts.add(r));
        assert_eq!(counts, WholeCounts { objects: 3, bytes: 30, oldest_ns: 20 });
        counts.subtract(&record(20));
        assert_eq!(counts.oldest_ns, 20, "a lower bound is left");
        counts.subtract(&record(30));
        counts.subtract(&record(40));
        counts.add(&record(50));
        assert_eq!(counts.oldest_ns, 50);
    }
}
