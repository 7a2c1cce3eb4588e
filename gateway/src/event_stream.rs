//! Answers of server-sent events (`text/event-stream`).

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::url::query_pairs;
use forebay_core::{Error, Result};
use futures::{Stream, StreamExt};
use serde::Serialize;

/// Time without an event after which a comment shows that the stream still works.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);
/// Longest time of a stream. Its reader begins a new one after that, with the rights that it has then.
pub(crate) const LASTS: Duration = Duration::from_secs(600);

/// The time of a stream: that of the parameter `max_s`, and at most [`LASTS`].
pub(crate) fn lasts(query: Option<&str>) -> Result<Duration> {
    let asked = query_pairs(query).into_iter().find(|(key, _)| key == "max_s");
    let Some((_, text)) = asked else { return Ok(LASTS) };
    let seconds = text.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    let bad = || Error::invalid(format!("max_s \"{text}\" is no number of seconds"));
    Ok(seconds.ok_or_else(bad)?.min(LASTS))
}

/// An event with a JSON document.
pub(crate) fn event(name: &str, data: &impl Serialize) -> Bytes {
    match serde_json::to_string(data) {
        // JSON of one line has no line breaks.
        Ok(json) => Bytes::from(format!("event: {name}\ndata: {json}\n\n")),
        Err(e) => {
            tracing::warn!(event = name, error = %e, "an event cannot be written as JSON");
            heartbeat()
        }
    }
}

/// A comment, which readers ignore.
pub(crate) fn heartbeat() -> Bytes {
    Bytes::from_static(b":\n\n")
}

/// The answer that sends these events.
pub(crate) fn response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // A proxy in front of the gateway must not hold events back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events.map(Ok::<_, Infallible>))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_may_ask_for_a_shorter_stream() {
        assert_eq!(lasts(None).ok(), Some(LASTS));
        assert_eq!(lasts(Some("a=b&max_s=0.5")).ok(), Some(Duration::from_millis(500)));
        assert_eq!(lasts(Some("max_s=1e9")).ok(), Some(LASTS));
        assert!(lasts(Some("max_s=-1")).is_err() && lasts(Some("max_s=x")).is_err());
    }

    #[test]
    fn an_event_is_its_name_and_one_line_of_data() {
        let bytes = event("overview", &serde_json::json!({"text": "a\nb"}));
        assert_eq!(&bytes[..], b"event: overview\ndata: {\"text\":\"a\\nb\"}\n\n");
    }
}
