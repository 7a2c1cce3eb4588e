//! Listings. Azure continues them by markers, callers by the last name they got. So markers are
//! kept for the names that they follow.

use std::collections::VecDeque;
use std::sync::Mutex;

use azure_storage_blob::models::{
    BlobContainerClientListBlobsOptions, BlobItem, ListBlobsResponse,
};
use forebay_core::error::{ErrorCode, Result};
use forebay_core::locks::MutexExt;
use futures::TryStreamExt;

use super::error::Right;
use super::{AzureBackend, bare, nanoseconds};
use crate::{RemoteEntry, RemotePage};

/// Most entries that Azure returns per listing call.
const PAGE: usize = 5000;
/// Listings whose markers are kept at the same time.
const REMEMBERED: usize = 256;

/// Positions of listings: prefix and last name of a page, and the marker behind it.
#[derive(Default)]
pub(super) struct Markers(Mutex<VecDeque<(String, String, String)>>);

impl Markers {
    fn find(&self, prefix: &str, after: &str) -> Option<String> {
        let known = self.0.locked();
        let found = known.iter().find(|(p, a, _)| p == prefix && a == after);
        found.map(|(.., marker)| marker.clone())
    }

    fn keep(&self, prefix: &str, after: &str, marker: String) {
        let mut known = self.0.locked();
        known.retain(|(p, a, _)| p != prefix || a != after);
        known.push_front((prefix.to_owned(), after.to_owned(), marker));
        known.truncate(REMEMBERED);
    }
}

impl AzureBackend {
    pub(super) async fn list_blobs(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<RemotePage> {
        let limit = limit.clamp(1, PAGE);
        let mut marker = self.markers.find(prefix, after);
        // Without a marker the request names the start. A service that does not support that starts
        // at the front, and the names before are left out here.
        let mut start = (marker.is_none() && !after.is_empty()).then_some(after);
        loop {
            let page = match self.page(prefix, start, marker.as_deref(), limit).await {
                Err(e) if start.is_some() && e.code == ErrorCode::InvalidArgument => {
                    start = None;
                    continue;
                }
                page => page?,
            };
            let next = page.next_marker.filter(|marker| !marker.is_empty());
            let mut entries = Vec::with_capacity(page.blob_items.len());
            for item in page.blob_items {
                entries.extend(entry(item).filter(|entry| entry.name.as_str() > after));
            }
            if !entries.is_sorted_by(|a, b| a.name < b.name) {
                return Err(self.errors.place.out_of_order());
            }
            // Azure may return an empty page that is not the last.
            match (entries.last(), next) {
                (_, None) => return Ok(RemotePage { entries, ..RemotePage::default() }),
                (None, next) => marker = next,
                (Some(last), Some(next)) => {
                    self.markers.keep(prefix, &last.name, next);
                    return Ok(RemotePage { entries, more: true, ..RemotePage::default() });
                }
            }
        }
    }

    /// One listing call.
    pub(super) async fn page(
        &self,
        prefix: &str,
        start: Option<&str>,
        marker: Option<&str>,
        limit: usize,
    ) -> Result<ListBlobsResponse> {
        let options = BlobContainerClientListBlobsOptions {
            prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
            start_from: start.map(str::to_owned),
            marker: marker.map(str::to_owned),
            maxresults: i32::try_from(limit).ok(),
            ..Default::default()
        };
        let call = async {
            let mut pages = self.container.list_blobs(Some(options))?.into_pages();
            match pages.try_next().await? {
                Some(page) => {
                    self.bill.listing_page(page.body().len());
                    page.into_model()
                }
                None => Ok(ListBlobsResponse::default()),
            }
        };
        self.answer(call, Right::List, None).await
    }
}

/// `None` for an entry that is no longer an object.
fn entry(item: BlobItem) -> Option<RemoteEntry> {
    let properties = item.properties.unwrap_or_default();
    if item.deleted == Some(true) {
        return None;
    }
    let etag = properties.etag.as_ref().map(bare).unwrap_or_default();
    Some(RemoteEntry {
        name: item.name?,
        size: properties.content_length.unwrap_or(0),
        version: etag.clone(),
        etag,
        mtime_ns: properties.last_modified.map_or(0, nanoseconds),
    })
}
