//! Parameters of a GET from a shard (§12.2): one member, or the matching members.

use forebay_core::error::{Error, Result};
use forebay_core::name::{MAX_OBJECT_NAME, check_length};
use forebay_core::shard::{ArchiveFormat, MemberMatch};

use crate::query::Query;

/// The requested members of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One member, by the client's name for it.
    Member(String),
    /// All members that match, as a TAR.
    Matching(MemberMatch, String),
}

/// A GET from a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveQuery {
    pub wanted: Wanted,
    /// The format, if the client gives it.
    pub mime: Option<ArchiveFormat>,
}

impl ArchiveQuery {
    /// `None`: the request is for the object itself.
    pub fn parse(query: &Query) -> Result<Option<Self>> {
        let member = query.get("archpath");
        for field in ["archpath", "archregx"] {
            check_length(field, query.get(field).unwrap_or_default(), MAX_OBJECT_NAME)?;
        }
        let mode = query.get("archmode").map(MemberMatch::parse).transpose()?;
        let wanted = match (member, mode, query.get("archregx")) {
            (Some(_), Some(_), _) => {
                return Err(Error::invalid("archpath and archmode exclude each other"));
            }
            (Some(member), None, _) => Wanted::Member(member.to_owned()),
            (None, Some(mode), text) => Wanted::Matching(mode, text.unwrap_or("").to_owned()),
            // An empty mode means a prefix; without a mode the text is ignored.
            (None, None, Some(text)) if query.has("archmode") => {
                Wanted::Matching(MemberMatch::Prefix, text.to_owned())
            }
            (None, None, _) => return Ok(None),
        };
        let mime = query.get("archmime").map(|text| {
            ArchiveFormat::from_mime(text).ok_or_else(|| {
                Error::invalid(format!("unknown archive format \"{text}\""))
                    .hint("tar, tgz, tar.gz, tar.lz4, tar.zst or zip")
            })
        });
        Ok(Some(Self { wanted, mime: mime.transpose()? }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Option<ArchiveQuery>> {
        ArchiveQuery::parse(&Query::parse(Some(query)))
    }

    fn wanted(query: &str) -> Option<Wanted> {
        parse(query).unwrap().map(|q| q.wanted)
    }

    #[test]
    fn parameters_must_make_sense_and_empty_ones_are_absent() {
        let member = Some(Wanted::Member("a".into()));
        assert_eq!(wanted("archpath=a&archmode="), member);
        assert_eq!(wanted("archpath=a&archregx="), member);
        let suffix = Wanted::Matching(MemberMatch::Suffix, "x".into());
        assert_eq!(wanted("archpath=&archregx=x&archmode=suffix"), Some(suffix));
        let prefix = Wanted::Matching(MemberMatch::Prefix, "x".into());
        assert_eq!(wanted("archregx=x&archmode="), Some(prefix));
        let all = Wanted::Matching(MemberMatch::Regexp, String::new());
        assert_eq!(wanted("archregx=&archmode=regexp"), Some(all));
        for whole in ["", "archregx=x", "archpath=&archregx=&archmode=", "archmime=tar"] {
            assert_eq!(wanted(whole), None, "{whole}");
        }
        let long = format!("archpath={}", "a".repeat(1025));
        for bad in ["archpath=a&archmode=suffix", "archregx=x&archmode=glob", &long] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_archive_format_may_be_given_in_the_query() {
        let mime = |text: &str| parse(&format!("archpath=a&archmime={text}"));
        assert_eq!(mime(".tgz").unwrap().unwrap().mime, Some(ArchiveFormat::TarGz));
        assert_eq!(mime("").unwrap().unwrap().mime, None);
        assert!(mime("rar").is_err());
    }
}
