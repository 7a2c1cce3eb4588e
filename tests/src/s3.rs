//! S3 requests signed by hand: unlike with a client library, every part of a request can be made
//! wrong.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use forebay_core::date::format_amz;
use forebay_s3::Element;
use forebay_s3::auth::{SecretKey, SigningKey};
use forebay_s3::encode::encode_query;
use sha2::{Digest, Sha256};

use crate::http::{self, Answer};

/// A user that every cluster has.
#[derive(Clone, Copy, Debug)]
pub struct User {
    pub access: &'static str,
    pub secret: &'static str,
}

pub const OWNER: User = User { access: "forebay", secret: "forebaysecret" };
pub const OTHER: User = User { access: "forebay2", secret: "forebaysecret2" };

/// The word that stands for the hash of a body that is not signed.
pub const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// A request to S3 at one node, before it is signed.
#[derive(Clone, Debug)]
pub struct S3Request {
    method: String,
    /// `http://host:port`.
    node: String,
    /// With `/s3`, percent-encoded.
    path: String,
    /// Names and values as they are.
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    at: u64,
    payload: Option<String>,
    region: String,
}

/// Unix seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A request for a bucket or, behind its first slash, for a key: `bucket/key`, percent-encoded.
pub fn request(method: &str, node: &str, what: &str) -> S3Request {
    S3Request {
        method: method.into(),
        node: node.into(),
        path: format!("/s3/{what}"),
        query: Vec::new(),
        headers: Vec::new(),
        body: Vec::new(),
        at: now(),
        payload: None,
        region: "us-east-1".into(),
    }
}

/// A request in virtual-host style: the bucket is that of the host, the key the whole path.
pub fn hosted(method: &str, node: &str, host: &str, key: &str) -> S3Request {
    let request = request(method, node, "");
    S3Request { path: format!("/{key}"), ..request }.header("host", host)
}

/// The values that a signature is made of, for chunks that are signed after it.
#[derive(Clone, Debug)]
pub struct Signature {
    pub value: String,
    time: String,
    scope: String,
    key: SigningKey,
}

impl Signature {
    /// The body of `chunks`, each signed after the one before it, and an empty one.
    pub fn chunked(&self, chunks: &[&[u8]]) -> Vec<u8> {
        self.chunks(chunks).0
    }

    /// The body of `chunks` and a signed trailer, `name:value`.
    pub fn chunked_with_trailer(&self, chunks: &[&[u8]], trailer: &str) -> Vec<u8> {
        let (mut body, before) = self.chunks(chunks);
        // The trailer follows the line of the empty chunk.
        body.truncate(body.len() - 2);
        let text = format!(
            "AWS4-HMAC-SHA256-TRAILER\n{}\n{}\n{before}\n{}",
            self.time,
            self.scope,
            sha256(format!("{trailer}\n").as_bytes())
        );
        let signature = self.key.sign(&text);
        body.extend(format!("{trailer}\r\nx-amz-trailer-signature:{signature}\r\n\r\n").bytes());
        body
    }

    /// Signed chunks, and the signature of the last one.
    fn chunks(&self, chunks: &[&[u8]]) -> (Vec<u8>, String) {
        let mut before = self.value.clone();
        let mut body = Vec::new();
        for chunk in chunks.iter().copied().chain([&b""[..]]) {
            let text = format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{before}\n{}\n{}",
                self.time,
                self.scope,
                sha256(b""),
                sha256(chunk)
            );
            before = self.key.sign(&text);
            body.extend(format!("{:x};chunk-signature={before}\r\n", chunk.len()).bytes());
            body.extend(chunk);
            body.extend(b"\r\n");
        }
        (body, before)
    }
}

impl S3Request {
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Signed at this time (unix seconds).
    #[must_use]
    pub fn at(mut self, unix_s: u64) -> Self {
        self.at = unix_s;
        self
    }

    /// Signed with this for the hash of the body.
    #[must_use]
    pub fn payload(mut self, word: &str) -> Self {
        self.payload = Some(word.into());
        self
    }

    /// Signed for this region.
    #[must_use]
    pub fn region(mut self, region: &str) -> Self {
        self.region = region.into();
        self
    }

    /// Signs it in its headers.
    pub fn sign(mut self, user: User) -> (Self, Signature) {
        let hash = self.payload.clone().unwrap_or_else(|| sha256(&self.body));
        let time = format_amz(self.at);
        self = self.header("x-amz-content-sha256", &hash).header("x-amz-date", &time);
        let mut signed: Vec<(String, String)> =
            self.headers.iter().filter(|(n, _)| n.starts_with("x-amz-")).cloned().collect();
        let host = self.headers.iter().find(|(name, _)| name == "host");
        let host = host.map_or_else(|| http::split(&self.node).0, |(_, host)| host);
        signed.push(("host".into(), host.to_owned()));
        signed.sort();
        let signature = self.signature(user, &signed, &hash);
        let names: Vec<_> = signed.iter().map(|(n, _)| n.as_str()).collect();
        let header = format!(
            "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
            user.access,
            signature.scope,
            names.join(";"),
            signature.value
        );
        (self.header("authorization", &header), signature)
    }

