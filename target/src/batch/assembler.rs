//! A v1 batch: this target pulls every entry from its owner and writes one archive in request
//! order. When an owner goes away, only what is still missing is planned again.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use forebay_client::{PeerClient, RowStream};
use forebay_core::batch::{self, BatchEntry, BatchRequest};
use forebay_core::v1::batch::{MISSING_PREFIX, MossOut, MossRequest, ResolvedEntry};
use forebay_core::{Bucket, Error, ErrorCode, NodeId, Result};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::output::{Output, Sink};
use super::{LOOK_AHEAD, Loaded, Loader};
use crate::job::RequestJob;

/// How long the batch goes on without a byte of progress before it is given up.
const STALL: Duration = Duration::from_secs(30);
/// A wait longer than this lets out what is ready.
const FLUSH_AFTER: Duration = Duration::from_millis(5);
/// Pause before entries of a lost owner are planned again.
const REPLAN_PAUSE: Duration = Duration::from_millis(300);
/// Builds one archive.
pub(crate) struct Assembler {
    loader: Loader,
    peer: PeerClient,
    moss: MossRequest,
    entries: Vec<ResolvedEntry>,
    native: Arc<BatchRequest>,
    sources: Sources,
}

/// From where the entries come under the current plan.
#[derive(Default)]
struct Sources {
    owners: HashMap<usize, Owner>,
    local: Option<BoxStream<'static, Result<Loaded>>>,
    current: Option<Current>,
    peers: HashMap<NodeId, Result<RowStream>>,
}

/// A local object that is going out.
struct Current {
    size: u64,
    sent: u64,
    version: String,
    stream: BoxStream<'static, Result<Bytes>>,
}

enum Owner {
    Here,
    Peer(NodeId),
    Nobody(Error),
}

enum Piece {
    Bytes {
        total: u64,
        more: bool,
        bytes: Bytes,
        /// Of which content they are, as far as that is known.
        version: Option<String>,
    },
    Failed(Error),
}

impl Assembler {
    pub(crate) fn new(
        loader: Loader,
        peer: PeerClient,
        mut moss: MossRequest,
        entries: Vec<ResolvedEntry>,
    ) -> Self {
        // What they say is in `entries`; there may be a million.
        moss.entries = Vec::new();
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut native = Vec::with_capacity(entries.len());
        for entry in &entries {
            let at = buckets.iter().position(|b| *b == entry.bucket).unwrap_or_else(|| {
                buckets.push(entry.bucket.clone());
                buckets.len() - 1
            });
            native.push(BatchEntry {
                bucket: at as u32,
                name: entry.name.clone(),
                archpath: entry.archpath.clone(),
                range: entry.range,
            });
        }
        let native = Arc::new(BatchRequest { buckets, entries: native, ordered: true });
        Self { loader, peer, moss, entries, native, sources: Sources::default() }
    }

    /// Writes the whole archive; returns what became of each entry. `job` counts what went out.
    pub(crate) async fn run(mut self, sink: &mut Sink, job: &RequestJob) -> Result<Vec<MossOut>> {
        let mut output = Output::new(self.moss.format()?, sink)?;
        self.plan(0).await;
        let mut outs = Vec::with_capacity(self.entries.len());
        for index in 0..self.entries.len() {
            let out = self.emit(index, &mut output).await?;
            if out.err_msg.is_empty() {
                job.done(out.size);
            }
            outs.push(out);
        }
        output.finish().await?;
        Ok(outs)
    }

    /// Plans all entries from `first` on and asks their owners.
    async fn plan(&mut self, first: usize) {
        let state = self.loader.service.state();
        let plan = batch::plan(&state, &self.native, first..self.entries.len());
        let mut sources = Sources::default();
        for (index, error) in plan.failed {
            sources.owners.insert(index, Owner::Nobody(error));
        }
        let mut asked = Vec::new();
        for (id, indices) in plan.by_owner {
            let here = id == self.loader.me;
            for &index in &indices {
                let owner = if here { Owner::Here } else { Owner::Peer(id.clone()) };
                sources.owners.insert(index, owner);
            }
            if here {
                sources.local = Some(self.load_here(indices));
            } else if let Some(node) = state.node(&id) {
                let (peer, url) = (self.peer.clone(), node.url.clone());
                let subset = self.native.subset(&indices);
                asked.push(async move {
                    (id, peer.batch_stream(&url, &subset).await.map_err(Error::from))
                });
            }
        }
        sources.peers = futures::future::join_all(asked).await.into_iter().collect();
        self.sources = sources;
    }

