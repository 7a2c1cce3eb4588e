//! Blob download: fetches a large object of a backend by several concurrent ranges.

use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::{Error, Result};

use super::ColdCache;
use super::Following;
use super::ranges::BlobOptions;
use crate::object::Turns;

impl ColdCache {
    /// Starts a fetch of an object, or joins the one in progress. `None`: it is cached already, or
    /// there is no space for it.
    pub(crate) async fn blob_begin(
        &self,
        info: &BucketInfo,
        name: &str,
        how: BlobOptions,
    ) -> Result<Option<Following>> {
        if !info.has_backend() {
            return Err(not_remote(info));
        }
        let freshness = if how.latest { Freshness::Always } else { info.freshness };
        let info = BucketInfo { freshness, ..info.clone() };
        if self.current_copy(&info, name).await?.is_some() || !self.admits(&info, name) {
            return Ok(None);
        }
        let started = self.cold_by(&info, name, Some(how)).await?;
        Ok(started.map(|(following, _)| following))
    }

    /// Fetches an object. Returns the fetched bytes; `None` if it was cached already.
    pub(crate) async fn blob_fetch(
        &self,
        info: &BucketInfo,
        name: &str,
        how: BlobOptions,
    ) -> Result<Option<u64>> {
        let mut turns = Turns::default();
        loop {
            let done = match self.blob_begin(info, name, how).await {
                Ok(Some(following)) => following.finished().await.map(Some),
                Ok(None) => Ok(None),
                Err(e) => Err(e),
            };
            if !turns.again(&done) {
                return done;
            }
        }
    }
}

/// The refusal for a bucket without a backend.
pub(crate) fn not_remote(info: &BucketInfo) -> Error {
    Error::invalid(format!("blob-download: bucket \"{}\" has no backend", info.bucket))
        .hint("all of a native bucket is here")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;
    use crate::object::tests::{Bench, pattern};

    #[tokio::test]
    async fn an_object_comes_by_ranges_and_once() {
        let bench = Bench::new(1 << 30).await;
        let info = bench.bucket("b", true, Freshness::Never);
        let bytes = pattern(2_500_000);
        std::fs::write(bench.folder().join("x"), &bytes).unwrap();
        let how = BlobOptions { chunk: 1 << 20, workers: 2, latest: false };
        let fetched = bench.service.cold_cache().blob_fetch(&info, "x", how).await.unwrap();
        assert_eq!((fetched, bench.gets()), (Some(2_500_000), 3));
        let (read, result) = bench.read(&info, "x").await.unwrap();
        assert!(read == bytes && result == "hit");
        assert_eq!(bench.service.cold_cache().blob_fetch(&info, "x", how).await.unwrap(), None);

        std::fs::write(bench.folder().join("x"), "other").unwrap();
        let latest = BlobOptions { latest: true, ..how };
        assert_eq!(
            bench.service.cold_cache().blob_fetch(&info, "x", latest).await.unwrap(),
            Some(5)
        );
        std::fs::write(bench.folder().join("empty"), "").unwrap();
        assert_eq!(
            bench.service.cold_cache().blob_fetch(&info, "empty", how).await.unwrap(),
            Some(0)
        );
        let native = bench.bucket("n", false, Freshness::Never);
        let refused = bench.service.cold_cache().blob_fetch(&native, "x", how).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidArgument);
    }

    #[tokio::test]
    async fn an_object_on_its_way_counts_as_being_written() {
        let bench = Bench::new(1 << 30).await;
        let info = bench.bucket("b", true, Freshness::Never);
        std::fs::write(bench.folder().join("x"), pattern(100)).unwrap();
        let written = || bench.service.is_being_written(&info, "x");
        assert!(!written());
        // The copy is committed when its lock is released, not before.
        let writer = bench.service.lock_key(info.id, "x").await;
        assert!(written());
        let how = BlobOptions { chunk: 10, workers: 1, latest: false };
        let following =
            bench.service.cold_cache().blob_begin(&info, "x", how).await.unwrap().unwrap();
        drop(writer);
        following.finished().await.unwrap();
        while written() {
            tokio::task::yield_now().await;
        }
    }
}
