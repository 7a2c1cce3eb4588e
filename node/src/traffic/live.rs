//! The stream of finished requests. Nothing is made for it while nobody listens.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use forebay_core::Bucket;
use forebay_core::date::format_rfc3339;
use forebay_core::request::{Protocol, RequestId};
use forebay_core::trace::Span;
use forebay_core::traffic::{LiveEvent, LiveFilter, LiveRequest};
use forebay_core::url::decode_path;
use forebay_v1::query::Query;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::clock::unix_ns;
use crate::exchange::metrics::Outcome;

/// Requests that wait for a slow listener; the oldest are dropped, and counted.
const WAITING: usize = 4_096;

/// After this time without an event, listeners get [`LiveEvent::Idle`].
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// Hands finished requests to those who listen.
#[derive(Debug)]
pub struct LiveRequests(broadcast::Sender<LiveRequest>);

impl Default for LiveRequests {
    fn default() -> Self {
        Self(broadcast::channel(WAITING).0)
    }
}

/// One who listens.
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<LiveRequest>);

impl Listener {
    /// The next event that a filter shows; [`LiveEvent::Idle`] if there is none for a while, `None`
    /// once the node ends.
    pub async fn next_shown(&mut self, filter: &LiveFilter) -> Option<LiveEvent> {
        let shown = async {
            loop {
                match self.next().await {
                    Some(LiveEvent::Request(request)) if !filter.matches(&request) => {}
                    other => return other,
                }
            }
        };
        match tokio::time::timeout(IDLE_AFTER, shown).await {
            Ok(event) => event,
            Err(_) => Some(LiveEvent::Idle),
        }
    }

    /// The next event; `None` once the node ends.
    async fn next(&mut self) -> Option<LiveEvent> {
        match self.0.recv().await {
            Ok(request) => Some(LiveEvent::Request(Box::new(request))),
            Err(RecvError::Lagged(count)) => Some(LiveEvent::Dropped(count)),
            Err(RecvError::Closed) => None,
        }
    }
}

impl LiveRequests {
    /// Begins to listen.
    pub fn listen(&self) -> Listener {
        Listener(self.0.subscribe())
    }

    /// Publishes a request that `make` describes, if somebody listens.
    pub(crate) fn publish<'a>(&self, make: impl FnOnce() -> FinishedRequest<'a>) {
        if self.0.receiver_count() > 0 {
            // An error means that the last listener has just left.
            let _ = self.0.send(make().shown());
        }
    }
}

/// A finished request, with what is known about it.
#[derive(Debug)]
pub(crate) struct FinishedRequest<'a> {
    pub(crate) id: RequestId,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) api: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    /// The bucket, if a handler named it.
    pub(crate) bucket: Option<&'a Bucket>,
    pub(crate) from: IpAddr,
    pub(crate) user: Option<&'a str>,
    pub(crate) status: u16,
    pub(crate) result: &'static str,
    pub(crate) whole: Duration,
    pub(crate) first_byte: Option<Duration>,
    pub(crate) bytes: u64,
}

