//! Conditions of writes and removals.

use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::{Error, ErrorCode, Result};

/// Decides by the object's current state whether a write may proceed; an error prevents the write.
pub(crate) type OnlyIf = Box<dyn FnOnce(Option<&ObjectMeta>) -> Result<()> + Send>;

/// Permits a write only if the object is unchanged. A backend's object is compared by its
/// version; the version of a native object starts again after a removal, so it alone is not
/// enough.
pub(crate) fn if_still(before: Option<ObjectMeta>, info: &BucketInfo) -> OnlyIf {
    let has_backend = info.has_backend();
    Box::new(move |now| {
        let same = match (&before, now) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                a.version == b.version && (has_backend || a.mtime_ns == b.mtime_ns)
            }
            _ => false,
        };
        same.then_some(()).ok_or_else(|| Error::new(ErrorCode::Conflict, "the object has changed"))
    })
}
