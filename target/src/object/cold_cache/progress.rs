//! The progress of a fetch, as its readers see it.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::Error;
use forebay_core::object::ObjectMeta;

use forebay_store::DiskFile;

#[derive(Clone)]
pub(super) enum Progress {
    Starting,
    /// Another fetch had just committed it: the store has it.
    AlreadyHere,
    /// The file has `written` bytes of the object.
    Filling {
        start: Arc<Started>,
        written: u64,
    },
    Done {
        start: Arc<Started>,
        bytes: Option<Bytes>,
    },
    Failed {
        start: Option<Arc<Started>>,
        error: Error,
    },
}

pub(super) struct Started {
    pub(super) meta: ObjectMeta,
    pub(super) file: Arc<dyn DiskFile>,
}

/// The error of a fetch that ended without a result.
pub(super) fn gone() -> Error {
    Error::unavailable("the fetch of this object was given up")
}