    /// Signs it in its query, good for `expires` seconds: a URL.
    pub fn presign(mut self, user: User, expires: u64) -> String {
        let scope = self.scope();
        self = self
            .query("X-Amz-Algorithm", "AWS4-HMAC-SHA256")
            .query("X-Amz-Credential", &format!("{}/{scope}", user.access));
        let time = format_amz(self.at);
        self = self
            .query("X-Amz-Date", &time)
            .query("X-Amz-Expires", &expires.to_string())
            .query("X-Amz-SignedHeaders", "host");
        let host = [("host".to_owned(), http::split(&self.node).0.to_owned())];
        let signature = self.signature(user, &host, UNSIGNED).value;
        self.query("X-Amz-Signature", &signature).url()
    }

    fn scope(&self) -> String {
        format!("{}/{}/s3/aws4_request", &format_amz(self.at)[..8], self.region)
    }

    fn signature(&self, user: User, signed: &[(String, String)], hash: &str) -> Signature {
        let mut query = self.query.clone();
        query.sort();
        let headers: String = signed.iter().map(|(n, v)| format!("{n}:{v}\n")).collect();
        let names: Vec<_> = signed.iter().map(|(n, _)| n.as_str()).collect();
        let canonical = format!(
            "{}\n{}\n{}\n{headers}\n{}\n{hash}",
            self.method,
            self.path,
            encoded(&query),
            names.join(";")
        );
        let (time, scope) = (format_amz(self.at), self.scope());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(canonical.as_bytes()));
        let key = SigningKey::derive(&SecretKey::new(user.secret), &time[..8], &self.region, "s3");
        Signature { value: key.sign(&text), time, scope, key }
    }

    /// Its URL, with the query as it is now.
    pub fn url(&self) -> String {
        let query = encoded(&self.query);
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{}{mark}{query}", self.node, self.path)
    }

    /// Replaces a header after the request was signed.
    #[must_use]
    pub fn forge(mut self, name: &str, change: impl Fn(&str) -> String) -> Self {
        let (_, value) = self.headers.iter_mut().find(|(n, _)| n == name).unwrap();
        *value = change(value);
        self
    }

    /// Signs it and sends it.
    #[track_caller]
    pub fn send_as(self, user: User) -> Answer {
        self.sign(user).0.send()
    }

    /// Sends it as it is.
    #[track_caller]
    pub fn send(self) -> Answer {
        let mut request = http::request(&self.method, &self.url());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(self.body).send()
    }
}

fn encoded(query: &[(String, String)]) -> String {
    let pair = |(n, v): &(String, String)| {
        format!("{}={}", encode_query(n.as_bytes()), encode_query(v.as_bytes()))
    };
    query.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// The fields of a form that this policy limits, signed by the user.
pub fn form_fields(user: User, policy: &str) -> Vec<(&'static str, String)> {
    let time = format_amz(now());
    let scope = format!("{}/us-east-1/s3/aws4_request", &time[..8]);
    let policy = base64::engine::general_purpose::STANDARD.encode(policy);
    let key = SigningKey::derive(&SecretKey::new(user.secret), &time[..8], "us-east-1", "s3");
    let signature = key.sign(&policy);
    vec![
        ("policy", policy),
        ("x-amz-algorithm", "AWS4-HMAC-SHA256".into()),
        ("x-amz-credential", format!("{}/{scope}", user.access)),
        ("x-amz-date", time),
        ("x-amz-signature", signature),
    ]
}

/// Lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The code of an error answer; its status and body where it has none.
pub fn code(answer: &Answer) -> String {
    let error = Element::parse(&answer.body, "Error").ok();
    let code = error.as_ref().and_then(|e| e.text_of("Code"));
    code.map_or_else(|| format!("{} {}", answer.status, answer.text()), str::to_owned)
}

/// The texts of all elements of this name in an answer, in order.
pub fn texts(answer: &Answer, root: &str, element: &str) -> Vec<String> {
    fn walk(at: &Element, element: &str, found: &mut Vec<String>) {
        for child in &at.children {
            if child.name == element {
                found.push(child.text.clone());
            }
            walk(child, element, found);
        }
    }
    let mut found = Vec::new();
    walk(&Element::parse(&answer.body, root).unwrap(), element, &mut found);
    found
}
