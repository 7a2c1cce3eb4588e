//! Requests of other nodes about traces: marks, and what this node has.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_core::Error;
use forebay_core::trace::{TraceKey, TraceMarks, TraceReply, TracesReply};
use forebay_routes::internal;

use super::Tracer;
use crate::reply::{Failure, json};
use crate::routing::RouteSet;

/// The routes of both kinds of nodes.
pub fn routes() -> RouteSet<Tracer> {
    RouteSet::new()
        .on(&internal::TRACE_MARKS, marks)
        .on(&internal::TRACES, traces)
        .on(&internal::TRACE, trace)
}

async fn marks(State(tracer): State<Tracer>, Json(message): Json<TraceMarks>) -> Response {
    tracer.marked(&message.marks);
    json(&serde_json::Value::Null)
}

async fn traces(State(tracer): State<Tracer>) -> Response {
    json(&TracesReply { traces: tracer.summaries(), away: Vec::new() })
}

async fn trace(State(tracer): State<Tracer>, Path(id): Path<String>) -> Result<Response, Failure> {
    let key = key_of(&id)?;
    Ok(json(&TraceReply { spans: tracer.spans(key), away: Vec::new() }))
}

/// The key in a path.
pub fn key_of(id: &str) -> Result<TraceKey, Error> {
    TraceKey::parse(id).ok_or_else(|| {
        Error::invalid("the id of a trace has 32 hexadecimal digits, that of a request 16")
    })
}
