//! The part of this target in the warmth of buckets.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::warmth::{TargetBucketWarmth, TargetWarmth};
use forebay_node::bucket_reads::SAMPLE_INTERVAL_S;
use forebay_store::BucketUsage;

use super::ObjectService;

impl ObjectService {
    /// The warmth of one bucket here, or of all buckets. The cost does not depend on the number of
    /// objects.
    pub(crate) async fn warmth(&self, bucket_id: Option<u64>) -> Result<TargetWarmth> {
        let usages = match bucket_id {
            Some(id) => BTreeMap::from([(id, self.store().bucket_usage(id).await?)]),
            None => {
                let mut usages = self.store().bucket_usages().await?;
                // Buckets without copies here may have been read or listed.
                let buckets = self.state();
                let known = buckets.buckets.values().map(|info| info.id);
                known.for_each(|id| {
                    usages.entry(id).or_default();
                });
                usages
            }
        };
        let buckets = usages.into_iter().map(|(id, usage)| self.warmth_of(id, usage));
        let mut buckets: Vec<_> = buckets.collect();
        let state = self.state();
        for info in state.buckets.values().filter(|info| info.quota().is_set()) {
            let Some(part) = buckets.iter_mut().find(|part| part.bucket_id == info.id) else {
                continue;
            };
            part.quota = Some(self.stored_part(info).await?);
        }
        Ok(TargetWarmth { buckets })
    }

    fn warmth_of(&self, bucket_id: u64, usage: BucketUsage) -> TargetBucketWarmth {
        let BucketUsage { objects, bytes, partial_objects, partial_bytes, no_access_before_ns } =
            usage;
        let (hour, day) = self.metrics().bucket_reads().windows(bucket_id).unzip();
        let listing = self.listing().last_complete(bucket_id);
        TargetBucketWarmth {
            bucket_id,
            objects,
            bytes,
            partial_objects,
            partial_bytes,
            no_access_before_ns,
            hour,
            day,
            listing,
            quota: None,
        }
    }

    /// Keeps the sums of reads for the windows of the warmth, until the target stops.
    pub(crate) async fn sample_reads(self) {
        let token = self.local().lifecycle.token();
        let mut ticks = tokio::time::interval(Duration::from_secs(SAMPLE_INTERVAL_S));
        loop {
            tokio::select! {
                _ = ticks.tick() => self.metrics().bucket_reads().sample(),
                () = token.cancelled() => return,
            }
        }
    }
}
