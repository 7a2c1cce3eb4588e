//! Too many clients, and less memory than what is asked for.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use forebay_core::ObjectName;
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_tests::data::{assert_same, content, names};
use forebay_tests::figures::{Figures, percentile};
use forebay_tests::load::{Load, Outcome, Pace, Plan, Sample};
use forebay_tests::memory_limit::{MemoryLimit, peak_mib};
use forebay_tests::{LabCluster, Shape, http, skip};
use futures::StreamExt;

use super::{PATIENT, SECOND};

const MIB: usize = 1 << 20;
/// Memory limit of each target, in bytes.
const MEMORY: u64 = 512 << 20;

/// Runs many clients for a time, and checks their history.
async fn crowd(cluster: &LabCluster, name: &str, clients: u32, time: Duration) -> Vec<Sample> {
    let bucket = cluster.bucket(name, &[]).await;
    let gateways = cluster.gateways.iter().map(|gateway| gateway.url.clone()).collect();
    let plan = Plan { gateways, bucket, pace: Pace::Clients(clients), keys: 512, seed: 1 };
    let client = cluster.client(PATIENT);
    let load = Load::start(plan, client.clone());
    tokio::time::sleep(time).await;
    let Outcome { samples, ledger, .. } = load.finish(&client).await;
    assert_eq!(ledger.violations(), Vec::<String>::new());
    samples
}

