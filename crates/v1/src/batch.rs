//! GetBatch of v1 (§11): the request, the names of members, the buffered answer's metadata.

use forebay_core::error::{Error, Result};
use forebay_core::name::{Bucket, MAX_OBJECT_NAME, ObjectName, check_length};
use forebay_core::shard::ArchiveFormat;
use serde::{Deserialize, Serialize};

/// Prefix of the zero-size member that represents a missing entry.
pub const MISSING_PREFIX: &str = "__404__/";

/// The body of `GET /v1/ml/moss`. A `null` counts as an absent field.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct MossRequest {
    #[serde(rename = "in", default, deserialize_with = "or_default")]
    pub entries: Vec<MossEntry>,
    #[serde(default, deserialize_with = "or_default")]
    pub mime: String,
    /// Continue on error.
    #[serde(default, deserialize_with = "or_default")]
    pub coer: bool,
    /// Member names without the bucket.
    #[serde(default, deserialize_with = "or_default")]
    pub onob: bool,
    /// Stream the archive (else: multipart with metadata).
    #[serde(default, deserialize_with = "or_default")]
    pub strm: bool,
}

/// One requested entry.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct MossEntry {
    #[serde(default, deserialize_with = "or_default")]
    pub objname: String,
    #[serde(default, deserialize_with = "or_default")]
    pub bucket: String,
    #[serde(default, deserialize_with = "or_default")]
    pub provider: String,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub uname: String,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub archpath: String,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub opaque: String,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_zero")]
    pub start: i64,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "is_zero")]
    pub length: i64,
}

fn or_default<'de, T, D>(deserializer: D) -> std::result::Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// An entry with its bucket.
#[derive(Clone, Debug)]
pub struct ResolvedEntry {
    pub bucket: Bucket,
    pub name: ObjectName,
    pub archpath: String,
    pub opaque: String,
    /// Offset and length of a range; `None` length is "to the end".
    pub range: Option<(u64, Option<u64>)>,
}

impl MossRequest {
    pub fn parse(body: &[u8]) -> Result<Self> {
        let request: Self = serde_json::from_slice(body)
            .map_err(|e| Error::invalid(format!("moss: the request's body is not valid: {e}")))?;
        if request.entries.is_empty() {
            return Err(Error::invalid("moss: empty input"));
        }
        if request.entries.len() > forebay_core::batch::MAX_ENTRIES {
            return Err(Error::invalid(format!(
                "moss: {} entries, the limit is {}",
                request.entries.len(),
                forebay_core::batch::MAX_ENTRIES
            )));
        }
        Ok(request)
    }

    /// The format of the answer, by the names that clients use; TAR if absent.
    pub fn format(&self) -> Result<ArchiveFormat> {
        if self.mime.is_empty() {
            return Ok(ArchiveFormat::Tar);
        }
        ArchiveFormat::from_mime(&self.mime).ok_or_else(|| {
            Error::invalid(format!("moss: unknown output format \"{}\"", self.mime))
                .hint(".tar, .tgz, .zip, .tar.lz4 or .tar.zst")
        })
    }

    /// Checks all entries; `default` is the bucket of the request's path.
    pub fn resolve(&self, default: Option<&Bucket>) -> Result<Vec<ResolvedEntry>> {
        self.entries.iter().enumerate().map(|(i, e)| e.resolve(i, default)).collect()
    }

    /// Name of the archive member for an entry that was found.
    pub fn member_name(&self, entry: &ResolvedEntry) -> String {
        let mut name = String::new();
        if !self.onob {
            name.push_str(&entry.bucket.name);
            name.push('/');
        }
        name.push_str(entry.name.as_str());
        if !entry.archpath.is_empty() {
            name.push('/');
            name.push_str(&entry.archpath);
        }
        name
    }
}

