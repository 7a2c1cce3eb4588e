//! Multipart uploads and appends over v1 (§7.3, §8): parameters, actions and their values.

use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::name::{MAX_OBJECT_NAME, check_length};
use forebay_core::shard::ArchiveFormat;
use forebay_core::upload::{ChosenPart, MAX_PART, part_number};
use http::HeaderMap;
use serde_json::Value;

use super::action::{lower_keys, number};
use super::headers::ARCHIVE_FLAGS;
use super::query::Query;

pub const UPLOAD_ID: &str = "uploadId";
pub const PART_NUMBER: &str = "partNumber";
pub const APPEND_TYPE: &str = "append_type";
pub const APPEND_HANDLE: &str = "append_handle";

/// Actions of `POST` and `DELETE`.
pub const BEGIN: &str = "mpt-upload";
pub const COMPLETE: &str = "mpt-complete";
pub const ABORT: &str = "mpt-abort";

/// A `PUT` of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartQuery {
    pub upload_id: String,
    pub number: u32,
}

impl PartQuery {
    /// `None` if the request has no upload id.
    pub fn parse(query: &Query) -> Result<Option<Self>> {
        if !query.has(UPLOAD_ID) && !query.has(PART_NUMBER) {
            return Ok(None);
        }
        let upload_id = upload_id(query)?;
        let number = part_number(query.get(PART_NUMBER).unwrap_or_default())?;
        Ok(Some(Self { upload_id, number }))
    }
}

/// The upload id of a request.
pub fn upload_id(query: &Query) -> Result<String> {
    let id = query.get(UPLOAD_ID);
    id.map(str::to_owned).ok_or_else(|| Error::invalid("the request names no upload (uploadId)"))
}

/// A `PUT` that appends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendQuery {
    /// Appends to this handle, or to a new one.
    More(Option<String>),
    /// Makes what was appended visible.
    Flush(String),
}

impl AppendQuery {
    /// `None` for a `PUT` that does not append.
    pub fn parse(query: &Query) -> Result<Option<Self>> {
        if !query.has(APPEND_TYPE) {
            return Ok(None);
        }
        let handle = query.get(APPEND_HANDLE).map(str::to_owned);
        match (query.get(APPEND_TYPE).unwrap_or_default(), handle) {
            ("append", handle) => Ok(Some(Self::More(handle))),
            ("flush", Some(handle)) => Ok(Some(Self::Flush(handle))),
            ("flush", None) => Err(Error::invalid(
                "failed to finalize append-file operation: the request has no append handle",
            )),
            (other, _) => Err(Error::invalid(format!(
                "invalid operation \"{other}\" (expecting either \"append\" or \"flush\") - check \
                 \"{APPEND_TYPE}\" query"
            ))),
        }
    }
}

/// The handling of an archive to which a member is written (§7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnArchive {
    /// Replaces it by one with only this member.
    Replace,
    /// Appends; the archive must exist.
    Append,
    AppendOrCreate,
}

/// A `PUT` of a member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberQuery {
    /// The client's name for the member.
    pub path: String,
    /// The format, if the client gives it.
    pub mime: Option<ArchiveFormat>,
    pub on: OnArchive,
}

impl MemberQuery {
    /// `None` for a `PUT` of a whole object.
    pub fn parse(query: &Query, headers: &HeaderMap) -> Result<Option<Self>> {
        let Some(path) = query.get("archpath") else { return Ok(None) };
        check_length("archpath", path, MAX_OBJECT_NAME)?;
        let mime = query.get("archmime").map(|text| {
            ArchiveFormat::from_mime(text)
                .ok_or_else(|| Error::invalid(format!("unknown archive format \"{text}\"")))
        });
        let flags = headers.get(ARCHIVE_FLAGS).map_or(Ok(""), |value| value.to_str());
        let on = match flags {
            Ok("" | "0") => OnArchive::Replace,
            Ok("1") => OnArchive::Append,
            Ok("2" | "3") => OnArchive::AppendOrCreate,
            other => {
                return Err(Error::invalid(format!(
                    "invalid flags {other:?} in the request (header {ARCHIVE_FLAGS})"
                )));
            }
        };
        Ok(Some(Self { path: path.to_owned(), mime: mime.transpose()?, on }))
    }
}

