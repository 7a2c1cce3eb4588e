//! Batches under load: refused in time, bounded in memory, gone with their client; and what one
//! batch reads no more than once.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::{Bucket, ErrorCode, ObjectName};
use forebay_tests::cluster::{cloud, folder_backend, native};
use forebay_tests::data::{assert_same, content, fill_folder, names};
use forebay_tests::{Cluster, Options, http, wait};
use futures::StreamExt;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

async fn filled(cluster: &Cluster, count: usize, size: usize) -> (Bucket, Vec<String>) {
    let (client, bucket) = (cluster.client(), native("own"));
    client.create_bucket(&bucket, None).await.unwrap();
    let names = names(count);
    futures::stream::iter(&names)
        .map(|name| client.put(&bucket, name, content(name, size), None))
        .buffer_unordered(16)
        .for_each(|put| async move { drop(put.unwrap()) })
        .await;
    (bucket, names)
}

fn whole(name: &str) -> BatchEntry {
    BatchEntry::whole(0, ObjectName::new(name).unwrap())
}

fn request(bucket: &Bucket, names: &[String]) -> BatchRequest {
    let entries = names.iter().map(|name| whole(name)).collect();
    BatchRequest { buckets: vec![bucket.clone()], entries, ordered: true }
}

/// Sends a request and reads nothing of its response.
fn sent(method: &str, url: &str, body: &str) -> TcpStream {
    let (address, path) = http::split(url);
    let mut to = TcpStream::connect(address).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    write!(to, "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n")
        .unwrap();
    to.write_all(body.as_bytes()).unwrap();
    to
}

