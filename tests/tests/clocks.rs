//! Clocks that are wrong: of nodes, and of clients' machines.

use std::process::Output;
use std::time::Duration;

use forebay_core::{Bucket, ErrorCode};
use forebay_tests::cluster::{NodeHandle, command, native, signal};
use forebay_tests::data::{content, names};
use forebay_tests::{ClockShift, Cluster, Options, http, wait};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A cluster of two targets and its bucket, and what its second target owns of names.
struct Fixture {
    cluster: Cluster,
    bucket: Bucket,
    skewed: NodeHandle,
}

impl Fixture {
    /// The second target's clock is `seconds` ahead.
    async fn start(seconds: i64) -> Self {
        let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
        let shift = ClockShift::build_in(cluster.dir());
        let (bucket, skewed) = (native("skew"), cluster.targets[1].clone());
        cluster.client().create_bucket(&bucket, None).await.unwrap();
        signal(cluster.pid(&skewed.id), "TERM");
        wait::until("the target left", TIMEOUT, || !cluster.is_alive(&skewed.id));
        cluster.shift_clock(&skewed.id, &shift, seconds);
        Self { cluster, bucket, skewed }
    }

    fn owned(&self) -> String {
        let owned = |name: &String| self.cluster.owner(&self.bucket, name).id == self.skewed.id;
        names(100).into_iter().find(owned).unwrap()
    }

    fn doctor(&self) -> (Value, i32) {
        let Output { stdout, status, .. } = command(["doctor", "-o", "json"])
            .env("FOREBAY_ENDPOINT", &self.cluster.endpoint)
            .output()
            .unwrap();
        (serde_json::from_slice(&stdout).unwrap_or_default(), status.code().unwrap())
    }

    /// Result of one check of `doctor`.
    fn finding(&self, check: &str) -> Option<(String, String)> {
        let (found, _) = self.doctor();
        let rows = found.as_array().cloned().unwrap_or_default();
        let row = rows.into_iter().find(|row| row["check"] == check)?;
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        Some((text("result"), text("found")))
    }

    fn log(&self) -> String {
        let path = self.cluster.dir().join(&self.skewed.id).join("log");
        std::fs::read_to_string(path).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_whose_clock_is_a_minute_ahead_is_named_by_answers_doctor_metrics_and_its_log() {
    let fixture = Fixture::start(60).await;
    let Fixture { cluster, bucket, skewed, .. } = &fixture;
    cluster.restart(&skewed.id);
    let name = fixture.owned();
    let put =
        http::request("PUT", &cluster.object_url("skew", &name)).body(*b"some bytes").follow();
    assert_eq!(put.status, 403, "{}", put.text());
    let said = put.text();
    for part in ["the clock of target02 says", "by the clock of gateway1", "30 s allowed", "NTP"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let apart: u64 =
        said.split("difference of ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((59..=62).contains(&apart), "{said}");
    let read = http::request("GET", &cluster.object_url("skew", &name)).follow();
    assert_eq!(read.status, 404, "what is not there is not there: {}", read.text());

    // Our own client shows a grant, which holds for an hour.
    let client = cluster.client();
    client.put(bucket, &name, content(&name, 2000), None).await.unwrap();
    let read = http::request("GET", &cluster.object_url("skew", &name)).follow();
    assert_eq!((read.status, read.body), (200, content(&name, 2000)));

    let check = format!("clock {}", skewed.id);
    wait::until("doctor finds it", TIMEOUT, || fixture.finding(&check).is_some());
    let (result, found) = fixture.finding(&check).unwrap();
    assert!(
        result == "fail" && found.contains("s ahead") && found.matches("Z").count() == 2,
        "{found}"
    );
    assert_eq!(fixture.doctor().1, 1);
    let (info, _) = cluster.cli(&["cluster", "info", "-o", "json"]);
    let info: Value = serde_json::from_str(&info).unwrap();
    let nodes = info["nodes"].as_array().unwrap();
    let offset = |id: &str| {
        let node = nodes.iter().find(|node| node["id"] == id).unwrap();
        node["usage"]["clock"]["offset_ms"].as_i64().unwrap()
    };
    assert!((59_000..=61_000).contains(&offset(&skewed.id)), "{info}");
    assert!(offset(&cluster.targets[0].id).abs() < 2_000, "{info}");
    let metrics = http::get(&format!("{}/metrics", cluster.endpoint)).text();
    let label = format!("node=\"{}\"", skewed.id);
    let offset = http::metric(&metrics, "forebay_cluster_clock_offset_seconds{", &[&label]);
    assert!((59.0..=61.0).contains(&offset), "{metrics}");
    let log = fixture.log();
    let warned = log.lines().filter(|line| line.contains("the clock of this node is")).count();
    assert_eq!(warned, 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_whose_clock_is_an_hour_off_is_kept_out_and_doctor_says_why() {
    let fixture = Fixture::start(-3600).await;
    let Fixture { cluster, skewed, .. } = &fixture;
    cluster.launch(skewed, "");
    let said = "the clock of gateway1 says";
    wait::until("its log names the clock", TIMEOUT, || fixture.log().contains(said));
    assert!(!cluster.is_alive(&skewed.id));
    let check = format!("target {}", skewed.id);
    let (result, found) = fixture.finding(&check).unwrap();
    assert!(result == "fail" && found.contains("its clock says"), "{result}: {found}");
    let metrics = http::get(&format!("{}/metrics", cluster.endpoint)).text();
    let offset = format!("forebay_cluster_clock_offset_seconds{{node=\"{}\"}}", skewed.id);
    assert!(!metrics.contains(&offset), "the offset from before is none any more: {metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_clock_is_two_hours_off_reads_and_writes_and_doctor_names_its_clock() {
    let cluster = Cluster::start(Options { targets: 2, ..Options::default() });
    let shift = ClockShift::build_in(cluster.dir());
    let bucket = native("skew");
    cluster.client().create_bucket(&bucket, None).await.unwrap();
    for seconds in [7200, -7200] {
        let run = |args: &[&str]| {
            let mut command = command(args);
            command.env("FOREBAY_ENDPOINT", &cluster.endpoint).envs(shift.env(seconds));
            let Output { stdout, stderr, status } = command.output().unwrap();
            let text = [stdout, stderr].concat();
            (String::from_utf8_lossy(&text).into_owned(), status.code().unwrap())
        };
        let file = cluster.dir().join("file");
        std::fs::write(&file, "some bytes").unwrap();
        for n in 0..4 {
            let uri = format!("ais://skew/{seconds}/{n}");
            let (text, code) = run(&["put", file.to_str().unwrap(), &uri]);
            assert_eq!(code, 0, "{text}");
            assert_eq!(run(&["cat", &uri]), ("some bytes".to_owned(), 0));
        }
        let (text, code) = run(&["doctor"]);
        assert!(code == 1 && text.contains("this clock says"), "{code}: {text}");
    }
    let missing = cluster.client().head(&bucket, "none").await.unwrap_err();
    assert_eq!(missing.code(), ErrorCode::ObjectNotFound);
}
