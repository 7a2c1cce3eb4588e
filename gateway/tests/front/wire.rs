//! The tests' own HTTP client: one connection per request, no redirects, answers read completely.

use std::collections::BTreeMap;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

pub(crate) async fn send(
    url: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Answer {
    let address = url.strip_prefix("http://").unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::builder().method(method).uri(path).header("host", address);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).unwrap();
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let headers = parts.headers.iter();
    let text = |v: &http::HeaderValue| String::from_utf8_lossy(v.as_bytes()).into_owned();
    Answer {
        status: parts.status.as_u16(),
        headers: headers.map(|(k, v)| (k.to_string(), text(v))).collect(),
        body: body.collect().await.unwrap().to_bytes(),
    }
}

pub(crate) async fn get(url: &str, path: &str) -> Answer {
    send(url, "GET", path, &[], "").await
}

/// A control message, with the content type that clients send.
pub(crate) async fn act(url: &str, method: &str, path: &str, action: &str, value: Value) -> Answer {
    let body = serde_json::json!({"action": action, "name": "", "value": value}).to_string();
    send(url, method, path, &[("content-type", "application/json")], body).await
}
