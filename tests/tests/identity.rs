//! Identity of nodes: ids that two processes claim, and disks that belong to another node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use forebay_tests::cluster::{self, Cluster, NodeHandle, command, native, wait_for_end};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::{Options, http, ports, wait};

const SIZE: usize = 3_000;
const TIMEOUT: Duration = Duration::from_secs(20);

/// A node that a test configures and starts by hand.
struct TestNode {
    child: Child,
    log: PathBuf,
    url: String,
}

impl TestNode {
    /// Starts a process with the settings of `model`, in a folder and on a port of its own. `change`
    /// edits each line of the settings after that.
    fn start(
        cluster: &Cluster,
        role: &str,
        model: &NodeHandle,
        name: &str,
        change: impl Fn(String) -> String,
    ) -> Self {
        let (from, to) = (cluster.dir().join(&model.id), cluster.dir().join(name));
        fs::create_dir(&to).unwrap();
        let url = format!("http://127.0.0.1:{}", ports::free(1));
        let settings = fs::read_to_string(from.join("forebay.toml")).unwrap();
        let (old, new) = (http::split(&model.url).0.to_owned(), http::split(&url).0.to_owned());
        let folder = |path: &Path| format!("{}/", path.display());
        let settings = settings.lines().map(|line| {
            let line = line.replace(&folder(&from), &folder(&to));
            let own = line.starts_with("http") || line.starts_with("advertise");
            change(if own { line.replace(&old, &new) } else { line })
        });
        fs::write(to.join("forebay.toml"), settings.collect::<Vec<_>>().join("\n")).unwrap();
        let log = to.join("log");
        let file = fs::File::create(&log).unwrap();
        let mut command = command([role, "--config"]);
        command.arg(to.join("forebay.toml")).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: command.spawn().unwrap(), log, url }
    }

    /// The exit code and what the process wrote.
    fn end(&mut self) -> (Option<i32>, String) {
        let status = wait_for_end(&mut self.child, TIMEOUT);
        let log = fs::read_to_string(&self.log).unwrap();
        assert!(status.is_some(), "it goes on:\n{log}");
        (status.and_then(|status| status.code()), log)
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_target_with_the_id_of_a_living_one_is_rejected_and_changes_nothing() {
    let cluster = Cluster::plain();
    let (client, bucket) = (cluster.client(), native("big"));
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(30);
    for name in &names {
        client.put(&bucket, name, content(name, SIZE), None).await.unwrap();
    }
    let first = cluster.targets[0].clone();
    let mut second = TestNode::start(&cluster, "target", &first, "clone", |line| line);
    while second.child.try_wait().unwrap().is_none() {
        assert_eq!(client.list_all(&bucket, "").await.unwrap().len(), names.len());
        for name in &names {
            let answer = http::request("GET", &cluster.object_url("big", name)).follow();
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        }
    }
    let (code, log) = second.end();
    assert_eq!(code, Some(2), "{log}");
    let why = format!("{} is alive at {}", first.id, first.url);
    assert!(log.contains(&why) && log.contains("another node.id"), "{log}");
    let url = |id: &str| {
        cluster.map().state.nodes.values().find(|n| n.id.as_str() == id).unwrap().url.clone()
    };
    assert_eq!(url(&first.id), first.url);
    assert!(cluster.is_alive(&first.id));
    for name in &names {
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, SIZE));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_was_killed_comes_back_at_another_address_when_its_lease_ends() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("moved"));
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(20);
    for name in &names {
        client.put(&bucket, name, content(name, SIZE), None).await.unwrap();
    }
    let target = cluster.targets[0].clone();
    let settings = cluster.dir().join(&target.id).join("forebay.toml");
    let url = format!("http://127.0.0.1:{}", ports::free(1));
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace(http::split(&target.url).0, http::split(&url).0)).unwrap();
    cluster::signal(cluster.pid(&target.id), "KILL");
    cluster.launch(&target, "");
    wait::until("it is alive at its new address", Duration::from_secs(8), || {
        let state = cluster.map().state;
        state.nodes.values().any(|n| n.id.as_str() == target.id && n.alive && n.url == url)
    });
    for name in &names {
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, SIZE));
    }
}

#[test]
fn a_second_gateway_with_the_id_of_a_living_one_is_rejected_and_gets_no_vote() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let first = cluster.gateways[0].clone();
    let known = format!("gateways = [\"{}\"]", first.url);
    let mut second = TestNode::start(&cluster, "gateway", &first, "clone", |line| {
        if line.starts_with("gateways") { known.clone() } else { line }
    });
    let (code, log) = second.end();
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains(&format!("{} is alive at {}", first.id, first.url)), "{log}");
    let state = cluster.map().state;
    assert_eq!(state.gateways().map(|n| n.url.clone()).collect::<Vec<_>>(), [first.url]);
    assert_eq!(cluster.cli(&["mb", "ais://still-works"]).1, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_of_another_target_or_another_cluster_is_rejected() {
    let mut cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("own"));
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let target = cluster.targets[0].clone();
    let disk = cluster.dir().join(&target.id).join("disk1");
    let noted = disk.join(".forebay/disk.json");
    wait::until("the disk has the id of its cluster", TIMEOUT, || {
        fs::read_to_string(&noted).unwrap().contains("\"cluster\"")
    });
    assert_eq!(cluster.stop().code(), Some(0));
    let with_disk = |line: String| match line.starts_with("path = ") {
        true => format!("path = {:?}", disk.to_str().unwrap()),
        false => line,
    };
    let mut other = TestNode::start(&cluster, "target", &target, "other", |line| {
        with_disk(line).replace(&format!("id = \"{}\"", target.id), "id = \"target-other\"")
    });
    let (code, log) = other.end();
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains(&format!("belongs to {}", target.id)), "{log}");

    let elsewhere = Cluster::start(Options { targets: 1, ..Options::default() });
    let model = elsewhere.targets[0].clone();
    elsewhere.kill9(&model.id);
    let mut foreign = TestNode::start(&elsewhere, "target", &model, "foreign", with_disk);
    let (code, log) = foreign.end();
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("hold data of cluster"), "{log}");
    assert!(!elsewhere.map().state.nodes.values().any(|node| node.url == foreign.url));
}
