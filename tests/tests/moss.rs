//! GetBatch of v1 from the client's view: buffered responses, refusals, and the job of a batch.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_tests::cluster::{Cluster, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::{Shared, http, wait};
use serde_json::{Value, json};

static CLUSTER: Shared<Cluster> = Shared::new();

/// More than a target keeps in memory of a response, and than the buffers of two sockets hold.
const COUNT: usize = 12;
const SIZE: usize = 2 << 20;

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(Cluster::plain)
}

/// A bucket with large objects; their names.
async fn large(cluster: &Cluster, bucket: &str) -> Vec<String> {
    let client = cluster.client();
    let own = native(bucket);
    client.create_bucket(&own, None).await.unwrap();
    let names: Vec<String> = (0..COUNT).map(|n| format!("large/{n:02}")).collect();
    for name in &names {
        client.put(&own, name, content(name, SIZE), None).await.unwrap();
    }
    names
}

fn batch(names: &[String], options: Value) -> Value {
    let entries: Vec<_> = names.iter().map(|name| json!({"objname": name})).collect();
    let mut body = options;
    body["in"] = entries.into();
    body
}

fn moss(cluster: &Cluster, bucket: &str) -> http::Request {
    http::request("GET", &format!("{}/v1/ml/moss/{bucket}?provider=ais", cluster.endpoint))
}

/// Where a gateway sends this batch.
fn target_of(cluster: &Cluster, bucket: &str, body: &Value) -> String {
    let sent_on = moss(cluster, bucket).json(body).send();
    assert_eq!(sent_on.status, 307, "{}", sent_on.text());
    sent_on.header("location").unwrap().to_owned()
}

fn files_in_work(folder: &Path, within: bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files_in_work(&path, within || path.ends_with("work")),
            false if within => vec![path],
            false => Vec::new(),
        })
        .collect()
}

#[tokio::test]
async fn a_buffered_batch_of_any_size_comes_whole_and_leaves_nothing_behind() {
    // A cluster of its own, so that its folders have data of this test only.
    let cluster = Cluster::plain();
    let names = large(&cluster, "buffered").await;
    let body = batch(&names, json!({"mime": ".tar", "strm": false, "coer": true, "onob": true}));
    let answer = moss(&cluster, "buffered").json(&body).follow();
    assert_eq!(answer.status, 200, "{}", answer.text());

    let kind = answer.header("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/mixed; boundary=").unwrap();
    let text = String::from_utf8_lossy(&answer.body[..4096.min(answer.body.len())]).into_owned();
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"metadata\"\r\n\
         Content-Type: application/json\r\n\r\n"
    );
    let rest = text.strip_prefix(&head).unwrap();
    let metadata = &rest[..rest.find(&format!("\r\n--{boundary}\r\n")).unwrap()];
    let metadata: Value = serde_json::from_str(metadata).unwrap();
    let uuid = metadata["uuid"].as_str().unwrap();
    assert!(uuid.starts_with("gbt-"), "{uuid}");
    assert_eq!(metadata["out"].as_array().unwrap().len(), COUNT);
    assert!(text.contains(&format!("name=\"archive\"; filename=\"get-batch[{uuid}]\"")), "{text}");

    let archive = text.find("octet-stream\r\n\r\n").unwrap() + "octet-stream\r\n\r\n".len();
    let mut archive = tar::Archive::new(&answer.body[archive..]);
    let mut read = archive.entries().unwrap();
    for name in &names {
        let mut member = read.next().unwrap().unwrap();
        assert_eq!(member.path().unwrap().to_str(), Some(name.as_str()));
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        assert_same(name, &bytes, &content(name, SIZE));
    }
    wait::until("the answer's file is gone", Duration::from_secs(10), || {
        files_in_work(cluster.dir(), false).is_empty()
    });
}

#[tokio::test]
async fn a_batch_that_must_be_complete_and_is_not_fails_before_or_at_the_gap() {
    let cluster = cluster();
    let mut names = large(&cluster, "gap").await;
    names.push("not/there".into());
    for _ in 0..3 {
        // Whichever target is asked to assemble, the outcome is the same.
        names.rotate_left(1);
        let buffered = batch(&names, json!({"strm": false, "coer": false}));
        let there = target_of(&cluster, "gap", &buffered);
        for target in &cluster.targets {
            let path = http::split(&there).1;
            let url = format!("{}{path}", target.url);
            let failed = http::request("GET", &url).json(&buffered).send();
            assert_eq!(failed.status, 404, "{}", failed.text());
            let message = failed.message();
            assert!(message.contains("ais://gap/not/there does not exist"), "{message}");

            let streamed = batch(&names, json!({"strm": true, "coer": false}));
            let cut = http::request("GET", &url).json(&streamed).try_send();
            assert!(cut.is_err(), "the stream has no proper end");
        }
    }
}

