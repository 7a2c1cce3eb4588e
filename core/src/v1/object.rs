//! Requests of clients about single objects, besides reads and writes (§7.5–7.13): presence, copy,
//! promote, blob download.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use serde_json::Value;

use super::action::{lower_keys, number};
use super::query::Query;
use crate::error::{Error, Result};
use crate::name::{Bucket, ObjectName};
use crate::size::{ByteSize, parse_duration};

/// Requests a blob download in a GET.
pub const BLOB_DOWNLOAD: &str = "ais-blob-download";
/// Bytes of a part, as text with a unit.
pub const BLOB_CHUNK: &str = "ais-blob-chunk";
/// Parts that are fetched concurrently.
pub const BLOB_WORKERS: &str = "ais-blob-workers";
/// Timeout of one part.
pub const BLOB_READ_TIMEOUT: &str = "ais-blob-read-timeout";
/// Minimum object size for a blob download.
pub const BLOB_THRESHOLD: &str = "ais-blob-threshold";

/// Default part size of a blob download in bytes.
const CHUNK: u64 = 4 << 20;
/// Minimum and maximum part size.
const CHUNKS: (u64, u64) = (64 << 10, 64 << 20);
/// Default and maximum number of parts fetched concurrently.
const WORKERS: (usize, usize) = (4, 128);

/// Where an object must exist for a HEAD to find it (§23.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// Whether its backend is left out.
    pub here: bool,
    /// Whether it must not be in the cluster.
    pub outside: bool,
    /// Whether its properties are returned.
    pub props: bool,
}

impl Presence {
    /// Parses the query's `presence`; the default is anywhere, with properties.
    pub fn parse(query: &Query) -> Result<Self> {
        let text = query.get("presence").unwrap_or("0");
        Ok(match text {
            "0" => Self { here: false, outside: false, props: true },
            "1" => Self { here: false, outside: false, props: false },
            "2" | "4" => Self { here: true, outside: false, props: true },
            "3" => Self { here: true, outside: false, props: false },
            "5" => Self { here: false, outside: true, props: true },
            _ => {
                return Err(Error::invalid(format!("invalid presence \"{text}\""))
                    .hint("0 anywhere, 2 in the cluster, 1 and 3 the same without properties"));
            }
        })
    }
}

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

/// The files of the targets' file systems that are promoted to objects (§7.11).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PromoteArgs {
    /// The only target that scans; all of them if empty.
    pub target: String,
    /// A file, or a folder of files.
    pub source: String,
    /// The object's name; used as a prefix of the files' own names if it is empty or ends with a
    /// slash, or if the source is a folder.
    pub object: String,
    /// Whether files in sub-folders are included.
    pub recursive: bool,
    /// Whether existing objects are replaced.
    pub overwrite: bool,
    /// Whether files are removed after they became objects.
    pub delete_source: bool,
    /// Whether the targets see different files, even if they look the same.
    pub not_shared: bool,
}

impl PromoteArgs {
    /// Reads an action's `name` and `value`.
    pub fn parse(name: &str, value: &Value) -> Result<Self> {
        let value = object("promote", value)?;
        let text = |key: &str| match value.get(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(Error::invalid(format!("promote: \"{key}\" must be a string"))),
        };
        let flag = |key: &str| switch("promote", &value, key);
        let mut source = text("src")?;
        if source.is_empty() {
            source = name.to_owned();
        } else if !name.is_empty() && name != source {
            let text = format!("conflicting promote source: \"{name}\" vs \"{source}\"");
            return Err(Error::invalid(text));
        }
        Ok(Self {
            target: text("tid")?,
            source,
            object: text("obj")?,
            recursive: flag("rcr")?,
            overwrite: flag("ovw")?,
            delete_source: flag("dls")?,
            not_shared: flag("notshr")?,
        })
    }

    /// Checks the source against the only permitted folder, by its text alone.
    pub fn check_source(&self, root: &str) -> Result<()> {
        let source = self.source.as_str();
        let root = root.trim_end_matches('/');
        let problem = if source.is_empty() {
            "pathname is empty".to_owned()
        } else if !source.starts_with('/') {
            "must be an absolute path".to_owned()
        } else if source.split('/').any(|part| matches!(part, "." | "..")) {
            "must not contain '.' or '..' path elements".to_owned()
        } else if source.strip_prefix(root).is_none_or(|r| !r.is_empty() && !r.starts_with('/')) {
            format!("must be under {root}")
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!("invalid promote source \"{source}\": {problem}")))
    }

    /// The object name of a file; `within` is its path in the source folder, or `None` if the
    /// source is the file.
    pub fn object_name(&self, within: Option<&str>) -> String {
        match within {
            Some(within) => format!("{}{within}", self.object),
            None if self.object.is_empty() || self.object.ends_with('/') => {
                let base = self.source.rsplit('/').next().unwrap_or_default();
                format!("{}{base}", self.object)
            }
            None => self.object.clone(),
        }
    }
}

