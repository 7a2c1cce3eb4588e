//! Percent-encoding in the form of S3: everything but unreserved characters, upper-case
//! hexadecimal.

use std::borrow::Cow;

use http::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Characters that signatures and `encoding-type=url` do not encode.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');

/// Encodes a key for `encoding-type=url` or a path; keeps slashes.
pub fn encode_key(key: &str) -> Cow<'_, str> {
    percent_encode(key.as_bytes(), PATH).into()
}

/// Encodes a key if the listing requested it.
pub fn encode_if(encode: bool, key: &str) -> Cow<'_, str> {
    if encode { encode_key(key) } else { Cow::Borrowed(key) }
}

/// The URL of a request's object: the request's own host and path, in either style.
pub fn object_url(headers: &HeaderMap, path: &str) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = match text("x-forwarded-proto") {
        Some("https") => "https",
        _ => "http",
    };
    text("host").map_or_else(|| path.to_owned(), |host| format!("{scheme}://{host}{path}"))
}

/// Encodes one name or value of a canonical query.
pub fn encode_query(value: &[u8]) -> Cow<'_, str> {
    percent_encode(value, UNRESERVED).into()
}

/// Encodes the decoded bytes of a path.
pub fn encode_path(path: &[u8]) -> Cow<'_, str> {
    percent_encode(path, PATH).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_unreserved_characters_stay() {
        assert_eq!(encode_key("foo+1/b a~r-_."), "foo%2B1/b%20a~r-_.");
        assert_eq!(encode_key("ü"), "%C3%BC");
        assert_eq!(encode_query(b"a/b="), "a%2Fb%3D");
        assert_eq!(encode_if(false, "a b"), "a b");
    }

    #[test]
    fn the_url_of_an_object_is_that_of_its_request() {
        let mut headers = HeaderMap::new();
        assert_eq!(object_url(&headers, "/s3/b/k"), "/s3/b/k");
        headers.insert("host", http::HeaderValue::from_static("gw:8080"));
        assert_eq!(object_url(&headers, "/s3/b/k%20"), "http://gw:8080/s3/b/k%20");
        headers.insert("x-forwarded-proto", http::HeaderValue::from_static("https"));
        assert_eq!(object_url(&headers, "/k"), "https://gw:8080/k");
    }
}
