//! Clusters that stop, on purpose or not, and start again with what they had.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_client::{Client, ClientConfig};
use forebay_tests::cluster::{self, Cluster, Process, folder_backend, native, wait_for_end};
use forebay_tests::data::{assert_same, content, fill_folder, names};
use forebay_tests::{Options, http, ports, wait};

const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_stopped_cluster_starts_again_with_its_buckets_and_objects() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let mut cluster = Cluster::start(Options { folder_roots, ..Options::default() });
    let client = cluster.client();
    let (own, files) = (native("own"), native("files"));
    let backend = folder_backend(root.path());
    let names = names(40);
    fill_folder(root.path(), &names, 5000);
    client.create_bucket(&own, None).await.unwrap();
    client.create_bucket(&files, Some(backend)).await.unwrap();
    for name in &names {
        client.put(&own, name, content(name, 5000), None).await.unwrap();
        client.get_bytes(&files, name, None).await.unwrap();
    }
    client.put(&own, "large", content("large", 5 << 20), None).await.unwrap();
    let before = cluster.map().state;
    let pids: Vec<u32> = ids(&cluster).iter().map(|id| cluster.pid(id)).collect();

    assert_eq!(cluster.stop().code(), Some(0));
    assert!(!cluster.dir().join("dev.json").exists(), "nothing says that it runs");
    for pid in pids {
        assert!(!cluster::is_running(pid), "process {pid} is still there");
    }
    let cluster = cluster.start_again(None);

    let after = cluster.map().state;
    assert_eq!(after.cluster_id, before.cluster_id);
    assert_eq!(after.buckets, before.buckets);
    assert!(after.version > before.version);
    let client = cluster.client();
    for name in &names {
        let want = content(name, 5000);
        assert_same(name, &client.get_bytes(&own, name, None).await.unwrap(), &want);
        assert_same(name, &client.get_bytes(&files, name, None).await.unwrap(), &want);
    }
    let large = client.get_bytes(&own, "large", None).await.unwrap();
    assert_same("large", &large, &content("large", 5 << 20));
    assert_eq!(client.list_all(&own, "").await.unwrap().len(), 41);
    let hits = cluster.metric("forebay_get_bytes_total", &["result=\"hit\""]);
    assert!(hits >= (5 << 20) as f64 + 200_000.0, "{hits} bytes were hits");
}

#[tokio::test]
async fn objects_survive_the_sudden_death_of_everything() {
    let mut cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = native("own");
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(30);
    for name in &names {
        client.put(&bucket, name, content(name, 70_000), None).await.unwrap();
    }
    client.delete(&bucket, &names[0]).await.unwrap();
    let ids = ids(&cluster);
    for id in &ids {
        cluster.kill9(id);
    }
    cluster.stop();
    let cluster = cluster.start_again(None);
    let client = cluster.client();
    for name in &names[1..] {
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, 70_000));
    }
    assert_eq!(client.list_all(&bucket, "").await.unwrap().len(), 29, "what was deleted stays so");
}

#[tokio::test]
async fn a_cluster_may_come_back_on_other_ports() {
    let mut cluster = Cluster::plain();
    let bucket = native("moved");
    let client = cluster.client();
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(20);
    for name in &names {
        client.put(&bucket, name, content(name, 3000), None).await.unwrap();
    }
    let before = cluster.endpoint.clone();
    cluster.stop();
    let cluster = cluster.start_again(Some(ports::free(4)));
    assert_ne!(cluster.endpoint, before);
    let client = cluster.client();
    for name in &names {
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, 3000));
    }
    assert_eq!(cluster.map().state.nodes.len(), 4, "the same nodes, at other addresses");
}

