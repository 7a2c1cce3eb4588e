//! Reads one shard from its start to its end: fetches, decompresses, parses and groups it into
//! samples, all without Python.

use std::io::{self, Read};
use std::mem;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use forebay_archive::{Limits, TarReader, decompress, from_io, is_behind_end};
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::locks::MutexExt;
use forebay_core::shard::ArchiveFormat;
use forebay_core::{Bucket, Error, ErrorCode, ObjectName, Result};
use futures::{FutureExt, StreamExt};
use tokio::runtime::Handle;

use super::naming::Naming;
use super::pipe::{self, PipeReader, Sender};
use super::samples::{Grouper, Sample};
use crate::batch::BatchItem;
use crate::client::Client;
use crate::error::Error as ClientError;

/// Most bytes of one sample, and of one member.
const MAX_SAMPLE: u64 = 4 << 30;
/// Bytes at the start that identify the format if the name does not.
const HEAD: usize = 512;
/// Bytes that are read after the last member: checksums of compressed data are there, and a
/// connection that was read to its end can be used again.
const TAIL: u64 = 1 << 20;
/// Members of a zip archive that one batch requests.
const BATCH: usize = 2048;
/// Items are sent to the reader in runs, because sending one item costs more than finding it.
/// Maximum items of a run.
const RUN: usize = 256;
/// Approximate maximum of their bytes.
const RUN_BYTES: usize = 128 << 10;

/// The shard to read, and the options.
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
    /// The format; if `None`, the name decides, then the first bytes.
    pub format: Option<ArchiveFormat>,
    /// How members form samples; `None` returns the members one by one, unchanged.
    pub naming: Option<Naming>,
    /// Maximum bytes fetched and unpacked ahead of the reader, plus one sample.
    pub read_ahead: usize,
}

/// A sample, or a single member. A failure may affect one sample only; other items may follow it.
pub type ShardItem = Result<Sample<Vec<u8>>>;

/// Items that are sent together.
pub(crate) type Run = Vec<ShardItem>;

/// Reads the whole shard into `out`. A panic becomes an error; otherwise the shard would seem
/// complete.
pub(crate) async fn run(job: Job, out: Sender<Run>) {
    let done = AssertUnwindSafe(read(&job, &out)).catch_unwind().await;
    let panicked = |_| Err(Error::internal("reading the shard ended by a panic; see stderr"));
    if let Err(e) = done.unwrap_or_else(panicked) {
        let mut outbox = Outbox::new(&job, out);
        outbox.add(Err(e));
        let _ = outbox.send().await;
    }
}

async fn read(job: &Job, out: &Sender<Run>) -> Result<()> {
    let named = job.options.format.or_else(|| ArchiveFormat::from_name(job.name.as_str()));
    if named == Some(ArchiveFormat::Zip) {
        return zip(job, out).await;
    }
    let opened = job.client.get(&job.bucket, job.name.as_str(), None).await;
    let mut body = opened.map_err(ClientError::into_core)?.stream;
    // The first bytes as received, for the parser; joined, they identify the format.
    let (mut first, mut head) = (Vec::new(), BytesMut::new());
    let format = match job.options.format {
        Some(format) => format,
        None => {
            while head.len() < HEAD
                && let Some(piece) = body.next().await
            {
                let piece = piece.map_err(ClientError::into_core)?;
                head.extend_from_slice(&piece[..piece.len().min(HEAD)]);
                first.push(piece);
            }
            forebay_archive::detect(named, &head)?
        }
    };
    if format == ArchiveFormat::Zip {
        drop(body);
        return zip(job, out).await;
    }
    let (to_parser, pieces) = pipe::channel(job.options.read_ahead / 2);
    let (parsed, sink) = (job.clone(), out.clone());
    let mut parsing = tokio::task::spawn_blocking(move || parse(&parsed, format, pieces, sink));
    let feeding = async move {
        for piece in first {
            let size = piece.len();
            let _ = to_parser.send(Ok(piece), size).await;
        }
        while let Some(piece) = body.next().await {
            let size = piece.as_ref().map_or(0, |piece| piece.len());
            if to_parser.send(piece.map_err(ClientError::into_core), size).await.is_err() {
                break;
            }
        }
    };
    let done = tokio::select! {
        // A parser that is done does not wait for the rest.
        done = &mut parsing => done,
        () = feeding => parsing.await,
    };
    done.unwrap_or_else(|e| Err(Error::internal(format!("reading a shard ended early: {e}"))))
}

/// Parses a TAR; runs on a thread that may block.
fn parse(
    job: &Job,
    format: ArchiveFormat,
    input: pipe::Receiver<Result<Bytes>>,
    out: Sender<Run>,
) -> Result<()> {
    let runtime = Handle::current();
    let outbox = Arc::new(Mutex::new(Outbox::new(job, out)));
    let send = || runtime.block_on(lock(&outbox).send());
    // Before the parser blocks for more input, it sends the finished items.
    let (waiting, handle) = (outbox.clone(), runtime.clone());
    let input = PipeReader::new(input, move || drop(handle.block_on(lock(&waiting).send())));
    let parsed = unpack(job, format, input, |item| {
        let is_full = lock(&outbox).add(item);
        !is_full || send().is_ok()
    });
    let _ = send();
    parsed
}

