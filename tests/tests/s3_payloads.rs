//! Every way to send a body over S3, with a right proof, a wrong one and none.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_core::date::format_amz;
use forebay_tests::http::Answer;
use forebay_tests::s3::{self, OWNER, S3Request, UNSIGNED, User, code, now, request, texts};
use forebay_tests::{Cluster, Options, Shared};
use sha2::{Digest, Sha256};

const SIGNED_CHUNKS: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
const CHECKSUM: &str = "x-amz-checksum-sha256";

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(|| Cluster::start(Options { targets: 2, ..Options::default() }))
}

/// A gateway and a target.
fn nodes(cluster: &Cluster) -> [&str; 2] {
    [cluster.endpoint.as_str(), cluster.targets[0].url.as_str()]
}

fn make(cluster: &Cluster, bucket: &str) {
    let made = request("PUT", &cluster.endpoint, bucket).send_as(OWNER);
    assert_eq!(made.status, 200, "{}", made.text());
}

fn keys(cluster: &Cluster, bucket: &str) -> Vec<String> {
    let page = request("GET", &cluster.endpoint, bucket).query("list-type", "2").send_as(OWNER);
    texts(&page, "ListBucketResult", "Key")
}

fn checksum(body: &[u8]) -> String {
    BASE64.encode(Sha256::digest(body))
}

/// The body of an unsigned chunk with a checksum in the trailer.
fn unsigned_trailer(body: &[u8], checksum: &str) -> Vec<u8> {
    let head = format!("{:x}\r\n", body.len());
    let end = format!("\r\n0\r\n{CHECKSUM}:{checksum}\r\n\r\n");
    [head.as_bytes(), body, end.as_bytes()].concat()
}

/// Sends a body of this mode, with a signature and with this checksum.
fn send(request: S3Request, mode: &str, body: &[u8], checksum: &str) -> Answer {
    let length = body.len().to_string();
    let request = match mode {
        "" => return request.body(body).send_as(OWNER),
        UNSIGNED => return request.payload(UNSIGNED).body(body).send_as(OWNER),
        SIGNED_CHUNKS => request,
        _ => request.header("x-amz-trailer", CHECKSUM),
    };
    let request = request.header("x-amz-decoded-content-length", &length).payload(mode);
    let (request, signature) = request.sign(OWNER);
    let trailer = format!("{CHECKSUM}:{checksum}");
    let body = match mode {
        SIGNED_CHUNKS => signature.chunked(&[body]),
        SIGNED_TRAILER => signature.chunked_with_trailer(&[body], &trailer),
        _ => unsigned_trailer(body, checksum),
    };
    request.body(body).send()
}

#[test]
fn a_signed_body_of_every_mode_is_stored_as_object_and_as_part() {
    let cluster = cluster();
    make(&cluster, "modes");
    let upload = request("POST", &cluster.endpoint, "modes/parts").query("uploads", "");
    let upload = upload.send_as(OWNER);
    let id = texts(&upload, "InitiateMultipartUploadResult", "UploadId").remove(0);
    let modes = ["", UNSIGNED, SIGNED_CHUNKS, SIGNED_TRAILER, UNSIGNED_TRAILER];
    for node in nodes(&cluster) {
        for mode in modes {
            let body = format!("body of {mode} at {node}");
            let (bytes, sum) = (body.as_bytes(), checksum(body.as_bytes()));
            let put = send(request("PUT", node, "modes/k"), mode, bytes, &sum);
            assert_eq!(put.status, 200, "{mode} at {node}: {}", put.text());
            let got = request("GET", &cluster.endpoint, "modes/k").send_as(OWNER);
            assert_eq!(got.text(), body);
            let part = request("PUT", node, "modes/parts").query("partNumber", "1");
            let part = send(part.query("uploadId", &id), mode, bytes, &sum);
            assert_eq!(part.status, 200, "{mode} at {node}: {}", part.text());
        }
    }
}

