//! Cached listings of backends: made by many concurrent calls, readable while they are made,
//! updated with the cluster's later writes, and dropped by age.
//!
//! One target keeps the listings of a bucket; gateways and the jobs of all targets request pages of
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_clouds::RemoteEntry;
use forebay_clouds::sweep::{SweepOptions, sweep};
use forebay_core::bucket::BucketInfo;
use forebay_core::cloud_rules::CloudRule;
use forebay_core::intra::{
    BackendChanges, BackendChangesRequest, BackendListRequest, Changed, JournalMark, ListPage,
};
use forebay_core::list_columns::{Columns, MAX_ROWS};
use forebay_core::list_page::Detail;
use forebay_core::object::{ListEntry, ObjectMeta, RowKind, remote_etag};
use forebay_core::state::Node;
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::clock::unix_ns;
use futures::future::join_all;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::Listing;
use super::overlay::Overlay;
use super::rows::RowsBuilder;
use super::snapshot::{Progress, Snapshot};
use crate::object::scratch::begin_scratch;

const CHANGES: &str = "/internal/v1/backend/changes";
/// A listing in progress that was not read for this time is cancelled.
const REST: Duration = Duration::from_secs(10);
/// If the state of more objects than this is unknown, they are not looked up one by one.
const MOST_UNKNOWN: usize = 256;
/// After this time a page is returned as far as it is complete.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of listings that are tried for a page, one after the other.
const TURNS: usize = 4;

impl Listing {
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

    /// A page of the backend's objects, as bytes in the requested form.
    pub(crate) async fn backend_page(&self, request: &BackendListRequest) -> Result<Vec<u8>> {
        match request.detail {
            Detail::Size => {
                let (columns, more) = self.backend_page_as::<Columns>(request).await?;
                Ok(columns.encode(more))
            }
            Detail::All => {
                let (entries, more) = self.backend_page_as::<Vec<ListEntry>>(request).await?;
                ListPage { entries, more }.encode(Detail::All)
            }
        }
    }

    /// Names with the prefix after `after`, and whether there are more. Served from a cached
    /// listing that is young enough; a new one is started if the caller will read all names.
    pub(super) async fn backend_page_as<B: RowsBuilder>(
        &self,
        request: &BackendListRequest,
    ) -> Result<(B, bool)> {
        let BackendListRequest { info, prefix, after, since_ns, .. } = request;
        let limit = request.limit.clamp(1, MAX_ROWS);
        for _ in 0..TURNS {
            let known = self.0.listings.find(info.id, prefix, after, *since_ns);
            let listing = match known {
                Some(listing) => listing,
                None if request.whole && info.id != 0 => self.list_on(request),
                None => return self.plain_page(info, prefix, after, limit).await,
            };
            listing.wait_started().await;
            let overlay = match self.refresh(info, &listing).await {
                Some(overlay) => overlay,
                // To continue a listing it is enough to have the state of its begin.
                None if listing.is_of(*since_ns) => listing.overlay(),
                None => {
                    self.0.listings.remove(&listing);
                    continue;
                }
            };
            let page: (B, bool) =
                listing.page(&overlay, prefix, after, limit, PAGE_TIMEOUT).await?;
            // The listing may have ended before these names; or the backend is slow, and the caller
            // gets an empty page with more to follow.
            if page.0.count() > 0 || !page.1 || listing.is_under_way() {
                return Ok(page);
            }
        }
        Err(Error::unavailable(format!("the listing of bucket \"{}\" broke off", info.bucket)))
    }

