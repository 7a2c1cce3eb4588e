//! Streams the rest of a listing as blocks, for Forebay's clients: while one block is sent, the
//! next one is produced.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use forebay_core::list_columns::{Columns, MAX_ROWS, MEDIA_TYPE};
use forebay_core::{Error, Result};
use forebay_node::exchange::carried;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::list_merge::Part;
use crate::listing::{self, Want};
use crate::route::Found;
use crate::targets::Targets;

/// Blocks that are queued for a slow client.
const QUEUED_BLOCKS: usize = 2;
/// Interval of empty blocks while no rows are available: they show the client that the listing is
/// still running.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Lists everything after `want.after`, whatever `want.limit` is. A failure before the first block
/// is returned as an error; a later failure breaks the stream, which then has no last block.
pub(super) async fn answer(targets: &Targets, found: &Found, want: Want) -> Result<Response> {
    let mut blocks = Blocks::of(Rest {
        targets: targets.clone(),
        found: found.clone(),
        want: Want { limit: MAX_ROWS, whole: Some(listing::youngest(found)), ..want },
    });
    let mut next = blocks.next().await.transpose()?.map(Ok);
    let (to_client, mut written) = mpsc::channel(QUEUED_BLOCKS);
    tokio::spawn(carried(async move {
        while let Some(block) = next {
            // The reader has gone.
            if to_client.send(block.map_err(io::Error::other)).await.is_err() {
                return;
            }
            next = blocks.next().await;
        }
    }));
    let stream = futures::stream::poll_fn(move |cx| written.poll_recv(cx));
    Ok(([(CONTENT_TYPE, MEDIA_TYPE)], Body::from_stream(stream)).into_response())
}

/// The blocks of a listing that were not sent yet.
struct Blocks {
    /// The pending block; `None` after the last block or a failure.
    asked: Option<BoxFuture<'static, (Rest, Result<Part<Columns>>)>>,
}

impl Blocks {
    fn of(rest: Rest) -> Self {
        Self { asked: Some(Box::pin(rest.next())) }
    }

    /// Returns the next block; an empty block if it takes long.
    async fn next(&mut self) -> Option<Result<Bytes>> {
        let asked = self.asked.as_mut()?;
        let Ok((rest, part)) = timeout(SIGN_OF_LIFE, asked).await else {
            return Some(Ok(Columns::default().encode(true).into()));
        };
        self.asked = None;
        let block = part.map(|Part { rows, more }| {
            if more {
                *self = Self::of(rest);
            }
            rows.encode(more).into()
        });
        Some(block)
    }
}

/// The part of a listing that was not requested yet.
struct Rest {
    targets: Targets,
    found: Found,
    want: Want,
}

impl Rest {
    async fn next(mut self) -> (Self, Result<Part<Columns>>) {
        let part = listing::sizes(&self.targets, &self.found, &self.want).await;
        let part = part.and_then(|part| self.move_on(part));
        (self, part)
    }

    fn move_on(&mut self, part: Part<Columns>) -> Result<Part<Columns>> {
        if part.more {
            let last = part.rows.last_name().filter(|last| *last > self.want.after.as_str());
            let stuck = || {
                Error::internal(format!(
                    "the listing of {} does not move on",
                    self.found.info.bucket
                ))
            };
            self.want.after = last.ok_or_else(stuck)?.to_owned();
        }
        Ok(part)
    }
}
