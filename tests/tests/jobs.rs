//! Jobs on many objects as foreign clients request them: copies, renames, archives, and queries
//! about jobs.

use std::sync::Arc;

use forebay_core::Bucket;
use forebay_tests::cluster::{Cluster, Options, native};
use forebay_tests::{Shared, http, wait};
use serde_json::{Value, json};

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(|| Cluster::start(Options { gateways: 2, ..Options::default() }))
}

/// Sends a control message about a bucket; `to` is the name of another one.
fn act(method: &str, bucket: &str, to: &str, action: &str, value: Value) -> http::Answer {
    let to = if to.is_empty() { String::new() } else { format!("?bck_to=ais/@%23/{to}/") };
    let url = format!("{}/v1/buckets/{bucket}{to}", cluster().endpoint);
    let message = json!({"action": action, "name": "", "value": value});
    http::request(method, &url).json(&message).send()
}

fn control(action: &str, value: Value) -> http::Answer {
    let url = format!("{}/v1/cluster", cluster().endpoint);
    http::request("PUT", &url).json(&json!({"action": action, "value": value})).send()
}

/// Asks every gateway about jobs; all must have an answer.
fn ask(what: &str, value: Value) -> Vec<http::Answer> {
    let cluster = cluster();
    let ask = |url: &str| {
        let url = format!("{url}/v1/cluster?what={what}");
        http::request("GET", &url).json(&value).send()
    };
    cluster.gateways.iter().map(|g| ask(&g.url)).collect()
}

/// Waits for a job's end; returns its `status` reply.
async fn ended(started: http::Answer) -> Value {
    assert_eq!(started.status, 200, "{}", started.text());
    let id = started.text();
    assert!(id.len() >= 9, "{id}");
    wait::until_async("the job is over", std::time::Duration::from_secs(20), || {
        let id = id.clone();
        async move {
            let mut answers = ask("status", json!({"id": id})).into_iter();
            answers.all(|a| a.status == 200 && a.json()["end_time"] != 0)
        }
    })
    .await;
    ask("status", json!({"id": id}))[0].json()
}

async fn filled(name: &str, objects: &[&str]) -> Bucket {
    let (client, bucket) = (cluster().client(), native(name));
    client.create_bucket(&bucket, None).await.unwrap();
    for object in objects {
        client.put(&bucket, object, format!("bytes of {object}").into_bytes(), None).await.unwrap();
    }
    bucket
}

async fn names(bucket: &str) -> Vec<String> {
    let listed = cluster().client().list_all(&native(bucket), "").await.unwrap();
    listed.into_iter().map(|entry| entry.0).collect()
}

fn content(bucket: &str, name: &str) -> String {
    http::get(&cluster().object_url(bucket, name)).follow_text()
}

trait FollowText {
    fn follow_text(self) -> String;
}

impl FollowText for http::Answer {
    fn follow_text(self) -> String {
        match self.header("location") {
            Some(location) => http::get(location).text(),
            None => self.text(),
        }
    }
}

#[tokio::test]
async fn a_bucket_is_copied_under_new_names_into_one_that_is_made() {
    let _running = cluster();
    filled("copy-from", &["p/a.jpg", "p/b.txt", "q/c.jpg"]).await;
    let value = json!({"prefix": "p/", "prepend": "new-", "ext": {"jpg": "png"}, "num-workers": 3});
    let started = act("POST", "copy-from", "copy-to", "copy-bck", value);
    let id = started.text();
    assert_eq!(ended(started).await["err"], "");
    assert_eq!(names("copy-to").await, ["new-p/a.png", "new-p/b.txt"]);
    assert_eq!(content("copy-to", "new-p/a.png"), "bytes of p/a.jpg");
    let snapshots = ask("qryxstats", json!({"id": id}))[0].json();
    let parts: Vec<&Value> =
        snapshots.as_object().unwrap().values().flat_map(|l| l.as_array().unwrap()).collect();
    assert_eq!(parts.len(), 3);
    for part in parts {
        assert_eq!((&part["kind"], &part["is_idle"]), (&json!("copy-bck"), &json!(true)));
        assert_eq!(part["glob.id"], (3 << 10).to_string());
        assert_eq!(
            (&part["src-bck"]["name"], &part["dst-bck"]["name"]),
            (&json!("copy-from"), &json!("copy-to"))
        );
    }
}

