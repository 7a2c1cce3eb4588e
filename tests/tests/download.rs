//! Downloads from the web into a bucket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_tests::cluster::{folder_backend, native};
use forebay_tests::data::{fill_folder, names};
use forebay_tests::http::{self, Answer};
use forebay_tests::web::{Received, Reply, Web};
use forebay_tests::{Cluster, Options, Shared, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(20);

struct World {
    cluster: Cluster,
    web: Web,
    root: TempDir,
}

static WORLD: Shared<World> = Shared::new();

fn world() -> Arc<World> {
    WORLD.get(|| {
        let env = vec![("FOREBAY_DOWNLOAD__ALLOW_PRIVATE".to_owned(), "true".to_owned())];
        let root = tempfile::tempdir().unwrap();
        let folder_roots = vec![root.path().to_owned()];
        World {
            cluster: Cluster::start(Options { env, folder_roots, ..Options::default() }),
            web: Web::start(page),
            root,
        }
    })
}

/// `/missing…` is missing, `/slow…` takes long, `/moved…` is elsewhere, the rest is there.
fn page(request: &Received) -> Reply {
    let path = request.target.split('?').next().unwrap_or_default();
    if path.starts_with("/missing") {
        return Reply::new(404, "");
    }
    if path.starts_with("/slow") {
        std::thread::sleep(Duration::from_secs(5));
    }
    if let Some(rest) = path.strip_prefix("/moved") {
        return Reply::new(302, "").header("location", rest);
    }
    let etag = format!("\"v-{path}\"");
    if request.headers.get("if-none-match") == Some(&etag) {
        return Reply::new(304, "");
    }
    let by = request.headers.get("x-who").cloned().unwrap_or_default();
    Reply::new(200, format!("page {path} {by}")).header("etag", &etag)
}

impl World {
    fn call(&self, method: &str, path: &str, message: &Value) -> Answer {
        let url = format!("{}/v1/download{path}", self.cluster.endpoint);
        http::request(method, &url).json(message).send()
    }

    /// Starts a download into a native bucket, which need not exist.
    fn start(&self, bucket: &str, mut message: Value) -> String {
        message["bucket"] = json!({"name": bucket, "provider": "ais"});
        let answer = self.call("POST", "", &message);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    fn status(&self, id: &str) -> Value {
        let answer = self.call("GET", "", &json!({"id": id}));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    fn finished(&self, id: &str) -> Value {
        wait::until(&format!("{id} is over"), TIMEOUT, || {
            self.status(id)["finished_time"] != "0001-01-01T00:00:00Z"
        });
        self.status(id)
    }

    fn text(&self, bucket: &str, object: &str) -> String {
        http::request("GET", &self.cluster.object_url(bucket, object)).follow().text()
    }
}

#[test]
fn one_object_is_fetched_and_not_again_while_it_is_the_same() {
    let world = world();
    let link = format!("{}/d/x%20y.txt?key=1", world.web.url);
    let single = || json!({"type": "single", "link": link, "headers": {"X-Who": ["me"]}});
    let id = world.start("dl-single", single());
    assert!(id.starts_with("dnl-"), "{id}");
    let status = world.finished(&id);
    for (key, want) in [
        ("finished_cnt", 1),
        ("scheduled_cnt", 1),
        ("skipped_cnt", 0),
        ("error_cnt", 0),
        ("total", 1),
    ] {
        assert_eq!(status[key], want, "{key} of {status}");
    }
    assert_eq!((&status["all_dispatched"], &status["aborted"]), (&json!(true), &json!(false)));
    let task = &status["finished_tasks"][0];
    assert_eq!((&task["name"], &task["downloaded"]), (&json!("x y.txt"), &json!("20")));
    assert_eq!(world.text("dl-single", "x%20y.txt"), "page /d/x%20y.txt me");

    let again = world.finished(&world.start("dl-single", single()));
    assert_eq!(
        (again["finished_cnt"].as_u64(), again["skipped_cnt"].as_u64()),
        (Some(1), Some(1)),
        "{again}"
    );
}

#[test]
fn downloads_many_objects_by_name_and_reports_missing_ones() {
    let world = world();
    let url = &world.web.url;
    let objects = json!({"a/1": format!("{url}/1"), "b/2": format!("{url}/moved/2"), "c": format!("{url}/missing")});
    let id = world
        .start("dl-multi", json!({"type": "multi", "objects": objects, "description": "my many"}));
    let status = world.finished(&id);
    assert_eq!(
        (status["finished_cnt"].as_u64(), status["error_cnt"].as_u64()),
        (Some(2), Some(1)),
        "{status}"
    );
    assert_eq!(status["download_errors"][0]["name"], "c");
    assert_eq!(world.text("dl-multi", "b/2"), "page /2 ");

    let listed = |message: Value| {
        let list = world.call("GET", "", &message).json();
        list.as_array().unwrap().iter().any(|job| job["id"] == id.as_str())
    };
    assert!(listed(json!({"regex": "my ma", "only_active_tasks": false})));
    assert!(!listed(json!({"regex": "other"})) && !listed(json!({"only_active_tasks": true})));
    assert_eq!(world.call("DELETE", "/remove", &json!({"id": id})).status, 200);
    let gone = world.call("GET", "", &json!({"id": id}));
    assert_eq!((gone.status, gone.message()), (404, format!("download job {id} does not exist")));
}

#[test]
fn a_range_of_links_goes_to_a_folder_of_names() {
    let world = world();
    let template = format!("{}/s-{{00..19}}.tar", world.web.url);
    let id =
        world.start("dl-range", json!({"type": "range", "template": template, "subdir": "in"}));
    let status = world.finished(&id);
    assert_eq!(
        (status["finished_cnt"].as_u64(), status["total"].as_i64()),
        (Some(20), Some(20)),
        "{status}"
    );
    assert_eq!(world.text("dl-range", "in/s-07.tar"), "page /s-07.tar ");
}

#[test]
fn an_aborted_download_is_over_and_a_running_one_is_not_removed() {
    let world = world();
    let id = world
        .start("dl-abort", json!({"type": "single", "link": format!("{}/slow", world.web.url)}));
    let refused = world.call("DELETE", "/remove", &json!({"id": id}));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(world.call("DELETE", "/abort", &json!({"id": id})).status, 200);
    let status = world.status(&id);
    assert_eq!(status["aborted"], true);
    assert_ne!(status["finished_time"], "0001-01-01T00:00:00Z");
    assert_eq!(world.call("DELETE", "/remove", &json!({"id": id})).status, 200);
    let unknown = world.call("DELETE", "/abort", &json!({"id": id}));
    assert_eq!(unknown.status, 404, "{}", unknown.text());
}

#[test]
fn a_download_is_a_job_as_others_are() {
    let world = world();
    let id = world
        .start("dl-job", json!({"type": "single", "link": format!("{}/slow/job", world.web.url)}));
    let ask = |what: &str| {
        http::request("GET", &format!("{}/v1/cluster?what={what}", world.cluster.endpoint))
            .json(&json!({"id": id}))
            .send()
    };
    assert_eq!(ask("status").json()["kind"], "download");
    let stop = json!({"action": "stop", "value": {"id": id}});
    let stopped =
        http::request("PUT", &format!("{}/v1/cluster", world.cluster.endpoint)).json(&stop).send();
    assert_eq!(stopped.status, 200, "{}", stopped.text());
    assert_eq!(world.finished(&id)["aborted"], true);
}

#[tokio::test]
async fn downloads_the_objects_of_a_backend_into_the_cluster() {
    let world = world();
    let root = world.root.path().join("dl-backend");
    std::fs::create_dir(&root).unwrap();
    fill_folder(&root, &names(12), 100);
    let backend = Some(folder_backend(&root));
    world.cluster.client().create_bucket(&native("dl-backend"), backend).await.unwrap();
    let id = world.start("dl-backend", json!({"type": "backend", "prefix": ""}));
    let status = world.finished(&id);
    assert_eq!(
        (status["finished_cnt"].as_u64(), status["error_cnt"].as_u64()),
        (Some(12), Some(0)),
        "{status}"
    );
    let again = world.finished(&world.start("dl-backend", json!({"type": "backend"})));
    assert_eq!(again["skipped_cnt"].as_u64(), Some(12), "{again}");
}

#[test]
fn bad_requests_start_nothing() {
    let world = world();
    let refused = |message: Value| world.call("POST", "", &message);
    let bucket = json!({"name": "dl-bad", "provider": "ais"});
    for bad in [
        json!({}),
        json!({"type": "single", "link": "http://h/x"}),
        json!({"type": "single", "link": "file:///etc/passwd", "object_name": "x", "bucket": bucket}),
        json!({"type": "range", "template": "http://h/{0..99999999}", "bucket": bucket}),
        json!({"type": "backend", "bucket": {"name": "dl-native", "provider": "ais"}}),
        json!({"type": "none", "bucket": bucket}),
    ] {
        let answer = refused(bad.clone());
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text());
    }
    assert_eq!(world.call("GET", "", &json!({"id": "dnl-unknown"})).status, 404);
    assert_eq!(world.call("GET", "", &json!({"id": "../x", "regex": ""})).status, 404);
    assert_eq!(world.call("GET", "", &json!({"regex": "("})).status, 400);
    assert_eq!(world.call("DELETE", "/abort", &json!({})).status, 400);
    let none = http::get(&format!("{}/v1/download", world.cluster.endpoint));
    assert!(none.status == 200 && none.json().is_array());
}

#[test]
fn private_networks_are_closed_unless_the_configuration_opens_them() {
    let world = world();
    // A download that may access private networks does not reach the link either.
    let id =
        world.start("dl-link", json!({"type": "single", "link": "http://169.254.169.254/meta"}));
    let status = world.finished(&id);
    let message = status["download_errors"][0]["error"].as_str().unwrap();
    assert!(message.contains("may not call 169.254.169.254"), "{message}");

    let closed = Cluster::start(Options { targets: 1, ..Options::default() });
    let called = Arc::new(AtomicU64::new(0));
    let counter = called.clone();
    let web = Web::start(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Reply::new(200, "secret")
    });
    let port = web.url.rsplit(':').next().unwrap();
    let links = [
        format!("http://127.0.0.1:{port}/x1"),
        format!("http://localhost:{port}/x2"),
        format!("http://[::1]:{port}/x3"),
        format!("http://2130706433:{port}/x4"),
    ];
    let message =
        json!({"type": "multi", "objects": links, "bucket": {"name": "b", "provider": "ais"}});
    let url = format!("{}/v1/download", closed.endpoint);
    let started = http::request("POST", &url).json(&message).send();
    let id = json!({"id": started.json()["id"]});
    let mut status = Value::Null;
    wait::until("the download is over", TIMEOUT, || {
        status = http::request("GET", &url).json(&id).send().json();
        status["finished_time"] != "0001-01-01T00:00:00Z"
    });
    assert_eq!(
        (status["error_cnt"].as_u64(), status["finished_cnt"].as_u64()),
        (Some(4), Some(0)),
        "{status}"
    );
    assert_eq!(called.load(Ordering::Relaxed), 0);
}
