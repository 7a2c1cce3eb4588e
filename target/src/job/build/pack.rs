//! One shard as a stream of bytes: pulls members from their owners batch by batch and writes them
//! into an archive. It holds only a few chunks in memory, however large the shard.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_client::{PeerClient, RowStream};
use forebay_core::batch::{self, BatchEntry, BatchRequest};
use forebay_core::shard::{ArchiveFormat, Stat};
use forebay_core::shard_build::{BuildMember, BuildRequest};
use forebay_core::{Error, ErrorCode, NodeId, Result};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;

use super::stopped;
use crate::object::ObjectService;
use crate::shard::write::ArchiveWriter;

/// Members requested at once.
const CHUNK: usize = 4096;
/// Bytes, and steps, that are gathered before they are written to the archive.
const STEP_BYTES: usize = 256 << 10;
const STEPS: usize = 1024;
/// Longest wait for data from an owner: a cold object is fetched from its backend.
const SILENCE: Duration = Duration::from_secs(60);

/// The input of a build of one shard.
pub(super) struct Pack {
    pub(super) objects: ObjectService,
    pub(super) peer: PeerClient,
    pub(super) progress: Arc<Progress>,
    pub(super) stop: CancellationToken,
    pub(super) request: Arc<BuildRequest>,
}

/// Files and bytes packed so far.
#[derive(Default)]
pub(super) struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    pub(super) fn read(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// The shard's bytes. After a stop or any failure the stream ends with an error, so that no shard
/// is kept.
pub(super) fn stream(pack: Pack) -> BoxStream<'static, Result<Bytes>> {
    let start = Packer {
        pack,
        writer: None,
        steps: Vec::new(),
        gathered: 0,
        member: 0,
        started: false,
        chunk: Chunk::default(),
        over: false,
    };
    let pieces = futures::stream::try_unfold(start, |mut packer| async move {
        let stop = packer.pack.stop.clone();
        let piece = tokio::select! {
            biased;
            () = stop.cancelled() => Err(stopped()),
            piece = packer.next_piece() => piece,
        };
        Ok(piece?.map(|bytes| (bytes, packer)))
    });
    pieces.boxed()
}

/// One step of writing an archive.
enum Step {
    Begin(String, u64, Option<Stat>),
    Data(Bytes),
    End,
}

struct Packer {
    pack: Pack,
    /// Created with the first step, dropped with the last.
    writer: Option<ArchiveWriter>,
    steps: Vec<Step>,
    /// Bytes in `steps`.
    gathered: usize,
    /// The member that is being pulled.
    member: usize,
    /// Whether some of its bytes arrived.
    started: bool,
    chunk: Chunk,
    over: bool,
}

/// The members that were requested together, and the owner of each.
#[derive(Default)]
struct Chunk {
    first: usize,
    owners: Vec<NodeId>,
    sources: HashMap<NodeId, RowStream>,
}

impl Packer {
    async fn next_piece(&mut self) -> Result<Option<Bytes>> {
        while !self.over {
            self.over = self.member == self.pack.request.members.len();
            if !self.over {
                self.pull().await?;
            }
            if self.over || self.gathered >= STEP_BYTES || self.steps.len() >= STEPS {
                let bytes = self.write().await?;
                if !bytes.is_empty() {
                    return Ok(Some(bytes));
                }
            }
        }
        Ok(None)
    }

    /// Adds the next row of the member that is being pulled.
    async fn pull(&mut self) -> Result<()> {
        if self.member == self.chunk.first + self.chunk.owners.len() {
            self.open_chunk().await?;
        }
        let request = self.pack.request.clone();
        let BuildMember(name, member, size) = &request.members[self.member];
        let uri = || {
            let object = request.source.object_uri(name.as_str());
            if request.from_shards { format!("{member} in {object}") } else { object }
        };
        let owner = &self.chunk.owners[self.member - self.chunk.first];
        let early = || Error::unavailable(format!("target {owner} ended its part early"));
        let rows = self.chunk.sources.get_mut(owner).ok_or_else(early)?;
        let row = rows.next().await.ok_or_else(early)??;
        if row.status != 0 {
            let text = String::from_utf8_lossy(&row.payload).into_owned();
            return Err(Error::new(ErrorCode::from_status(row.status), text));
        }
        if row.total != *size {
            let text = format!("{} was replaced: it had {size} bytes, now {}", uri(), row.total);
            return Err(Error::new(ErrorCode::ObjectChanged, text));
        }
        if !self.started {
            let stat = request.stats.get(self.member).copied();
            self.steps.push(Step::Begin(member.clone(), *size, stat));
            self.started = true;
        }
        let progress = &self.pack.progress;
        progress.bytes.fetch_add(row.payload.len() as u64, Ordering::Relaxed);
        self.gathered += row.payload.len();
        self.steps.push(Step::Data(row.payload));
        if !row.more {
            progress.files.fetch_add(1, Ordering::Relaxed);
            self.steps.push(Step::End);
            self.member += 1;
            self.started = false;
        }
        Ok(())
    }

