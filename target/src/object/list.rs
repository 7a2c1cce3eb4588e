//! Listings of the records on this target, and of a backend's objects.

use forebay_core::backend_access::{AccessRequest, BackendAccess};
use forebay_core::bucket::BucketInfo;
use forebay_core::cloud_rules::Compose;
use forebay_core::intra::{ListPage, ListRequest};
use forebay_core::list_columns::{Columns, MAX_ROWS};
use forebay_core::object::{ListEntry, ObjectMeta, RowKind, remote_etag};
use forebay_core::{Result, history};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::ObjectService;
use crate::backend::RemoteEntry;
use crate::backend::sweep::{SweepOptions, sweep};
use crate::store::{Record, Usage};

/// The empty name means "from the beginning".
pub(super) fn start(after: &str) -> Option<&str> {
    (!after.is_empty()).then_some(after)
}

impl ObjectService {
    /// A page of the records held here.
    pub(crate) async fn page_here(&self, request: &ListRequest) -> Result<ListPage> {
        if let Some(info) = self.replication().may_have_missed(request.bucket_id) {
            return self.replication().page_of_the_rest(&info, request).await;
        }
        let (records, more) = self.replication().records_here(request, &request.after).await?;
        Ok(ListPage { entries: entries(records), more })
    }

    /// A page of the whole and partial copies here. Partial ones are not `present`.
    pub(crate) async fn page_of_copies(&self, request: &ListRequest) -> Result<ListPage> {
        let page = self.page_here(request).await?;
        Ok(self.cold_cache().with_parts(request, page))
    }

    /// Names of the records here under an id, after a given name; and whether there are more.
    pub(crate) async fn names_here(
        &self,
        bucket_id: u64,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<String>, bool)> {
        let (page, more) = self.store().list(bucket_id, "", start(after), None, limit).await?;
        Ok((page.into_iter().map(|r| r.name).collect(), more))
    }

    /// Names and sizes of the records held here, and whether there are more.
    pub(crate) async fn sizes_here(&self, request: &ListRequest) -> Result<(Columns, bool)> {
        let ListRequest { bucket_id, prefix, after, until, limit, .. } = request;
        let limit = (*limit).min(MAX_ROWS);
        if let Some(info) = self.replication().may_have_missed(*bucket_id) {
            let request = ListRequest { limit, ..request.clone() };
            let ListPage { entries, more } =
                self.replication().page_of_the_rest(&info, &request).await?;
            return Ok((Columns::from(&entries[..]), more));
        }
        if !self.replication().ids_to_list(*bucket_id).await?.is_empty() {
            let request = ListRequest { limit, ..request.clone() };
            let (records, more) = self.replication().records_here(&request, after).await?;
            return Ok((Columns::from(&self::entries(records)[..]), more));
        }
        self.store().list_sizes(*bucket_id, prefix, start(after), until.as_deref(), limit).await
    }

    /// All objects of a backend with a prefix, after `after`, in order.
    pub(crate) async fn sweep(
        &self,
        info: &BucketInfo,
        prefix: &str,
        after: &str,
    ) -> Result<BoxStream<'static, Result<Vec<ListEntry>>>> {
        let backend = self.cold_cache().backend(info).await?;
        let pages = sweep(backend, prefix, after, SweepOptions::default());
        Ok(pages.map_ok(|rows| rows.into_iter().map(listed).collect()).boxed())
    }

    /// A page of the backend's objects.
    pub(crate) async fn page_backend(
        &self,
        info: &BucketInfo,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<ListPage> {
        let page = self.cold_cache().backend(info).await?.list(prefix, after.into(), limit).await?;
        let entries = page.entries.into_iter().map(listed).collect();
        Ok(ListPage { entries, more: page.more })
    }

    /// The permissions of this target at a bucket's backend, and its identity there.
    pub(crate) async fn backend_access(&self, request: &AccessRequest) -> Result<BackendAccess> {
        self.0.backends.access(&request.info, &request.prefix).await
    }

    /// Checks whether this target may call the endpoint of a bucket.
    pub(crate) async fn check_endpoint(&self, info: &BucketInfo) -> Result<()> {
        self.0.backends.check_endpoint(info).await
    }

    /// Whether the bucket exists at its backend.
    pub(crate) async fn head_backend(&self, info: &BucketInfo) -> Result<()> {
        let backend = self.cold_cache().backend(info).await?;
        backend.head_bucket().await?;
        match info.cloud.compose() {
            Compose::On => backend.check_composing().await,
            Compose::Off | Compose::Force => Ok(()),
        }
    }

    /// Drops all records of a bucket that was destroyed or evicted.
    pub(crate) async fn drop_bucket(&self, bucket_id: u64) -> Result<()> {
        self.local().lost.forget_bucket(bucket_id);
        self.cold_cache().forget_bucket(bucket_id);
        self.0.listings.forget(bucket_id);
        self.drop_uploads_of(bucket_id).await?;
        let (objects, bytes) = self.store().remove_bucket(bucket_id).await?;
        self.store().remove_bucket(history::id(bucket_id)).await?;
        self.store().remove_bucket(history::tombstones(bucket_id)).await?;
        for id in self.replication().slice_ids(bucket_id).await? {
            self.store().remove_bucket(id).await?;
        }
        tracing::info!(bucket_id, objects, bytes, "dropped the data of a bucket");
        Ok(())
    }

    /// Ids of the buckets that have records here.
    pub(crate) async fn bucket_ids(&self) -> Result<Vec<u64>> {
        let mut ids = self.store().buckets().await?;
        ids.extend(self.upload_buckets().await?);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Records on the disks which cluster their objects belong to.
    pub(crate) async fn note_cluster(&self, id: &str) -> Result<()> {
        self.store().note_cluster(id).await
    }

    pub(crate) fn usage(&self) -> Usage {
        self.store().usage()
    }
}

/// Records as listing entries.
pub(super) fn entries(records: Vec<Record>) -> Vec<ListEntry> {
    let entry =
        |r: Record| ListEntry { meta: r.object_meta(), name: r.name, kind: RowKind::Object };
    records.into_iter().map(entry).collect()
}

/// A backend's row as a listing entry.
fn listed(entry: RemoteEntry) -> ListEntry {
    let RemoteEntry { name, size, version, etag, mtime_ns } = entry;
    let etag = remote_etag(&etag, &version, size);
    let meta = ObjectMeta { size, version, etag, mtime_ns, ..ObjectMeta::default() };
    ListEntry { name, kind: RowKind::Object, meta }
}
