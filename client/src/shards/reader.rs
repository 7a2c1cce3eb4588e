//! One shard read from its start to its end: fetched, unpacked, taken apart and grouped into
//! samples, all of it away from Python.

use std::io::{self, Read};

use bytes::BytesMut;
use forebay_core::archive::{ArchiveFormat, Limits, TarReader, decompress, from_io};
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::{Bucket, Error, ErrorCode, ObjectName, Result};
use futures::StreamExt;
use tokio::runtime::Handle;

use super::naming::Naming;
use super::pipe::{self, PipeReader, Sender};
use super::samples::{Grouper, Sample};
use crate::batch::BatchItem;
use crate::client::Client;
use crate::error::Error as ClientError;

/// Most bytes of one sample, and of one member.
const MAX_SAMPLE: u64 = 4 << 30;
/// Bytes by which the format shows where the name tells nothing.
const HEAD: usize = 512;
/// So much is read behind the last member: checksums of compressed data are there, and a
/// connection that was read to its end can be used again.
const TAIL: u64 = 1 << 20;
/// Members of a zip archive that are asked for at once.
const BATCH: usize = 2048;

/// What is read, and how.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) client: Client,
    pub(crate) bucket: Bucket,
    pub(crate) name: ObjectName,
    pub(crate) options: ShardOptions,
}

/// How a shard is read.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Its format; where this is `None`, the name decides, then the first bytes.
    pub format: Option<ArchiveFormat>,
    /// How members make samples; `None` hands them out one by one, as they are.
    pub naming: Option<Naming>,
    /// Most bytes fetched and unpacked ahead of who reads, beside one sample.
    pub read_ahead: usize,
}

/// A sample, or a member alone. A failure may be that of one sample, after which others come.
pub type ShardItem = Result<Sample<Vec<u8>>>;

/// Reads all of it into `out`.
pub(crate) async fn run(job: Job, out: Sender<ShardItem>) {
    if let Err(e) = read(&job, &out).await {
        let _ = send(&out, &job, Err(e)).await;
    }
}

async fn read(job: &Job, out: &Sender<ShardItem>) -> Result<()> {
    let named = job.options.format.or_else(|| ArchiveFormat::from_name(job.name.as_str()));
    if named == Some(ArchiveFormat::Zip) {
        return zip(job, out).await;
    }
    let opened = job.client.get(&job.bucket, job.name.as_str(), None).await;
    let mut body = opened.map_err(ClientError::into_core)?.stream;
    let mut head = BytesMut::new();
    let format = match named {
        Some(format) => format,
        None => {
            while head.len() < HEAD
                && let Some(piece) = body.next().await
            {
                head.extend_from_slice(&piece.map_err(ClientError::into_core)?);
            }
            ArchiveFormat::from_magic(&head).ok_or_else(|| {
                Error::invalid("neither the name nor the first bytes are those of an archive")
            })?
        }
    };
    if format == ArchiveFormat::Zip {
        drop(body);
        return zip(job, out).await;
    }
    let (to_parser, pieces) = pipe::channel(job.options.read_ahead / 2);
    let (parsed, sink) = (job.clone(), out.clone());
    let mut parsing =
        tokio::task::spawn_blocking(move || parse(&parsed, format, pieces.into(), &sink));
    let feeding = async move {
        if !head.is_empty() {
            let size = head.len();
            let _ = to_parser.send(Ok(head.freeze()), size).await;
        }
        while let Some(piece) = body.next().await {
            let size = piece.as_ref().map_or(0, |piece| piece.len());
            if to_parser.send(piece.map_err(ClientError::into_core), size).await.is_err() {
                break;
            }
        }
    };
    let done = tokio::select! {
        // A parser that has seen enough does not wait for the rest.
        done = &mut parsing => done,
        () = feeding => parsing.await,
    };
    done.unwrap_or_else(|e| Err(Error::internal(format!("reading a shard ended early: {e}"))))
}

