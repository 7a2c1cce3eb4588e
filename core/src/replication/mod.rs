//! The replication of native objects between targets, without I/O.
//!
//! Some target owns each native object ([`crate::placement`]). It orders all changes of the object,
//! and sends each to the other targets that hold a copy. While objects move after a change of
//! placement, while a target is away, and after it returns, the newest copy may be on any of several
//! targets; the rules for that are in [`crate::native`] and [`crate::rebalance`]. This module has the
//! steps between these rules: which target is asked when, what is written first, and what happens
//! if a node fails in between.
//!
//! # Operations, commands and events
//!
//! An [`Operation`] is one such sequence of steps on one object: a read, a write, the receipt of a
//! copy. It reads as sequential code, and waits only for answers to its [`Command`]s ("get the
//! committed copy", "send the copy to this node"). Its driver calls [`Operation::step`] with an
//! [`Event`], executes the commands that come out, and reports each answer as the next event:
//!
//! ```text
//!          Event::Start, Event::Answered
//!   driver ────────────────────────────> Operation::step
//!          <────────────────────────────
//!          Step::Commands, Step::Done
//! ```
//!
//! There are two drivers: targets execute commands with disks and HTTP
//! (`target/src/object/replication`), the simulator with its model of both (`tests/sim`).
//!
//! Payloads do not pass through the engine: it names a copy by its stamp and commit, and the driver
//! moves the bytes. Between commands an operation reads the present through [`View`]: the cluster
//! state, the lease, the clock, the condition of the disks. These reads do not wait.
//!
//! # Duties of a driver
//!
//! - It executes all commands of a step concurrently, and reports each answer by itself.
//! - It holds the object's lock between [`Command::Lock`] and [`Command::Unlock`], and releases it
//!   when the operation ends or is dropped; an operation holds one lock at a time.
//! - A disk that comes back into use brings no copy or slice that is as old as a tombstone of its
//!   object here.
//! - It stops a command at [`Command::Cancel`], and all commands when the operation ends or is
//!   dropped. A request that was sent may still be executed.
//! - A node that receives a request first gets the state that the sender has; then it starts the
//!   operation that belongs to the request: [`Replication::look`], [`Replication::send_on_request`],
//!   [`Replication::receive`], [`Replication::remove_older`], [`Replication::drop_forms`],
//!   [`Replication::ensure`].
//!
//! # Pending replications
//!
//! Between its commit on the owner and its acknowledgement, a change is *pending*
//! ([`PendingReplications`]): reads wait for it, because another owner would not have it. A read
//! completes the replication of a change whose writer gave up.
//!
//! # Erasure coding
//!
//! A large object of a bucket with erasure coding has one form on each of its targets, by rank: the
//! whole on the first one, a slice on each of the next ones ([`crate::erasure`],
//! [`crate::rebalance::forms`]). A target that owns an object has the whole: it commits the whole when
//! it writes, and assembles it from slices before it serves or changes the object. Slices of two
//! versions are beside each other until all living holders have the newer one; then the older forms
//! are dropped ([`Command::DropForms`]), and the write is acknowledged. So if the owner dies in
//! between, enough slices of one version are left.
//!
//! A version with too few available slices is passed over only if its write was certainly never
//! acknowledged (`find`). A target that has a form which is misplaced, or whose object may lack other
//! forms, requests that the owner brings all of them to their places ([`Replication::ensure`]), and
//! drops its own only after that.
//!
//! # Older versions
//!
//! A bucket that keeps versions has its older ones in a history ([`crate::history`]). A version is an
//! [`Object`], too: it belongs where its object belongs, and its record, tombstone and lock are of its
//! own. No version is written a second time, nor after its removal. While objects move, the owner of an
//! object gathers the versions from all targets before it reports one as missing (`versions`).

mod assemble;
mod available;
mod command;
mod ensure;
mod find;
mod forms;
mod handover;
mod lookup;
mod operation;
mod pending;
mod read;
mod receive;
mod relocate;
mod removals;
mod remove;
mod replicate;
mod restore;
mod rules;
mod slices;
mod spread;
mod steps;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod tombstone;
mod versions;
mod write;

use std::sync::Arc;
use std::time::Duration;