impl MossEntry {
    fn resolve(&self, index: usize, default: Option<&Bucket>) -> Result<ResolvedEntry> {
        let bucket = if !self.uname.is_empty() {
            match Bucket::parse_uname(&self.uname)? {
                (bucket, None) => bucket,
                _ => {
                    return Err(Error::invalid(format!(
                        "moss: entry {index}: uname \"{}\" must name a bucket only",
                        self.uname
                    )));
                }
            }
        } else if !self.bucket.is_empty() {
            Bucket::from_parts(&self.bucket, &self.provider, "")?
        } else {
            default
                .cloned()
                .ok_or_else(|| Error::invalid(format!("moss: entry {index} names no bucket")))?
        };
        let bad_range = || {
            Error::invalid(format!(
                "moss: entry {index}: invalid range start={} length={}",
                self.start, self.length
            ))
            .hint("start >= 0 with length > 0, or length -1 for the rest of the object")
        };
        let range = match (self.start, self.length) {
            (0, 0) => None,
            (s, _) if s < 0 => return Err(bad_range()),
            (s, -1) => Some((s as u64, None)),
            (s, n) if n > 0 => Some((s as u64, Some(n as u64))),
            _ => return Err(bad_range()),
        };
        check_length("archpath", &self.archpath, MAX_OBJECT_NAME)
            .map_err(|e| Error { message: format!("moss: entry {index}: {}", e.message), ..e })?;
        Ok(ResolvedEntry {
            bucket,
            name: ObjectName::new(&self.objname)?,
            archpath: self.archpath.clone(),
            opaque: self.opaque.clone(),
            range,
        })
    }
}

/// Metadata part of a buffered answer; `uuid` names the job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MossResponse {
    pub uuid: String,
    pub out: Vec<MossOut>,
}

