//! S3 on every node: a refused request leaves nothing, keys are opaque, and both protocols access
//! the same objects.

use std::sync::Arc;

use forebay_core::Bucket;
use forebay_s3::encode::encode_key;
use forebay_tests::cluster::{cloud, native};
use forebay_tests::data::{assert_same, content};
use forebay_tests::s3::{OTHER, OWNER, S3Request, UNSIGNED, code, now, request, texts};
use forebay_tests::{Cluster, Minio, Options, Shared, http, s3};

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(Cluster::plain)
}

/// Makes a bucket of [`OWNER`]'s.
fn make(cluster: &Cluster, bucket: &str) {
    let made = request("PUT", &cluster.endpoint, bucket).send_as(OWNER);
    assert_eq!(made.status, 200, "{}", made.text());
}

fn put(cluster: &Cluster, what: &str, body: &[u8]) {
    let put = request("PUT", &cluster.endpoint, what).body(body).send_as(OWNER);
    assert_eq!(put.status, 200, "{what}: {}", put.text());
}

fn get(cluster: &Cluster, what: &str) -> http::Answer {
    request("GET", &cluster.endpoint, what).send_as(OWNER)
}

/// All keys of a bucket, in the order of the listing.
fn keys(cluster: &Cluster, bucket: &str) -> Vec<String> {
    let page = request("GET", &cluster.endpoint, bucket).query("list-type", "2").send_as(OWNER);
    texts(&page, "ListBucketResult", "Key")
}

/// A request, as its sender signed it or as it was changed on its way.
type Sent = Box<dyn Fn(S3Request) -> http::Answer>;

#[test]
fn a_request_that_is_not_as_it_was_signed_is_refused_and_stores_nothing() {
    const STREAMING: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    let cluster = cluster();
    make(&cluster, "forged");
    put(&cluster, "forged/kept", b"as it was");
    let chunked = |r: S3Request, change: fn(Vec<u8>) -> Vec<u8>| {
        let r = r.payload(STREAMING).header("x-amz-decoded-content-length", "70003");
        let (r, signature) = r.sign(OWNER);
        let body = signature.chunked(&[&[7; 70_000], b"end"]);
        r.body(change(body)).send()
    };
    let expired = |r: S3Request| {
        let url = r.at(now() - 100).presign(OWNER, 99);
        http::request("PUT", &url).body("new").send()
    };
    let cases: Vec<(&str, &str, Sent)> = vec![
        (
            "another signature",
            "SignatureDoesNotMatch",
            Box::new(|r| {
                let other = |text: &str| format!("{}{}", &text[..text.len() - 1], "g");
                r.body("new").sign(OWNER).0.forge("authorization", other).send()
            }),
        ),
        (
            "a header changed behind it",
            "SignatureDoesNotMatch",
            Box::new(|r| {
                let r = r.header("x-amz-meta-label", "cat").body("new");
                r.sign(OWNER).0.forge("x-amz-meta-label", |_| "dog".into()).send()
            }),
        ),
        (
            "a header of AWS's added behind it",
            "AccessDenied",
            Box::new(|r| r.body("new").sign(OWNER).0.header("x-amz-acl", "public-read").send()),
        ),
        (
            "the key of somebody unknown",
            "InvalidAccessKeyId",
            Box::new(|r| r.body("new").send_as(s3::User { access: "nobody", secret: "x" })),
        ),
        (
            "a clock 16 minutes behind",
            "RequestTimeTooSkewed",
            Box::new(|r| r.at(now() - 16 * 60).body("new").send_as(OWNER)),
        ),
        (
            "a clock 16 minutes ahead",
            "RequestTimeTooSkewed",
            Box::new(|r| r.at(now() + 16 * 60).body("new").send_as(OWNER)),
        ),
        ("a URL that has expired", "AccessDenied", Box::new(expired)),
        (
            "another body than was signed",
            "XAmzContentSHA256Mismatch",
            Box::new(|r| r.body("new").sign(OWNER).0.body("now").send()),
        ),
        (
            "a changed byte in a signed chunk",
            "SignatureDoesNotMatch",
            Box::new(move |r| {
                chunked(r, |mut body| {
                    body[50_000] ^= 1;
                    body
                })
            }),
        ),
        (
            "a chunk left out at the end",
            "IncompleteBody",
            Box::new(move |r| {
                chunked(r, |mut body| {
                    body.truncate(70_100);
                    body
                })
            }),
        ),
        (
            "another CRC32C",
            "BadDigest",
            Box::new(|r| {
                let r = r.payload(UNSIGNED).header("x-amz-checksum-crc32c", "AAAAAA==");
                r.body("new").send_as(OWNER)
            }),
        ),
        (
            "another MD5",
            "BadDigest",
            Box::new(|r| {
                let r = r.payload(UNSIGNED).header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
                r.body("new").send_as(OWNER)
            }),
        ),
    ];
    let nodes = cluster.targets.iter().map(|t| t.url.as_str()).chain([cluster.endpoint.as_str()]);
    for node in nodes {
        for (what, expected, send) in &cases {
            for key in ["kept", "new"] {
                let answer = send(request("PUT", node, &format!("forged/{key}")));
                assert_eq!(&code(&answer), expected, "{what}, at {node}");
            }
        }
    }
    assert_eq!(keys(&cluster, "forged"), ["kept"]);
    assert_eq!(get(&cluster, "forged/kept").body, b"as it was");
}

