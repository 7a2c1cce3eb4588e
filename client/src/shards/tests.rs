//! Requests about shards against scripted nodes.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use forebay_archive::ShardIndexReply;
use forebay_core::shard::{ArchiveFormat, Stat};
use forebay_core::{Error as CoreError, ObjectName};

use super::{Naming, ShardOptions, ShardStream};
use crate::scripted_server::{Turns, broken, bucket, client, cluster, reply};

const LONG_TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_index_is_asked_of_the_owner_and_again_when_its_answer_breaks() {
    let index = ShardIndexReply {
        format: ArchiveFormat::Tar,
        version: "3".into(),
        size: 0,
        members: vec![("a/1.jpg".into(), 512, 10)],
        stats: vec![Stat::new(7, 0o600)],
    };
    let text = serde_json::to_vec(&index).unwrap();
    let turns = Turns::new();
    let (gateway, target) = cluster(move |seen| match turns.next(&seen.path) {
        1 => reply(503, &[], "starting"),
        2 => broken(200, &[], text.len(), text[..9].to_vec().into()),
        _ => reply(200, &[], text.clone()),
    })
    .await;
    let name = ObjectName::new("a b.tar").unwrap();
    let got = client(&gateway.url, LONG_TIMEOUT).shard_index(&bucket(), &name).await.unwrap();
    assert_eq!((got.version.as_str(), got.members), ("3", index.members));
    let client = client(&gateway.url, LONG_TIMEOUT);
    let got = client.shard_stats(&bucket(), &name).await.unwrap();
    assert_eq!(got.stats, index.stats);
    let seen = target.seen.lock().unwrap().clone();
    assert_eq!(seen[0].path, "/api/v1/shard/b/a%20b.tar?provider=ais");
    assert_eq!(seen[0].headers["forebay-grant"], "grant-7");
    assert_eq!(seen[3].path, "/api/v1/shard/b/a%20b.tar?provider=ais&stats=true");
    assert_eq!(seen.len(), 6);
}

#[tokio::test]
async fn a_member_goes_on_where_it_broke() {
    let (gateway, target) = cluster(|seen| {
        let rest = seen.headers.get("range").map(|v| v.to_str().unwrap().to_owned());
        match rest.as_deref() {
            None => broken(200, &[], 10, "01234".into()),
            Some("bytes=5-9") => reply(206, &[("content-range", "bytes 5-9/10")], "56789"),
            other => panic!("{other:?}"),
        }
    })
    .await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    let got = client.get_member(&bucket(), "s", "a/1 2.jpg", Some("tgz"), None).await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), "0123456789");
    for seen in target.seen.lock().unwrap().iter() {
        assert_eq!(seen.path, "/v1/objects/b/s?provider=ais&archpath=a/1%202.jpg&archmime=tgz");
    }
    assert!(client.get_member(&bucket(), "s", "", None, None).await.is_err());
}

/// A TAR of small files, as any tool writes it.
fn tar(members: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, data) in members {
        let mut head = [0u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[100..108].copy_from_slice(b"0000644\0");
        head[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
        head[136..148].copy_from_slice(b"00000000000\0");
        head[156] = b'0';
        head[257..265].copy_from_slice(b"ustar\x0000");
        head[148..156].fill(b' ');
        let sum: u32 = head.iter().map(|b| u32::from(*b)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(data.as_bytes());
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn options(keys: Option<&str>) -> ShardOptions {
    let naming = keys.map(|keys| Naming::parse(keys, false).unwrap());
    ShardOptions { format: None, naming, read_ahead: 1 << 20 }
}

async fn all(mut stream: ShardStream) -> Vec<Result<(String, Vec<String>), CoreError>> {
    let mut items = Vec::new();
    while let Some(item) = stream.next().await {
        items.push(item.map(|sample| {
            let part = |(ext, data): (String, Vec<u8>)| {
                format!("{ext}={}", String::from_utf8(data).unwrap())
            };
            (sample.key, sample.parts.into_iter().map(part).collect())
        }));
    }
    items
}

#[tokio::test]
async fn a_sample_stream_resumes_where_the_connection_broke() {
    let archive = tar(&[("a/1.x", "one"), ("a/1.y", "two"), ("._1.x", "-"), ("a/2.x", "three")]);
    let (gateway, target) = cluster(move |seen| {
        let size = archive.len();
        match seen.headers.get("range").map(|v| v.to_str().unwrap()) {
            None => broken(200, &[], size, archive[..700].to_vec().into()),
            Some(range) => {
                assert_eq!(range, format!("bytes=700-{}", size - 1));
                let part = format!("bytes 700-{}/{size}", size - 1);
                reply(206, &[("content-range", &part)], archive[700..].to_vec())
            }
        }
    })
    .await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    let name = ObjectName::new("s.tar").unwrap();
    let got = all(client.read_shard(&bucket(), &name, options(Some("webdataset")))).await;
    let got: Vec<_> = got.into_iter().map(Result::unwrap).collect();
    assert_eq!(got.len(), 2);
    assert_eq!(got[0], ("a/1".to_owned(), vec!["x=one".to_owned(), "y=two".to_owned()]));
    assert_eq!(got[1], ("a/2".to_owned(), vec!["x=three".to_owned()]));
    assert_eq!(target.seen.lock().unwrap().len(), 2);
    let flat = all(client.read_shard(&bucket(), &name, options(None))).await;
    assert_eq!(flat.len(), 4);
}

#[tokio::test]
async fn a_shard_cut_off_ends_with_its_name_and_the_byte() {
    let mut archive = tar(&[("1.x", "one"), ("2.x", "two")]);
    archive.truncate(1025);
    let (gateway, _target) = cluster(move |_| reply(200, &[], archive.clone())).await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    let name = ObjectName::new("s.tar").unwrap();
    let got = all(client.read_shard(&bucket(), &name, options(None))).await;
    assert_eq!(got[0].as_ref().unwrap().0, "1.x");
    let error = got[1].as_ref().unwrap_err();
    assert!(error.message.starts_with("ais://b/s.tar: "), "{error}");
    assert!(error.message.contains("byte 1025"), "{error}");
    assert_eq!(got.len(), 2);
}

#[tokio::test]
async fn a_stream_that_is_dropped_asks_for_no_more() {
    let archive = tar(&[("1.x", "one"), ("2.x", "two")]);
    let size = archive.len();
    let (gateway, target) =
        cluster(move |_| broken(200, &[], size, archive[..512].to_vec().into())).await;
    let name = ObjectName::new("s.tar").unwrap();
    let stream = client(&gateway.url, LONG_TIMEOUT).read_shard(&bucket(), &name, options(None));
    while target.seen.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(stream);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let asked = target.seen.lock().unwrap().len();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(target.seen.lock().unwrap().len(), asked);
}

#[tokio::test]
async fn an_object_that_is_shorter_than_the_head_of_an_archive_ends_with_an_error() {
    let (gateway, _target) = cluster(|_| reply(200, &[], "no archive")).await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    for name in ["s.tar", "s.tgz", "s"] {
        let name = ObjectName::new(name).unwrap();
        let items = all(client.read_shard(&bucket(), &name, options(None))).await;
        assert_eq!(items.len(), 1, "{name}");
        assert!(items[0].is_err(), "{name}");
    }
}