/// Takes a TAR apart; on a thread that may block.
fn parse(
    job: &Job,
    format: ArchiveFormat,
    input: PipeReader,
    out: &Sender<ShardItem>,
) -> Result<()> {
    let runtime = Handle::current();
    let limits = Limits::default();
    let mut plain = decompress(format, input, &limits)?;
    let mut tar = TarReader::new(&mut plain, limits);
    let mut assembler = Assembler::new(job.options.naming);
    while let Some(member) = tar.next_member()? {
        if !assembler.wants(&member.name) {
            continue;
        }
        let data = tar.read_member(MAX_SAMPLE)?;
        if let Some(item) = assembler.add(&member.name, data)?
            && runtime.block_on(send(out, job, item)).is_err()
        {
            return Ok(());
        }
    }
    io::copy(&mut plain.take(TAIL), &mut io::sink()).map_err(from_io)?;
    if let Some(item) = assembler.finish() {
        let _ = runtime.block_on(send(out, job, item));
    }
    Ok(())
}

/// Reads a zip archive, whose table of contents is at its end: through the shard's index.
async fn zip(job: &Job, out: &Sender<ShardItem>) -> Result<()> {
    let index =
        job.client.shard_index(&job.bucket, &job.name).await.map_err(ClientError::into_core)?;
    let mut assembler = Assembler::new(job.options.naming);
    for window in index.members.chunks(BATCH) {
        let wanted: Vec<_> = window.iter().filter(|(name, ..)| assembler.wants(name)).collect();
        let entry = |archpath: &String| BatchEntry {
            archpath: archpath.clone(),
            ..BatchEntry::whole(0, job.name.clone())
        };
        let request = BatchRequest {
            buckets: vec![job.bucket.clone()],
            entries: wanted.iter().map(|(name, ..)| entry(name)).collect(),
            ordered: true,
        };
        let mut answers = job.client.batch(&request).map_err(ClientError::into_core)?;
        while let Some(BatchItem { index, result }) = answers.next().await {
            let Some((name, _, size)) = wanted.get(index) else { continue };
            let data = result?;
            if data.len() as u64 != *size {
                let text = format!("the shard changed while \"{name}\" was read from it");
                return Err(Error::new(ErrorCode::ObjectChanged, text));
            }
            if let Some(item) = assembler.add(name, data.into())?
                && send(out, job, item).await.is_err()
            {
                return Ok(());
            }
        }
    }
    if let Some(item) = assembler.finish() {
        let _ = send(out, job, item).await;
    }
    Ok(())
}

async fn send(out: &Sender<ShardItem>, job: &Job, mut item: ShardItem) -> Result<(), pipe::Gone> {
    if let Err(e) = &mut item {
        let uri = job.bucket.object_uri(job.name.as_str());
        if !e.message.contains(&uri) {
            e.message = format!("{uri}: {}", e.message);
        }
    }
    let size = item.as_ref().map_or(0, |sample| {
        sample.parts.iter().map(|(extension, data)| extension.len() + data.len()).sum()
    });
    out.send(item, size).await
}

/// Makes items of members, in whichever of the two ways.
struct Assembler {
    naming: Option<Naming>,
    grouper: Grouper<Vec<u8>>,
    /// Bytes of the sample at work.
    size: u64,
}

impl Assembler {
    fn new(naming: Option<Naming>) -> Self {
        Self { naming, grouper: Grouper::new(), size: 0 }
    }

    /// Whether the data of this member matters.
    fn wants(&self, member: &str) -> bool {
        self.naming.is_none_or(|naming| naming.split(member).is_some())
    }

    /// What the member completes.
    fn add(&mut self, member: &str, data: Vec<u8>) -> Result<Option<ShardItem>> {
        let Some(naming) = self.naming else {
            let parts = vec![(String::new(), data)];
            return Ok(Some(Ok(Sample { key: member.to_owned(), parts })));
        };
        let Some((key, extension)) = naming.split(member) else { return Ok(None) };
        let before = self.grouper.begin(member, key);
        if before.is_some() {
            self.size = 0;
        }
        self.size += data.len() as u64;
        if self.size > MAX_SAMPLE {
            let text = format!("sample \"{key}\" has more than {MAX_SAMPLE} bytes");
            return Err(Error::invalid(text));
        }
        self.grouper.add(&extension, data);
        Ok(before)
    }

    fn finish(&mut self) -> Option<ShardItem> {
        self.grouper.finish()
    }
}
