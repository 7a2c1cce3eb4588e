//! Tests of exchanges: when a request counts, as what, and what is logged.

use axum::body::Body;
use forebay_core::request::{Caller, Principal, Route};
use forebay_core::{Error, ErrorCode};

use super::*;

fn observer() -> (Arc<Observer>, RequestMetrics) {
    let metrics = RequestMetrics::new(&Families::default());
    (Arc::new(Observer::new(metrics.clone(), &LogConfig::default())), metrics)
}

fn begin(observer: &Arc<Observer>, method: Method) -> Exchange {
    let peer = Peer(IpAddr::from([10, 0, 0, 7]));
    let mut exchange =
        Exchange::begin(observer, RequestId(1), method, Uri::from_static("/v1/objects/b/o"), peer);
    exchange.admitted(&RequestContext {
        id: RequestId(2),
        protocol: Protocol::V1,
        route: Route::Objects,
        principal: Principal::new(Caller::Anonymous),
        trace: None,
    });
    exchange.current().set_route("get");
    exchange
}

fn count(metrics: &RequestMetrics, outcome: Outcome) -> u64 {
    metrics.counts().with_label_values(&["v1", "get", outcome.name()]).get()
}

fn answer(body: Body) -> Response {
    Response::new(body)
}

#[test]
fn a_request_counts_when_the_last_byte_of_its_answer_is_passed_on() {
    let (observer, metrics) = observer();
    let mut exchange = begin(&observer, Method::GET);
    let mut response = answer(Body::from("hello"));
    exchange.answered(&mut response);
    assert_eq!(response.headers()[REQUEST_ID_HEADER], "0000000000000002");
    exchange.sent(4);
    assert_eq!(count(&metrics, Outcome::Ok), 0);
    exchange.sent(1);
    assert_eq!(count(&metrics, Outcome::Ok), 1);
    drop(exchange);
    assert_eq!(count(&metrics, Outcome::Aborted), 0);
}

#[test]
fn a_request_without_a_body_in_its_answer_counts_at_the_head() {
    let (observer, metrics) = observer();
    begin(&observer, Method::GET).answered(&mut answer(Body::empty()));
    begin(&observer, Method::HEAD).answered(&mut answer(Body::from("no body of a HEAD")));
    assert_eq!(count(&metrics, Outcome::Ok), 2);
}

#[test]
fn a_client_that_leaves_early_and_an_answer_that_breaks_off_count_separately() {
    let (observer, metrics) = observer();
    let mut left = begin(&observer, Method::GET);
    left.answered(&mut answer(Body::from("hello")));
    left.sent(2);
    drop(left);
    drop(begin(&observer, Method::GET));
    let mut broke = begin(&observer, Method::GET);
    broke.answered(&mut answer(Body::from("hello")));
    broke.broke("the disk failed");
    drop(broke);
    assert_eq!((count(&metrics, Outcome::Aborted), count(&metrics, Outcome::Error)), (2, 1));
}

#[test]
fn a_failure_counts_by_its_status() {
    let (observer, metrics) = observer();
    for (code, outcome) in [
        (ErrorCode::ObjectNotFound, Outcome::NotFound),
        (ErrorCode::WrongOwner, Outcome::WrongOwner),
        (ErrorCode::TooManyRequests, Outcome::Busy),
        (ErrorCode::AccessDenied, Outcome::Refused),
        (ErrorCode::Unavailable, Outcome::Error),
    ] {
        let mut response = answer(Body::empty());
        *response.status_mut() = StatusCode::from_u16(code.status()).unwrap_or_default();
        response.extensions_mut().insert(Error::new(code, "failed"));
        begin(&observer, Method::GET).answered(&mut response);
        assert_eq!(count(&metrics, outcome), 1, "{code:?}");
    }
}

#[test]
fn an_access_line_is_written_for_the_configured_share_of_the_ids() {
    let with = |access_share| {
        let config = LogConfig { access_share, ..LogConfig::default() };
        Observer::new(RequestMetrics::new(&Families::default()), &config)
    };
    let ids = |n: u64| RequestId(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let logged = |observer: &Observer| (0..1_000).filter(|n| observer.is_logged(ids(*n))).count();
    assert_eq!(logged(&with(0.0)), 0);
    assert_eq!(logged(&with(1.0)), 1_000);
    let tenth = logged(&with(0.1));
    assert!((95..=105).contains(&tenth), "{tenth}");
}
