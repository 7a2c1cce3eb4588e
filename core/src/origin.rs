//! HTTP origins: maps URLs to buckets and objects, and objects to URLs.

use percent_encoding::percent_decode_str;
use xxhash_rust::xxh64::xxh64;

use crate::bucket::{BackendKind, BackendSpec};
use crate::error::{Error, Result};
use crate::name::{Bucket, Provider};
use crate::url::encode_path;

/// Seed of the hash that names buckets; AIStore uses it for its other hashes.
const SEED: u64 = 1_103_515_245;

/// A location on the web whose files are a bucket's objects: a URL without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    /// Parses a base URL: `https://host/path`.
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |why: &str| {
            // Without the URL: the invalid part may be a password.
            Err(Error::invalid(format!("the URL of an HTTP origin {why}"))
                .hint("give it as https://host/path"))
        };
        let Some((scheme, rest)) = url.split_once("://") else {
            return bad("has no scheme");
        };
        if !matches!(scheme, "http" | "https") {
            return bad("is neither http nor https");
        }
        if rest.contains(['?', '#']) {
            return bad("has a query or a fragment, which names of objects cannot follow");
        }
        let host = rest.split('/').next().unwrap_or_default();
        if host.is_empty() {
            return bad("names no host");
        }
        if host.contains('@') {
            return bad("has a user or password in it");
        }
        if url.bytes().any(|b| b.is_ascii_whitespace() || b.is_ascii_control() || b == b'\\') {
            return bad("has characters that no URL has");
        }
        Ok(Self(url.trim_end_matches('/').to_owned()))
    }

    /// The origin of the file at `url` that is the object `name`: the URL before the name.
    pub fn of_object(url: &str, name: &str) -> Result<Self> {
        let parts: Vec<&str> = url.split('/').collect();
        let count = name.split('/').count();
        // Scheme, empty part, host, and at least the name.
        let names = parts.len() >= 3 + count && {
            let path = parts[parts.len() - count..].join("/");
            percent_decode_str(&path).decode_utf8().is_ok_and(|path| path == name)
        };
        if !names {
            return Err(Error::invalid(format!(
                "original_url is not the URL of an object \"{name}\": it does not end with that name"
            ))
            .hint("the name of the object is the last part of the URL, without a query"));
        }
        Self::parse(&parts[..parts.len() - count].join("/"))
    }

    /// The default name of a bucket for this origin: a hash, as in AIStore.
    pub fn bucket_name(&self) -> String {
        format!("{:016x}", xxh64(self.0.as_bytes(), SEED))
    }

    /// The URL of an object; `None` for names that lead outside of the origin.
    pub fn url(&self, name: &str) -> Option<String> {
        let leads_out = name.split('/').any(|part| matches!(part, "." | ".."));
        (!leads_out).then(|| format!("{}/{}", self.0, encode_path(name)))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The backend of a bucket for this origin.
    pub fn backend(&self) -> BackendSpec {
        let (kind, endpoint) = (BackendKind::Http, Some(self.0.clone()));
        BackendSpec { endpoint, ..BackendSpec::new(kind, "") }
    }

    /// A bucket of the provider for origins, named by hash.
    pub fn bucket(&self) -> Result<Bucket> {
        Bucket::new(Provider::Ht, &self.bucket_name())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_url_of_its_name() {
        let origin = Origin::parse("https://data.example.org/imagenet/").unwrap();
        assert_eq!(origin.as_str(), "https://data.example.org/imagenet");
        let url = origin.url("train/größe 1%.tar").unwrap();
        assert_eq!(url, "https://data.example.org/imagenet/train/gr%C3%B6%C3%9Fe%201%25.tar");
        assert_eq!(Origin::of_object(&url, "train/größe 1%.tar").unwrap(), origin);
        for out in ["..", "a/../../b", "."] {
            assert_eq!(origin.url(out), None, "{out}");
        }
    }

    #[test]
    fn a_url_that_is_not_the_objects_is_refused() {
        for (url, name) in [
            ("https://x/a/b.tar", "c.tar"),
            ("https://x/a/b.tar?v=1", "b.tar"),
            ("https://x", "x"),
            ("https://b.tar", "b.tar"),
            ("ftp://x/b.tar", "b.tar"),
        ] {
            assert!(Origin::of_object(url, name).is_err(), "{url}");
        }
        let root = Origin::of_object("http://x:81/b.tar", "b.tar").unwrap();
        assert_eq!(root.as_str(), "http://x:81");
    }

    #[test]
    fn what_cannot_be_an_origin_is_refused_without_showing_it() {
        for bad in
            ["x", "http://", "https://me:secret@x/y", "https://x/y?token=secret", "http://x y"]
        {
            let e = Origin::parse(bad).unwrap_err().to_string();
            assert!(!e.contains("secret"), "{e}");
        }
    }

    #[test]
    fn a_bucket_has_one_name_for_one_origin() {
        let name = |url: &str| Origin::parse(url).unwrap().bucket_name();
        assert_eq!(name("https://a/b"), name("https://a/b/"));
        assert_ne!(name("https://a/b"), name("https://a/c"));
        assert_eq!(name("https://a/b").len(), 16);
        assert!(Origin::parse("https://a/b").unwrap().bucket().is_ok());
    }
}