/// Options of a blob download (§7.5, §7.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobArgs {
    /// Bytes of one part.
    pub chunk: u64,
    /// Parts fetched concurrently.
    pub workers: usize,
    pub latest: bool,
    /// Smaller objects are fetched normally.
    pub threshold: u64,
}

impl Default for BlobArgs {
    fn default() -> Self {
        Self { chunk: CHUNK, workers: WORKERS.0, latest: false, threshold: 0 }
    }
}

impl BlobArgs {
    /// Parses the headers of a GET; `None` if it does not request a blob download. A timeout is
    /// checked and has no effect: every read of a backend has a timeout already.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>> {
        // Every GET checks these: the names are parsed once.
        static DOWNLOAD: HeaderName = HeaderName::from_static(BLOB_DOWNLOAD);
        static THRESHOLD: HeaderName = HeaderName::from_static(BLOB_THRESHOLD);
        if !headers.contains_key(&DOWNLOAD) && !headers.contains_key(&THRESHOLD) {
            return Ok(None);
        }
        let text = |name: &str| -> Result<Option<&str>> {
            let bad = |_| Error::invalid(format!("blob-downloader: {name} is not text"));
            headers.get(name).map(|v| v.to_str().map_err(bad)).transpose()
        };
        let bad = |name: &str, value: &str, why: &str| {
            Error::invalid(format!("blob-downloader: invalid {name}={value}: {why}"))
        };
        let mut args = Self::default();
        let asked =
            text(BLOB_DOWNLOAD)?.is_some_and(|v| Query::parse(Some(&format!("v={v}"))).flag("v"));
        if let Some(value) = text(BLOB_THRESHOLD)? {
            args.threshold =
                value.parse().map_err(|_| bad(BLOB_THRESHOLD, value, "expecting bytes"))?;
        }
        if !asked && args.threshold == 0 {
            return Ok(None);
        }
        if let Some(value) = text(BLOB_CHUNK)? {
            let size = ByteSize::parse(value);
            let size = size.map_err(|_| bad(BLOB_CHUNK, value, "expecting a size"))?;
            args.chunk = chunk(size.0);
        }
        if let Some(value) = text(BLOB_WORKERS)? {
            let n: i64 =
                value.parse().map_err(|_| bad(BLOB_WORKERS, value, "expecting a number"))?;
            args.workers = workers(n)?;
        }
        if let Some(value) = text(BLOB_READ_TIMEOUT)? {
            let _: Duration = parse_duration(value)
                .map_err(|_| bad(BLOB_READ_TIMEOUT, value, "expecting a duration"))?;
        }
        Ok(Some(args))
    }

    /// Parses a job's `value`.
    pub fn from_value(value: &Value) -> Result<Self> {
        let value = object("blob-download", value)?;
        let whole = |key: &str| match value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(n)) if n.is_i64() => Ok(n.as_i64()),
            Some(_) if number(&value, key).is_some() => {
                Ok(number(&value, key).and_then(|n| i64::try_from(n).ok()))
            }
            Some(other) => {
                Err(Error::invalid(format!("blob-download: \"{key}\" is no number: {other}")))
            }
        };
        let mut args =
            Self { latest: switch("blob-download", &value, "latest-ver")?, ..Self::default() };
        if let Some(size) = whole("chunk-size")? {
            let size = u64::try_from(size)
                .map_err(|_| Error::invalid(format!("blob-download: invalid chunk-size {size}")))?;
            args.chunk = chunk(size);
        }
        if let Some(n) = whole("num-workers")? {
            args.workers = workers(n)?;
        }
        Ok(args)
    }
}

/// 0 means the default; other values are clamped to the bounds.
fn chunk(size: u64) -> u64 {
    if size == 0 { CHUNK } else { size.clamp(CHUNKS.0, CHUNKS.1) }
}

/// 0 means the default, -1 one at a time.
fn workers(n: i64) -> Result<usize> {
    match n {
        -1 => Ok(1),
        0 => Ok(WORKERS.0),
        n => usize::try_from(n).ok().filter(|n| *n <= WORKERS.1).ok_or_else(|| {
            Error::invalid(format!("blob-downloader: invalid number of workers {n}"))
                .hint("-1 to 128; 0 is the default")
        }),
    }
}

/// An action's value as an object; `null` means an empty one.
fn object(action: &str, value: &Value) -> Result<Value> {
    match value {
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        Value::Object(_) => Ok(lower_keys(value.clone())),
        _ => Err(Error::invalid(format!("{action}: the value must be an object"))),
    }
}

