//! Promotion: makes objects of files on this node, below the one folder that the configuration
//! allows.
//!
//! Symbolic links are not followed, because they may point to any file. Files are opened and removed
//! from folder to folder below the root, because a folder may become a link after it was listed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{PromoteRequest, PromoteScan};
use forebay_core::job::JobKind;
use forebay_core::promote::PromoteArgs;
use forebay_core::{Error, ErrorCode, ObjectName, Result, placement};
use forebay_node::lifecycle::Lifecycle;
use futures::{StreamExt, TryStreamExt};
use rustix::fs::{AtFlags, Mode, OFlags};
use tokio::sync::mpsc;
use tokio_util::io::ReaderStream;
use walkdir::WalkDir;

use crate::job::{Jobs, Registration, RequestJob};
use crate::object::{Delivery, ObjectService};

/// Most files that are compared to detect whether targets see the same files.
const SCANNED: u64 = 10_000;
/// Files that are stored at once.
const PARALLEL: usize = 8;
/// Files found ahead of those being stored.
const QUEUED_FILES: usize = 256;
/// Bytes of a file that are read at once.
const READ: usize = 256 << 10;

/// All promotions of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Promotions(Arc<Inner>);

struct Inner {
    objects: ObjectService,
    jobs: Jobs,
    root: PathBuf,
    lifecycle: Lifecycle,
}

/// The parameters of one promotion.
struct Work {
    info: Arc<BucketInfo>,
    args: PromoteArgs,
    shared: bool,
    files: Files,
}

/// A source that was found.
#[derive(Clone)]
struct Files {
    /// The folder of the configuration, without links.
    root: PathBuf,
    source: PathBuf,
    is_folder: bool,
    recursive: bool,
}

impl Promotions {
    pub(crate) fn new(
        objects: ObjectService,
        jobs: Jobs,
        root: impl Into<PathBuf>,
        lifecycle: Lifecycle,
    ) -> Self {
        Self(Arc::new(Inner { objects, jobs, root: root.into(), lifecycle }))
    }

    /// This node's view of the source; an error if it is not there.
    pub(crate) async fn scan(&self, args: PromoteArgs) -> Result<PromoteScan> {
        let root = self.0.root.clone();
        blocking(move || {
            let files = Files::find(&root, &args)?;
            let scan = files.scan()?;
            if scan.files == 0 {
                let text = format!("promote: folder \"{}\" is empty", args.source);
                return Err(
                    Error::invalid(text).hint("files in folders in it take rcr (recursive)")
                );
            }
            Ok(scan)
        })
        .await
    }

    /// Starts to make objects of files, as a job with the given id.
    pub(crate) async fn start(&self, request: PromoteRequest) -> Result<()> {
        let PromoteRequest { id, bucket, args, shared } = request;
        let info = self.0.objects.state().bucket(&bucket)?.clone();
        let (root, asked) = (self.0.root.clone(), args.clone());
        let files = blocking(move || Files::find(&root, &asked)).await?;
        let what = Registration::new(JobKind::Promote).id(id).bucket(&bucket);
        let job = self.0.jobs.register(what)?;
        let (me, work) = (self.clone(), Work { info, args, shared, files });
        self.0.lifecycle.spawn(async move {
            let stop = job.stop_token();
            let outcome = tokio::select! {
                outcome = me.run(&job, work) => outcome,
                () = stop.cancelled() => Err(Error::new(ErrorCode::Conflict, "stopped")),
            };
            job.end(outcome);
        });
        Ok(())
    }

    async fn run(&self, job: &RequestJob, work: Work) -> Result<()> {
        let (sender, mut found) = mpsc::channel(QUEUED_FILES);
        let files = work.files.clone();
        let walk = tokio::task::spawn_blocking(move || {
            for file in files.walk() {
                if sender.blocking_send(file).is_err() {
                    return;
                }
            }
        });
        let found = futures::stream::poll_fn(move |cx| found.poll_recv(cx));
        let work = &work;
        found
            .for_each_concurrent(PARALLEL, |file| async move {
                let done = match file {
                    Ok(path) => self.promote(work, &path).await,
                    Err(e) => Err(e),
                };
                match done {
                    Ok(Some(bytes)) => job.done(bytes),
                    Ok(None) => {}
                    Err(e) => job.failed(&e),
                }
            })
            .await;
        walk.await.map_err(|_| Error::internal("promote: looking for files ended early"))
    }

