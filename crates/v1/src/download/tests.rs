//! Tests of the downloader's messages.

use forebay_core::download::{DownloadSpec, DownloadStatus, Task, What};
use serde_json::json;

use super::*;

fn spec(message: Value) -> Result<DownloadSpec> {
    requested(message.to_string().as_bytes(), "dnl-1".into())
}

fn with(mut extra: Value) -> Value {
    extra["bucket"] =
        json!({"name": "b", "provider": "ais", "namespace": {"uuid": "", "name": ""}});
    extra
}

fn objects(spec: &DownloadSpec) -> &[(String, String)] {
    match &spec.what {
        What::Objects(list) => list,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_object_by_its_link() {
    let s = spec(with(json!({"type": "single", "link": "h/d/x.tar?k=v", "timeout": "5m",
        "limits": {"connections": 3, "bytes_per_hour": 1000},
        "headers": {"X-One": ["1", "2"], "x-two": "3"}})))
    .unwrap();
    assert_eq!(objects(&s), [("x.tar".into(), "http://h/d/x.tar?k=v".into())]);
    assert_eq!((s.timeout_ms, s.limits.connections, s.limits.bytes_per_hour), (300_000, 3, 1000));
    assert_eq!(s.description, "http://h/d/x.tar?k=*** -> ais://b/x.tar");
    let lines: Vec<_> = s.headers.iter().map(|(n, v)| format!("{n}:{v}")).collect();
    assert_eq!(lines, ["x-one:1", "x-one:2", "x-two:3"]);
    let s = spec(with(
        json!({"type": "single", "object_name": "a/b", "link": "", "from_remote": true}),
    ));
    assert_eq!(objects(&s.unwrap()), [("a/b".into(), String::new())]);
}

#[test]
fn many_objects_as_a_list_or_by_name() {
    let s =
        spec(with(json!({"type": "multi", "objects": ["http://h/a", "https://h/d/b"]}))).unwrap();
    assert_eq!(objects(&s)[1], ("b".into(), "https://h/d/b".into()));
    let s = spec(with(json!({"type": "multi", "description": "mine", "objects": {"x/y": "h/a"}})))
        .unwrap();
    assert_eq!(objects(&s), [("x/y".into(), "http://h/a".into())]);
    assert_eq!(s.description, "mine");
}

#[test]
fn ranges_and_backends() {
    let s =
        spec(with(json!({"type": "range", "template": "h/x-{0..9}.tar", "subdir": "in"}))).unwrap();
    assert_eq!(s.what, What::Range { template: "h/x-{0..9}.tar".into(), subdir: "in".into() });
    let s = spec(with(json!({"type": "backend", "prefix": "p", "synchronize": true}))).unwrap();
    assert_eq!(s.what, What::Backend { prefix: "p".into(), suffix: String::new(), sync: true });
}

#[test]
fn bad_requests_are_refused_before_anything_starts() {
    for bad in [
        json!([]),
        json!({"type": "single", "link": "http://h/x"}),
        with(json!({})),
        with(json!({"type": "all"})),
        with(json!({"type": "single"})),
        with(json!({"type": "single", "link": 5})),
        with(json!({"type": "single", "link": "http://h"})),
        with(json!({"type": "single", "link": "file:///etc/passwd", "object_name": "x"})),
        with(json!({"type": "single", "link": "http://h/x", "object_name": "../x"})),
        with(json!({"type": "single", "link": "http://h/x", "timeout": "later"})),
        with(json!({"type": "single", "link": "http://h/x", "limits": {"connections": -1}})),
        with(json!({"type": "single", "link": "http://h/x", "headers": {"Host": "other"}})),
        with(json!({"type": "single", "link": "http://h/x", "headers": {"a": "b\r\nc: d"}})),
        with(json!({"type": "multi"})),
        with(json!({"type": "multi", "objects": "http://h/x"})),
        with(json!({"type": "multi", "objects": [1]})),
        with(json!({"type": "range", "template": "http://h/x"})),
        with(json!({"type": "range", "template": "http://h/{0..99999999}"})),
    ] {
        assert_eq!(spec(bad.clone()).unwrap_err().code.status(), 400, "{bad}");
    }
    let etl = with(json!({"type": "single", "link": "http://h/x", "etl_name": "my-etl"}));
    assert_eq!(spec(etl).unwrap_err().code.status(), 501);
}

#[test]
fn questions() {
    let q = |t: &str| Question::parse(t.as_bytes());
    assert!(q("").unwrap().one().is_err());
    let one = q(r#"{"id":"dnl-1","regex":"","only_active_tasks":true}"#).unwrap();
    assert_eq!((one.one().unwrap(), one.only_active), ("dnl-1", true));
    assert!(q(r#"{"id":"a","regex":"b"}"#).is_err() && q(r#"{"regex":"("}"#).is_err());
    assert!(q(r#"{"id":5}"#).is_err());
    let s = DownloadStatus::new(&spec(with(json!({"type": "single", "link": "h/x"}))).unwrap(), 1);
    assert!(q(r#"{"regex":"^http"}"#).unwrap().matches(&s));
    assert!(!q(r#"{"regex":"^ftp"}"#).unwrap().matches(&s));
}

#[test]
fn a_status_has_the_shape_of_the_protocol() {
    let spec = spec(with(json!({"type": "single", "link": "h/x"}))).unwrap();
    let mut s = DownloadStatus::new(&spec, 1_000_000_000);
    s.total = 1;
    assert_eq!(
        job_json(&s),
        json!({"id": "dnl-1", "xaction_id": "dnl-1", "description": "http://h/x -> ais://b/x",
            "started_time": "1970-01-01T00:00:01.000000000Z",
            "finished_time": "0001-01-01T00:00:00Z", "finished_cnt": 0, "scheduled_cnt": 0,
            "skipped_cnt": 0, "error_cnt": 0, "total": 1, "all_dispatched": false, "aborted": false})
    );
    s.done.push(Task {
        name: "x".into(),
        bytes: 5,
        total: 0,
        started_ns: 1_000_000_000,
        ended_ns: 0,
    });
    s.failures.push(("y".into(), "gone".into()));
    let full = status_json(&s, false);
    assert_eq!(full["finished_tasks"][0]["downloaded"], "5");
    assert!(
        full["finished_tasks"][0].get("total").is_none() && full.get("current_tasks").is_none()
    );
    assert_eq!(full["download_errors"], json!([{"name": "y", "error": "gone"}]));
    assert!(status_json(&s, true).get("finished_tasks").is_none());
}
