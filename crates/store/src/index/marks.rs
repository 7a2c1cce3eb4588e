//! The marks of the index: which batch changed each of its parts last.
//!
//! Each part recovers by itself after a crash. The marks show whether all of them are of one time.

use std::sync::MutexGuard;

use forebay_core::Result;
use forebay_core::locks::MutexExt;

use super::{BUCKETS, Index, PARTS, number};

/// In the state: the last batch that changed each part. In each part: the last batch that it has.
pub(super) const MARKS: &[u8] = b"marks";
/// No other key is that short.
pub(super) const MARK: &[u8] = b"\xff";

/// Numbers of batches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    pub(super) last: u64,
    /// The last batch that changed each part.
    pub(super) of: [u64; PARTS],
}

impl Marks {
    pub(super) fn encode(&self) -> Vec<u8> {
        std::iter::once(self.last).chain(self.of).flat_map(u64::to_be_bytes).collect()
    }

    /// Decodes the result of [`Self::encode`], and whether the counters of buckets have a mark:
    /// they are the last part, and an index of an earlier version has none.
    fn decode(bytes: &[u8]) -> Option<(Self, bool)> {
        let numbers: Vec<u64> = bytes.chunks(8).map(number).collect::<Option<_>>()?;
        let (last, marks) = numbers.split_first()?;
        let mut of = [0; PARTS];
        if marks.len() != PARTS && marks.len() != BUCKETS {
            return None;
        }
        of[..marks.len()].copy_from_slice(marks);
        Some((Self { last: *last, of }, marks.len() == PARTS))
    }
}

impl Index {
    /// Whether every part of the index has all that was written to it. Each part recovers by
    /// itself, and a damaged journal may leave one behind the others. Returns whether the index
    /// counts its buckets.
    pub(super) fn check_marks(&self) -> Result<bool> {
        let marks = self.state.get(MARKS).map_err(|e| self.failed(&e))?;
        let (marks, counts_buckets) = match marks {
            Some(bytes) => Marks::decode(&bytes).ok_or_else(|| self.damaged("its marks"))?,
            // Nothing was written to it yet.
            None => (Marks::default(), true),
        };
        for (part, expected) in self.parts().into_iter().zip(marks.of) {
            let mark = part.get(MARK).map_err(|e| self.failed(&e))?;
            let found = mark.map_or(Some(0), |bytes| number(&bytes));
            if found != Some(expected) {
                return Err(self.damaged("its parts are of different times"));
            }
        }
        *self.marks() = marks;
        Ok(counts_buckets)
    }

    pub(super) fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.locked()
    }
}
