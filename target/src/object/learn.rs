//! Learning a shard's members from its bytes as they pass by, so that its first reader need not
//! read it for that.

use bytes::Bytes;
use forebay_core::archive::{ArchiveFormat, Limits, TarIndexer};

use super::ObjectService;
use crate::store::Record;

/// Memory of an index in the making: there is one per write under way, and each may be a lie.
const MEMORY: u64 = 32 << 20;

/// The index of an object that is being written; none when its name is not that of a plain TAR.
pub(super) struct Learner(Option<TarIndexer>);

impl Learner {
    pub(super) fn new(name: &str) -> Self {
        let limits = || Limits { index_bytes: MEMORY, ..Limits::default() };
        let format = ArchiveFormat::from_name(name).filter(|f| *f == ArchiveFormat::Tar);
        Self(format.map(|format| TarIndexer::new(format, limits())))
    }

    /// Looks at the next bytes of the object; only headers cost anything.
    pub(super) fn update(&mut self, bytes: &Bytes) {
        // What is no TAR is an object like others: whoever asks for a member is told.
        if let Some(indexer) = &mut self.0
            && indexer.feed(bytes).is_err()
        {
            self.0 = None;
        }
    }
}

impl ObjectService {
    /// Keeps what was learned beside the commit, while the writer goes on.
    pub(super) fn keep_learned(&self, learner: Learner, record: &Record) {
        let Some(Ok(index)) = learner.0.map(TarIndexer::finish) else { return };
        let (service, record) = (self.clone(), record.clone());
        self.0.parts.lifecycle.spawn(async move {
            service.keep_companion(&record, index.encode()).await;
        });
    }
}
