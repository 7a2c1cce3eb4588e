//! Listings: of what is here, and of what the backend has.

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::history;
use forebay_core::intra::{ListPage, ListRequest};
use forebay_core::list_columns::{Columns, MAX_ROWS};
use forebay_core::object::{ListEntry, RowKind};

use super::{ObjectService, list_ahead};
use crate::store::Usage;

/// The empty name means "from the beginning".
fn start(after: &str) -> Option<&str> {
    (!after.is_empty()).then_some(after)
}

impl ObjectService {
    /// A page of the records held here.
    pub(crate) async fn page_here(&self, request: &ListRequest) -> Result<ListPage> {
        let ListRequest { bucket_id, prefix, after, until, limit, .. } = request;
        let (records, more) =
            self.store().list(*bucket_id, prefix, start(after), until.as_deref(), *limit).await?;
        let entries = records
            .into_iter()
            .map(|r| ListEntry { meta: r.object_meta(), name: r.name, kind: RowKind::Object })
            .collect();
        Ok(ListPage { entries, more })
    }

    /// Names and sizes of the records held here, and whether there are more.
    pub(crate) async fn sizes_here(&self, request: &ListRequest) -> Result<(Columns, bool)> {
        let ListRequest { bucket_id, prefix, after, until, limit, .. } = request;
        let limit = (*limit).min(MAX_ROWS);
        self.store().list_sizes(*bucket_id, prefix, start(after), until.as_deref(), limit).await
    }

    /// A page of what the backend has.
    pub(crate) async fn page_backend(
        &self,
        info: &BucketInfo,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<ListPage> {
        let page = self.backend(info).await?.list(prefix, after, limit).await?;
        let entries = page.entries.into_iter().map(list_ahead::listed).collect();
        Ok(ListPage { entries, more: page.more })
    }

    /// Whether the bucket is at its backend.
    pub(crate) async fn head_backend(&self, info: &BucketInfo) -> Result<()> {
        self.backend(info).await?.head_bucket().await
    }

    /// Drops everything held of a bucket that is no more (or is evicted).
    pub(crate) async fn drop_bucket(&self, bucket_id: u64) -> Result<()> {
        self.0.parts.backends.forget(bucket_id);
        self.0.lost.forget_bucket(bucket_id);
        self.0.listings.forget(bucket_id);
        self.drop_uploads_of(bucket_id).await?;
        let (objects, bytes) = self.store().remove_bucket(bucket_id).await?;
        self.store().remove_bucket(history::id(bucket_id)).await?;
        tracing::info!(bucket_id, objects, bytes, "dropped the data of a bucket");
        Ok(())
    }

    /// Ids of the buckets of which something is held.
    pub(crate) async fn bucket_ids(&self) -> Result<Vec<u64>> {
        let mut ids = self.store().buckets().await?;
        ids.extend(self.upload_buckets().await?);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    pub(crate) fn usage(&self) -> Usage {
        self.store().usage()
    }
}