#[tokio::test]
async fn a_killed_gateway_comes_back_with_what_it_knew() {
    let cluster = Cluster::plain();
    let bucket = native("known");
    let client = cluster.client();
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let before = cluster.map().state;
    cluster.kill9("gateway1");
    // A client that has the map needs no gateway to read.
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "bytes");
    cluster.restart("gateway1");
    wait::until("all targets have found it again", TIMEOUT, || {
        cluster.targets.iter().all(|target| cluster.is_alive(&target.id))
    });
    let after = cluster.map().state;
    assert_eq!((after.cluster_id, after.buckets), (before.cluster_id, before.buckets));
    let fresh = cluster.client();
    fresh.put(&bucket, "y", "more", None).await.unwrap();
    assert_eq!(fresh.list_all(&bucket, "").await.unwrap().len(), 2);
    fresh.create_bucket(&native("new"), None).await.unwrap();
}

#[tokio::test]
async fn a_node_can_be_started_the_moment_after_it_was_killed() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let bucket = native("again");
    let client = cluster.client();
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    for id in ["target01", "gateway1", "target01", "target01", "gateway1"] {
        let killed = cluster.pid(id);
        cluster::signal(killed, "KILL");
        // No wait: the port and the disks of the old process may not be free yet.
        cluster.restart(id);
        wait::until("another process runs the node", TIMEOUT, || cluster.pid(id) != killed);
        assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "bytes");
    }
}

#[tokio::test]
async fn an_index_can_be_made_again_from_the_objects() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let client = cluster.client();
    let bucket = native("indexed");
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(40);
    for name in &names {
        client.put(&bucket, name, content(name, 2000), None).await.unwrap();
    }
    client.put(&bucket, &names[1], "newer", None).await.unwrap();
    client.delete(&bucket, &names[0]).await.unwrap();
    cluster.kill9("target01");
    cluster.restart_with("target01", "--rebuild-index");
    for name in &names[2..] {
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, 2000));
    }
    assert_eq!(client.get_bytes(&bucket, &names[1], None).await.unwrap(), "newer");
    assert_eq!(client.list_all(&bucket, "").await.unwrap().len(), 39);
}

#[test]
fn nodes_end_with_the_process_that_started_them() {
    let dir = tempfile::tempdir().unwrap();
    let port = ports::free(3);
    let args = ["dev", "--targets", "2", "--port", &port.to_string(), "--dir"];
    let mut dev = spawn(cluster::command(args).arg(dir.path()));
    let description = dir.path().join("dev.json");
    wait::until("dev.json is there", TIMEOUT, || description.exists());
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&description).unwrap()).unwrap();
    let list = |key: &str| json[key].as_array().unwrap().clone();
    let pids: Vec<u32> = list("gateways")
        .iter()
        .chain(&list("targets"))
        .map(|node| u32::try_from(node["pid"].as_u64().unwrap()).unwrap())
        .collect();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|&pid| cluster::is_running(pid)));

    // A second one in the same folder is refused and leaves the first alone.
    let elsewhere = ports::free(3).to_string();
    let args = ["dev", "--targets", "2", "--port", &elsewhere, "--dir"];
    let second = cluster::command(args).arg(dir.path()).output().unwrap();
    assert_eq!(second.status.code(), Some(11), "{}", String::from_utf8_lossy(&second.stderr));
    assert!(description.exists());
    let map = http::get(&format!("{}/api/v1/map", json["endpoint"].as_str().unwrap()));
    assert_eq!(map.status, 200);

    dev.0.kill().unwrap();
    dev.0.wait().unwrap();
    wait::until("all nodes are gone", TIMEOUT, || {
        pids.iter().all(|&pid| !cluster::is_running(pid))
    });
}

