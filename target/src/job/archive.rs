//! The job that writes objects into one shard. The owner of the shard runs it: it pulls members
//! from their owners batch by batch and streams the archive to the disk.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_client::RowStream;
use forebay_core::batch::{self, BatchEntry, BatchRequest};
use forebay_core::job::{ArchiveTask, Selection, Task};
use forebay_core::shard::ArchiveFormat;
use forebay_core::size::ByteRange;
use forebay_core::{Bucket, Error, ErrorCode, NodeId, ObjectName, Result};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use super::cluster_client::cluster_client;
use super::run::{Job, JobRun};
use crate::object::{ObjectService, PutRequest};
use crate::shard::Shards;
use crate::shard::write::ArchiveWriter;

/// Members requested at once.
const CHUNK: usize = 1024;
/// Bytes that are gathered before they are sent.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks in flight to the disk.
const PIECES: usize = 4;
/// Most members of one job when it lists them itself.
const MAX_LISTED: usize = 10_000_000;
/// Longest wait for data from an owner: a cold object is fetched from its backend.
const SILENCE: Duration = Duration::from_secs(60);

pub(super) struct Archive {
    pub(super) objects: ObjectService,
    pub(super) shards: Shards,
}

#[async_trait]
impl Job for Archive {
    async fn run(&self, job: &JobRun) -> Result<()> {
        let Task::Archive(task) = &job.spec.task else {
            return Err(Error::invalid("a job that archives needs its task"));
        };
        run(self, job, task).await
    }
}

