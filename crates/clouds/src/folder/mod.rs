//! A folder of a file system as a bucket: the name of an object is its path below the root.
//!
//! Names that are no clean relative path do not exist. Links to folders are not followed, links to
//! files only where they stay below the root. A put becomes visible by rename. A name that ends in a
//! slash is a folder (see [`marker`]). Custom metadata is not kept.

mod marker;
mod parents;
mod read;
mod walk;
mod write;

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::name::Bucket;
use forebay_core::size::ByteRange;

use super::{After, Backend, PutBody, RemoteMeta, RemoteObject, RemotePage};

/// Prefix of files that are being written; they are no objects.
const WORK_FILE_PREFIX: &str = ".forebay-tmp-";

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct FolderBackend {
    inner: Arc<Folder>,
}

struct Folder {
    bucket: Bucket,
    /// Canonical.
    root: PathBuf,
    listings: walk::Listings,
}

impl FolderBackend {
    /// A backend over `root`, which must be an existing folder under one of `allowed`.
    pub async fn open(bucket: Bucket, root: PathBuf, allowed: &[PathBuf]) -> Result<Self> {
        let allowed = allowed.to_vec();
        let named = bucket.clone();
        let root = blocking(move || check_root(&named, &root, &allowed)).await?;
        Ok(Self { inner: Arc::new(Folder { bucket, root, listings: walk::Listings::new() }) })
    }
}

/// The canonical form of an acceptable root.
fn check_root(bucket: &Bucket, root: &Path, allowed: &[PathBuf]) -> Result<PathBuf> {
    let shown = root.display();
    let refuse = |why: &str| Error::invalid(format!("folder {shown} of bucket \"{bucket}\" {why}"));
    if !root.is_absolute() {
        return Err(refuse("is not an absolute path").hint("give the folder from / on"));
    }
    let real = fs::canonicalize(root).map_err(|e| {
        refuse(&format!("cannot be used: {e}"))
            .hint("it must exist, and be the same, on every machine with a target")
    })?;
    if !real.is_dir() {
        return Err(refuse("is not a folder"));
    }
    let under = |a: &PathBuf| fs::canonicalize(a).is_ok_and(|a| real.starts_with(a));
    if !allowed.iter().any(under) {
        let roots: Vec<_> = allowed.iter().map(|a| a.display().to_string()).collect();
        let list = if roots.is_empty() { "none".to_owned() } else { roots.join(", ") };
        return Err(refuse(&format!("is not under an allowed root (allowed: {list})")).hint(
            "add one under [folder] roots in the targets' configuration, or start `forebay serve` with --folder-root",
        ));
    }
    Ok(real)
}

/// Whether an element of a path is a file of this backend itself.
fn is_reserved(element: &str) -> bool {
    element.starts_with(WORK_FILE_PREFIX) || element == marker::MARKER_FILE
}

/// Why `name` cannot be a path below a root.
fn problem_with(name: &str) -> Option<&'static str> {
    if name.contains('\0') {
        return Some("it has a NUL");
    }
    name.split('/').find_map(|element| match element {
        "" => Some("it has an empty element"),
        "." | ".." => Some("it has an element '.' or '..'"),
        e if is_reserved(e) => Some("it has an element that this backend uses for its own files"),
        _ => None,
    })
}

impl Folder {
    /// The file behind a name, when there can be one; links are resolved.
    fn existing(&self, name: &str) -> Result<PathBuf> {
        if problem_with(name).is_some() {
            return Err(self.bucket.object_not_found(name));
        }
        let path = self.root.join(name);
        if let (Some(parent), true) = (path.parent(), name.contains('/')) {
            let real = fs::canonicalize(parent).map_err(|e| self.error(e, "read", name))?;
            if real != parent {
                return Err(self.bucket.object_not_found(name));
            }
        }
        let meta = fs::symlink_metadata(&path).map_err(|e| self.error(e, "read", name))?;
        if !meta.is_symlink() {
            return Ok(path);
        }
        let real = fs::canonicalize(&path).map_err(|e| self.error(e, "read", name))?;
        if self.may_serve(&real) { Ok(real) } else { Err(self.bucket.object_not_found(name)) }
    }

