//! The downloader's messages (§14).

use regex_lite::Regex;
use serde_json::{Value, json};

use crate::date::format_rfc3339;
use crate::download::{
    DEFAULT_TIMEOUT_MS, DownloadSpec, DownloadStatus, Limits, Task, What, given_name, name_of_link,
    with_scheme, without_password,
};
use crate::error::{Error, ErrorCode, Result};
use crate::name::Bucket;
use crate::size::parse_duration;
use crate::v1::action::{lower_keys, number, parse_json};

/// Headers that belong to the connection and cannot be set by users.
const NOT_THEIRS: [&str; 7] =
    ["host", "content-length", "connection", "transfer-encoding", "te", "upgrade", "range"];

/// Parses the job in the body of `POST /v1/download`.
pub fn requested(body: &[u8], id: String) -> Result<DownloadSpec> {
    let message = parse_json(body)?;
    let kind = text(&message, "type")?;
    if kind.is_empty() {
        return Err(Error::invalid("'type' field is empty"));
    }
    let bucket = bucket(&message)?;
    if !text(&message, "etl_name")?.is_empty() {
        return Err(Error::unsupported("downloads through an etl are not served")
            .hint("download first, then transform the bucket"));
    }
    if !text(&message, "progress_interval")?.is_empty() {
        parse_duration(&text(&message, "progress_interval")?)?;
    }
    let (what, label) = what(&kind, &message, &bucket)?;
    let described = text(&message, "description")?;
    let spec = DownloadSpec {
        id,
        description: if described.is_empty() { label } else { described },
        timeout_ms: timeout_ms(&message)?,
        limits: limits(&message)?,
        headers: headers(&message)?,
        bucket,
        what,
    };
    spec.check()?;
    Ok(spec)
}

fn what(kind: &str, message: &Value, bucket: &Bucket) -> Result<(What, String)> {
    Ok(match kind {
        "single" => {
            let (name, link) = (text(message, "object_name")?, text(message, "link")?);
            let from_backend = flag(message, "from_remote");
            if link.is_empty() && !from_backend {
                return Err(Error::invalid("missing 'link' in the request body"));
            }
            if name.is_empty() && link.is_empty() {
                return Err(Error::invalid("missing 'object_name' in the request body"));
            }
            let link = with_scheme(&link);
            let name = if name.is_empty() { name_of_link(&link)? } else { given_name(&name) };
            let label = format!("{} -> {}", without_password(&link), bucket.object_uri(&name));
            (What::Objects(vec![(name, link)]), label)
        }
        "range" => {
            let template = text(message, "template")?;
            if template.is_empty() {
                return Err(Error::invalid("missing 'template' in the request body"));
            }
            let label = format!("{} -> {bucket}", without_password(&template));
            (What::Range { template, subdir: text(message, "subdir")? }, label)
        }
        "multi" => {
            (What::Objects(many(message.get("objects"))?), format!("multi-download -> {bucket}"))
        }
        "backend" => {
            let (prefix, suffix) = (text(message, "prefix")?, text(message, "suffix")?);
            let what = What::Backend { prefix, suffix, sync: flag(message, "synchronize") };
            (what, format!("remote bucket prefetch -> {bucket}"))
        }
        _ => {
            return Err(Error::invalid(
                "input does not match any of the supported formats (single, range, multi, backend)",
            ));
        }
    })
}

/// A list of links, or names and their links.
fn many(objects: Option<&Value>) -> Result<Vec<(String, String)>> {
    let bad =
        || Error::invalid("\"objects\" must be a map (string -> string) or an array of strings");
    let link = |value: &Value| value.as_str().map(with_scheme).ok_or_else(bad);
    let objects: Vec<(String, String)> = match objects {
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, value)| Ok((given_name(name), link(value)?)))
            .collect::<Result<_>>()?,
        Some(Value::Array(list)) => list
            .iter()
            .map(|value| {
                let link = link(value)?;
                Ok((name_of_link(&link)?, link))
            })
            .collect::<Result<_>>()?,
        None | Some(Value::Null) => return Err(Error::invalid("body should not be empty")),
        Some(_) => return Err(bad()),
    };
    Ok(objects)
}

