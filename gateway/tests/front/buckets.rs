//! Buckets: create, destroy, properties, cloud buckets that are registered on first use.

use serde_json::{Value, json};

use crate::wire::{act, get, send};
use crate::world::{World, map, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_lives_and_dies_with_the_texts_that_clients_parse() {
    let w = World::new(1, 1).await;
    let (url, b) = (w.url(), "/v1/buckets/b?provider=ais");
    act(url, "POST", b, "create-bck", Value::Null).await.expect(200);
    let e = act(url, "POST", b, "create-bck", Value::Null).await.expect(409).json();
    assert_eq!(e["message"], "bucket \"ais://b\" already exists");
    assert_eq!(e["tcode"], "ErrBucketAlreadyExists");
    let list = act(url, "GET", "/v1/buckets?provider=ais", "list", Value::Null).await.expect(200);
    assert_eq!(
        list.json(),
        json!([{"name": "b", "provider": "ais", "namespace": {"uuid": "", "name": ""}}])
    );
    let list = act(url, "GET", "/v1/buckets/?provider=aws", "list", Value::Null).await.expect(200);
    assert_eq!(list.text(), "[]\n");
    let id = map(url).await.unwrap().state.buckets.values().next().unwrap().id;
    act(url, "DELETE", b, "destroy-bck", Value::Null).await.expect(200);
    until("data dropped", async || {
        w.targets[0].holds.lock().unwrap().dropped.contains(&id).then_some(())
    })
    .await;
    let e = act(url, "DELETE", b, "destroy-bck", Value::Null).await.expect(404).json();
    assert_eq!(e["message"], "bucket \"ais://b\" does not exist");
    let head = send(url, "HEAD", b, &[], "").await.expect(404);
    assert!(head.header("hdr-error").contains("\"status\":404"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_names_and_unknown_actions_are_400() {
    let w = World::new(1, 1).await;
    for name in
        ["*", ".", "", "%20", "bucket/badname", "bucket%20and%20name", "$badname", "~badname"]
    {
        for (method, action) in [("POST", "create-bck"), ("DELETE", "destroy-bck")] {
            let path = format!("/v1/buckets/{name}?provider=ais");
            let answer = act(w.url(), method, &path, action, Value::Null).await;
            assert_eq!(answer.status, 400, "{method} {name}: {answer:?}");
        }
    }
    let e =
        act(w.url(), "POST", "/v1/buckets/b", "frobnicate", Value::Null).await.expect(400).json();
    assert!(e["message"].as_str().unwrap().contains("frobnicate"));
    act(w.url(), "GET", "/v1/buckets/b", "summary-shard", Value::Null).await.expect(501);
    for action in ["copy-bck", "etl-bck"] {
        act(w.url(), "POST", "/v1/buckets/b", action, Value::Null).await.expect(404);
    }
    act(w.url(), "POST", "/v1/buckets/b", "destroy-bck", Value::Null).await.expect(400);
    let json = [("content-type", "application/json")];
    send(w.url(), "GET", "/v1/buckets", &json, "").await.expect(400);
    send(w.url(), "GET", "/v1/buckets", &json, "{").await.expect(400);
    get(w.url(), "/v1/buckets").await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn properties_are_set_and_read_back() {
    let w = World::new(1, 1).await;
    let b = "/v1/buckets/b?provider=ais";
    act(w.url(), "POST", b, "create-bck", json!({"checksum": {"type": "md5"}})).await.expect(200);
    let set = json!({"mirror": {"enabled": true}, "freshness": "always"});
    act(w.url(), "PATCH", b, "set-bprops", set).await.expect(200);
    let head = send(w.url(), "HEAD", b, &[], "").await.expect(200);
    let props: Value = serde_json::from_str(head.header("ais-bucket-props")).unwrap();
    assert_eq!(
        (&props["mirror"]["enabled"], &props["checksum"]["type"]),
        (&json!(true), &json!("md5"))
    );
    let kept = json!({"mirror": {"copies": 3, "burst_buffer": 64}, "lru": {"batch_size": 7}});
    let set = act(w.url(), "PATCH", b, "set-bprops", kept).await.expect(200);
    assert_eq!(set.header("forebay-no-effect"), "lru.batch_size, mirror.burst_buffer");
    act(w.url(), "PATCH", b, "set-bprops", json!({"checksum": {"type": "x"}})).await.expect(400);
    let pin = json!({"cache": {"pin": true}});
    let e = act(w.url(), "PATCH", b, "set-bprops", pin).await.expect(400).json();
    assert!(e["message"].as_str().unwrap().contains("no backend"), "{e}");
    act(w.url(), "PATCH", b, "reset-bprops", Value::Null).await.expect(200);
    let head = send(w.url(), "HEAD", b, &[], "").await.expect(200);
    let props: Value = serde_json::from_str(head.header("ais-bucket-props")).unwrap();
    assert_eq!(props["checksum"]["type"], "xxhash2");
    let bmd = get(w.url(), "/v1/daemon?what=bmd").await.expect(200).json();
    assert_eq!(bmd["providers"]["ais"]["@#"]["b"]["provider"], "ais");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_bucket_becomes_known_on_first_use_and_once() {
    let w = World::new(1, 1).await;
    let asked = (0..8).map(|i| async move { i });
    let answers = futures::future::join_all(asked.map(|i| {
        let url = w.url().to_owned();
        async move { get(&url, &format!("/v1/objects/cloud/o{}?provider=s3", i.await)).await }
    }))
    .await;
    assert!(answers.iter().all(|a| a.status == 301), "{answers:?}");
    assert_eq!(w.targets[0].holds.lock().unwrap().backend_heads, 1);
    let e =
        act(w.url(), "DELETE", "/v1/buckets/cloud?provider=aws", "destroy-bck", Value::Null).await;
    e.expect(501);
    let id = async || map(w.url()).await.unwrap().state.buckets.get("aws/@#/cloud/").map(|i| i.id);
    let first = id().await.unwrap();
    let evict = "/v1/buckets/cloud?provider=aws&keep_bck_md=True";
    act(w.url(), "DELETE", evict, "evict-remote-bck", Value::Null).await.expect(200);
    assert_ne!(id().await.unwrap(), first, "old copies must not be served under the kept bucket");
    act(w.url(), "DELETE", "/v1/buckets/cloud?provider=aws", "evict-remote-bck", Value::Null)
        .await
        .expect(200);
    assert_eq!(id().await, None);
    w.targets[0].holds.lock().unwrap().backend_exists = false;
    let e = get(w.url(), "/v1/objects/gone/o?provider=aws").await.expect(404).json();
    assert_eq!(e["message"], "aws bucket \"s3://gone\" does not exist");
    assert_eq!(e["tcode"], "ErrRemoteBckNotFound");
    get(w.url(), "/v1/objects/gone/o?provider=gs").await.expect(404);
    get(w.url(), "/v1/objects/gone/o?provider=azure").await.expect(404);
    get(w.url(), "/v1/objects/gone/o?provider=ht").await.expect(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_is_accepted_first_and_counted_then() {
    let w = World::new(1, 2).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    for (i, target) in w.targets.iter().enumerate() {
        target.holds.lock().unwrap().records = (0..3).map(|n| format!("x/{i}{n}")).collect();
    }
    let ask = async |value| act(w.url(), "GET", "/v1/buckets/b", "summary-bck", value).await;
    let id = ask(json!({"uuid": "", "prefix": "x/1", "cached": true})).await.expect(202).text();
    let numbers = ask(json!({"uuid": id})).await.expect(200).json();
    assert_eq!(numbers[0]["ObjCount"]["obj_count_present"], "3");
    assert_eq!(numbers[0]["TotalSize"]["size_all_present_objs"], "12");
    ask(json!({"uuid": "Unknown123"})).await.expect(404);
    let info = "/v1/buckets/b/x?provider=ais&bsumm_remote=False";
    let first = send(w.url(), "HEAD", info, &[], "").await.expect(202);
    let again = format!("/v1/buckets/b?bsumm_remote=False&uuid={}", first.header("ais-xaction-id"));
    let last = send(w.url(), "HEAD", &again, &[], "").await.expect(200);
    let summ: Value = serde_json::from_str(last.header("ais-bucket-summ")).unwrap();
    assert_eq!(summ["ObjCount"]["obj_count_present"], "6");
}
