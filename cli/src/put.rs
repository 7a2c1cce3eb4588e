//! `forebay put`: files, folders and standard input into a bucket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use forebay_client::{Body, ByteStream};
use forebay_core::size::ByteSize;
use forebay_core::{Bucket, Error, ErrorCode};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use crate::failure::{Failure, exit};
use crate::output::{self, Format};
use crate::session::Session;
use crate::uri::{self, Place};
use crate::{progress, standard};

/// Files up to this size are read into memory before they are sent.
const INLINE_MAX_BYTES: u64 = 1 << 20;
/// Bytes of standard input that are held in memory, so that the request can be retried.
const HELD: u64 = 64 << 20;
const READ_SIZE: usize = 256 << 10;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay put photo.jpg ais://images/cat/        object cat/photo.jpg
  forebay put *.jpg ais://images/cat/            several files
  forebay put -r ./dataset ais://images/train    a folder, as train/...
  tar c . | forebay put - ais://backup/today.tar")]
pub(crate) struct PutArgs {
    /// Files, folders (with -r), or - for standard input
    #[arg(value_name = "FROM", required = true)]
    from: Vec<String>,
    /// The object; a name that ends in / is a prefix for the file's own name
    #[arg(value_name = "URI")]
    to: String,
    /// Upload all files below a folder
    #[arg(short, long)]
    recursive: bool,
    /// Number of files to send at once, 1 to 256
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
}

/// A file and the object it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Upload {
    path: PathBuf,
    name: String,
    size: u64,
}

pub(crate) async fn run(session: &Session, args: &PutArgs) -> Result<(), Failure> {
    let (bucket, name) = uri::remote(&args.to)?;
    let from = match args.from.as_slice() {
        [from] => from,
        several => return put_several(session, &bucket, &name, several, args).await,
    };
    match Place::parse(from)? {
        Place::Remote(..) => Err(not_local(from)),
        Place::Stream => put_stream(session, &bucket, &name).await,
        Place::Local(path) => {
            let kind =
                tokio::fs::metadata(&path).await.map_err(|e| Failure::local(path.display(), &e))?;
            if kind.is_dir() && args.recursive {
                return put_folder(session, &bucket, &name, path, args.jobs.into()).await;
            }
            if kind.is_dir() {
                return Err(is_folder(&path));
            }
            let name = object_name(&name, &path)?;
            put_file(session, &bucket, Upload { path, name, size: kind.len() }).await
        }
    }
}

fn not_local(from: &str) -> Failure {
    Failure::usage(
        format!("\"{from}\" is not a local file"),
        "put takes a file and then the object: forebay put FILE ais://bucket/object",
    )
}

fn is_folder(path: &Path) -> Failure {
    Failure::usage(format!("{} is a folder", path.display()), "add -r to put all files in it")
}

/// Puts files and folders under their own names. Finds all of them before it sends any.
async fn put_several(
    session: &Session,
    bucket: &Bucket,
    prefix: &str,
    from: &[String],
    args: &PutArgs,
) -> Result<(), Failure> {
    if !prefix.is_empty() && !prefix.ends_with('/') {
        let text = format!("{} files cannot all become \"{}\"", from.len(), args.to);
        return Err(Failure::usage(text, format!("put them under it: {}/", args.to)));
    }
    let mut paths = Vec::with_capacity(from.len());
    for from in from {
        let Place::Local(path) = Place::parse(from)? else { return Err(not_local(from)) };
        paths.push(path);
    }
    let (prefix, recursive) = (prefix.to_owned(), args.recursive);
    let (files, problems) = blocking(move || find_several(paths, &prefix, recursive)).await?;
    let mut names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    names.sort_unstable();
    if let Some([twice, _]) = names.array_windows().find(|[a, b]| a == b) {
        let text = format!("two files would become {}", bucket.object_uri(twice));
        return Err(Failure::usage(text, "put them under different prefixes"));
    }
    put_all(session, bucket, files, problems, args.jobs.into()).await
}

/// Files to send, and messages about files that cannot be read.
type Found = (Vec<Upload>, Vec<String>);

