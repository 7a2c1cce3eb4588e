//! Objects of native buckets: a read returns the written bytes, or nothing.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_core::checksum::{Checksum, ChecksumKind};
use forebay_core::size::RangeSpec;
use forebay_tests::cluster::{Cluster, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::{Shared, http, wait};

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(Cluster::plain)
}

const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn every_name_and_size_comes_back_as_it_was_put() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("sizes");
    client.create_bucket(&bucket, None).await.unwrap();
    let objects = [
        ("empty", 0),
        ("one", 1),
        ("dir/kib.bin", 1 << 10),
        ("dir/odd", (1 << 20) + 1),
        ("big/64mib", 64 << 20),
        ("Äpfel/größe 100%/日本語.jpg", 4096),
        ("plus+and space?#&=%41", 100),
        ("😀", 3),
    ];
    for (name, size) in objects {
        let put = client.put(&bucket, name, content(name, size), None).await.unwrap();
        assert_eq!(put.size, size as u64, "{name}");
    }
    for (name, size) in objects {
        let head = client.head(&bucket, name).await.unwrap();
        assert_eq!(head.size, size as u64, "{name}");
        let got = client.get_bytes(&bucket, name, None).await.unwrap();
        assert_same(name, &got, &content(name, size));
    }
    for (name, _) in objects {
        client.delete(&bucket, name).await.unwrap();
        let gone = client.get_bytes(&bucket, name, None).await.unwrap_err();
        assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{name}: {gone}");
    }
    assert!(client.list_all(&bucket, "").await.unwrap().is_empty());
}

#[tokio::test]
async fn an_object_of_the_longest_name_is_stored_and_one_byte_more_is_refused() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("long-names");
    client.create_bucket(&bucket, None).await.unwrap();
    // 1,024 bytes, in characters of two bytes each.
    let longest = "ä".repeat(512);
    client.put(&bucket, &longest, "x", None).await.unwrap();
    assert_eq!(client.get_bytes(&bucket, &longest, None).await.unwrap(), "x");
    let url = cluster.object_url("long-names", &format!("{}b", "a".repeat(1024)));
    let refused = http::request("PUT", &url).body("x").follow();
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.message().contains("1024"), "{}", refused.message());
}

#[tokio::test]
async fn ranges_are_exact() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("ranges");
    client.create_bucket(&bucket, None).await.unwrap();
    let whole = content("r", 3 << 20);
    let size = whole.len();
    client.put(&bucket, "r", whole.clone(), None).await.unwrap();
    let ranges = [
        (RangeSpec::From(0, Some(0)), 0..1),
        (RangeSpec::From(10, Some(19)), 10..20),
        (RangeSpec::From((1 << 20) - 1, Some(1 << 20)), (1 << 20) - 1..(1 << 20) + 1),
        (RangeSpec::From(size as u64 - 5, None), size - 5..size),
        (RangeSpec::From(100, Some(1 << 40)), 100..size),
        (RangeSpec::Suffix(7), size - 7..size),
        (RangeSpec::Suffix(1 << 40), 0..size),
    ];
    for (range, want) in ranges {
        let got = client.get_bytes(&bucket, "r", Some(range)).await.unwrap();
        assert_same(&format!("{range:?}"), &got, &whole[want]);
    }
    let url = cluster.object_url("ranges", "r");
    let part = http::request("GET", &url).header("range", "bytes=10-19").follow();
    assert_eq!(part.status, 206);
    assert_eq!(part.header("content-range"), Some(format!("bytes 10-19/{size}").as_str()));
    assert_eq!(part.header("content-length"), Some("10"));
    let past = http::request("GET", &url).header("range", &format!("bytes={size}-")).follow();
    assert_eq!(past.status, 416, "{}", past.text());
    assert_eq!(past.header("content-range"), Some(format!("bytes */{size}").as_str()));
    assert!(past.message().contains(&format!("has {size} bytes")), "{}", past.message());
}

