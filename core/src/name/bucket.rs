//! The identity of a bucket: provider, namespace and name, and its text forms.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ObjectName, Provider, joined};
use crate::error::{Error, ErrorCode, Result};

/// Maximum characters of a bucket name.
pub const MAX_BUCKET_NAME: usize = 64;

/// Second level of a bucket's identity: another cluster's id and a name; both empty by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Namespace {
    #[serde(default)]
    pub uuid: String,
    #[serde(default)]
    pub name: String,
}

impl Namespace {
    pub fn is_global(&self) -> bool {
        self.uuid.is_empty() && self.name.is_empty()
    }

    /// Parses the query form `@uuid#name`; empty and `@#` are the global namespace.
    pub fn parse(s: &str) -> Result<Self> {
        if s.is_empty() {
            return Ok(Self::default());
        }
        let body = s.strip_prefix('@').unwrap_or(s);
        let (uuid, name) = match (s.starts_with('@'), body.split_once('#')) {
            (_, Some((uuid, name))) => (uuid, name),
            (true, None) => (body, ""),
            (false, None) => ("", body),
        };
        let ok = |part: &str| {
            part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        };
        if !ok(uuid) || !ok(name) {
            return Err(Error::new(ErrorCode::InvalidName, format!("invalid namespace \"{s}\"")));
        }
        Ok(Self { uuid: uuid.to_owned(), name: name.to_owned() })
    }
}

/// Identity of a bucket: provider, namespace, name. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bucket {
    pub name: Arc<str>,
    #[serde(default)]
    pub provider: Provider,
    #[serde(default, deserialize_with = "namespace_or_null")]
    pub namespace: Arc<Namespace>,
}

fn namespace_or_null<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Arc<Namespace>, D::Error> {
    Ok(Arc::new(Option::<Namespace>::deserialize(d)?.unwrap_or_default()))
}

impl Bucket {
    /// A bucket in the global namespace; checks its name.
    pub fn new(provider: Provider, name: &str) -> Result<Self> {
        check_bucket_name(name)?;
        Ok(Self { name: name.into(), provider, namespace: Arc::default() })
    }

    /// A bucket from request parts (`provider` and `namespace` in their query forms).
    pub fn from_parts(name: &str, provider: &str, namespace: &str) -> Result<Self> {
        let mut bucket = Self::new(provider.parse()?, name)?;
        bucket.namespace = Arc::new(Namespace::parse(namespace)?);
        Ok(bucket)
    }

    /// `provider/@uuid#ns/name/`: the text that placement hashes before the object's name.
    pub fn uname(&self) -> String {
        self.with_uname(str::to_owned)
    }

    /// Calls `f` with [`Self::uname`], mostly without an allocation: each request needs it several
    /// times.
    pub fn with_uname<R>(&self, f: impl FnOnce(&str) -> R) -> R {
        let ns = &self.namespace;
        joined(
            [self.provider.as_str(), "/@", &ns.uuid, "#", &ns.name, "/", &self.name, "/"],
            |bytes| match std::str::from_utf8(bytes) {
                Ok(uname) => f(uname),
                // Concatenated UTF-8 texts are valid UTF-8.
                Err(_) => f(&String::from_utf8_lossy(bytes)),
            },
        )
    }