impl FinishedRequest<'_> {
    fn shown(self) -> LiveRequest {
        let (bucket, object) = self.subject();
        LiveRequest {
            time: format_rfc3339(unix_ns()),
            node: String::new(),
            request_id: self.id.to_string(),
            api: self.api.to_owned(),
            operation: self.operation.to_owned(),
            bucket,
            object,
            client: self.from.to_canonical().to_string(),
            user: self.user.map(str::to_owned),
            status: self.status,
            result: self.result.to_owned(),
            duration_s: self.whole.as_secs_f64(),
            ttfb_s: self.first_byte.map(|time| time.as_secs_f64()),
            bytes: self.bytes,
        }
    }

    /// Describes the request in its span.
    pub(crate) fn describe(&self, span: &mut Span) {
        let (bucket, object) = self.subject();
        span.bucket = bucket.unwrap_or_default();
        span.object = object.unwrap_or_default();
        span.api = Cow::Borrowed(self.api);
        span.result = Cow::Borrowed(self.result);
        (span.status, span.bytes) = (self.status, self.bytes);
        span.is_error = self.result == Outcome::Error.name();
    }

    /// The bucket and the object that the path names. Of the query, only the parameters that name the
    /// bucket are read.
    fn subject(&self) -> (Option<String>, Option<String>) {
        let (rest, is_s3) = match self.protocol {
            Some(Protocol::V1) => match self.path.strip_prefix("/v1/objects/") {
                Some(rest) => (rest, false),
                None => match self.path.strip_prefix("/v1/buckets/") {
                    Some(rest) => (rest, false),
                    None => return (None, None),
                },
            },
            Some(Protocol::S3Prefixed) => match self.path.strip_prefix("/s3/") {
                Some(rest) => (rest, true),
                None => return (None, None),
            },
            Some(Protocol::S3Root) => (self.path.trim_start_matches('/'), true),
            _ => return (None, None),
        };
        let (bucket, object) = rest.split_once('/').unwrap_or((rest, ""));
        let name = |text: &str| {
            let name = decode_path(text).unwrap_or_else(|_| text.to_owned());
            (!name.is_empty()).then_some(name)
        };
        let bucket = match (is_s3, name(bucket)) {
            _ if self.bucket.is_some() => self.bucket.map(ToString::to_string),
            (false, Some(bucket)) => {
                let found = Query::parse(self.query).bucket(&bucket);
                Some(found.map_or(bucket, |found| found.to_string()))
            }
            (_, bucket) => bucket,
        };
        (bucket, name(object))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn finished<'a>(protocol: Protocol, target: &'a str) -> FinishedRequest<'a> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        FinishedRequest {
            id: RequestId(7),
            protocol: Some(protocol),
            api: protocol.name(),
            operation: "get",
            path,
            query,
            bucket: None,
            from: IpAddr::from([10, 0, 0, 1]),
            user: None,
            status: 200,
            result: "ok",
            whole: Duration::from_millis(3),
            first_byte: None,
            bytes: 5,
        }
    }

    #[test]
    fn a_request_is_shown_with_its_bucket_and_object_and_without_its_query() {
        let of = |protocol, target| {
            let shown = finished(protocol, target).shown();
            assert!(!format!("{shown:?}").contains("secret"), "{shown:?}");
            (shown.bucket.unwrap_or_default(), shown.object.unwrap_or_default())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let signed = "/v1/objects/data/a%20b/c?provider=aws&token=secret";
        assert_eq!(of(Protocol::V1, signed), pair("s3://data", "a b/c"));
        assert_eq!(of(Protocol::V1, "/v1/buckets/own"), pair("ais://own", ""));
        assert_eq!(of(Protocol::V1, "/v1/daemon?what=secret"), pair("", ""));
        let signed = "/s3/data/k/1?X-Amz-Signature=secret";
        assert_eq!(of(Protocol::S3Prefixed, signed), pair("data", "k/1"));
        assert_eq!(of(Protocol::Native, "/api/v1/batch"), pair("", ""));
    }

    #[tokio::test]
    async fn requests_are_described_only_while_somebody_listens() {
        let live = LiveRequests::default();
        live.publish(|| panic!("nobody listens"));
        let mut listener = live.listen();
        live.publish(|| finished(Protocol::V1, "/v1/objects/b/o"));
        let Some(LiveEvent::Request(request)) = listener.next().await else { panic!("no event") };
        assert_eq!((request.request_id.as_str(), request.bytes), ("0000000000000007", 5));
        for _ in 0..WAITING + 3 {
            live.publish(|| finished(Protocol::V1, "/v1/objects/b/o"));
        }
        assert_eq!(listener.next().await, Some(LiveEvent::Dropped(3)));
        drop(listener);
        live.publish(|| panic!("nobody listens"));
    }
}