#[tokio::test]
async fn what_is_no_batch_is_400_and_names_the_reason() {
    let cluster = cluster();
    cluster.client().create_bucket(&native("odd"), None).await.unwrap();
    let good = batch(&["x".into()], json!({"strm": true, "coer": true}));
    let target = target_of(&cluster, "odd", &good);
    for (body, reason) in [
        ("", "moss: "),
        ("{", "moss: "),
        ("null", "moss: "),
        (r#"{"in":null}"#, "empty input"),
        (r#"{"in":[]}"#, "empty input"),
        (r#"{"in":[{}]}"#, "invalid object name"),
        (r#"{"in":[{"objname":7}]}"#, "expected a string"),
        (r#"{"in":[{"objname":"x","start":"1"}]}"#, "invalid type"),
        (r#"{"in":[{"objname":"x","start":1}]}"#, "invalid range"),
        (r#"{"in":[{"objname":"x","start":-1,"length":2}]}"#, "invalid range"),
        (r#"{"in":[{"objname":"x","length":-2}]}"#, "invalid range"),
        (r#"{"in":[{"objname":"x","uname":"ais/@#/odd/x"}]}"#, "must name a bucket only"),
        (r#"{"in":[{"objname":"x","uname":"nonsense"}]}"#, "invalid uname"),
        (r#"{"in":[{"objname":"x","bucket":"odd","provider":"nope"}]}"#, "provider"),
        (r#"{"in":[{"objname":"x"}],"mime":".rar"}"#, "unknown output format"),
        (r#"{"in":[{"objname":"x"}],"coer":"yes"}"#, "invalid type"),
    ] {
        for url in [format!("{}/v1/ml/moss/odd?provider=ais", cluster.endpoint), target.clone()] {
            let refused = http::request("GET", &url).body(body).send();
            assert_eq!(refused.status, 400, "{body}: {}", refused.text());
            let message = refused.message();
            assert!(message.contains(reason), "{body}: {message}");
        }
    }
}

/// The jobs of batches in this bucket, as the targets report them.
fn jobs(cluster: &Cluster, bucket: &str) -> Vec<Value> {
    let url = format!("{}/v1/cluster?what=qryxstats", cluster.endpoint);
    let answer = http::request("GET", &url).json(&json!({"kind": "get-batch"})).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let by_target = answer.json().as_object().unwrap().clone();
    let all = by_target.into_iter().flat_map(|(_, list)| list.as_array().unwrap().clone());
    all.filter(|job| job["bck"]["name"] == bucket).collect()
}

fn abort(cluster: &Cluster, id: &Value) {
    let stop = json!({"action": "stop", "value": {"ID": id, "Kind": "get-batch"}});
    let answer =
        http::request("PUT", &format!("{}/v1/cluster", cluster.endpoint)).json(&stop).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn a_batch_is_a_job_that_idles_as_soon_as_it_is_answered() {
    let cluster = cluster();
    let names = large(&cluster, "job").await;
    for strm in [true, false] {
        let body = batch(&names, json!({"strm": strm, "coer": true}));
        assert_eq!(moss(&cluster, "job").json(&body).follow().status, 200);
        let jobs = jobs(&cluster, "job");
        let job = jobs.iter().max_by_key(|job| job["start-time"].to_string()).unwrap();
        assert!(job["id"].as_str().unwrap().starts_with("gbt-"), "{job}");
        assert_eq!((&job["kind"], &job["is_idle"]), (&"get-batch".into(), &true.into()), "{job}");
        assert_eq!(job["stats"]["loc-objs"], COUNT.to_string(), "{job}");
        assert_eq!(job["stats"]["loc-bytes"], (COUNT * SIZE).to_string(), "{job}");
        assert_eq!(job["aborted"], false, "{job}");
        // A client may still abort an idle job.
        abort(&cluster, &job["id"]);
        let after = self::jobs(&cluster, "job");
        let after = after.iter().find(|other| other["id"] == job["id"]).unwrap();
        assert_eq!(after["aborted"], true, "{after}");
        assert_ne!(after["abort-err"], "", "{after}");
    }
}

#[tokio::test]
async fn aborting_a_batch_that_is_under_way_cuts_its_stream() {
    let cluster = cluster();
    let names = large(&cluster, "abort").await;
    let body = batch(&names, json!({"strm": true, "coer": true})).to_string();
    let target = target_of(&cluster, "abort", &serde_json::from_str(&body).unwrap());
    let (address, path) = http::split(&target);
    let mut reader = TcpStream::connect(address).unwrap();
    reader.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(
        reader,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut first = [0; 1024];
    reader.read_exact(&mut first).unwrap();
    assert!(first.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&first));

    let running = jobs(&cluster, "abort").pop().unwrap();
    assert_eq!((&running["is_idle"], &running["aborted"]), (&false.into(), &false.into()));
    assert_eq!(running["end-time"], "0001-01-01T00:00:00Z", "{running}");
    abort(&cluster, &running["id"]);
    let mut rest = Vec::new();
    // The end is a closed connection without the last chunk, however that reads here.
    let _ = reader.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"0\r\n\r\n"), "the stream has no proper end");
    assert!(rest.len() < COUNT * SIZE, "{} bytes", rest.len());
    let aborted = jobs(&cluster, "abort").pop().unwrap();
    assert_eq!((&aborted["id"], &aborted["aborted"]), (&running["id"], &true.into()), "{aborted}");
}
