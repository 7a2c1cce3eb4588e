//! The commands of the engine and the answers to them. Both are data: a driver can record them, and
//! a recorded history can be compared with another one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::copies::{CopyLook, Ensured, Stamp};
use crate::erasure::{Form, Slice};
use crate::error::{Error, Result};
use crate::name::NodeId;

/// Identifies a command within its operation.
pub type CommandId = u64;

/// A committed copy of the operation's object on this target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalCopy {
    pub stamp: Stamp,
    /// Distinguishes the commits of one object on this target.
    pub commit: u64,
    /// In bytes.
    pub size: u64,
    /// Its bytes are damaged, and it is being repaired.
    pub damaged: bool,
}

/// A committed slice of the operation's object on this target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalSlice {
    pub slice: Slice,
    /// The stamp of the object that the slice belongs to.
    pub stamp: Stamp,
    /// Distinguishes the commits of one object's slices on this target.
    pub commit: u64,
    /// Size of the whole object, in bytes.
    pub size: u64,
}

/// A slice that an object is assembled from, and its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceSource {
    pub target: NodeId,
    pub slice: Slice,
}

/// The forms of an object, whole or slices, that a target drops without a tombstone: nothing was
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObsoleteForms {
    /// All that are older than this stamp: every holder has its form of a newer version.
    Before(Stamp),
    /// The slices with exactly this stamp: their write was never acknowledged, and too few of them
    /// are left.
    Unacknowledged(Stamp),
}

/// A command to the driver of an operation. All commands are about the operation's object, or older
/// version of one, on the driver's target unless a node is named.
///
/// A request to another node carries the version of the cluster state that this target has; the
/// receiver gets that version before it handles the request. If this target's state has the node
/// dead or removed while the request is in progress, the answer is [`Answer::Died`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Waits for the object's lock, which orders all changes of the object here. The driver holds
    /// it until [`Self::Unlock`] or the end of the operation.
    Lock,
    /// Releases the lock. No answer.
    Unlock,
    /// Stops an unanswered command. No answer, nor one to that command.
    Cancel(CommandId),
    /// Waits.
    Sleep(Duration),
    /// Waits until this target may send so many bytes, which are not urgent.
    Pace { bytes: u64 },
    /// Waits for a lease for a moment, if this target has none; fails if none comes.
    WaitForLease,
    /// Returns the committed copy.
    GetCopy,
    /// Returns the slices of the object here. Issued only if [`super::View::may_have_slices`].
    GetSlices,
    /// Returns the stamp of the tombstone.
    GetTombstone,
    /// Opens exactly this commit for the reader; [`crate::ErrorCode::ObjectNotFound`] if another
    /// commit replaced it, or it was removed.
    Open(LocalCopy),
    /// Checks the client's precondition against the object as it is.
    CheckCondition,
    /// Makes everything ready to replace the copy: archives it as an older version in a bucket that
    /// keeps versions, and takes over its metadata. If there is no copy here, the metadata are those
    /// of the newest slice here.
    Prepare { replaced: Option<LocalCopy>, stamp: Stamp },
    /// Waits until all bytes of a copy or slice that another target sends are here, and checks them.
    Receive,
    /// Commits the payload of the operation; returns the copy.
    Commit { stamp: Stamp },
    /// Commits changed metadata of this copy, with the same bytes; returns the new commit.
    UpdateMetadata { copy: LocalCopy, stamp: Stamp },
    /// Removes the committed copy; returns the removed one.
    RemoveCopy,
    /// Writes a tombstone. If the cluster is quiescent by then, the driver removes it soon.
    WriteTombstone { stamp: Stamp },
    /// Removes the tombstone with this stamp; another one stays.
    RemoveTombstone { stamp: Stamp },
    /// Commits the payload of the operation as a slice of the object with this stamp and size. A
    /// target keeps two versions of a slice: the oldest one, and the last one that was committed.
    CommitSlice { slice: Slice, stamp: Stamp, size: u64 },
    /// Encodes this slice of the copy here, and commits it here as [`Self::CommitSlice`] does.
    /// [`crate::ErrorCode::ObjectNotFound`] if another commit replaced the copy, or it was removed.
    KeepSlice { copy: LocalCopy, slice: Slice },
    /// Removes slices of the object here; one that was replaced meanwhile stays.
    RemoveSlices { slices: Vec<LocalSlice> },
    /// Decodes the object with this stamp from slices of the same stamp. If a slice cannot be read,
    /// another one is used. Fails if too few can.
    Assemble { stamp: Stamp, sources: Vec<SliceSource> },
    /// Commits the object that the last [`Self::Assemble`] decoded; returns the copy. The payload of
    /// the operation, if it is a write, is not used.
    CommitAssembled { stamp: Stamp },
    /// Requests the state of the object on a node.
    Look { to: NodeId, mode: LookMode },
    /// Requests that a node sends its copy here. [`crate::ErrorCode::Conflict`] if the copy arrived
    /// and was not accepted.
    Fetch { from: NodeId, anew: bool },
    /// Sends a form of the copy here to a node; the answer arrives when the node has it, or a newer
    /// one. `written`: this target is writing it at this moment. The driver may read the copy once for
    /// all slices that are sent in one step.
    Send { to: NodeId, copy: LocalCopy, form: Form, written: bool },
    /// Requests that a node removes older copies.
    RemoveOlder { to: NodeId, removal: Removal },
    /// Requests that a node drops forms of the object. `by`: the target that writes the object at
    /// this moment, if it requests that.
    DropForms { to: NodeId, forms: ObsoleteForms, by: Option<NodeId> },
    /// Requests that the owner of the object brings all its forms to their places; `stamp` is that
    /// of a form here.
    Ensure { to: NodeId, stamp: Stamp },
    /// Returns the names, in the bucket's history, of the object's older versions here.
    ListVersions,
    /// Requests that a node sends all its older versions of the object here.
    FetchVersions { from: NodeId },
    /// Runs [`super::Replication::send_on_request`] for an older version of the object.
    SendVersion { version: String, to: NodeId },
}

