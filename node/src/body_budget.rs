//! JSON bodies that are read whole: each has a limit, and all together share a budget.

use std::sync::LazyLock;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use forebay_core::{Error, ErrorCode, Result};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::cgroup::Resources;

/// Bytes of large bodies that a node holds in memory in total.
const BUDGET_BYTES: usize = 256 << 20;
/// Unit of the budget. A body of at most one unit is not charged.
const UNIT_BYTES: usize = 64 << 10;
/// A refused client may retry after this, seconds.
const RETRY_AFTER_S: u32 = 1;
/// The budget is at most this part of the memory that the process may use: an eighth.
const MEMORY_DIVISOR: u64 = 8;

/// The budget of this process.
static BUDGET: LazyLock<Semaphore> = LazyLock::new(|| {
    let bytes = Resources::read().bounded(BUDGET_BYTES as u64, MEMORY_DIVISOR);
    Semaphore::new((bytes as usize / UNIT_BYTES).max(1))
});

/// A body and its share of the budget, which is returned when the last clone of the bytes is
/// dropped.
struct Held {
    bytes: Bytes,
    _share: SemaphorePermit<'static>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a whole body of at most `limit` bytes. If the budget is used up, the body is refused with
/// 429.
pub async fn read_admitted(body: Body, limit: usize) -> Result<Bytes> {
    read_within(&BUDGET, body, limit).await
}

async fn read_within(budget: &'static Semaphore, mut body: Body, limit: usize) -> Result<Bytes> {
    let (mut read, mut share) = (BytesMut::new(), None::<SemaphorePermit<'static>>);
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|e| Error::invalid(format!("the request's body cannot be read: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if read.len() + data.len() > limit {
            return Err(Error::invalid("the request's body is too large")
                .hint(format!("at most {limit} bytes")));
        }
        if read.is_empty() && data.len() <= UNIT_BYTES && body.is_end_stream() {
            return Ok(data);
        }
        read.extend_from_slice(&data);
        let units = (read.len().saturating_sub(1)) / UNIT_BYTES;
        let missing = units - share.as_ref().map_or(0, SemaphorePermit::num_permits);
        if missing > 0 {
            let more = budget.try_acquire_many(u32::try_from(missing).unwrap_or(u32::MAX));
            let more = more.map_err(|_| busy())?;
            match &mut share {
                Some(share) => share.merge(more),
                None => share = Some(more),
            }
        }
    }
    let bytes = read.freeze();
    Ok(match share {
        Some(share) => Bytes::from_owner(Held { bytes, _share: share }),
        None => bytes,
    })
}

fn busy() -> Error {
    let text = "this node holds as many bytes of requests as it may";
    Error { retry_after_s: Some(RETRY_AFTER_S), ..Error::new(ErrorCode::TooManyRequests, text) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn read(budget: &'static Semaphore, len: usize) -> Result<Bytes> {
        let pieces = vec![b'x'; len].chunks(10_000).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let stream = futures::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
        read_within(budget, Body::from_stream(stream), 1 << 20).await
    }

    #[tokio::test]
    async fn large_bodies_share_one_budget_and_give_it_back() {
        static BUDGET: Semaphore = Semaphore::const_new(3);
        let first = read(&BUDGET, 3 * UNIT_BYTES).await.unwrap();
        assert_eq!((first.len(), BUDGET.available_permits()), (3 * UNIT_BYTES, 1));
        let refused = read(&BUDGET, 3 * UNIT_BYTES).await.unwrap_err();
        assert_eq!((refused.code, refused.retry_after_s), (ErrorCode::TooManyRequests, Some(1)));
        assert_eq!(BUDGET.available_permits(), 1, "a body that was refused holds nothing");
        assert_eq!(read(&BUDGET, UNIT_BYTES).await.unwrap().len(), UNIT_BYTES);
        let clone = first.slice(5..);
        drop(first);
        assert_eq!(BUDGET.available_permits(), 1);
        drop(clone);
        assert_eq!(BUDGET.available_permits(), 3);
    }

    #[tokio::test]
    async fn a_body_has_a_limit_of_its_own() {
        static BUDGET: Semaphore = Semaphore::const_new(100);
        assert_eq!(read(&BUDGET, 1 << 20).await.unwrap().len(), 1 << 20);
        let e = read(&BUDGET, (1 << 20) + 1).await.unwrap_err();
        assert!(e.message.contains("too large"), "{e}");
        assert_eq!(BUDGET.available_permits(), 100);
    }
}
