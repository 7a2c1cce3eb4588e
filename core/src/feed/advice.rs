//! The largest causes of a feed's waits, each with its remedy.

use serde::Serialize;

use super::{Cause, Feed};
use crate::warmth::BucketWarmth;

/// Causes with a smaller share of the waits are left out.
const MIN_SHARE: f64 = 0.05;
/// With a smaller share of waiting in the time of the steps nothing needs to be done.
pub const NEGLIGIBLE_WAIT_SHARE: f64 = 0.02;
/// A bucket of which a smaller share is cached is not warm.
const WARM_BYTE_SHARE: f64 = 0.9;
/// A shard of fewer bytes costs more requests than it needs.
const SMALL_READ_BYTES: u64 = 64 << 10;

/// A cause, its part of the waits, and what to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub cause: Cause,
    pub seconds: f64,
    /// The share of the waits, 0 to 1.
    pub share: f64,
    /// A description of the cause.
    pub text: &'static str,
    pub remedies: Vec<String>,
}

/// The causes of a feed that matter, the largest first. `warmth`: of the buckets of the feed, as far
/// as it is known.
pub fn findings(feed: &Feed, warmth: &[BucketWarmth]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Cause::ALL
        .iter()
        .map(|&cause| {
            let seconds = feed.causes.get(cause);
            let share = if feed.wait_s > 0.0 { (seconds / feed.wait_s).min(1.0) } else { 0.0 };
            let remedies = Vec::new();
            Finding { cause, seconds, share, text: text(cause), remedies }
        })
        .filter(|finding| finding.share >= MIN_SHARE)
        .collect();
    found.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for finding in &mut found {
        finding.remedies = remedies(finding.cause, feed, warmth);
    }
    found
}

fn text(cause: Cause) -> &'static str {
    match cause {
        Cause::Cold => "objects that are not cached and came from the cloud",
        Cause::Disk => "reads from the disks of the targets",
        Cause::Queue => "targets that are busy with other requests",
        Cause::Network => "bytes on the network between targets and client",
        Cause::Client => "the client's CPU: checksums, unpacking, copies",
        Cause::Decode => "decoding and transforms of the dataset",
        Cause::Collate => "samples put together to batches",
        Cause::Worker => "workers that start, or hand over their batches",
    }
}

fn remedies(cause: Cause, feed: &Feed, warmth: &[BucketWarmth]) -> Vec<String> {
    match cause {
        Cause::Cold => cold(feed, warmth),
        Cause::Disk => vec![
            "find the slow disk: forebay disk ls, and forebay doctor".into(),
            "spread the reads: more targets or disks, or more copies of the bucket \
             (forebay bucket set BUCKET copies=2)"
                .into(),
        ],
        Cause::Queue => vec![
            "spread the load: more targets, or more copies of the bucket".into(),
            "find the other clients of the targets: forebay cluster info".into(),
            "raise limits.batches and limits.batch_memory if the targets have CPU and memory left"
                .into(),
        ],
        Cause::Network => network(feed),
        Cause::Client => vec![
            "more workers, or ThreadLoader, which unpacks without the interpreter".into(),
            "larger objects: pack small ones into shards (forebay ishard)".into(),
        ],
        Cause::Decode => vec![
            "more workers: num_workers of DataLoader, or threads of ThreadLoader if the decoder \
             releases the interpreter lock"
                .into(),
            "decode less per step: store smaller images, or transform once with an ETL".into(),
        ],
        Cause::Collate => vec![
            "forebay_torch.collate or ThreadLoader, which reuse the memory of batches".into(),
            "more workers, so that batches are put together ahead".into(),
        ],
        Cause::Worker => vec![
            "ThreadLoader, which hands batches over without a copy between processes".into(),
            "keep workers for all epochs: persistent_workers=True; and a larger prefetch_factor"
                .into(),
        ],
    }
}

