//! Lists the folder in byte order of whole names, a page at a time.
//!
//! A folder sorts as its name with a slash behind it: `a-b` comes before `a/b`. A folder that is a
//! marker is a row of its own, before its content. Folders before the page or outside the prefix
//! are not opened, and big ones are not read and sorted again for every page.

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use forebay_core::error::Result;
use forebay_core::locks::MutexExt;
use forebay_core::name::MAX_OBJECT_NAME;

use super::{Folder, is_reserved, marker, meta_of, problem_with};
use crate::{RemoteEntry, RemoteMeta, RemotePage};

/// Folders with fewer entries are read again each time.
const LARGE_FOLDER_ENTRIES: usize = 2_000;
/// Most sorted big folders in the cache.
const CACHED_FOLDERS: NonZeroUsize = NonZeroUsize::new(8).expect("8 is not zero");
/// A folder changed so recently may change again without a new time stamp.
const MTIME_GRANULARITY: Duration = Duration::from_secs(2);

/// Sorted content of big folders, valid until the folder's time stamp changes.
pub(super) struct Listings {
    kept: Mutex<lru::LruCache<PathBuf, (SystemTime, Arc<Content>)>>,
}

/// The content of one folder.
struct Content {
    /// In the order of their keys.
    children: Vec<Child>,
    /// There are no files at all, also none of this backend itself.
    is_empty: bool,
    /// It was put as a marker.
    is_marked: bool,
}

/// An entry of one folder. `key` ends in a slash for folders.
struct Child {
    key: Box<str>,
    is_link: bool,
}

impl Listings {
    pub(super) fn new() -> Self {
        Self { kept: Mutex::new(lru::LruCache::new(CACHED_FOLDERS)) }
    }

    fn content(&self, path: &Path) -> io::Result<Arc<Content>> {
        let changed = fs::metadata(path)?.modified()?;
        let lock = || self.kept.locked();
        if let Some((at, content)) = lock().get(path)
            && *at == changed
        {
            return Ok(Arc::clone(content));
        }
        let stable = changed.elapsed().is_ok_and(|age| age > MTIME_GRANULARITY);
        let content = Arc::new(read_sorted(path)?);
        if stable && content.children.len() >= LARGE_FOLDER_ENTRIES {
            lock().put(path.to_owned(), (changed, Arc::clone(&content)));
        }
        Ok(content)
    }
}

fn read_sorted(path: &Path) -> io::Result<Content> {
    let (mut children, mut is_empty, mut is_marked) = (Vec::new(), true, false);
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        is_empty = false;
        let kind = entry.file_type()?;
        // Names that are not UTF-8 cannot be keys.
        let Ok(mut key) = entry.file_name().into_string() else { continue };
        if is_reserved(&key) {
            is_marked |= key == marker::MARKER_FILE;
            continue;
        }
        if kind.is_dir() {
            key.push('/');
        } else if !kind.is_file() && !kind.is_symlink() {
            continue;
        }
        children.push(Child { key: key.into(), is_link: kind.is_symlink() });
    }
    children.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(Content { children, is_empty, is_marked })
}

struct Walk<'a> {
    folder: &'a Folder,
    prefix: &'a str,
    after: &'a str,
    limit: usize,
    page: RemotePage,
}

pub(super) fn list(folder: &Folder, prefix: &str, after: &str, limit: usize) -> Result<RemotePage> {
    folder.check_root_exists()?;
    let mut walk = Walk { folder, prefix, after, limit: limit.max(1), page: RemotePage::default() };
    // All requested names are in the deepest folder that the prefix names.
    let start = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
    let start_path = folder.root.join(start.trim_end_matches('/'));
    let reachable = start.is_empty()
        || (problem_with(&start[..start.len() - 1]).is_none()
            && fs::canonicalize(&start_path).is_ok_and(|real| real == start_path));
    if reachable {
        walk.descend(&mut start.to_owned(), &start_path)?;
    }
    Ok(walk.page)
}

impl Walk<'_> {
    /// Adds the folder with the key `key` (empty, or with a slash at its end), if it is a marker,
    /// and its content. Returns whether the page is full.
    fn descend(&mut self, key: &mut String, path: &Path) -> Result<bool> {
        let content = match self.folder.listings.content(path) {
            Ok(content) => content,
            // Removed since its name was read.
            Err(e)
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                return Ok(false);
            }
            Err(e) => return Err(self.folder.error(e, "list", key)),
        };
        let is_marker = content.is_empty || content.is_marked;
        if is_marker && !key.is_empty() && key.as_str() > self.after && key.starts_with(self.prefix)
        {
            // It may be gone by now.
            let meta = match marker::meta_at(path, content.is_empty) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(self.folder.error(e, "list", key));
                }
                found => found.ok().flatten(),
            };
            if let Some(meta) = meta
                && self.push(key, meta)
            {
                return Ok(true);
            }
        }
        let children = &content.children;
        let length = key.len();
        for child in &children[self.first_of_interest(children, key)..] {
            key.truncate(length);
            key.push_str(&child.key);
            if key.len() > MAX_OBJECT_NAME {
                continue;
            }
            if !key.starts_with(self.prefix) {
                // The walk began in the deepest folder of the prefix, so the matching names are
                // contiguous.
                if key.as_str() > self.prefix {
                    break;
                }
                continue;
            }
            let full = if child.key.ends_with('/') {
                let reached = key.as_str() > self.after || self.after.starts_with(key.as_str());
                reached && self.descend(key, &path.join(&*child.key))?
            } else {
                key.as_str() > self.after && self.add(key, path, child)?
            };
            if full {
                return Ok(true);
            }
        }
        key.truncate(length);
        Ok(false)
    }

    /// Index of the first child that can be, or contain, a key of the page.
    fn first_of_interest(&self, children: &[Child], key: &str) -> usize {
        let holds = |c: &Child, rest: &str| c.key.ends_with('/') && rest.starts_with(&*c.key);
        let by_after = self
            .after
            .strip_prefix(key)
            .map_or(0, |rest| children.partition_point(|c| *c.key <= *rest && !holds(c, rest)));
        let by_prefix = self
            .prefix
            .strip_prefix(key)
            .map_or(0, |rest| children.partition_point(|c| *c.key < *rest));
        by_after.max(by_prefix)
    }

    fn add(&mut self, key: &str, path: &Path, child: &Child) -> Result<bool> {
        let mut file = path.join(&*child.key);
        if child.is_link {
            match fs::canonicalize(&file) {
                Ok(real) if self.folder.may_serve(&real) => file = real,
                _ => return Ok(false),
            }
        }
        let meta = match fs::symlink_metadata(&file) {
            Ok(meta) if meta.is_file() => meta_of(&meta),
            // Removed or replaced meanwhile.
            Ok(_) => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(self.folder.error(e, "list", key)),
        };
        Ok(self.push(key, meta))
    }

    /// Adds a row. Returns whether the page was full before it.
    fn push(&mut self, key: &str, meta: RemoteMeta) -> bool {
        if self.page.entries.len() >= self.limit {
            self.page.more = true;
            return true;
        }
        self.page.entries.push(RemoteEntry {
            name: key.to_owned(),
            size: meta.size,
            version: meta.version,
            etag: meta.etag,
            mtime_ns: meta.mtime_ns,
        });
        false
    }
}