#[test]
fn a_trailer_that_does_not_match_the_body_or_its_signature_stores_nothing() {
    let cluster = cluster();
    make(&cluster, "trailers");
    for node in nodes(&cluster) {
        for mode in [SIGNED_TRAILER, UNSIGNED_TRAILER] {
            let put = send(request("PUT", node, "trailers/k"), mode, b"bytes", &checksum(b"other"));
            assert_eq!(code(&put), "BadDigest", "{mode} at {node}");
        }
        let put = request("PUT", node, "trailers/k").payload(SIGNED_TRAILER);
        let put = put.header("x-amz-decoded-content-length", "5").header("x-amz-trailer", CHECKSUM);
        let (put, signature) = put.sign(OWNER);
        let trailer = format!("{CHECKSUM}:{}", checksum(b"other"));
        let body = signature.chunked_with_trailer(&[b"bytes"], &trailer);
        let (wrong, right) = (checksum(b"other"), checksum(b"bytes"));
        let body = String::from_utf8(body).unwrap().replace(&wrong, &right);
        let answer = put.clone().body(body.clone()).send();
        assert_eq!(code(&answer), "SignatureDoesNotMatch", "a changed trailer at {node}");
        let end = body.find("x-amz-trailer-signature").unwrap();
        let answer = put.body(format!("{}\r\n", &body[..end])).send();
        assert!((400..404).contains(&answer.status), "no signature: {}", answer.text());
    }
    assert!(keys(&cluster, "trailers").is_empty());
}

#[test]
fn the_length_of_a_chunk_does_not_overflow() {
    let cluster = cluster();
    make(&cluster, "overflow");
    let sizes = [
        "fffffffffffffffb",
        "ffffffffffffffff",
        "7fffffffffffffff",
        "10000000000000000",
        "-1",
        "0x5",
    ];
    let lengths = ["0", "5", "10", "18446744073709551615", "18446744073709551616", "-1"];
    for node in nodes(&cluster) {
        for size in sizes {
            for length in lengths {
                let put = request("PUT", node, "overflow/k").payload(UNSIGNED_TRAILER);
                let put = put.header("x-amz-decoded-content-length", length).sign(OWNER).0;
                let body = format!("5\r\nhello\r\n{size}\r\nhello\r\n0\r\n\r\n");
                let answer = put.body(body).send();
                let what = format!("{size} of {length} at {node}: {}", answer.text());
                // 507: no disk has as much space as the length announces.
                assert!((400..500).contains(&answer.status) || answer.status == 507, "{what}");
            }
        }
    }
    assert!(keys(&cluster, "overflow").is_empty());
}

/// A request that changes something, as it is before it is signed.
struct Write {
    method: &'static str,
    what: &'static str,
    query: Vec<(&'static str, String)>,
    header: Option<(&'static str, &'static str)>,
    body: &'static str,
}

/// All write operations on a bucket with an object `kept` and an upload.
fn writes(upload: &str) -> Vec<Write> {
    let write = |method, what, query: &[&'static str], header, body| {
        let query = query.iter().map(|name| match *name {
            "uploadId" => ("uploadId", upload.to_owned()),
            "partNumber" => ("partNumber", "1".to_owned()),
            name => (name, String::new()),
        });
        Write { method, what, query: query.collect(), header, body }
    };
    let open = Some(("x-amz-acl", "public-read-write"));
    let copy = Some(("x-amz-copy-source", "/guarded/kept"));
    let part: &[&str] = &["partNumber", "uploadId"];
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>evil</Value></Tag></TagSet></Tagging>";
    let policy = r#"{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:*",
        "Resource": "arn:aws:s3:::guarded/*"}}"#;
    let cors = "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>\
                <AllowedOrigin>http://evil.example</AllowedOrigin></CORSRule></CORSConfiguration>";
    let complete = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part>\
                    </CompleteMultipartUpload>";
    let delete = "<Delete><Object><Key>kept</Key></Object></Delete>";
    let object = "guarded/kept";
    vec![
        write("PUT", "guarded/new", &[], None, "evil"),
        write("PUT", object, &[], None, "evil"),
        write("PUT", "guarded/copy", &[], copy, ""),
        write("DELETE", object, &[], None, ""),
        write("PUT", object, &["tagging"], None, tags),
        write("DELETE", object, &["tagging"], None, ""),
        write("PUT", object, &["acl"], open, ""),
        write("POST", "guarded/upload", &["uploads"], None, ""),
        write("PUT", "guarded/parts", part, None, "evil"),
        write("PUT", "guarded/parts", part, copy, ""),
        write("POST", "guarded/parts", &["uploadId"], None, complete),
        write("DELETE", "guarded/parts", &["uploadId"], None, ""),
        write("PUT", "guarded", &["acl"], open, ""),
        write("PUT", "guarded", &["policy"], None, policy),
        write("DELETE", "guarded", &["policy"], None, ""),
        write("PUT", "guarded", &["cors"], None, cors),
        write("DELETE", "guarded", &["cors"], None, ""),
        write("PUT", "guarded", &["tagging"], None, tags),
        write("DELETE", "guarded", &["tagging"], None, ""),
        write("POST", "guarded", &["delete"], None, delete),
        write("DELETE", "guarded", &[], None, ""),
        write("PUT", "guarded-new", &[], None, ""),
    ]
}