/// How a target answers a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookMode {
    /// After changes in progress have ended. An object that may be on a disk which is not in use is
    /// an error.
    Final,
    /// The same; objects on disks that are not in use count as missing.
    FinalInPart,
    /// At once, without waiting for changes in progress. An object that may be on a disk which is not
    /// in use is an error.
    Immediate,
    /// The same; objects on disks that are not in use count as missing.
    ImmediateInPart,
}

/// A request to remove the copies of an object that are older than a stamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    pub stamp: Stamp,
    /// The target that deletes or writes the object at this moment; none if the change is complete.
    pub by: Option<NodeId>,
    /// The older copies were superseded by a write with this stamp, which may be sent, too.
    pub written: bool,
}

impl Removal {
    /// A deletion whose deleter has finished or given up.
    pub fn of(stamp: Stamp) -> Self {
        Self { stamp, by: None, written: false }
    }

    /// The stamp of the latest removed state.
    pub fn gone(&self) -> Stamp {
        if self.written { self.stamp.before() } else { self.stamp }
    }
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The command is executed, and returns nothing.
    Done,
    /// To [`Command::GetCopy`], [`Command::RemoveCopy`], [`Command::Commit`],
    /// [`Command::CommitAssembled`] and [`Command::UpdateMetadata`].
    Copy(Option<LocalCopy>),
    /// To [`Command::GetSlices`].
    Slices(Vec<LocalSlice>),
    /// To [`Command::GetTombstone`].
    Tombstone(Option<Stamp>),
    /// To [`Command::Look`].
    Look(CopyLook),
    /// To [`Command::Ensure`].
    Ensured(Ensured),
    /// To [`Command::ListVersions`].
    Versions(Vec<String>),
    /// The node of the request is dead or removed.
    Died,
    /// The command failed.
    Failed(Error),
}

impl Answer {
    /// The answer to a command that returns nothing.
    pub fn of_result(result: Result<()>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Done)
    }

    pub(super) fn done(self) -> Result<()> {
        match self {
            Self::Done => Ok(()),
            other => Err(other.into_error()),
        }
    }

    pub(super) fn copy(self) -> Result<Option<LocalCopy>> {
        match self {
            Self::Copy(copy) => Ok(copy),
            other => Err(other.into_error()),
        }
    }

    pub(super) fn slices(self) -> Result<Vec<LocalSlice>> {
        match self {
            Self::Slices(slices) => Ok(slices),
            other => Err(other.into_error()),
        }
    }

    pub(super) fn ensured(self) -> Result<Ensured> {
        match self {
            Self::Ensured(ensured) => Ok(ensured),
            other => Err(other.into_error()),
        }
    }

    pub(super) fn versions(self) -> Result<Vec<String>> {
        match self {
            Self::Versions(versions) => Ok(versions),
            other => Err(other.into_error()),
        }
    }

    pub(super) fn tombstone(self) -> Result<Option<Stamp>> {
        match self {
            Self::Tombstone(stamp) => Ok(stamp),
            other => Err(other.into_error()),
        }
    }

    pub(super) fn look(self) -> Result<CopyLook> {
        match self {
            Self::Look(look) => Ok(look),
            other => Err(other.into_error()),
        }
    }

    fn into_error(self) -> Error {
        match self {
            Self::Failed(e) => e,
            Self::Died => Error::unavailable("it died"),
            other => Error::internal(format!("{other:?} is no answer to this command")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_write_overtook_is_gone_and_the_write_is_not() {
        let stamp = Stamp { epoch: 5, version: 3 };
        let removal = Removal { written: true, ..Removal::of(stamp) };
        let look = CopyLook { removed: Some(removal.gone()), ..CopyLook::default() };
        assert!(look.knows(Stamp { version: 2, ..stamp }) && !look.knows(stamp));
        assert_eq!(Removal::of(stamp).gone(), stamp);
        assert!(Stamp { version: 0, ..stamp }.before() < Stamp { version: 0, ..stamp });
    }
}
