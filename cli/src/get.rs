//! `forebay get`: objects into files. A file is written atomically.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use forebay_client::GetReply;
use forebay_core::size::{ByteSize, RangeSpec};
use forebay_core::{Bucket, Error};
use futures::{StreamExt, stream};
use indicatif::ProgressBar;
use serde_json::json;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::failure::{Failure, exit};
use crate::object::parse_range;
use crate::output::{self, Format};
use crate::part::Part;
use crate::session::Session;
use crate::uri::{self, Place};
use crate::{progress, standard};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay get ais://images/cat/1.jpg              into ./1.jpg
  forebay get s3://data/big.bin part --range 0-1048575
  forebay get -r ais://images/cat/ ./cats         everything below cat/
  forebay get ais://backup/today.tar - | tar x

The file or the files that appear:
  get ais://b/cat/1.jpg pics      pics/1.jpg if pics is a folder, else pics
  get ais://b/cat/1.jpg pics/     pics/1.jpg; without the folder: exit code 4
  get -r ais://b/cat/ to          to/1.jpg and to/sub/2.jpg
  get -r ais://b/cat to           to/cat/1.jpg and to/category/3.jpg

A prefix is a text, not a folder. Its part up to the last / is left out of the
paths. Only -r makes folders. Without any object of the prefix, the exit code
is 4.

A file that exists is replaced when the whole object has arrived. Until then the
bytes are in .NAME.XXXXXXXX.forebay-part beside it. An error and Ctrl-C remove
that file; SIGTERM and SIGKILL leave it. A pipe or a device is written directly.

With -r, an object is left out with an error if its name has an empty part, a
part . or .. (../x, /x, a//b, a/), or if one of a and a/b exists as file or
folder already. If an object is left out, or cannot be read or written, the exit
code is 3, and the others are there.")]
pub(crate) struct GetArgs {
    /// The object; with -r, a prefix
    #[arg(value_name = "URI")]
    from: String,
    /// A file, a folder, or - for standard output
    #[arg(value_name = "TO", default_value = ".")]
    to: String,
    /// Only these bytes: 0-99, 100- (from byte 100) or -5 (the last 5)
    #[arg(long, value_parser = parse_range, allow_hyphen_values = true, value_name = "A-B")]
    range: Option<RangeSpec>,
    /// Download all objects with this prefix, into a folder
    #[arg(short, long, conflicts_with = "range")]
    recursive: bool,
    /// Number of objects to download at once, 1 to 256
    #[arg(short, long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
}

pub(crate) async fn run(session: &Session, args: &GetArgs) -> Result<(), Failure> {
    let to = match Place::parse(&args.to)? {
        Place::Remote(..) => {
            return Err(Failure::usage(
                format!("\"{}\" is not a local file", args.to),
                "get takes the object and then the file: forebay get ais://bucket/object FILE",
            ));
        }
        Place::Stream => None,
        Place::Local(path) => Some(path),
    };
    match to {
        Some(folder) if args.recursive => {
            let (bucket, prefix) = uri::remote(&args.from)?;
            get_all(session, &bucket, &prefix, &folder, args.jobs.into()).await
        }
        None if args.recursive => {
            Err(Failure::usage("many objects cannot go to standard output", "name a folder"))
        }
        to => {
            let (bucket, name) = uri::object(&args.from)?;
            let source = Source { range: args.range, ..Source::object(&bucket, &name) };
            let uri = bucket.object_uri(&name);
            get_one(session, &source, &uri, to).await
        }
    }
}

/// The bytes to download: of an object, or of one member of a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) bucket: &'a Bucket,
    pub(crate) name: &'a str,
    pub(crate) member: Option<&'a str>,
    pub(crate) range: Option<RangeSpec>,
}

impl<'a> Source<'a> {
    /// A whole object.
    pub(crate) fn object(bucket: &'a Bucket, name: &'a str) -> Self {
        Self { bucket, name, member: None, range: None }
    }

    async fn open(&self, session: &Session) -> Result<GetReply, Failure> {
        let Self { bucket, name, member, range } = *self;
        Ok(match member {
            None => session.client.get(bucket, name, range).await?,
            Some(member) => session.client.get_member(bucket, name, member, None, range).await?,
        })
    }

    /// The name whose last part becomes the name of a file.
    fn own_name(&self) -> &'a str {
        self.member.unwrap_or(self.name)
    }
}

/// Downloads one source into a file, or to standard output without `to`, and prints the result.
pub(crate) async fn get_one(
    session: &Session,
    source: &Source<'_>,
    uri: &str,
    to: Option<PathBuf>,
) -> Result<(), Failure> {
    let shown = progress::wanted(session.quiet);
    let Some(to) = to else {
        let failed = |e| Failure::local("standard output", &e);
        let mut out = standard::output().map_err(failed)?;
        copy(session, source, &mut out, &ProgressBar::hidden(), failed).await?;
        return Ok(());
    };
    let path = file_path(&to, source.own_name())?;
    let bar = progress::bytes(shown, None);
    let result = into_file(session, source, &path, &bar).await;
    bar.finish_and_clear();
    let size = result?;
    if session.format == Format::Table {
        session.note(format!("got {} ({})", path.display(), ByteSize(size)));
        return Ok(());
    }
    let json = json!({ "uri": uri, "path": path, "size": size });
    output::one(session.format, &path.display().to_string(), &[], &json)
}