    /// Whether the resolved target of a link may be served.
    fn may_serve(&self, real: &Path) -> bool {
        real.strip_prefix(&self.root)
            .ok()
            .and_then(Path::to_str)
            .is_some_and(|inside| problem_with(inside).is_none())
    }

    /// Translates a failed file operation into an error.
    fn error(&self, e: io::Error, doing: &str, name: &str) -> Error {
        let gone = matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            || matches!(e.raw_os_error(), Some(libc::ENAMETOOLONG | libc::ELOOP));
        if gone {
            return match self.check_root_exists() {
                Ok(()) => self.bucket.object_not_found(name),
                Err(gone) => gone,
            };
        }
        let what =
            format!("cannot {doing} {} in {}: {e}", self.bucket.object_uri(name), self.shown());
        match e.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Error::new(ErrorCode::AccessDenied, what)
                    .hint("give the user that runs the targets the right to do that there")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::new(ErrorCode::OutOfSpace, what)
            }
            io::ErrorKind::StaleNetworkFileHandle | io::ErrorKind::TimedOut => {
                Error::new(ErrorCode::Unavailable, what)
            }
            _ => Error::internal(what),
        }
    }

    fn check_root_exists(&self) -> Result<()> {
        if fs::metadata(&self.root).is_ok_and(|m| m.is_dir()) {
            return Ok(());
        }
        let mut error = self.bucket.not_found();
        error.code = ErrorCode::RemoteBucketNotFound;
        Err(error.hint(format!("its folder {} is gone; is the disk mounted?", self.shown())))
    }

    fn shown(&self) -> impl std::fmt::Display {
        self.root.display()
    }
}

fn changed(folder: &Folder, name: &str) -> Error {
    Error::new(
        ErrorCode::ObjectChanged,
        format!("{} changed while it was read", folder.bucket.object_uri(name)),
    )
    .hint("read it again")
}

fn mtime_ns(m: &Metadata) -> i128 {
    i128::from(m.mtime()) * 1_000_000_000 + i128::from(m.mtime_nsec())
}

fn meta_of(m: &Metadata) -> RemoteMeta {
    let mtime_ns = mtime_ns(m);
    RemoteMeta {
        size: m.len(),
        version: format!("{mtime_ns}-{}-{}", m.len(), m.ino()),
        mtime_ns: u64::try_from(mtime_ns).unwrap_or(0),
        ..RemoteMeta::default()
    }
}

/// Runs file operations on threads that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|e| Err(Error::internal(format!("file operation was cut off: {e}"))))
}

#[async_trait]
impl Backend for FolderBackend {
    async fn head_bucket(&self) -> Result<()> {
        let folder = Arc::clone(&self.inner);
        blocking(move || folder.check_root_exists()).await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        let (folder, name) = (Arc::clone(&self.inner), name.to_owned());
        blocking(move || {
            if let Some(name) = marker::folder_name(&name) {
                return marker::stat(&folder, name);
            }
            let path = folder.existing(&name)?;
            match fs::symlink_metadata(path) {
                Ok(meta) if meta.is_file() => Ok(meta_of(&meta)),
                Ok(_) => Err(folder.bucket.object_not_found(&name)),
                Err(e) => Err(folder.error(e, "read", &name)),
            }
        })
        .await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        read::open(&self.inner, name, range, if_version).await
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        write::put(&self.inner, name, body).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let (folder, name) = (Arc::clone(&self.inner), name.to_owned());
        blocking(move || match marker::folder_name(&name) {
            Some(name) => marker::delete(&folder, name),
            None => write::delete(&folder, &name),
        })
        .await
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        let folder = Arc::clone(&self.inner);
        let (prefix, after) = (prefix.to_owned(), after.name.to_owned());
        blocking(move || walk::list(&folder, &prefix, &after, limit)).await
    }
}