    fn load_here(&self, indices: Vec<usize>) -> BoxStream<'static, Result<Loaded>> {
        let (loader, request) = (self.loader.clone(), self.native.clone());
        futures::stream::iter(indices)
            .map(move |i| {
                let (loader, request) = (loader.clone(), request.clone());
                async move { loader.load(&request, &request.entries[i]).await }
            })
            .buffered(LOOK_AHEAD)
            .boxed()
    }

    /// Writes one member, planning again as often as owners go away.
    async fn emit(&mut self, index: usize, output: &mut Output<'_>) -> Result<MossOut> {
        let name = self.moss.member_name(&self.entries[index]);
        let mut announced: Option<(u64, Option<String>)> = None;
        let (mut sent, mut skip) = (0u64, 0u64);
        let mut progress = Instant::now();
        loop {
            let failure = match self.next_or_flush(index, output).await? {
                Ok(Piece::Bytes { total, more, mut bytes, version }) => {
                    match &announced {
                        None => output.begin(&name, total)?,
                        Some((size, _)) if *size != total => return Err(changed(&name)),
                        // What went out before a source was lost is of another content.
                        Some((_, Some(before)))
                            if version.as_ref().is_some_and(|v| v != before) =>
                        {
                            return Err(changed(&name));
                        }
                        Some(_) => {}
                    }
                    if announced.is_none() {
                        announced = Some((total, version));
                    }
                    let seen = skip.min(bytes.len() as u64);
                    bytes.advance(seen as usize);
                    skip -= seen;
                    sent += bytes.len() as u64;
                    if !bytes.is_empty() {
                        output.data(bytes).await?;
                        progress = Instant::now();
                    }
                    if !more {
                        output.end().await?;
                        return Ok(self.out(index, total, String::new()));
                    }
                    continue;
                }
                Ok(Piece::Failed(e)) => e,
                Err(e) if progress.elapsed() < STALL => {
                    tracing::debug!(error = %e, index, "an owner is lost, planning the rest again");
                    tokio::time::sleep(REPLAN_PAUSE).await;
                    self.plan(index).await;
                    skip = sent;
                    continue;
                }
                Err(e) => e,
            };
            if announced.is_some() || !self.moss.coer {
                return Err(failure);
            }
            output.begin(&format!("{MISSING_PREFIX}{name}"), 0)?;
            output.end().await?;
            return Ok(self.out(index, 0, failure.to_string()));
        }
    }

    /// The next bytes; while they keep the batch waiting, the client gets what is ready.
    async fn next_or_flush(
        &mut self,
        index: usize,
        output: &mut Output<'_>,
    ) -> Result<Result<Piece>> {
        let mut next = pin!(self.next_piece(index));
        if let Ok(piece) = tokio::time::timeout(FLUSH_AFTER, &mut next).await {
            return Ok(piece);
        }
        output.flush().await?;
        Ok(next.await)
    }

    /// The next bytes of entry `index`. `Err` means that its source is lost, not the entry.
    async fn next_piece(&mut self, index: usize) -> Result<Piece> {
        let sources = &mut self.sources;
        match sources.owners.get(&index) {
            Some(Owner::Nobody(e)) => split(e.clone()),
            Some(Owner::Peer(id)) => match sources.peers.get_mut(id) {
                Some(Ok(rows)) => match rows.next().await {
                    Some(Ok(row)) if row.status == 0 => {
                        let (total, more) = (row.total, row.more);
                        Ok(Piece::Bytes { total, more, bytes: row.payload, version: None })
                    }
                    Some(Ok(row)) => {
                        let text = String::from_utf8_lossy(&row.payload).into_owned();
                        split(Error::new(ErrorCode::from_status(row.status), text))
                    }
                    Some(Err(e)) => Err(e.into()),
                    None => Err(Error::unavailable("a target ended its part of the batch early")),
                },
                Some(Err(e)) => split(e.clone()),
                None => Err(Error::unavailable("no stream from this owner")),
            },
            Some(Owner::Here) => sources.next_local().await,
            None => Err(Error::unavailable("the entry is not planned")),
        }
    }

    fn out(&self, index: usize, size: u64, err_msg: String) -> MossOut {
        let entry = &self.entries[index];
        MossOut {
            objname: entry.name.to_string(),
            archpath: entry.archpath.clone(),
            bucket: entry.bucket.name.to_string(),
            provider: entry.bucket.provider.to_string(),
            opaque: entry.opaque.clone(),
            err_msg,
            size,
        }
    }
}

impl Sources {
    async fn next_local(&mut self) -> Result<Piece> {
        if self.current.is_none() {
            let next = match &mut self.local {
                Some(local) => local.next().await,
                None => None,
            };
            match next {
                Some(Ok(Loaded::Whole(bytes))) => {
                    let total = bytes.len() as u64;
                    return Ok(Piece::Bytes { total, more: false, bytes, version: None });
                }
                Some(Ok(Loaded::Stream { size, version, stream })) => {
                    self.current = Some(Current { size, sent: 0, version, stream });
                }
                Some(Err(e)) => return split(e),
                None => return Err(Error::unavailable("the entry is not planned")),
            }
        }
        let Some(current) = &mut self.current else {
            return Err(Error::internal("no object is being read"));
        };
        let next = current.stream.next().await;
        let bytes = match next.unwrap_or_else(|| Err(Error::unavailable("the object ended early")))
        {
            Ok(bytes) => bytes,
            Err(e) => {
                self.current = None;
                return split(e);
            }
        };
        current.sent += bytes.len() as u64;
        let (total, more) = (current.size, current.sent < current.size);
        let version = Some(current.version.clone());
        if !more {
            self.current = None;
        }
        Ok(Piece::Bytes { total, more, bytes, version })
    }
}

/// Failures that may pass cost a new plan; the others are the entry's.
fn split(error: Error) -> Result<Piece> {
    if error.code.is_transient() { Err(error) } else { Ok(Piece::Failed(error)) }
}

fn changed(name: &str) -> Error {
    Error::new(ErrorCode::ObjectChanged, format!("{name} was replaced while it was read"))
}
