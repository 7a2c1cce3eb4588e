//! Carries out one step: copies in every direction, moves with their comparison, removals.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use forebay_core::checksum::{Checksum, ChecksumKind, Hasher};
use forebay_core::object::ObjectMeta;
use forebay_core::{Bucket, Error, ErrorCode};
use futures::StreamExt;
use indicatif::ProgressBar;
use tokio::io::AsyncReadExt;

use super::step::{Action, End, Step};
use crate::failure::Failure;
use crate::get::{Source, into_file};
use crate::put::{Unsent, Upload, send};
use crate::session::Session;

const READ_CHUNK_BYTES: usize = 1 << 20;

/// Carries out a step and returns the number of bytes that were copied.
pub(super) async fn perform(
    session: &Session,
    step: &Step,
    bar: &ProgressBar,
) -> Result<u64, Unsent> {
    match (step.action, &step.to) {
        (Action::Remove, _) | (_, None) => remove(session, &step.from).await.map(|()| 0),
        (Action::Copy, Some(to)) => copy(session, step, to, bar).await,
        (Action::Move, Some(to)) => {
            let before = State::of(session, &step.from).await?;
            let size = copy(session, step, to, bar).await?;
            before.expect_in(session, &step.from, to).await?;
            if State::of(session, &step.from).await? != before {
                let text = format!("{} changed while it was moved", step.from);
                let e = Error::new(ErrorCode::ObjectChanged, text)
                    .hint("both the source and the copy are kept");
                return Err(Unsent::Cluster(e.into()));
            }
            remove(session, &step.from).await?;
            Ok(size)
        }
    }
}

async fn copy(session: &Session, step: &Step, to: &End, bar: &ProgressBar) -> Result<u64, Unsent> {
    match (&step.from, to) {
        (End::File(path), End::Object(bucket, name)) => {
            let file = Upload { path: path.clone(), name: name.clone(), size: step.size };
            send(session, bucket, &file, bar).await
        }
        (End::Object(bucket, name), End::Object(to, new_name)) => {
            let copied = session.client.copy((bucket, name), (to, new_name)).await;
            copied.map_err(cluster)?;
            bar.inc(step.size);
            Ok(step.size)
        }
        (End::Object(bucket, name), End::File(path)) => {
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                tokio::fs::create_dir_all(folder).await.map_err(|e| local(folder, &e))?;
            }
            into_file(session, &Source::object(bucket, name), path, bar).await.map_err(of_object)
        }
        (End::File(_), End::File(_)) => {
            Err(Unsent::File(Error::internal("a copy between local files").into()))
        }
    }
}

async fn remove(session: &Session, end: &End) -> Result<(), Unsent> {
    match end {
        End::Object(bucket, name) => session.client.delete(bucket, name).await.map_err(cluster),
        End::File(path) => tokio::fs::remove_file(path).await.map_err(|e| local(path, &e)),
    }
}

fn cluster(e: forebay_client::Error) -> Unsent {
    Unsent::Cluster(e.into())
}

fn local(path: &Path, e: &io::Error) -> Unsent {
    Unsent::File(Failure::local(path.display(), e))
}

/// A failure of a download: of the file, unless the cluster does not reply.
fn of_object(failure: Failure) -> Unsent {
    match failure.code == crate::failure::exit::UNAVAILABLE {
        true => Unsent::Cluster(failure),
        false => Unsent::File(failure),
    }
}

/// The properties that identify the content of a source at one time.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Object { size: u64, version: String, etag: String, checksum: Option<Checksum>, mtime_ns: u64 },
    File { size: u64, modified: Option<SystemTime> },
}

impl State {
    async fn of(session: &Session, end: &End) -> Result<Self, Unsent> {
        match end {
            End::Object(bucket, name) => {
                let meta = session.client.head(bucket, name).await.map_err(cluster)?;
                let ObjectMeta { size, version, etag, checksum, mtime_ns, .. } = meta;
                Ok(Self::Object { size, version, etag, checksum, mtime_ns })
            }
            End::File(path) => {
                let meta = tokio::fs::metadata(path).await.map_err(|e| local(path, &e))?;
                Ok(Self::File { size: meta.len(), modified: meta.modified().ok() })
            }
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Object { size, .. } | Self::File { size, .. } => *size,
        }
    }

    /// Compares the copy with the source: the sizes, and the bytes by the checksum that the cluster
    /// has of the object among them.
    async fn expect_in(&self, session: &Session, from: &End, to: &End) -> Result<(), Unsent> {
        let copy = State::of(session, to).await?;
        let differs = |what: String| {
            let text = format!("the copy {to} of {from} differs: {what}");
            let e = Error::new(ErrorCode::ChecksumMismatch, text).hint("the source is kept");
            Unsent::Cluster(e.into())
        };
        if copy.size() != self.size() {
            return Err(differs(format!("{} bytes instead of {}", copy.size(), self.size())));
        }
        let known = |state: &Self| match state {
            Self::Object { checksum, .. } => {
                checksum.clone().filter(|sum| sum.kind != ChecksumKind::None)
            }
            Self::File { .. } => None,
        };
        let (source, copied) = match (known(self), known(&copy)) {
            (Some(source), Some(copied)) if source.kind == copied.kind => (source, copied),
            (_, Some(copied)) => (checksum(session, from, copied.kind).await?, copied),
            (Some(source), None) => {
                let copied = checksum(session, to, source.kind).await?;
                (source, copied)
            }
            // The cluster keeps no checksums of these buckets.
            (None, None) => {
                let kind = ChecksumKind::default();
                (checksum(session, from, kind).await?, checksum(session, to, kind).await?)
            }
        };
        match source.value.eq_ignore_ascii_case(&copied.value) {
            true => Ok(()),
            false => Err(differs(format!("{copied} instead of {source}"))),
        }
    }
}

/// The checksum of the bytes of an object or a file, which are read for it.
pub(super) async fn checksum(
    session: &Session,
    end: &End,
    kind: ChecksumKind,
) -> Result<Checksum, Unsent> {
    let hasher = match end {
        End::Object(bucket, name) => hash_object(session, bucket, name, kind).await?,
        End::File(path) => hash_file(path, kind).await.map_err(|e| local(path, &e))?,
    };
    let none = || Unsent::File(Error::internal("a checksum of no kind").into());
    hasher.finish().ok_or_else(none)
}

async fn hash_object(
    session: &Session,
    bucket: &Bucket,
    name: &str,
    kind: ChecksumKind,
) -> Result<Hasher, Unsent> {
    let mut hasher = kind.hasher();
    let mut stream = session.client.get(bucket, name, None).await.map_err(cluster)?.stream;
    while let Some(bytes) = stream.next().await {
        hasher.update(&bytes.map_err(cluster)?);
    }
    Ok(hasher)
}

async fn hash_file(path: &Path, kind: ChecksumKind) -> io::Result<Hasher> {
    let mut hasher = kind.hasher();
    let mut file = tokio::fs::File::open(path).await?;
    file.set_max_buf_size(READ_CHUNK_BYTES);
    let mut chunk = vec![0; READ_CHUNK_BYTES];
    loop {
        match file.read(&mut chunk).await? {
            0 => return Ok(hasher),
            n => hasher.update(&chunk[..n]),
        }
    }
}