/// The parts that complete an upload: `[{"part-number":1,"etag":""}, …]`.
pub fn completed_parts(value: &Value) -> Result<Vec<ChosenPart>> {
    let wrong =
        || Error::invalid("mpt-complete wants a list of parts with \"part-number\" and \"etag\"");
    let list = match value {
        Value::Null => return Err(Error::new(ErrorCode::InvalidArgument, "nil parts list")),
        Value::Array(list) => list,
        _ => return Err(wrong()),
    };
    list.iter()
        .map(|part| {
            let part = lower_keys(part.clone());
            let number = number(&part, "part-number").ok_or_else(wrong)?;
            let number = u32::try_from(number).ok().filter(|n| (1..=MAX_PART).contains(n));
            let number = number.ok_or_else(wrong)?;
            let etag = match part.get("etag") {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(etag)) => etag.trim_matches('"').to_owned(),
                Some(_) => return Err(wrong()),
            };
            Ok(ChosenPart { number, etag })
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::parse(Some(text))
    }

    #[test]
    fn a_put_names_the_upload_and_the_part() {
        let part = PartQuery::parse(&query("provider=ais&uploadId=abc&partNumber=7")).unwrap();
        assert_eq!(part, Some(PartQuery { upload_id: "abc".into(), number: 7 }));
        assert_eq!(PartQuery::parse(&query("provider=ais")).unwrap(), None);
        for wrong in
            ["uploadId=a", "uploadId=a&partNumber=0", "uploadId=a&partNumber=x", "partNumber=1"]
        {
            let e = PartQuery::parse(&query(wrong)).unwrap_err();
            assert_eq!(e.code.status(), 400, "{wrong}");
        }
    }

    #[test]
    fn an_append_begins_without_a_handle_and_ends_with_one() {
        let parse = |text| AppendQuery::parse(&query(text));
        assert_eq!(parse("provider=ais").unwrap(), None);
        let first = parse("append_type=append&append_handle=").unwrap();
        assert_eq!(first, Some(AppendQuery::More(None)));
        let more = parse("append_type=append&append_handle=t1%7Cx").unwrap();
        assert_eq!(more, Some(AppendQuery::More(Some("t1|x".into()))));
        let flush = parse("append_type=flush&append_handle=t1%7Cx").unwrap();
        assert_eq!(flush, Some(AppendQuery::Flush("t1|x".into())));
        for wrong in ["append_type=flush&append_handle=", "append_type=up", "append_type="] {
            assert_eq!(parse(wrong).unwrap_err().code.status(), 400, "{wrong}");
        }
    }

    #[test]
    fn a_member_says_what_becomes_of_its_archive() {
        let parse = |text, flags: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ARCHIVE_FLAGS, flags.parse().unwrap());
            MemberQuery::parse(&query(text), &headers)
        };
        let on = |flags| parse("archpath=a/b&archmime=.tgz", flags).unwrap().unwrap().on;
        assert_eq!([on(""), on("0")], [OnArchive::Replace; 2]);
        assert_eq!((on("1"), on("2")), (OnArchive::Append, OnArchive::AppendOrCreate));
        assert_eq!(parse("archpath=", "1").unwrap(), None);
        for (text, flags) in
            [("archpath=a", "x"), ("archpath=a", "9"), ("archpath=a&archmime=rar", "")]
        {
            assert_eq!(parse(text, flags).unwrap_err().code.status(), 400);
        }
    }

    #[test]
    fn completion_names_parts_as_clients_write_them() {
        let parse = |text: &str| completed_parts(&serde_json::from_str(text).unwrap());
        // As aistore 1.26 sends it.
        let parts = parse(r#"[{"part-number":2,"etag":""},{"part-number":1,"etag":"\"ab\""}]"#);
        let part = |number, etag: &str| ChosenPart { number, etag: etag.into() };
        assert_eq!(parts.unwrap(), [part(2, ""), part(1, "ab")]);
        assert_eq!(parse(r#"[{"Part-Number":"3"}]"#).unwrap(), [part(3, "")]);
        assert_eq!(parse("[]").unwrap(), []);
        for wrong in [
            "null",
            "{}",
            "7",
            "[1]",
            "[{}]",
            r#"[{"part-number":0}]"#,
            r#"[{"part-number":-1}]"#,
            r#"[{"part-number":1,"etag":5}]"#,
        ] {
            assert_eq!(parse(wrong).unwrap_err().code.status(), 400, "{wrong}");
        }
    }
}