    /// Parses [`Self::uname`], optionally followed by an object name.
    pub fn parse_uname(uname: &str) -> Result<(Self, Option<ObjectName>)> {
        let bad = || Error::invalid(format!("invalid uname \"{uname}\""));
        let mut parts = uname.splitn(4, '/');
        let (Some(provider), Some(ns), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        let bucket = Self::from_parts(name, provider, ns)?;
        let object = match parts.next() {
            None | Some("") => None,
            Some(object) => Some(ObjectName::new(object)?),
        };
        Ok((bucket, object))
    }

    /// Whether its objects are stored elsewhere: in a cloud, or in another cluster.
    pub fn is_remote(&self) -> bool {
        self.provider.is_remote() || !self.namespace.uuid.is_empty()
    }

    /// Parses `scheme://bucket[/object]`; a bare `bucket` is native. A bucket of another cluster is
    /// `ais://@alias/bucket`.
    pub fn parse_uri(uri: &str) -> Result<(Self, Option<String>)> {
        let (provider, rest) = match uri.split_once("://") {
            Some((scheme, rest)) => (scheme.parse()?, rest),
            None => (Provider::Ais, uri),
        };
        let (namespace, rest) = match rest.split_once('/') {
            Some((namespace, rest)) if namespace.starts_with(['@', '#']) => {
                (Namespace::parse(namespace.trim_start_matches('#'))?, rest)
            }
            _ => (Namespace::default(), rest),
        };
        let (name, object) = match rest.split_once('/') {
            Some((name, object)) => (name, (!object.is_empty()).then(|| object.to_owned())),
            None => (rest, None),
        };
        let mut bucket = Self::new(provider, name)?;
        bucket.namespace = Arc::new(namespace);
        Ok((bucket, object))
    }

    /// `scheme://bucket/object`, the form in which clients recognise an object in an error text.
    pub fn object_uri(&self, object: &str) -> String {
        format!("{self}/{object}")
    }

    /// The error if this bucket does not exist.
    pub fn not_found(&self) -> Error {
        if self.provider == Provider::Ais && self.is_remote() {
            let text = format!("remote bucket \"{self}\" does not exist");
            Error::new(ErrorCode::RemoteBucketNotFound, text)
        } else if self.provider.is_remote() {
            Error::new(
                ErrorCode::RemoteBucketNotFound,
                format!("{} bucket \"{self}\" does not exist", self.provider),
            )
        } else {
            Error::new(ErrorCode::BucketNotFound, format!("bucket \"{self}\" does not exist"))
        }
    }

    /// The error if an object of this bucket does not exist.
    pub fn object_not_found(&self, object: &str) -> Error {
        Error::new(ErrorCode::ObjectNotFound, format!("{} does not exist", self.object_uri(object)))
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = &self.namespace;
        write!(f, "{}://", self.provider.scheme())?;
        match (ns.uuid.is_empty(), ns.name.is_empty()) {
            (true, true) => write!(f, "{}", self.name),
            (_, true) => write!(f, "@{}/{}", ns.uuid, self.name),
            (true, false) => write!(f, "#{}/{}", ns.name, self.name),
            (false, false) => write!(f, "@{}#{}/{}", ns.uuid, ns.name, self.name),
        }
    }
}

fn check_bucket_name(name: &str) -> Result<()> {
    let problem = if name.is_empty() {
        "is empty"
    } else if name.chars().count() > MAX_BUCKET_NAME {
        "is longer than 64 characters"
    } else if name.starts_with('.') {
        "starts with a dot"
    } else if name.contains("..") {
        "has two dots in a row"
    } else if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        "has characters other than letters, digits, '-', '_' and '.'"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorCode::InvalidName, format!("invalid bucket name \"{name}\": it {problem}"))
        .hint("use 1 to 64 letters, digits, '-', '_' or '.'"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::JOINED;
    use super::*;

    #[test]
    fn printed_names_are_what_clients_search_for() {
        let b = Bucket::new(Provider::Aws, "data").unwrap();
        assert_eq!(b.to_string(), "s3://data");
        assert_eq!(b.uname(), "aws/@#/data/");
        assert_eq!(b.not_found().message, "aws bucket \"s3://data\" does not exist");
        assert_eq!(b.object_not_found("a/b").message, "s3://data/a/b does not exist");
    }

    #[test]
    fn a_uname_is_the_same_however_long_the_name_is() {
        for len in [1, JOINED - 8, JOINED - 7, 2 * JOINED] {
            let name = "b".repeat(len);
            let bucket = Bucket {
                name: name.as_str().into(),
                ..Bucket::from_parts("b", "ais", "").unwrap()
            };
            assert_eq!(bucket.uname(), format!("ais/@#/{name}/"));
            assert_eq!(bucket.with_uname(str::len), "ais/@#//".len() + len);
        }
    }

    #[test]
    fn uname_round_trips_with_and_without_object() {
        let b = Bucket::from_parts("b", "ais", "@u#n").unwrap();
        assert_eq!(Bucket::parse_uname(&b.uname()).unwrap(), (b.clone(), None));
        let (back, object) = Bucket::parse_uname(&format!("{}x//y/", b.uname())).unwrap();
        assert_eq!((back, object.unwrap().as_str()), (b, "x//y/"));
    }

    #[test]
    fn a_bucket_of_another_cluster_is_named_by_its_alias() {
        let (bucket, object) = Bucket::parse_uri("ais://@far/images/a/b").unwrap();
        assert_eq!(
            (bucket.to_string().as_str(), object.as_deref()),
            ("ais://@far/images", Some("a/b"))
        );
        assert!(bucket.is_remote() && bucket.namespace.uuid == "far");
        assert_eq!(bucket.uname(), "ais/@far#/images/");
        let missing = bucket.not_found();
        assert_eq!(missing.code, ErrorCode::RemoteBucketNotFound);
        assert_eq!(missing.message, "remote bucket \"ais://@far/images\" does not exist");
        let (named, _) = Bucket::parse_uri("ais://#team/images").unwrap();
        assert!(!named.is_remote() && named.namespace.name == "team");
        assert!(Bucket::parse_uri("ais://@far").is_err());
    }

    #[test]
    fn bad_bucket_names_are_refused() {
        for bad in ["", "*", ".", " ", "a/b", "and name", "#x", "$x", "~x", "a..b", ".hidden"] {
            assert!(Bucket::new(Provider::Ais, bad).is_err(), "{bad:?}");
        }
        assert!(Bucket::new(Provider::Ais, &"x".repeat(65)).is_err());
        assert!(Bucket::new(Provider::Ais, &"x".repeat(64)).is_ok());
    }

    #[test]
    fn null_namespace_means_global() {
        let b: Bucket = serde_json::from_str(r#"{"name":"x","namespace":null}"#).unwrap();
        assert_eq!(b, Bucket::new(Provider::Ais, "x").unwrap());
        let text = serde_json::to_string(&b).unwrap();
        assert_eq!(text, r#"{"name":"x","provider":"ais","namespace":{"uuid":"","name":""}}"#);
    }
}
