//! `forebay put`: files, folders and standard input into a bucket.

mod find;
mod send;

use std::io;
use std::path::PathBuf;

use clap::Args;
use forebay_client::Body;
use forebay_core::Bucket;
use forebay_core::size::ByteSize;
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::session::Session;
use crate::uri::{self, Place};
use crate::{progress, standard};
use find::find_several;
pub(crate) use find::{Upload, blocking, find, is_folder, object_name};
use send::put_all;
pub(crate) use send::{Unsent, send};

/// Bytes of standard input that are held in memory, so that the request can be retried.
const HELD: u64 = 64 << 20;
const READ_SIZE: usize = 256 << 10;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay put photo.jpg ais://images/cat/        object cat/photo.jpg
  forebay put *.jpg ais://images/cat/            several files
  forebay put -r ./dataset ais://images/train    a folder, as train/...
  tar c . | forebay put - ais://backup/today.tar

The names of the objects:
  put x.jpg ais://b/new.jpg       new.jpg
  put x.jpg ais://b/cat/          cat/x.jpg
  put -r dir ais://b/train        train/a for dir/a: without the folder's name
  put -r dir other ais://b/all/   all/dir/a, all/other/a: with it

Several files or folders need a bucket, or a prefix that ends in /. If two of
them would become one object, nothing is sent, and the exit code is 2. An object
that exists is replaced. After Ctrl-C the objects that were sent stay, and no
object is there in part.

In a folder, hidden files are sent, and a link to a file is sent as that file.
Links to folders, broken links, pipes, sockets, devices and names that are not
UTF-8 are errors: they are left out, and the exit code is 3. Empty folders leave
nothing. If a folder cannot be read, nothing is sent. A pipe given as FROM is
read to its end, in memory.

Standard input of less than 64 MiB is held in memory, so that the request can be
repeated after a failure. Longer input is sent once, as it comes.

If some of several files cannot be sent, the exit code is 3, and the others are
stored. A failure that all files share ends the command with its own code.")]
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