/// Passes the items of a TAR to `take`, until `take` wants no more.
fn unpack(
    job: &Job,
    format: ArchiveFormat,
    input: impl Read + Send,
    mut take: impl FnMut(ShardItem) -> bool,
) -> Result<()> {
    let limits = Limits::default();
    let mut plain = decompress(format, input, &limits)?;
    let mut tar = TarReader::new(&mut plain, limits);
    let mut assembler = Assembler::new(job.options.naming);
    while let Some(member) = tar.next_member()? {
        if !assembler.wants(&member.name) {
            continue;
        }
        let data = match member.check_readable() {
            Ok(()) => Ok(tar.read_member(MAX_SAMPLE)?),
            Err(e) => Err(e),
        };
        if let Some(item) = assembler.add(&member.name, data)?
            && !take(item)
        {
            return Ok(());
        }
    }
    match io::copy(&mut plain.take(TAIL), &mut io::sink()) {
        Err(e) if !is_behind_end(&e) => return Err(from_io(e)),
        _ => {}
    }
    if let Some(item) = assembler.finish() {
        take(item);
    }
    Ok(())
}

/// Reads a zip archive through the shard's index, because its table of contents is at its end.
async fn zip(job: &Job, out: &Sender<Run>) -> Result<()> {
    let index =
        job.client.shard_index(&job.bucket, &job.name).await.map_err(ClientError::into_core)?;
    let mut outbox = Outbox::new(job, out.clone());
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
        while let Some(run) = answers.next_run().await {
            let taken = take_in(&mut assembler, &mut outbox, &wanted, run);
            if outbox.send().await.is_err() {
                return Ok(());
            }
            taken?;
        }
    }
    if let Some(item) = assembler.finish() {
        outbox.add(item);
    }
    let _ = outbox.send().await;
    Ok(())
}

/// Makes items of members that arrived together.
fn take_in(
    assembler: &mut Assembler,
    outbox: &mut Outbox,
    wanted: &[&(String, u64, u64)],
    run: Vec<BatchItem>,
) -> Result<()> {
    for BatchItem { index, result } in run {
        let Some((name, _, size)) = wanted.get(index) else { continue };
        let data = result?;
        if data.len() as u64 != *size {
            let text = format!("the shard changed while \"{name}\" was read from it");
            return Err(Error::new(ErrorCode::ObjectChanged, text));
        }
        if let Some(item) = assembler.add(name, Ok(data.into()))? {
            outbox.add(item);
        }
    }
    Ok(())
}

fn lock(outbox: &Mutex<Outbox>) -> MutexGuard<'_, Outbox> {
    outbox.locked()
}

/// Collects items before they are sent.
struct Outbox {
    /// The shard, for errors.
    uri: String,
    out: Sender<Run>,
    run: Run,
    bytes: usize,
    /// Number of bytes at which the items are sent.
    enough: usize,
}

impl Outbox {
    fn new(job: &Job, out: Sender<Run>) -> Self {
        let uri = job.bucket.object_uri(job.name.as_str());
        let enough = RUN_BYTES.min(job.options.read_ahead / 8);
        Self { uri, out, run: Vec::new(), bytes: 0, enough }
    }

    /// Adds an item; returns whether the items should be sent now.
    fn add(&mut self, mut item: ShardItem) -> bool {
        if let Err(e) = &mut item
            && !e.message.contains(&self.uri)
        {
            e.message = format!("{}: {}", self.uri, e.message);
        }
        self.bytes += item.as_ref().map_or(0, |sample| {
            sample.parts.iter().map(|(extension, data)| extension.len() + data.len()).sum()
        });
        self.run.push(item);
        self.run.len() >= RUN || self.bytes >= self.enough
    }

    /// Sends the collected items; waits until there is space.
    async fn send(&mut self) -> Result<(), pipe::Gone> {
        if self.run.is_empty() {
            return Ok(());
        }
        self.out.send(mem::take(&mut self.run), mem::take(&mut self.bytes)).await
    }
}

/// Makes items of members: samples, or single members.
struct Assembler {
    naming: Option<Naming>,
    grouper: Grouper<Vec<u8>>,
    /// Bytes of the current sample.
    size: u64,
}

impl Assembler {
    fn new(naming: Option<Naming>) -> Self {
        Self { naming, grouper: Grouper::new(), size: 0 }
    }

    /// Whether the data of this member is needed.
    fn wants(&self, member: &str) -> bool {
        self.naming.is_none_or(|naming| naming.split(member).is_some())
    }

    /// Adds a member; returns the item that it completes. If the data of a member cannot be read,
    /// the item of its sample is an error.
    fn add(&mut self, member: &str, data: Result<Vec<u8>>) -> Result<Option<ShardItem>> {
        let Some(naming) = self.naming else {
            let sample =
                |data| Sample { key: member.to_owned(), parts: vec![(String::new(), data)] };
            return Ok(Some(data.map(sample)));
        };
        let Some((key, extension)) = naming.split(member) else { return Ok(None) };
        let before = self.grouper.begin(member, key);
        if before.is_some() {
            self.size = 0;
        }
        let data = match data {
            Ok(data) => data,
            Err(e) => {
                self.grouper.fail(e);
                return Ok(before);
            }
        };
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
