//! Retries, limits and counting, over a folder with injected faults.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo};
use forebay_core::cloud_rules::{CloudRule, CloudRules};
use forebay_core::error::{Error, ErrorCode};
use forebay_core::name::{Bucket, Provider};
use forebay_core::size::ByteRange;
use forebay_node::pace::Pace;
use futures::StreamExt;
use tokio::sync::Semaphore;

use super::{Fixture, collect, content, failure, folder, read};
use crate::limit::{Limited, Limits};
use crate::metered::Metered;
use crate::retry::Retrying;
use crate::timed::Timed;
use crate::{Backend, BackendSettings, Backends, Fault, Faulty, Op, PutBody, RetryPolicy};

fn policy() -> RetryPolicy {
    RetryPolicy {
        attempts: 4,
        first_pause: Duration::from_millis(1),
        stall: Duration::from_millis(200),
        ..RetryPolicy::default()
    }
}

struct Shaky {
    fixture: Fixture,
    faulty: Arc<Faulty>,
    backend: Retrying,
}

fn limits(rules: CloudRules) -> Arc<Limits> {
    Arc::new(Limits::new(&rules, 64, Arc::new(Semaphore::new(64)), 1))
}

async fn shaky() -> Shaky {
    let fixture = folder::fixture().await.unwrap();
    let faulty = Arc::new(Faulty::new(Arc::clone(&fixture.backend)));
    // One permit: a body that is resumed must have returned its own.
    let limits = limits(CloudRules::default().with(CloudRule::Concurrency, 1));
    let limited = Limited::new(Arc::clone(&faulty) as _, limits, Duration::from_secs(5));
    let backend = Retrying::new(Arc::new(limited), policy());
    Shaky { fixture, faulty, backend }
}

fn away() -> Fault {
    Fault::Fail(Error::new(ErrorCode::Unavailable, "away"))
}

#[tokio::test]
async fn transient_failures_are_tried_again_and_others_are_not() {
    let s = shaky().await;
    s.faulty.on_call(Op::Put, 1, away());
    s.faulty.on_call(Op::Put, 2, Fault::LoseAnswer(Error::new(ErrorCode::Timeout, "lost")));
    s.backend.put("x", PutBody::from_bytes("x")).await.unwrap();
    assert_eq!(s.faulty.calls(Op::Put), 3);
    s.faulty.on_call(Op::Stat, 1, Fault::Fail(Error::new(ErrorCode::AccessDenied, "no")));
    assert_eq!(failure(s.backend.stat("x").await).code, ErrorCode::AccessDenied);
    assert_eq!(s.faulty.calls(Op::Stat), 1);
    s.faulty.on_every(Op::List, Some(away()));
    let error = failure(s.backend.list("", "".into(), 1).await);
    assert_eq!((error.code, error.retry_after_s), (ErrorCode::Unavailable, Some(3)));
    assert_eq!(s.faulty.calls(Op::List), 4);
}

#[tokio::test]
async fn a_time_to_return_is_obeyed_within_the_deadline() {
    let s = shaky().await;
    let busy = Error::new(ErrorCode::TooManyRequests, "busy");
    s.faulty.on_call(Op::HeadBucket, 1, Fault::Fail(busy.clone().retry_after(1)));
    let start = Instant::now();
    s.backend.head_bucket().await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
    s.faulty.on_call(Op::HeadBucket, 3, Fault::Fail(busy.retry_after(60)));
    let start = Instant::now();
    let error = failure(s.backend.head_bucket().await);
    assert_eq!((error.code, error.retry_after_s), (ErrorCode::TooManyRequests, Some(60)));
    assert!(start.elapsed() < Duration::from_secs(10), "nobody waits beyond the deadline");
}

#[tokio::test]
async fn retry_pauses_of_a_request_are_kept_to_the_millisecond() {
    let s = shaky().await;
    let header = "attempts=4,first_pause_ms=60,multiplier=2,longest_pause_ms=120,jitter=0";
    let policy = RetryPolicy::default().by(&CloudRules::parse_header(header).unwrap());
    let backend = Retrying::new(Arc::clone(&s.faulty) as _, policy.clone());
    s.faulty.on_every(Op::Stat, Some(away()));
    let start = Instant::now();
    failure(backend.stat("x").await);
    let took = start.elapsed();
    assert_eq!(s.faulty.calls(Op::Stat), 4);
    let pauses = Duration::from_millis(60 + 120 + 120);
    assert!((pauses..pauses + Duration::from_millis(200)).contains(&took), "{took:?}");

    // The third call would start after the deadline.
    let hasty = RetryPolicy { deadline: Duration::from_millis(150), ..policy };
    let backend = Retrying::new(Arc::clone(&s.faulty) as _, hasty);
    let start = Instant::now();
    failure(backend.stat("x").await);
    assert_eq!(s.faulty.calls(Op::Stat), 4 + 2);
    assert!(start.elapsed() < Duration::from_millis(150));
}

