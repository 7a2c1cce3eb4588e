//! The present of the cluster: its overview, and requests as they finish.

use bytes::BytesMut;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::Method;

use forebay_core::Error as CoreError;
use forebay_core::overview::Overview;
use forebay_core::traffic::{LiveFilter, LiveRequest};

use crate::client::{Client, ControlCall, parse};
use crate::error::{Error, Result};

/// Longest event.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// A stream of requests that the nodes finish.
pub struct LiveRequests {
    body: BoxStream<'static, Result<bytes::Bytes>>,
    buffer: BytesMut,
}

/// What [`LiveRequests::next`] returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// A finished request.
    Request(Box<LiveRequest>),
    /// This many requests were left out, because this reader was too slow.
    Dropped(u64),
}

impl Client {
    /// Returns rates of nodes, buckets and clients over the last seconds, disks, jobs and alerts.
    pub async fn overview(&self) -> Result<Overview> {
        self.get_json("/api/v1/overview").await
    }

    /// Begins to watch the requests that nodes finish. Only an admin may.
    pub async fn live_requests(&self, filter: &LiveFilter) -> Result<LiveRequests> {
        let path = format!("/api/v1/requests/live?{}", filter.to_query());
        let accept = Some("text/event-stream");
        let call = ControlCall { method: Method::GET, path: &path, body: None, accept, node: None };
        let body = self.open_gateway(&call).await?.into_body().boxed();
        Ok(LiveRequests { body, buffer: BytesMut::new() })
    }
}

impl LiveRequests {
    /// The next event; `None` when the gateway ends the stream, which it does from time to time.
    pub async fn next(&mut self) -> Result<Option<Seen>> {
        loop {
            while let Some(text) = self.taken() {
                if let Some(seen) = read(&text)? {
                    return Ok(Some(seen));
                }
            }
            if self.buffer.len() > MAX_EVENT_BYTES {
                return Err(Error::Api(CoreError::internal("an event of the stream is too long")));
            }
            match self.body.next().await {
                Some(chunk) => self.buffer.extend_from_slice(&chunk?),
                None => return Ok(None),
            }
        }
    }

    /// Takes a whole event, without the empty line at its end.
    fn taken(&mut self) -> Option<String> {
        let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
        let event = self.buffer.split_to(end + 2);
        Some(String::from_utf8_lossy(&event[..end]).into_owned())
    }
}

/// Reads an event; `None` for comments and unknown events.
fn read(text: &str) -> Result<Option<Seen>> {
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name).map(|value| value.trim_start()))
    };
    let data = field("data:").unwrap_or("");
    match field("event:") {
        Some("request") => Ok(Some(Seen::Request(Box::new(parse(data.as_bytes())?)))),
        Some("dropped") => {
            let dropped: serde_json::Value = parse(data.as_bytes())?;
            Ok(Some(Seen::Dropped(dropped["count"].as_u64().unwrap_or(0))))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_are_read_across_chunks_and_comments_are_skipped() {
        let text = concat!(
            ":\n\nevent: request\ndata: {\"time\":\"t\",\"node\":\"n\",\"request_id\":\"7\",",
            "\"api\":\"v1\",\"operation\":\"get\",\"client\":\"c\",\"status\":200,\"result\":\"ok\",",
            "\"duration_s\":0.1,\"bytes\":5}\n\n:\n\nevent: dropped\ndata: {\"count\":3}\n\n"
        );
        for size in [1, 7, 1_000] {
            let chunks: Vec<_> = text
                .as_bytes()
                .chunks(size)
                .map(|chunk| Ok(bytes::Bytes::copy_from_slice(chunk)))
                .collect();
            let body = futures::stream::iter(chunks).boxed();
            let mut live = LiveRequests { body, buffer: BytesMut::new() };
            let Some(Seen::Request(request)) = live.next().await.unwrap() else { panic!("none") };
            assert_eq!((request.request_id.as_str(), request.bytes), ("7", 5));
            assert_eq!(live.next().await.unwrap(), Some(Seen::Dropped(3)));
            assert_eq!(live.next().await.unwrap(), None);
        }
    }
}
