//! Batches of members and ranges: the native stream, and v1's archives in every format.

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::{ErrorCode, ObjectName};
use forebay_tests::data::assert_same;
use forebay_tests::http;

use super::archives::{FORMATS, Members, read};
use super::{cluster, members, shards};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_native_batch_has_members_and_ranges_beside_objects() {
    let cluster = cluster();
    let bucket = shards(&cluster, "native-batch").await;
    let entry = |name: &str, archpath: &str, range| BatchEntry {
        archpath: archpath.into(),
        range,
        ..BatchEntry::whole(0, ObjectName::new(name).unwrap())
    };
    let mut entries = vec![
        entry("dir/s.txt", "", None),
        entry("dir/s.txt", "", Some((1, Some(3)))),
        entry("dir/s.txt", "", Some((2, None))),
        entry("dir/s.txt", "", Some((2, Some(4)))),
        entry("dir/s.tar", "a/none", None),
    ];
    for format in FORMATS {
        let shard = format!("dir/s{format}");
        entries.extend(members().iter().rev().map(|(name, _)| entry(&shard, name, None)));
        entries.push(entry(&shard, "größe 1%.bin", Some((1_500_000, Some(1_400_000)))));
        entries.push(entry(&shard, "a/1.txt", Some((500, None))));
        entries.push(entry(&shard, "a/1.txt", Some((500, Some(14)))));
    }
    let request = BatchRequest { buckets: vec![bucket], entries, ordered: true };
    let all = cluster.client().batch_all(&request).await.unwrap();
    for (entry, result) in request.entries.iter().zip(all) {
        let said = format!("{} {} {:?}", entry.name, entry.archpath, entry.range);
        let data = match entry.archpath.as_str() {
            "" => Some(b"plain".to_vec()),
            path => members().into_iter().find(|m| m.0 == path).map(|m| m.1),
        };
        let Some(data) = data else {
            let error = result.unwrap_err();
            assert_eq!(error.code, ErrorCode::ObjectNotFound, "{said}: {error}");
            assert!(error.message.contains("a/none in ais://native-batch/dir/s.tar"), "{error}");
            continue;
        };
        let (start, length) = entry.range.unwrap_or((0, None));
        let end = length.map_or(data.len() as u64, |length| start + length);
        match data.get(start as usize..end as usize) {
            Some(want) => assert_same(&said, &result.unwrap(), want),
            None => assert_eq!(
                result.unwrap_err().code,
                ErrorCode::RangeNotSatisfiable,
                "{said}: no part of what was asked for"
            ),
        }
    }
}

/// The body of a v1 batch over the test's shards, and what must come.
fn moss(bucket: &str, mime: &str, coer: bool, strm: bool) -> (serde_json::Value, Members) {
    let all = members();
    let asked = [
        ("dir/s.tar", "a/1.txt", 0, 0),
        ("dir/s.tgz", "d/2.txt", 100, 50),
        ("dir/s.zip", "a/10.txt", 99_000, -1),
        ("dir/s.tar.lz4", "a/1.txt", 0, 0),
        ("dir/s.txt", "", 2, 2),
        ("dir/s.tar.zst", "a/empty", 0, 0),
        ("dir/s.tar", "a/1.txt", 0, 0),
        ("dir/s.tar", "größe 1%.bin", 0, 0),
    ];
    let entry = |(name, archpath, start, length): (&str, &str, i64, i64)| {
        serde_json::json!({
            "objname": name, "bucket": bucket, "provider": "ais", "archpath": archpath,
            "start": start, "length": length,
        })
    };
    let want = asked.iter().map(|(name, archpath, start, length)| {
        let (path, data) = match *archpath {
            "" => ((*name).to_owned(), b"plain".to_vec()),
            path => (format!("{name}/{path}"), all.iter().find(|m| m.0 == path).unwrap().1.clone()),
        };
        let start = *start as usize;
        let end = if *length > 0 { start + *length as usize } else { data.len() };
        (format!("{bucket}/{path}"), data[start..end].to_vec())
    });
    let want = want.collect();
    let entries: Vec<_> = asked.into_iter().map(entry).collect();
    let body = serde_json::json!({
        "in": entries, "mime": mime, "coer": coer, "onob": false, "strm": strm
    });
    (body, want)
}

/// The parts of a multipart answer.
fn parts(answer: &http::Answer) -> (serde_json::Value, Vec<u8>) {
    let kind = answer.header("content-type").unwrap().to_owned();
    let boundary = kind.split_once("boundary=").unwrap().1;
    let mark = format!("\r\n--{boundary}");
    let find =
        |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|w| w == what).unwrap();
    let head = find(&answer.body, b"\r\n\r\n") + 4;
    let end = head + find(&answer.body[head..], mark.as_bytes());
    let metadata = serde_json::from_slice(&answer.body[head..end]).unwrap();
    let second = end + find(&answer.body[end..], b"\r\n\r\n") + 4;
    let tail = answer.body.len() - format!("{mark}--\r\n").len();
    (metadata, answer.body[second..tail].to_vec())
}