fn open_batches(cluster: &Cluster) -> f64 {
    cluster.metric("forebay_batches", &["state=\"open\""])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_busy_says_429_and_when_to_come_again_and_clients_do() {
    let env = vec![("FOREBAY_LIMITS__BATCHES".to_owned(), "1".to_owned())];
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    // More than the buffers of two sockets hold.
    let (bucket, names) = filled(&cluster, 60, 500_000).await;
    let asked = request(&bucket, &names);
    let body = serde_json::to_string(&asked).unwrap();
    let native = format!("{}/api/v1/batch", cluster.targets[0].url);
    let mut first = sent("POST", &native, &body);
    first.read_exact(&mut [0; 1000]).unwrap();
    // It reads slowly: the target would drop a client that does not read at all.
    let reads = Arc::new(AtomicBool::new(true));
    let going = reads.clone();
    let first = std::thread::spawn(move || {
        let mut piece = vec![0; 100_000];
        while going.load(Ordering::Relaxed) && first.read(&mut piece).is_ok_and(|n| n > 0) {
            std::thread::sleep(Duration::from_millis(100));
        }
    });

    let moss = json!({"in": [{"objname": names[0]}], "strm": true, "coer": true});
    let v1 = format!("{}/v1/ml/moss/own?provider=ais", cluster.endpoint);
    for busy in [
        http::request("POST", &native).header("content-type", "application/json").body(body),
        http::request("GET", &v1).json(&moss),
    ] {
        let began = Instant::now();
        let refused = busy.follow();
        assert_eq!(refused.status, 429, "{}", refused.text());
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(began.elapsed() < 20 * SECOND, "it does not wait for its turn");
    }
    let client = cluster.client();
    let patient = tokio::spawn(async move { client.batch_all(&asked).await });
    tokio::time::sleep(SECOND).await;
    assert!(!patient.is_finished(), "it waits for its turn");
    reads.store(false, Ordering::Relaxed);
    first.join().unwrap();
    for (result, name) in patient.await.unwrap().unwrap().into_iter().zip(&names) {
        assert_same(name, &result.unwrap(), &content(name, 500_000));
    }
    let served = http::request("GET", &v1).json(&moss).follow();
    assert_eq!(served.status, 200, "{}", served.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_many_assemble_for_each_other_do_not_starve() {
    let env = vec![("FOREBAY_LIMITS__BATCHES".to_owned(), "2".to_owned())];
    let cluster = Cluster::start(Options { env, ..Options::default() });
    let (_, names) = filled(&cluster, 90, 20_000).await;
    let entries: Vec<Value> = names.iter().map(|name| json!({"objname": name})).collect();
    let body = json!({"in": entries, "strm": true, "coer": true});
    // Each target assembles as many as it may, and each of them needs the others.
    let gateway = format!("{}/v1/ml/moss/own?provider=ais", cluster.endpoint);
    let location = http::request("GET", &gateway).json(&body).send();
    let path = http::split(location.header("location").unwrap()).1.to_owned();
    let readers: Vec<_> = cluster
        .targets
        .iter()
        .chain(&cluster.targets)
        .map(|target| {
            let asked = http::request("GET", &format!("{}{path}", target.url)).json(&body);
            std::thread::spawn(move || asked.send())
        })
        .collect();
    for reader in readers {
        let answer = reader.join().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut archive = tar::Archive::new(answer.body.as_slice());
        for (member, name) in archive.entries().unwrap().zip(&names) {
            let mut bytes = Vec::new();
            member.unwrap().read_to_end(&mut bytes).unwrap();
            assert_same(name, &bytes, &content(name, 20_000));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_for_a_batch_stops_within_a_second_after_its_client_is_gone() {
    let cluster = Cluster::plain();
    let (bucket, names) = filled(&cluster, 1000, 30_000).await;
    // Parts that all differ, so that each is read.
    let parts = (0..20).flat_map(|start| names.iter().map(move |name| (start, name)));
    let moss: Vec<Value> = parts
        .clone()
        .map(|(start, name)| json!({"objname": name, "start": start, "length": 29_000}))
        .collect();
    let entries =
        parts.map(|(start, name)| BatchEntry { range: Some((start, None)), ..whole(name) });
    let native = BatchRequest { entries: entries.collect(), ..request(&bucket, &[]) };
    let total = moss.len() as f64;

    // A buffered answer waits for nobody's reading: only the end of its client can end it early.
    let url = format!("{}/v1/ml/moss/own?provider=ais", cluster.endpoint);
    let buffered = json!({"in": moss, "strm": false, "coer": true});
    let location = http::request("GET", &url).json(&buffered).send();
    let there = location.header("location").unwrap().to_owned();
    let bodies = [
        ("GET", there, buffered.to_string()),
        (
            "POST",
            format!("{}/api/v1/batch", cluster.targets[0].url),
            serde_json::to_string(&native).unwrap(),
        ),
    ];
    for (method, url, body) in bodies {
        let before = cluster.metric("forebay_batch_entries_total", &[]);
        let answered = || cluster.metric("forebay_batch_entries_total", &[]) - before;
        let client = sent(method, &url, &body);
        wait::until("the work has begun", Duration::from_secs(30), || answered() > 10.0);
        drop(client);
        std::thread::sleep(SECOND);
        assert_eq!(open_batches(&cluster), 0.0, "{url}");
        let then = answered();
        assert!(then < total, "{then} of {total} entries: it had ended by itself");
        std::thread::sleep(SECOND);
        assert_eq!(answered(), then, "{url}");
    }
    let jobs = format!("{}/v1/cluster?what=qryxstats", cluster.endpoint);
    let jobs = http::request("GET", &jobs).json(&json!({"kind": "get-batch"})).send().text();
    assert!(!jobs.contains("\"is_idle\":false"), "{jobs}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_bytes_of_a_long_batch_come_before_its_end_is_read() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let (bucket, names) = filled(&cluster, 2000, 60_000).await;
    let body = serde_json::to_string(&request(&bucket, &names)).unwrap();
    let before = cluster.metric("forebay_batch_entries_total", &[]);
    let mut slow = sent("POST", &format!("{}/api/v1/batch", cluster.targets[0].url), &body);
    slow.read_exact(&mut [0; 50_000]).unwrap();
    std::thread::sleep(SECOND);
    let read = cluster.metric("forebay_batch_entries_total", &[]) - before;
    assert!(read < 2000.0, "a client that reads no further leaves the rest unread");
}

/// An S3 server with one bucket, which responds to reads of objects only when the test permits it.
fn slow_s3(port: u16) -> Arc<AtomicBool> {
    let (listener, open) = (TcpListener::bind(("127.0.0.1", port)).unwrap(), Arc::default());
    let let_go: Arc<AtomicBool> = open;
    let released = let_go.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let released = released.clone();
            std::thread::spawn(move || drop(answer_slowly(client, &released)));
        }
    });
    let_go
}

fn answer_slowly(client: TcpStream, let_go: &AtomicBool) -> std::io::Result<()> {
    let mut from = BufReader::new(client.try_clone()?);
    let mut to = client;
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while from.read_line(&mut line)? > 2 {
            head.push_str(&std::mem::take(&mut line));
        }
        if head.is_empty() {
            return Ok(());
        }
        if head.contains(" /slow/late") {
            while !let_go.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
            write!(to, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
        } else {
            write!(to, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_ready_comes_while_another_entry_is_waited_for() {
    let port = forebay_tests::ports::free(1);
    let let_go = slow_s3(port);
    let var = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let env = vec![
        var("AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{port}")),
        var("AWS_ACCESS_KEY_ID", "x"),
        var("AWS_SECRET_ACCESS_KEY", "x"),
        var("AWS_REGION", "us-east-1"),
    ];
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    let (bucket, names) = filled(&cluster, 60, 3000).await;
    let mut entries: Vec<BatchEntry> = names.iter().map(|name| whole(name)).collect();
    entries.insert(20, BatchEntry { bucket: 1, ..whole("late") });
    let client = cluster.client();
    for (ordered, ready) in [(true, 20), (false, 60)] {
        let_go.store(false, Ordering::SeqCst);
        let buckets = vec![bucket.clone(), cloud("slow")];
        let asked = BatchRequest { buckets, entries: entries.clone(), ordered };
        let mut stream = client.batch(&asked).unwrap();
        for _ in 0..ready {
            let item = tokio::time::timeout(20 * SECOND, stream.next()).await.unwrap().unwrap();
            let name = entries[item.index].name.as_str();
            assert_same(name, &item.result.unwrap(), &content(name, 3000));
        }
        let next = tokio::time::timeout(SECOND / 2, stream.next()).await;
        assert!(next.is_err(), "nothing else is ready");
        let_go.store(true, Ordering::SeqCst);
        let rest: Vec<_> = stream.collect().await;
        assert_eq!(rest.len(), 61 - ready);
        let late = rest.iter().find(|item| item.index == 20).unwrap();
        assert_eq!(late.result.as_ref().unwrap_err().code, ErrorCode::ObjectNotFound);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_batch_names_many_times_is_read_once() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { folder_roots, targets: 1, ..Options::default() });
    let (client, files) = (cluster.client(), native("files"));
    client.create_bucket(&files, Some(folder_backend(root.path()))).await.unwrap();
    let cold = names(20);
    fill_folder(root.path(), &cold, 3000);
    let (own, warm) = filled(&cluster, 20, 3000).await;
    let mut entries = Vec::new();
    for round in 0..10 {
        for at in 0..20 {
            let name = if round % 2 == 0 { &cold[at] } else { &cold[19 - at] };
            entries.push(whole(name));
            entries.push(BatchEntry { bucket: 1, ..whole(&warm[at]) });
            entries.push(whole("not/there"));
        }
    }
    for ordered in [true, false] {
        client.evict_bucket(&files, true).await.unwrap();
        let count = |name: &str, labels: &[&str]| cluster.metric(name, labels);
        let gets = || count("forebay_backend_requests_total", &["op=\"get\""]);
        let blocks = || count("forebay_checked_blocks_total", &["path=\"read\""]);
        let answered = || count("forebay_batch_entries_total", &[]);
        let before = (gets(), blocks(), answered());
        let buckets = vec![files.clone(), own.clone()];
        let asked = BatchRequest { buckets, entries: entries.clone(), ordered };
        let mut stream = client.batch(&asked).unwrap();
        let mut seen = vec![0; entries.len()];
        while let Some(item) = stream.next().await {
            seen[item.index] += 1;
            let name = entries[item.index].name.as_str();
            match item.result {
                Ok(bytes) => assert_same(name, &bytes, &content(name, 3000)),
                Err(e) => assert_eq!((name, e.code), ("not/there", ErrorCode::ObjectNotFound)),
            }
        }
        assert!(seen.iter().all(|n| *n == 1), "each entry is answered once");
        assert_eq!(answered() - before.2, entries.len() as f64);
        assert!(blocks() - before.1 <= 20.0, "warm objects: {}", blocks() - before.1);
        // One for each cold object, and one that found nothing.
        assert!(gets() - before.0 <= 21.0, "cold objects: {}", gets() - before.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_bad_entry_is_an_error_of_its_own_and_the_others_come() {
    let cluster = Cluster::plain();
    let (bucket, names) = filled(&cluster, 30, 2000).await;
    let client = cluster.client();
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(700);
    header.set_mode(0o644);
    header.set_cksum();
    archive.append_data(&mut header, "m", content("m", 700).as_slice()).unwrap();
    let shard = archive.into_inner().unwrap();
    client.put(&bucket, "s.tar", shard.clone(), None).await.unwrap();
    client.put(&bucket, "cut.tar", shard[..1000].to_vec(), None).await.unwrap();

    let member = |shard: &str, archpath: &str, range| BatchEntry {
        archpath: archpath.into(),
        range,
        ..whole(shard)
    };
    let part = |range| BatchEntry { range: Some(range), ..whole(&names[0]) };
    let bad = [
        (whole("not/there"), ErrorCode::ObjectNotFound),
        (BatchEntry { bucket: 1, ..whole("x") }, ErrorCode::BucketNotFound),
        (BatchEntry { bucket: 7, ..whole("x") }, ErrorCode::InvalidArgument),
        (part((2001, None)), ErrorCode::RangeNotSatisfiable),
        (part((1999, Some(2))), ErrorCode::RangeNotSatisfiable),
        (part((u64::MAX, Some(u64::MAX))), ErrorCode::RangeNotSatisfiable),
        (member("s.tar", "none", None), ErrorCode::ObjectNotFound),
        (member("s.tar", "m", Some((0, Some(701)))), ErrorCode::RangeNotSatisfiable),
        (member("none.tar", "m", None), ErrorCode::ObjectNotFound),
        (member("cut.tar", "m", None), ErrorCode::InvalidArgument),
        (member(&names[1], "m", None), ErrorCode::InvalidArgument),
    ];
    let mut entries: Vec<BatchEntry> = names.iter().map(|name| whole(name)).collect();
    for (at, (entry, _)) in bad.iter().enumerate() {
        entries.insert(at * 3, entry.clone());
    }
    entries.push(member("s.tar", "m", Some((100, Some(600)))));
    let buckets = vec![bucket, native("nowhere")];
    let asked = BatchRequest { buckets, entries, ordered: true };
    let all = client.batch_all(&asked).await.unwrap();
    let mut wrong = bad.iter();
    for (entry, result) in asked.entries.iter().zip(&all) {
        match result {
            Ok(bytes) if entry.archpath.is_empty() => {
                assert_same(entry.name.as_str(), bytes, &content(entry.name.as_str(), 2000));
            }
            Ok(bytes) => assert_same("a member", bytes, &content("m", 700)[100..]),
            Err(e) => {
                let (expected, code) = wrong.next().unwrap();
                assert_eq!((entry, e.code.status()), (expected, code.status()), "{e}");
            }
        }
    }
    assert!(wrong.next().is_none(), "all bad entries are errors");
}
