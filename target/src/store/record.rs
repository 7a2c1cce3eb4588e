//! What the store knows of one stored object.

use std::collections::BTreeMap;

use forebay_core::bucket::Class;
use forebay_core::checksum::Checksum;
use forebay_core::object::ObjectMeta;

use super::format;

/// Metadata that the writer of an object decides; the store keeps it and judges nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordMeta {
    /// Checksum of the whole object, computed by the writer.
    pub checksum: Option<Checksum>,
    /// Without quotes; empty when there is none.
    pub etag: String,
    /// `1`, `2`, … for native buckets; the cloud's own text otherwise.
    pub version: String,
    /// What identifies this content at the backend (its version id, generation or ETag).
    pub backend_version: String,
    /// `Owned` objects are on the disk when `commit` returns, power cut included.
    pub class: Class,
    /// The bucket has a backend.
    pub backed: bool,
    /// The backend does not have this content yet.
    pub dirty: bool,
    /// Version of the cluster's state in which the copy was last compared with the backend.
    pub epoch: u64,
    /// When that was, unix nanoseconds.
    pub validated_ns: u64,
    /// Last access, unix nanoseconds; `Store::touch` moves it.
    pub atime_ns: u64,
    /// Last modification, unix nanoseconds.
    pub mtime_ns: u64,
    /// User's custom metadata.
    pub custom: BTreeMap<String, String>,
}

impl RecordMeta {
    /// Whether everything is equal that must survive the loss of the index. Times of access and
    /// of validation need not: the worst that follows is one more look at the backend.
    pub(crate) fn same_lasting(&self, other: &Self) -> bool {
        let strip = |m: &Self| Self { epoch: 0, validated_ns: 0, atime_ns: 0, ..m.clone() };
        strip(self) == strip(other)
    }
}

/// One stored object: its identity, where it lies, and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub bucket_id: u64,
    pub name: String,
    /// Bytes of payload.
    pub size: u64,
    /// Unique on its disk for ever and growing with every commit; also names the file.
    pub generation: u64,
    pub meta: RecordMeta,
    /// Which of the store's disks holds it; a matter of this process, not of the format.
    pub(crate) disk: usize,
}

impl Record {
    /// Whether the copy may be dropped: a backend has the same content.
    pub fn evictable(&self) -> bool {
        self.meta.backed && !self.meta.dirty
    }

    /// Space that the object takes on its disk.
    pub fn stored_bytes(&self) -> u64 {
        format::stored_bytes(self.size, &self.name)
    }

    /// The record as other nodes and clients see it.
    pub fn object_meta(&self) -> ObjectMeta {
        ObjectMeta {
            size: self.size,
            version: self.meta.version.clone(),
            checksum: self.meta.checksum.clone(),
            etag: self.meta.etag.clone(),
            atime_ns: self.meta.atime_ns,
            mtime_ns: self.meta.mtime_ns,
            custom: self.meta.custom.clone(),
            present: true,
        }
    }

    /// A record that no store has written.
    #[cfg(test)]
    pub(crate) fn for_test(name: &str, size: u64, generation: u64, meta: RecordMeta) -> Self {
        Self { bucket_id: 1, name: name.to_owned(), size, generation, meta, disk: 0 }
    }
}
