//! Bounds on what is kept of the answers of other servers, which may be anybody's.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::Response;
use tokio::time::timeout;

use crate::egress::innermost;

/// Bytes of a refusal that are read; what it says stands at the beginning.
pub(super) const MAX_ERROR_BYTES: usize = 1 << 20;
/// Bytes of a listing, or of any other answer that is parsed as a whole.
pub(super) const MAX_LISTING_BYTES: usize = 64 << 20;
/// Bytes of an answer's headers. The HTTP library ends a connection whose answer has more than 100
/// headers, or 400 KiB of them, before it has read the rest.
pub(super) const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long a refusal's body may take.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an answer was not read to its end.
#[derive(Debug)]
pub(super) enum ReadFailure {
    Broken(reqwest::Error),
    TooLong,
}

impl ReadFailure {
    /// For people.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Broken(e) => innermost(e),
            Self::TooLong => {
                format!("its answer has more than {MAX_LISTING_BYTES} bytes, which is the limit")
            }
        }
    }
}

/// The body of a refusal, as far as it comes soon and within its bound.
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

/// The whole body of an answer that is parsed as one.
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

/// Whether the headers of an answer are more than any such server sends.
pub(super) fn has_long_head(answer: &Response) -> bool {
    is_long_head(answer.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// Whether these headers are more than any such server sends.
pub(super) fn is_long_head<'a>(headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> bool {
    headers.map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_HEAD_BYTES
}

/// What is said of an answer whose headers are too long.
pub(super) fn long_head() -> String {
    format!("its answer has more than {MAX_HEAD_BYTES} bytes of headers, which is the limit")
}
