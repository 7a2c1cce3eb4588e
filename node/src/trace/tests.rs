//! Tests of the choice of traces on one node, over its whole way from the request to the listing.

use std::time::Duration;

use forebay_core::config::TraceConfig;
use forebay_core::request::{Caller, Principal, RequestContext, RequestId, Route};
use forebay_core::trace::TraceContext;

use super::*;
use crate::exchange::CurrentRequest;
use crate::metrics::Metrics;

fn tracer(config: &TraceConfig) -> Tracer {
    Tracer::of(config, "t1", None, Metrics::default().traces())
}

fn about(id: u64, trace: Option<TraceContext>) -> RequestContext {
    RequestContext {
        id: RequestId(id),
        protocol: Protocol::V1,
        route: Route::Objects,
        principal: Principal::new(Caller::Anonymous),
        trace,
    }
}

fn sender(is_sampled: bool) -> TraceContext {
    let (trace, span) = (TraceId::new(5).unwrap(), SpanId::new(6).unwrap());
    TraceContext { trace, span, is_sampled }
}

/// Ends a request after a call to a backend.
async fn end(tracer: &Tracer, about: &RequestContext) -> bool {
    let request = CurrentRequest::traced(about.id, tracer.begin(about));
    let call = async {
        let mut call = child("backend get", "aws", "s3://b", "o").unwrap();
        call.set_result("ok", false);
        call.add_bytes(7);
    };
    request.clone().scope(call).await;
    let trace = request.trace().unwrap();
    trace.end(trace.server_span(about.id, "get", Duration::from_millis(2)), None)
}

#[tokio::test]
async fn the_spans_of_a_request_are_one_tree_below_the_span_of_its_sender() {
    let tracer = tracer(&TraceConfig::default());
    assert!(end(&tracer, &about(9, Some(sender(true)))).await);
    let spans = tracer.spans(TraceKey::Request(RequestId(9)));
    let [get, backend] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((get.trace, get.parent), (sender(true).trace, Some(sender(true).span)));
    assert_eq!(backend.parent, Some(get.span));
    assert_eq!((backend.kind, backend.bytes, &*backend.node), (SpanKind::Client, 7, "t1"));
    assert_eq!(tracer.summaries()[0].reason, ChoiceReason::Sampled);
}

#[tokio::test]
async fn a_request_that_nobody_samples_is_listed_only_after_a_mark() {
    let tracer = tracer(&TraceConfig::default());
    assert!(!end(&tracer, &about(9, None)).await);
    assert!(tracer.summaries().is_empty());
    assert_eq!(tracer.spans(TraceKey::Request(RequestId(9))).len(), 2);
    let trace = TraceId::of_request(RequestId(9));
    tracer.marked(&[TraceMark { trace, reason: ChoiceReason::Failed }]);
    let summary = tracer.summaries().remove(0);
    assert_eq!((summary.trace, summary.spans, summary.reason), (trace, 2, ChoiceReason::Failed));
    // Spans that end after the mark belong to the trace.
    assert!(end(&tracer, &about(9, None)).await);
    assert_eq!(tracer.summaries()[0].spans, 4);
}

#[tokio::test]
async fn a_request_that_is_slow_already_is_chosen_when_a_call_for_it_ends() {
    let tracer = tracer(&TraceConfig { slow_ms: 1, ..TraceConfig::default() });
    let request = CurrentRequest::traced(RequestId(9), tracer.begin(&about(9, None)));
    let work = async {
        let call = child("backend get", "aws", "s3://b", "o");
        tokio::time::sleep(Duration::from_millis(2)).await;
        drop(call);
    };
    request.scope(work).await;
    let summary = tracer.summaries().remove(0);
    assert_eq!((summary.spans, summary.reason), (1, ChoiceReason::Slow));
}

#[test]
fn the_configured_share_of_requests_is_sampled_by_their_ids() {
    let sampled = |sample: f64| {
        let tracer = tracer(&TraceConfig { sample, ..TraceConfig::default() });
        let ids = (0..1_000_u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        ids.filter(|id| tracer.has_small(&about(*id, None), Duration::ZERO)).count()
    };
    assert_eq!((sampled(0.0), sampled(1.0)), (0, 1_000));
    assert!((95..=105).contains(&sampled(0.1)), "{}", sampled(0.1));
}

#[test]
fn small_reads_have_a_span_only_if_sampled_or_slow() {
    let tracer = tracer(&TraceConfig::default());
    let quick = Duration::from_micros(20);
    assert!(!tracer.has_small(&about(9, None), quick));
    assert!(!tracer.has_small(&about(9, Some(sender(false))), quick));
    assert!(tracer.has_small(&about(9, Some(sender(true))), quick));
    assert!(tracer.has_small(&about(9, None), Duration::from_secs(1)));
    let trace = tracer.finish_small(&about(9, None), Duration::from_secs(1), |_| {});
    assert_eq!(tracer.summaries()[0].trace, trace);
}

#[tokio::test]
async fn the_spans_of_one_request_are_bounded_and_the_others_counted() {
    let tracer = tracer(&TraceConfig { sample: 1.0, ..TraceConfig::default() });
    let request = CurrentRequest::traced(RequestId(9), tracer.begin(&about(9, None)));
    let work = async { (0..600).filter(|_| child("backend get", "aws", "", "").is_some()).count() };
    assert_eq!(request.clone().scope(work).await, 512);
    let span = request.trace().unwrap().server_span(RequestId(9), "batch", Duration::ZERO);
    assert_eq!(span.left_out, 88);
}

#[test]
fn without_traces_there_are_no_spans() {
    let off = Tracer::default();
    assert!(off.begin(&about(9, Some(sender(true)))).is_none());
    assert!(!off.has_small(&about(9, Some(sender(true))), Duration::from_secs(9)));
    let tracer = tracer(&TraceConfig::default());
    let internal = RequestContext { protocol: Protocol::Internal, ..about(9, None) };
    assert!(tracer.begin(&internal).is_none(), "it works for no client");
}
