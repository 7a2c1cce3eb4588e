//! The cluster as its operators see it through v1: configuration, logs, maintenance, summaries,
//! inventories.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::Bucket;
use forebay_tests::cluster::{folder_backend, native};
use forebay_tests::data::{fill_folder, names};
use forebay_tests::{Cluster, Options, Shared, http, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(20);

struct World {
    cluster: Cluster,
    root: TempDir,
}

static WORLD: Shared<World> = Shared::new();

fn world() -> Arc<World> {
    WORLD.get(|| {
        let root = tempfile::tempdir().unwrap();
        let folder_roots = vec![root.path().to_owned()];
        let cluster = Cluster::start(Options { gateways: 2, folder_roots, ..Options::default() });
        World { cluster, root }
    })
}

impl World {
    fn act(&self, method: &str, path: &str, action: &str, value: &Value) -> http::Answer {
        let url = format!("{}/v1/{path}", self.cluster.endpoint);
        http::request(method, &url)
            .json(&json!({"action": action, "name": "", "value": value}))
            .send()
    }

    fn about_cluster(&self, gateway: usize, what: &str) -> Value {
        http::get(&format!("{}/v1/cluster?what={what}", self.cluster.gateways[gateway].url)).json()
    }

    fn log(&self, node: &str, more: &str) -> http::Answer {
        let url = format!("{}/v1/reverse/daemon?what=log{more}", self.cluster.endpoint);
        http::request("GET", &url).header("Ais-Node-Id", node).send()
    }

    /// A bucket in front of a folder with as many files.
    async fn folder(&self, name: &str, files: usize) -> (Bucket, Vec<String>) {
        let root = self.root.path().join(name);
        std::fs::create_dir(&root).unwrap();
        let mut names = names(files);
        fill_folder(&root, &names, 100);
        names.sort();
        let bucket = native(name);
        let client = self.cluster.client();
        client.create_bucket(&bucket, Some(folder_backend(&root))).await.unwrap();
        (bucket, names)
    }

    fn list(&self, bucket: &str, value: &Value) -> http::Answer {
        self.act("GET", &format!("buckets/{bucket}"), "list", value)
    }
}

fn listed(answer: &http::Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let page = answer.json();
    let entries = page["entries"].as_array().cloned().unwrap_or_default();
    entries.iter().map(|e| e["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_configuration_is_set_by_one_gateway_read_at_another_and_reset() {
    // A cluster of its own: it changes the defaults of new buckets.
    let cluster = Cluster::start(Options { gateways: 2, targets: 1, ..Options::default() });
    let w = World { cluster, root: tempfile::tempdir().unwrap() };
    let before = w.about_cluster(1, "cluster_config");
    let value = json!({"features": "8", "checksum": {"type": "md5"}});
    assert_eq!(w.act("PUT", "cluster", "set-config", &value).status, 200);
    let after = w.about_cluster(1, "cluster_config");
    assert_eq!((&after["features"], &after["checksum"]["type"]), (&json!("8"), &json!("md5")));
    assert_ne!(after["config_version"], before["config_version"]);
    let url = format!("{}/v1/cluster/set-config?timeout.send_file_time=90s", w.cluster.endpoint);
    assert_eq!(http::request("PUT", &url).send().status, 200);
    assert_eq!(w.about_cluster(0, "cluster_config")["timeout"]["send_file_time"], "1m30s");

    let (client, bucket) = (w.cluster.client(), native("with-md5"));
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "hello", None).await.unwrap();
    let head = client.head(&bucket, "x").await.unwrap();
    assert_eq!(head.checksum.unwrap().value, "5d41402abc4b2a76b9719d911017c592");

    for bad in [
        json!({"nothing": 1}),
        json!({"checksum": {"type": "sum"}}),
        json!("features"),
        json!({"features": "99999999999"}),
    ] {
        let refused = w.act("PUT", "cluster", "set-config", &bad);
        assert_eq!(refused.status, 400, "{bad}: {}", refused.text());
    }
    assert_eq!(w.act("PUT", "cluster", "reset-config", &Value::Null).status, 200);
    let reset = w.about_cluster(1, "cluster_config");
    assert_eq!((&reset["features"], &reset["checksum"]), (&json!("0"), &before["checksum"]));
    assert_eq!(w.act("PUT", "cluster", "no-such-action", &Value::Null).status, 400);
}

#[tokio::test]
async fn every_node_shows_its_log_as_text_and_as_an_archive() {
    let w = world();
    for node in w.cluster.targets.iter().chain(&w.cluster.gateways) {
        let text = w.log(&node.id, "&severity=info").text();
        assert!(text.contains("forebay") && text.lines().count() > 1, "{}: {text}", node.id);
        let archive = w.log(&node.id, "&severity=info&all=true");
        assert_eq!(archive.status, 200);
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(archive.body.as_slice()).read_to_end(&mut tar).unwrap();
        assert!(tar.starts_with(node.id.as_bytes()));
    }
    let id = &w.cluster.targets[0].id;
    let all = w.log(id, "").text();
    assert_eq!(w.log(id, "&offset=10").text()[..20], all[10..30]);
    assert_eq!(w.log(id, "&severity=error").status, 200);
    assert_eq!(w.log(id, "&severity=loud").status, 400);
    assert_eq!(w.log("target-99", "").status, 404);
}

#[tokio::test]
async fn a_targets_configuration_names_its_disks_and_the_clusters_settings() {
    let w = world();
    let config = || {
        let url = format!("{}/v1/reverse/daemon?what=config", w.cluster.endpoint);
        let target = &w.cluster.targets[0].id;
        http::request("GET", &url).header("Ais-Node-Id", target).send().json()
    };
    // A target reports its disks with its next heartbeat.
    wait::until("its disks are known", TIMEOUT, || {
        config()["fspaths"].as_object().is_some_and(|disks| !disks.is_empty())
    });
    let config = config();
    for (path, label) in config["fspaths"].as_object().unwrap() {
        assert!(path.starts_with('/') && label == "", "{path} {label}");
    }
    assert_eq!(config["checksum"], w.about_cluster(0, "cluster_config")["checksum"]);
}

#[tokio::test]
async fn a_target_in_maintenance_owns_nothing_until_it_is_given_back() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let w = World { cluster, root: tempfile::tempdir().unwrap() };
    let id = w.cluster.targets[1].id.clone();
    let maintain = |action: &str| w.act("PUT", "cluster", action, &json!({"sid": id})).status;
    assert_eq!(maintain("start-maintenance"), 200);
    let flags = || w.about_cluster(0, "smap")["tmap"][&id]["flags"].clone();
    assert_eq!(flags(), 4);
    let state = w.cluster.map().state;
    assert_eq!((state.owning_targets().count(), state.alive_targets().count()), (1, 2));
    wait::until("nothing has to move", TIMEOUT, || w.cluster.map().state.is_rebalance_complete());
    let version = || w.about_cluster(0, "smap")["version"].clone();
    let before = version();
    assert_eq!(maintain("start-maintenance"), 200);
    assert_eq!(version(), before, "asked again, it changes nothing");
    assert_eq!(maintain("stop-maintenance"), 200);
    assert_eq!(flags(), 0);
    assert_eq!(w.cluster.map().state.owning_targets().count(), 2);
    let gateway = json!({"sid": w.cluster.gateways[0].id});
    assert_eq!(w.act("PUT", "cluster", "start-maintenance", &gateway).status, 400);
    let nobody = json!({"sid": "target-99"});
    assert_eq!(w.act("PUT", "cluster", "start-maintenance", &nobody).status, 404);
    let removed = w.act("PUT", "cluster", "decommission-node", &json!({"sid": id}));
    assert_eq!(removed.status, 200, "{}", removed.text());
    wait::until("it has left", TIMEOUT, || w.cluster.map().state.targets().count() == 1);
}

#[tokio::test]
async fn an_inventory_is_taken_shown_listed_from_and_destroyed() {
    let w = world();
    let (bucket, names) = w.folder("stock", 60).await;
    let path = "buckets/stock";
    assert_eq!(w.act("GET", path, "show-inventory", &Value::Null).json(), json!({}));
    let value = json!({"name": "inv-1", "names_per_chunk": 25});
    let started = w.act("POST", path, "create-inventory", &value);
    assert_eq!(started.status, 200, "{}", started.text());
    let job = started.text();
    wait::until("the inventory is taken", TIMEOUT, || {
        let url = format!("{}/api/v1/jobs/{job}", w.cluster.endpoint);
        http::get(&url).json()["state"] == "done"
    });
    let shown = w.act("GET", path, "show-inventory", &Value::Null).json();
    let info = &shown["ais/@#/stock/inv-1"];
    assert_eq!(
        (&info["name"], &info["ntotal"], &info["chunks"]),
        (&json!("inv-1"), &json!(60), &json!(3))
    );
    assert!(
        info["finished"].as_u64() >= info["started"].as_u64() && info["size"].as_u64() > Some(0)
    );
    assert_eq!(w.act("POST", path, "create-inventory", &value).status, 409, "one a bucket");

    // A file that was added later is at the backend, not in the inventory.
    std::fs::write(w.root.path().join("stock/zz-new"), "x").unwrap();
    let mut got = Vec::new();
    let mut token = String::new();
    loop {
        let page = json!({"flags": "32768", "pagesize": 17, "continuation_token": token});
        let answer = w.list("stock", &page);
        got.extend(listed(&answer));
        token = answer.json()["continuation_token"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(got, names);
    assert_eq!(listed(&w.list("stock", &json!({}))).len(), 61);
    let wrong = http::request("GET", &format!("{}/v1/{path}", w.cluster.endpoint))
        .header("Ais-Inv-Name", "no-such")
        .json(&json!({"action": "list", "value": {}}))
        .send();
    assert_eq!(wrong.status, 404, "{}", wrong.text());

    assert_eq!(w.act("DELETE", path, "destroy-inventory", &Value::Null).status, 200);
    assert_eq!(w.act("GET", path, "show-inventory", &Value::Null).json(), json!({}));
    assert_eq!(w.list("stock", &json!({"flags": "32768"})).status, 404);
    let mut buckets = listed_buckets(&w);
    buckets.retain(|b| b == "inventory");
    assert!(buckets.is_empty(), "the cluster's own buckets stay out of sight");
    w.cluster.client().destroy_bucket(&bucket).await.unwrap();

    w.cluster.client().create_bucket(&native("plain-stock"), None).await.unwrap();
    assert_eq!(w.act("POST", "buckets/plain-stock", "create-inventory", &json!({})).status, 400);
}

fn listed_buckets(w: &World) -> Vec<String> {
    let answer = w.act("GET", "buckets", "list", &Value::Null).json();
    let buckets = answer.as_array().unwrap().iter();
    buckets.map(|b| b["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_comparison_shows_what_changed_and_what_is_gone() {
    let w = world();
    let (bucket, names) = w.folder("drift", 4).await;
    let client = w.cluster.client();
    for name in &names {
        client.get_bytes(&bucket, name, None).await.unwrap();
    }
    let root = w.root.path().join("drift");
    std::fs::write(root.join(&names[1]), "another size").unwrap();
    std::fs::remove_file(root.join(&names[2])).unwrap();
    let page = w.list("drift", &json!({"flags": "4096"})).json();
    let flags: Vec<_> =
        page["entries"].as_array().unwrap().iter().map(|e| e["flags"].as_u64()).collect();
    // The folder of the removed file is empty, and an empty folder is an object of its own.
    assert_eq!(flags, [Some(64), Some(64 + 1024), None, Some(64 + 2048), Some(64)]);
}

#[tokio::test]
async fn one_request_summarizes_all_buckets_and_times_have_any_layout() {
    let w = world();
    let client = w.cluster.client();
    for name in ["sum-a", "sum-b"] {
        client.create_bucket(&native(name), None).await.unwrap();
        client.put(&native(name), "x", "12345", None).await.unwrap();
    }
    let first = w.act("GET", "buckets", "summary-bck", &json!({"uuid": "", "cached": true}));
    assert_eq!(first.status, 202);
    let all = w.act("GET", "buckets", "summary-bck", &json!({"uuid": first.text()}));
    assert_eq!(all.status, 200);
    let all = all.json();
    let one = |name: &str| all.as_array().unwrap().iter().find(|s| s["name"] == name).cloned();
    for name in ["sum-a", "sum-b"] {
        assert_eq!(one(name).unwrap()["TotalSize"]["size_all_present_objs"], "5");
    }
    let value = json!({"props": "name,atime,copies", "time_format": "2006/01/02"});
    let entry = w.list("sum-a", &value).json()["entries"][0].clone();
    let atime = entry["atime"].as_str().unwrap();
    assert!(atime.len() == 10 && atime.starts_with("20") && &atime[4..5] == "/", "{entry}");
    assert_eq!(entry["copies"], 1);
}

#[tokio::test]
async fn questions_and_properties_that_make_no_sense_are_the_users_mistakes() {
    let w = world();
    w.cluster.client().create_bucket(&native("typed"), None).await.unwrap();
    for (method, path, action, value, status) in [
        ("GET", "buckets/typed", "list", json!({"prefix": 7}), 400),
        ("GET", "buckets/typed", "list", json!({"pagesize": "many"}), 400),
        ("GET", "buckets/typed", "list", json!({"flags": 512}), 400),
        ("GET", "buckets/typed", "list", json!({"continuation_token": "x".repeat(2000)}), 400),
        ("GET", "buckets/typed", "list", json!({"target": "no-such-target"}), 404),
        ("GET", "buckets/typed", "summary-bck", json!({"uuid": "Unknown123"}), 404),
        ("PATCH", "buckets/typed", "set-bprops", json!({"mirror": {"copies": "x"}}), 400),
        ("PATCH", "buckets/typed", "set-bprops", json!({"no-such": {}, "x": 1}), 400),
        ("PUT", "cluster", "start-maintenance", json!(7), 400),
    ] {
        let answer = w.act(method, path, action, &value);
        assert_eq!(answer.status, status, "{action} {value}: {}", answer.text());
        assert_eq!(answer.json()["status"], status, "{action} {value}");
    }
    for (path, status) in [
        ("/v1/cluster?what=nonsense", 400),
        ("/v1/daemon?what=nonsense", 400),
        ("/v1/daemon?what=tls_certificate", 404),
        ("/v1/cluster/no-such-item", 400),
        ("/v1/daemon/mountpaths", 501),
    ] {
        let answer = http::get(&format!("{}{path}", w.cluster.endpoint));
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    for what in ["node_status", "node_stats", "sysinfo", "metrics", "mountpaths", "disk", "config"]
    {
        let answer = http::get(&format!("{}/v1/daemon?what={what}", w.cluster.endpoint));
        assert!(answer.json().is_object(), "{what}: {}", answer.text());
    }
}
