//! Query strings and paths of v1 (§1.1–1.2).

use forebay_core::error::{Error, Result};
use forebay_core::name::Bucket;
use forebay_core::url::{decode_path, encode_path, encode_query, query_pairs};

/// The web URL of an object: its bucket, which covers all files next to it, is created from this.
pub const ORIGINAL_URL: &str = "original_url";

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
    /// Decodes a query as [`query_pairs`] does.
    pub fn parse(query: Option<&str>) -> Self {
        Self(query_pairs(query))
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
    use proptest::prelude::*;

    use super::*;

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