#[tokio::test]
async fn a_v1_batch_of_members_and_ranges_comes_in_every_output_format() {
    let cluster = cluster();
    shards(&cluster, "moss").await;
    let url = format!("{}/v1/ml/moss/moss?provider=ais", cluster.endpoint);
    for (mime, format, kind) in [
        ("", ".tar", "application/x-tar"),
        (".tgz", ".tgz", "application/gzip"),
        (".tar.gz", ".tgz", "application/gzip"),
        (".zip", ".zip", "application/zip"),
        (".tar.lz4", ".tar.lz4", "application/x-lz4"),
        (".tar.zst", ".tar.zst", "application/zstd"),
    ] {
        let (body, mut want) = moss("moss", mime, true, true);
        if format == ".zip" {
            // Its reader keeps one of the two members that have one name.
            want.remove(0);
        }
        let order = |mut members: Members| {
            members.sort();
            members
        };
        let same = |got: Members, want: &Members| match format {
            ".zip" => order(got) == order(want.clone()),
            _ => got == *want,
        };
        let answer = http::request("GET", &url).json(&body).follow();
        assert_eq!(answer.status, 200, "{mime}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some(kind), "{mime}");
        assert!(same(read(format, &answer.body), &want), "{mime}");

        let (body, _) = moss("moss", mime, true, false);
        let answer = http::request("GET", &url).json(&body).follow();
        assert_eq!(answer.status, 200, "{mime}: {}", answer.text());
        let (metadata, archive) = parts(&answer);
        assert!(same(read(format, &archive), &want), "{mime} buffered");
        let out = metadata["out"].as_array().unwrap();
        assert_eq!(out.len(), 8);
        assert_eq!(
            (&out[1]["objname"], &out[1]["archpath"], &out[1]["size"]),
            (&"dir/s.tgz".into(), &"d/2.txt".into(), &50.into())
        );
    }
}

#[tokio::test]
async fn what_a_v1_batch_lacks_is_marked_or_fails_the_whole() {
    let cluster = cluster();
    shards(&cluster, "moss-missing").await;
    let url = format!("{}/v1/ml/moss/moss-missing?provider=ais", cluster.endpoint);
    let lacking = [
        serde_json::json!({"objname": "dir/s.tar", "archpath": "a/none"}),
        serde_json::json!({"objname": "none.tar", "archpath": "a"}),
        serde_json::json!({"objname": "dir/s.tar", "archpath": "a/1.txt", "start": 510, "length": 9}),
        serde_json::json!({"objname": "dir/s.txt", "archpath": "a"}),
    ];
    let marks = [
        "__404__/moss-missing/dir/s.tar/a/none",
        "__404__/moss-missing/none.tar/a",
        "__404__/moss-missing/dir/s.tar/a/1.txt",
        "__404__/moss-missing/dir/s.txt/a",
    ];
    for (odd, mark) in lacking.into_iter().zip(marks) {
        for strm in [true, false] {
            let (mut body, mut want) = moss("moss-missing", ".tar", true, strm);
            body["in"].as_array_mut().unwrap().insert(3, odd.clone());
            want.insert(3, (mark.to_owned(), Vec::new()));
            let answer = http::request("GET", &url).json(&body).follow();
            assert_eq!(answer.status, 200, "{mark}: {}", answer.text());
            let archive = if strm {
                answer.body
            } else {
                let (metadata, archive) = parts(&answer);
                let message = metadata["out"][3]["err_msg"].as_str().unwrap().to_owned();
                let named = ["ais://moss-missing/", "has 513 bytes"];
                assert!(named.iter().any(|name| message.contains(name)), "{message}");
                archive
            };
            assert!(read(".tar", &archive) == want, "{mark}");

            let (mut body, _) = moss("moss-missing", ".tar", false, strm);
            body["in"].as_array_mut().unwrap().insert(3, odd.clone());
            let first = http::request("GET", &url).json(&body).send();
            let there = first.header("location").unwrap();
            let failed = http::request("GET", there).json(&body).try_send();
            match failed {
                // The stream is cut: it has no end that could be taken for one.
                Err(_) => assert!(strm, "{mark}"),
                // Before the first byte goes out a stream fails as a buffered answer does.
                Ok(failed) => {
                    let status = if mark.ends_with("1.txt") { 416 } else { 404 };
                    let status = if mark.ends_with("s.txt/a") { 400 } else { status };
                    assert_eq!(failed.status, status, "{mark}: {}", failed.text());
                }
            }
        }
    }
}
