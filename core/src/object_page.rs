//! A page of the objects of a bucket, for clients that show a listing to a person.

use serde::{Deserialize, Serialize};

/// Most objects and folders of one page.
pub const MAX_PAGE_OBJECTS: usize = 1_000;
/// Objects and folders of a page whose request names no limit.
pub const DEFAULT_PAGE_OBJECTS: usize = 200;

/// One object of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageObject {
    pub name: String,
    pub size: u64,
    /// When the object was last written, unix nanoseconds; 0 if unknown.
    pub mtime_ns: u64,
    /// Whether the cluster has the whole object, so that a read needs no backend.
    pub cached: bool,
}

/// `GET /api/v1/objects/BUCKET?provider=…`, with `prefix`, `after`, `limit`, `folders=true` for one level
/// of names, and `cached=true` for objects in the cluster only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectsPage {
    /// With `folders=true`: the names that end in a slash stand for all names that begin with them.
    pub folders: Vec<String>,
    /// In the order of names.
    pub objects: Vec<PageObject>,
    /// Value of `after` for the next page; `None`: this is the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
