//! Bounds on the parts of other servers' responses that are kept; a server may be untrusted.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;
use tokio::time::timeout;

use crate::egress::innermost;

/// Bytes of an error response that are read; its message is at the beginning.
pub(super) const MAX_ERROR_BYTES: usize = 1 << 20;
/// Bytes of a listing, or of any other response that is parsed as a whole.
pub(super) const MAX_LISTING_BYTES: usize = 64 << 20;
/// Bytes of a response's headers. The HTTP library ends a connection whose response has more than
/// 100 headers, or 400 KiB of them, before it has read the rest.
pub(super) const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long the body of an error response may take.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a response was not read to its end.
#[derive(Debug)]
pub(super) enum ReadFailure {
    Broken(reqwest::Error),
    TooLong,
}

impl ReadFailure {
    /// Text for messages.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Broken(e) => innermost(e),
            Self::TooLong => {
                format!("its answer has more than {MAX_LISTING_BYTES} bytes, which is the limit")
            }
        }
    }
}

/// The body of an error response, as far as it arrives in time and within its bound.
pub(super) async fn read_error(mut answer: Response) -> Bytes {
    let mut body = BytesMut::new();
    let reading = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            let room = MAX_ERROR_BYTES - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() == MAX_ERROR_BYTES {
                return;
            }
        }
    };
    let _ = timeout(ERROR_TIMEOUT, reading).await;
    body.freeze()
}

/// The whole body of a response that is parsed as one.
pub(super) async fn read_listing(mut answer: Response) -> Result<Bytes, ReadFailure> {
    let announced = answer.content_length().and_then(|length| usize::try_from(length).ok());
    if announced.is_some_and(|length| length > MAX_LISTING_BYTES) {
        return Err(ReadFailure::TooLong);
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(ReadFailure::Broken)? {
        if body.len() + chunk.len() > MAX_LISTING_BYTES {
            return Err(ReadFailure::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Whether the headers of a response are longer than any legitimate server sends.
pub(super) fn has_long_head(answer: &Response) -> bool {
    is_long_head(answer.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// Whether these headers are longer than any legitimate server sends.
pub(super) fn is_long_head<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> bool {
    headers.map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_HEAD_BYTES
}

/// The message for a response whose headers are too long.
pub(super) fn long_head() -> String {
    format!("its answer has more than {MAX_HEAD_BYTES} bytes of headers, which is the limit")
}
