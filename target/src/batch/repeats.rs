//! Entries that a batch names more than once: read once, returned each time.

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::batch::{BatchEntry, BatchRequest};
// Each entry of a batch is hashed, and this costs a quarter of the standard library's map.
use hashbrown::HashMap;

/// Entries that are compared with each other at a time, so that a request for a million does not
/// wait until all were compared.
const WINDOW: usize = 16 << 10;

/// The repeated entries, and their results.
#[derive(Default)]
pub(super) struct Repeats {
    /// Entries before this position were compared.
    seen: usize,
    /// The first entry of its kind, by later positions.
    first: HashMap<usize, usize>,
    /// How often a first entry is still repeated.
    left: HashMap<usize, usize>,
    kept: HashMap<usize, Result<Bytes>>,
    /// Bytes of `kept`.
    bytes: usize,
}

impl Repeats {
    /// The earlier position of the same entry. Positions must be passed in order.
    pub(super) fn of(
        &mut self,
        request: &BatchRequest,
        wanted: &[usize],
        position: usize,
    ) -> Option<usize> {
        if position >= self.seen {
            self.seen = wanted.len().min(position + WINDOW);
            let mut firsts: HashMap<&BatchEntry, usize> =
                HashMap::with_capacity(self.seen - position);
            for (at, index) in wanted.iter().enumerate().take(self.seen).skip(position) {
                let first = *firsts.entry(&request.entries[*index]).or_insert(at);
                if first != at {
                    self.first.insert(at, first);
                    *self.left.entry(first).or_default() += 1;
                }
            }
        }
        if self.first.is_empty() { None } else { self.first.remove(&position) }
    }

    /// Whether the result of an entry that was read is needed once more.
    pub(super) fn comes_again(&self, position: usize) -> bool {
        self.left.contains_key(&position)
    }

    /// Keeps a result as long as its entry is repeated, and all results within `most` bytes.
    pub(super) fn keep(&mut self, first: usize, answer: &Result<Bytes>, most: usize) {
        let size = size(answer);
        if self.left.contains_key(&first) && self.bytes + size <= most {
            self.bytes += size;
            self.kept.insert(first, answer.clone());
        }
    }

    /// The result for an entry that repeats the one at `first`, if it was kept.
    pub(super) fn take(&mut self, first: usize) -> Option<Result<Bytes>> {
        let answer = self.kept.get(&first).cloned();
        self.answered(first);
        answer
    }

    /// Records that an entry that repeats the one at `first` was returned.
    pub(super) fn answered(&mut self, first: usize) {
        let Some(left) = self.left.get_mut(&first) else { return };
        *left -= 1;
        if *left == 0 {
            self.left.remove(&first);
            self.bytes -= self.kept.remove(&first).as_ref().map_or(0, size);
        }
    }
}

fn size(answer: &Result<Bytes>) -> usize {
    answer.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use forebay_core::ObjectName;

    #[test]
    fn what_comes_again_is_kept_until_its_last_time_and_no_more_than_fits() {
        let entry = |name: &str| BatchEntry::whole(0, ObjectName::new(name).unwrap());
        let part = BatchEntry { range: Some((1, None)), ..entry("a") };
        let entries = vec![entry("a"), entry("b"), entry("a"), part, entry("b"), entry("a")];
        let request = BatchRequest { buckets: Vec::new(), entries, ordered: true };
        let wanted: Vec<usize> = (0..6).collect();
        let mut repeats = Repeats::default();
        let of: Vec<_> = wanted.iter().map(|at| repeats.of(&request, &wanted, *at)).collect();
        assert_eq!(of, [None, None, Some(0), None, Some(1), Some(0)], "a part is another entry");
        repeats.keep(0, &Ok("12345".into()), 8);
        repeats.keep(1, &Ok("6789".into()), 8);
        repeats.keep(3, &Ok("x".into()), 8);
        assert_eq!(repeats.bytes, 5, "one did not fit, one never comes again");
        assert_eq!(repeats.take(0).unwrap().unwrap(), "12345");
        assert!(repeats.take(1).is_none());
        assert_eq!(repeats.take(0).unwrap().unwrap(), "12345");
        assert_eq!((repeats.bytes, repeats.left.len()), (0, 0));
    }
}
