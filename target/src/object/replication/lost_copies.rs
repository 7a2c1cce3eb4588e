//! Restores copies that were lost with a disk, or whose bytes were damaged, from the other targets
//! that have them. Until this is complete, this target does not treat a missing object as one that
//! was never written.

use std::sync::atomic::Ordering;

use forebay_core::bucket::BucketInfo;
use forebay_core::erasure::Form;
use forebay_core::intra::ListRequest;
use forebay_core::list_page::Detail;
use forebay_core::state::Node;
use forebay_core::{ErrorCode, Result, rebalance};
use forebay_node::pace::Pace;
use futures::StreamExt;
use tokio::sync::watch;

use super::Replication;
use super::transfer::OBJECT_COST_BYTES;

/// Names per page of a listing.
const PAGE: usize = 1000;
/// Number of concurrent fetches.
const PARALLEL: usize = 8;

/// Callback with the result of one object, in fetched bytes.
pub(crate) type Note<'a> = &'a (dyn Fn(Result<u64>) + Sync);

impl Replication {
    /// Counts the losses of objects with a disk.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.store().losses()
    }

    /// Whether copies that belong here may be missing, because they were lost since this target
    /// joined.
    pub(crate) fn may_have_lost(&self) -> bool {
        self.store().lost_so_far() != self.0.restored.load(Ordering::SeqCst)
    }

    /// Fetches the missing copies that belong here. False: some target could not report all that it
    /// has, or some copy could not be fetched.
    pub(crate) async fn refill(&self, pace: &Pace, note: Note<'_>) -> Result<bool> {
        let losses = self.store().lost_so_far();
        let state = self.state();
        let mut all = true;
        for info in state.buckets.values().filter(|info| info.has_copies()) {
            for node in state.holding_targets().filter(|n| n.id != *self.me()) {
                all &= node.alive && self.refill_from(node, info, pace, note).await?;
            }
        }
        if all {
            self.0.restored.fetch_max(losses, Ordering::SeqCst);
        }
        Ok(all)
    }

    /// Whether the whole object, or this slice of it, is stored here.
    async fn has_form(&self, info: &BucketInfo, name: &str, form: Form) -> Result<bool> {
        match form {
            Form::Whole => Ok(self.store().get(info.id, name).await?.is_some()),
            Form::Slice(slice) => {
                let here = self.look_at_slices(info, name).await?;
                Ok(here.iter().any(|look| look.slice == slice))
            }
        }
    }

    async fn refill_from(
        &self,
        node: &Node,
        info: &BucketInfo,
        pace: &Pace,
        note: Note<'_>,
    ) -> Result<bool> {
        let (bucket_id, limit, detail) = (info.id, PAGE, Detail::Size);
        let mut request = ListRequest { bucket_id, limit, detail, ..ListRequest::default() };
        let mut all = true;
        loop {
            let page = match self.page_at(node, &request).await {
                // One of that target's disks may be out of use.
                Err(e) if e.code == ErrorCode::Unavailable && !request.in_part => {
                    (request.in_part, all) = (true, false);
                    continue;
                }
                page => page?,
            };
            let Some(last) = page.entries.last() else { return Ok(all) };
            request.after.clone_from(&last.name);
            let state = self.state();
            let mut missing = Vec::new();
            for entry in &page.entries {
                let size = entry.meta.size;
                let forms = rebalance::forms(&state, info, &entry.name, size);
                let due = forms.into_iter().find(|(node, _)| node.id == *self.me());
                let Some((_, form)) = due else { continue };
                if !self.has_form(info, &entry.name, form).await? {
                    missing.push((entry.name.clone(), size, form));
                }
            }
            let came = futures::stream::iter(missing)
                .map(async |(name, size, form): (String, u64, Form)| -> Result<Option<u64>> {
                    let cost = size.saturating_add(OBJECT_COST_BYTES);
                    pace.pass(usize::try_from(cost).unwrap_or(usize::MAX)).await;
                    self.restore(info, &name).await?;
                    Ok(self.has_form(info, &name, form).await?.then_some(size))
                })
                .buffer_unordered(PARALLEL);
            let mut came = std::pin::pin!(came);
            while let Some(came) = came.next().await {
                all &= came.is_ok();
                match came {
                    Ok(Some(bytes)) => note(Ok(bytes)),
                    // Removed meanwhile.
                    Ok(None) => {}
                    Err(e) => note(Err(e)),
                }
            }
            if !page.more {
                return Ok(all);
            }
        }
    }
}
