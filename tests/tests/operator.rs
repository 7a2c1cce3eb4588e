//! Output for operators: `doctor`, `cluster info`, `disk ls`, `/metrics` and commands that fail.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_tests::cluster::{command, native, signal};
use forebay_tests::data::{content, names};
use forebay_tests::web::{Reply, Web};
use forebay_tests::{Cluster, Options, http, ports, s3, wait};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(20);

/// The output of a command on both streams, and its exit code.
fn run(cluster: &Cluster, args: &[&str]) -> (String, i32) {
    let output = command(args).env("FOREBAY_ENDPOINT", &cluster.endpoint).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.code().unwrap_or(-1))
}

fn line<'a>(text: &'a str, word: &str) -> &'a str {
    text.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word} in\n{text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_target_and_a_dead_one_with_native_objects_are_reported() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("only-here"));
    client.create_bucket(&bucket, None).await.unwrap();
    for name in names(10) {
        client.put(&bucket, &name, content(&name, 2000), None).await.unwrap();
    }
    wait::until("all targets have reported", TIMEOUT, || run(&cluster, &["doctor"]).1 == 0);
    let (away, left) = (&cluster.targets[1].id, &cluster.targets[0].id);
    let (text, code) = run(&cluster, &["node", "drain", away, "--wait"]);
    assert!(code == 0 && text.contains("is drained"), "{code}: {text}");
    let (text, code) = run(&cluster, &["cluster", "info"]);
    assert!(code == 0 && line(&text, away).contains("drained"), "{text}");
    assert!(line(&text, left).contains("alive"), "{text}");
    let (json, _) = cluster.cli(&["cluster", "info", "-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let nodes = json["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|node| node["id"] == away.as_str()).unwrap();
    assert_eq!((&node["state"], &node["maintenance"]), (&"drained".into(), &true.into()), "{node}");
    let (text, code) = run(&cluster, &["doctor"]);
    assert!(code == 0 && text.contains("drained: it holds no native object"), "{code}: {text}");
    let metrics = http::get(&format!("{}/metrics", cluster.endpoint)).text();
    let drained = ["role=\"target\"", "state=\"drained\""];
    assert_eq!(http::metric(&metrics, "forebay_cluster_nodes{", &drained), 1.0, "{metrics}");

    cluster.kill9(left);
    wait::until("the map has it dead", TIMEOUT, || !cluster.is_alive(left));
    let (text, code) = run(&cluster, &["doctor"]);
    assert!(
        code == 1 && text.contains("objects cannot be read in ais://only-here"),
        "{code}: {text}"
    );
}

#[test]
fn gateways_without_a_majority_say_so() {
    let cluster = Cluster::start(Options { gateways: 3, targets: 1, ..Options::default() });
    let led = || {
        let metrics = http::get(&format!("{}/metrics", cluster.endpoint)).text();
        metrics.lines().any(|line| line == "forebay_cluster_has_leader 1")
    };
    wait::until("there is a leader", TIMEOUT, led);
    for gateway in &cluster.gateways[1..] {
        cluster.kill9(&gateway.id);
    }
    wait::until("the last gateway notices", TIMEOUT, || !led());
    let (text, code) = run(&cluster, &["cluster", "info"]);
    assert!(code == 0 && text.contains("no majority of the gateways"), "{text}");
    let (text, code) = run(&cluster, &["doctor"]);
    let found = line(&text, "no majority");
    assert!(code == 1 && found.contains("FAIL") && found.contains("until 2 of 3 reply"), "{text}");
    assert!(text.contains("no process listens at"), "{text}");
    assert!(!text.contains("disk budget"), "usage that nobody reported is no budget: {text}");
}

