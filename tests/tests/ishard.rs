//! Packing a bucket into shards: planned shards are written, and no partial ones.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Output};
use std::time::Duration;

use forebay_client::Client;
use forebay_core::ishard::{IshardSpec, KeyMode, ManifestLine, MissingAction, ShardSize};
use forebay_core::job::{JobState, JobStatus};
use forebay_core::{Bucket, ErrorCode, placement};
use forebay_tests::cluster::{cloud, command, folder_backend, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::{Cluster, Minio, Options, http, wait};
use futures::StreamExt;
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Annotations beside images of two classes, in the layout of ImageNet.
const IMAGENET: [(&str, usize); 10] = [
    ("IN/Annotations/n03/n03_01.xml", 100),
    ("IN/Annotations/n03/n03_02.xml", 100),
    ("IN/Annotations/n69/n69_01.xml", 100),
    ("IN/Data/train/n03/n03_01.JPEG", 30_000),
    ("IN/Data/train/n03/n03_02.JPEG", 2_500_000),
    ("IN/Data/train/n03/n03_02.loss", 0),
    ("IN/Data/train/n69/n69_01.JPEG", 30_000),
    ("IN/Data/val/n03/val_0001.JPEG", 30_000),
    ("IN/Data/val/n03/val_0001.seg.png", 300),
    ("README", 9),
];

async fn put_all<'a>(
    client: &Client,
    bucket: &Bucket,
    files: impl IntoIterator<Item = (&'a str, usize)>,
) {
    futures::stream::iter(files)
        .map(|(name, size)| async move {
            client.put(bucket, name, content(name, size), None).await.unwrap();
        })
        .buffer_unordered(16)
        .collect::<Vec<_>>()
        .await;
}

/// A cluster with the ImageNet-like tree in `ais://src`, and an empty `ais://dst`.
async fn with_tree(targets: u16) -> Cluster {
    let cluster = Cluster::start(Options { targets, ..Options::default() });
    let client = cluster.client();
    for bucket in ["src", "dst"] {
        client.create_bucket(&native(bucket), None).await.unwrap();
    }
    put_all(&client, &native("src"), IMAGENET).await;
    cluster
}

fn forebay(cluster: &Cluster, words: &[&str]) -> Output {
    let mut line = command(words);
    line.args(["--endpoint", &cluster.endpoint]);
    line.output().unwrap()
}

fn ishard(cluster: &Cluster, words: &[&str]) -> Output {
    forebay(cluster, &[&["ishard"], words].concat())
}

#[track_caller]
fn done(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said} {text}", output.status);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[track_caller]
fn refused(output: &Output, code: i32, word: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(word), "{said}");
}

/// All members of an uncompressed shard, in its order.
fn members(shard: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(shard);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, bytes)
    };
    archive.entries().unwrap().map(read).collect()
}

async fn all_objects(client: &Client, bucket: &Bucket) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for (name, _) in client.list_all(bucket, "").await.unwrap() {
        let bytes = client.get_bytes(bucket, &name, None).await.unwrap();
        all.insert(name, bytes.to_vec());
    }
    all
}