/// The result for the entry at the same position of the request.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MossOut {
    pub objname: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub archpath: String,
    pub bucket: String,
    pub provider: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub opaque: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub err_msg: String,
    pub size: u64,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn entry(start: i64, length: i64) -> MossEntry {
        MossEntry { objname: "o".into(), bucket: "b".into(), start, length, ..Default::default() }
    }

    #[test]
    fn ranges_are_checked() {
        assert_eq!(entry(0, 0).resolve(0, None).unwrap().range, None);
        assert_eq!(entry(3, -1).resolve(0, None).unwrap().range, Some((3, None)));
        assert_eq!(entry(0, 5).resolve(0, None).unwrap().range, Some((0, Some(5))));
        for (start, length) in [(-1, 1), (1, 0), (0, -2)] {
            assert!(entry(start, length).resolve(0, None).is_err(), "{start} {length}");
        }
    }

    #[test]
    fn empty_input_and_unknown_formats_are_refused() {
        assert_eq!(MossRequest::parse(b"{}").unwrap_err().message, "moss: empty input");
        let r = MossRequest { mime: "rar".into(), ..Default::default() };
        assert!(r.format().is_err());
        assert_eq!(MossRequest::default().format().unwrap(), ArchiveFormat::Tar);
        for (mime, format) in [
            (".tar", ArchiveFormat::Tar),
            ("tar", ArchiveFormat::Tar),
            (".tgz", ArchiveFormat::TarGz),
            (".tar.gz", ArchiveFormat::TarGz),
            ("application/gzip", ArchiveFormat::TarGz),
            (".zip", ArchiveFormat::Zip),
            (".tar.lz4", ArchiveFormat::TarLz4),
            (".tar.zst", ArchiveFormat::TarZst),
        ] {
            let request = MossRequest { mime: mime.into(), ..Default::default() };
            assert_eq!(request.format().unwrap(), format, "{mime}");
        }
    }

    #[test]
    fn a_uname_may_only_name_a_bucket() {
        let mut e = entry(0, 0);
        e.uname = "aws/@#/x/".into();
        assert_eq!(e.resolve(0, None).unwrap().bucket.to_string(), "s3://x");
        e.uname = "aws/@#/x/obj".into();
        assert!(e.resolve(0, None).is_err());
    }

    #[test]
    fn the_request_of_the_sdk_and_of_go_are_read() {
        // aistore 1.26: `client.batch(...).get()`.
        let sdk = br#"{"in":[{"objname":"sh.tar","bucket":"b","provider":"ais","opaque":"b3A=",
            "archpath":"a/1.txt","start":2,"length":-1}],"mime":".tar","coer":true,"onob":false,
            "strm":true,"coloc":1}"#;
        let request = MossRequest::parse(sdk).unwrap();
        assert!(request.coer && request.strm && !request.onob);
        let entry = request.resolve(None).unwrap().remove(0);
        assert_eq!((entry.bucket.to_string(), entry.name.as_str()), ("ais://b".into(), "sh.tar"));
        assert_eq!((entry.archpath.as_str(), entry.opaque.as_str()), ("a/1.txt", "b3A="));
        assert_eq!(entry.range, Some((2, None)));
        assert_eq!(request.member_name(&entry), "b/sh.tar/a/1.txt");

        // Go encodes empty values as `null`, and numbers without a decimal point.
        let go = br#"{"in":[{"objname":"x","start":0,"length":0}],"mime":null,"coer":null}"#;
        let request = MossRequest::parse(go).unwrap();
        let default = Bucket::from_parts("d", "aws", "").unwrap();
        let entry = request.resolve(Some(&default)).unwrap().remove(0);
        assert_eq!((entry.bucket.to_string(), entry.range), ("s3://d".into(), None));
        let onob = MossRequest { onob: true, ..request };
        assert_eq!(onob.member_name(&entry), "x");
    }

    #[test]
    fn what_is_no_request_is_refused_in_words() {
        for body in [
            &b"{"[..],
            b"[]",
            b"\xff",
            br#"{"in":7}"#,
            br#"{"in":[{"objname":7}]}"#,
            br#"{"in":[{"objname":"x","start":"7"}]}"#,
            br#"{"in":[{"objname":"x","length":1e300}]}"#,
            br#"{"in":[{"objname":"x"}],"coer":"yes"}"#,
            br#"{"in":null}"#,
        ] {
            let error = MossRequest::parse(body).unwrap_err();
            assert_eq!(error.code.status(), 400, "{body:?}");
            assert!(error.message.starts_with("moss: "), "{error}");
        }
        for bad in ["", "a\0b"] {
            let entry = MossEntry { objname: bad.into(), ..entry(0, 0) };
            assert_eq!(entry.resolve(0, None).unwrap_err().code.status(), 400, "{bad}");
        }
        let nowhere = MossEntry { bucket: String::new(), ..entry(0, 0) };
        assert!(nowhere.resolve(3, None).unwrap_err().message.contains("entry 3"));
    }

    #[test]
    fn the_metadata_of_a_buffered_answer_has_the_keys_that_clients_read() {
        let whole = MossOut {
            objname: "o0".into(),
            bucket: "w5".into(),
            provider: "ais".into(),
            opaque: "b3A=".into(),
            size: 1000,
            ..MossOut::default()
        };
        let missing = MossOut {
            objname: "nope".into(),
            opaque: String::new(),
            err_msg: "t[x]: ais://w5/nope does not exist".into(),
            size: 0,
            ..whole.clone()
        };
        let member = MossOut {
            objname: "sh.tar".into(),
            archpath: "a/1.txt".into(),
            opaque: String::new(),
            size: 3,
            ..whole.clone()
        };
        let answer =
            MossResponse { uuid: "gbt-RK72TXQJz".into(), out: vec![whole, missing, member] };
        let golden = concat!(
            r#"{"uuid":"gbt-RK72TXQJz","out":["#,
            r#"{"objname":"o0","bucket":"w5","provider":"ais","opaque":"b3A=","size":1000},"#,
            r#"{"objname":"nope","bucket":"w5","provider":"ais","#,
            r#""err_msg":"t[x]: ais://w5/nope does not exist","size":0},"#,
            r#"{"objname":"sh.tar","archpath":"a/1.txt","bucket":"w5","provider":"ais","size":3}]}"#,
        );
        assert_eq!(serde_json::to_string(&answer).unwrap(), golden);
    }
}
