//! Settings of the cache and of the scrub.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::size::ByteSize;

/// Filling and eviction of the cache.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// High watermark: eviction starts above this percentage of a disk's budget.
    pub high: u8,
    /// Low watermark: eviction stops below this percentage.
    pub low: u8,
    /// Out-of-space watermark: above this percentage, reads from a backend keep no copy.
    pub out_of_space: u8,
    /// Order of eviction. `density`: copies with the fewest expected hits per time first; `lru`: the
    /// least recently used first. The former `sieve` and `s3-fifo` are read as `density`, with a warning.
    pub policy: CachePolicy,
    /// Seconds after the owners of objects changed until a target drops its cached copies of objects that
    /// another target owns now; 0: they stay until the cache needs their space.
    pub unowned_s: u32,
}

impl CacheConfig {
    /// Time until copies of objects of other targets are dropped, if they are.
    pub fn unowned_after(&self) -> Option<Duration> {
        (self.unowned_s > 0).then(|| Duration::from_secs(self.unowned_s.into()))
    }
}

/// The order in which cached copies are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CachePolicy {
    /// Lowest expected hits per unit of time first.
    #[default]
    Density,
    /// Least recently used.
    Lru,
}

/// Values of settings that earlier versions had: the key, the value, and the one that is used in its
/// place. A node that finds one in its configuration logs a warning.
pub const RETIRED_VALUES: [(&str, &str, &str); 2] =
    [("cache.policy", "sieve", "density"), ("cache.policy", "s3-fifo", "density")];

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            high: 90,
            low: 80,
            out_of_space: 95,
            policy: CachePolicy::default(),
            unowned_s: 3600,
        }
    }
}

/// Background comparison of stored bytes with their checksums.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScrubConfig {
    /// Whether the scrub runs.
    pub enabled: bool,
    /// Bytes that the scrub reads from each disk per second; fewer while the disk is busy. The default
    /// checks a terabyte in 17 hours.
    pub bytes_per_second: ByteSize,
    /// Hours between the end of one pass over a disk and the start of the next.
    pub pause_hours: u32,
}

impl Default for ScrubConfig {
    fn default() -> Self {
        Self { enabled: true, bytes_per_second: ByteSize(16 << 20), pause_hours: 7 * 24 }
    }
}