fn bucket(message: &Value) -> Result<Bucket> {
    let value = message.get("bucket").cloned().map(lower_keys).unwrap_or(Value::Null);
    let name = text(&value, "name")?;
    if name.is_empty() {
        return Err(Error::invalid("missing 'bucket.name'"));
    }
    let namespace = value.get("namespace").cloned().map(lower_keys).unwrap_or(Value::Null);
    let namespace = match (text(&namespace, "uuid")?, text(&namespace, "name")?) {
        (uuid, name) if uuid.is_empty() && name.is_empty() => String::new(),
        (uuid, name) => format!("@{uuid}#{name}"),
    };
    Bucket::from_parts(&name, &text(&value, "provider")?, &namespace)
}

fn timeout_ms(message: &Value) -> Result<u64> {
    match text(message, "timeout")?.as_str() {
        "" => Ok(DEFAULT_TIMEOUT_MS),
        given => {
            let ms = u64::try_from(parse_duration(given)?.as_millis()).unwrap_or(u64::MAX);
            Ok(if ms == 0 { DEFAULT_TIMEOUT_MS } else { ms })
        }
    }
}

fn limits(message: &Value) -> Result<Limits> {
    let limits = message.get("limits").cloned().map(lower_keys).unwrap_or(Value::Null);
    let limit = |key: &str| match limits.get(key) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => number(&limits, key).ok_or_else(|| {
            Error::invalid(format!("'limit.{key}' must be non-negative (got: {value})"))
        }),
    };
    Ok(Limits { connections: limit("connections")?, bytes_per_hour: limit("bytes_per_hour")? })
}

/// Values are strings or lists of strings.
fn headers(message: &Value) -> Result<Vec<(String, String)>> {
    let bad = |name: &str| Error::invalid(format!("header \"{name}\" cannot be sent"));
    let Some(map) = message.get("headers").and_then(Value::as_object) else {
        return Ok(Vec::new());
    };
    let mut headers = Vec::new();
    for (name, value) in map {
        let known: http::HeaderName = name.parse().map_err(|_| bad(name))?;
        if NOT_THEIRS.contains(&known.as_str()) {
            return Err(bad(name));
        }
        let values = match value {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            let value = value.as_str().filter(|v| v.parse::<http::HeaderValue>().is_ok());
            headers.push((known.as_str().to_owned(), value.ok_or_else(|| bad(name))?.to_owned()));
        }
    }
    Ok(headers)
}

fn text(value: &Value, key: &str) -> Result<String> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(s)) => Ok(s.clone()),
        Some(other) => Err(Error::invalid(format!("'{key}' must be a string, not {other}"))),
    }
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// A query or a command for jobs: the body of `GET` and `DELETE /v1/download`.
#[derive(Clone, Debug, Default)]
pub struct Question {
    pub id: String,
    /// Matches descriptions.
    pub regex: Option<Regex>,
    pub only_active: bool,
}

impl Question {
    /// An empty body means all jobs.
    pub fn parse(body: &[u8]) -> Result<Self> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let message = parse_json(body)?;
        let (id, regex) = (text(&message, "id")?, text(&message, "regex")?);
        if !id.is_empty() && !regex.is_empty() {
            return Err(Error::invalid(format!(
                "regex \"{regex}\" and job ID \"{id}\" cannot be defined together"
            )));
        }
        let regex = match regex.as_str() {
            "" => None,
            pattern => Some(Regex::new(pattern).map_err(|e| {
                Error::invalid(format!("invalid regular expression \"{pattern}\": {e}"))
            })?),
        };
        Ok(Self { id, regex, only_active: flag(&message, "only_active_tasks") })
    }

    /// The id of a command, which must name a job.
    pub fn one(&self) -> Result<&str> {
        if self.id.is_empty() { Err(Error::invalid("UUID not specified")) } else { Ok(&self.id) }
    }

    pub fn matches(&self, status: &DownloadStatus) -> bool {
        !(self.only_active && status.is_over())
            && self.regex.as_ref().is_none_or(|r| r.is_match(&status.description))
    }
}

