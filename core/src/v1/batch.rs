//! GetBatch of v1 (§11): the request, the names of members, the buffered answer's metadata.

use serde::{Deserialize, Serialize};

use crate::archive::ArchiveFormat;
use crate::error::{Error, Result};
use crate::name::{Bucket, ObjectName};

/// Prefix of the zero-size member that stands for a missing entry.
pub const MISSING_PREFIX: &str = "__404__/";

/// The body of `GET /v1/ml/moss`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct MossRequest {
    #[serde(rename = "in", default)]
    pub entries: Vec<MossEntry>,
    #[serde(default)]
    pub mime: String,
    /// Continue on error.
    #[serde(default)]
    pub coer: bool,
    /// Member names without the bucket.
    #[serde(default)]
    pub onob: bool,
    /// Stream the archive (else: multipart with metadata).
    #[serde(default)]
    pub strm: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct MossEntry {
    #[serde(default)]
    pub objname: String,
    #[serde(default)]
    pub bucket: String,
    #[serde(default)]
    pub provider: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uname: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub archpath: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub opaque: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start: i64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub length: i64,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// An entry once its bucket is known.
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
        if request.entries.len() > crate::batch::MAX_ENTRIES {
            return Err(Error::invalid(format!(
                "moss: {} entries, the limit is {}",
                request.entries.len(),
                crate::batch::MAX_ENTRIES
            )));
        }
        Ok(request)
    }

    /// The form of the answer, by the words clients use for it; TAR when they say nothing.
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
        Ok(ResolvedEntry {
            bucket,
            name: ObjectName::new(&self.objname)?,
            archpath: self.archpath.clone(),
            opaque: self.opaque.clone(),
            range,
        })
    }
}

/// Metadata part of a buffered answer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MossResponse {
    pub uuid: String,
    pub out: Vec<MossOut>,
}

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
}
