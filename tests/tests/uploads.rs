//! Uploads in parts, appends, and members written to shards, as v1 clients do them.

use std::sync::Arc;

use forebay_tests::cluster::{Cluster, native};
use forebay_tests::http::{self, Answer};
use forebay_tests::{Shared, wait};
use serde_json::{Value, json};

static CLUSTER: Shared<Cluster> = Shared::new();

/// A bucket of the shared cluster.
struct Bucket {
    cluster: Arc<Cluster>,
    name: &'static str,
}

fn bucket(name: &'static str) -> Bucket {
    let cluster = CLUSTER.get(Cluster::plain);
    let create = http::request("POST", &format!("{}/v1/buckets/{name}", cluster.endpoint))
        .json(&json!({"action": "create-bck", "value": null}))
        .send();
    assert_eq!(create.status, 200, "{}", create.text());
    Bucket { cluster, name }
}

impl Bucket {
    fn url(&self, object: &str, query: &str) -> String {
        format!("{}?{query}", self.cluster.object_url(self.name, object))
    }

    fn put(&self, object: &str, query: &str, body: impl Into<Vec<u8>>) -> Answer {
        http::request("PUT", &self.url(object, query)).body(body).follow()
    }

    fn act(&self, method: &str, object: &str, query: &str, action: &str, value: Value) -> Answer {
        let message = json!({"action": action, "name": "", "value": value});
        http::request(method, &self.url(object, query)).json(&message).follow()
    }

    fn begin(&self, object: &str) -> String {
        let started = self.act("POST", object, "", "mpt-upload", Value::Null);
        assert_eq!(started.status, 200, "{}", started.text());
        started.text()
    }

    fn complete(&self, object: &str, id: &str, numbers: &[u32]) -> Answer {
        let parts = numbers.iter().map(|n| json!({"part-number": n, "etag": ""})).collect();
        self.act("POST", object, &format!("uploadId={id}"), "mpt-complete", parts)
    }

    fn get(&self, object: &str, query: &str) -> Answer {
        http::request("GET", &self.url(object, query)).follow()
    }

    fn head(&self, object: &str, query: &str) -> Answer {
        http::request("HEAD", &self.url(object, query)).follow()
    }
}