#[test]
fn put_of_a_folder_counts_what_was_stored_and_stops_at_what_will_repeat() {
    let cluster = Cluster::start(Options { targets: 1, size: Some("64MiB"), ..Options::default() });
    let dir = tempfile::tempdir().unwrap();
    for n in 0..40 {
        std::fs::write(dir.path().join(format!("f{n:02}")), vec![n; 4 << 20]).unwrap();
    }
    let from = dir.path().to_str().unwrap();
    let (text, code) = run(&cluster, &["put", "-r", from, "ais://missing/"]);
    assert_eq!((code, text.matches("does not exist").count()), (4, 1), "{text}");
    assert_eq!(run(&cluster, &["mb", "ais://small"]).1, 0);
    let put = ["put", "-r", from, "ais://small/", "-o", "json", "-j", "2", "--timeout", "5s"];
    let output = command(put).env("FOREBAY_ENDPOINT", &cluster.endpoint).output().unwrap();
    let (out, err) = (output.stdout, String::from_utf8_lossy(&output.stderr).into_owned());
    let said: Value = serde_json::from_slice(&out).unwrap();
    let stored = cluster.cli(&["ls", "ais://small", "-o", "name"]).0.lines().count() as u64;
    assert!(output.status.code() == Some(1) && err.contains("out_of_space"), "{err}");
    assert!(stored < 40 && said["objects"].as_u64().unwrap() <= stored, "{said}, {stored} stored");
    assert_eq!(said["bytes"].as_u64().unwrap(), said["objects"].as_u64().unwrap() * (4 << 20));
    assert_eq!(said["failed"].as_u64().unwrap(), 40 - said["objects"].as_u64().unwrap());
    assert_eq!(err.matches("out_of_space").count(), 1, "one error, not one for each file: {err}");
}

#[test]
fn a_command_finds_its_endpoint_in_the_file_and_gives_up_soon_where_nobody_listens() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, format!("endpoint = {:?}\n", cluster.endpoint)).unwrap();
    let configured = |args: &[&str]| command(args).env("FOREBAY_CONFIG", &file).output().unwrap();
    assert!(configured(&["mb", "forebay://from-the-file"]).status.success());
    let listed = configured(&["ls", "-o", "name"]).stdout;
    assert!(String::from_utf8_lossy(&listed).contains("ais://from-the-file"));

    let nobody = format!("http://127.0.0.1:{}", ports::free(1));
    let started = Instant::now();
    let output = command(["ls", "--endpoint", &nobody]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert!(text.contains(&format!("cannot connect to {nobody}")), "{text}");
}

#[test]
fn a_wait_that_is_interrupted_says_that_the_job_goes_on_and_how_to_come_back() {
    let fetched = Arc::new(AtomicBool::new(false));
    let seen = fetched.clone();
    // A cloud with one object, which responds slowly.
    let cloud = Web::start(move |request| {
        if request.target.contains("list-type=2") {
            let object = "<Contents><Key>slow</Key><Size>4</Size><ETag>\"e\"</ETag>\
                <LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>";
            let list = format!(
                "<ListBucketResult><IsTruncated>false</IsTruncated>{object}</ListBucketResult>"
            );
            return Reply::new(200, list);
        }
        if request.target.contains("/slow") {
            seen.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_secs(3));
        }
        Reply::new(200, "")
    });
    let env = [
        ("AWS_ENDPOINT_URL", cloud.url.as_str()),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_REGION", "us-east-1"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    let mut prefetch = command(["prefetch", "s3://cloud/", "--wait"]);
    prefetch.env("FOREBAY_ENDPOINT", &cluster.endpoint).stderr(Stdio::piped());
    let child = prefetch.spawn().unwrap();
    wait::until("the job fetches", TIMEOUT, || fetched.load(Ordering::SeqCst));
    signal(child.id(), "INT");
    let ended = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{text}");
    let jobs = cluster.cli(&["job", "ls", "-o", "name"]).0;
    let id = jobs.lines().next().unwrap();
    assert!(text.contains(&format!("job {id} goes on; `forebay job wait {id}`")), "{text}");
}

