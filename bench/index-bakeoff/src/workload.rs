//! The keys and values: names of a data set in a few buckets, and records of small objects.

use anyhow::{Context as _, Result};
use xxhash_rust::xxh64::xxh64;

/// Key and value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Changes that the committer of a disk applies at once.
pub const BATCH: u64 = 256;
/// Bytes of a value; what a record of a small object takes, with an ETag and a version.
pub const VALUE: usize = 90;
const BUCKETS: u64 = 4;
const PER_FOLDER: u64 = 1300;

/// The objects of one run: `n` keys, which come in an order of their own.
#[derive(Clone, Debug)]
pub struct Workload {
    pub keys: u64,
    pub seed: u64,
    pub ascending: bool,
}

impl Workload {
    /// Number of batches that hold all keys; the last one may be short.
    pub fn batches(&self) -> u64 {
        self.keys.div_ceil(BATCH)
    }

    /// Entries of batch `number`, counted from 0.
    pub fn batch(&self, number: u64) -> Vec<Entry> {
        let first = number * BATCH;
        let last = (first + BATCH).min(self.keys);
        (first..last)
            .map(|sequence| (self.key(self.rank(sequence)), self.value(sequence)))
            .collect()
    }

    /// Place in the order of names of the key that comes as `sequence`th.
    pub fn rank(&self, sequence: u64) -> u64 {
        if self.ascending { sequence } else { shuffled(sequence, self.keys, self.seed) }
    }

    /// The key of that rank: bucket id, then a name of 24 to 26 bytes.
    pub fn key(&self, rank: u64) -> Vec<u8> {
        let per_bucket = self.keys.div_ceil(BUCKETS);
        let (bucket, at) = (rank / per_bucket, rank % per_bucket);
        let ending = ["jpg", "jpeg", "cls", "json"][(xxh64(&rank.to_le_bytes(), 1) % 4) as usize];
        let mut key = (0x5eed_0000_0000_0000 + bucket).to_be_bytes().to_vec();
        key.extend(format!("train/n{:05}/{at:08}.{ending}", at / PER_FOLDER).bytes());
        key
    }

    /// A key that sorts right behind the one of `rank` and is not there.
    pub fn absent(&self, rank: u64) -> Vec<u8> {
        let mut key = self.key(rank);
        key.extend(b".missing");
        key
    }

    /// First key of a bucket and the first of the next.
    pub fn bucket(&self, bucket: u64) -> (Vec<u8>, Vec<u8>) {
        let of = |b: u64| (0x5eed_0000_0000_0000 + b).to_be_bytes().to_vec();
        (of(bucket), of(bucket + 1))
    }

    /// Names of one full bucket.
    pub fn per_bucket(&self) -> u64 {
        self.keys.div_ceil(BUCKETS).min(self.keys)
    }

    /// The record: sequence, generation, times, sizes, place in the log; a checksum, an ETag and
    /// a version that no compressor can shorten much.
    pub fn value(&self, sequence: u64) -> Vec<u8> {
        let random = |salt: u64| xxh64(&sequence.to_le_bytes(), self.seed ^ salt).to_le_bytes();
        let mut value = Vec::with_capacity(VALUE);
        value.extend(sequence.to_le_bytes());
        value.extend(((1u64 << 40) + sequence).to_le_bytes());
        value.extend((1_760_000_000_000_000_000 + sequence * 37_123).to_le_bytes());
        value.extend((1024 + (sequence * 7919 % 65_536) as u32).to_le_bytes());
        value.extend((sequence / 200_000).to_le_bytes());
        value.extend(((sequence % 200_000 * 1_320) as u32).to_le_bytes());
        value.extend(112u32.to_le_bytes());
        value.extend([random(11), random(12), random(13)].concat());
        let version = format!("{:016x}{:08x}", u64::from_le_bytes(random(14)), sequence);
        value.extend(version.bytes().take(VALUE - value.len()));
        value
    }

    /// Which one an entry is, if it is one of this run at all.
    pub fn sequence_of(&self, key: &[u8], value: &[u8]) -> Option<u64> {
        let sequence = u64::from_le_bytes(*value.first_chunk()?);
        let same = sequence < self.keys
            && self.key(self.rank(sequence)) == key
            && self.value(sequence) == value;
        same.then_some(sequence)
    }
}

/// Reads a stored position.
pub fn position(bytes: Option<&[u8]>) -> Result<Option<u64>> {
    bytes
        .map(|b| Ok(u64::from_le_bytes(b.try_into().context("a position of another length")?)))
        .transpose()
}

/// A permutation of `0..n` by a Feistel network over the next power of four, walked until it
/// falls inside.
fn shuffled(at: u64, n: u64, seed: u64) -> u64 {
    let half = (64 - n.saturating_sub(1).leading_zeros()).max(2).div_ceil(2);
    let mask = (1u64 << half) - 1;
    let mut at = at;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..4u64 {
            let mixed = xxh64(&right.to_le_bytes(), seed.wrapping_mul(31) + round) & mask;
            (left, right) = (right, left ^ mixed);
        }
        at = left << half | right;
        if at < n {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shuffle_visits_every_rank_once() {
        for n in [1, 2, 3, 255, 256, 1000, 4097] {
            let mut seen: Vec<u64> = (0..n).map(|i| shuffled(i, n, 7)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>());
        }
    }

    #[test]
    fn keys_ascend_with_their_rank_and_have_the_promised_length() {
        let work = Workload { keys: 10_000, seed: 1, ascending: false };
        let keys: Vec<_> = (0..work.keys).map(|rank| work.key(rank)).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(keys.iter().all(|key| (30..=40).contains(&key.len())));
    }

    #[test]
    fn an_entry_tells_which_one_it_is() {
        let work = Workload { keys: 1000, seed: 3, ascending: false };
        let (key, value) = work.batch(1).swap_remove(5);
        assert_eq!(value.len(), VALUE);
        assert_eq!(work.sequence_of(&key, &value), Some(BATCH + 5));
        assert_eq!(work.sequence_of(&key[1..], &value), None);
    }
}