impl Write {
    /// The request with a body in the frames of this mode.
    fn request(&self, node: &str, mode: &str) -> S3Request {
        let mut request = request(self.method, node, self.what);
        for (name, value) in &self.query {
            request = request.query(name, value);
        }
        if let Some((name, value)) = self.header {
            request = request.header(name, value);
        }
        let size = self.body.len();
        let chunk = |extension: &str| {
            let last = if size > 0 { format!("0{extension}\r\n") } else { String::new() };
            format!("{size:x}{extension}\r\n{}\r\n{last}\r\n", self.body).into_bytes()
        };
        let body = match mode {
            SIGNED_CHUNKS | SIGNED_TRAILER => chunk(&format!(";chunk-signature={:064}", 0)),
            UNSIGNED_TRAILER => chunk(""),
            _ => self.body.into(),
        };
        if mode.starts_with("STREAMING-") {
            request = request.header("x-amz-decoded-content-length", &size.to_string());
        }
        request.body(body)
    }
}

/// A request with a proof that is wrong or incomplete, and a word for `x-amz-content-sha256`.
type Unproven = fn(S3Request, &str) -> S3Request;

/// The fields of a signature in the query but for the signature itself.
fn credential(request: S3Request) -> S3Request {
    let time = format_amz(now());
    let scope = format!("{}/{}/us-east-1/s3/aws4_request", OWNER.access, &time[..8]);
    request
        .query("X-Amz-Algorithm", "AWS4-HMAC-SHA256")
        .query("X-Amz-Credential", &scope)
        .query("X-Amz-Date", &time)
        .query("X-Amz-Expires", "600")
        .query("X-Amz-SignedHeaders", "host")
}

const UNPROVEN: [(&str, Unproven); 11] = [
    ("no proof", |r, mode| r.header("x-amz-content-sha256", mode)),
    ("a wrong signature", |r, mode| {
        r.payload(mode).sign(User { access: OWNER.access, secret: "a-wrong-secret" }).0
    }),
    ("a header without a signature", |r, mode| {
        let cut = |text: &str| text.split(", Signature").next().unwrap().to_owned();
        r.payload(mode).sign(OWNER).0.forge("authorization", cut)
    }),
    ("a header of version 2", |r, mode| {
        let header = format!("AWS {}:{}", OWNER.access, "A".repeat(28));
        r.header("x-amz-content-sha256", mode).header("authorization", &header)
    }),
    ("an empty header and a credential in the query", |r, mode| {
        credential(r).header("x-amz-content-sha256", mode).header("authorization", "")
    }),
    ("a wrong signature in the query", |r, mode| {
        let r = r.header("x-amz-content-sha256", mode);
        credential(r).query("X-Amz-Signature", &"0".repeat(64))
    }),
    ("a mode and a wrong signature in the query", |r, mode| {
        let r = r.query("X-Amz-Content-Sha256", mode);
        credential(r).query("X-Amz-Signature", &"0".repeat(64))
    }),
    ("a credential in the query and no signature", |r, mode| {
        credential(r).header("x-amz-content-sha256", mode)
    }),
    ("an empty signature in the query", |r, mode| {
        credential(r).query("X-Amz-Signature", "").header("x-amz-content-sha256", mode)
    }),
    ("only a credential in the query", |r, mode| {
        let scope = format!("{}/20260101/us-east-1/s3/aws4_request", OWNER.access);
        r.query("X-Amz-Credential", &scope).header("x-amz-content-sha256", mode)
    }),
    ("an access key of version 2 in the query", |r, mode| {
        r.query("AWSAccessKeyId", OWNER.access).header("x-amz-content-sha256", mode)
    }),
];

