//! Arguments of a command: a bucket, an object, a local path, or a standard stream.

use std::path::PathBuf;

use forebay_core::{Bucket, Error, ErrorCode, Provider, Result};

/// One side of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `scheme://bucket[/object]`; the object may be a prefix.
    Remote(Bucket, String),
    /// `-`
    Stream,
    Local(PathBuf),
}

impl Place {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text == "-" {
            return Ok(Self::Stream);
        }
        match text.contains("://") {
            true => remote(text).map(|(bucket, name)| Self::Remote(bucket, name)),
            false => Ok(Self::Local(PathBuf::from(text))),
        }
    }
}

/// A bucket and the rest of the URI, which may be empty.
pub(crate) fn remote(text: &str) -> Result<(Bucket, String)> {
    // A scheme is required, although the protocol has a default provider.
    if text.find("://").is_none_or(|at| at == 0) {
        return Err(Error::invalid(format!("\"{text}\" is not the name of a bucket or object"))
            .hint("write it with a scheme: ais://bucket/object, or s3://, gs://, az://"));
    }
    let (bucket, object) = Bucket::parse_uri(text)?;
    Ok((bucket, object.unwrap_or_default()))
}

/// Exactly a bucket.
pub(crate) fn bucket(text: &str) -> Result<Bucket> {
    let (bucket, object) = remote(text)?;
    match object.is_empty() {
        true => Ok(bucket),
        false => Err(Error::new(ErrorCode::InvalidName, format!("\"{text}\" names an object"))
            .hint(format!("the bucket alone is {bucket}"))),
    }
}

/// Exactly an object.
pub(crate) fn object(text: &str) -> Result<(Bucket, String)> {
    let (bucket, object) = remote(text)?;
    match object.is_empty() {
        false => Ok((bucket, object)),
        true => Err(Error::new(ErrorCode::InvalidName, format!("\"{text}\" names no object"))
            .hint(format!("for example {bucket}/some/object"))),
    }
}

/// `scheme://` without a bucket: all buckets of a provider.
pub(crate) fn provider(text: &str) -> Option<Provider> {
    text.strip_suffix("://")
        .filter(|scheme| !scheme.is_empty())
        .and_then(|scheme| scheme.parse().ok())
}

/// The scope of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    Buckets(Option<Provider>),
    Objects(Bucket, String),
}

impl Listing {
    pub(crate) fn parse(text: Option<&str>) -> Result<Self> {
        match text {
            None => Ok(Self::Buckets(None)),
            Some(text) => match provider(text) {
                Some(provider) => Ok(Self::Buckets(Some(provider))),
                None => remote(text).map(|(bucket, prefix)| Self::Objects(bucket, prefix)),
            },
        }
    }
}

/// The last component of an object's name or of a path.
pub(crate) fn base_name(name: &str) -> Option<&str> {
    let last = name.rsplit('/').next().unwrap_or(name);
    (!matches!(last, "" | "." | "..")).then_some(last)
}

/// A path below a folder for an object's name; `None` for names that would leave the folder or
/// that no file can have.
pub(crate) fn path_below(name: &str) -> Option<PathBuf> {
    let bad = |part: &str| matches!(part, "" | "." | "..");
    (!name.split('/').any(bad) && !name.contains('\0')).then(|| PathBuf::from(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn places_are_distinguished_by_their_form() {
        let b = |provider, name| Bucket::new(provider, name).unwrap();
        let cases = [
            ("-", Place::Stream),
            ("a/b.txt", Place::Local("a/b.txt".into())),
            ("./-", Place::Local("./-".into())),
            ("s3://b/k/x", Place::Remote(b(Provider::Aws, "b"), "k/x".into())),
            ("fb://b", Place::Remote(b(Provider::Ais, "b"), String::new())),
            ("ais://b/", Place::Remote(b(Provider::Ais, "b"), String::new())),
            ("forebay://b/k", Place::Remote(b(Provider::Ais, "b"), "k".into())),
            ("gcs://b/k", Place::Remote(b(Provider::Gcp, "b"), "k".into())),
            ("gs://b/k", Place::Remote(b(Provider::Gcp, "b"), "k".into())),
            ("az://b/k", Place::Remote(b(Provider::Azure, "b"), "k".into())),
        ];
        for (text, want) in cases {
            assert_eq!(Place::parse(text).unwrap(), want, "{text}");
        }
        for bad in ["ftp://x/y", "s3://", "s3://b b/x", "://x"] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_command_that_needs_one_kind_says_so_about_the_other() {
        assert!(bucket("ais://b").is_ok() && bucket("ais://b/").is_ok());
        assert_eq!(bucket("ais://b/o").unwrap_err().hint.unwrap(), "the bucket alone is ais://b");
        assert!(object("ais://b").is_err() && object("ais://b/o/").is_ok());
        assert!(remote("plain").unwrap_err().hint.unwrap().contains("scheme"));
    }

    #[test]
    fn listings_are_of_buckets_or_of_a_prefix() {
        assert_eq!(Listing::parse(None).unwrap(), Listing::Buckets(None));
        assert_eq!(Listing::parse(Some("s3://")).unwrap(), Listing::Buckets(Some(Provider::Aws)));
        let b = Bucket::new(Provider::Ais, "b").unwrap();
        assert_eq!(Listing::parse(Some("fb://b/p/")).unwrap(), Listing::Objects(b, "p/".into()));
    }

    #[test]
    fn names_never_lead_out_of_a_folder() {
        assert_eq!(path_below("a/b").unwrap(), PathBuf::from("a/b"));
        for bad in ["../a", "a/../b", "/etc/x", "a//b", "a/", "", "."] {
            assert!(path_below(bad).is_none(), "{bad:?}");
        }
        assert_eq!(base_name("a/b.txt"), Some("b.txt"));
        assert_eq!((base_name("a/"), base_name("..")), (None, None));
    }
}
