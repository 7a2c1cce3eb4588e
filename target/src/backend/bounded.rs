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
/// Bytes of an answer's headers.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long a refusal's body may take.
const ERROR_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an answer was not read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    Broken(reqwest::Error),
    TooLong,
}

impl Unread {
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
pub(super) async fn read_listing(mut answer: Response) -> Result<Bytes, Unread> {
    let announced = answer.content_length().and_then(|length| usize::try_from(length).ok());
    if announced.is_some_and(|length| length > MAX_LISTING_BYTES) {
        return Err(Unread::TooLong);
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(Unread::Broken)? {
        if body.len() + chunk.len() > MAX_LISTING_BYTES {
            return Err(Unread::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Whether the headers of an answer are more than any such server sends.
pub(super) fn has_long_head(answer: &Response) -> bool {
    let bytes = answer.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    bytes.sum::<usize>() > MAX_HEAD_BYTES
}
