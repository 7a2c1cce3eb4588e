//! Directory markers: keys that end in a slash and have no content.
//!
//! A marker is a folder. An empty folder counts as a marker, independent of its creator. A folder
//! with content counts as a marker only if it was put as one. Such a folder holds an empty file,
//! [`MARKER_FILE`], so that the file system itself rejects its removal together with the last
//! object in it. An extended attribute would be lost if a put of the marker and that removal met on
//! two machines.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use forebay_core::error::{ErrorCode, Result};
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_node::file_modes;
use futures::stream::{self, StreamExt};

use super::parents::{
    MAX_PUT_ATTEMPTS, MadeFolders, refusal, remove_empty_folders, removed_again, sync_folder,
    write_error,
};
use super::{Folder, mtime_ns, problem_with};
use crate::{RemoteMeta, RemoteObject};

/// The file in a folder that was put as a marker. It is no object.
pub(super) const MARKER_FILE: &str = ".forebay-marker";

/// The MD5 of no content.
const EMPTY_MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";

/// The name of the folder of a key, if the key ends in a slash.
pub(super) fn folder_name(key: &str) -> Option<&str> {
    key.strip_suffix('/')
}

/// The metadata of a marker. All markers have one version: there is no content that could change.
fn meta_from(made: &Metadata) -> RemoteMeta {
    RemoteMeta {
        size: 0,
        version: "marker".to_owned(),
        etag: EMPTY_MD5.to_owned(),
        md5: Some(EMPTY_MD5.to_owned()),
        mtime_ns: u64::try_from(mtime_ns(made)).unwrap_or(0),
        ..RemoteMeta::default()
    }
}

/// The metadata of the marker that the folder at `path` is; `None` if it is no marker. `is_empty`:
/// the folder was empty a moment ago.
pub(super) fn meta_at(path: &Path, is_empty: bool) -> io::Result<Option<RemoteMeta>> {
    match fs::symlink_metadata(path.join(MARKER_FILE)) {
        Ok(file) => Ok(Some(meta_from(&file))),
        Err(e) if e.kind() == io::ErrorKind::NotFound && is_empty => {
            let folder = fs::symlink_metadata(path)?;
            Ok(folder.is_dir().then(|| meta_from(&folder)))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn is_empty_folder(path: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(path)?.next().transpose()?.is_none())
}

/// The folder `name` below the root, which exists and is reached without links.
fn existing_folder(folder: &Folder, name: &str) -> Result<PathBuf> {
    let missing = || folder.bucket.object_not_found(&format!("{name}/"));
    if problem_with(name).is_some() {
        return Err(missing());
    }
    let path = folder.root.join(name);
    let real = fs::canonicalize(&path).map_err(|e| folder.error(e, "read", &format!("{name}/")))?;
    if real == path && real.is_dir() { Ok(path) } else { Err(missing()) }
}

/// Describes the marker `name/`.
pub(super) fn stat(folder: &Folder, name: &str) -> Result<RemoteMeta> {
    let path = existing_folder(folder, name)?;
    let key = format!("{name}/");
    let look = || meta_at(&path, is_empty_folder(&path)?);
    let found = look().map_err(|e| folder.error(e, "read", &key))?;
    found.ok_or_else(|| folder.bucket.object_not_found(&key))
}

/// Reads the marker `name/`: no bytes.
pub(super) fn read(
    folder: &Folder,
    name: &str,
    range: Option<ByteRange>,
    if_version: Option<&str>,
) -> Result<RemoteObject> {
    let meta = stat(folder, name)?;
    if if_version.is_some_and(|wanted| wanted != meta.version) {
        return Err(super::changed(folder, &format!("{name}/")));
    }
    let range = match range {
        None => ByteRange::whole(0),
        Some(r) => RangeSpec::From(r.start, Some(r.end.saturating_sub(1))).resolve(0)?,
    };
    Ok(RemoteObject { meta, range, stream: stream::empty().boxed() })
}

/// Makes the folder `name` a marker.
pub(super) fn put(folder: &Folder, name: &str, size: u64) -> Result<RemoteMeta> {
    let key = format!("{name}/");
    if let Some(problem) = problem_with(name) {
        return Err(refusal(folder, ErrorCode::InvalidName, &key, problem)
            .hint("names in a folder bucket are clean relative paths"));
    }
    if size > 0 {
        let why =
            format!("a key that ends in '/' is a folder there, and this one has {size} bytes");
        return Err(refusal(folder, ErrorCode::InvalidArgument, &key, &why)
            .hint("leave the slash at the end of the key out, or put it without content"));
    }
    let path = folder.root.join(name);
    let failed = |e| write_error(folder, e, &key);
    let mut folders = MadeFolders::new(&path);
    for _ in 0..MAX_PUT_ATTEMPTS {
        match folders.make(&folder.root) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                let why = "a part of its path is a file or a link";
                return Err(refusal(folder, ErrorCode::Conflict, &key, why));
            }
            // A delete removed a folder that was empty.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                folder.check_root_exists()?;
                continue;
            }
            Err(e) => return Err(failed(e)),
        }
        let file = path.join(MARKER_FILE);
        let made = match File::options().write(true).create_new(true).open(&file) {
            Ok(file) => file_modes::share(&file)
                .and_then(|()| file.sync_all())
                .and_then(|()| file.metadata()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => fs::symlink_metadata(&file),
            Err(e) => Err(e),
        };
        match made {
            Ok(made) => {
                folders.keep();
                sync_folder(&path).map_err(failed)?;
                return Ok(meta_from(&made));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => folder.check_root_exists()?,
            Err(e) => return Err(failed(e)),
        }
    }
    Err(removed_again(folder, &key))
}

/// Whether a folder was not removed because of what is in it; POSIX allows two codes for that.
fn is_not_empty(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}

/// Removes the marker `name/`. The folder goes with it if nothing else is in it.
pub(super) fn delete(folder: &Folder, name: &str) -> Result<()> {
    let path = existing_folder(folder, name)?;
    let key = format!("{name}/");
    let failed = |e| folder.error(e, "delete", &key);
    let was_put = match fs::remove_file(path.join(MARKER_FILE)) {
        Ok(()) => true,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(failed(e)),
    };
    match fs::remove_dir(&path) {
        Ok(()) => {
            remove_empty_folders(&folder.root, path.parent());
            Ok(())
        }
        // Its content stays, and with that the folder.
        Err(e) if is_not_empty(&e) => match was_put {
            true => Ok(()),
            false => Err(folder.bucket.object_not_found(&key)),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound && was_put => Ok(()),
        Err(e) => Err(failed(e)),
    }
}