/// Returns the file for an object: below `to` when that is a folder.
pub(crate) fn file_path(to: &Path, name: &str) -> Result<PathBuf, Failure> {
    let as_folder = to.to_str().is_some_and(|t| t.ends_with('/'));
    if !as_folder && !to.is_dir() {
        return Ok(to.to_path_buf());
    }
    match uri::base_name(name) {
        Some(own) => Ok(to.join(own)),
        None => Err(Failure::usage(
            format!("the object's name \"{name}\" gives no file name"),
            "name the file",
        )),
    }
}

/// Downloads an object into a file, which appears as a whole; returns the number of bytes.
pub(crate) async fn into_file(
    session: &Session,
    source: &Source<'_>,
    path: &Path,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let failed = |e: io::Error| Failure::local(path.display(), &e);
    // A device or a pipe cannot be replaced, only written to.
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        let mut file = tokio::fs::File::options().write(true).open(path).await.map_err(failed)?;
        return copy(session, source, &mut file, bar, failed).await;
    }
    let part = Part::beside(path);
    let mut file = tokio::fs::File::create_new(part.path()).await.map_err(failed)?;
    let size = copy(session, source, &mut file, bar, failed).await?;
    drop(file);
    tokio::fs::rename(part.path(), path).await.map_err(failed)?;
    Ok(size)
}

/// Copies an object's bytes; returns how many.
async fn copy(
    session: &Session,
    source: &Source<'_>,
    out: &mut (impl AsyncWrite + Unpin),
    bar: &ProgressBar,
    failed: impl Fn(io::Error) -> Failure,
) -> Result<u64, Failure> {
    let reply = source.open(session).await?;
    if bar.length().is_none() {
        progress::total_bytes(bar, reply.range.len());
    }
    let mut stream = reply.stream;
    let mut size = 0;
    while let Some(bytes) = stream.next().await {
        let bytes = bytes?;
        out.write_all(&bytes).await.map_err(&failed)?;
        size += bytes.len() as u64;
        bar.inc(bytes.len() as u64);
    }
    out.flush().await.map_err(&failed)?;
    Ok(size)
}

async fn get_all(
    session: &Session,
    bucket: &Bucket,
    prefix: &str,
    folder: &Path,
    jobs: usize,
) -> Result<(), Failure> {
    let objects = session.client.list_all(bucket, prefix).await?;
    if objects.is_empty() {
        return Err(bucket.object_not_found(&format!("{prefix}*")).into());
    }
    let total = objects.iter().map(|(_, size)| size).sum();
    let count = objects.len();
    // The folder part of the prefix is not repeated below the destination.
    let skip = prefix.rfind('/').map_or(0, |slash| slash + 1);
    let bar = progress::bytes(progress::wanted(session.quiet), Some(total));
    let mut getting = stream::iter(objects)
        .map(|(name, _)| {
            let bar = &bar;
            async move {
                let result = get_below(session, bucket, &name, skip, folder, bar).await;
                (result, name)
            }
        })
        .buffer_unordered(jobs);
    let (mut got, mut bytes) = (0usize, 0);
    while let Some((result, name)) = getting.next().await {
        match result {
            Ok(size) => (got, bytes) = (got + 1, bytes + size),
            Err(e) if e.code == exit::UNAVAILABLE => return Err(e),
            Err(e) => {
                let text = e.error.map_or_else(String::new, |e| e.to_string());
                bar.suspend(|| {
                    session.warn(format!("error: {}: {text}", bucket.object_uri(&name)))
                });
            }
        }
    }
    bar.finish_and_clear();
    if session.format.is_json() {
        let json = json!({ "bucket": bucket.to_string(), "objects": got, "bytes": bytes,
            "failed": count - got });
        output::one(session.format, "", &[], &json)?;
    } else {
        session.note(format!("got {got} of {count} objects, {}", ByteSize(bytes)));
    }
    match got == count {
        true => Ok(()),
        false => Err(Failure::silent(exit::PARTIAL)),
    }
}

async fn get_below(
    session: &Session,
    bucket: &Bucket,
    name: &str,
    skip: usize,
    folder: &Path,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let below = name.get(skip..).and_then(uri::path_below).ok_or_else(|| {
        Error::invalid("no file can have this name").hint("get it alone, naming the file")
    })?;
    let path = folder.join(below);
    if let Some(parent) = path.parent() {
        tokio::fs::create_dir_all(parent)
            .await
            .map_err(|e| Failure::local(parent.display(), &e))?;
    }
    into_file(session, &Source::object(bucket, name), &path, bar).await
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_takes_the_objects_own_name() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path();
        assert_eq!(file_path(to, "cat/1.jpg").unwrap(), to.join("1.jpg"));
        assert_eq!(file_path(&to.join("x"), "cat/1.jpg").unwrap(), to.join("x"));
        assert_eq!(file_path(Path::new("new/"), "1.jpg").unwrap(), Path::new("new/1.jpg"));
        assert!(file_path(to, "cat/").is_err());
    }
}