    /// Makes an object of one file. Returns its bytes; `None` if it is to be skipped, or belongs on
    /// another target.
    async fn promote(&self, work: &Work, path: &Path) -> Result<Option<u64>> {
        let within = match work.files.is_folder {
            true => Some(work.files.within(path)?),
            false => None,
        };
        let name = ObjectName::new(work.args.object_name(within))?;
        if !work.info.has_backend() {
            name.check_v1_native()?;
        }
        let objects = &self.0.objects;
        if work.shared {
            let state = objects.state();
            if placement::owner(&state, &work.info, name.as_str())?.id != *objects.me() {
                return Ok(None);
            }
        }
        let file = {
            let (root, path) = (work.files.root.clone(), path.to_owned());
            blocking(move || open(&root, &path)).await?
        };
        // Removed since it was listed.
        let Some((file, len)) = file else { return Ok(None) };
        let shown = path.display().to_string();
        let body = ReaderStream::with_capacity(tokio::fs::File::from_std(file), READ)
            .map_err(move |e| Error::invalid(format!("promote: cannot read {shown}: {e}")))
            .boxed();
        let delivery = Delivery {
            body,
            len: Some(len),
            custom: Default::default(),
            keep_existing: !work.args.overwrite,
        };
        let written = objects.deliver(&work.info, name.as_str(), delivery).await?;
        if written.is_some() && work.args.delete_source {
            let (root, path) = (work.files.root.clone(), path.to_owned());
            blocking(move || remove(&root, &path)).await?;
        }
        Ok(written)
    }
}

impl Files {
    /// Finds the source and checks that it is really under the root.
    fn find(root: &Path, args: &PromoteArgs) -> Result<Self> {
        args.check_source(&root.to_string_lossy())?;
        let source = PathBuf::from(&args.source);
        let refuse = |why: String| {
            Error::invalid(format!("invalid promote source \"{}\": {why}", args.source))
        };
        let real_root = root
            .canonicalize()
            .map_err(|e| refuse(format!("the folder {} cannot be used: {e}", root.display())))?;
        let seen = source.symlink_metadata().map_err(|e| refuse(e.to_string()))?;
        if seen.is_symlink() {
            return Err(refuse("it is a symbolic link".into()));
        }
        let real = source.canonicalize().map_err(|e| refuse(e.to_string()))?;
        if !real.starts_with(&real_root) {
            return Err(refuse(format!("it leads out of {}", root.display())));
        }
        if !seen.is_dir() && !seen.is_file() {
            return Err(refuse("it is neither a file nor a folder".into()));
        }
        let (is_folder, recursive) = (seen.is_dir(), args.recursive);
        Ok(Self { root: real_root, source: real, is_folder, recursive })
    }

    /// All files, in the order of their names.
    fn walk(&self) -> impl Iterator<Item = Result<PathBuf>> + use<> {
        let depth = if self.recursive { usize::MAX } else { 1 };
        let walk = WalkDir::new(&self.source).max_depth(depth).sort_by_file_name();
        walk.into_iter().filter_map(|entry| match entry {
            Ok(entry) if entry.file_type().is_file() => Some(Ok(entry.into_path())),
            Ok(_) => None,
            Err(e) if e.io_error().is_some_and(|e| e.kind() == io::ErrorKind::NotFound) => None,
            Err(e) => Some(Err(Error::invalid(format!("promote: {e}")))),
        })
    }

    /// A file's path relative to the source.
    fn within<'a>(&self, path: &'a Path) -> Result<&'a str> {
        let within = path.strip_prefix(&self.source).ok().and_then(Path::to_str);
        within.ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidName,
                format!("promote: the name of {} is not valid UTF-8", path.display()),
            )
        })
    }

    fn scan(&self) -> Result<PromoteScan> {
        let mut text = Vec::new();
        let mut scan = PromoteScan { files: 0, digest: 0, more: false };
        for path in self.walk() {
            if scan.files == SCANNED {
                scan.more = true;
                break;
            }
            let path = path?;
            let Ok(meta) = path.symlink_metadata() else { continue };
            text.clear();
            text.extend_from_slice(path.as_os_str().as_bytes());
            for number in [meta.len(), meta.mtime() as u64, meta.mtime_nsec() as u64] {
                text.extend_from_slice(&number.to_le_bytes());
            }
            scan.files += 1;
            let next = String::from_utf8_lossy(&text);
            scan.digest = scan.digest.rotate_left(1) ^ placement::digest(&next);
        }
        Ok(scan)
    }
}