#[tokio::test]
async fn overwriting_replaces_the_whole_object_and_counts_its_versions() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("overwrite");
    client.create_bucket(&bucket, None).await.unwrap();
    let long = content("long", 2 << 20);
    let first = client.put(&bucket, "x", long, None).await.unwrap();
    let second = client.put(&bucket, "x", "short", None).await.unwrap();
    assert_eq!((first.version.as_str(), second.version.as_str()), ("1", "2"));
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "short");
    assert_eq!(client.head(&bucket, "x").await.unwrap().size, 5);
    assert_eq!(client.list_all(&bucket, "").await.unwrap(), [("x".to_owned(), 5)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_of_one_name_see_whole_objects() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("contended");
    client.create_bucket(&bucket, None).await.unwrap();
    // Sizes differ, so that a mixture would show by its length, too.
    let versions: Vec<Vec<u8>> =
        (0..6).map(|n| content(&format!("version {n}"), (200 << 10) + n * 10_000)).collect();
    client.put(&bucket, "x", versions[0].clone(), None).await.unwrap();
    let writers = versions.iter().map(|bytes| {
        let (client, bucket, bytes) = (client.clone(), bucket.clone(), bytes.clone());
        tokio::spawn(async move {
            for _ in 0..10 {
                client.put(&bucket, "x", bytes.clone(), None).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut reads = 0;
    while reads < 20 || writers.iter().any(|writer| !writer.is_finished()) {
        let got = client.get_bytes(&bucket, "x", None).await.unwrap();
        assert!(versions.iter().any(|v| *v == got), "{} bytes of no version", got.len());
        reads += 1;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let last = client.get_bytes(&bucket, "x", None).await.unwrap();
    assert!(versions.iter().any(|v| *v == last));
    assert_eq!(client.head(&bucket, "x").await.unwrap().version, "61", "each PUT counted once");
}

#[tokio::test]
async fn a_bucket_created_again_is_empty() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("again");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "old", None).await.unwrap();
    client.destroy_bucket(&bucket).await.unwrap();
    let gone = client.get_bytes(&bucket, "x", None).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::BucketNotFound, "{gone}");
    client.create_bucket(&bucket, None).await.unwrap();
    let gone = client.get_bytes(&bucket, "x", None).await.unwrap_err();
    assert_eq!(gone.code(), ErrorCode::ObjectNotFound, "{gone}");
    assert!(client.list_all(&bucket, "").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_wrong_checksum_is_refused_and_what_was_there_stays() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("checksums");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "old", "old content", None).await.unwrap();
    let mut hasher = ChecksumKind::Xxhash2.hasher();
    hasher.update(b"right");
    let right = hasher.finish().unwrap();
    let wrong = Checksum { kind: ChecksumKind::Xxhash2, value: "0123456789abcdef".into() };
    for name in ["new", "old"] {
        let url = cluster.object_url("checksums", name);
        let put = http::request("PUT", &url)
            .header("ais-checksum-type", "xxhash2")
            .header("ais-checksum-value", &wrong.value)
            .body("right")
            .follow();
        assert_eq!(put.status, 400, "{}", put.text());
        assert!(put.message().contains(&right.value), "{}", put.message());
    }
    let missing = client.get_bytes(&bucket, "new", None).await.unwrap_err();
    assert_eq!(missing.code(), ErrorCode::ObjectNotFound);
    assert_eq!(client.get_bytes(&bucket, "old", None).await.unwrap(), "old content");
    let put = client.put(&bucket, "new", "right", Some(&right)).await.unwrap();
    assert_eq!(put.checksum, Some(right));
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_a_put_leaves_nothing() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = native("gone");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "there", content("there", 1 << 20), None).await.unwrap();
    let before = big_files(&cluster);

    let mut stream = begin_put(&cluster, "gone", "never", 32 << 20);
    stream.write_all(&content("never", 8 << 20)).unwrap();
    wait::until("the target writes what it gets", TIMEOUT, || big_files(&cluster) != before);
    drop(stream);

    wait::until("nothing of it is left on disk", TIMEOUT, || big_files(&cluster) == before);
    let missing = client.get_bytes(&bucket, "never", None).await.unwrap_err();
    assert_eq!(missing.code(), ErrorCode::ObjectNotFound);
    assert_eq!(client.list_all(&bucket, "").await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_target_killed_in_the_middle_of_a_put_has_the_old_object_or_the_new_one() {
    let cluster = Cluster::plain();
    let client = cluster.client();
    let bucket = native("kill");
    client.create_bucket(&bucket, None).await.unwrap();
    let (old, new) = (content("old", 4 << 20), content("new", 4 << 20));
    let owner = cluster.owner(&bucket, "x").id;
    client.put(&bucket, "x", old.clone(), None).await.unwrap();
    client.put(&bucket, "acknowledged", "synced", None).await.unwrap();

    for sent in [0, 1 << 20, (4 << 20) - 1] {
        let mut stream = begin_put(&cluster, "kill", "x", new.len());
        stream.write_all(&new[..sent]).unwrap();
        cluster.kill9(&owner);
        drop(stream);
        cluster.restart(&owner);
        let got = client.get_bytes(&bucket, "x", None).await.unwrap();
        assert_same("the old object, as the new one was never whole", &got, &old);
    }
    // All bytes are sent, the response is not awaited: the old and the new object are both right, a
    // mixture is not.
    let mut stream = begin_put(&cluster, "kill", "x", new.len());
    stream.write_all(&new).unwrap();
    cluster.kill9(&owner);
    drop(stream);
    cluster.restart(&owner);
    let got = client.get_bytes(&bucket, "x", None).await.unwrap();
    assert!(got == old || got == new, "neither the old object nor the new one");
    assert_eq!(client.get_bytes(&bucket, "acknowledged", None).await.unwrap(), "synced");
}

#[tokio::test]
async fn every_gateway_answers_for_the_whole_cluster() {
    let cluster = Cluster::start(forebay_tests::Options {
        gateways: 2,
        targets: 2,
        ..forebay_tests::Options::default()
    });
    let second = cluster.gateways[1].url.clone();
    let client = cluster.client();
    let bucket = native("both");
    // A change through the gateway that does not keep the metadata is visible to the other at once.
    let created = http::request("POST", &format!("{second}/v1/buckets/both"))
        .json(&serde_json::json!({"action": "create-bck"}))
        .send();
    assert_eq!(created.status, 200, "{}", created.text());
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let got = http::request("GET", &format!("{second}/v1/objects/both/x")).follow();
    assert_eq!((got.status, got.body.as_slice()), (200, b"bytes".as_slice()));
    client.destroy_bucket(&bucket).await.unwrap();
    wait::until("the second gateway has heard of it", TIMEOUT, || {
        http::get(&format!("{second}/v1/objects/both/x")).status == 404
    });
}

/// Sends the head of a PUT the way a foreign client does, up to the target's body.
fn begin_put(cluster: &Cluster, bucket: &str, object: &str, size: usize) -> TcpStream {
    let first = http::request("PUT", &cluster.object_url(bucket, object)).send();
    assert_eq!(first.status, 307, "{}", first.text());
    let (address, path) = http::split(first.header("location").unwrap());
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("PUT {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {size}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Files on the targets' disks that hold object data of this file's sizes.
fn big_files(cluster: &Cluster) -> BTreeSet<PathBuf> {
    fn walk(dir: PathBuf, found: &mut BTreeSet<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(m) if m.is_dir() => walk(entry.path(), found),
                Ok(m) if m.len() >= 256 << 10 => {
                    found.insert(entry.path());
                }
                _ => {}
            }
        }
    }
    let mut found = BTreeSet::new();
    for target in &cluster.targets {
        walk(cluster.dir().join(&target.id).join("disk1"), &mut found);
    }
    found
}