/// The bucket and its objects as a client with the key reads them.
fn snapshot(cluster: &Cluster) -> Vec<(u16, String)> {
    let reads = [
        ("guarded", "list-type"),
        ("guarded", "acl"),
        ("guarded", "policy"),
        ("guarded", "cors"),
        ("guarded", "tagging"),
        ("guarded", "uploads"),
        ("guarded/kept", ""),
        ("guarded/kept", "acl"),
        ("guarded/kept", "tagging"),
        ("guarded-new", "acl"),
    ];
    let read = |(what, query): (&str, &str)| {
        let request = request("GET", &cluster.endpoint, what);
        let request = match query {
            "" => request,
            "list-type" => request.query(query, "2"),
            _ => request.query(query, ""),
        };
        let answer = request.send_as(OWNER);
        let text = if answer.status == 200 { answer.text() } else { String::new() };
        (answer.status, text)
    };
    reads.into_iter().map(read).collect()
}

#[test]
fn no_write_of_any_payload_mode_counts_without_a_right_signature() {
    let cluster = cluster();
    let owner = |method: &str, what: &str| request(method, &cluster.endpoint, what);
    make(&cluster, "guarded");
    let put = owner("PUT", "guarded/kept").header("x-amz-tagging", "a=b").body("as it was");
    assert_eq!(put.send_as(OWNER).status, 200);
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
    let cors = "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>\
                <AllowedOrigin>http://friend.example</AllowedOrigin></CORSRule></CORSConfiguration>";
    let policy = r#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "nobody"},
        "Action": "s3:GetObject", "Resource": "arn:aws:s3:::guarded/*"}}"#;
    for (name, body) in [("tagging", tags), ("cors", cors), ("policy", policy)] {
        let set = owner("PUT", "guarded").query(name, "").body(body).send_as(OWNER);
        assert!((200..300).contains(&set.status), "{name}: {}", set.text());
    }
    let upload = owner("POST", "guarded/parts").query("uploads", "").send_as(OWNER);
    let upload = texts(&upload, "InitiateMultipartUploadResult", "UploadId").remove(0);
    let before = snapshot(&cluster);
    assert!(before[..9].iter().all(|(status, _)| *status == 200), "{before:?}");

    let hash = s3::sha256(b"evil");
    let modes = [hash.as_str(), UNSIGNED, SIGNED_CHUNKS, SIGNED_TRAILER, UNSIGNED_TRAILER];
    for node in nodes(&cluster) {
        for write in writes(&upload) {
            for mode in modes {
                for (proof, unproven) in UNPROVEN {
                    let answer = unproven(write.request(node, mode), mode).send();
                    let what = format!(
                        "{} {} {:?}, {mode}, {proof}, at {node}: {} {}",
                        write.method,
                        write.what,
                        write.query,
                        answer.status,
                        answer.text()
                    );
                    // A deletion of several objects has a result for each.
                    let each = answer.text().contains("<Code>AccessDenied</Code>")
                        && !answer.text().contains("<Deleted>");
                    let denied = (400..404).contains(&answer.status);
                    assert!(denied || (answer.status == 200 && each), "{what}");
                }
            }
        }
    }
    assert_eq!(snapshot(&cluster), before);
}