/// Opens the folder of a file below `root`, without following a link below `root`. Returns it and
/// the name of the file in it.
fn folder_of<'a>(root: &Path, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
    let outside = || io::Error::from(io::ErrorKind::PermissionDenied);
    let within = path.strip_prefix(root).map_err(|_| outside())?;
    let name = within.file_name().ok_or_else(outside)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = rustix::fs::open(root, flags, Mode::empty())?;
    for part in within.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(part) = part else { return Err(outside()) };
        folder = rustix::fs::openat(&folder, part, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok((folder, name))
}

/// The file and its size; `None` when it is gone, or no longer a file.
fn open(root: &Path, path: &Path) -> Result<Option<(std::fs::File, u64)>> {
    let opened = folder_of(root, path).and_then(|(folder, name)| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&folder, name, flags, Mode::empty())?)
    });
    let cannot =
        |e: io::Error| Error::invalid(format!("promote: cannot open {}: {e}", path.display()));
    let file = match opened {
        Ok(file) => std::fs::File::from(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(cannot(e)),
    };
    let meta = file.metadata().map_err(cannot)?;
    Ok(meta.is_file().then_some((file, meta.len())))
}

/// Removes a file that became an object; it is no error if the file does not exist.
fn remove(root: &Path, path: &Path) -> Result<()> {
    let removed = folder_of(root, path)
        .and_then(|(folder, name)| Ok(rustix::fs::unlinkat(&folder, name, AtFlags::empty())?));
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            let shown = path.display();
            let text = format!("promote: {shown} is an object now but stays: {e}");
            Err(Error::invalid(text))
        }
        _ => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|_| Error::internal("promote: looking for files ended early"))?
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn args(source: &Path, recursive: bool) -> PromoteArgs {
        let source = source.to_string_lossy().into_owned();
        PromoteArgs { source, recursive, ..PromoteArgs::default() }
    }

    fn names(files: &Files) -> Vec<String> {
        files.walk().map(|p| files.within(&p.unwrap()).unwrap().to_owned()).collect()
    }

    #[test]
    fn a_folder_is_its_files_and_with_recursion_those_below() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("d");
        std::fs::create_dir_all(folder.join("in")).unwrap();
        for name in ["b", "a", "in/c"] {
            std::fs::write(folder.join(name), name).unwrap();
        }
        let flat = Files::find(root.path(), &args(&folder, false)).unwrap();
        assert_eq!(names(&flat), ["a", "b"]);
        let deep = Files::find(root.path(), &args(&folder, true)).unwrap();
        assert_eq!(names(&deep), ["a", "b", "in/c"]);
        let (once, again) = (deep.scan().unwrap(), deep.scan().unwrap());
        assert_eq!((once.files, once), (3, again));
        std::fs::write(folder.join("a"), "longer").unwrap();
        assert_ne!(deep.scan().unwrap().digest, once.digest);
    }

    #[test]
    fn links_do_not_lead_out_of_the_root() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "s").unwrap();
        let link = |name: &str, to: &Path| {
            let at = root.path().join(name);
            std::os::unix::fs::symlink(to, &at).unwrap();
            at
        };
        let to_file = link("file", &secret);
        let to_folder = link("folder", outside.path());
        for bad in [&to_file, &to_folder, &to_folder.join("secret"), &root.path().join("none")] {
            assert!(Files::find(root.path(), &args(bad, true)).is_err(), "{}", bad.display());
        }
        let all = Files::find(root.path(), &args(root.path(), true)).unwrap();
        assert!(names(&all).is_empty());
        let opened = open(root.path(), &to_file);
        assert!(opened.is_err(), "a link that took the place of a file");
    }

    #[test]
    fn a_folder_that_became_a_link_after_it_was_listed_is_not_followed() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = root.path().join("d/in");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("f"), "mine").unwrap();
        let secret = outside.path().join("in/f");
        std::fs::create_dir(outside.path().join("in")).unwrap();
        std::fs::write(&secret, "of another").unwrap();
        let files = Files::find(root.path(), &args(&root.path().join("d"), true)).unwrap();
        let listed: Vec<_> = files.walk().map(Result::unwrap).collect();
        assert!(open(&files.root, &listed[0]).unwrap().is_some());
        std::fs::rename(root.path().join("d"), root.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("d")).unwrap();
        assert!(open(&files.root, &listed[0]).is_err());
        assert!(remove(&files.root, &listed[0]).is_err());
        assert!(secret.exists());
        assert!(open(&files.root, &secret).is_err(), "not below the root");
    }
}
