//! The files to send, found below folders, and the names of the objects that they become.

use std::io;
use std::path::{Path, PathBuf};

use forebay_core::Error;

use crate::failure::Failure;

/// A file and the object it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upload {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) size: u64,
}

/// Files to send, and messages about files that cannot be read.
pub(crate) type Found = (Vec<Upload>, Vec<String>);

/// Runs a search of the file system beside the async threads.
pub(crate) async fn blocking(
    search: impl FnOnce() -> Result<Found, Failure> + Send + 'static,
) -> Result<Found, Failure> {
    let found = tokio::task::spawn_blocking(search).await;
    found.map_err(|e| Error::internal(format!("the search for files failed: {e}")))?
}

/// Finds files and the files in folders; each is named `prefix` and its own name.
pub(super) fn find_several(
    paths: Vec<PathBuf>,
    prefix: &str,
    recursive: bool,
) -> Result<Found, Failure> {
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        let kind = std::fs::metadata(&path).map_err(|e| Failure::local(path.display(), &e))?;
        let name = object_name(prefix, &path)?;
        if kind.is_dir() {
            if !recursive {
                return Err(is_folder(&path));
            }
            let (below, unusable) = find(&path, &format!("{name}/"))?;
            files.extend(below);
            problems.extend(unusable);
        } else {
            files.push(Upload { path, name, size: kind.len() });
        }
    }
    Ok((files, problems))
}

/// The object's name for a file: the file's own name is added to a name that is empty or ends in
/// `/`.
pub(crate) fn object_name(name: &str, path: &Path) -> Result<String, Failure> {
    if !name.is_empty() && !name.ends_with('/') {
        return Ok(name.to_owned());
    }
    match path.file_name().and_then(|n| n.to_str()) {
        Some(own) => Ok(format!("{name}{own}")),
        None => Err(Error::invalid(format!("{} has no name to keep", path.display()))
            .hint("give the object's whole name")
            .into()),
    }
}

pub(crate) fn is_folder(path: &Path) -> Failure {
    Failure::usage(format!("{} is a folder", path.display()), "add -r to put all files in it")
}

/// The files below a folder in name order, and messages about files that cannot be sent.
pub(crate) fn find(folder: &Path, prefix: &str) -> Result<Found, Failure> {
    let mut files = Vec::new();
    let mut problems = Vec::new();
    let mut folders = vec![(folder.to_path_buf(), prefix.to_owned())];
    while let Some((folder, prefix)) = folders.pop() {
        let failed = |e: io::Error| Failure::local(folder.display(), &e);
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let Ok(own) = entry.file_name().into_string() else {
                problems.push(format!("{}: its name is not UTF-8", path.display()));
                continue;
            };
            let name = format!("{prefix}{own}");
            // A link to a file is sent as that file; a link to a folder may be a loop.
            let is_link = entry.file_type().is_ok_and(|t| t.is_symlink());
            match std::fs::metadata(&path) {
                Ok(m) if m.is_file() => files.push(Upload { path, name, size: m.len() }),
                Ok(m) if m.is_dir() && !is_link => folders.push((path, format!("{name}/"))),
                Ok(_) => problems.push(format!("{}: not a plain file", path.display())),
                Err(e) => problems.push(format!("{}: {e}", path.display())),
            }
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((files, problems))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_ends_in_a_slash_keeps_the_files_own() {
        let file = Path::new("/tmp/photo.jpg");
        assert_eq!(object_name("cat/", file).unwrap(), "cat/photo.jpg");
        assert_eq!(object_name("", file).unwrap(), "photo.jpg");
        assert_eq!(object_name("x.jpg", file).unwrap(), "x.jpg");
        assert!(object_name("", Path::new("/")).is_err());
    }

    #[test]
    fn a_folder_is_walked_in_name_order_without_following_links_to_folders() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("b/c")).unwrap();
        for name in ["z", "b/y", "b/c/x"] {
            std::fs::write(root.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("loop")).unwrap();
        std::os::unix::fs::symlink(root.join("z"), root.join("link")).unwrap();
        let (files, problems) = find(root, "p/").unwrap();
        let names: Vec<_> = files.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["p/b/c/x", "p/b/y", "p/link", "p/z"]);
        assert_eq!(problems.len(), 1);
        assert!(find(&root.join("none"), "").is_err());
    }
}
