//! Streams of bytes between the stages of a transform.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Error, ErrorCode, Result};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

/// Output of a stage up to this many bytes is gathered before it is passed on, so that the failure
/// of a small object is a response of its own, and its length is known.
const GATHERED: usize = 256 << 10;

/// An object, or its transformed form.
pub(crate) struct Transformed {
    /// When it is known before the end.
    pub(crate) len: Option<u64>,
    pub(crate) content_type: Option<String>,
    pub(crate) body: BoxStream<'static, Result<Bytes>>,
}

impl Transformed {
    /// Adds the passing bytes to a counter.
    pub(super) fn counted(self, counter: impl Fn(u64) + Send + 'static) -> Self {
        let body = self.body.inspect_ok(move |chunk| counter(chunk.len() as u64)).boxed();
        Self { body, ..self }
    }

    /// Fails if the next chunk takes longer than `timeout`.
    pub(super) fn within(self, timeout: Duration, who: String) -> Self {
        let body = futures::stream::try_unfold(self.body, move |mut body| {
            let who = who.clone();
            async move {
                match tokio::time::timeout(timeout, body.try_next()).await {
                    Ok(Ok(Some(chunk))) => Ok(Some((chunk, body))),
                    Ok(Ok(None)) => Ok(None),
                    Ok(Err(e)) => Err(e),
                    Err(_) => Err(late(&who, timeout)),
                }
            }
        });
        Self { body: body.boxed(), ..self }
    }

    /// Reads the first chunk, or all of a small object.
    pub(super) async fn first_chunk(mut self) -> Result<Self> {
        let (mut first, mut size) = (VecDeque::new(), 0);
        while size < GATHERED {
            match self.body.try_next().await? {
                Some(chunk) => {
                    size += chunk.len();
                    first.push_back(Ok(chunk));
                }
                None => {
                    let len = Some(size as u64);
                    return Ok(Self { len, body: futures::stream::iter(first).boxed(), ..self });
                }
            }
        }
        Ok(Self { body: futures::stream::iter(first).chain(self.body).boxed(), ..self })
    }
}

/// The error of a transform that takes too long. It would again, so a retry is not suggested.
pub(super) fn late(who: &str, timeout: Duration) -> Error {
    Error::new(ErrorCode::Unprocessable, format!("{who} took longer than {timeout:?}"))
        .hint("obj_timeout of the etl sets the limit")
}