    /// Requests the next members from their owners.
    async fn open_chunk(&mut self) -> Result<()> {
        let first = self.member;
        let members = &self.pack.request.members[first..];
        let members = &members[..members.len().min(CHUNK)];
        let from_shards = self.pack.request.from_shards;
        let entry = |BuildMember(object, member, _): &BuildMember| {
            let archpath = if from_shards { member.clone() } else { String::new() };
            BatchEntry { archpath, ..BatchEntry::whole(0, object.clone()) }
        };
        let entries = members.iter().map(entry).collect();
        let buckets = vec![self.pack.request.source.clone()];
        let request = BatchRequest { buckets, entries, ordered: true };
        let state = self.pack.objects.state();
        let plan = batch::plan(&state, &request, 0..request.entries.len());
        if let Some((_, e)) = plan.failed.into_iter().next() {
            return Err(e);
        }
        let mut owners: Vec<Option<NodeId>> = vec![None; request.entries.len()];
        let mut asked = Vec::new();
        let peer = self.pack.peer.with_idle_timeout(SILENCE);
        for (id, indices) in plan.by_owner {
            indices.iter().for_each(|&i| owners[i] = Some(id.clone()));
            let node = state.node(&id);
            let url = node
                .map(|n| n.url.clone())
                .ok_or_else(|| Error::unavailable(format!("target {id} left the cluster")))?;
            let (peer, part) = (peer.clone(), request.subset(&indices));
            asked.push(async move { Ok::<_, Error>((id, peer.batch_stream(&url, &part).await?)) });
        }
        let sources = futures::future::try_join_all(asked).await?;
        let missing = || Error::internal("a member has no owner");
        let owners = owners.into_iter().map(|o| o.ok_or_else(missing)).collect::<Result<_>>()?;
        self.chunk = Chunk { first, owners, sources: sources.into_iter().collect() };
        Ok(())
    }

    /// Writes the gathered steps, and at the end the archive's end. Long CPU work runs on another
    /// thread, so that waiting tasks are not blocked.
    async fn write(&mut self) -> Result<Bytes> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => writer(&self.pack.request.ext)?,
        };
        let steps = std::mem::take(&mut self.steps);
        self.gathered = 0;
        let (last, long) = (self.over, writer.compresses());
        let work = move || write_steps(writer, steps, last);
        let (writer, bytes) = match long {
            false => work()?,
            true => tokio::task::spawn_blocking(work)
                .await
                .map_err(|e| Error::internal(format!("writing an archive failed: {e}")))??,
        };
        self.writer = writer;
        Ok(bytes)
    }
}

/// A writer of shards with this extension.
pub(in super::super) fn writer(ext: &str) -> Result<ArchiveWriter> {
    let unknown = || Error::invalid(format!("unknown shard extension \"{ext}\""));
    ArchiveWriter::new(ArchiveFormat::from_name(ext).ok_or_else(unknown)?)
}

/// Returns the writer, unless that was its last step, and the bytes that are ready.
fn write_steps(
    mut writer: ArchiveWriter,
    steps: Vec<Step>,
    last: bool,
) -> Result<(Option<ArchiveWriter>, Bytes)> {
    for step in steps {
        match step {
            Step::Begin(name, size, stat) => writer.begin(&name, size, stat)?,
            Step::Data(bytes) => writer.data(&bytes)?,
            Step::End => writer.end()?,
        }
    }
    if last {
        return Ok((None, writer.finish()?));
    }
    let bytes = writer.take();
    Ok((Some(writer), bytes))
}
