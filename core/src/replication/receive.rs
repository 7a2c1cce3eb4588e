//! Requests of other targets about an object here. The receiver compares stamps under the object's
//! lock: an older copy never replaces a newer one, nor restores an object that was removed after
//! the copy was written.

use serde::{Deserialize, Serialize};

use super::Rule;
use super::command::{Command, LocalCopy, LookMode, Removal};
use super::steps::Steps;
use crate::copies::{CopyLook, Stamp};
use crate::erasure::Form;
use crate::error::{Error, ErrorCode, Result};
use crate::name::NodeId;
use crate::native::{self, Arrival};
use crate::placement;
use crate::rebalance;
use crate::state::{ClusterState, Node};

/// A copy or slice that another target sends, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncomingCopy {
    pub stamp: Stamp,
    pub form: Form,
    /// Size of the whole object, in bytes.
    pub size: u64,
    /// The target that sends the copy.
    pub from: Option<NodeId>,
    /// The sender is writing it at this moment.
    pub written: bool,
}

/// The result of an incoming copy that belongs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    Committed(LocalCopy),
    CommittedSlice,
    /// This target has the copy or slice, or a later change. The driver reads the rest of the bytes and
    /// drops them.
    Known,
}

impl Steps {
    /// The state of the object here.
    pub(super) async fn look_here(&self, mode: LookMode) -> Result<CopyLook> {
        let _guard = match mode {
            LookMode::Final | LookMode::FinalInPart => Some(self.lock().await?),
            LookMode::Immediate | LookMode::ImmediateInPart => None,
        };
        let in_part = matches!(mode, LookMode::FinalInPart | LookMode::ImmediateInPart);
        let mut look = self.forms_here(in_part).await?;
        // Also a removal from before the cluster stopped being quiescent, of which there is no
        // tombstone: its owner may have died before another holder had it.
        let newest = look.newest();
        let last = self.recent_removal().filter(|removed| newest < Some(*removed));
        look.removed = look.removed.max(last);
        Ok(look)
    }

    /// Handles a notice that copies older than the stamp were superseded or removed.
    pub(super) async fn remove_older_here(&self, removal: &Removal) -> Result<()> {
        let _guard = self.lock().await?;
        let state = self.state();
        if let Some(by) = &removal.by {
            native::check_writer(&state, self.info(), self.name(), by)?;
        }
        let gone = removal.gone();
        if !removal.written {
            self.record_removal(gone);
        }
        let is_noted = self.note_removal(gone).await?;
        // Only after the tombstone is written: if the disk of an older copy is away at this moment, the
        // tombstone is there when the disk comes back.
        // An older version that is removed is not written again, whatever its stamp.
        let is_obsolete = |copy: LocalCopy| self.is_older_version() || copy.stamp < removal.stamp;
        if self.copy_here().await?.is_some_and(is_obsolete) {
            self.remove_here().await?;
        }
        self.remove_slices(|of| of < removal.stamp).await?;
        if !is_noted {
            // A disk with a copy may have gone meanwhile.
            self.note_removal(gone).await?;
        }
        Ok(())
    }

    /// Writes a tombstone if an older copy may arrive later; returns whether it may.
    async fn note_removal(&self, gone: Stamp) -> Result<bool> {
        let (state, view) = (self.state(), &self.engine.view);
        let is_whole = view.check_disks().is_ok() || !self.keeps(Rule::RemovalsAwaitDisks);
        let may_arrive =
            native::notes_removal(&state, self.info(), self.name(), self.me(), is_whole);
        if may_arrive && self.tombstone_here().await? < Some(gone) {
            self.write_tombstone(gone).await?;
        }
        Ok(may_arrive)
    }

    /// Accepts a copy or slice that belongs here, unless the state here is as new. A slice of an older
    /// version stays until all holders have the new one.
    pub(super) async fn receive(&self, copy: &IncomingCopy) -> Result<ReceiveOutcome> {
        self.check_belongs_here(&self.state(), copy)?;
        if self.is_known(copy).await? {
            return Ok(ReceiveOutcome::Known);
        }
        self.issue(Command::Receive).await.done()?;
        let _guard = self.lock().await?;
        let state = self.state();
        self.check_belongs_here(&state, copy)?;
        if self.is_known(copy).await? {
            return Ok(ReceiveOutcome::Known);
        }
        self.check_not_removed(&state, copy).await?;
        let IncomingCopy { stamp, size, .. } = *copy;
        match copy.form {
            Form::Whole => self.commit(stamp).await.map(ReceiveOutcome::Committed),
            Form::Slice(slice) => {
                self.issue(Command::CommitSlice { slice, stamp, size }).await.done()?;
                Ok(ReceiveOutcome::CommittedSlice)
            }
        }
    }

