//! Samples of what this target stores of the buckets with a quota, for its reports to the leader.

use std::time::Duration;

use forebay_core::bucket::BucketInfo;
use forebay_core::erasure::Slice;
use forebay_core::lease::HEARTBEAT_MS;
use forebay_core::quota::{Amount, StoredPart, StoredSlices};
use forebay_core::{Result, history};
use forebay_store::BucketUsage;

use super::ObjectService;

/// Interval of the samples: each heartbeat has a new one.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(HEARTBEAT_MS / 2);
/// Shortest interval between samples that waiting writes cause.
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

impl ObjectService {
    /// The part of a bucket that is stored here. The cost does not depend on the number of objects.
    pub(crate) async fn stored_part(&self, info: &BucketInfo) -> Result<StoredPart> {
        let store = self.store();
        let copies = amount(store.bucket_usage(info.id).await?);
        let versions = amount(store.bucket_usage(history::id(info.id)).await?);
        let mut part = StoredPart { copies, versions, slices: Vec::new() };
        for id in self.replication().slice_ids(info.id).await? {
            let Some((Slice { data, parity, .. }, _)) = Slice::of_id(id) else { continue };
            let stored = amount(store.bucket_usage(id).await?);
            let slices = vec![StoredSlices { data, parity, stored }];
            part.add(&StoredPart { slices, ..StoredPart::default() });
        }
        Ok(part)
    }

    /// Samples the buckets with a quota until the target stops.
    pub(crate) async fn sample_quotas(self) {
        let token = self.local().lifecycle.token();
        let quotas = self.local().maps.quotas().clone();
        loop {
            let is_early = tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(SAMPLE_INTERVAL) => false,
                () = quotas.sample_wanted() => true,
            };
            let state = self.state();
            for mark in quotas.begin_sample(&state) {
                let mut infos = state.buckets.values();
                let Some(info) = infos.find(|info| info.id == mark.bucket_id) else { continue };
                match self.stored_part(info).await {
                    Ok(stored) => quotas.end_sample(&mark, stored),
                    Err(e) => tracing::warn!(bucket = %info.bucket, "cannot count its usage: {e}"),
                }
            }
            if is_early {
                self.local().maps.report_now();
                tokio::time::sleep(MIN_SAMPLE_INTERVAL).await;
            }
        }
    }
}

fn amount(usage: BucketUsage) -> Amount {
    Amount { bytes: usage.bytes, objects: usage.objects }
}