#[test]
fn chunks_that_are_signed_one_by_one_are_stored_without_their_frames() {
    let cluster = cluster();
    make(&cluster, "chunks");
    for node in cluster.targets.iter().chain(&cluster.gateways) {
        let put = request("PUT", &node.url, "chunks/k")
            .payload("STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
            .header("content-encoding", "aws-chunked")
            .header("x-amz-decoded-content-length", "70003");
        let (put, signature) = put.sign(OWNER);
        let put = put.body(signature.chunked(&[&[7; 70_000], b"end"])).send();
        assert_eq!(put.status, 200, "{}", put.text());
        let got = get(&cluster, "chunks/k");
        assert_same("chunks/k", &got.body, &[&[7; 70_000][..], b"end"].concat());
        assert_eq!(got.header("content-encoding"), None);
    }
}

#[tokio::test]
async fn keys_are_stored_and_listed_as_given_by_s3_and_by_v1() {
    let cluster = cluster();
    make(&cluster, "opaque");
    let (ascii, two, three) = ("k".repeat(1024), "ä".repeat(512), "日".repeat(341));
    let mut given = vec![
        "ds",
        "ds/part-1",
        "ds/",
        "a//b",
        "//",
        "/lead",
        "./x",
        "../x",
        "x/./y",
        "x/../y",
        "dir/",
        "a b+c",
        "100%",
        "%41",
        "q?x=1",
        "#",
        "tab\tline\n",
        "ünï/日本語",
        "😀",
        &ascii,
        &two,
        &three,
    ];
    for (at, key) in given.iter().enumerate() {
        let node = &cluster.targets[at % cluster.targets.len()].url;
        let what = format!("opaque/{}", encode_key(key));
        let put = request("PUT", node, &what).body(key.as_bytes()).send_as(OWNER);
        assert_eq!(put.status, 200, "{key:?}: {}", put.text());
    }
    given.sort_unstable();
    assert_eq!(keys(&cluster, "opaque"), given);

    let client = cluster.client();
    let bucket = native("opaque");
    let listed = client.list_all(&bucket, "").await.unwrap();
    assert_eq!(listed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), given);
    for key in &given {
        assert_eq!(get(&cluster, &format!("opaque/{}", encode_key(key))).body, key.as_bytes());
        let by_v1 = client.get_bytes(&bucket, key, None).await.unwrap();
        assert_eq!(by_v1, key.as_bytes(), "{key:?}");
    }
    let long = format!("opaque/{}", "k".repeat(1025));
    let put = request("PUT", &cluster.endpoint, &long).body("x").send_as(OWNER);
    assert_eq!(code(&put), "KeyTooLongError");
}

