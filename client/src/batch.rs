//! Batches: sends one request to each owning target (several if it owns many entries), merges the
//! answers, and requests failed entries again under a newer map.

mod merge;
mod plan;
mod source;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::{mem, vec};

use bytes::Bytes;
use futures::{Stream, StreamExt, ready};

use forebay_core::Error as CoreError;
use forebay_core::batch::BatchRequest;
use forebay_core::batch_stream::Rooms;

use crate::client::Client;
use crate::error::Result;
use crate::timing;
use merge::Batch;

/// Where targets answer batches.
pub(crate) const PATH: &str = "/api/v1/batch";

/// One entry of a batch, answered.
#[derive(Clone, Debug)]
pub struct BatchItem {
    /// Its position in the request.
    pub index: usize,
    /// The object's bytes, or why there are none.
    pub result: Result<Bytes, CoreError>,
}

/// The answers to a batch: exactly one item for each entry, in request order or as they come.
pub struct BatchStream {
    runs: Pin<Box<dyn Stream<Item = Vec<BatchItem>> + Send>>,
    /// Answers of the current run that were not handed out yet.
    run: vec::IntoIter<BatchItem>,
}

impl BatchStream {
    /// Returns the next answers, at least one, and those that have arrived already; `None` after
    /// the last.
    pub async fn next_run(&mut self) -> Option<Vec<BatchItem>> {
        let left: Vec<BatchItem> = mem::take(&mut self.run).collect();
        if left.is_empty() { self.runs.next().await } else { Some(left) }
    }
}

impl Stream for BatchStream {
    type Item = BatchItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BatchItem>> {
        loop {
            if let Some(item) = self.run.next() {
                return Poll::Ready(Some(item));
            }
            match ready!(self.runs.as_mut().poll_next(cx)) {
                Some(run) => self.run = run.into_iter(),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl std::fmt::Debug for BatchStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BatchStream")
    }
}

impl Client {
    /// Starts a batch. Memory stays bounded however large it is: targets wait for the reader.
    pub fn batch(&self, request: &BatchRequest) -> Result<BatchStream> {
        let batch = Batch::new(self, request.clone(), None)?;
        let runs = futures::stream::unfold(batch, |mut batch| async move {
            batch.next_run().await.map(|run| (run, batch))
        });
        Ok(BatchStream { runs: Box::pin(runs), run: Vec::new().into_iter() })
    }

    /// Reads a whole batch into memory; results are in the order of the request.
    ///
    /// Fails as a whole only if the cluster answered for no entry at all.
    pub async fn batch_all(&self, request: &BatchRequest) -> Result<Vec<Result<Bytes, CoreError>>> {
        let mut all: Vec<Option<Result<Bytes, CoreError>>> = vec![None; request.entries.len()];
        let take = |run: Vec<BatchItem>| {
            for item in run {
                all[item.index] = Some(item.result);
            }
        };
        self.batch_runs(request.clone(), None, take).await?;
        let missing = || Err(CoreError::internal("an entry of the batch was left out"));
        Ok(all.into_iter().map(|result| result.unwrap_or_else(missing)).collect())
    }

    /// Reads a whole batch; `take` gets the answers as they arrive, in any order, several at a
    /// time. Targets keep sending while `take` runs. `rooms` supplies the memory for large entries.
    ///
    /// Fails as [`Self::batch_all`] does.
    pub async fn batch_runs(
        &self,
        request: BatchRequest,
        rooms: Option<Rooms>,
        mut take: impl FnMut(Vec<BatchItem>),
    ) -> Result<()> {
        let mut batch = Batch::new(self, BatchRequest { ordered: false, ..request }, rooms)?;
        while let Some(run) = batch.next_run().await {
            let started = timing::work();
            take(run);
            timing::worked(started);
        }
        match (batch.gave_up, batch.answered) {
            (Some(error), 0) => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
