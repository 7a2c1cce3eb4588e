//! The version that a record is, and the records of older versions.

use std::collections::BTreeMap;

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::history::{self, MARKER, NULL, VERSION};
use forebay_core::object::ObjectMeta;
use forebay_store::{Record, Store};

/// Maximum number of versions of one object that are searched.
const MAX_VERSIONS: usize = 100_000;

/// The version of a record; objects from before versioning have the null version.
pub(in crate::object) fn version_of(custom: &BTreeMap<String, String>) -> &str {
    custom.get(VERSION).map_or(NULL, String::as_str)
}

/// Older versions of an object, the newest first.
pub(in crate::object) async fn older(
    store: &Store,
    info: &BucketInfo,
    name: &str,
) -> Result<Vec<Record>> {
    let prefix = history::prefix(name);
    let id = history::id(info.id);
    let (rows, _) = store.list(id, &prefix, None, None, MAX_VERSIONS).await?;
    Ok(rows
        .into_iter()
        .filter(|r| history::split(&r.name).is_some_and(|(key, _)| key == name))
        .collect())
}

/// The version in responses to readers, in a bucket with versioning.
pub(crate) fn shown_version<'a>(info: &BucketInfo, object: &'a ObjectMeta) -> Option<&'a str> {
    info.keeps_versions().then(|| version_of(&object.custom))
}

/// Whether this is a delete marker and not an object.
pub(crate) fn is_marker(object: &ObjectMeta) -> bool {
    object.custom.contains_key(MARKER)
}