async fn over(client: &Client, id: &str) -> JobStatus {
    wait::until_async("the job is over", TIMEOUT * 2, || async {
        client.job(id).await.unwrap().is_over()
    })
    .await;
    client.job(id).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_shows_what_a_run_writes_in_every_key_mode() {
    let cluster = with_tree(3).await;
    let client = cluster.client();
    let content_of: BTreeMap<&str, usize> = IMAGENET.into();
    for (i, key) in ["base_file_name", "full_name", "collapse_all_dir", r"(n\d+_\d+|val_\d+)"]
        .iter()
        .enumerate()
    {
        let to = format!("ais://dst/mode-{i}/");
        for size in ["2", "20KB"] {
            let words = [
                "ais://src",
                &to,
                "--key",
                key,
                "--size",
                size,
                "--overwrite=always",
                "-o",
                "json",
            ];
            let planned = done(&ishard(&cluster, &[&words[..], &["--dry-run"]].concat()));
            let ran = ishard(&cluster, &[&words[..], &["--wait"]].concat());
            let ran = done(&ran);
            assert_eq!((&ran["state"], &ran["errors"]), (&json!("done"), &json!(0)), "{ran}");
            assert_eq!(ran["objects"], 10, "{ran}");
            assert_eq!((&ran["total_objects"], &ran["bytes"]), (&json!(10), &ran["total_bytes"]));

            let shards = planned.as_array().unwrap();
            let manifest = client
                .get_bytes(&native("dst"), &format!("mode-{i}/manifest.jsonl"), None)
                .await
                .unwrap();
            let lines: Vec<ManifestLine> = manifest
                .split(|b| *b == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect();
            assert_eq!(lines.len(), shards.len());
            for (shard, line) in shards.iter().zip(&lines) {
                let name = shard["shard"].as_str().unwrap();
                let bytes = client.get_bytes(&native("dst"), name, None).await.unwrap();
                let head = client.head(&native("dst"), name).await.unwrap();
                assert_eq!(line.shard, name);
                assert_eq!((line.size, &line.checksum), (head.size, &head.checksum));
                assert_eq!(
                    json!([line.samples, line.files, line.bytes]),
                    json!([shard["samples"], shard["files"], shard["bytes"]])
                );
                let want = shard["members"].as_array().unwrap();
                let got = members(&bytes);
                assert_eq!(got.len(), want.len(), "{name}");
                for ((member, bytes), want) in got.iter().zip(want) {
                    let object = want["object"].as_str().unwrap();
                    assert_eq!(member, want["name"].as_str().unwrap());
                    assert_same(object, bytes, &content(object, content_of[object]));
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_are_the_same_bytes_on_one_target_and_on_three() {
    let mut written = Vec::new();
    for targets in [1, 3] {
        let cluster = with_tree(targets).await;
        let client = cluster.client();
        let spec = IshardSpec {
            size: ShardSize::Count(2),
            sort: "shuffle:42".parse().unwrap(),
            destination_prefix: "s/".into(),
            ..IshardSpec::new(native("src"), native("dst"))
        };
        for ext in FORMATS {
            let spec = IshardSpec {
                ext: (*ext).into(),
                destination_prefix: format!("{ext}/"),
                ..spec.clone()
            };
            let id = client.start_ishard(&spec).await.unwrap();
            let status = over(&client, &id).await;
            assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
        }
        written.push(all_objects(&client, &native("dst")).await);
    }
    assert_eq!(written[0].len(), FORMATS.len() * 4);
    assert!(written[0] == written[1], "{:?} {:?}", written[0].keys(), written[1].keys());
}

/// All formats that a shard may have.
const FORMATS: &[&str] = &[".tar", ".tgz", ".tar.lz4", ".tar.zst", ".zip"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_reads_the_shards() {
    let cluster = with_tree(2).await;
    let client = cluster.client();
    let folder = tempfile::tempdir().unwrap();
    for ext in [".tar", ".tgz"] {
        let to = format!("ais://dst/{}/", &ext[1..]);
        let words = ["ais://src", &to, "--ext", ext, "--wait", "-o", "json"];
        done(&ishard(&cluster, &words));
        let name = format!("{}/shard-000000{ext}", &ext[1..]);
        let bytes = client.get_bytes(&native("dst"), &name, None).await.unwrap();
        let path = folder.path().join(format!("x{ext}"));
        std::fs::write(&path, bytes).unwrap();
        let script = "import sys, tarfile\n\
            with tarfile.open(sys.argv[1]) as t:\n\
            \x20   for m in t:\n\
            \x20       print(m.name, m.size, oct(m.mode), m.mtime, len(t.extractfile(m).read()))\n";
        let ran = Command::new("python3").args(["-c", script]).arg(&path).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let text = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(text.lines().count(), 10, "{text}");
        assert!(text.contains("n03_02.JPEG 2500000 0o644 0 2500000"), "{text}");
        assert!(text.starts_with("README 9 "), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_work_is_refused_and_nothing_is_written() {
    let cluster = with_tree(3).await;
    let client = cluster.client();
    put_all(&client, &native("src"), [("twice/a/x.jpg", 5), ("twice/b/x.jpg", 5)]).await;
    let run = |words: &[&str]| ishard(&cluster, words);
    // A template, rules and extensions that do not fit; sources and destinations that are not there.
    let few = ["ais://src/IN", "ais://dst", "--size=1", "--template=s-{0..1}"];
    refused(&run(&few), 2, "has 2 names, 4 shards");
    refused(&run(&["ais://src/twice", "ais://dst"]), 1, "twice/b/x.jpg");
    let abort = ["ais://src/IN", "ais://dst", "--exts=.JPEG,.xml", "--missing=abort"];
    refused(&run(&abort), 1, "n03_02.loss");
    refused(&run(&["ais://src/IN", "ais://dst", "--key=[(a"]), 2, "regular expression");
    refused(&run(&["ais://src/IN", "ais://dst", "--ext=.rar"]), 2, ".tar.zst");
    refused(&run(&["ais://src/none", "ais://dst"]), 4, "has no objects");
    refused(&run(&["ais://nowhere", "ais://dst", "--create"]), 4, "ais://nowhere");
    refused(&run(&["ais://src/IN", "ais://new"]), 4, "--create");
    refused(&run(&["ais://src/IN", "ais://new", "--dry-run"]), 4, "ais://new");
    refused(&run(&[&few[..], &["--create", "--dry-run"]].concat()), 2, "4 shards");
    refused(&run(&["ais://src/twice", "ais://new", "--create"]), 1, "twice/b/x.jpg");
    assert_eq!(client.list_all(&native("dst"), "").await.unwrap(), []);
    let none = client.head_bucket(&native("new")).await.unwrap_err();
    assert_eq!(none.code(), ErrorCode::BucketNotFound, "a bad plan makes no bucket");

    // A valid job may create its bucket, and existing objects are not overwritten.
    let made = ["ais://src/IN", "ais://new", "--size=1", "--create", "--wait", "-o", "json"];
    done(&run(&made));
    let before = all_objects(&client, &native("new")).await;
    assert_eq!(before.len(), 5);
    refused(&run(&made), 6, "ais://new/manifest.jsonl exists already");
    let shards = [&made[..], &["--manifest=other"]].concat();
    refused(&run(&shards), 6, "ais://new/shard-000000.tar exists already");
    refused(&run(&[&shards[..], &["--dry-run"]].concat()), 6, "shard-000000.tar");
    assert_eq!(all_objects(&client, &native("new")).await.len(), before.len());
    let spec = IshardSpec::new(native("src"), native("new"));
    let over = serde_json::to_value(IshardSpec { prefix: "IN".into(), ..spec.clone() }).unwrap();
    let url = format!("{}/api/v1/ishard", cluster.endpoint);
    let answer = http::request("POST", &url).json(&over).send();
    assert_eq!(answer.status, 409, "{}", answer.text());
    let mut unknown = over.clone();
    unknown["shard_sise"] = json!(1);
    assert_eq!(http::request("POST", &url).json(&unknown).send().status, 400);

    // Refused jobs are in the list, as failed ones.
    let jobs = client.jobs().await.unwrap();
    assert!(jobs.iter().filter(|j| j.state == JobState::Failed).count() >= 5, "{jobs:?}");
    assert!(jobs.iter().all(JobStatus::is_over));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn excluded_samples_and_files_are_counted_and_reported() {
    let cluster = with_tree(2).await;
    let client = cluster.client();
    let spec = IshardSpec {
        sample_exts: vec![".JPEG".into(), ".xml".into()],
        missing: MissingAction::Exclude,
        ..IshardSpec::new(native("src"), native("dst"))
    };
    let status = over(&client, &client.start_ishard(&spec).await.unwrap()).await;
    assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
    let notes = status.notes.join("\n");
    assert!(notes.contains("left out: 2 whole samples, 4 files"), "{notes}");
    let shard = client.get_bytes(&native("dst"), "shard-000000.tar", None).await.unwrap();
    let names: Vec<_> = members(&shard).into_iter().map(|(name, _)| name).collect();
    let want =
        ["n03_01.JPEG", "n03_01.xml", "n03_02.JPEG", "n03_02.xml", "n69_01.JPEG", "n69_01.xml"];
    assert_eq!(names, want);
}

/// A source of many objects, in one shard each.
async fn many(cluster: &Cluster, count: usize, size: usize) -> IshardSpec {
    let client = cluster.client();
    for bucket in ["many", "out"] {
        client.create_bucket(&native(bucket), None).await.unwrap();
    }
    let names: Vec<String> = (0..count).map(|n| format!("{n:05}.bin")).collect();
    put_all(&client, &native("many"), names.iter().map(|n| (n.as_str(), size))).await;
    IshardSpec { size: ShardSize::Count(1), ..IshardSpec::new(native("many"), native("out")) }
}

/// Every shard that can be seen is whole. Says how many there are.
async fn whole_shards(client: &Client, size: usize) -> usize {
    let objects = all_objects(client, &native("out")).await;
    for (name, bytes) in &objects {
        let members = members(bytes);
        assert_eq!(members.len(), 1, "{name}");
        assert_same(name, &members[0].1, &content(&members[0].0, size));
    }
    objects.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_leaves_whole_shards_and_makes_no_more() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let spec = many(&cluster, 400, 200_000).await;
    let id = client.start_ishard(&spec).await.unwrap();
    wait::until_async("some shards are there", TIMEOUT, || async {
        client.list_all(&native("out"), "").await.unwrap().len() > 3
    })
    .await;
    let cancelled = forebay(&cluster, &["job", "cancel", &id]);
    assert!(cancelled.status.success());
    let waited = forebay(&cluster, &["job", "wait", &id]);
    refused(&waited, 8, "was cancelled");
    let count = client.list_all(&native("out"), "").await.unwrap().len();
    assert!(count < 400, "it was cancelled in time");
    assert_eq!(whole_shards(&client, 200_000).await, count);
    let status = client.job(&id).await.unwrap();
    assert_eq!((status.state, status.total_objects), (JobState::Stopped, 400));
    // The same job again writes all of them.
    let again = IshardSpec { overwrite: "always".parse_word(), manifest: String::new(), ..spec };
    let status = over(&client, &client.start_ishard(&again).await.unwrap()).await;
    assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
    assert_eq!(whole_shards(&client, 200_000).await, 400);
}

trait Word {
    fn parse_word<T: serde::de::DeserializeOwned>(&self) -> T;
}

impl Word for str {
    fn parse_word<T: serde::de::DeserializeOwned>(&self) -> T {
        serde_json::from_value(json!(self)).unwrap()
    }
}

/// The target that runs a job.
fn runner(cluster: &Cluster, id: &str) -> String {
    let map = cluster.map();
    let nodes = map.state.alive_targets();
    placement::highest(nodes, placement::digest(id)).unwrap().id.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_lost_for_a_while_costs_a_pause() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let spec = IshardSpec { manifest: String::new(), ..many(&cluster, 300, 200_000).await };
    let id = client.start_ishard(&spec).await.unwrap();
    let runs = runner(&cluster, &id);
    let other = cluster.targets.iter().find(|t| t.id != runs).unwrap();
    cluster.kill9(&other.id);
    cluster.restart(&other.id);
    let status = over(&client, &id).await;
    assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
    assert_eq!((status.objects, status.total_objects), (300, 300));
    assert_eq!(whole_shards(&client, 200_000).await, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_target_dies_fails_and_leaves_nothing_half() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let spec = many(&cluster, 400, 200_000).await;
    let id = client.start_ishard(&spec).await.unwrap();
    let runs = runner(&cluster, &id);
    cluster.kill9(&runs);
    cluster.restart(&runs);
    let status = over(&client, &id).await;
    assert_eq!(status.state, JobState::Failed);
    assert!(status.messages[0].contains(&runs), "{:?}", status.messages);
    assert!(whole_shards(&client, 200_000).await < 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_a_cloud_are_fetched_once_and_packed() {
    let Some(minio) = Minio::start() else { return };
    let cluster = Cluster::start(Options { env: minio.env(), ..Options::default() });
    minio.create_bucket("raw").await;
    for (name, size) in IMAGENET {
        minio.put("raw", name, content(name, size)).await;
    }
    let client = cluster.client();
    minio.create_bucket("packed").await;
    // Into a native bucket, and into one of the cloud.
    for to in ["ais://shards", "s3://packed/below/"] {
        let words = ["s3://raw/IN/", to, "--size=3", "--create", "--wait", "-o", "json"];
        assert_eq!(done(&ishard(&cluster, &words))["objects"], 9);
    }
    assert_eq!(minio.count("GetObject"), 9, "each object was read once");
    let native_shard = client.get_bytes(&native("shards"), "shard-000000.tar", None).await.unwrap();
    let names: Vec<_> = members(&native_shard).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    let there = minio.get("packed", "below/shard-000000.tar").await.unwrap();
    assert_same("the shard at MinIO", &there, &native_shard);
    let listed = client.list_all(&cloud("packed"), "").await.unwrap();
    assert_eq!(listed.len(), 3, "{listed:?}");
}

/// Most memory that a node has had, in bytes.
fn peak_memory(cluster: &Cluster, id: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid(id))).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_objects_are_packed_in_bounded_memory() {
    let root = tempfile::tempdir().unwrap();
    let tree = root.path().join("tree");
    for n in 0..50_000 {
        if n % 500 == 0 {
            std::fs::create_dir_all(tree.join(format!("{:03}", n / 500))).unwrap();
        }
        let path = tree.join(format!("{:03}/{n:06}", n / 500));
        std::fs::write(path.with_extension("cls"), format!("{n}")).unwrap();
        std::fs::write(path.with_extension("bin"), vec![n as u8; 256]).unwrap();
    }
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, ..Options::default() });
    let client = cluster.client();
    let source = native("tree");
    client.create_bucket(&source, Some(folder_backend(&tree))).await.unwrap();
    let nodes: Vec<String> =
        cluster.targets.iter().chain(&cluster.gateways).map(|n| n.id.clone()).collect();
    let before: Vec<u64> = nodes.iter().map(|id| peak_memory(&cluster, id)).collect();
    let spec = IshardSpec {
        size: ShardSize::Bytes(1 << 20),
        key: KeyMode::FullName,
        collapse: true,
        create: true,
        ..IshardSpec::new(source, native("packed"))
    };
    let id = client.start_ishard(&spec).await.unwrap();
    let status = over(&client, &id).await;
    assert_eq!(status.state, JobState::Done, "{:?}", status.messages);
    assert_eq!(status.objects, 100_000);
    for (id, before) in nodes.iter().zip(before) {
        let grown = peak_memory(&cluster, id).saturating_sub(before) >> 20;
        assert!(grown < 200, "{id} took {grown} MiB more");
        eprintln!("{id}: {grown} MiB more at its peak");
    }
    let manifest = client.get_bytes(&native("packed"), "manifest.jsonl", None).await.unwrap();
    let files: u64 = manifest
        .split(|b| *b == b'\n')
        .filter_map(|line| serde_json::from_slice::<ManifestLine>(line).ok())
        .map(|line| line.files)
        .sum();
    assert_eq!(files, 100_000);
}
