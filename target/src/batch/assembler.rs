//! A v1 batch: this target pulls every entry from its owner and writes one archive in request
//! order. If an owner is lost, only the missing entries are planned again.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_client::PeerClient;
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::{Bucket, Result};
use forebay_v1::batch::{MISSING_PREFIX, MossOut, MossRequest, ResolvedEntry};

use super::Loader;
use super::budget::Share;
use super::output::{Output, Sink};
use super::resume::Sent;
use super::sources::{Next, Sources};
use crate::job::RequestJob;

/// How long the batch continues without a byte of progress before it is given up.
const STALL: Duration = Duration::from_secs(30);
/// If it waits longer than this, the ready bytes are sent.
const FLUSH_AFTER: Duration = Duration::from_millis(5);
/// Pause before entries of a lost owner are planned again.
const REPLAN_PAUSE: Duration = Duration::from_millis(300);

/// Builds one archive.
pub(crate) struct Assembler {
    moss: MossRequest,
    entries: Vec<ResolvedEntry>,
    sources: Sources,
}

impl Assembler {
    pub(crate) fn new(
        loader: Loader,
        peer: PeerClient,
        share: Arc<Share>,
        mut moss: MossRequest,
        entries: Vec<ResolvedEntry>,
    ) -> Self {
        // Freed, because `entries` has their content; there may be a million.
        moss.entries = Vec::new();
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut numbers: HashMap<&Bucket, usize> = HashMap::new();
        let mut native = Vec::with_capacity(entries.len());
        for entry in &entries {
            let at = *numbers.entry(&entry.bucket).or_insert_with(|| {
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
        let native = BatchRequest { buckets, entries: native, ordered: true };
        let sources = Sources::new(loader, peer, share, native);
        Self { moss, entries, sources }
    }

    /// Writes the whole archive. Returns the result of each entry, or nothing if the archive is
    /// streamed. `job` counts the sent entries.
    pub(crate) async fn run(mut self, sink: &mut Sink, job: &RequestJob) -> Result<Vec<MossOut>> {
        let mut output = Output::new(self.moss.format()?, sink)?;
        self.sources.plan(0..self.entries.len());
        let mut outs = Vec::new();
        for index in 0..self.entries.len() {
            let written = self.emit(index, &mut output).await?;
            if let Ok(size) = &written {
                job.done(*size);
            }
            if !self.moss.strm {
                outs.push(self.out(index, written));
            }
        }
        output.finish().await?;
        Ok(outs)
    }

    /// Writes one member, and plans again whenever an owner is lost. Returns its size, or why it is
    /// missing.
    async fn emit(&mut self, index: usize, output: &mut Output<'_>) -> Result<Result<u64>> {
        let name = self.moss.member_name(&self.entries[index]);
        let mut sent: Option<Sent> = None;
        let mut progress = Instant::now();
        loop {
            let failure = match self.next_or_flush(index, output).await? {
                Next::Piece { total, more, bytes } => {
                    if sent.is_none() {
                        output.begin(&name, total, None)?;
                    }
                    let sent = sent.get_or_insert_with(|| Sent::new(total));
                    let bytes = sent.take(bytes, total, more, &name)?;
                    if !bytes.is_empty() {
                        output.data(bytes).await?;
                        progress = Instant::now();
                    }
                    if !more {
                        output.end().await?;
                        return Ok(Ok(total));
                    }
                    continue;
                }
                Next::Later(e) | Next::Lost(e) if progress.elapsed() < STALL => {
                    tracing::debug!(error = %e, index, "an owner is lost, planning again");
                    tokio::time::sleep(REPLAN_PAUSE).await;
                    self.sources.plan_again(index);
                    sent.iter_mut().for_each(Sent::restart);
                    continue;
                }
                Next::Later(e) | Next::Lost(e) | Next::Failed(e) => e,
            };
            if sent.is_some() || !self.moss.coer {
                return Err(failure);
            }
            output.begin(&format!("{MISSING_PREFIX}{name}"), 0, None)?;
            output.end().await?;
            return Ok(Err(failure));
        }
    }

    /// The next part of an entry. If it has to wait, the ready bytes are sent to the client
    /// meanwhile.
    async fn next_or_flush(&mut self, index: usize, output: &mut Output<'_>) -> Result<Next> {
        let mut next = pin!(self.sources.next(index));
        if let Ok(next) = tokio::time::timeout(FLUSH_AFTER, &mut next).await {
            return Ok(next);
        }
        output.flush().await?;
        Ok(next.await)
    }

    fn out(&self, index: usize, written: Result<u64>) -> MossOut {
        let entry = &self.entries[index];
        let (size, err_msg) = match written {
            Ok(size) => (size, String::new()),
            Err(e) => (0, e.to_string()),
        };
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
