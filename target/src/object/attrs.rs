//! Metadata that a writer sets.

use std::collections::BTreeMap;

use forebay_core::Result;
use forebay_core::checksum::Checksum;
use forebay_core::object::PartSizes;

/// Metadata of an object that are known only after its last byte.
pub(crate) type AtEnd = Box<dyn FnOnce() -> Result<AtEndMeta> + Send>;

/// The metadata that [`AtEnd`] adds.
#[derive(Debug, Default)]
pub(crate) struct AtEndMeta {
    /// Without quotes; if absent, the MD5 (if it is computed).
    pub(crate) etag: Option<String>,
    /// Added to the custom metadata.
    pub(crate) custom: BTreeMap<String, String>,
}

/// Metadata of an object that is being written.
#[derive(Default)]
pub(super) struct ObjectAttrs {
    pub(super) checksum: Option<Checksum>,
    pub(super) etag: String,
    /// Custom metadata; if absent, the object's existing ones are kept.
    pub(super) custom: Option<BTreeMap<String, String>>,
    pub(super) parts: PartSizes,
}

impl ObjectAttrs {
    pub(super) fn add(&mut self, late: AtEndMeta) {
        if let Some(etag) = late.etag {
            self.etag = etag;
        }
        if !late.custom.is_empty() {
            self.custom.get_or_insert_default().extend(late.custom);
        }
    }
}