#[test]
fn every_change_of_buckets_and_of_the_cluster_is_a_line_of_the_log_with_its_sender() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let ok = |args: &[&str]| {
        let (text, code) = run(&cluster, args);
        assert_eq!(code, 0, "{args:?}: {text}");
    };
    let target = cluster.targets[1].id.as_str();
    ok(&["mb", "ais://noted"]);
    ok(&["bucket", "set", "ais://noted", "copies=2"]);
    let file = cluster.dir().join("old");
    std::fs::write(&file, "old").unwrap();
    ok(&["put", file.to_str().unwrap(), "ais://noted/old/"]);
    ok(&["rm", "-r", "ais://noted/old/", "--yes"]);
    ok(&["node", "drain", target, "--wait"]);
    ok(&["node", "uncordon", target]);
    ok(&["rb", "ais://noted", "--yes"]);
    let (text, code) = run(&cluster, &["node", "remove", "not-a-node"]);
    assert_ne!(code, 0, "{text}");
    let made = s3::request("PUT", &cluster.endpoint, "by-s3").send_as(s3::OWNER);
    assert_eq!(made.status, 200, "{}", made.text());
    let log = cluster.dir().join(&cluster.gateways[0].id).join("log");
    let log = std::fs::read_to_string(log).unwrap();
    let has = |words: &[&str]| {
        let found = log.lines().filter(|line| words.iter().all(|word| line.contains(word)));
        assert_eq!(found.count(), 1, "{words:?} in\n{log}");
    };
    let (from, bucket) = ("from=\"127.0.0.1\" api=\"v1\"", "subject=\"ais://noted\"");
    has(&["INFO", "bucket made", bucket, from, "request=", "version="]);
    has(&["bucket changed", bucket, "copies=2", from]);
    has(&["job started", "kind=delete, bucket=ais://noted, prefix=old/", from]);
    has(&["node drained", target, from]);
    has(&["node back in use", target, from]);
    has(&["bucket removed", bucket, from]);
    let request = made.header("x-amz-request-id").unwrap();
    has(&["bucket made", "ais://by-s3", "api=\"s3\"", "user=\"forebay\"", request]);
}

#[test]
fn commands_on_several_objects_do_what_they_can_and_programs_see_all_of_it_as_json() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "first ").unwrap();
    std::fs::write(dir.path().join("c"), "third").unwrap();
    let from = dir.path().to_str().unwrap();
    assert_eq!(run(&cluster, &["mb", "ais://some"]).1, 0);
    let [first, third] = ["a", "c"].map(|name| format!("{from}/{name}"));
    let (text, code) = run(&cluster, &["put", &first, &third, "ais://some/one"]);
    assert!(code == 2 && text.contains("ais://some/one/"), "{text}");
    let (text, code) = run(&cluster, &["put", &first, &first, "ais://some/"]);
    assert!(code == 2 && text.contains("two files would become ais://some/a"), "{text}");
    let (text, code) = run(&cluster, &["put", &first, &third, "ais://some"]);
    assert!(code == 0 && text.contains("put 2 of 2 files"), "{text}");
    let [a, none, c] = ["a", "none", "c"].map(|name| format!("ais://some/{name}"));
    let asked = |args: &[&str]| {
        let output = command(args).env("FOREBAY_ENDPOINT", &cluster.endpoint).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    };
    let (out, err, code) = asked(&["cat", &a, &none, &c]);
    assert_eq!((out.as_str(), code), ("first third", Some(3)), "{err}");
    assert!(err.contains("object_not_found") && err.contains("1 of 3 were not written"), "{err}");
    let (out, err, code) = asked(&["rm", &a, &c, "-o", "json"]);
    let removed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&removed[1]["uri"], code), (&Value::from(c.as_str()), Some(0)), "{err}");
    let error = |err: &str| serde_json::from_str::<Value>(err).unwrap()["error"].clone();
    let (_, err, code) = asked(&["cat", &none, "-o", "json"]);
    assert_eq!((&error(&err)["code"], code), (&"object_not_found".into(), Some(4)), "{err}");
    let (_, err, code) = asked(&["ls", "--nothing", "-o", "json"]);
    assert_eq!((&error(&err)["code"], code), (&"invalid_argument".into(), Some(2)), "{err}");
    let (_, err, code) = asked(&["put", "/none/such", "ais://some/x", "-o", "json"]);
    assert_eq!((&error(&err)["code"], code), (&"file_not_found".into(), Some(4)), "{err}");
    let (_, err, code) = asked(&["dsort", "ais://some"]);
    assert!(code == Some(2) && !err.contains("--endpoint <URL>"), "{err}");
}
