//! Archives that are broken or hostile: a clear refusal, and the server keeps running.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_core::Bucket;
use forebay_tests::cluster::{Cluster, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::http;
use forebay_v1::list::{ListMsg, flags};

use super::archives::{FORMATS, Members, archive, gzip, tar};
use super::{cluster, list};

async fn bucket(cluster: &Cluster, name: &str) -> Bucket {
    let bucket = native(name);
    cluster.client().create_bucket(&bucket, None).await.unwrap();
    bucket
}

/// Asks for a member; the answer must be a refusal that names the shard.
fn refusal(cluster: &Cluster, bucket: &str, shard: &str) -> String {
    let url = cluster.object_url(bucket, shard);
    let refused = http::request("GET", &format!("{url}?archpath=x")).follow();
    assert!((400..500).contains(&refused.status), "{shard}: {} {}", refused.status, refused.text());
    let message = refused.message();
    assert!(message.contains(&format!("ais://{bucket}/{shard}")), "{message}");
    // After each of them the server runs and gives the same response again.
    let again = http::request("GET", &format!("{url}?archpath=x")).follow();
    assert_eq!((again.status, again.message()), (refused.status, message.clone()));
    message
}

#[tokio::test]
async fn a_truncated_archive_is_an_error_that_names_shard_and_offset() {
    let cluster = cluster();
    let own = bucket(&cluster, "truncated").await;
    let members: Members = vec![("a".into(), content("a", 700)), ("x".into(), content("x", 9000))];
    let whole = tar(&members);
    // 512 + 1024 of the first member, then a header, then the middle of the data.
    for (name, bytes) in [
        ("t.tar", whole[..4000].to_vec()),
        ("t.tgz", gzip(&whole[..4000])),
        ("t.tar.zst", zstd::encode_all(&whole[..4000], 1).unwrap()),
    ] {
        cluster.client().put(&own, name, bytes, None).await.unwrap();
        let message = refusal(&cluster, "truncated", name);
        assert!(message.contains("byte 4000"), "{message}");
        assert!(message.contains("\"x\""), "{message}");
    }
    for (name, bytes) in [
        ("cut.tgz", archive(".tgz", &members)[..2000].to_vec()),
        ("cut.zip", archive(".zip", &members)[..2000].to_vec()),
        ("cut.tar.lz4", archive(".tar.lz4", &members)[..2000].to_vec()),
        ("text.tar", b"this is no archive at all".repeat(100)),
        ("text.zip", b"this is no archive at all".repeat(100)),
    ] {
        cluster.client().put(&own, name, bytes, None).await.unwrap();
        refusal(&cluster, "truncated", name);
    }
    // A listing of members is complete or an error: one that leaves some out would look whole.
    let msg = ListMsg { flags: flags::ARCHIVE, ..ListMsg::default() };
    let error = cluster.client().list_page(&own, &msg).await.unwrap_err();
    assert!(error.to_string().contains("ais://truncated/cut.tar.lz4"), "{error}");
    // The objects themselves are as readable as any.
    let got = cluster.client().get_bytes(&own, "t.tar", None).await.unwrap();
    assert_same("t.tar", &got, &whole[..4000]);
}

#[tokio::test]
async fn of_two_members_of_one_name_the_first_is_served() {
    let cluster = cluster();
    let own = bucket(&cluster, "twice").await;
    let members: Members =
        vec![("x".into(), b"first".to_vec()), ("x".into(), b"second, longer".to_vec())];
    cluster.client().put(&own, "s.tar", tar(&members), None).await.unwrap();
    let url = cluster.object_url("twice", "s.tar");
    let got = http::request("GET", &format!("{url}?archpath=x")).follow();
    assert_eq!(got.text(), "first");
    let rows = list(&cluster, &own, "s.tar/", 10).await;
    assert_eq!(rows, [("s.tar/x".to_owned(), 5, 192)]);
}

#[tokio::test]
async fn archives_that_unpack_to_far_more_than_they_are_get_refused() {
    let cluster = cluster();
    let own = bucket(&cluster, "bombs").await;
    let mut header = tar::Header::new_gnu();
    header.set_path("x").unwrap();
    header.set_size(16 << 30);
    header.set_cksum();
    // Sixteen GiB of zeroes: a few hundred KiB of zstd, written without ever being there.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    std::io::Write::write_all(&mut encoder, header.as_bytes()).unwrap();
    let zeroes = vec![0; 1 << 20];
    for _ in 0..2048 {
        std::io::Write::write_all(&mut encoder, &zeroes).unwrap();
    }
    cluster.client().put(&own, "b.tar.zst", encoder.finish().unwrap(), None).await.unwrap();
    let message = refusal(&cluster, "bombs", "b.tar.zst");
    assert!(message.contains("more than 1000 for one is refused"), "{message}");
    // GZIP cannot pack zeroes much beyond a thousand to one: what it claims does not come.
    let mut small = header.as_bytes().to_vec();
    small.resize(64 << 20, 0);
    cluster.client().put(&own, "b.tgz", gzip(&small), None).await.unwrap();
    refusal(&cluster, "bombs", "b.tgz");
}

#[tokio::test]
async fn headers_that_claim_gigabytes_of_name_are_refused() {
    let cluster = cluster();
    let own = bucket(&cluster, "long-names").await;
    for (name, kind) in [("l.tar", tar::EntryType::GNULongName), ("p.tar", tar::EntryType::XHeader)]
    {
        let mut header = tar::Header::new_gnu();
        header.set_path("pax").unwrap();
        header.set_size(3 << 30);
        header.set_entry_type(kind);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(&vec![b'n'; 3 << 20]);
        cluster.client().put(&own, name, bytes, None).await.unwrap();
        refusal(&cluster, "long-names", name);
    }
}

#[tokio::test]
async fn names_that_climb_are_names_and_no_paths() {
    let cluster = cluster();
    let own = bucket(&cluster, "climbing").await;
    let names = ["../../etc/passwd", "/abs/x", "a/../b", "./dot"];
    let members: Members = names.iter().map(|n| ((*n).to_owned(), content(n, 100))).collect();
    cluster.client().put(&own, "s.tar", tar(&members), None).await.unwrap();
    let url = cluster.object_url("climbing", "s.tar");
    for name in names {
        let got = http::request("GET", &format!("{url}?archpath={name}")).follow();
        assert_eq!(got.status, 200, "{name}: {}", got.text());
        assert_same(name, &got.body, &content(name, 100));
    }
    let rows = list(&cluster, &own, "s.tar", 3).await;
    assert_eq!(rows.len(), 5, "{rows:?}");
}

#[tokio::test]
async fn a_member_without_a_name_hides_no_other_and_is_not_the_shard() {
    let cluster = cluster();
    let own = bucket(&cluster, "nameless").await;
    let members: Members = vec![("".into(), b"none".to_vec()), ("x".into(), b"named".to_vec())];
    for format in FORMATS {
        let shard = format!("s{format}");
        let bytes = archive(format, &members);
        cluster.client().put(&own, &shard, bytes.clone(), None).await.unwrap();
        let url = cluster.object_url("nameless", &shard);
        let got = http::request("GET", &format!("{url}?archpath=x")).follow();
        assert_eq!((got.status, got.text().as_str()), (200, "named"), "{format}");
        let got = http::request("GET", &url).follow();
        assert!(got.body == bytes, "{format} itself");
        let rows = list(&cluster, &own, &format!("{shard}/"), 10).await;
        assert!(rows.iter().any(|(name, ..)| *name == format!("{shard}/x")), "{rows:?}");
        assert!(rows.iter().all(|(name, ..)| name.starts_with(&format!("{shard}/"))), "{rows:?}");
        // A new member needs a name.
        let append = format!("{url}?archpath=%2F&archmime={format}&append_type=append");
        let refused = http::request("PUT", &append).body("z").follow();
        assert!((400..500).contains(&refused.status), "{format}: {}", refused.text());
    }
}

#[tokio::test]
async fn a_hundred_thousand_tiny_members_are_served_and_listed_page_by_page() {
    let cluster = cluster();
    let own = bucket(&cluster, "many").await;
    let members: Members =
        (0..100_000u32).map(|n| (format!("m/{n:06}"), n.to_le_bytes().to_vec())).collect();
    cluster.client().put(&own, "many.tar", tar(&members), None).await.unwrap();
    let url = cluster.object_url("many", "many.tar");
    for n in [0u32, 54_321, 99_999] {
        let got = http::request("GET", &format!("{url}?archpath=m/{n:06}")).follow();
        assert_eq!(got.body, n.to_le_bytes(), "{}", got.text());
    }
    let rows = list(&cluster, &own, "many.tar", 10_000).await;
    assert_eq!(rows.len(), 100_001);
    assert!(rows.is_sorted());
    assert_eq!(rows[100_000], ("many.tar/m/099999".to_owned(), 4, 192));
}

/// A TAR whose one member has a PAX header of so many of the shortest records.
fn many_records(records: usize) -> Vec<u8> {
    let data = b"4 =\n".repeat(records);
    let header = |name: &str, size: usize, kind: u8| {
        let mut block = [0u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..108].copy_from_slice(b"0000644\0");
        block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        block[156] = kind;
        block[257..263].copy_from_slice(b"ustar\0");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    };
    let mut tar = header("x", data.len(), b'x').to_vec();
    tar.extend_from_slice(&data);
    tar.resize(tar.len().next_multiple_of(512), 0);
    tar.extend_from_slice(&header("a", 0, b'0'));
    tar.extend_from_slice(&[0; 1024]);
    tar
}

#[tokio::test]
async fn targets_answer_while_archives_of_countless_header_records_are_uploaded_and_read() {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let cluster = cluster();
    bucket(&cluster, "countless").await;
    let archive = many_records((1 << 20) / 4);
    let uploads = 6;
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for n in 0..uploads {
            let (cluster, archive, done) = (&cluster, &archive, &done);
            scope.spawn(move || {
                let url = cluster.object_url("countless", &format!("{n}.tar"));
                let put = http::request("PUT", &url).body(archive.clone()).follow();
                assert_eq!(put.status, 200, "{}", put.text());
                refusal(cluster, "countless", &format!("{n}.tar"));
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let mut looks = 0;
        while looks < 3 || done.load(Ordering::Relaxed) < uploads {
            for target in &cluster.targets {
                let health =
                    http::request("GET", &format!("{}/healthz", target.url)).within(TIMEOUT);
                assert_eq!(health.try_send().unwrap().status, 200);
            }
            looks += 1;
        }
    });
    let message = refusal(&cluster, "countless", "0.tar");
    assert!(message.contains("has more than 65536 records"), "{message}");
}
