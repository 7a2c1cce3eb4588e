//! Replication of a change from the owner to the other targets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Rule;
use super::command::{Answer, Command, LocalCopy, ObsoleteForms, Removal};
use super::operation::Pending;
use super::steps::Steps;
use crate::copies::Stamp;
use crate::erasure::Form;
use crate::error::{Error, ErrorCode, Result};
use crate::name::NodeId;
use crate::native::{self, ReplicaSet};
use crate::state::{ClusterState, Node};

/// Timeout of a change for a target that does not respond and is not found dead.
pub(super) const REPLICATION_TIMEOUT: Duration = Duration::from_secs(6);
/// Pause before a retry at such a target.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A change of an object that is committed on this target.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Written(LocalCopy),
    Removed(Stamp),
    /// All living holders have the version with this stamp: older forms are dropped.
    Completed(Stamp),
}

impl Change {
    pub(super) fn stamp(self) -> Stamp {
        match self {
            Self::Written(copy) => copy.stamp,
            Self::Removed(stamp) | Self::Completed(stamp) => stamp,
        }
    }

    pub(super) fn is_write(self) -> bool {
        matches!(self, Self::Written(_))
    }
}

/// Makes the failure one that the next owner does not retry: the change is made in part, and some
/// targets may have it.
pub(super) fn not_retried(e: Error) -> Error {
    match e.code {
        ErrorCode::WrongOwner => Error { code: ErrorCode::Unavailable, ..e },
        _ => e,
    }
}

impl Steps {
    /// The state under which an object is written. [`ErrorCode::WrongOwner`] if another target
    /// writes it; another error if that is possible, because this target has no lease. The caller
    /// holds the object's lock, so that a later holder of the lock, under a newer state, can rely
    /// on no more writes here.
    pub(super) async fn may_write(&self) -> Result<Arc<ClusterState>> {
        self.wait_for_lease().await?;
        let state = self.state();
        let info = self.info();
        let known = state.bucket(&info.bucket).ok();
        let Some(known) = known.filter(|known| known.id == info.id && !known.has_backend()) else {
            return Ok(state);
        };
        if native::writes(&state, known, self.name(), self.me())? {
            return Ok(state);
        }
        Err(Error { code: ErrorCode::WrongOwner, ..self.belongs_elsewhere() })
    }

    /// Replicates a change: holders of copies get the new one, all others that may have the object
    /// drop older copies. Returns when all living targets have it; they also have this target's
    /// state then, and return no older copies any more. A dead target's copy is found to be older
    /// when the target is back. The caller holds the object's lock.
    pub(super) async fn replicate(&self, change: Change) -> Result<()> {
        self.replicate_as_owner(change).await.map_err(not_retried)
    }

    /// The same; [`ErrorCode::WrongOwner`] if another target becomes the owner of an object with
    /// copies before the replication is complete.
    pub(super) async fn replicate_as_owner(&self, change: Change) -> Result<()> {
        let (started, mut complete) = (self.now(), BTreeSet::new());
        loop {
            let state = match self.info().has_copies() {
                true => self.may_write().await?,
                // Ownership may have moved during a long write.
                false => {
                    self.wait_for_lease().await?;
                    self.state()
                }
            };
            let ReplicaSet { holders, mut all } =
                native::replica_set(&state, self.info(), self.name(), self.me());
            all.retain(|node| !complete.contains(&node.id));
            let requests = match change {
                Change::Written(copy) if self.info().erasure.is_some() => {
                    self.send_written_forms(&state, copy, all, &complete).await
                }
                _ => {
                    let requests = all.into_iter().map(|node| {
                        let is_holder = holders.iter().any(|holder| holder.id == node.id);
                        (node.id.clone(), self.send_change(node, change, is_holder))
                    });
                    requests.collect()
                }
            };
            if !self.keeps(Rule::AcknowledgeAfterReplication) {
                self.sleep(Duration::ZERO).await;
                self.complete_replication();
                return Ok(());
            }
            let (mut failed, mut died) = (None, false);
            for (node, request) in requests {
                match request.await {
                    Answer::Died => died = true,
                    answer => match answer.done() {
                        Ok(()) => drop(complete.insert(node)),
                        Err(e) => failed = Some((node, e)),
                    },
                }
            }
            match failed {
                // The next turn is under the state without that node.
                None if died => {}
                None => {
                    if let Some(completed) = self.completion_of(change, &state) {
                        return Box::pin(self.replicate_as_owner(completed)).await;
                    }
                    if let Change::Completed(stamp) = change {
                        self.remove_slices(|of| of < stamp).await?;
                    }
                    self.complete_replication();
                    return Ok(());
                }
                Some((id, e)) if self.now().saturating_sub(started) > REPLICATION_TIMEOUT => {
                    let uri = self.object.uri();
                    let text = format!("{uri}: target {id} does not take the change: {e}");
                    return Err(Error::unavailable(text));
                }
                Some(_) => self.sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Sends a change to one target: the new copy to a holder, the end of older copies to others.
    fn send_change(&self, to: &Node, change: Change, is_holder: bool) -> Pending {
        if let Change::Written(copy) = change
            && is_holder
        {
            let (to, form) = (to.id.clone(), Form::Whole);
            return self.issue(Command::Send { to, copy, form, written: true });
        }
        let by = self.info().has_copies().then(|| self.me().clone());
        if let Change::Completed(stamp) = change {
            let forms = ObsoleteForms::Before(stamp);
            return self.issue(Command::DropForms { to: to.id.clone(), forms, by });
        }
        let removal = Removal { stamp: change.stamp(), by, written: change.is_write() };
        self.request_removal(&to.id, &removal)
    }

    /// Sends their forms of a written object to the targets among `to` that should have any. The
    /// others get the change when all holders have it: until then they may have what is needed if
    /// this target dies. An owner that is not the first holder has its own slice beside the whole,
    /// so that all forms are in place when the first holder owns the object again.
    async fn send_written_forms(
        &self,
        state: &ClusterState,
        copy: LocalCopy,
        to: Vec<&Node>,
        complete: &BTreeSet<NodeId>,
    ) -> Vec<(NodeId, Pending)> {
        let send = |(holder, form): (Node, Form)| {
            let is_receiver = to.iter().any(|node| node.id == holder.id);
            let command = match form {
                _ if is_receiver => {
                    Command::Send { to: holder.id.clone(), copy, form, written: true }
                }
                Form::Slice(slice) if holder.id == *self.me() => Command::KeepSlice { copy, slice },
                _ => return None,
            };
            Some((holder.id, form, self.issue(command)))
        };
        let mut forms = self.forms(state, copy.size);
        forms.retain(|(holder, _)| !complete.contains(&holder.id));
        let mut sends: Vec<(NodeId, Form, Pending)> = forms.into_iter().filter_map(send).collect();
        if !self.keeps(Rule::SlicesBeforeAcknowledgement) {
            self.sleep(Duration::ZERO).await;
            sends.retain(|(_, form, _)| *form == Form::Whole);
        }
        sends.into_iter().map(|(id, _, send)| (id, send)).collect()
    }

    /// The change that follows a write of a coded object, if a target may have an older version.
    fn completion_of(&self, change: Change, state: &ClusterState) -> Option<Change> {
        let Change::Written(copy) = change else { return None };
        let may_have_older = copy.stamp.version > 1 || !state.is_in_place(self.info());
        let drops = self.info().erasure.is_some()
            && may_have_older
            && self.keeps(Rule::OlderFormsAreDropped);
        drops.then_some(Change::Completed(copy.stamp))
    }
}
