//! URLs whose query has a signature (AWS signature version 4, as `presigned` verifies them).

use forebay_core::date::format_amz;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method};

use super::canonical::{ALGORITHM, Credential, Signed, UNSIGNED};
use super::keys::{SecretKey, SigningKey};
use super::presigned::SIGNATURE;
use crate::encode::{encode_key, encode_query};
use crate::request::RequestHead;

/// A request that anybody who has its URL may send.
#[derive(Clone, Debug)]
pub struct Presign<'a> {
    pub method: Method,
    /// URL of a node or of a load balancer, without the path of the S3 API.
    pub endpoint: &'a str,
    /// Path from the root of the endpoint, not encoded.
    pub path: &'a str,
    /// When it is signed, unix seconds.
    pub now_s: u64,
    /// How long it is good after that.
    pub expires_s: u64,
    pub region: &'a str,
}

impl Presign<'_> {
    /// The URL with the signature of this key; `None` if the endpoint cannot be the host of a request.
    pub fn url(&self, access_key: &str, secret: &SecretKey) -> Option<String> {
        let time = format_amz(self.now_s);
        let day = time.get(..8)?;
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let credential = format!("{access_key}/{scope}");
        let expires = self.expires_s.to_string();
        // In the order of their names, as the signature has them.
        let fields = [
            ("X-Amz-Algorithm", ALGORITHM),
            ("X-Amz-Credential", &credential),
            ("X-Amz-Date", &time),
            ("X-Amz-Expires", &expires),
            ("X-Amz-SignedHeaders", "host"),
        ];
        let pairs =
            fields.map(|(name, value)| format!("{name}={}", encode_query(value.as_bytes())));
        let (path, query) = (encode_key(self.path), pairs.join("&"));
        let host = HeaderValue::from_str(host(self.endpoint)).ok()?;
        let headers = HeaderMap::from_iter([(HOST, host)]);
        let head =
            RequestHead { method: &self.method, path: &path, query: &query, headers: &headers };
        let signed = Signed {
            credential: Credential::parse(&credential)?,
            time: &time,
            headers: vec!["host"],
            payload: UNSIGNED,
            without: Some(SIGNATURE),
            signature: "",
        };
        let signature =
            SigningKey::derive(secret, day, self.region, "s3").sign(&signed.text(&head, &path).1);
        let base = self.endpoint.trim_end_matches('/');
        Some(format!("{base}{path}?{query}&{SIGNATURE}={signature}"))
    }
}

/// The `Host` header that clients send to this endpoint: without the default port of the scheme.
fn host(endpoint: &str) -> &str {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    let authority = rest.split('/').next().unwrap_or(rest);
    let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    authority.strip_suffix(port).unwrap_or(authority)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_795_953_600;

    fn presign() -> Presign<'static> {
        Presign {
            method: Method::GET,
            endpoint: "http://h:1",
            path: "/s3/b/a b+é/c",
            now_s: NOW_S,
            expires_s: 60,
            region: "us-east-1",
        }
    }

    #[test]
    fn the_host_has_no_default_port() {
        assert_eq!(host("http://127.0.0.1:7400"), "127.0.0.1:7400");
        assert_eq!(host("https://a.b:443/"), "a.b");
        assert_eq!(host("http://a.b:443"), "a.b:443");
    }

    #[test]
    fn a_name_with_special_characters_is_encoded_once_and_the_secret_is_not_shown() {
        let url = presign().url("me", &SecretKey::new("secret")).unwrap();
        assert!(url.starts_with("http://h:1/s3/b/a%20b%2B%C3%A9/c?X-Amz-Algorithm="), "{url}");
        assert!(
            url.contains("X-Amz-Credential=me%2F20261129%2Fus-east-1%2Fs3%2Faws4_request&"),
            "{url}"
        );
        assert!(!url.contains("secret"));
    }

    #[test]
    fn an_endpoint_that_is_no_host_has_no_url() {
        let odd = Presign { endpoint: "http://a\nb", ..presign() };
        assert_eq!(odd.url("me", &SecretKey::new("secret")), None);
    }
}
