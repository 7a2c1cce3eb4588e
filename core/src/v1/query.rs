//! Query strings and paths of v1 (§1.1–1.2).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::archive::names;
use crate::error::{Error, ErrorCode, Result};
use crate::name::Bucket;

/// Everything but unreserved characters and `/`.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Characters that must be encoded in a query value.
const QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'@');

/// The web URL of an object: its bucket, which covers all files next to it, is created from this.
pub const ORIGINAL_URL: &str = "original_url";

/// Percent-encodes an object's name for a path.
pub fn encode_path(name: &str) -> String {
    utf8_percent_encode(name, PATH).to_string()
}

/// Percent-encodes one value of a query.
pub fn encode_query(value: &str) -> String {
    utf8_percent_encode(value, QUERY).to_string()
}

/// Decodes one path segment or name, once.
pub fn decode_path(text: &str) -> Result<String> {
    percent_decode_str(text).decode_utf8().map(Cow::into_owned).map_err(|_| {
        Error::new(ErrorCode::InvalidName, format!("\"{text}\" is not valid UTF-8 once decoded"))
    })
}

/// Decodes the value of a query's parameter.
fn decode_value(text: &str) -> String {
    let spaced = text.replace('+', " ");
    let bytes: Cow<'_, [u8]> = percent_decode_str(&spaced).into();
    names::requested(&bytes).into_owned()
}

/// The decoded key of one `key=value` of a query.
pub fn pair_key(pair: &str) -> Cow<'_, str> {
    let key = pair.split('=').next().unwrap_or_default();
    form_urlencoded::parse(key.as_bytes()).next().map_or(Cow::Borrowed(""), |(key, _)| key)
}

/// `bucket` and `object` of `/v1/objects/BUCKET/OBJECT` (or `/v1/buckets/BUCKET/PREFIX`), decoded.
/// Either may be empty.
pub fn split_path(path: &str, collection: &str) -> Result<(String, String)> {
    let rest = path
        .strip_prefix("/v1/")
        .and_then(|p| p.strip_prefix(collection))
        .and_then(|p| if p.is_empty() { Some("") } else { p.strip_prefix('/') })
        .ok_or_else(|| Error::invalid(format!("invalid request URI: {path}")))?;
    let (bucket, object) = rest.split_once('/').unwrap_or((rest, ""));
    Ok((decode_path(bucket)?, decode_path(object)?))
}

/// A parsed query string. An empty value counts as absent; the first value of a key wins.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Bytes that are not UTF-8 are converted by [`names::requested`], like the names of members:
    /// different bytes never become the same text.
    pub fn parse(query: Option<&str>) -> Self {
        let query = query.unwrap_or("");
        let pairs = form_urlencoded::parse(query.as_bytes());
        let pairs = pairs.map(|(k, v)| (k.into_owned(), v.into_owned()));
        let pairs: Vec<(String, String)> = pairs.collect();
        if pairs.iter().all(|(_, value)| !value.contains(char::REPLACEMENT_CHARACTER)) {
            return Self(pairs);
        }
        let pieces = query.split('&').filter(|piece| !piece.is_empty());
        let values = pieces.map(|piece| decode_value(piece.split_once('=').map_or("", |(_, v)| v)));
        Self(pairs.into_iter().zip(values).map(|((key, _), value)| (key, value)).collect())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, v)| k == key && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// All keys and values as sent, in order.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// All keys with a value, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Whether the key is present, even with an empty value.
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(k, _)| k == key)
    }

    /// The reference's boolean: `true`, `1`, `t`, `y`, `yes`, `on`, in some spellings (§1.2).
    pub fn flag(&self, key: &str) -> bool {
        matches!(
            self.get(key),
            Some("true" | "True" | "TRUE" | "t" | "T" | "1" | "y" | "yes" | "on")
        )
    }

    /// The bucket for `name`, `provider` and `namespace`. A request with an original URL implies
    /// the web provider.
    pub fn bucket(&self, name: &str) -> Result<Bucket> {
        let other = if self.get(ORIGINAL_URL).is_some() { "ht" } else { "" };
        Bucket::from_parts(
            name,
            self.get("provider").unwrap_or(other),
            self.get("namespace").unwrap_or(""),
        )
    }
}

/// `provider=…[&namespace=…]` for a bucket.
pub fn bucket_query(bucket: &Bucket) -> String {
    let ns = &bucket.namespace;
    let mut query = format!("provider={}", bucket.provider);
    if !ns.is_global() {
        query.push_str(&format!(
            "&namespace={}",
            encode_query(&format!("@{}#{}", ns.uuid, ns.name))
        ));
    }
    query
}

/// `/v1/objects/BUCKET/OBJECT?provider=…`.
pub fn object_uri(bucket: &Bucket, object: &str) -> String {
    format!("/v1/objects/{}/{}?{}", bucket.name, encode_path(object), bucket_query(bucket))
}

/// `/v1/buckets/BUCKET?provider=…`.
pub fn bucket_uri(bucket: &Bucket) -> String {
    format!("/v1/buckets/{}?{}", bucket.name, bucket_query(bucket))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_decoded_once_and_empty_is_absent() {
        let q = Query::parse(Some("provider=aws&archpath=&x=a%2525&coer=True"));
        assert_eq!(q.get("provider"), Some("aws"));
        assert_eq!(q.get("archpath"), None);
        assert!(q.has("archpath"));
        assert_eq!(q.get("x"), Some("a%25"));
        assert!(q.flag("coer") && !q.flag("provider"));
    }

    #[test]
    fn the_key_of_a_pair_is_the_one_that_a_parsed_query_has() {
        for pair in ["fbb=1", "%66bb=1", "f%62%62", "%66bb=a=b", "a+b=1", "%", "=x"] {
            let query = Query::parse(Some(pair));
            assert_eq!(query.all().next().map(|(key, _)| key), Some(&*pair_key(pair)), "{pair}");
        }
        assert_eq!(pair_key(""), "");
    }

    #[test]
    fn everything_after_the_bucket_is_the_name() {
        let split = |p| split_path(p, "objects").unwrap();
        assert_eq!(split("/v1/objects/b/d/x%20%2B+"), ("b".into(), "d/x ++".into()));
        assert_eq!(split("/v1/objects/b//x/"), ("b".into(), "/x/".into()));
        assert_eq!(split("/v1/objects"), (String::new(), String::new()));
        assert!(split_path("/v1/objectsx", "objects").is_err());
        assert!(split_path("/v1/objects/b/%ff", "objects").is_err());
    }

    proptest! {
        #[test]
        fn any_name_survives_the_path(name in "\\PC{1,40}") {
            let encoded = format!("/v1/objects/b/{}", encode_path(&name));
            prop_assert!(encoded.is_ascii());
            prop_assert_eq!(split_path(&encoded, "objects").unwrap().1, name);
        }
    }
}