fn cold(feed: &Feed, warmth: &[BucketWarmth]) -> Vec<String> {
    let mut found = Vec::new();
    for bucket in warmth.iter().filter(|bucket| bucket.backed) {
        let uri = bucket.bucket.to_string();
        let served = bucket.hour.reads.objects();
        let is_read_again = bucket.hour.reads.hit_objects * 2 > served && served > 0;
        match bucket.byte_share() {
            Some(share) if share >= WARM_BYTE_SHARE => {}
            Some(share) if is_read_again && !bucket.pinned => found.push(format!(
                "{uri} is cached to {:.0}% and is evicted under you: more disk space, or \
                 forebay bucket set {uri} pin=true",
                share * 100.0
            )),
            Some(share) => found.push(format!(
                "{uri} is cached to {:.0}%: forebay prefetch {uri} --wait before the first epoch",
                share * 100.0
            )),
            None => found.push(format!("forebay prefetch {uri} --wait before the first epoch")),
        }
    }
    if found.is_empty() {
        let uri = feed.buckets.first().map_or("BUCKET", String::as_str);
        found.push(format!("forebay prefetch {uri} --wait before the first epoch"));
    }
    found.push("warm_ahead=… of the dataset fetches the next objects from the cloud".into());
    found
}

fn network(feed: &Feed) -> Vec<String> {
    let mut found = Vec::new();
    let is_small = feed.samples > 0 && feed.bytes / feed.samples < SMALL_READ_BYTES;
    if is_small {
        found.push(
            "samples are small: larger shards, or larger batches, so that fewer answers are waited for"
                .into(),
        );
    }
    found.push("compare the bytes per second of the feed with the link of the client".into());
    found.push("more batches ahead: prefetch of ThreadLoader, or prefetch_factor".into());
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::feed::Causes;
    use crate::name::{Bucket, Provider};
    use crate::warmth::{ListingTotals, ReadCounts, ReadWindow};

    fn feed(causes: Causes) -> Feed {
        let buckets = vec!["s3://data".to_owned()];
        Feed { wait_s: 10.0, step_s: 20.0, causes, buckets, ..Feed::default() }
    }

    fn bucket(cached: u64, hits: u64) -> BucketWarmth {
        let reads = ReadCounts { hit_objects: hits, miss_objects: 10, ..ReadCounts::default() };
        BucketWarmth {
            backed: true,
            bytes: cached,
            listing: Some(ListingTotals { objects: 100, bytes: 1_000, taken_ns: 1 }),
            hour: ReadWindow { seconds: 60, reads },
            ..BucketWarmth::of(Bucket::new(Provider::Aws, "data").unwrap())
        }
    }

    #[test]
    fn causes_are_sorted_by_their_part_and_small_ones_left_out() {
        let causes = Causes { disk: 2.0, cold: 7.0, queue: 0.4, network: 0.6, ..Causes::default() };
        let found = findings(&feed(causes), &[]);
        let names: Vec<_> = found.iter().map(|finding| finding.cause.name()).collect();
        assert_eq!(names, ["cold", "disk", "network"]);
        assert_eq!(found[0].share, 0.7);
        assert!(found.iter().all(|finding| !finding.remedies.is_empty()));
        assert!(findings(&feed(Causes::default()), &[]).is_empty());
    }

    #[test]
    fn every_cause_has_a_remedy() {
        for cause in Cause::ALL {
            assert!(!remedies(cause, &Feed::default(), &[]).is_empty(), "{cause:?}");
        }
    }

    #[test]
    fn the_remedy_of_cold_reads_follows_the_warmth_of_the_bucket() {
        let causes = Causes { cold: 9.0, ..Causes::default() };
        let first = |warmth: &[BucketWarmth]| {
            let found = findings(&feed(causes), warmth);
            found[0].remedies[0].clone()
        };
        assert!(first(&[bucket(300, 2)]).contains("cached to 30%: forebay prefetch"));
        assert!(first(&[bucket(300, 90)]).contains("evicted under you"));
        assert!(first(&[]).contains("forebay prefetch s3://data"));
        let warm = first(&[bucket(1_000, 90)]);
        assert!(!warm.contains("evicted"), "{warm}");
    }

    #[test]
    fn small_samples_that_wait_for_the_network_need_larger_shards() {
        let causes = Causes { network: 9.0, ..Causes::default() };
        let small = Feed { samples: 100, bytes: 100 << 10, ..feed(causes) };
        assert!(findings(&small, &[])[0].remedies[0].contains("larger shards"));
        let large = Feed { samples: 100, bytes: 100 << 20, ..feed(causes) };
        assert!(!findings(&large, &[])[0].remedies[0].contains("larger shards"));
    }
}