#[test]
fn dev_describes_itself_and_is_ready_within_five_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let port = ports::free(4);
    let started = std::time::Instant::now();
    let mut dev = cluster::command(["dev", "--gateways", "1", "--targets", "3", "--disks", "2"]);
    let mut dev = spawn(dev.args(["--port", &port.to_string(), "--dir"]).arg(dir.path()));
    let description = dir.path().join("dev.json");
    wait::until("dev.json is there", TIMEOUT, || description.exists());
    let took = started.elapsed();
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&description).unwrap()).unwrap();
    assert_eq!(json["endpoint"], format!("http://127.0.0.1:{port}"));
    assert_eq!(json["s3"], format!("http://127.0.0.1:{port}/s3"));
    assert_eq!(json["gateways"][0]["url"], json["endpoint"]);
    let targets = json["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 3);
    for (n, target) in targets.iter().enumerate() {
        assert_eq!(target["url"], format!("http://127.0.0.1:{}", usize::from(port) + 1 + n));
        assert!(target["id"].as_str().unwrap().len() >= 8);
        let disks = target["disks"].as_array().unwrap();
        assert_eq!(disks.len(), 2);
        assert!(disks.iter().all(|d| std::path::Path::new(d.as_str().unwrap()).is_dir()));
        let cmd = dir.path().join(target["id"].as_str().unwrap()).join("cmd");
        let line = std::fs::read_to_string(&cmd).unwrap();
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert_eq!(std::fs::metadata(&cmd).unwrap().permissions().mode() & 0o777, 0o700);
    }
    let keys: Vec<_> = json["s3_keys"].as_array().unwrap().iter().collect();
    assert_eq!(keys[0]["access"], "forebay");
    assert_eq!(keys[1]["secret"], "forebaysecret2");
    // Now all of it works.
    for node in json["gateways"].as_array().unwrap().iter().chain(targets) {
        let url = node["url"].as_str().unwrap();
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(http::get(&format!("{url}{path}")).status, 200, "{url}{path}");
        }
    }
    cluster::signal(dev.0.id(), "INT");
    assert_eq!(wait_for_end(&mut dev.0, TIMEOUT).unwrap().code(), Some(0));
    assert!(took < Duration::from_secs(5), "ready after {took:?}");
}

#[test]
fn node_cmd_prints_one_command_for_each_node_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = cluster::command(["dev", "--targets", "2", "--port", "20000", "--node-cmd", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].contains(" gateway --config "), "{text}");
    assert!(
        lines[1].contains(" target --config ") && lines[2].contains(" target --config "),
        "{text}"
    );
    for line in lines {
        let config = line.rsplit(' ').next().unwrap();
        assert!(std::path::Path::new(config).exists(), "{config}");
    }
    assert!(!dir.path().join("dev.json").exists());
}

#[tokio::test]
async fn serve_keeps_its_data_its_ids_and_its_secret_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let port = ports::free(2);
    let bucket = native("kept");
    let mut secret = String::new();
    for start in 1..=2 {
        let mut serve = cluster::command(["serve", "--port", &port.to_string(), "--dir"]);
        let mut serve = spawn(serve.arg(dir.path()));
        let mut said = String::new();
        let mut lines = BufReader::new(serve.0.stdout.take().unwrap()).lines();
        while !said.contains("Ctrl-C") {
            said.push_str(&lines.next().expect("it says how to use it").unwrap());
            said.push('\n');
        }
        let endpoint = format!("http://127.0.0.1:{port}");
        assert!(said.contains(&format!("export FOREBAY_ENDPOINT={endpoint}")), "{said}");
        assert!(said.contains("disk budget"), "{said}");
        let client = Client::new(ClientConfig::new(&endpoint)).unwrap();
        let secret_file = dir.path().join("secret");
        assert_eq!(std::fs::metadata(&secret_file).unwrap().permissions().mode() & 0o777, 0o600);
        let secret_now = std::fs::read_to_string(secret_file).unwrap();
        if start == 1 {
            client.create_bucket(&bucket, None).await.unwrap();
            client.put(&bucket, "x", "kept", None).await.unwrap();
            secret = secret_now;
        } else {
            assert_eq!(secret_now, secret);
        }
        assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "kept");
        drop(client);
        cluster::signal(serve.0.id(), "TERM");
        assert_eq!(wait_for_end(&mut serve.0, TIMEOUT).unwrap().code(), Some(0));
    }
}

/// Starts it with its standard output piped.
fn spawn(command: &mut Command) -> Process {
    Process(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

fn ids(cluster: &Cluster) -> Vec<String> {
    cluster.gateways.iter().chain(&cluster.targets).map(|node| node.id.clone()).collect()
}
