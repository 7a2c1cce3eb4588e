//! Rules of replication that a simulator breaks one at a time, to check that it finds the
//! consequences.

/// A rule that the engine keeps unless [`super::Replication::with_broken_rule`] names it. No
/// configuration leads to that function: only the simulator calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A read returns only changes that all holders have.
    ReadsShowReplicatedChanges,
    /// A change is acknowledged after the other holders have it.
    AcknowledgeAfterReplication,
    /// A target that missed writes does not serve reads alone.
    StaleTargetsLookUp,
    /// A misplaced copy is removed after it is sent.
    SendBeforeRemoval,
    /// Copies are ordered by the epochs of their stamps first.
    EpochsOrderCopies,
    /// A target that lost a disk does not report the lost objects as nonexistent.
    LossesAreRemembered,
    /// A write of a coded object is acknowledged after all living holders have their slices.
    SlicesBeforeAcknowledgement,
    /// Before a write is acknowledged, all living targets drop their older forms of the object.
    OlderFormsAreDropped,
    /// A misplaced form of a coded object is dropped after all its forms are in place.
    FormsStayUntilSafe,
    /// A copy that arrives after the removal of its object, although it was sent before, is refused.
    LateCopiesAreRefused,
    /// An object that is not found may be on a disk that is not in use.
    DisksThatAreAwayMayHaveObjects,
    /// A removal is recorded while an older copy may be on a disk that is not in use.
    RemovalsAwaitDisks,
    /// The object that a write replaces becomes an older version, also if a former owner has it.
    ReplacedVersionsAreFetched,
    /// An older version is not missing before all targets that may have it have sent theirs.
    VersionsAreGathered,
    /// An older version is removed by all targets that may have it: by living ones at once, by others
    /// when they get the record of the removal.
    VersionRemovalsReachAllTargets,
}
