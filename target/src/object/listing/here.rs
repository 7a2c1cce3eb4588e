//! Listings of the records on this target.

use forebay_core::Result;
use forebay_core::intra::{ListPage, ListRequest};
use forebay_core::list_columns::{Columns, MAX_ROWS};
use forebay_core::object::{ListEntry, RowKind};
use forebay_store::Record;

use super::Listing;

/// The empty name means "from the beginning".
pub(in crate::object) fn start(after: &str) -> Option<&str> {
    (!after.is_empty()).then_some(after)
}

impl Listing {
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
}

/// Records as listing entries.
pub(in crate::object) fn entries(records: Vec<Record>) -> Vec<ListEntry> {
    let entry =
        |r: Record| ListEntry { meta: r.object_meta(), name: r.name, kind: RowKind::Object };
    records.into_iter().map(entry).collect()
}
