//! The copy of one object.

use forebay_core::error::{Error, Result};
use forebay_core::name::{Bucket, ObjectName};

use crate::query::Query;

/// A copy of one object (§7.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyArgs {
    pub bucket: Bucket,
    pub name: ObjectName,
    /// Whether the source is compared with its backend first.
    pub latest: bool,
    /// Like `latest`; also removes an object that the backend no longer has.
    pub sync: bool,
}

impl CopyArgs {
    /// `None` if the request is not a copy.
    pub fn parse(query: &Query) -> Result<Option<Self>> {
        if !query.has("object_to") {
            return Ok(None);
        }
        // An empty destination must not become a plain PUT, which would empty the source.
        let to = query.get("object_to").unwrap_or_default();
        let (bucket, name) = Bucket::parse_uname(to)?;
        let name = name.ok_or_else(|| {
            Error::invalid(format!("object_to names no object: \"{to}\""))
                .hint("PROVIDER/@#/BUCKET/OBJECT")
        })?;
        let (latest, sync) = (query.flag("latest-ver"), query.flag("synchronize"));
        Ok(Some(Self { bucket, name, latest, sync }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::name::Provider;

    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(Some(text))
    }

    #[test]
    fn a_copy_names_its_destination_by_uname() {
        let text = "object_to=ais%2F%40%23%2Fdst%2Fa%2Fb%20c&latest-ver=true&synchronize=false";
        let copy = CopyArgs::parse(&query(text)).unwrap().unwrap();
        assert_eq!(copy.bucket, Bucket::new(Provider::Ais, "dst").unwrap());
        assert_eq!((copy.name.as_str(), copy.latest, copy.sync), ("a/b c", true, false));
        assert!(CopyArgs::parse(&query("latest-ver=true")).unwrap().is_none());
        for bad in
            ["object_to=", "object_to=ais/@%23/dst/", "object_to=dst", "object_to=xyz/@%23/dst/o"]
        {
            assert!(CopyArgs::parse(&query(bad)).is_err(), "{bad}");
        }
    }
}