/// Runs a search of the file system beside the async threads.
async fn blocking(
    search: impl FnOnce() -> Result<Found, Failure> + Send + 'static,
) -> Result<Found, Failure> {
    let found = tokio::task::spawn_blocking(search).await;
    found.map_err(|e| Error::internal(format!("the search for files failed: {e}")))?
}

/// Finds files and the files in folders; each is named `prefix` and its own name.
fn find_several(paths: Vec<PathBuf>, prefix: &str, recursive: bool) -> Result<Found, Failure> {
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
fn object_name(name: &str, path: &Path) -> Result<String, Failure> {
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

async fn put_stream(session: &Session, bucket: &Bucket, name: &str) -> Result<(), Failure> {
    if name.is_empty() || name.ends_with('/') {
        let hint = format!("for example {bucket}/some/object");
        return Err(Failure::usage("standard input needs the object's whole name", hint));
    }
    let failed = |e: io::Error| Failure::local("standard input", &e);
    let mut input = standard::input().map_err(failed)?;
    let mut held = Vec::new();
    (&mut input).take(HELD).read_to_end(&mut held).await.map_err(failed)?;
    let body = if (held.len() as u64) < HELD {
        Body::from(held)
    } else {
        let first = stream::iter([Ok(held.into())]);
        Body::once(first.chain(ReaderStream::with_capacity(input, READ_SIZE)))
    };
    let meta = session.client.put(bucket, name, body, None).await?;
    tell(session, bucket, name, meta.size)
}

async fn put_file(session: &Session, bucket: &Bucket, file: Upload) -> Result<(), Failure> {
    let bar = progress::bytes(progress::wanted(session.quiet), Some(file.size));
    let result = send(session, bucket, &file, &bar).await;
    bar.finish_and_clear();
    tell(session, bucket, &file.name, result.map_err(Unsent::into_failure)?)
}

fn tell(session: &Session, bucket: &Bucket, name: &str, size: u64) -> Result<(), Failure> {
    let uri = bucket.object_uri(name);
    if session.format == Format::Table {
        session.note(format!("put {uri} ({})", ByteSize(size)));
        return Ok(());
    }
    output::one(session.format, name, &[], &json!({ "uri": uri, "name": name, "size": size }))
}

/// Why a file was not sent.
#[derive(Debug)]
enum Unsent {
    /// The file cannot be read.
    File(Failure),
    /// The cluster refuses it or does not reply.
    Cluster(Failure),
}

impl Unsent {
    fn into_failure(self) -> Failure {
        match self {
            Self::File(failure) | Self::Cluster(failure) => failure,
        }
    }

    /// Whether every other file would get the same error: it is about the bucket or the cluster.
    fn will_repeat(&self) -> bool {
        use ErrorCode::*;
        let Self::Cluster(failure) = self else { return false };
        let code = failure.error.as_ref().map(|e| e.code);
        let of_bucket = matches!(
            code,
            Some(BucketNotFound | RemoteBucketNotFound | Unauthenticated | AccessDenied)
                | Some(MethodNotAllowed | Unsupported | OutOfSpace)
        );
        of_bucket || failure.code == exit::UNAVAILABLE
    }
}

/// Sends one file; returns its size.
async fn send(
    session: &Session,
    bucket: &Bucket,
    file: &Upload,
    bar: &ProgressBar,
) -> Result<u64, Unsent> {
    let failed = |e: io::Error| Unsent::File(Failure::local(file.path.display(), &e));
    let body = if file.size <= INLINE_MAX_BYTES {
        let bytes = tokio::fs::read(&file.path).await.map_err(failed)?;
        Body::from(bytes)
    } else {
        tokio::fs::File::open(&file.path).await.map_err(failed)?;
        watched(file, bar)
    };
    let small = matches!(body, Body::Bytes(_));
    let put = session.client.put(bucket, &file.name, body, None).await;
    let meta = put.map_err(|e| Unsent::Cluster(e.into()))?;
    if small {
        bar.inc(meta.size);
    }
    Ok(meta.size)
}

/// A file whose reads move a bar; a retry takes back what the first attempt had moved.
fn watched(file: &Upload, bar: &ProgressBar) -> Body {
    let (path, bar, moved) = (file.path.clone(), bar.clone(), Arc::new(AtomicU64::new(0)));
    let open: forebay_client::OpenStream = Arc::new(move || {
        let (path, bar, moved) = (path.clone(), bar.clone(), moved.clone());
        Box::pin(async move {
            bar.dec(moved.swap(0, Ordering::Relaxed));
            let file = tokio::fs::File::open(path).await?;
            let bytes = ReaderStream::with_capacity(file, READ_SIZE).inspect_ok(move |bytes| {
                bar.inc(bytes.len() as u64);
                moved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            });
            let bytes: ByteStream = Box::pin(bytes);
            Ok(bytes)
        })
    });
    Body::Stream { len: Some(file.size), open }
}

async fn put_folder(
    session: &Session,
    bucket: &Bucket,
    prefix: &str,
    folder: PathBuf,
    jobs: usize,
) -> Result<(), Failure> {
    let prefix = match prefix {
        "" => String::new(),
        p if p.ends_with('/') => p.to_owned(),
        p => format!("{p}/"),
    };
    let (files, problems) = blocking(move || find(&folder, &prefix)).await?;
    put_all(session, bucket, files, problems, jobs).await
}

/// Sends files concurrently; `failed` has messages about those that cannot be read.
async fn put_all(
    session: &Session,
    bucket: &Bucket,
    files: Vec<Upload>,
    mut failed: Vec<String>,
    jobs: usize,
) -> Result<(), Failure> {
    for problem in &failed {
        session.warn(format!("error: {problem}"));
    }
    let total = files.iter().map(|f| f.size).sum();
    let count = files.len() + failed.len();
    let bar = progress::bytes(progress::wanted(session.quiet), Some(total));
    let (mut sent, mut bytes) = (0u64, 0u64);
    let mut stopped = None;
    let mut sending = stream::iter(files)
        .map(|file| {
            let bar = &bar;
            async move { (send(session, bucket, &file, bar).await, file.path) }
        })
        .buffer_unordered(jobs);
    while let Some((result, path)) = sending.next().await {
        match result {
            Ok(size) => (sent, bytes) = (sent + 1, bytes + size),
            // Every other file would get the same error.
            Err(e) if e.will_repeat() => {
                stopped = Some(e.into_failure());
                break;
            }
            Err(e) => {
                let e = e.into_failure();
                let shown = path.display();
                let text = e.error.map_or_else(String::new, |e| e.to_string());
                bar.suspend(|| session.warn(format!("error: {shown}: {text}")));
                failed.push(text);
            }
        }
    }
    // Cancels files in progress: they are not acknowledged and not counted.
    drop(sending);
    bar.finish_and_clear();
    if session.format.is_json() {
        let json = json!({ "bucket": bucket.to_string(), "objects": sent, "bytes": bytes,
            "failed": count as u64 - sent });
        output::one(session.format, "", &[], &json)?;
    } else {
        session.note(format!("put {sent} of {count} files, {}", ByteSize(bytes)));
    }
    match stopped {
        Some(e) => Err(e),
        None if failed.is_empty() => Ok(()),
        None => Err(Failure::silent(exit::PARTIAL)),
    }
}

/// The files below a folder in name order, and messages about files that cannot be sent.
fn find(folder: &Path, prefix: &str) -> Result<Found, Failure> {
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
    fn errors_that_every_file_would_meet_end_the_work() {
        let of = |code| Unsent::Cluster(Error::new(code, "no").into());
        for code in [ErrorCode::BucketNotFound, ErrorCode::OutOfSpace, ErrorCode::Timeout] {
            assert!(of(code).will_repeat(), "{code:?}");
        }
        assert!(!of(ErrorCode::InvalidName).will_repeat());
        let unreadable = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert!(!Unsent::File(Failure::local("x", &unreadable)).will_repeat());
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