    async fn plain_page<B: RowsBuilder>(
        &self,
        info: &BucketInfo,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<(B, bool)> {
        let ListPage { entries, more } = self.page_backend(info, prefix, after, limit).await?;
        let mut page = B::default();
        entries.iter().for_each(|entry| page.push_entry(entry));
        Ok((page, more))
    }

    /// Starts a listing at a position.
    fn list_on(&self, request: &BackendListRequest) -> Arc<Snapshot> {
        let info = &request.info;
        // If the caller's clock is ahead, the new listing counts as recent enough.
        let taken_ns = unix_ns().max(request.since_ns);
        let age = info.cloud.time(CloudRule::ListMaxAgeMs).unwrap_or_default();
        let (listing, is_new) = self.0.listings.begin(request, taken_ns, age);
        if is_new {
            let (service, info, making) = (self.clone(), Arc::clone(info), Arc::clone(&listing));
            self.local().lifecycle.spawn(async move {
                let ended = service.make(&info, &making).await;
                let is_kept = matches!(ended, Progress::Whole | Progress::Cut);
                making.end(ended);
                service.0.listings.ended(&making);
                if !is_kept {
                    service.0.listings.remove(&making);
                }
            });
        }
        listing
    }

    /// Makes a listing to its end, as long as it is read.
    async fn make(&self, info: &BucketInfo, listing: &Snapshot) -> Progress {
        // Before the first call: writes from now on may or may not be in the listing.
        let marks = self.marks(info).await.unwrap_or_default();
        listing.begin(Overlay::new(marks));
        let stop = self.local().lifecycle.token();
        tokio::select! {
            ended = self.fill_listing(info, listing) => ended.unwrap_or_else(Progress::Failed),
            () = listing.left_alone(REST) => Progress::GivenUp,
            () = stop.cancelled() => Progress::Failed(Error::unavailable("this target is stopping")),
        }
    }

    async fn fill_listing(&self, info: &BucketInfo, listing: &Snapshot) -> Result<Progress> {
        let mut pages = self.sweep(info, &listing.prefix, &listing.from).await?;
        let mut scratch = None;
        while let Some(rows) = pages.try_next().await? {
            let open = async || begin_scratch(self.store(), &format!("listing-{}", info.id)).await;
            if !listing.add(&rows, &mut scratch, open).await? {
                listing.keep_file(scratch);
                return Ok(Progress::Cut);
            }
        }
        listing.keep_file(scratch);
        Ok(Progress::Whole)
    }

    /// The journal positions of all targets; `None` if one does not respond.
    async fn marks(&self, info: &BucketInfo) -> Option<BTreeMap<NodeId, JournalMark>> {
        let state = self.state();
        let asked = state.alive_targets().map(|node| async move {
            let reply = self.changes_at(node, info.id, None).await.ok()?;
            Some((node.id.clone(), reply.mark))
        });
        join_all(asked).await.into_iter().collect()
    }

    async fn changes_at(
        &self,
        node: &Node,
        bucket_id: u64,
        since: Option<JournalMark>,
    ) -> Result<BackendChanges> {
        let request = BackendChangesRequest { bucket_id, since };
        if node.id == *self.me() {
            return Ok(self.backend_changes(&request));
        }
        Ok(self.0.peer.post_json(&node.url, CHANGES, &request).await?)
    }

    /// Writes to a bucket's backend through this target.
    pub(crate) fn backend_changes(&self, request: &BackendChangesRequest) -> BackendChanges {
        let journal = self.cold_cache().journal(request.bucket_id);
        let (mark, changes) = journal.since(request.since);
        BackendChanges { mark, changes }
    }

    /// All targets' writes since a listing was taken; `None` if they cannot be determined: then the
    /// listing must not be used any more.
    async fn refresh(&self, info: &BucketInfo, listing: &Snapshot) -> Option<Arc<Overlay>> {
        let base = listing.overlay();
        let state = self.state();
        let nodes: Vec<&Node> = state.alive_targets().collect();
        if nodes.is_empty() || nodes.len() != base.marks.len() {
            return None;
        }
        let asked = nodes.iter().map(|node| async {
            let mark = base.marks.get(&node.id)?;
            self.changes_at(node, info.id, Some(*mark)).await.ok()
        });
        let mut fresh = None;
        for (node, reply) in nodes.iter().zip(join_all(asked).await) {
            let BackendChanges { mark, changes } = reply?;
            let changes = changes?;
            if !changes.is_empty() {
                let fresh = fresh.get_or_insert_with(|| Overlay::clone(&base));
                fresh.marks.insert(node.id.clone(), mark);
                fresh.take(&node.id, &listing.prefix, changes);
            }
        }
        let Some(mut fresh) = fresh else { return Some(base) };
        let unknown = fresh.unknown();
        if fresh.is_too_large() || unknown.len() > MOST_UNKNOWN {
            return None;
        }
        for name in unknown {
            let now = match self.cold_cache().backend(info).await.ok()?.stat(&name).await {
                Ok(meta) => Changed::from(meta),
                Err(e) if e.code == ErrorCode::ObjectNotFound => Changed::Gone,
                Err(_) => return None,
            };
            fresh.learned(&name, now);
        }
        let fresh = Arc::new(fresh);
        listing.set_overlay(Arc::clone(&fresh));
        Some(fresh)
    }
}

/// A backend's row as a listing entry.
fn listed(entry: RemoteEntry) -> ListEntry {
    let RemoteEntry { name, size, version, etag, mtime_ns } = entry;
    let etag = remote_etag(&etag, &version, size);
    let meta = ObjectMeta { size, version, etag, mtime_ns, ..ObjectMeta::default() };
    ListEntry { name, kind: RowKind::Object, meta }
}