#[tokio::test]
async fn a_call_that_is_not_answered_in_time_is_made_again() {
    let s = shaky().await;
    s.backend.put("x", PutBody::from_bytes("x")).await.unwrap();
    let answer = Duration::from_millis(100);
    let timed = Timed::new(Arc::clone(&s.faulty) as _, answer);
    let backend = Retrying::new(Arc::new(timed), policy());
    s.faulty.on_call(Op::Get, 1, Fault::Delay(Duration::from_secs(60)));
    let start = Instant::now();
    assert_eq!(read(&backend, "x").await.unwrap(), "x");
    assert!(start.elapsed() < Duration::from_secs(5));
    s.faulty.on_every(Op::Stat, Some(Fault::Delay(Duration::from_secs(60))));
    let error = failure(backend.stat("x").await);
    assert_eq!(error.code, ErrorCode::Timeout);
    assert!(error.hint.unwrap().contains("cloud.answer_ms"));
}

#[tokio::test]
async fn a_budget_of_requests_spreads_them_over_the_second() {
    let f = folder::fixture().await.unwrap();
    let limits = limits(CloudRules::default().with(CloudRule::RequestsPerSecond, 20));
    let limited = Limited::new(f.backend, limits, Duration::from_secs(5));
    let start = Instant::now();
    for _ in 0..7 {
        limited.head_bucket().await.unwrap();
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
}

#[tokio::test]
async fn a_budget_of_bytes_holds_for_all_bodies_and_is_no_stall() {
    let f = folder::fixture().await.unwrap();
    f.backend.put("x", PutBody::from_bytes(content(200_000, 1))).await.unwrap();
    let impatient = RetryPolicy { stall: Duration::from_millis(50), ..policy() };
    let pace = Arc::new(Pace::new(800_000.0, 1));
    let backend = Arc::new(Retrying::new(f.backend, impatient).paced(pace));
    let start = Instant::now();
    let (one, two) = tokio::join!(read(&*backend, "x"), read(&*backend, "x"));
    assert_eq!((one.unwrap().len(), two.unwrap().len()), (200_000, 200_000));
    // The last chunk is sent after the time of those before it.
    assert!(start.elapsed() >= Duration::from_millis(150), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_delete_whose_answer_was_lost_succeeds() {
    let s = shaky().await;
    s.backend.put("x", PutBody::from_bytes("x")).await.unwrap();
    let lost = Error::new(ErrorCode::Unavailable, "lost");
    s.faulty.on_call(Op::Delete, 1, Fault::LoseAnswer(lost));
    s.backend.delete("x").await.unwrap();
    assert_eq!(failure(s.backend.delete("x").await).code, ErrorCode::ObjectNotFound);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_resumed_where_it_stopped() {
    let s = shaky().await;
    let bytes = content(3_000_000, 5);
    s.backend.put("x", PutBody::from_bytes(bytes.clone())).await.unwrap();
    let faults = [
        [Fault::Truncate(100), Fault::Truncate(1_500_000)],
        [Fault::Break(0), Fault::Break(2_000_000)],
        [Fault::Stall(1_000_000), Fault::Truncate(0)],
    ];
    for (round, [first, second]) in faults.into_iter().enumerate() {
        let calls = s.faulty.calls(Op::Get);
        s.faulty.on_call(Op::Get, calls + 1, first);
        s.faulty.on_call(Op::Get, calls + 2, second);
        assert!(read(&s.backend, "x").await.unwrap() == bytes, "round {round}");
        assert_eq!(s.faulty.calls(Op::Get), calls + 3, "round {round}");
    }
    let calls = s.faulty.calls(Op::Get);
    s.faulty.on_call(Op::Get, calls + 1, Fault::Truncate(7));
    let range = ByteRange { start: 1_000, end: 2_000 };
    let part = s.backend.get("x", Some(range), None).await.unwrap();
    assert_eq!(collect(part.stream).await.unwrap(), bytes.slice(1_000..2_000));
}

#[tokio::test]
async fn a_body_that_keeps_breaking_is_an_error_never_short() {
    let s = shaky().await;
    s.backend.put("x", PutBody::from_bytes(content(1000, 1))).await.unwrap();
    s.faulty.on_every(Op::Get, Some(Fault::Truncate(0)));
    let error = failure(read(&s.backend, "x").await);
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.message.contains("ended too early"), "{error}");
    assert_eq!(s.faulty.calls(Op::Get), 4);
}

#[tokio::test]
async fn an_object_replaced_midway_is_not_stitched_together() {
    let s = shaky().await;
    s.backend.put("x", PutBody::from_bytes(content(2_000_000, 1))).await.unwrap();
    s.faulty.on_call(Op::Get, 1, Fault::Truncate(10));
    let mut got = s.backend.get("x", None, None).await.unwrap();
    assert_eq!(got.stream.next().await.unwrap().unwrap().len(), 10);
    let replaced = PutBody::from_bytes(content(2_000_000, 2));
    s.fixture.backend.put("x", replaced).await.unwrap();
    let error = got.stream.next().await.unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::ObjectChanged);
    assert!(got.stream.next().await.is_none());
}

#[tokio::test]
async fn bodies_count_against_the_limit_until_they_are_dropped() {
    let f = folder::fixture().await.unwrap();
    f.backend.put("x", PutBody::from_bytes("x")).await.unwrap();
    let permits = Arc::new(Semaphore::new(2));
    let limits = Arc::new(Limits::new(&CloudRules::default(), 64, Arc::clone(&permits), 1));
    let limited = Limited::new(f.backend, limits, Duration::from_millis(50));
    let first = limited.get("x", None, None).await.unwrap();
    let second = limited.get("x", None, None).await.unwrap();
    let error = failure(limited.stat("x").await);
    assert_eq!((error.code, error.retry_after_s), (ErrorCode::TooManyRequests, Some(1)));
    drop(first);
    limited.stat("x").await.unwrap();
    assert_eq!(collect(second.stream).await.unwrap(), "x");
    assert_eq!(permits.available_permits(), 2);
}

#[tokio::test]
async fn every_call_that_reaches_a_backend_is_counted_with_its_result() {
    let f = folder::fixture().await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let hook = Arc::new(move |provider, op, result, _| {
        kept.lock().unwrap().push((provider, op, result));
    });
    let faulty = Arc::new(Faulty::new(f.backend));
    faulty.on_call(Op::Put, 1, away());
    let metered = Metered::new(faulty, "folder", hook);
    let backend = Retrying::new(Arc::new(metered), policy());
    backend.put("x", PutBody::from_bytes("x")).await.unwrap();
    read(&backend, "x").await.unwrap();
    failure(backend.get("x", None, Some("other")).await);
    failure(backend.stat("y").await);
    backend.list("", "".into(), 1).await.unwrap();
    backend.head_bucket().await.unwrap();
    backend.delete("x").await.unwrap();
    let expected = [
        ("put", "unavailable"),
        ("put", "ok"),
        ("get", "ok"),
        ("get", "changed"),
        ("stat", "not_found"),
        ("list", "ok"),
        ("head_bucket", "ok"),
        ("delete", "ok"),
    ];
    assert_eq!(*seen.lock().unwrap(), expected.map(|(op, result)| ("folder", op, result)));
}

#[tokio::test]
async fn a_bucket_keeps_its_backend_until_its_spec_changes() {
    let folder = tempfile::tempdir().unwrap();
    let spec = |name: &str| {
        let root = folder.path().join(name);
        std::fs::create_dir_all(&root).unwrap();
        let root = Some(root.display().to_string());
        BackendSpec { root, ..BackendSpec::new(BackendKind::Folder, "") }
    };
    let bucket = Bucket::new(Provider::Ais, "b").unwrap();
    let mut info = BucketInfo::requested(bucket, Some(spec("one")));
    info.id = 7;
    let roots = vec![folder.path().to_owned()];
    let settings = BackendSettings { folder_roots: roots, ..BackendSettings::default() };
    let backends = Backends::new(settings, Arc::new(|_, _, _, _| {}));
    let first = backends.for_bucket(&info).await.unwrap();
    assert!(Arc::ptr_eq(&first, &backends.for_bucket(&info).await.unwrap()));
    first.put("x", PutBody::from_bytes("1")).await.unwrap();
    info.backend = Some(spec("two"));
    let second = backends.for_bucket(&info).await.unwrap();
    assert_eq!(failure(second.stat("x").await).code, ErrorCode::ObjectNotFound);
    // Timeouts of a request are its own; learned limits of the backend are shared.
    info.cloud = info.cloud.with(CloudRule::Attempts, 2);
    let patient = backends.for_bucket(&info).await.unwrap();
    assert!(!Arc::ptr_eq(&second, &patient));
    assert!(Arc::ptr_eq(&patient, &backends.for_bucket(&info).await.unwrap()));
    backends.forget(7);
    assert!(!Arc::ptr_eq(&second, &backends.for_bucket(&info).await.unwrap()));
    info.backend = None;
    assert_eq!(failure(backends.for_bucket(&info).await).code, ErrorCode::InvalidArgument);
}