/// Successful responses per second.
fn goodput(samples: &[Sample]) -> f64 {
    let end = samples.iter().map(|s| s.end).max().unwrap_or(1);
    samples.iter().filter(|s| s.is_ok()).count() as f64 * SECOND as f64 / end as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_17_a_crowd_of_clients_is_served_or_gets_retry_after() {
    let Some(cluster) = tokio::task::block_in_place(|| LabCluster::start(&Shape::default())) else {
        return;
    };
    let peak = crowd(&cluster, "few", 32, super::length() / 4).await;
    let crowded = crowd(&cluster, "crowd", 640, super::length() / 2).await;
    let after = crowd(&cluster, "after", 4, super::length() / 4).await;
    let refused: Vec<Sample> = crowded.iter().filter(|s| !s.is_ok()).cloned().collect();
    let memory = cluster.targets.iter().map(|t| peak_mib(t.pid())).max().unwrap();
    let mut figures = Figures::of("17 640 clients instead of 32");
    figures.add("served/s by 32", goodput(&peak).round());
    figures.add("served/s by 640", goodput(&crowded).round());
    figures.add("refused", refused.len());
    figures.add("no answer", refused.iter().filter(|s| s.status == 0).count());
    figures.add("p99 ms by 32", percentile(&peak, &(0..u64::MAX), 0.99) as f64 / 1e3);
    figures.add("p99 ms by 640", percentile(&crowded, &(0..u64::MAX), 0.99) as f64 / 1e3);
    figures.add("p99 ms after", percentile(&after, &(0..u64::MAX), 0.99) as f64 / 1e3);
    figures.add("most memory of a target MiB", memory);
    figures.write();
    for refusal in refused.iter().filter(|s| s.status != 0) {
        assert!(matches!(refusal.status, 429 | 503) && refusal.retry_after, "{refusal:?}");
    }
    assert!(after.iter().all(Sample::is_ok), "all is well again");
    assert!(goodput(&crowded) > goodput(&peak) / 4.0, "it goes on serving");
}

/// The bytes of a large object, a MiB at a time.
fn piece(number: usize) -> Vec<u8> {
    let mut piece = content("a large object", MIB);
    piece[..8].copy_from_slice(&(number as u64).to_le_bytes());
    piece
}

/// Sends the head of a request; the caller sends the rest.
fn connect(url: &str, method: &str, more: &str) -> BufReader<TcpStream> {
    let (address, path) = http::split(url);
    let mut to = TcpStream::connect(address).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    write!(to, "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{more}\r\n").unwrap();
    BufReader::new(to)
}

fn head(from: &mut BufReader<TcpStream>) -> (u16, String) {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        assert!(from.read_line(&mut text).unwrap() > 0, "cut off after {text:?}");
    }
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

/// Address of the target that a gateway redirects this request to.
fn owner_url(cluster: &LabCluster, method: &str, object: &str) -> String {
    let url = format!("{}/v1/objects/{object}", cluster.gateways[0].url);
    let answer = http::request(method, &url).send();
    answer.header("location").unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root; run by make faults"]
async fn row_18_large_objects_and_batches_fit_into_little_memory() {
    let pieces = if super::length() >= Duration::from_secs(60) { 8 << 10 } else { 1 << 10 };
    let shape = Shape { targets: 2, disk_size: "20GiB", ..Shape::default() };
    let Some(cluster) = tokio::task::block_in_place(|| LabCluster::prepare(&shape)) else { return };
    let mut groups = Vec::new();
    for target in &cluster.targets {
        match MemoryLimit::new(&target.id, MEMORY) {
            Ok(group) => groups.push(group),
            Err(why) => return skip::skipped(&why),
        }
        target.run_behind(groups[groups.len() - 1].before());
    }
    tokio::task::block_in_place(|| cluster.start_all(2));
    let pids: Vec<u32> = cluster.targets.iter().map(|t| t.pid()).collect();
    let bucket = cluster.bucket("large", &[]).await;
    let started = std::time::Instant::now();
    tokio::task::block_in_place(|| {
        let url = owner_url(&cluster, "PUT", "large/object");
        let length = format!("content-length: {}\r\n", pieces * MIB);
        let mut to = connect(&url, "PUT", &length);
        for number in 0..pieces {
            to.get_mut().write_all(&piece(number)).unwrap();
        }
        assert_eq!(head(&mut to).0, 200);
    });
    let written = started.elapsed();
    tokio::task::block_in_place(|| {
        let mut from = connect(&owner_url(&cluster, "GET", "large/object"), "GET", "");
        let (status, text) = head(&mut from);
        assert_eq!(status, 200, "{text}");
        let mut bytes = vec![0; MIB];
        for number in 0..pieces {
            from.read_exact(&mut bytes).unwrap();
            assert_same("a piece", &bytes, &piece(number));
        }
    });
    let read = started.elapsed() - written;
    let client = cluster.client(PATIENT);
    let small = names(1000);
    for name in &small {
        client.put(&bucket, name, content(name, 4000), None).await.unwrap();
    }
    let asked: Vec<&String> = (0..100_000).map(|n| &small[n * 377 % small.len()]).collect();
    let entry = |name: &&String| BatchEntry::whole(0, ObjectName::new(name.as_str()).unwrap());
    let entries = asked.iter().map(entry).collect();
    let request = BatchRequest { buckets: vec![bucket], entries, ordered: true };
    let started = std::time::Instant::now();
    let mut stream = client.batch(&request).unwrap();
    let mut next = 0;
    while let Some(item) = stream.next().await {
        assert_eq!(item.index, next);
        assert_same(asked[next], &item.result.unwrap(), &content(asked[next], 4000));
        next += 1;
    }
    let batch = started.elapsed();
    assert_eq!(next, asked.len(), "every entry");
    let mut figures = Figures::of("18 512 MiB of memory for each target");
    figures.add("GiB in one object", pieces / 1024);
    figures.add_seconds("PUT s", written.as_micros() as u64);
    figures.add_seconds("GET s", read.as_micros() as u64);
    figures.add_seconds("batch of 100000 s", batch.as_micros() as u64);
    figures.add("most memory MiB", pids.iter().map(|pid| peak_mib(*pid)).max());
    figures.write();
    let same: Vec<u32> = cluster.targets.iter().map(|t| t.pid()).collect();
    assert_eq!(pids, same, "nobody was killed");
    drop(cluster);
}
