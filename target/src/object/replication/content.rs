//! The bytes and metadata that an operation commits. They do not pass through the engine.

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::copies::Stamp;
use forebay_store::{Record, RecordMeta, WorkFile};

use super::transfer::IncomingTransfer;

/// The content that an operation commits.
pub(super) enum Content<'a> {
    /// Nothing; or what it assembles from slices.
    Nothing,
    /// A client's write.
    Version(&'a mut dyn NewVersion),
    /// A client's change of metadata.
    Metadata(Option<MetadataChange>),
    /// A copy or slice that another target sends.
    Transfer(Box<IncomingTransfer>),
    /// An object that was assembled from slices; beside a client's write, which is not committed.
    Assembled(Option<Box<(WorkFile, RecordMeta)>>),
}

/// A client's write, whose bytes are here.
#[async_trait]
pub(in crate::object) trait NewVersion: Send {
    /// Checks the client's condition against the object as it is.
    async fn check(&mut self, current: Option<&Record>) -> Result<()>;

    /// Makes everything ready to replace a version; of an object in slices only its metadata may be
    /// here.
    async fn prepare(&mut self, replaced: Option<Record>, stamp: Stamp) -> Result<()>;

    /// Commits the new version.
    async fn commit(&mut self) -> Result<Record>;
}

/// A change of an object's metadata.
pub(in crate::object) struct MetadataChange {
    /// Refuses a change that does not fit to the object.
    pub(in crate::object) check: Box<dyn Fn(&Record) -> Result<()> + Send>,
    pub(in crate::object) change: Box<dyn FnOnce(&mut RecordMeta) + Send>,
}
