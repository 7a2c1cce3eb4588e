//! Objects of native buckets: what goes in comes out, or nothing does.

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

const SOON: Duration = Duration::from_secs(20);

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
    assert!(past.message().contains(&format!("size={size}")), "{}", past.message());
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
    wait::until("the target writes what it gets", SOON, || big_files(&cluster) != before);
    drop(stream);

    wait::until("nothing of it is left on disk", SOON, || big_files(&cluster) == before);
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
    // All bytes sent, no answer awaited: both are right, a mixture is not.
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
async fn a_gateway_redirects_reads_by_301_and_writes_by_307() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("redirects");
    client.create_bucket(&bucket, None).await.unwrap();
    let name = "dir/100% ä?.bin";
    let url = cluster.object_url("redirects", "dir/100%25%20%C3%A4%3F.bin");
    let owner = cluster.owner(&bucket, name);
    for (method, status) in [("PUT", 307), ("GET", 301), ("HEAD", 307), ("DELETE", 307)] {
        let request = http::request(method, &url);
        let request = if method == "PUT" { request.body("bytes") } else { request };
        let first = request.clone().send();
        assert_eq!(first.status, status, "{method}: {}", first.text());
        let location = first.header("location").unwrap();
        assert!(location.starts_with(&owner.url), "{method} → {location}, owner {}", owner.url);
        let second = request.follow();
        assert_eq!(second.status, 200, "{method}: {}", second.text());
        if method == "GET" {
            assert_eq!(second.body, b"bytes");
        }
    }
}

#[tokio::test]
async fn a_write_that_no_gateway_sent_is_refused_and_a_read_is_not() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("direct");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let url = format!("{}/v1/objects/direct/x", cluster.owner(&bucket, "x").url);
    for method in ["PUT", "DELETE"] {
        let refused = http::request(method, &url).body("other").send();
        assert_eq!(refused.status, 400, "{method}: {}", refused.text());
        let message = refused.message();
        assert!(message.contains("is expected to be redirected"), "{method}: {message}");
    }
    let forged =
        http::request("PUT", &format!("{url}?fbx=99999999999&fbs=00")).body("other").send();
    assert_eq!(forged.status, 400, "{}", forged.text());
    let got = http::get(&url);
    assert_eq!((got.status, got.body.as_slice()), (200, b"bytes".as_slice()));
}

#[tokio::test]
async fn a_foreign_client_that_asks_the_wrong_target_is_sent_to_the_owner() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("wrong-target");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let owner = cluster.owner(&bucket, "x");
    let other = cluster.targets.iter().find(|t| t.id != owner.id).unwrap();
    let got = http::request("GET", &format!("{}/v1/objects/wrong-target/x", other.url)).follow();
    assert_eq!((got.status, got.body.as_slice()), (200, b"bytes".as_slice()));
    let map = cluster.map();
    let told = http::request("GET", &format!("{}/v1/objects/wrong-target/x", other.url))
        .header("forebay-grant", &map.grant)
        .send();
    assert_eq!(told.status, 421, "{}", told.text());
    assert!(told.header("location").unwrap().starts_with(&owner.url));
    assert_eq!(told.header("forebay-map"), Some(map.state.version.to_string().as_str()));
}

#[test]
fn missing_and_existing_things_are_named_in_the_answer() {
    let cluster = cluster();
    let endpoint = &cluster.endpoint;
    let create = || {
        http::request("POST", &format!("{endpoint}/v1/buckets/exists"))
            .json(&serde_json::json!({"action": "create-bck", "value": null}))
            .send()
    };
    assert_eq!(create().status, 200);
    let again = create();
    assert_eq!(again.status, 409);
    assert_eq!(again.message(), "bucket \"ais://exists\" already exists");
    assert_eq!(again.json()["tcode"], "ErrBucketAlreadyExists");

    let no_bucket = http::get(&cluster.object_url("nowhere", "x"));
    assert_eq!(no_bucket.status, 404, "{}", no_bucket.text());
    assert_eq!(no_bucket.message(), "bucket \"ais://nowhere\" does not exist");
    assert_eq!(no_bucket.json()["status"], 404);

    let no_object = http::request("GET", &cluster.object_url("exists", "a/b")).follow();
    assert_eq!(no_object.status, 404);
    let message = no_object.message();
    assert!(message.contains("ais://exists/a/b does not exist"), "{message}");

    let no_object = http::request("DELETE", &cluster.object_url("exists", "a/b")).follow();
    assert_eq!(no_object.status, 404);
    assert!(no_object.message().contains("ais://exists/a/b"), "{}", no_object.message());

    let destroy = http::request("DELETE", &format!("{endpoint}/v1/buckets/nowhere"))
        .json(&serde_json::json!({"action": "destroy-bck"}))
        .send();
    assert_eq!(destroy.status, 404);
    assert_eq!(destroy.message(), "bucket \"ais://nowhere\" does not exist");
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
    wait::until("the second gateway has heard of it", SOON, || {
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
