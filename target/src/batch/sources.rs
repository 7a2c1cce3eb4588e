//! Sources of the entries of a v1 batch: this target itself, and streams of others.

use std::sync::Arc;

use bytes::Bytes;
use forebay_client::{PeerClient, RowStream};
use forebay_core::batch::{self, BatchRequest};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::exchange::carried;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio_util::task::AbortOnDropHandle;

use super::budget::Share;
use super::reading::Reading;
use super::{Loaded, Loader};

/// The next part of an entry.
pub(super) enum Next {
    Piece {
        total: u64,
        more: bool,
        bytes: Bytes,
    },
    /// The entry failed for good.
    Failed(Error),
    /// The entry failed for now: it may be requested again,
    Later(Error),
    /// and so may all entries that its source has not sent yet.
    Lost(Error),
}

/// All sources of one batch. Entries must be taken in the order of the request.
pub(super) struct Sources {
    loader: Loader,
    peer: PeerClient,
    share: Arc<Share>,
    request: Arc<BatchRequest>,
    /// By entry.
    slots: Vec<Slot>,
    sources: Vec<Source>,
}

#[derive(Clone, Debug)]
enum Slot {
    /// The index of its source.
    From(usize),
    Nobody(Error),
}

enum Source {
    Here {
        reading: Box<Reading>,
        current: Option<Current>,
    },
    /// Another target, and the entries requested from it. If its response is slow, only its own
    /// first entry waits.
    Opening {
        asked: Vec<usize>,
        rows: AbortOnDropHandle<Result<RowStream>>,
    },
    There {
        asked: Vec<usize>,
        rows: Box<RowStream>,
    },
    Lost(Error),
}

/// A local object that is being sent.
struct Current {
    size: u64,
    sent: u64,
    stream: BoxStream<'static, Result<Bytes>>,
}

impl Sources {
    pub(super) fn new(
        loader: Loader,
        peer: PeerClient,
        share: Arc<Share>,
        request: BatchRequest,
    ) -> Self {
        let nobody = Slot::Nobody(Error::unavailable("the entry is not planned"));
        let slots = vec![nobody; request.entries.len()];
        Self { loader, peer, share, request: Arc::new(request), slots, sources: Vec::new() }
    }

    /// Plans entries by the current state and requests them from their owners.
    pub(super) fn plan(&mut self, wanted: impl IntoIterator<Item = usize>) {
        let state = self.loader.service.state();
        let plan = batch::plan(&state, &self.request, wanted);
        for (index, error) in plan.failed {
            self.slots[index] = Slot::Nobody(error);
        }
        for (id, indices) in plan.by_owner {
            for &index in &indices {
                self.slots[index] = Slot::From(self.sources.len());
            }
            let source = if id == self.loader.me {
                let (loader, request) = (self.loader.clone(), self.request.clone());
                let reading = Reading::new(loader, request, indices, self.share.clone());
                Source::Here { reading: Box::new(reading), current: None }
            } else if let Some(node) = state.node(&id) {
                let (peer, url) = (self.peer.clone(), node.url.clone());
                let part = self.request.subset(&indices);
                let cloud = self.loader.cloud;
                let opening = async move {
                    peer.batch_stream_by(&url, &part, &cloud).await.map_err(Error::from)
                };
                let rows = AbortOnDropHandle::new(tokio::spawn(carried(opening)));
                Source::Opening { asked: indices, rows }
            } else {
                Source::Lost(Error::unavailable(format!("target {id} left")))
            };
            self.sources.push(source);
        }
    }

    /// Plans entry `index` again, and all later entries whose source is lost.
    pub(super) fn plan_again(&mut self, index: usize) {
        let wanted = self.lost_from(index);
        self.plan(wanted);
    }

    fn lost_from(&self, index: usize) -> Vec<usize> {
        let is_lost = |slot: &Slot| match slot {
            Slot::From(number) => matches!(self.sources[*number], Source::Lost(_)),
            Slot::Nobody(e) => e.code.is_transient(),
        };
        let after = (index + 1..self.slots.len()).filter(|i| is_lost(&self.slots[*i]));
        std::iter::once(index).chain(after).collect()
    }

    /// The next part of entry `index`. May be dropped while it waits.
    pub(super) async fn next(&mut self, index: usize) -> Next {
        let number = match &self.slots[index] {
            Slot::From(number) => *number,
            Slot::Nobody(e) => return definite(e.clone()),
        };
        let source = &mut self.sources[number];
        if let Source::Opening { asked, rows } = source {
            let opened = rows.await.unwrap_or_else(|e| Err(Error::internal(e.to_string())));
            *source = match opened {
                Ok(rows) => Source::There { asked: std::mem::take(asked), rows: Box::new(rows) },
                Err(e) => Source::Lost(e),
            };
        }
        let next = match source {
            Source::Here { reading, current } => next_here(reading, current, index).await,
            Source::There { asked, rows } => next_there(asked, rows, index).await,
            Source::Lost(e) if e.code.is_transient() => Next::Lost(e.clone()),
            Source::Lost(e) => Next::Failed(e.clone()),
            Source::Opening { .. } => Next::Failed(Error::internal("a source is not open")),
        };
        if let Next::Lost(e) = &next {
            *source = Source::Lost(e.clone());
        }
        next
    }
}

async fn next_there(asked: &[usize], rows: &mut RowStream, index: usize) -> Next {
    match rows.next().await {
        Some(Ok(row)) if asked.get(row.index as usize) != Some(&index) => {
            Next::Lost(Error::unavailable("a target answered its part of the batch in disorder"))
        }
        Some(Ok(row)) if row.status == 0 => {
            Next::Piece { total: row.total, more: row.more, bytes: row.payload }
        }
        Some(Ok(row)) => {
            let text = String::from_utf8_lossy(&row.payload).into_owned();
            definite(Error::new(ErrorCode::from_status(row.status), text))
        }
        Some(Err(e)) => Next::Lost(e.into()),
        None => Next::Lost(Error::unavailable("a target ended its part of the batch early")),
    }
}

async fn next_here(reading: &mut Reading, current: &mut Option<Current>, index: usize) -> Next {
    if current.is_none() {
        match reading.next().await {
            Some((read, _)) if read != index => {
                return Next::Lost(Error::unavailable("entries were read in disorder"));
            }
            Some((_, Ok(Loaded::Whole(bytes)))) => {
                return Next::Piece { total: bytes.len() as u64, more: false, bytes };
            }
            Some((_, Ok(Loaded::Stream { size, stream, .. }))) => {
                *current = Some(Current { size, sent: 0, stream });
            }
            Some((_, Err(e))) => return definite(e),
            None => return Next::Lost(Error::unavailable("the entry is not planned")),
        }
    }
    let Some(object) = current else { return Next::Failed(Error::internal("nothing is read")) };
    match object.stream.next().await {
        Some(Ok(bytes)) => {
            object.sent += bytes.len() as u64;
            let (total, more) = (object.size, object.sent < object.size);
            if !more {
                *current = None;
            }
            Next::Piece { total, more, bytes }
        }
        end => {
            *current = None;
            let early = || Error::unavailable("the object ended early");
            definite(end.and_then(Result::err).unwrap_or_else(early))
        }
    }
}

/// A transient failure leads to a new plan; other failures are the entry's result.
fn definite(error: Error) -> Next {
    if error.code.is_transient() { Next::Later(error) } else { Next::Failed(error) }
}
