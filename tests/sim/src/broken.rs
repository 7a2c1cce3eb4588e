//! Rules that can be broken on purpose, to check that the simulator finds the consequences. Only
//! tests and the option `--broken` break any.

use forebay_core::replication::Rule;

/// A rule that the simulation breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Broken {
    /// The leader counts a silent target as dead while the target's lease is still valid.
    DeadTooEarly,
    /// A lease starts at the response of a leader, not at the leader's last confirmation by a
    /// majority.
    LeaseFromTheAnswer,
    /// A target answers without a lease.
    NoLease,
    /// Tombstones are removed while a node is dead or objects move.
    TombstonesTooEarly,
    /// A read returns a change that not all holders have.
    ShownTooEarly,
    /// A write is acknowledged before the other holders have it.
    AckTooEarly,
    /// A target that missed writes serves reads alone.
    LaggingAnswers,
    /// A misplaced copy is dropped before it is sent.
    DroppedTooEarly,
    /// Copies are ordered by their versions alone, without the epoch of the state that they were
    /// written under.
    NoEpochs,
    /// A rebalance counts as complete although a target was dead or restarted during it.
    CompleteTooEarly,
    /// A target that lost a disk reports the lost objects as nonexistent.
    LossForgotten,
    /// A write of a coded object is acknowledged before the other holders have their slices.
    AckBeforeSlices,
    /// A write of a coded object is acknowledged while other targets have older forms of it.
    OlderFormsKept,
    /// A misplaced form of a coded object is dropped before all its forms are in place.
    FormDroppedTooEarly,
    /// A process that restarts quickly does not report that its predecessor died.
    QuickRestartUnnoticed,
    /// A copy that was long under way is accepted after the removal of its object.
    LateCopyAccepted,
    /// A target reports objects on a disk that is not in use as nonexistent.
    AwayDiskForgotten,
    /// A target does not record a removal of an object that may be on a disk that is not in use.
    RemovalForgottenAtAwayDisk,
    /// A write does not archive the object that it replaces if a former owner has that object.
    ReplacedNotFetched,
    /// A target reports an older version as missing that another target may have.
    VersionsNotGathered,
    /// The owner alone removes an older version, without a record.
    VersionRemovedAtOwner,
}

impl Broken {
    /// The rule of the engine that it breaks; none if it breaks a rule of the simulated nodes.
    pub(crate) fn rule(self) -> Option<Rule> {
        Some(match self {
            Self::ShownTooEarly => Rule::ReadsShowReplicatedChanges,
            Self::AckTooEarly => Rule::AcknowledgeAfterReplication,
            Self::LaggingAnswers => Rule::StaleTargetsLookUp,
            Self::DroppedTooEarly => Rule::SendBeforeRemoval,
            Self::NoEpochs => Rule::EpochsOrderCopies,
            Self::LossForgotten => Rule::LossesAreRemembered,
            Self::AckBeforeSlices => Rule::SlicesBeforeAcknowledgement,
            Self::OlderFormsKept => Rule::OlderFormsAreDropped,
            Self::FormDroppedTooEarly => Rule::FormsStayUntilSafe,
            Self::LateCopyAccepted => Rule::LateCopiesAreRefused,
            Self::AwayDiskForgotten => Rule::DisksThatAreAwayMayHaveObjects,
            Self::RemovalForgottenAtAwayDisk => Rule::RemovalsAwaitDisks,
            Self::ReplacedNotFetched => Rule::ReplacedVersionsAreFetched,
            Self::VersionsNotGathered => Rule::VersionsAreGathered,
            Self::VersionRemovedAtOwner => Rule::VersionRemovalsReachAllTargets,
            Self::DeadTooEarly
            | Self::LeaseFromTheAnswer
            | Self::NoLease
            | Self::TombstonesTooEarly
            | Self::CompleteTooEarly
            | Self::QuickRestartUnnoticed => return None,
        })
    }
}
