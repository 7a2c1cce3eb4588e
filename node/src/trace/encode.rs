//! Spans as messages of OTLP. They have the fields of [`Span`] and no others.

use std::sync::Arc;

use forebay_core::trace::{Span, SpanId, SpanKind};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource as OtlpResource;
use opentelemetry_proto::tonic::trace::v1::{
    ResourceSpans, ScopeSpans, Span as OtlpSpan, Status, span, status,
};

/// `service.name` of all nodes.
const SERVICE: &str = "forebay";

/// The node that exports.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    pub(super) node: String,
    pub(super) role: &'static str,
}

/// The request that exports these spans.
pub(super) fn request(resource: &Resource, spans: &[Arc<Span>]) -> ExportTraceServiceRequest {
    let attributes = vec![
        text("service.name", SERVICE),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", &resource.node),
        text("forebay.role", resource.role),
    ];
    let resource = OtlpResource { attributes, ..OtlpResource::default() };
    let scope = InstrumentationScope {
        name: SERVICE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = spans.iter().map(|span| message(span)).collect();
    let spans = ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() };
    let all = ResourceSpans {
        resource: Some(resource),
        scope_spans: vec![spans],
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest { resource_spans: vec![all] }
}

fn message(of: &Span) -> OtlpSpan {
    let kind = match of.kind {
        SpanKind::Server => span::SpanKind::Server,
        SpanKind::Client => span::SpanKind::Client,
        SpanKind::Internal => span::SpanKind::Internal,
    };
    let code = if of.is_error { status::StatusCode::Error } else { status::StatusCode::Unset };
    let parent = of.parent.map_or_else(Vec::new, |parent: SpanId| parent.to_bytes().to_vec());
    OtlpSpan {
        trace_id: of.trace.to_bytes().to_vec(),
        span_id: of.span.to_bytes().to_vec(),
        parent_span_id: parent,
        name: of.name.to_string(),
        kind: kind.into(),
        start_time_unix_nano: of.start_ns,
        end_time_unix_nano: of.end_ns,
        attributes: attributes(of),
        status: Some(Status { code: code.into(), ..Status::default() }),
        ..OtlpSpan::default()
    }
}

fn attributes(of: &Span) -> Vec<KeyValue> {
    let mut all = vec![text("forebay.request_id", &of.request.to_string())];
    let api = match of.kind {
        SpanKind::Client => "forebay.provider",
        _ => "forebay.api",
    };
    let texts = [
        (api, &*of.api),
        ("forebay.bucket", &of.bucket),
        ("forebay.object", &of.object),
        ("forebay.result", &of.result),
    ];
    all.extend(texts.iter().filter(|(_, value)| !value.is_empty()).map(|(k, v)| text(k, v)));
    if of.status > 0 {
        all.push(number("http.response.status_code", of.status.into()));
    }
    if of.bytes > 0 {
        all.push(number("forebay.bytes", of.bytes));
    }
    if of.left_out > 0 {
        all.push(number("forebay.spans_left_out", of.left_out.into()));
    }
    all
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::borrow::Cow;

    use forebay_core::request::RequestId;
    use forebay_core::trace::TraceId;
    use prost::Message;

    use super::*;

    #[test]
    fn a_span_has_its_ids_times_and_attributes_after_the_wire() {
        let ids = (TraceId::new(7).unwrap(), SpanId::new(8).unwrap(), SpanId::new(9));
        let span = Span {
            kind: SpanKind::Client,
            end_ns: 30,
            api: Cow::Borrowed("aws"),
            bucket: "s3://b".into(),
            is_error: true,
            bytes: 5,
            ..Span::new(ids, RequestId(1), "backend get", 10)
        };
        let resource = Resource { node: "t1".into(), role: "target" };
        let bytes = request(&resource, &[Arc::new(span)]).encode_to_vec();
        let read = ExportTraceServiceRequest::decode(bytes.as_slice()).unwrap();
        let all = &read.resource_spans[0];
        let found = &all.scope_spans[0].spans[0];
        assert_eq!(found.trace_id, ids.0.to_bytes());
        assert_eq!(found.parent_span_id, ids.2.unwrap().to_bytes());
        assert_eq!((found.start_time_unix_nano, found.end_time_unix_nano), (10, 30));
        assert_eq!(found.status.as_ref().unwrap().code, status::StatusCode::Error as i32);
        let keys: Vec<_> = found.attributes.iter().map(|a| a.key.as_str()).collect();
        let expected =
            ["forebay.request_id", "forebay.provider", "forebay.bucket", "forebay.bytes"];
        assert_eq!(keys, expected);
        let node = all.resource.as_ref().unwrap().attributes.iter();
        assert!(node.into_iter().any(|a| a.key == "service.instance.id"));
    }
}
