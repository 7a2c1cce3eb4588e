//! The native batch stream (`docs/batch-stream.md`), from this target's objects.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::batch::BatchRequest;
use forebay_core::batch_stream::{Encoder, MAX_PIECE, Row};
use forebay_node::lifecycle::Lifecycle;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;

use super::{LOOK_AHEAD, Loaded, Loader, outgoing};

/// Frames on their way to a client that reads slowly.
const FRAMES_AHEAD: usize = 2;

/// Answers a batch. The work stops as soon as the returned stream is dropped.
pub(crate) fn answer(
    loader: Loader,
    request: BatchRequest,
    lifecycle: &Lifecycle,
) -> impl Stream<Item = Result<Bytes>> + use<> {
    let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
    let stop = lifecycle.token();
    lifecycle.spawn(async move {
        tokio::select! {
            () = sender.closed() => {}
            () = stop.cancelled() => {}
            _ = write(loader, request, sender.clone()) => {}
        }
    });
    outgoing(receiver)
}

/// Ends early (`None`) when the client is gone.
async fn write(
    loader: Loader,
    request: BatchRequest,
    out: mpsc::Sender<Result<Bytes>>,
) -> Option<()> {
    let version = loader.service.state().version;
    out.send(Ok(Encoder::header(version))).await.ok()?;
    let mut encoder = Encoder::default();
    let mut entries = load_all(loader, request);
    while let Some((index, loaded)) = entries.next().await {
        match loaded {
            Ok(Loaded::Whole(bytes)) => push_whole(&mut encoder, index, bytes),
            Ok(Loaded::Stream { size, stream, .. }) => {
                push_stream(&mut encoder, index, size, stream, &out).await?;
            }
            Err(e) => encoder.push(Row::failure(index, &e)),
        }
        if encoder.is_full() {
            send(&mut encoder, &out).await?;
        }
    }
    send(&mut encoder, &out).await?;
    out.send(Ok(encoder.end())).await.ok()
}

type Ready = (u32, Result<Loaded>);

fn load_all(loader: Loader, request: BatchRequest) -> BoxStream<'static, Ready> {
    let ordered = request.ordered;
    let request = Arc::new(request);
    let count = request.entries.len();
    let loads = futures::stream::iter(0..count).map(move |i| {
        let (loader, request) = (loader.clone(), request.clone());
        async move { (i as u32, loader.load(&request, &request.entries[i]).await) }
    });
    if ordered {
        loads.buffered(LOOK_AHEAD).boxed()
    } else {
        loads.buffer_unordered(LOOK_AHEAD).boxed()
    }
}

/// A whole object, cut where it is larger than a piece.
fn push_whole(encoder: &mut Encoder, index: u32, mut bytes: Bytes) {
    let total = bytes.len() as u64;
    loop {
        let piece = bytes.split_to(bytes.len().min(MAX_PIECE));
        let more = !bytes.is_empty();
        encoder.push(Row { index, status: 0, more, total, payload: piece });
        if !more {
            return;
        }
    }
}

async fn push_stream(
    encoder: &mut Encoder,
    index: u32,
    total: u64,
    mut stream: BoxStream<'static, Result<Bytes>>,
    out: &mpsc::Sender<Result<Bytes>>,
) -> Option<()> {
    let mut sent = 0;
    while let Some(chunk) = stream.next().await {
        let mut chunk = match chunk {
            Ok(chunk) => chunk,
            Err(e) => {
                encoder.push(Row::failure(index, &e));
                return Some(());
            }
        };
        while !chunk.is_empty() {
            let piece = chunk.split_to(chunk.len().min(MAX_PIECE));
            sent += piece.len() as u64;
            encoder.push(Row { index, status: 0, more: sent < total, total, payload: piece });
        }
        if encoder.is_full() {
            send(encoder, out).await?;
        }
    }
    if sent < total {
        let short = forebay_core::Error::internal(format!("{sent} of {total} bytes were read"));
        encoder.push(Row::failure(index, &short));
    }
    Some(())
}

async fn send(encoder: &mut Encoder, out: &mpsc::Sender<Result<Bytes>>) -> Option<()> {
    for part in encoder.flush() {
        out.send(Ok(part)).await.ok()?;
    }
    Some(())
}
