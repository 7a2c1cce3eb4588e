//! The caller's span of a trace: all requests of a call in its scope carry it as `traceparent`, each
//! try of a request alike.

use std::future::Future;

use forebay_core::trace::{TRACEPARENT_HEADER, TraceContext};
use http::{HeaderMap, HeaderName, HeaderValue};

tokio::task_local! {
    static PARENT: Option<SpanParent>;
}

/// The span that a call is made for, as requests carry it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanParent(HeaderValue);

impl SpanParent {
    /// The span of a `traceparent` header; `None` for a value that the standard forbids.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let context = TraceContext::parse(traceparent)?;
        HeaderValue::try_from(context.to_header()).ok().map(Self)
    }

    /// The value of the header.
    pub fn as_str(&self) -> &str {
        // Made of digits and dashes.
        self.0.to_str().unwrap_or_default()
    }
}

/// Runs a call for this span; requests of a call without a span carry none.
pub fn within_span<F: Future>(
    parent: Option<SpanParent>,
    call: F,
) -> impl Future<Output = F::Output> + use<F> {
    PARENT.scope(parent, call)
}

/// Runs the start of a call for this span: what `start` spawns in this crate belongs to it, too.
pub fn start_within_span<T>(parent: Option<SpanParent>, start: impl FnOnce() -> T) -> T {
    PARENT.sync_scope(parent, start)
}

/// Adds the span of the running call to a request.
pub(crate) fn mark(headers: &mut HeaderMap) {
    let _ = PARENT.try_with(|parent| {
        if let Some(SpanParent(value)) = parent {
            headers.insert(HeaderName::from_static(TRACEPARENT_HEADER), value.clone());
        }
    });
}

/// The task for the span of the running call.
pub(crate) fn carried<F: Future>(task: F) -> impl Future<Output = F::Output> + use<F> {
    let parent = PARENT.try_with(Clone::clone).ok().flatten();
    PARENT.scope(parent, task)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use forebay_core::ObjectName;
    use forebay_core::batch::{BatchEntry, BatchRequest};

    use super::*;
    use crate::body::Body;
    use crate::scripted_server::{Seen, Server, Turns, bucket, client, cluster, reply};
    use crate::shards::ShardOptions;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn parent() -> Option<SpanParent> {
        Some(SpanParent::parse(PARENT).unwrap())
    }

    /// The parents of the requests that a server received; empty for one without.
    fn parents(server: &Server) -> Vec<String> {
        let seen = server.seen.lock().unwrap().clone();
        let parent = |one: &Seen| one.headers.get(TRACEPARENT_HEADER).cloned();
        seen.iter()
            .map(|one| parent(one).map_or("".into(), |v| v.to_str().unwrap().into()))
            .collect()
    }

    #[tokio::test]
    async fn every_try_of_a_call_has_the_span_of_its_caller() {
        let turns = Turns::new();
        let (gateway, target) = cluster(move |seen| match turns.next(&seen.path) {
            1 => reply(503, &[], "starting"),
            _ => reply(200, &[], "hello"),
        })
        .await;
        let client = client(&gateway.url, TIMEOUT);
        within_span(parent(), client.get_bytes(&bucket(), "o", None)).await.unwrap();
        assert_eq!(parents(&gateway), [PARENT]);
        assert_eq!(parents(&target), [PARENT; 2]);
        client.get_bytes(&bucket(), "o", None).await.unwrap();
        within_span(None, client.get_bytes(&bucket(), "o", None)).await.unwrap();
        assert_eq!(parents(&target)[2..], ["", ""], "other calls have none");
    }

    #[tokio::test]
    async fn the_requests_of_a_batch_have_the_span_of_its_caller() {
        let (gateway, target) = cluster(|_| reply(400, &[], "no batches here")).await;
        let client = client(&gateway.url, TIMEOUT);
        let entries = vec![BatchEntry::whole(0, ObjectName::new("o").unwrap())];
        let request = BatchRequest { buckets: vec![bucket()], entries, ordered: true };
        let _ = within_span(parent(), client.batch_all(&request)).await;
        let parents = parents(&target);
        assert!(!parents.is_empty() && parents.iter().all(|one| one == PARENT), "{parents:?}");
    }

    #[tokio::test]
    async fn tasks_of_a_call_have_the_span_of_its_caller() {
        let (gateway, target) = cluster(|seen| match seen.path.contains("/up") {
            true => reply(200, &[], "id-1"),
            false => reply(404, &[], "no such object"),
        })
        .await;
        let client = client(&gateway.url, TIMEOUT);
        let writing = async {
            let mut upload = client.upload(&bucket(), "up", 2).await.unwrap();
            upload.push(Bytes::from_static(b"part")).await.unwrap();
            upload.finish().await.unwrap();
            client.put(&bucket(), "up", Body::Bytes(Bytes::new()), None).await
        };
        let _ = within_span(parent(), writing).await;
        assert_eq!(parents(&target), [PARENT; 4], "begin, part, complete, put");
        let name = ObjectName::new("shard.tar").unwrap();
        let options = ShardOptions { format: None, naming: None, read_ahead: 1 << 20 };
        let start = || client.read_shard(&bucket(), &name, options);
        let mut stream = start_within_span(parent(), start);
        assert!(stream.next().await.unwrap().is_err());
        assert_eq!(parents(&target)[4..], [PARENT]);
    }

    #[test]
    fn what_the_standard_forbids_is_no_parent() {
        assert_eq!(SpanParent::parse(&PARENT.to_uppercase()), None);
        assert_eq!(SpanParent::parse("00-\r\n"), None);
    }
}
