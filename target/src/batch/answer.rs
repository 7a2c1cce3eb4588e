//! One v1 batch as a job of its request: streamed, or kept until it is complete.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_v1::batch::{MossOut, MossResponse};
use futures::Stream;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use super::assembler::Assembler;
use super::budget::Share;
use super::outgoing;
use super::output::Sink;
use super::spool::Spool;
use crate::job::RequestJob;

/// Chunks in flight to a client that reads slowly.
const PIECES_AHEAD: usize = 1;

/// The archive as a stream, while it is built. A failure, or a stop of the job, is the stream's
/// last item.
pub(crate) fn streamed(
    assembler: Assembler,
    job: RequestJob,
    share: Arc<Share>,
    lifecycle: &Lifecycle,
) -> impl Stream<Item = Result<Bytes>> + use<> {
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    lifecycle.spawn(async move {
        let mut sink = Sink::Channel(sender.clone(), Some(share));
        let done = tokio::select! {
            // Dropping the job before its end records that its request went away.
            () = sender.closed() => return,
            done = build(assembler, &mut sink, &job) => done,
        };
        let error = done.err();
        // Before the client can see the end, so that it finds the job ended.
        job.end(error.clone().map_or(Ok(()), Err));
        if let Some(error) = error {
            tracing::debug!(%error, "batch ended early");
            let _ = sender.send(Err(error)).await;
        }
    });
    outgoing(receiver)
}

/// The result of each entry, and the archive. If this fails nothing has been sent.
pub(crate) async fn buffered(
    assembler: Assembler,
    job: RequestJob,
    spool: Spool,
) -> Result<(MossResponse, BoxStream<'static, Result<Bytes>>)> {
    let uuid = job.id().to_owned();
    let mut sink = Sink::Spool(spool);
    let done = build(assembler, &mut sink, &job).await;
    job.end(done.as_ref().map(|_| ()).map_err(Clone::clone));
    let out = done?;
    let Sink::Spool(spool) = sink else {
        return Err(Error::internal("a buffered batch went elsewhere"));
    };
    Ok((MossResponse { uuid, out }, spool.into_stream()))
}

async fn build(assembler: Assembler, sink: &mut Sink, job: &RequestJob) -> Result<Vec<MossOut>> {
    let stop = job.stop_token();
    tokio::select! {
        () = stop.cancelled() => {
            Err(Error::new(ErrorCode::Conflict, format!("get-batch[{}] was stopped", job.id())))
        }
        done = assembler.run(sink, job) => done,
    }
}
