//! The metadata and checksums of objects that come from a backend.

use forebay_core::bucket::Class;
use forebay_core::checksum::{Checksum, ChecksumKind, Hasher};
use forebay_core::object::ObjectMeta;
use forebay_core::{Error, Result};
use forebay_node::clock::unix_ns;

use forebay_clouds::RemoteMeta;
use forebay_store::RecordMeta;

/// The metadata for clients of a backend's object.
pub(in crate::object) fn object_meta(remote: &RemoteMeta, present: bool) -> ObjectMeta {
    ObjectMeta {
        size: remote.size,
        version: remote.version.clone(),
        checksum: None,
        etag: remote.shown_etag(),
        atime_ns: unix_ns(),
        mtime_ns: remote.shown_mtime_ns(),
        custom: remote.kept_custom(),
        parts: Default::default(),
        present,
    }
}

/// The record of a copy that came from, or went to, a backend.
pub(in crate::object) fn cached_meta(
    remote: &RemoteMeta,
    checksum: Option<Checksum>,
    epoch: u64,
) -> RecordMeta {
    let now = unix_ns();
    RecordMeta {
        checksum,
        etag: remote.shown_etag(),
        version: remote.version.clone(),
        backend_version: remote.version.clone(),
        mtime_ns: remote.shown_mtime_ns(),
        custom: remote.kept_custom(),
        epoch,
        validated_ns: now,
        atime_ns: now,
        parts: Default::default(),
        extensions: Default::default(),
        class: Class::Cache,
        backed: true,
        dirty: false,
    }
}

/// The bucket's own checksum, and the backend's MD5 if it has one.
pub(super) struct Checks {
    own: Hasher,
    md5: Option<Hasher>,
}

impl Checks {
    pub(super) fn new(kind: ChecksumKind, remote: &RemoteMeta) -> Self {
        Self { own: kind.hasher(), md5: remote.md5.is_some().then(|| ChecksumKind::Md5.hasher()) }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.own.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
    }

    pub(super) fn finish(self, remote: &RemoteMeta, uri: &str) -> Result<Option<Checksum>> {
        if let (Some(got), Some(want)) = (self.md5.and_then(Hasher::finish), &remote.md5) {
            let want = Checksum { kind: ChecksumKind::Md5, value: want.clone() };
            // The bytes were damaged on the way from the backend: a retry may help.
            got.expect(&want, uri).map_err(|e| Error::unavailable(e.message))?;
        }
        Ok(self.own.finish())
    }
}