#[tokio::test]
async fn an_object_is_one_by_s3_and_by_v1() {
    let cluster = cluster();
    make(&cluster, "one-truth");
    let put = request("PUT", &cluster.endpoint, "one-truth/by-s3")
        .header("x-amz-meta-label", "cat")
        .header("content-type", "image/png")
        .body("pixels")
        .send_as(OWNER);
    let etag = put.header("etag").unwrap().to_owned();
    let v1 = |name: &str, props: &str| {
        let url = cluster.object_url("one-truth", name);
        http::request("HEAD", &format!("{url}?provider=ais&props={props}")).follow()
    };
    let head = v1("by-s3", "etag,custom,checksum,version");
    assert_eq!(head.header("etag"), Some(etag.as_str()));
    assert_eq!(head.header("ais-custom-md"), Some("label=cat"), "and nothing of S3's own");
    assert_eq!(head.header("ais-version"), Some("1"));

    let client = cluster.client();
    let bucket = native("one-truth");
    client.put(&bucket, "by-v1", "bytes", None).await.unwrap();
    let by_v1 = v1("by-v1", "etag,checksum");
    let s3 = request("HEAD", &cluster.endpoint, "one-truth/by-v1").send_as(OWNER);
    assert_eq!(s3.header("etag"), by_v1.header("etag"));
    assert_eq!(s3.header("content-length"), Some("5"));

    // A change by v1 is visible to S3.
    let patch = serde_json::json!({"action": "", "value": {"label": "dog"}});
    let url = format!("{}?provider=ais", cluster.object_url("one-truth", "by-s3"));
    let patched = http::request("PATCH", &url).json(&patch).follow();
    assert_eq!(patched.status, 200, "{}", patched.text());
    let s3 = request("HEAD", &cluster.endpoint, "one-truth/by-s3").send_as(OWNER);
    assert_eq!(s3.header("x-amz-meta-label"), Some("dog"));
    assert_eq!(s3.header("content-type"), Some("image/png"));

    // Written again by v1, it is v1's: bytes and ETag change for both.
    client.put(&bucket, "by-s3", "other", None).await.unwrap();
    let (s3, head) = (get(&cluster, "one-truth/by-s3"), v1("by-s3", "etag,version"));
    assert_eq!((s3.body.as_slice(), s3.header("etag")), (&b"other"[..], head.header("etag")));
    assert_ne!(s3.header("etag"), Some(etag.as_str()));
    assert_eq!(head.header("ais-version"), Some("2"));
    let listed = request("GET", &cluster.endpoint, "one-truth").send_as(OWNER);
    let etags = texts(&listed, "ListBucketResult", "ETag");
    assert_eq!(etags[0], s3.header("etag").unwrap());

    client.delete(&bucket, "by-s3").await.unwrap();
    assert_eq!(code(&get(&cluster, "one-truth/by-s3")), "NoSuchKey");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_bucket_is_read_and_written_through_by_s3() {
    let Some(minio) = Minio::start() else { return };
    let cluster = Cluster::start(Options { env: minio.env(), ..Options::default() });
    minio.create_bucket("photos").await;
    let bytes = content("cat", 300_000);
    minio.put("photos", "a/cat", bytes.clone()).await;
    let bucket: Bucket = cloud("photos");
    cluster.client().head_bucket(&bucket).await.unwrap();

    let all = request("GET", &cluster.endpoint, "").send_as(OTHER);
    let buckets = texts(&all, "ListAllMyBucketsResult", "Name");
    assert!(buckets.contains(&"photos".to_owned()), "everybody with a key sees it: {buckets:?}");
    assert_eq!(keys(&cluster, "photos"), ["a/cat"], "what is in the cloud only is listed");

    let before = minio.count("GetObject");
    for node in &cluster.targets {
        let got = request("GET", &node.url, "photos/a/cat").send_as(OWNER);
        assert_same("photos/a/cat", &got.body, &bytes);
    }
    assert_eq!(minio.count("GetObject") - before, 1, "three reads by S3 are one of the cloud");

    put(&cluster, "photos/b/dog", b"bark");
    assert_eq!(minio.get("photos", "b/dog").await.as_deref(), Some(&b"bark"[..]));
    let etag = get(&cluster, "photos/b/dog").header("etag").unwrap().to_owned();
    let head = minio.s3().head_object().bucket("photos").key("b/dog").send().await.unwrap();
    assert_eq!(head.e_tag(), Some(etag.as_str()), "one ETag here and there");

    let copied = request("PUT", &cluster.endpoint, "photos/c")
        .header("x-amz-copy-source", "/photos/a/cat")
        .send_as(OWNER);
    assert_eq!(copied.status, 200, "{}", copied.text());
    assert_same("the copy", &minio.get("photos", "c").await.unwrap(), &bytes);
    let gone = request("DELETE", &cluster.endpoint, "photos/a/cat").send_as(OWNER);
    assert_eq!(gone.status, 204);
    assert_eq!(minio.get("photos", "a/cat").await, None);
    assert_eq!(keys(&cluster, "photos"), ["b/dog", "c"]);
    let refused = request("DELETE", &cluster.endpoint, "photos").send_as(OWNER);
    assert_eq!(code(&refused), "AccessDenied", "the cloud's bucket is not ours to delete");
}

#[test]
fn a_thousand_objects_are_deleted_by_one_request() {
    let cluster = cluster();
    make(&cluster, "many");
    let names: Vec<String> = (0..1000).map(|n| format!("k{n:04}")).collect();
    std::thread::scope(|scope| {
        for share in names.chunks(125) {
            let cluster = &cluster;
            scope.spawn(move || share.iter().for_each(|k| put(cluster, &format!("many/{k}"), b"")));
        }
    });
    let delete = |names: &[String]| {
        let rows: String =
            names.iter().map(|k| format!("<Object><Key>{k}</Key></Object>")).collect();
        let body = format!("<Delete>{rows}</Delete>");
        request("POST", &cluster.endpoint, "many").query("delete", "").body(body).send_as(OWNER)
    };
    let more: Vec<String> = names.iter().cloned().chain(["one-too-many".into()]).collect();
    assert_eq!(code(&delete(&more)), "MalformedXML");
    assert_eq!(keys(&cluster, "many").len(), 1000);
    assert_eq!(texts(&delete(&names), "DeleteResult", "Key"), names);
    assert!(keys(&cluster, "many").is_empty());
}

#[test]
fn what_is_not_served_is_refused_by_its_name() {
    let cluster = cluster();
    make(&cluster, "unserved");
    for (method, parameter, name) in [
        ("GET", "lifecycle", "GetBucketLifecycleConfiguration"),
        ("PUT", "replication", "PutBucketReplication"),
        ("DELETE", "website", "DeleteBucketWebsite"),
    ] {
        for node in cluster.targets.iter().chain(&cluster.gateways) {
            let asked = request(method, &node.url, "unserved").query(parameter, "");
            let refused = asked.send_as(OWNER);
            assert_eq!((code(&refused).as_str(), refused.status), ("NotImplemented", 501));
            assert!(refused.text().contains(name), "{}", refused.text());
        }
    }
}