async fn run(kind: &Archive, job: &JobRun, task: &ArchiveTask) -> Result<()> {
    let objects = &kind.objects;
    let destination = objects.state().bucket(&task.to)?.clone();
    if !destination.has_backend() {
        ObjectName::new(&task.name)?.check_v1_native()?;
    }
    let format = ArchiveFormat::from_name(&task.format);
    let format = format.ok_or_else(|| Error::invalid("archive: unknown format"))?;
    let writer = ArchiveWriter::new(format)?;
    let (sender, receiver) = mpsc::channel(PIECES);
    let body = futures::stream::unfold(receiver, |mut pieces| async move {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let put = PutRequest::new(body.boxed());
    let pack = async {
        let out = Output { writer, sender: sender.clone() };
        let packed = pack(kind, job, task, format, out).await;
        if let Err(e) = &packed {
            // The shard is not kept if its stream ends with an error.
            let _ = sender.send(Err(e.clone())).await;
        }
        drop(sender);
        packed
    };
    let (packed, put) = tokio::join!(pack, objects.writes().put(&destination, &task.name, put));
    // The first failure also ends the other side; the original cause is the better message.
    match (packed, put) {
        (Err(e), Err(other)) if e.code == ErrorCode::Unavailable => Err(other),
        (Err(e), _) | (_, Err(e)) => Err(e),
        (Ok(()), Ok(_)) => Ok(()),
    }
}

/// The archive's stream to the disk.
struct Output {
    writer: ArchiveWriter,
    sender: mpsc::Sender<Result<Bytes>>,
}

impl Output {
    async fn data(&mut self, bytes: &Bytes) -> Result<()> {
        for piece in bytes.chunks(CHUNK_BYTES) {
            if self.writer.compresses() {
                tokio::task::block_in_place(|| self.writer.data(piece))?;
            } else {
                self.writer.data(piece)?;
            }
            self.flush(CHUNK_BYTES).await?;
        }
        Ok(())
    }

    /// Sends the ready bytes, if there are at least `least`.
    async fn flush(&mut self, least: usize) -> Result<()> {
        if self.writer.ready() < least {
            return Ok(());
        }
        let piece = self.writer.take();
        Self::send(&self.sender, piece).await
    }

    async fn finish(self) -> Result<()> {
        let last = self.writer.finish()?;
        Self::send(&self.sender, last).await
    }

    async fn send(sender: &mpsc::Sender<Result<Bytes>>, piece: Bytes) -> Result<()> {
        let gone = |_| Error::unavailable("the shard is not written any more");
        sender.send(Ok(piece)).await.map_err(gone)
    }
}

async fn pack(
    kind: &Archive,
    job: &JobRun,
    task: &ArchiveTask,
    format: ArchiveFormat,
    mut out: Output,
) -> Result<()> {
    let source = job.info()?.bucket.clone();
    if task.append {
        append_existing(kind, task, format, &mut out).await?;
    }
    let mut members = 0;
    match job.spec.selection.names()? {
        Some(mut names) => loop {
            let chunk: Vec<String> = names.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                break;
            }
            members += add(&kind.objects, job, task, &source, chunk, &mut out).await?;
        },
        None => {
            let names = list(&kind.objects, job, &source, task).await?;
            for chunk in names.chunks(CHUNK) {
                members += add(&kind.objects, job, task, &source, chunk.to_vec(), &mut out).await?;
            }
        }
    }
    if members == 0 && !task.append {
        return Err(Error::new(
            ErrorCode::ObjectNotFound,
            format!("archive {}: no object to put into it", task.to.object_uri(&task.name)),
        ));
    }
    out.finish().await
}

/// The names of a prefix, from the cluster's listing; without the shard itself.
async fn list(
    objects: &ObjectService,
    job: &JobRun,
    source: &Bucket,
    task: &ArchiveTask,
) -> Result<Vec<String>> {
    let Selection::Prefix(prefix) = &job.spec.selection else { return Ok(Vec::new()) };
    let client = cluster_client(objects)?;
    let mut names = Vec::new();
    let add = |name: &str, _| {
        let nested = job.spec.flat && name[prefix.len()..].contains('/');
        let itself = *source == task.to && name == task.name;
        if !nested && !itself {
            names.push(name.to_owned());
        }
        match names.len() > MAX_LISTED {
            true => Err(Error::invalid(format!("more than {MAX_LISTED} objects for one shard"))),
            false => Ok(()),
        }
    };
    client.list_each(source, prefix, add).await?;
    Ok(names)
}

/// Puts the members of the existing shard in front of the new ones.
async fn append_existing(
    kind: &Archive,
    task: &ArchiveTask,
    format: ArchiveFormat,
    out: &mut Output,
) -> Result<()> {
    let info = kind.objects.state().bucket(&task.to)?.clone();
    let shards = &kind.shards;
    let index = match shards.index(&info, &task.name, Some(format)).await {
        Err(e) if e.code == ErrorCode::ObjectNotFound => return Ok(()),
        index => index?,
    };
    for member in &index.members {
        let data = shards.data(&info, &task.name, member, Some(format)).await?;
        out.writer.begin(&member.name, data.size, Some(member.stat))?;
        let range = ByteRange::whole(data.size);
        let mut pieces = data.stream(range);
        while let Some(piece) = pieces.try_next().await? {
            out.data(&piece).await?;
        }
        out.writer.end()?;
        out.flush(CHUNK_BYTES).await?;
    }
    Ok(())
}

/// Adds objects in their order. Returns how many there were.
async fn add(
    objects: &ObjectService,
    job: &JobRun,
    task: &ArchiveTask,
    source: &Bucket,
    names: Vec<String>,
    out: &mut Output,
) -> Result<u64> {
    let entries = names.iter().map(|name| Ok(BatchEntry::whole(0, ObjectName::new(name)?)));
    let entries = entries.collect::<Result<Vec<_>>>()?;
    let request = BatchRequest { buckets: vec![source.clone()], entries, ordered: true };
    let (owners, mut sources) = open(objects, &request).await?;
    let named = matches!(job.spec.selection, Selection::Names(_));
    let mut added = 0;
    for (name, owner) in names.iter().zip(owners) {
        let early = || Error::unavailable(format!("target {owner} ended its part early"));
        let rows = sources.get_mut(&owner).ok_or_else(early)?;
        let mut row = rows.next().await.ok_or_else(early)??;
        if row.status != 0 {
            let text = String::from_utf8_lossy(&row.payload).into_owned();
            let e = Error::new(ErrorCode::from_status(row.status), text);
            match e.code {
                ErrorCode::ObjectNotFound if !named => {}
                _ if task.continue_on_error => job.failed(&e),
                _ => return Err(e),
            }
            continue;
        }
        let size = row.total;
        out.writer.begin(&task.member_of(source, name), size, None)?;
        loop {
            out.data(&row.payload).await?;
            if !row.more {
                break;
            }
            row = rows.next().await.ok_or_else(early)??;
            if row.status != 0 {
                let text = String::from_utf8_lossy(&row.payload).into_owned();
                return Err(Error::new(ErrorCode::from_status(row.status), text));
            }
        }
        out.writer.end()?;
        out.flush(CHUNK_BYTES).await?;
        job.done(size);
        added += 1;
    }
    Ok(added)
}

/// Requests some members from their owners. Returns which owner sends which member.
async fn open(
    objects: &ObjectService,
    request: &BatchRequest,
) -> Result<(Vec<NodeId>, HashMap<NodeId, RowStream>)> {
    let state = objects.state();
    let plan = batch::plan(&state, request, 0..request.entries.len());
    if let Some((_, e)) = plan.failed.into_iter().next() {
        return Err(e);
    }
    let mut owners: Vec<Option<NodeId>> = vec![None; request.entries.len()];
    let peer = objects.peer().with_idle_timeout(SILENCE);
    let mut asked = Vec::new();
    for (id, indices) in plan.by_owner {
        indices.iter().for_each(|&i| owners[i] = Some(id.clone()));
        let gone = || Error::unavailable(format!("target {id} left the cluster"));
        let url = state.node(&id).map(|n| n.url.clone()).ok_or_else(gone)?;
        let (peer, part) = (peer.clone(), request.subset(&indices));
        asked.push(async move { Ok::<_, Error>((id, peer.batch_stream(&url, &part).await?)) });
    }
    let sources = futures::future::try_join_all(asked).await?;
    let missing = || Error::internal("a member has no owner");
    let owners = owners.into_iter().map(|o| o.ok_or_else(missing)).collect::<Result<_>>()?;
    Ok((owners, sources.into_iter().collect()))
}
