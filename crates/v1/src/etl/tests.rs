//! Tests of the messages about transforms.

use std::collections::BTreeMap;

use forebay_core::error::ErrorCode;
use forebay_core::etl::{Etl, EtlCall, EtlFailure, EtlPart, Stage, Transformer};
use forebay_core::name::NodeId;
use serde_json::json;

use super::*;
use crate::query::Query;

fn init(message: Value) -> Result<Etl> {
    requested(message.to_string().as_bytes(), "etl-1".into())
}

/// As the Python client sends it.
fn by_image(image: &str) -> Value {
    json!({"name": "my-etl", "communication": "hpush://", "init_timeout": "5m",
        "obj_timeout": "45s", "support_direct_put": false, "runtime": {"image": image}})
}

#[test]
fn a_service_is_named_by_its_url_where_an_image_stands() {
    let etl = init(by_image("http://10.0.0.1:8000/")).unwrap();
    assert_eq!(etl.by, Transformer::Push { url: "http://10.0.0.1:8000".into() });
    assert_eq!((etl.init_timeout_ms, etl.object_timeout_ms), (300_000, 45_000));
    assert_eq!(
        (etl.name.as_str(), etl.job.as_str(), etl.stage),
        ("my-etl", "etl-1", Stage::Running)
    );
    let mut pull = by_image("https://etl");
    pull["communication"] = json!("hpull");
    assert_eq!(init(pull).unwrap().by, Transformer::Pull { url: "https://etl".into() });
    assert_eq!(
        init(by_image("command://upper")).unwrap().by,
        Transformer::Command { name: "upper".into() }
    );
}

#[test]
fn our_own_form_names_url_or_command() {
    let etl = init(json!({"Name": "my-etl", "url": "http://h:1", "obj_timeout": 2_000_000_000u64}))
        .unwrap();
    assert_eq!(
        (etl.by, etl.object_timeout_ms),
        (Transformer::Push { url: "http://h:1".into() }, 2000)
    );
    assert_eq!(
        etl.init,
        json!({"name": "my-etl", "url": "http://h:1", "obj_timeout": 2_000_000_000u64,
            "communication": "hpush://", "runtime": {"image": "http://h:1"}})
    );
    let etl = init(json!({"name": "my-etl", "command": "upper"})).unwrap();
    assert_eq!(etl.by, Transformer::Command { name: "upper".into() });
}

#[test]
fn what_needs_kubernetes_is_refused_in_so_many_words() {
    for message in [
        by_image("aistorage/runtime_python:3.11"),
        json!({"name": "my-etl", "communication": "hpush://", "spec": "YQ=="}),
    ] {
        let e = init(message).unwrap_err();
        assert_eq!(e.code, ErrorCode::Unsupported);
        assert!(e.message.contains("needs Kubernetes"), "{e}");
    }
}

#[test]
fn bad_messages_are_the_clients_mistake() {
    let with = |key: &str, value: Value| {
        let mut message = by_image("http://h:1");
        message[key] = value;
        message
    };
    let mut line = by_image("http://h:1");
    line["runtime"]["command"] = json!(["rm", "-rf", "/"]);
    let mut pulls = by_image("command://upper");
    pulls["communication"] = json!("hpull://");
    for bad in [
        json!([]),
        json!("x"),
        json!({"name": "my-etl"}),
        with("name", json!(7)),
        with("name", json!("x")),
        with("communication", json!("smoke://")),
        with("obj_timeout", json!("soon")),
        with("obj_timeout", json!(-1)),
        with("obj_timeout", json!([])),
        with("url", json!("http://h:2")),
        by_image("ftp://h:1"),
        by_image("http:///x"),
        line,
        pulls,
    ] {
        let e = init(bad.clone()).unwrap_err();
        assert_eq!(e.code.status(), 400, "{bad}: {e}");
    }
    assert_eq!(init(with("communication", json!("ws://"))).unwrap_err().code.status(), 501);
    assert!(requested(b"{", String::new()).is_err());
}

#[test]
fn an_inline_request_names_transform_arguments_and_pipeline() {
    let call = |q: &str| call_of_query(&Query::parse(Some(q)));
    assert_eq!(call("provider=ais&etl_name=&etl_pipeline=").unwrap(), None);
    let got = call("etl_name=a&etl_args=%7B%22x%22%3A1%7D&etl_pipeline=b,c").unwrap().unwrap();
    assert_eq!((got.name.as_str(), got.args.as_str()), ("a", "{\"x\":1}"));
    assert_eq!(got.pipeline, ["b", "c"]);
    assert!(call("etl_name=a&etl_pipeline=").unwrap().unwrap().pipeline.is_empty());
    assert!(call("etl_pipeline=b").is_err() && call("etl_name=a&etl_pipeline=b,,c").is_err());
}

#[test]
fn an_offline_request_is_read_from_the_actions_value() {
    let call = |v: Value| call_of_value(&v);
    let got =
        call(json!({"id": "a", "request_timeout": "5m", "pipeline": null, "prefix": ""})).unwrap();
    assert_eq!(got, EtlCall { name: "a".into(), ..EtlCall::default() });
    let two = call(json!({"ID": "a", "pipeline": ["b"]})).unwrap();
    assert_eq!(two.pipeline, ["b"]);
    assert_eq!(EtlCall::from(&two.to_task()), two);
    for bad in [
        json!({}),
        json!({"id": 1}),
        json!({"id": "a", "pipeline": "b"}),
        json!({"id": "a", "pipeline": [""]}),
        json!({"id": "a", "request_timeout": "x"}),
    ] {
        assert_eq!(call(bad).unwrap_err().code.status(), 400);
    }
}

#[test]
fn answers_have_the_shapes_of_the_protocol() {
    let etl = init(by_image("http://h:1")).unwrap();
    let failure = EtlFailure { object: "ais://b/o".into(), message: "no".into(), status: 422 };
    let part = EtlPart {
        objects: 2,
        in_bytes: 3,
        out_bytes: 4,
        errors: vec![failure],
        log: "hi\n".into(),
        away: String::new(),
    };
    assert_eq!(
        list_json([(&etl, part.clone())]).to_string(),
        r#"[{"id":"my-etl","in_bytes":3,"obj_count":2,"out_bytes":4,"stage":"Running","xaction_id":"etl-1"}]"#
    );
    let parts = BTreeMap::from([(NodeId::new("target-01").unwrap(), part)]);
    assert_eq!(
        details_json(&etl, &parts),
        json!({"init_msg": by_image("http://h:1"),
            "obj_errors": [{"obj_name": "ais://b/o", "msg": "no", "ecode": 422}]})
    );
    assert_eq!(details_json(&etl, &BTreeMap::new()), json!({"init_msg": by_image("http://h:1")}));
    assert_eq!(logs_json(&parts), json!([{"target_id": "target-01", "logs": "aGkK"}]));
    assert_eq!(
        health_json(&parts),
        json!([{"target_id": "target-01", "health_status": "Running"}])
    );
}

#[test]
fn a_pulled_object_is_the_last_segment() {
    for path in [
        "/v1/etl/_object/ais%2F@%23%2Fb%2Fd%2Fx%20y",
        "/v1/etl/_object/my-etl/secret/ais%2F@%23%2Fb%2Fd%2Fx%20y",
    ] {
        let (bucket, object) = pulled_object(path).unwrap();
        assert_eq!((bucket.to_string().as_str(), object.as_str()), ("ais://b", "d/x y"));
    }
    for bad in ["/v1/etl/_object/", "/v1/etl/_object/ais", "/v1/etl/x"] {
        assert!(pulled_object(bad).is_err(), "{bad}");
    }
}
