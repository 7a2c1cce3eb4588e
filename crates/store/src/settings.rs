//! Settings of each disk that a store uses.

use std::path::PathBuf;

use forebay_core::NodeId;

/// One disk to open.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    pub path: PathBuf,
    /// Bytes the store may use; 10 % of the file system or 20 GiB, the smaller, when absent.
    pub budget: Option<u64>,
    /// Rebuilds the index from the log and the object files in any case.
    pub rebuild_index: bool,
    /// Reads the whole index when the disk is opened, and rebuilds it if it is damaged.
    pub check_index: bool,
    /// Only a mounted file system is a disk: the empty folder under a missing mount is not used.
    pub mount: bool,
    /// Id of the target that uses the disk; empty in tests without one.
    pub node: String,
    /// A command took it out of use: it is configured and not opened.
    pub disabled: Option<Disabled>,
}

/// The state in which a command left a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disabled {
    /// All its objects had been moved to other disks.
    pub emptied: bool,
}

impl DiskSettings {
    pub fn new(path: impl Into<PathBuf>, budget: Option<u64>) -> Self {
        let (rebuild_index, check_index, mount) = (false, false, false);
        let (node, disabled) = (String::new(), None);
        Self { path: path.into(), budget, rebuild_index, check_index, mount, node, disabled }
    }

    /// The same settings, for the target of this id.
    #[must_use]
    pub fn of_node(self, id: &NodeId) -> Self {
        Self { node: id.to_string(), ..self }
    }
}
