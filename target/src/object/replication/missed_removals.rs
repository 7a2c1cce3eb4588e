//! Listings of a target that was unavailable: it may still have objects that were removed
//! meanwhile, until it is repaired. They are left out by the other targets' tombstones.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{LIST_PATH, ListPage, ListRequest};
use forebay_core::replication::View;
use forebay_core::state::Node;
use forebay_core::{Error, Result, history, native};
use futures::future::try_join_all;

use super::Replication;
use crate::object::listing::entries;

/// Number of tombstones per request.
const STEP: usize = 1000;

impl Replication {
    /// A page of the records that another target holds.
    pub(super) async fn page_at(&self, node: &Node, request: &ListRequest) -> Result<ListPage> {
        let page = self.0.peer.post_for_bytes(&node.url, LIST_PATH, request).await;
        ListPage::decode(&page.map_err(Error::from)?, request.detail)
    }

    /// The bucket of an id, if this target may have missed removals of its objects.
    pub(in crate::object) fn may_have_missed(&self, bucket_id: u64) -> Option<Arc<BucketInfo>> {
        let state = self.state();
        let native = |info: &&Arc<BucketInfo>| info.id == bucket_id && !info.has_backend();
        let info = state.buckets.values().find(native)?;
        let complete = self.0.view.complete_version();
        let missed = native::may_have_missed_changes(&state, info, self.me(), complete);
        missed.then(|| info.clone())
    }

    /// A page of the records held here, without those that other targets know to be removed.
    pub(in crate::object) async fn page_of_the_rest(
        &self,
        info: &BucketInfo,
        request: &ListRequest,
    ) -> Result<ListPage> {
        let mut after = request.after.clone();
        loop {
            let (page, more) = self.records_here(request, &after).await?;
            let Some(last) = page.last().map(|record| record.name.clone()) else {
                return Ok(ListPage { entries: Vec::new(), more });
            };
            let removed = self.removals_elsewhere(info, request, &after, &last).await?;
            let mut rest = Vec::with_capacity(page.len());
            for record in page {
                if !removed.contains(&record.name)
                    || !self.is_removed_elsewhere(info, &record.name, record.stamp()).await?
                {
                    rest.push(record);
                }
            }
            // An empty page means that no names follow.
            if !rest.is_empty() || !more {
                if self.may_have_missed(info.id).is_none() {
                    // The tombstones may have been removed before they were listed.
                    let text = format!("{} got the changes that it missed just now", self.me());
                    return Err(Error::unavailable(text).retry_after(1));
                }
                return Ok(ListPage { entries: entries(rest), more });
            }
            after = last;
        }
    }

    /// Names between `after` and `last` for which other targets have tombstones.
    async fn removals_elsewhere(
        &self,
        info: &BucketInfo,
        request: &ListRequest,
        after: &str,
        last: &str,
    ) -> Result<BTreeSet<String>> {
        let state = self.state();
        let others = state.holding_targets().filter(|n| n.alive && n.id != *self.me());
        let asked = others.map(|node| self.removals_at(node, info, request, (after, last)));
        Ok(try_join_all(asked).await?.into_iter().flatten().collect())
    }

    async fn removals_at(
        &self,
        node: &Node,
        info: &BucketInfo,
        request: &ListRequest,
        (after, last): (&str, &str),
    ) -> Result<Vec<String>> {
        let mut request = ListRequest {
            bucket_id: history::tombstones(info.id),
            prefix: request.prefix.clone(),
            after: after.to_owned(),
            until: Some(last.to_owned()),
            limit: STEP,
            ..ListRequest::default()
        };
        let mut names = Vec::new();
        loop {
            let page = self.page_at(node, &request).await?;
            names.extend(page.entries.into_iter().map(|entry| entry.name));
            match names.last().filter(|_| page.more) {
                Some(last) => request.after.clone_from(last),
                None => return Ok(names),
            }
        }
    }
}