fn switch(action: &str, value: &Value, key: &str) -> Result<bool> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(_) => Err(Error::invalid(format!("{action}: \"{key}\" must be true or false"))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::name::Provider;

    fn query(text: &str) -> Query {
        Query::parse(Some(text))
    }

    #[test]
    fn presence_is_one_of_six() {
        let p = |text: &str| Presence::parse(&query(text));
        assert_eq!(p("").unwrap(), Presence { here: false, outside: false, props: true });
        assert_eq!(p("presence=2").unwrap(), Presence { here: true, outside: false, props: true });
        assert_eq!(p("presence=3").unwrap(), Presence { here: true, outside: false, props: false });
        assert!(!p("presence=1").unwrap().props && p("presence=4").unwrap().here);
        assert!(p("presence=5").unwrap().outside);
        for bad in ["presence=6", "presence=x", "presence=-1"] {
            assert!(p(bad).is_err(), "{bad}");
        }
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

    #[test]
    fn promote_as_clients_send_it() {
        let value = json!({"tid": "", "src": "/var/lib/ais/promote/d", "obj": "p/", "rcr": true,
            "ovw": false, "dls": true, "notshr": false});
        let args = PromoteArgs::parse("/var/lib/ais/promote/d", &value).unwrap();
        assert!(args.recursive && args.delete_source && !args.overwrite);
        assert_eq!(args.object_name(Some("x/y")), "p/x/y");
        let one = PromoteArgs { object: String::new(), ..args.clone() };
        assert_eq!(one.object_name(None), "d");
        assert_eq!(args.object_name(None), "p/d");
        assert_eq!(PromoteArgs { object: "o".into(), ..args }.object_name(None), "o");
        assert!(PromoteArgs::parse("/other", &value).is_err());
        assert!(PromoteArgs::parse("", &json!({"src": 5})).is_err());
        assert!(PromoteArgs::parse("", &json!([])).is_err());
        assert_eq!(PromoteArgs::parse("/x", &Value::Null).unwrap().source, "/x");
    }

    #[test]
    fn files_come_from_under_the_root_only() {
        let check = |source: &str| {
            let args = PromoteArgs { source: source.into(), ..PromoteArgs::default() };
            args.check_source("/srv/in/").map_err(|e| e.message)
        };
        check("/srv/in").unwrap();
        check("/srv/in/a/b").unwrap();
        for (bad, why) in [
            ("", "empty"),
            ("a", "absolute"),
            ("/srv/in/../etc", "'..'"),
            ("/srv/inner", "must be under /srv/in"),
            ("/etc/passwd", "must be under"),
        ] {
            assert!(check(bad).unwrap_err().contains(why), "{bad}");
        }
    }

    #[test]
    fn a_blob_download_in_headers() {
        let args = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            BlobArgs::from_headers(&headers)
        };
        assert_eq!(args(&[(BLOB_CHUNK, "1mb")]).unwrap(), None);
        let asked = |more: (&'static str, &'static str)| args(&[(BLOB_DOWNLOAD, "true"), more]);
        for (text, bytes) in
            [("1mb", 1 << 20), ("1MiB", 1 << 20), ("128k", 128 << 10), ("0", CHUNK)]
        {
            assert_eq!(asked((BLOB_CHUNK, text)).unwrap().unwrap().chunk, bytes, "{text}");
        }
        assert_eq!(asked((BLOB_WORKERS, "-1")).unwrap().unwrap().workers, 1);
        assert_eq!(args(&[(BLOB_THRESHOLD, "5")]).unwrap().unwrap().threshold, 5);
        for bad in [
            (BLOB_CHUNK, "many"),
            (BLOB_CHUNK, ""),
            (BLOB_WORKERS, "129"),
            (BLOB_WORKERS, "-2"),
            (BLOB_WORKERS, "x"),
            (BLOB_READ_TIMEOUT, "x"),
            (BLOB_THRESHOLD, "-1"),
        ] {
            assert!(asked(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_blob_download_as_a_job() {
        let args = BlobArgs::from_value(&json!({"chunk-size": 1 << 20, "num-workers": 8,
            "latest-ver": true}));
        let wanted = BlobArgs { chunk: 1 << 20, workers: 8, latest: true, threshold: 0 };
        assert_eq!(args.unwrap(), wanted);
        assert_eq!(BlobArgs::from_value(&Value::Null).unwrap(), BlobArgs::default());
        for bad in [
            json!({"chunk-size": "x"}),
            json!({"chunk-size": -1}),
            json!({"num-workers": 999}),
            json!({"latest-ver": "no"}),
            json!("x"),
        ] {
            assert!(BlobArgs::from_value(&bad).is_err(), "{bad}");
        }
    }
}
