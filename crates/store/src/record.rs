//! The store's record of one stored object.

use std::collections::BTreeMap;

use forebay_core::bucket::Class;
use forebay_core::checksum::Checksum;
use forebay_core::copies::Stamp;
use forebay_core::object::{ObjectMeta, PartSizes, remote_etag};
use forebay_core::{Error, Result};

use super::extensions::Extensions;
use super::format;
use super::observer::key_digest;

/// Metadata that the writer of an object decides; the store keeps it without interpreting it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordMeta {
    /// Checksum of the whole object, computed by the writer.
    pub checksum: Option<Checksum>,
    /// Without quotes; empty when there is none.
    pub etag: String,
    /// `1`, `2`, … for native buckets; the cloud's own text otherwise.
    pub version: String,
    /// Identifies this content at the backend (its version id, generation or ETag).
    pub backend_version: String,
    /// `Owned` objects are durable when `commit` returns and survive a power cut.
    pub class: Class,
    /// The bucket has a backend.
    pub backed: bool,
    /// The backend does not have this content yet.
    pub dirty: bool,
    /// Version of the cluster's state in which the copy was last compared with the backend.
    pub epoch: u64,
    /// Time of that comparison, unix nanoseconds.
    pub validated_ns: u64,
    /// Last access, unix nanoseconds; `Store::touch` updates it.
    pub atime_ns: u64,
    /// Last modification, unix nanoseconds.
    pub mtime_ns: u64,
    /// User's custom metadata.
    pub custom: BTreeMap<String, String>,
    /// The parts in which it was uploaded.
    pub parts: PartSizes,
    /// Fields of later versions.
    pub extensions: Extensions,
}

impl RecordMeta {
    /// Metadata of a native object that was written on another target. `epoch`: of its stamp.
    pub fn of_object(object: ObjectMeta, epoch: u64, class: Class) -> Self {
        Self {
            checksum: object.checksum,
            etag: object.etag,
            version: object.version,
            epoch,
            class,
            atime_ns: object.atime_ns,
            mtime_ns: object.mtime_ns,
            custom: object.custom,
            parts: object.parts,
            ..Self::default()
        }
    }

    /// Whether all fields are equal that must survive the loss of the index. Access and validation
    /// times are not compared: losing them costs at most one more request to the backend.
    pub(crate) fn same_lasting(&self, other: &Self) -> bool {
        let strip = |m: &Self| Self { epoch: 0, validated_ns: 0, atime_ns: 0, ..m.clone() };
        strip(self) == strip(other)
    }
}

/// The position of a frame in the log of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) segment: u64,
    pub(crate) offset: u32,
    /// Bytes from the start of the frame to its payload.
    pub(crate) head: u32,
}

/// A file that holds a part of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) id: u64,
    /// Bytes of payload in it.
    pub(crate) size: u64,
}

/// The location of a payload, and the frame of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the log, behind its record.
    Log(Spot),
    /// In files, one after the other; the log has the record alone.
    Files(Spot, Vec<Extent>),
}

impl Place {
    pub(crate) fn is_log(&self) -> bool {
        matches!(self, Self::Log(_))
    }
}

/// One stored object: its identity, its location, and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub bucket_id: u64,
    pub name: String,
    /// Bytes of payload.
    pub size: u64,
    /// Identifies this content: unique on its target for ever, greater in every later commit.
    pub generation: u64,
    /// Order of this record among those of the target; grows with changes of metadata too.
    pub(crate) sequence: u64,
    pub meta: RecordMeta,
    pub(crate) place: Place,
    /// Number of the disk that holds it; valid within this process, not part of the format.
    pub disk: usize,
}

impl Record {
    /// Whether its payload is in files.
    pub fn is_in_files(&self) -> bool {
        matches!(self.place, Place::Files(..))
    }

    /// Whether the copy may be dropped: a backend has the same content.
    pub fn evictable(&self) -> bool {
        self.meta.backed && !self.meta.dirty
    }

    /// An error if only a later version knows what the bytes of the payload mean.
    pub(crate) fn check_payload_known(&self) -> Result<()> {
        let Some(id) = self.meta.extensions.unknown_required() else { return Ok(()) };
        let name = &self.name;
        Err(Error::unsupported(format!(
            "object \"{name}\" has extension {id}, which this version of Forebay does not know"
        ))
        .hint("start the version that wrote the object, or a later one"))
    }

    /// A digest that identifies the object across removals and new copies of it.
    pub(crate) fn digest(&self) -> u64 {
        key_digest(self.bucket_id, &self.name)
    }

    /// Orders a native object among the versions of it on all targets.
    pub fn stamp(&self) -> Stamp {
        Stamp::new(self.meta.epoch, &self.meta.version)
    }

    /// Space that the object takes on its disk.
    pub fn stored_bytes(&self) -> u64 {
        self.frame_bytes() + self.file_bytes()
    }

    /// Space of its frame in the log.
    pub(crate) fn frame_bytes(&self) -> u64 {
        let payload = if self.extents().is_empty() { self.size } else { 0 };
        (u64::from(self.spot().head) + payload).next_multiple_of(format::ALIGN)
    }

    /// Space of its files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.extents().iter().map(|e| format::file_space(e.size, &self.name)).sum()
    }

    /// The position of the record in the log.
    pub(crate) fn spot(&self) -> Spot {
        match &self.place {
            Place::Log(spot) | Place::Files(spot, _) => *spot,
        }
    }

    pub(crate) fn set_spot(&mut self, to: Spot) {
        match &mut self.place {
            Place::Log(spot) | Place::Files(spot, _) => *spot = to,
        }
    }

    /// The files of the payload.
    pub(crate) fn extents(&self) -> &[Extent] {
        match &self.place {
            Place::Log(_) => &[],
            Place::Files(_, extents) => extents,
        }
    }

    /// Ids of the files that hold the object's bytes.
    pub fn file_ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.extents().iter().map(|extent| extent.id)
    }

    /// The record as other nodes and clients see it.
    pub fn object_meta(&self) -> ObjectMeta {
        self.clone().into_object_meta()
    }

    /// As [`Self::object_meta`], consuming the record.
    pub fn into_object_meta(self) -> ObjectMeta {
        let meta = self.meta;
        // Earlier releases stored copies without the ETag that the backend's object has.
        let etag = match meta.etag.is_empty() && meta.backed && !meta.dirty {
            true => remote_etag("", &meta.backend_version, self.size),
            false => meta.etag,
        };
        ObjectMeta {
            size: self.size,
            version: meta.version,
            checksum: meta.checksum,
            etag,
            atime_ns: meta.atime_ns,
            mtime_ns: meta.mtime_ns,
            custom: meta.custom,
            parts: if meta.parts.make(self.size) { meta.parts } else { PartSizes::default() },
            present: true,
        }
    }

    /// A record that no store has written.
    #[cfg(test)]
    pub(crate) fn for_test(name: &str, size: u64, generation: u64, meta: RecordMeta) -> Self {
        Self {
            bucket_id: 1,
            name: name.to_owned(),
            size,
            generation,
            sequence: generation,
            meta,
            place: Place::Files(Spot::default(), vec![Extent { id: generation, size }]),
            disk: 0,
        }
    }
}
