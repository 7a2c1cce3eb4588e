//! Maps the name of a shard's member to its sample and its extension.

use std::borrow::Cow;

use forebay_core::shard::sample;
use forebay_core::{Error, Result};

/// How members' names are read.
#[derive(Clone, Copy, Debug)]
pub struct Naming {
    /// Without folders and up to the last dot, as AIStore's reader does it.
    basename: bool,
    lowercase: bool,
}

impl Naming {
    /// The rule of this name: `webdataset` or `basename`.
    pub fn parse(keys: &str, lowercase: bool) -> Result<Self> {
        match keys {
            "webdataset" => Ok(Self { basename: false, lowercase }),
            "basename" => Ok(Self { basename: true, lowercase }),
            _ => Err(Error::invalid(format!("unknown rule for keys \"{keys}\""))
                .hint("one of webdataset, basename")),
        }
    }

    /// Splits a member's name into the key of the sample and the extension; `None` for a member
    /// that belongs to no sample: a name without an extension, leftovers of file systems, and names
    /// that WebDataset reserves.
    pub fn split<'a>(&self, member: &'a str) -> Option<(&'a str, Cow<'a, str>)> {
        let reserved = |name: &str| name.starts_with("__") && name.ends_with("__");
        if sample::is_hidden(member) || reserved(member) {
            return None;
        }
        let (key, extension) = if self.basename {
            let base = member.rsplit('/').next()?;
            (base.split('.').next()?, base.rsplit_once('.')?.1)
        } else {
            sample::split(member)
        };
        if key.is_empty() || extension.is_empty() {
            return None;
        }
        Some((
            key,
            match self.lowercase {
                true => Cow::Owned(extension.to_lowercase()),
                false => Cow::Borrowed(extension),
            },
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn split(keys: &str, member: &str) -> Option<(String, String)> {
        let naming = Naming::parse(keys, true).unwrap();
        naming.split(member).map(|(key, ext)| (key.to_owned(), ext.into_owned()))
    }

    #[test]
    fn names_are_split_by_either_rule() {
        let pair = |key: &str, ext: &str| Some((key.to_owned(), ext.to_owned()));
        assert_eq!(split("webdataset", "a.d/1.seg.PNG"), pair("a.d/1", "seg.png"));
        assert_eq!(split("basename", "a.d/1.seg.PNG"), pair("1", "png"));
        for keys in ["webdataset", "basename"] {
            for nobody in ["README", "a/._1.png", "a/.png", "1.", "__meta.json__", "a/"] {
                assert_eq!(split(keys, nobody), None, "{keys} {nobody}");
            }
        }
        assert!(Naming::parse("other", false).is_err());
    }
}
