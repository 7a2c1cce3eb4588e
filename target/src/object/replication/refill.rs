//! Restores copies that were lost with a disk, or whose bytes were damaged, from the other targets
//! that have them. Until this is complete, this target does not treat a missing object as one that
//! was never written.

use std::sync::atomic::Ordering;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::{CopyRequest, Stamp};
use forebay_core::erasure::Form;
use forebay_core::intra::ListRequest;
use forebay_core::list_page::Detail;
use forebay_core::state::{ClusterState, Node};
use forebay_core::{Error, ErrorCode, Result, rebalance};
use futures::StreamExt;
use tokio::sync::watch;

use super::Replication;
use super::neighbor::Elsewhere;
use super::transfer::COST_OF_ONE;
use crate::pace::Pace;

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
        self.store().lost_so_far() != self.0.refilled.load(Ordering::SeqCst)
    }

    /// Whether a copy that belongs here may be only on another target.
    pub(super) fn may_lack(&self) -> bool {
        self.store().check_whole().is_err() || self.may_have_lost()
    }

    /// An error for a missing object, if its copy may have been lost and no other target can answer
    /// for it.
    pub(super) fn check_never_lost(&self, info: &BucketInfo, name: &str) -> Result<()> {
        if !info.has_copies() || !self.may_have_lost() {
            return Ok(());
        }
        let uri = info.bucket.object_uri(name);
        let text =
            format!("{uri} may have been on a disk that was lost, and no other target can answer");
        Err(Error::unavailable(text).retry_after(1))
    }

    /// The last change of a missing object, from the other holders: a write that counted as the
    /// first one would be older than theirs. The caller holds its lock.
    pub(super) async fn last_elsewhere(
        &self,
        state: &ClusterState,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Stamp>> {
        if !info.has_copies() || !self.may_have_lost() {
            return Ok(None);
        }
        let others = rebalance::metadata_holders(state, info, name, self.me());
        let others = others.into_iter().filter(|n| n.alive).cloned().collect();
        // A copy on an unused disk of another holder is found to be older when that disk is back.
        let request = CopyRequest { in_part: true, ..CopyRequest::new(&info.bucket, name) };
        let Elsewhere { there, removed, .. } = self.elsewhere(info, &request, others).await?;
        Ok(there.map(|(_, stamp)| stamp).max(removed))
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
            self.0.refilled.fetch_max(losses, Ordering::SeqCst);
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
                .map(async |(name, size, form)| {
                    let cost = size.saturating_add(COST_OF_ONE);
                    pace.pass(usize::try_from(cost).unwrap_or(usize::MAX)).await;
                    match form {
                        Form::Whole => self.adopt_from_neighbor(info, &name).await,
                        Form::Slice(_) => {
                            // The owner rebuilds the object, and sends it here.
                            self.have_ensured(info, &name, Stamp::default()).await?;
                            self.told_by_slices(info, &name).await
                        }
                    }
                })
                .buffer_unordered(PARALLEL);
            let mut came = std::pin::pin!(came);
            while let Some(came) = came.next().await {
                all &= came.is_ok();
                match came {
                    Ok(Some(record)) => note(Ok(record.size)),
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
