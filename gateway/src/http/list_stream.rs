//! The rest of a listing as one stream of blocks, for our own clients: while one block is on its way
//! the next one is made.

use std::io;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use forebay_core::list_columns::{Columns, MAX_ROWS, MEDIA_TYPE};
use forebay_core::{Error, Result};
use tokio::sync::mpsc;

use crate::list_merge::Part;
use crate::listing::{self, Want};
use crate::route::Found;
use crate::targets::Targets;

/// Blocks that wait for a slow client.
const AHEAD: usize = 2;

/// Everything behind `want.after`, whatever `want.limit` says. A failure before the first block is an
/// answer of its own; a later one breaks the stream, which then has no last block.
pub(super) async fn answer(targets: &Targets, found: &Found, want: Want) -> Result<Response> {
    let mut rest = Rest {
        targets: targets.clone(),
        found: found.clone(),
        want: Want { limit: MAX_ROWS, whole: Some(listing::youngest(found)), ..want },
    };
    let first = rest.next().await?;
    let (blocks, mut written) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut next = Ok(first);
        loop {
            let over = !matches!(next, Ok(Part { more: true, .. }));
            let block = next.map(|Part { rows, more }| Bytes::from(rows.encode(more)));
            // Without a reader there is nothing left to do.
            if blocks.send(block.map_err(io::Error::other)).await.is_err() || over {
                return;
            }
            next = rest.next().await;
        }
    });
    let stream = futures::stream::poll_fn(move |cx| written.poll_recv(cx));
    Ok(([(CONTENT_TYPE, MEDIA_TYPE)], Body::from_stream(stream)).into_response())
}

/// What of a listing was not sent yet.
struct Rest {
    targets: Targets,
    found: Found,
    want: Want,
}

impl Rest {
    async fn next(&mut self) -> Result<Part<Columns>> {
        let part = listing::sizes(&self.targets, &self.found, &self.want).await?;
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