pub use self::command::{
    Answer, Command, CommandId, LocalCopy, LocalSlice, LookMode, ObsoleteForms, Removal,
    SliceSource,
};
pub use self::operation::{Event, IssuedCommand, Operation, Step, next_executed};
pub use self::pending::PendingReplications;
pub use self::receive::{IncomingCopy, ReceiveOutcome};
use self::removals::RecentRemovals;
pub use self::rules::Rule;
use self::steps::Steps;
pub use self::write::WriteOptions;
use crate::bucket::BucketInfo;
use crate::copies::{CopyLook, Ensured, Stamp};
use crate::error::{Error, Result};
use crate::name::NodeId;
use crate::state::ClusterState;
use crate::{history, native, placement};

/// An object of a native bucket, or an older version of one.
#[derive(Clone, Debug)]
pub struct Object {
    pub info: Arc<BucketInfo>,
    pub name: Arc<str>,
    /// The name in the bucket's history, if it is an older version.
    version: Option<Arc<str>>,
}

impl Object {
    pub fn new(info: Arc<BucketInfo>, name: &str) -> Self {
        Self { info, name: name.into(), version: None }
    }

    /// An older version of an object, by its name in the bucket's history.
    pub fn older_version(info: Arc<BucketInfo>, version: &str) -> Self {
        let name = history::split(version).map_or(version, |(object, _)| object);
        Self { info, name: name.into(), version: Some(version.into()) }
    }

    pub fn is_older_version(&self) -> bool {
        self.version.is_some()
    }

    /// The id under which a target stores it: that of the bucket, or of its history.
    pub fn stored_id(&self) -> u64 {
        if self.is_older_version() { history::id(self.info.id) } else { self.info.id }
    }

    /// The name under which a target stores it, and its tombstone.
    pub fn stored_name(&self) -> &str {
        self.version.as_deref().unwrap_or(&self.name)
    }

    /// The object's name for messages.
    pub fn uri(&self) -> String {
        self.info.bucket.object_uri(&self.name)
    }
}

/// The present state of a target, as an operation reads it between its commands.
pub trait View: Send + Sync {
    /// The time since some moment before the process started.
    fn now(&self) -> Duration;

    /// The newest cluster state that this target has.
    fn state(&self) -> Arc<ClusterState>;

    /// The newest version of the cluster state, since this process started, in which the rebalance
    /// was complete; 0 if that is not known.
    fn complete_version(&self) -> u64 {
        0
    }

    /// Whether this target has a lease: no other target may act for its objects.
    fn has_lease(&self) -> bool;

    /// An error if some disk of this target is not in use.
    fn check_disks(&self) -> Result<()>;

    /// An error if an object that was not found may be on a disk which is not in use.
    fn check_absent(&self, object: &Object) -> Result<()>;

    /// Whether objects were lost with a disk that were not restored yet.
    fn has_lost_objects(&self) -> bool;

    /// Whether slices of the bucket's objects may be here. They may also be if the bucket had
    /// erasure coding before.
    fn may_have_slices(&self, info: &BucketInfo) -> bool {
        info.erasure.is_some()
    }
}

/// The replication engine of one target; cheap to clone.
#[derive(Clone)]
pub struct Replication {
    me: NodeId,
    view: Arc<dyn View>,
    pending: Arc<PendingReplications>,
    removals: Arc<RecentRemovals>,
    broken: Option<Rule>,
}

impl Replication {
    /// The engine of target `me` for the lifetime of its process.
    pub fn new(me: NodeId, view: Arc<dyn View>) -> Self {
        Self { me, view, pending: Arc::default(), removals: Arc::default(), broken: None }
    }

    /// The engine that breaks one rule; only for the simulator.
    #[must_use]
    pub fn with_broken_rule(self, rule: Rule) -> Self {
        Self { broken: Some(rule), ..self }
    }

    /// The changes that may not have reached all holders.
    pub fn pending(&self) -> &PendingReplications {
        &self.pending
    }