    /// An error if a copy does not belong here, or its writer may not write it any more.
    fn check_belongs_here(&self, state: &ClusterState, copy: &IncomingCopy) -> Result<()> {
        if let Some(writer) = copy.from.as_ref().filter(|_| copy.written) {
            native::check_writer(state, self.info(), self.name(), writer)?;
        }
        let belongs = match copy.form {
            Form::Whole => self.may_own(state),
            // The bucket of the sender's request may have had another coding.
            Form::Slice(_) => self.has_form_here(state, copy),
        };
        belongs.then_some(()).ok_or_else(|| self.belongs_elsewhere())
    }

    /// Whether this target may have to serve the object: it is one of those that need the whole.
    fn may_own(&self, state: &ClusterState) -> bool {
        let stays = rebalance::duty(state, self.info(), self.name(), self.me()).stays;
        stays && (self.info().erasure.is_none() || self.is_metadata_holder(state))
    }

    fn is_metadata_holder(&self, state: &ClusterState) -> bool {
        let digest = placement::digest_in(&self.info().bucket, self.name());
        let holders = placement::holders(state, self.info(), digest);
        let holders = placement::metadata_holders(self.info(), &holders);
        holders.iter().any(|node| node.id == *self.me())
    }

    fn has_form_here(&self, state: &ClusterState, copy: &IncomingCopy) -> bool {
        let Ok(info) = state.bucket(&self.info().bucket) else { return false };
        let forms = rebalance::forms(state, info, self.name(), copy.size);
        forms.iter().any(|(node, form)| node.id == *self.me() && *form == copy.form)
    }

    /// Whether this target has the copy or slice, or a later change.
    async fn is_known(&self, copy: &IncomingCopy) -> Result<bool> {
        let stamp = copy.stamp;
        if self.is_older_version() {
            return self.is_version_known().await;
        }
        if !self.keeps(Rule::EpochsOrderCopies) && copy.form == Form::Whole {
            let here = self.copy_here().await?;
            return Ok(here.is_some_and(|here| here.stamp.version >= stamp.version));
        }
        let look = self.forms_here(true).await?;
        // A whole beside a newer slice would be served as the current object.
        let is_older = copy.form == Form::Whole && look.newest() > Some(stamp);
        Ok(look.knows_form(copy.form, stamp) || is_older)
    }

    /// An error if the object was removed since this copy was sent, or that could not be detected.
    async fn check_not_removed(&self, state: &ClusterState, copy: &IncomingCopy) -> Result<()> {
        if self.keeps(Rule::LateCopiesAreRefused) && self.is_late(copy.stamp) {
            return Err(self.is_not_wanted());
        }
        if copy.written {
            return Ok(());
        }
        if !self.info().has_copies() {
            self.check_absent()?;
        }
        let complete = match self.is_older_version() {
            // From all targets: none is written a second time.
            true => u64::MAX,
            false => self.complete_version(),
        };
        let from = copy.from.as_ref();
        let (info, name, me) = (self.info(), self.name(), self.me());
        let accepted = match native::arrival(state, info, name, me, from, false, complete) {
            Arrival::Take => true,
            Arrival::Refuse => false,
            Arrival::IfStillAt(from) => {
                let nodes = vec![from.clone()];
                self.immediate_looks(nodes).await?.iter().all(|l| l.there == Some(copy.stamp))
            }
            Arrival::IfNewest(others) => {
                let nodes = others.into_iter().cloned().collect();
                !self.immediate_looks(nodes).await?.iter().any(|l| l.is_after(copy.stamp))
            }
        };
        accepted.then_some(()).ok_or_else(|| self.is_not_wanted())
    }

    fn is_not_wanted(&self) -> Error {
        let text = format!("{}: the copy is not wanted any more", self.object.uri());
        Error::new(ErrorCode::Conflict, text)
    }

    /// The current state of other targets' copies, without waiting for writes in progress; an error
    /// if one does not answer.
    async fn immediate_looks(&self, nodes: Vec<Node>) -> Result<Vec<CopyLook>> {
        let answers = self.look_at_all(nodes, LookMode::Immediate).await;
        answers.into_iter().map(|(_, look)| look).collect()
    }
}