#[track_caller]
fn ok(answer: Answer) -> Answer {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

#[track_caller]
fn refused(answer: &Answer, status: u16, text: &str) {
    let message = answer.message();
    assert!(answer.status == status && message.contains(text), "{}: {message}", answer.status);
}

#[test]
fn an_object_is_uploaded_in_parts() {
    let bucket = bucket("parts");
    let id = bucket.begin("dir/o");
    assert_eq!(bucket.get("dir/o", "").status, 404);
    let large = vec![b'l'; 2 << 20];
    for (number, bytes) in [(2, b"last".to_vec()), (1, b"overwritten".to_vec()), (1, large.clone())]
    {
        ok(bucket.put("dir/o", &format!("uploadId={id}&partNumber={number}"), bytes));
    }
    ok(bucket.complete("dir/o", &id, &[1, 2]));
    let whole = [large.as_slice(), b"last"].concat();
    assert!(ok(bucket.get("dir/o", "")).body == whole);
    let head = ok(bucket.head("dir/o", "props=chunked,checksum,version,etag,last-modified"));
    assert_eq!(head.header("content-length"), Some(whole.len().to_string().as_str()));
    assert_eq!(head.header("ais-chunks-count"), Some("2"));
    assert_eq!(head.header("ais-chunks-max-chunk-size"), Some("2097152"));
    assert_eq!(head.header("ais-version"), Some("1"));
    let checksum = head.header("ais-checksum-value").unwrap();
    let etag = head.header("etag").unwrap();
    assert!(etag.starts_with(&format!("\"v1-{checksum}-")), "{etag}");
    assert!(head.header("last-modified").unwrap().ends_with(" GMT"));
    assert_eq!(bucket.head("dir/o", "props=size").header("ais-chunks-count"), None);
    // An object from a single PUT has no parts.
    ok(bucket.put("dir/o", "", "short"));
    assert_eq!(bucket.head("dir/o", "props=chunked").header("ais-chunks-count"), None);
}

#[test]
fn an_upload_is_over_when_it_is_complete_or_aborted() {
    let bucket = bucket("parts-over");
    let complete = bucket.begin("o");
    ok(bucket.put("o", &format!("uploadId={complete}&partNumber=1"), "x"));
    ok(bucket.complete("o", &complete, &[1]));
    let aborted = bucket.begin("o");
    ok(bucket.put("o", &format!("uploadId={aborted}&partNumber=1"), "y"));
    let abort =
        |id: &str| bucket.act("DELETE", "o", &format!("uploadId={id}"), "mpt-abort", Value::Null);
    ok(abort(&aborted));
    for id in [complete.as_str(), &aborted, "never-was"] {
        refused(&bucket.complete("o", id, &[1]), 404, "does not exist");
        refused(
            &bucket.put("o", &format!("uploadId={id}&partNumber=1"), "z"),
            404,
            "does not exist",
        );
        refused(&abort(id), 404, "does not exist");
    }
    assert_eq!(ok(bucket.get("o", "")).body, b"x");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_texts_that_clients_know() {
    let bucket = bucket("parts-bad");
    let id = bucket.begin("o");
    refused(&bucket.complete("o", &id, &[]), 400, "no chunks");
    let part = |query: &str, body: &str| bucket.put("o", &format!("uploadId={id}{query}"), body);
    refused(&part("&partNumber=1", ""), 400, "put-part invalid size (0)");
    for number in [
        "",
        "&partNumber=",
        "&partNumber=0",
        "&partNumber=-1",
        "&partNumber=x",
        "&partNumber=10001",
    ] {
        refused(&part(number, "x"), 400, "invalid part number");
    }
    ok(part("&partNumber=1", "x"));
    refused(
        &bucket.complete("o", &id, &[1, 1]),
        400,
        "partial completion is not allowed: requested 2 parts, have 1",
    );
    for value in [Value::Null, json!({}), json!([1]), json!([{"part-number": "one"}])] {
        let answer = bucket.act("POST", "o", &format!("uploadId={id}"), "mpt-complete", value);
        assert_eq!(answer.status, 400, "{}", answer.text());
    }
    let unnamed = bucket.act("POST", "o", "", "mpt-complete", json!([]));
    assert_eq!(unnamed.status, 400, "{}", unnamed.text());
    refused(&bucket.put("o", "append_type=flush&append_handle=", ""), 400, "append");
    refused(&bucket.put("o", "append_type=sideways", "x"), 400, "invalid operation");
    refused(&bucket.put("o", "append_type=flush&append_handle=t%7Cx", ""), 404, "does not exist");
    assert_eq!(bucket.get("o", "").status, 404, "nothing of all this was written");
}

#[test]
fn an_object_grows_by_appends_and_shows_it_when_flushed() {
    let bucket = bucket("appends");
    let append = |handle: &str, body: &str| {
        let query = format!("append_type=append&append_handle={}", handle.replace('|', "%7C"));
        ok(bucket.put("log", &query, body)).header("ais-append-handle").unwrap().to_owned()
    };
    let flush = |handle: &str| {
        let query = format!("append_type=flush&append_handle={}", handle.replace('|', "%7C"));
        let answer = ok(bucket.put("log", &query, ""));
        assert_eq!(answer.header("ais-append-handle"), None);
    };
    let handle = append("", "one,");
    let handle = append(&handle, "two,");
    assert_eq!(bucket.get("log", "").status, 404);
    flush(&handle);
    assert_eq!(ok(bucket.get("log", "")).body, b"one,two,");
    let handle = append("", "three");
    assert_eq!(ok(bucket.get("log", "")).body, b"one,two,");
    flush(&handle);
    assert_eq!(ok(bucket.get("log", "")).body, b"one,two,three");
    let head = ok(bucket.head("log", "props=size,version"));
    assert_eq!(head.header("content-length"), Some("13"));
    assert_eq!(head.header("ais-version"), Some("2"));
}

#[test]
fn a_member_is_written_to_a_shard_of_any_format() {
    let bucket = bucket("shard-append");
    let write = |shard: &str, member: &str, flags: &str, body: &str| {
        http::request("PUT", &bucket.url(shard, &format!("archpath={member}")))
            .header("ais-pine", flags)
            .body(body)
            .follow()
    };
    for shard in ["s.tar", "s.tgz", "s.tar.lz4", "s.tar.zst", "s.zip"] {
        refused(&write(shard, "a.txt", "1", "early"), 404, "does not exist");
        ok(write(shard, "a.txt", "2", "first"));
        ok(write(shard, "dir/b.txt", "2", "second"));
        ok(write(shard, &format!("{shard}/c.txt"), "1", "third"));
        ok(write(shard, "a.txt", "1", "changed"));
        let member = |name: &str| bucket.get(shard, &format!("archpath={name}"));
        for (name, body) in [("a.txt", "changed"), ("dir/b.txt", "second"), ("c.txt", "third")] {
            assert_eq!(ok(member(name)).text(), body, "{name} in {shard}");
        }
        // The size in the metadata is the size of the content.
        let whole = ok(bucket.get(shard, ""));
        let head = ok(bucket.head(shard, "props=size"));
        assert_eq!(head.header("content-length"), Some(whole.body.len().to_string().as_str()));
        refused(&write(shard, "d.txt", "1", ""), 400, "Content-Length");
        refused(&write(shard, "d.txt", "x", "x"), 400, "invalid flags");
        ok(write(shard, "only.txt", "0", "alone"));
        assert_eq!(member("a.txt").status, 404, "{shard}");
        assert_eq!(ok(member("only.txt")).text(), "alone");
    }
    refused(&write("plain", "a.txt", "2", "x"), 400, "archive format");
    ok(bucket.put("broken.tar", "", "this is no TAR"));
    let answer = write("broken.tar", "a.txt", "1", "x");
    assert!((400..500).contains(&answer.status), "{}: {}", answer.status, answer.text());
    assert_eq!(ok(bucket.get("broken.tar", "")).body, b"this is no TAR");
}

#[test]
fn members_keep_time_and_mode_when_another_is_written_to_their_shard() {
    let bucket = bucket("shard-times");
    let mut tar = tar::Builder::new(Vec::new());
    for (name, mtime) in [("a.txt", 1_700_000_001), ("b.txt", 7)] {
        let mut header = tar::Header::new_ustar();
        header.set_size(3);
        header.set_mode(0o640);
        header.set_mtime(mtime);
        tar.append_data(&mut header, name, &b"old"[..]).unwrap();
    }
    let plain = tar.into_inner().unwrap();
    let packed = zstd::encode_all(&plain[..], 1).unwrap();
    for (shard, bytes) in [("t.tar", plain), ("t.tar.zst", packed)] {
        ok(bucket.put(shard, "", bytes));
        for member in ["b.txt", "c.txt"] {
            let url = bucket.url(shard, &format!("archpath={member}"));
            ok(http::request("PUT", &url).header("ais-pine", "1").body("new").follow());
        }
        // All members, as a TAR.
        let all = ok(bucket.get(shard, "archregx=&archmode=prefix")).body;
        let stat = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let entry = entry.unwrap();
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            (name, entry.header().mtime().unwrap(), entry.header().mode().unwrap())
        };
        let got: Vec<_> = tar::Archive::new(&all[..]).entries().unwrap().map(stat).collect();
        let want = [("a.txt", 1_700_000_001, 0o640), ("b.txt", 0, 0o644), ("c.txt", 0, 0o644)];
        assert_eq!(got, want.map(|(name, mtime, mode)| (name.to_owned(), mtime, mode)), "{shard}");
    }
}

#[test]
fn an_upload_goes_on_after_its_target_was_killed() {
    let cluster = Cluster::plain();
    let create = http::request("POST", &format!("{}/v1/buckets/killed", cluster.endpoint))
        .json(&json!({"action": "create-bck", "value": null}));
    ok(create.send());
    let bucket = Bucket { cluster: Arc::new(cluster), name: "killed" };
    let id = bucket.begin("o");
    let part = vec![b'p'; 2 << 20];
    ok(bucket.put("o", &format!("uploadId={id}&partNumber=1"), part.clone()));
    let owner = bucket.cluster.owner(&native("killed"), "o");
    bucket.cluster.kill9(&owner.id);
    bucket.cluster.restart(&owner.id);
    wait::until("the target takes the next part", std::time::Duration::from_secs(20), || {
        bucket.put("o", &format!("uploadId={id}&partNumber=2"), part.clone()).status == 200
    });
    ok(bucket.complete("o", &id, &[1, 2]));
    assert!(ok(bucket.get("o", "")).body == [part.as_slice(), &part].concat());
}