/// A job in a list.
pub fn job_json(s: &DownloadStatus) -> Value {
    json!({
        "id": s.id, "xaction_id": s.id, "description": s.description,
        "started_time": format_rfc3339(s.started_ns), "finished_time": format_rfc3339(s.finished_ns),
        "finished_cnt": s.finished, "scheduled_cnt": s.scheduled, "skipped_cnt": s.skipped,
        "error_cnt": s.errors, "total": s.total, "all_dispatched": s.all_dispatched,
        "aborted": s.aborted,
    })
}

/// One job with its tasks; finished ones are omitted if only active ones are requested.
pub fn status_json(s: &DownloadStatus, only_active: bool) -> Value {
    let mut status = job_json(s);
    let tasks = |list: &[Task]| Value::Array(list.iter().map(task_json).collect());
    if !s.current.is_empty() {
        status["current_tasks"] = tasks(&s.current);
    }
    if !only_active && !s.done.is_empty() {
        status["finished_tasks"] = tasks(&s.done);
    }
    if !only_active && !s.failures.is_empty() {
        let row = |(name, error): &(String, String)| json!({"name": name, "error": error});
        status["download_errors"] = Value::Array(s.failures.iter().map(row).collect());
    }
    status
}

fn task_json(t: &Task) -> Value {
    let mut task = json!({
        "name": t.name, "downloaded": t.bytes.to_string(),
        "start_time": format_rfc3339(t.started_ns), "end_time": format_rfc3339(t.ended_ns),
    });
    if t.total > 0 {
        task["total"] = json!(t.total.to_string());
    }
    task
}

/// The error for an unknown id.
pub fn unknown_download(id: &str) -> Error {
    Error::new(ErrorCode::JobNotFound, format!("download job {id} does not exist"))
}

/// The error for removing a running job.
pub fn still_running(id: &str) -> Error {
    Error::invalid(format!("download job {id} is still running")).hint("abort it first")
}