#[tokio::test]
async fn a_dry_run_counts_and_writes_nothing() {
    let _running = cluster();
    filled("dry", &["a", "b"]).await;
    let status = ended(act("POST", "dry", "dry-to", "copy-bck", json!({"dry_run": true}))).await;
    assert_eq!(status["err"], "");
    let missing =
        http::request("HEAD", &format!("{}/v1/buckets/dry-to", cluster().endpoint)).send();
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn a_renamed_bucket_has_all_its_objects_immediately_and_its_old_name_is_free() {
    let _running = cluster();
    let objects: Vec<String> = (0..30).map(|i| format!("dir/o-{i:02}")).collect();
    let refs: Vec<&str> = objects.iter().map(String::as_str).collect();
    filled("old-name", &refs).await;
    let started = act("POST", "old-name", "new-name", "move-bck", Value::Null);
    assert_eq!(names("new-name").await, objects, "at once");
    assert_eq!(content("new-name", "dir/o-07"), "bytes of dir/o-07");
    assert_eq!(ended(started).await["err"], "");
    assert_eq!(names("new-name").await, objects);
    for object in &objects {
        assert_eq!(content("new-name", object), format!("bytes of {object}"));
    }
    let value = json!({"template": "dir/o-{00..28}"});
    assert_eq!(ended(act("DELETE", "new-name", "", "delete-listrange", value)).await["err"], "");
    assert_eq!(names("new-name").await, ["dir/o-29"]);
    filled("old-name", &[]).await;
    assert!(names("old-name").await.is_empty());
    let taken = act("POST", "old-name", "new-name", "move-bck", Value::Null);
    assert_eq!(taken.status, 409, "{}", taken.text());
}

#[tokio::test]
async fn objects_become_a_shard_and_more_are_added_to_it() {
    let _running = cluster();
    filled("pack", &["x/a", "x/b", "c"]).await;
    for ext in ["tar", "tgz", "tar.lz4", "zip"] {
        let shard = format!("s.{ext}");
        let value = json!({"archname": shard, "objnames": ["x/b", "x/a"]});
        assert_eq!(ended(act("PUT", "pack", "", "archive", value)).await["err"], "");
        let value = json!({"archname": shard, "template": "c", "aate": true, "isbn": true});
        assert_eq!(ended(act("PUT", "pack", "", "archive", value)).await["err"], "");
        for (member, bytes) in [("x/a", "x/a"), ("x/b", "x/b"), ("pack/c", "c")] {
            let url = cluster().object_url("pack", &format!("{shard}?archpath={member}"));
            assert_eq!(http::get(&url).follow_text(), format!("bytes of {bytes}"), "{ext}");
        }
    }
    let value = json!({"archname": "none.tar", "objnames": ["nosuch"]});
    assert!(
        ended(act("PUT", "pack", "", "archive", value)).await["err"]
            .as_str()
            .unwrap()
            .contains("nosuch")
    );
    assert!(!names("pack").await.contains(&"none.tar".to_owned()), "half a shard is none");
}

#[tokio::test]
async fn a_job_that_idles_is_listed_and_can_be_aborted() {
    let _running = cluster();
    filled("idle", &["a"]).await;
    filled("idle-to", &[]).await;
    let tobck = json!({"name": "idle-to", "provider": "ais", "namespace": null});
    let started =
        act("POST", "idle", "", "copy-listrange", json!({"objnames": ["a"], "tobck": tobck}));
    let id = started.text();
    assert!(id.starts_with("tco-"), "{id}");
    assert_eq!(ended(started).await["aborted"], false);
    assert_eq!(names("idle-to").await, ["a"]);
    for running in ask("running_all", json!({"kind": "copy-objects"})) {
        assert!(running.text().contains(&format!("copy-listrange[{id}]")), "{}", running.text());
    }
    assert_eq!(control("stop", json!({"ID": id, "Kind": "copy-listrange"})).status, 200);
    let snapshots = ask("qryxstats", json!({"id": id}))[1].text();
    assert!(snapshots.contains("\"aborted\":true"), "{snapshots}");
}

#[tokio::test]
async fn a_change_of_a_buckets_copies_is_a_job_that_can_be_asked_for() {
    let _running = cluster();
    filled("mirrored", &["a", "d/b", "d/c"]).await;
    let set = |props: Value| act("PATCH", "mirrored", "", "set-bprops", props);
    let bucket = json!({"name": "mirrored", "provider": "ais"});
    let copies = || {
        let page = act("GET", "mirrored", "", "list", json!({"props": "name,copies"})).json();
        let entries = page["entries"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|e| e["copies"].as_i64().unwrap_or_default()).collect::<Vec<_>>()
    };
    let soon = std::time::Duration::from_secs(20);
    let other = set(json!({"lru": {"batch_size": 7}}));
    assert_eq!((other.status, other.text().as_str()), (200, ""), "no job has to follow");
    assert_eq!(copies(), [1, 1, 1]);
    let made = ended(set(json!({"mirror": {"enabled": true, "copies": 2}}))).await;
    assert_eq!((&made["kind"], &made["err"]), (&json!("make-n-copies"), &json!("")));
    for answer in ask("status", json!({"kind": "mirror", "bck": bucket})) {
        assert_eq!((answer.status, &answer.json()["uuid"]), (200, &made["uuid"]));
    }
    wait::until("each object has two copies", soon, || copies() == [2, 2, 2]);
    let again = ended(control("start", json!({"Kind": "make-n-copies", "Bck": bucket}))).await;
    assert_ne!(again["uuid"], made["uuid"]);
    ended(set(json!({"mirror": {"enabled": false}}))).await;
    wait::until("each object has one copy", soon, || copies() == [1, 1, 1]);
    let nothing = control("start", json!({"Kind": "make-n-copies", "Bck": bucket}));
    assert_eq!(nothing.status, 400, "{}", nothing.text());
    let slices = json!({"ec": {"enabled": true, "data_slices": 1, "parity_slices": 1}});
    assert_eq!(ended(set(slices)).await["kind"], "ec-encode");
    let wide = set(json!({"ec": {"data_slices": 4}}));
    assert_eq!((wide.status, &wide.json()["tcode"]), (400, &json!("ErrNotEnoughTargets")));
}

#[tokio::test]
async fn a_job_that_idles_is_found_among_those_that_run() {
    let _running = cluster();
    filled("idle-from", &["a", "b"]).await;
    let value =
        json!({"objnames": ["a", "b"], "tobck": {"name": "idle-from-to", "provider": "ais"}});
    let id = act("POST", "idle-from", "", "copy-listrange", value).text();
    let running = json!({"id": id, "kind": "copy-listrange", "show_active": true});
    wait::until("it idles, and is there", std::time::Duration::from_secs(15), || {
        ask("qryxstats", running.clone()).iter().all(|answer| {
            assert_eq!(answer.status, 200, "{}", answer.text());
            let parts = answer.json();
            let parts: Vec<_> = parts.as_object().unwrap().values().cloned().collect();
            let snapshots: Vec<_> =
                parts.iter().filter_map(Value::as_array).flatten().cloned().collect();
            !snapshots.is_empty() && snapshots.iter().all(|s| s["is_idle"] == true)
        })
    });
    assert_eq!(names("idle-from-to").await, ["a", "b"]);
}

#[tokio::test]
async fn maintenance_jobs_end_soon_and_every_gateway_has_their_status() {
    let _running = cluster();
    for kind in ["lru", "cleanup", "rebalance", "load-lom-cache"] {
        let status = ended(control("start", json!({"ID": "", "Kind": kind, "Bck": null}))).await;
        assert_eq!((&status["err"], &status["aborted"]), (&json!(""), &json!(false)), "{kind}");
    }
    let target = cluster().targets[0].id.clone();
    let one = ended(control("start", json!({"Kind": "resilver", "DaemonID": target}))).await;
    let parts = ask("qryxstats", json!({"id": one["uuid"]}))[1].json();
    let on: Vec<_> = parts.as_object().unwrap().keys().collect();
    assert_eq!(on, [&target], "the others have no part in it");
    let all = ask("status_all", json!({"kind": "lru"}))[0].json();
    assert!(all.as_array().unwrap().iter().all(|s| s["kind"] == "lru"));
}

#[tokio::test]
async fn what_makes_no_sense_is_the_clients_mistake() {
    let _running = cluster();
    filled("bad", &["a"]).await;
    for (answer, code) in [
        (act("POST", "bad", "bad", "copy-bck", Value::Null), 400),
        (act("POST", "bad", "", "copy-bck", Value::Null), 400),
        (act("POST", "bad", "b2", "copy-bck", json!({"synchronize": true, "prepend": "x"})), 400),
        (act("POST", "bad", "b2", "copy-bck", json!({"prepend": 5})), 400),
        (act("POST", "nosuch", "b2", "copy-bck", Value::Null), 404),
        (act("POST", "bad", "bad", "move-bck", Value::Null), 400),
        (act("POST", "bad", "", "copy-listrange", json!({"objnames": ["a"]})), 400),
        (act("PUT", "bad", "", "archive", json!({"archname": "a.rar"})), 400),
        (act("PUT", "bad", "", "archive", json!({"archname": "a.tar", "mime": ".zip"})), 400),
        (act("DELETE", "bad", "", "delete-listrange", json!({"template": "o-{0..10000000}"})), 400),
        (act("DELETE", "bad", "", "delete-listrange", json!({"objnames": [1]})), 400),
        (act("POST", "bad", "", "ec-encode", json!({})), 400),
        (act("POST", "bad", "", "make-n-copies", json!(99)), 400),
        (act("POST", "bad", "", "make-n-copies", json!(0)), 400),
        (act("POST", "bad", "", "make-n-copies", json!("x")), 400),
        (control("start", json!({"Kind": "nosuch"})), 400),
        (control("start", json!({"Kind": 7})), 400),
        (control("start", json!({"Kind": "resilver"})), 501),
        (control("stop", json!({"ID": "Unknown1234"})), 200),
    ] {
        assert_eq!(answer.status, code, "{}", answer.text());
    }
    for answer in ask("qryxstats", json!({"id": "Unknown1234"})) {
        assert_eq!(answer.status, 404);
    }
}