    /// Whether a copy here with this stamp is known to be the newest without a lookup, so that it
    /// may be served.
    pub fn is_authoritative(&self, info: &BucketInfo, name: &str, copy: Stamp) -> bool {
        let may_be_pending =
            || self.keeps(Rule::ReadsShowReplicatedChanges) && self.pending.has(info, name);
        let may_be_stale = self.keeps(Rule::StaleTargetsLookUp)
            && native::may_be_stale(
                &self.view.state(),
                info,
                &self.me,
                copy,
                self.view.complete_version(),
            );
        !may_be_stale && (!info.has_copies() || self.view.has_lease() && !may_be_pending())
    }

    /// Whether this target may serve a hedged read of an object, if it has a copy.
    pub fn may_hedge(&self, info: &BucketInfo, name: &str) -> bool {
        let state = self.view.state();
        self.view.has_lease()
            && placement::hedge_target(&state, info, name).is_some_and(|node| node.id == self.me)
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// A client's read. Returns the copy that was opened; `None` if there is no such object.
    pub fn read(&self, object: Object) -> Operation<Result<Option<LocalCopy>>> {
        self.operation(object, |steps| async move { steps.read().await })
    }

    /// A client's read at the second holder, because the owner does not respond. Fails unless this
    /// target may serve the object.
    pub fn hedged_read(&self, object: Object) -> Operation<Result<Option<LocalCopy>>> {
        self.operation(object, |steps| async move { steps.hedged_read().await })
    }

    /// A client's write, whose bytes are here. Returns the copy when all holders have it.
    pub fn write(&self, object: Object, options: WriteOptions) -> Operation<Result<LocalCopy>> {
        self.operation(object, move |steps| async move { steps.write(options).await })
    }

    /// A client's change of an object's metadata, which [`Command::UpdateMetadata`] makes. `None` if
    /// there is no such object.
    pub fn update(&self, object: Object) -> Operation<Result<Option<LocalCopy>>> {
        self.operation(object, |steps| async move { steps.update().await })
    }

    /// A client's removal; returns whether the object existed.
    pub fn remove(&self, object: Object) -> Operation<Result<bool>> {
        self.operation(object, |steps| async move { steps.remove().await })
    }

    /// The same for a caller that holds the object's lock, and holds it after a success, too.
    pub fn remove_under_lock(&self, object: Object) -> Operation<Result<bool>> {
        self.operation(object, |steps| async move { steps.remove_under_lock().await })
    }

    /// Fetches the newest copy of an object that is missing here. `None` if there is no such object.
    pub fn fetch_newest(&self, object: Object) -> Operation<Result<Option<LocalCopy>>> {
        self.operation(object, |steps| async move { steps.fetch_newest().await })
    }

    /// Fetches a copy that was lost with a disk, if it is missing here and belongs here. For a coded
    /// object, the owner brings all its forms to their places; the copy returned is the one here.
    pub fn restore(&self, object: Object) -> Operation<Result<Option<LocalCopy>>> {
        self.operation(object, |steps| async move { steps.restore().await })
    }

    /// Replaces a damaged copy by that of another target. False if no other target has one as new,
    /// or can be reached; then the damaged one stays as it is.
    pub fn repair(&self, object: Object, damaged: LocalCopy) -> Operation<Result<bool>> {
        self.operation(object, move |steps| async move { steps.repair(damaged).await })
    }

    /// Whether the newest change that other targets know of an object is its removal, after `copy`
    /// was written: the copy is left out of listings.
    pub fn is_removed_elsewhere(&self, object: Object, copy: Stamp) -> Operation<Result<bool>> {
        self.operation(object, move |steps| async move { steps.is_removed_elsewhere(copy).await })
    }

    /// Another target's look at an object.
    pub fn look(&self, object: Object, mode: LookMode) -> Operation<Result<CopyLook>> {
        self.operation(object, move |steps| async move { steps.look_here(mode).await })
    }

    /// Another target's request to remove older copies.
    pub fn remove_older(&self, object: Object, removal: Removal) -> Operation<Result<()>> {
        self.operation(object, move |steps| async move { steps.remove_older_here(&removal).await })
    }

    /// Another target's request for the copy here. `anew`: also if the copy there is as new.
    pub fn send_on_request(&self, object: Object, to: NodeId, anew: bool) -> Operation<Result<()>> {
        self.operation(object, move |steps| async move { steps.send_on_request(&to, anew).await })
    }

    /// Fetches all older versions of an object that this target owns from the targets that may have
    /// some. An error if one of them, or a disk here, is unavailable.
    pub fn gather_versions(&self, object: Object) -> Operation<Result<()>> {
        self.operation(object, |steps| async move { steps.gather_versions().await })
    }

    /// Locks an object that this target owns, with its newest copy here and, as far as the other targets
    /// send them, its older versions. The driver keeps the lock. Returns why an older version may be
    /// missing here.
    pub fn lock_with_versions(&self, object: Object) -> Operation<Result<Option<Error>>> {
        self.operation(object, |steps| async move { steps.lock_with_versions().await })
    }

    /// Locks an object with its newest copy here. The driver keeps the lock.
    pub fn lock_newest(&self, object: Object) -> Operation<Result<()>> {
        self.operation(object, |steps| async move { steps.lock_for_removal().await })
    }

    /// The owner's request for all older versions of an object that are here.
    pub fn hand_over_versions(&self, object: Object, to: NodeId) -> Operation<Result<()>> {
        self.operation(object, move |steps| async move { steps.hand_over_versions(&to).await })
    }

    /// Removes an older version for good, of an object that this target owns and whose lock the caller
    /// holds. `found`: the stamp of the version here.
    pub fn remove_version(&self, version: Object, found: Stamp) -> Operation<Result<()>> {
        self.operation(version, move |steps| async move { steps.remove_version(found).await })
    }

    /// A copy that another target sends.
    pub fn receive(&self, object: Object, copy: IncomingCopy) -> Operation<Result<ReceiveOutcome>> {
        self.operation(object, move |steps| async move { steps.receive(&copy).await })
    }

    /// Moves a copy to where it belongs. Returns the bytes sent or removed; `None` if there was
    /// nothing to do.
    pub fn relocate(&self, object: Object) -> Operation<Result<Option<u64>>> {
        self.operation(object, |steps| async move { steps.relocate().await })
    }

    /// Has the forms of a coded object brought to their places, if slices of it are here, and drops
    /// those slices that do not belong here. Returns as [`Self::relocate`] does.
    pub fn relocate_slices(&self, object: Object) -> Operation<Result<Option<u64>>> {
        self.operation(object, |steps| async move { steps.relocate_slices().await })
    }

    /// Brings all forms of an object that this target owns to their places. `stamp`: that of a form
    /// at the target that requests it. A driver may run one such operation for an object at a time.
    pub fn ensure(&self, object: Object, stamp: Stamp) -> Operation<Result<Ensured>> {
        self.operation(object, move |steps| async move { steps.ensure(stamp).await })
    }

    /// Drops a damaged slice, and has it made again. False if its object is not safe without it;
    /// then it stays as it is.
    pub fn repair_slice(&self, object: Object, damaged: LocalSlice) -> Operation<Result<bool>> {
        self.operation(object, move |steps| async move { steps.repair_slice(damaged).await })
    }

    /// Another target's request to drop forms of an object.
    pub fn drop_forms(
        &self,
        object: Object,
        forms: ObsoleteForms,
        by: Option<NodeId>,
    ) -> Operation<Result<()>> {
        self.operation(object, move |steps| async move {
            steps.drop_forms_here(forms, by.as_ref()).await
        })
    }

    /// Sends a tombstone to the holders of its object.
    pub fn relocate_tombstone(&self, object: Object) -> Operation<Result<()>> {
        self.operation(object, |steps| async move { steps.relocate_tombstone().await })
    }

    /// Removes a tombstone that is no longer needed in the quiescent cluster of this version.
    pub fn drop_tombstone(&self, object: Object, version: u64) -> Operation<Result<()>> {
        self.operation(object, move |steps| async move { steps.drop_tombstone(version).await })
    }

    fn steps(&self, object: Object, commands: operation::Commands) -> Steps {
        Steps { engine: self.clone(), object, commands }
    }

    fn operation<T, F>(&self, object: Object, text: impl FnOnce(Steps) -> F) -> Operation<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        Operation::new(|commands| text(self.steps(object, commands)))
    }
}
