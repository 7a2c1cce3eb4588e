//! What a store is told of each disk that it is to use.

use std::path::PathBuf;

use forebay_core::NodeId;

/// One disk to open.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    pub path: PathBuf,
    /// Bytes the store may use; 10 % of the file system or 20 GiB, the smaller, when absent.
    pub budget: Option<u64>,
    /// Makes the index again from the object files, whatever is there.
    pub rebuild_index: bool,
    /// Reads the index through when the disk is opened, and makes it again if it is damaged.
    pub(crate) check_index: bool,
    /// Only a file system of its own is a disk: the empty folder under a missing one is not used.
    pub mount: bool,
    /// Id of the target that uses the disk; empty where a test has none.
    pub(crate) node: String,
    /// A command took it out of use: it is known and not opened.
    pub disabled: Option<Disabled>,
}

/// How a disk was left when a command took it out of use.
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

    /// The same disk, for the target of this id.
    #[must_use]
    pub fn of_node(self, id: &NodeId) -> Self {
        Self { node: id.to_string(), ..self }
    }
}