/// Whether an error means that the job is unknown.
pub fn is_unknown(e: &Error) -> bool {
    e.code == ErrorCode::JobNotFound
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn spec(message: Value) -> Result<DownloadSpec> {
        requested(message.to_string().as_bytes(), "dnl-1".into())
    }

    fn with(mut extra: Value) -> Value {
        extra["bucket"] =
            json!({"name": "b", "provider": "ais", "namespace": {"uuid": "", "name": ""}});
        extra
    }

    fn objects(spec: &DownloadSpec) -> &[(String, String)] {
        match &spec.what {
            What::Objects(list) => list,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_object_by_its_link() {
        let s = spec(with(json!({"type": "single", "link": "h/d/x.tar?k=v", "timeout": "5m",
            "limits": {"connections": 3, "bytes_per_hour": 1000},
            "headers": {"X-One": ["1", "2"], "x-two": "3"}})))
        .unwrap();
        assert_eq!(objects(&s), [("x.tar".into(), "http://h/d/x.tar?k=v".into())]);
        assert_eq!(
            (s.timeout_ms, s.limits.connections, s.limits.bytes_per_hour),
            (300_000, 3, 1000)
        );
        assert_eq!(s.description, "http://h/d/x.tar?k=v -> ais://b/x.tar");
        let lines: Vec<_> = s.headers.iter().map(|(n, v)| format!("{n}:{v}")).collect();
        assert_eq!(lines, ["x-one:1", "x-one:2", "x-two:3"]);
        let s = spec(with(
            json!({"type": "single", "object_name": "a/b", "link": "", "from_remote": true}),
        ));
        assert_eq!(objects(&s.unwrap()), [("a/b".into(), String::new())]);
    }

    #[test]
    fn many_objects_as_a_list_or_by_name() {
        let s = spec(with(json!({"type": "multi", "objects": ["http://h/a", "https://h/d/b"]})))
            .unwrap();
        assert_eq!(objects(&s)[1], ("b".into(), "https://h/d/b".into()));
        let s =
            spec(with(json!({"type": "multi", "description": "mine", "objects": {"x/y": "h/a"}})))
                .unwrap();
        assert_eq!(objects(&s), [("x/y".into(), "http://h/a".into())]);
        assert_eq!(s.description, "mine");
    }

    #[test]
    fn ranges_and_backends() {
        let s = spec(with(json!({"type": "range", "template": "h/x-{0..9}.tar", "subdir": "in"})))
            .unwrap();
        assert_eq!(s.what, What::Range { template: "h/x-{0..9}.tar".into(), subdir: "in".into() });
        let s = spec(with(json!({"type": "backend", "prefix": "p", "synchronize": true}))).unwrap();
        assert_eq!(s.what, What::Backend { prefix: "p".into(), suffix: String::new(), sync: true });
    }

    #[test]
    fn bad_requests_are_refused_before_anything_starts() {
        for bad in [
            json!([]),
            json!({"type": "single", "link": "http://h/x"}),
            with(json!({})),
            with(json!({"type": "all"})),
            with(json!({"type": "single"})),
            with(json!({"type": "single", "link": 5})),
            with(json!({"type": "single", "link": "http://h"})),
            with(json!({"type": "single", "link": "file:///etc/passwd", "object_name": "x"})),
            with(json!({"type": "single", "link": "http://h/x", "object_name": "../x"})),
            with(json!({"type": "single", "link": "http://h/x", "timeout": "later"})),
            with(json!({"type": "single", "link": "http://h/x", "limits": {"connections": -1}})),
            with(json!({"type": "single", "link": "http://h/x", "headers": {"Host": "other"}})),
            with(json!({"type": "single", "link": "http://h/x", "headers": {"a": "b\r\nc: d"}})),
            with(json!({"type": "multi"})),
            with(json!({"type": "multi", "objects": "http://h/x"})),
            with(json!({"type": "multi", "objects": [1]})),
            with(json!({"type": "range", "template": "http://h/x"})),
            with(json!({"type": "range", "template": "http://h/{0..99999999}"})),
        ] {
            assert_eq!(spec(bad.clone()).unwrap_err().code.status(), 400, "{bad}");
        }
        let etl = with(json!({"type": "single", "link": "http://h/x", "etl_name": "my-etl"}));
        assert_eq!(spec(etl).unwrap_err().code.status(), 501);
    }

    #[test]
    fn questions() {
        let q = |t: &str| Question::parse(t.as_bytes());
        assert!(q("").unwrap().one().is_err());
        let one = q(r#"{"id":"dnl-1","regex":"","only_active_tasks":true}"#).unwrap();
        assert_eq!((one.one().unwrap(), one.only_active), ("dnl-1", true));
        assert!(q(r#"{"id":"a","regex":"b"}"#).is_err() && q(r#"{"regex":"("}"#).is_err());
        assert!(q(r#"{"id":5}"#).is_err());
        let s =
            DownloadStatus::new(&spec(with(json!({"type": "single", "link": "h/x"}))).unwrap(), 1);
        assert!(q(r#"{"regex":"^http"}"#).unwrap().matches(&s));
        assert!(!q(r#"{"regex":"^ftp"}"#).unwrap().matches(&s));
    }

    #[test]
    fn a_status_has_the_shape_of_the_protocol() {
        let spec = spec(with(json!({"type": "single", "link": "h/x"}))).unwrap();
        let mut s = DownloadStatus::new(&spec, 1_000_000_000);
        s.total = 1;
        assert_eq!(
            job_json(&s),
            json!({"id": "dnl-1", "xaction_id": "dnl-1", "description": "http://h/x -> ais://b/x",
                "started_time": "1970-01-01T00:00:01.000000000Z",
                "finished_time": "0001-01-01T00:00:00Z", "finished_cnt": 0, "scheduled_cnt": 0,
                "skipped_cnt": 0, "error_cnt": 0, "total": 1, "all_dispatched": false, "aborted": false})
        );
        s.done.push(Task {
            name: "x".into(),
            bytes: 5,
            total: 0,
            started_ns: 1_000_000_000,
            ended_ns: 0,
        });
        s.failures.push(("y".into(), "gone".into()));
        let full = status_json(&s, false);
        assert_eq!(full["finished_tasks"][0]["downloaded"], "5");
        assert!(
            full["finished_tasks"][0].get("total").is_none() && full.get("current_tasks").is_none()
        );
        assert_eq!(full["download_errors"], json!([{"name": "y", "error": "gone"}]));
        assert!(status_json(&s, true).get("finished_tasks").is_none());
    }
}
