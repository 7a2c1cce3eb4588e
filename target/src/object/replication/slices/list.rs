//! Listings of objects of which only a slice is stored here: their names are listed as well, so
//! that none is missing while the target with the whole is unavailable.

use std::collections::BTreeMap;

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::erasure::Slice;
use forebay_core::intra::{ListPage, ListRequest};
use forebay_store::Record;

use super::as_object;
use crate::object::listing::{entries, start};
use crate::object::replication::Replication;

impl Replication {
    /// All records of a page, behind `after`, and whether there are more.
    pub(in crate::object) async fn records_here(
        &self,
        request: &ListRequest,
        after: &str,
    ) -> Result<(Vec<Record>, bool)> {
        let ListRequest { bucket_id, prefix, until, limit, .. } = request;
        let ids = self.ids_to_list(*bucket_id).await?;
        if !ids.is_empty() {
            return self.records_of_all(request, after, &ids).await;
        }
        self.store().list(*bucket_id, prefix, start(after), until.as_deref(), *limit).await
    }

    /// The ids of the slices whose names are listed beside those of the bucket. The first slices of
    /// every object are enough: as many targets as those may be unavailable.
    pub(in crate::object) async fn ids_to_list(&self, bucket_id: u64) -> Result<Vec<u64>> {
        let ids = self.slice_ids(bucket_id).await?;
        let first = |id: &u64| Slice::of_id(*id).is_some_and(|(s, _)| s.number < s.parity);
        Ok(ids.into_iter().filter(first).collect())
    }

    /// A page of all objects with anything stored here, whole or slices.
    pub(crate) async fn page_of_anything(&self, request: &ListRequest) -> Result<ListPage> {
        let ids = self.slice_ids(request.bucket_id).await?;
        let (records, more) = self.records_of_all(request, &request.after, &ids).await?;
        Ok(ListPage { entries: entries(records), more })
    }

    /// The records of an object here: the whole, and slices of it.
    pub(crate) async fn anything_of(&self, info: &BucketInfo, name: &str) -> Result<Vec<Record>> {
        let mut records: Vec<Record> = self.store().get(info.id, name).await?.into_iter().collect();
        records.extend(self.slices_here(info.id, name).await?.into_iter().map(|s| s.record));
        Ok(records)
    }

    /// A page of the records here and of the objects that slices here belong to, after `after`; and
    /// whether there are more.
    pub(in crate::object) async fn records_of_all(
        &self,
        request: &ListRequest,
        after: &str,
        ids: &[u64],
    ) -> Result<(Vec<Record>, bool)> {
        let ListRequest { bucket_id, prefix, until, limit, .. } = request;
        let mut found: BTreeMap<String, Record> = BTreeMap::new();
        // After the last name of a page that has more, the names of its id are unknown.
        let (mut known_to, mut more) = (None::<String>, false);
        for id in std::iter::once(bucket_id).chain(ids) {
            let page = self.store().list(*id, prefix, start(after), until.as_deref(), *limit);
            let (records, goes_on) = page.await?;
            if goes_on {
                more = true;
                let last = records.last().map(|r| r.name.clone()).unwrap_or_default();
                known_to = Some(known_to.map_or(last.clone(), |to: String| to.min(last)));
            }
            for record in records {
                if id == bucket_id {
                    found.insert(record.name.clone(), record);
                } else if let Some(object) = as_object(&record) {
                    add(&mut found, object);
                }
            }
        }
        if let Some(to) = known_to {
            found.retain(|name, _| *name <= to);
        }
        let mut records: Vec<Record> = found.into_values().collect();
        more |= records.len() > *limit;
        records.truncate(*limit);
        Ok((records, more))
    }
}

/// Keeps the newest record; readers get it once all holders have it.
fn add(found: &mut BTreeMap<String, Record>, object: Record) {
    match found.get(&object.name) {
        Some(known) if known.stamp() >= object.stamp() => {}
        _ => drop(found.insert(object.name.clone(), object)),
    }
}
