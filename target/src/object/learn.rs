//! Builds a shard's index from its bytes while they are written, so that its first reader need not
//! read the whole shard for it.

use std::sync::Arc;

use bytes::Bytes;
use forebay_archive::{Limits, TarIndexer};
use forebay_core::shard::ArchiveFormat;
use forebay_store::{Record, blocking};

use super::local::Local;

/// Maximum memory of an index that is being built: there is one per write in progress, and its
/// input is not trusted.
const MEMORY: u64 = 32 << 20;
/// Bytes and records of an extension header that are parsed between two awaits of a write, which
/// takes well below a millisecond. An archive with a larger one is indexed by its first reader, on
/// the blocking pool.
const INLINE_HEADER_BYTES: u64 = 64 << 10;
const INLINE_PAX_RECORDS: u64 = 1 << 10;

/// The index of an object that is being written; none when its name is not that of a plain TAR.
pub(super) struct Learner(Option<TarIndexer>);

impl Learner {
    pub(super) fn new(name: &str) -> Self {
        let limits = || Limits {
            index_bytes: MEMORY,
            header_bytes: INLINE_HEADER_BYTES,
            pax_records: INLINE_PAX_RECORDS,
            ..Limits::default()
        };
        let format = ArchiveFormat::from_name(name).filter(|f| *f == ArchiveFormat::Tar);
        Self(format.map(|format| TarIndexer::new(format, limits())))
    }

    /// Parses the next bytes of the object; only headers cost anything.
    pub(super) fn update(&mut self, bytes: &Bytes) {
        // An object that is not a TAR is stored like any other; a read of a member returns the
        // error.
        if let Some(indexer) = &mut self.0
            && indexer.feed(bytes).is_err()
        {
            self.0 = None;
        }
    }
}

impl Local {
    /// Stores a sidecar of this commit; if that fails, it is made again when it is needed.
    pub(super) async fn keep_sidecar(&self, record: &Record, bytes: Vec<u8>) {
        let name = &record.name;
        match self.store.keep_sidecar(record, bytes).await {
            Ok(true) => {}
            Ok(false) => tracing::debug!(name, "no room beside an object, or it was replaced"),
            Err(e) => tracing::warn!(name, "nothing is kept beside an object: {e}"),
        }
    }

    /// Stores the index beside the commit, without blocking the writer.
    pub(super) fn keep_learned(self: &Arc<Self>, learner: Learner, record: &Record) {
        let Some(Ok(index)) = learner.0.map(TarIndexer::finish) else { return };
        let (local, record) = (self.clone(), record.clone());
        self.lifecycle.spawn(async move {
            // Encoding an index of 32 MiB takes longer than an async worker may be held.
            if let Ok(bytes) = blocking(move || Ok(index.encode())).await {
                local.keep_sidecar(&record, bytes).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pax_archive(record: &str, records: usize) -> Vec<u8> {
        let data = record.repeat(records);
        let header = |name: &[u8], size: usize, kind: u8| {
            let mut block = [0u8; 512];
            block[..name.len()].copy_from_slice(name);
            block[100..108].copy_from_slice(b"0000644\0");
            block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
            block[156] = kind;
            block[257..263].copy_from_slice(b"ustar\0");
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
            block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            block
        };
        let mut tar = header(b"x", data.len(), b'x').to_vec();
        tar.extend_from_slice(data.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
        tar.extend_from_slice(&header(b"a", 0, b'0'));
        tar.extend_from_slice(&[0; 1024]);
        tar
    }

    #[test]
    fn archives_with_large_extension_headers_are_left_to_their_first_reader() {
        let learned = |tar: Vec<u8>| {
            let mut learner = Learner::new("a.tar");
            learner.update(&Bytes::from(tar));
            learner.0.map(|indexer| indexer.finish().map(|index| index.members.len()))
        };
        assert_eq!(learned(pax_archive("14 comment=ab\n", 1000)), Some(Ok(1)));
        assert_eq!(learned(pax_archive("4 =\n", 1025)), None);
        let long = format!("70000 comment={}\n", "c".repeat(70_000 - 15));
        assert_eq!(learned(pax_archive(&long, 1)), None);
    }
}
