//! A finished span: one piece of work for a request, on one node.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{SpanId, TraceId};
use crate::request::RequestId;

/// The role of a span in its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SpanKind {
    /// A request that a node answered.
    Server,
    /// A call to a backend.
    Client,
    /// Work within a node.
    #[default]
    Internal,
}

/// A finished span. It has no queries, headers or URLs, which may hold credentials.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Span {
    pub trace: TraceId,
    pub span: SpanId,
    /// The span that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// Such as `get`, `batch`, `backend get` or `queue`.
    pub name: Cow<'static, str>,
    pub kind: SpanKind,
    /// Unix nanoseconds.
    pub start_ns: u64,
    pub end_ns: u64,
    pub is_error: bool,
    /// Id of the node; empty within that node.
    #[serde(default)]
    pub node: String,
    pub request: RequestId,
    /// URI of the bucket; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bucket: String,
    /// Name of the object; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// Provider of a backend, or API of a request.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub api: Cow<'static, str>,
    /// Result of a request or of a call to a backend, as in the metrics; empty for other spans.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub result: Cow<'static, str>,
    /// Status of the answer; 0: there is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub status: u16,
    /// Bytes sent or received.
    #[serde(default)]
    pub bytes: u64,
    /// Spans of the same request that were left out because it had too many.
    #[serde(default, skip_serializing_if = "is_none_left_out")]
    pub left_out: u32,
}

impl Span {
    /// A span of no length, with nothing known but its ids, its name and its time.
    pub fn new(
        (trace, span, parent): (TraceId, SpanId, Option<SpanId>),
        request: RequestId,
        name: &'static str,
        start_ns: u64,
    ) -> Self {
        Self {
            trace,
            span,
            parent,
            name: Cow::Borrowed(name),
            kind: SpanKind::default(),
            start_ns,
            end_ns: start_ns,
            is_error: false,
            node: String::new(),
            request,
            bucket: String::new(),
            object: String::new(),
            api: Cow::Borrowed(""),
            result: Cow::Borrowed(""),
            status: 0,
            bytes: 0,
            left_out: 0,
        }
    }

    /// Nanoseconds from start to end.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference.
fn is_zero(status: &u16) -> bool {
    *status == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference.
fn is_none_left_out(count: &u32) -> bool {
    *count == 0
}
