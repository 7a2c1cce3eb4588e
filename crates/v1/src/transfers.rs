//! The values of jobs that move many objects (§5.4, §9): copies, transforms, archives, prefetches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::error::{Error, Result};
use forebay_core::job::{ArchiveTask, CopyTask, JobSpec, PrefetchTask, Selection, Task, Transform};
use forebay_core::name::{Bucket, MAX_OBJECT_NAME, Namespace, ObjectName, check_length};
use forebay_core::shard::ArchiveFormat;
use forebay_core::size::parse_duration;
use serde_json::Value;

use super::action::{has_selection, lower_keys, selection, text};

/// Maximum concurrent objects of one target that a client may request.
const MAX_WORKERS: i64 = 128;

/// A value whose keys are case-insensitive; `null` is an object without keys.
pub struct Fields(Value);

impl Fields {
    pub fn new(value: &Value) -> Result<Self> {
        match value {
            Value::Null => Ok(Self(Value::Object(serde_json::Map::new()))),
            Value::Object(_) => Ok(Self(lower_keys(value.clone()))),
            _ => Err(Error::invalid("the action's value must be an object")),
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Result<String> {
        match self.get(key) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(Error::invalid(format!("{key} must be a string"))),
        }
    }

    fn flag(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(Error::invalid(format!("{key} must be true or false"))),
        }
    }

    fn number(&self, key: &str) -> Result<i64> {
        let bad = || Error::invalid(format!("{key} must be a whole number"));
        match self.get(key) {
            None => Ok(0),
            Some(Value::Number(n)) => n.as_i64().ok_or_else(bad),
            Some(Value::String(text)) if text.is_empty() => Ok(0),
            Some(Value::String(text)) => text.parse().map_err(|_| bad()),
            Some(_) => Err(bad()),
        }
    }

    fn size(&self, key: &str) -> Result<u64> {
        let number = self.number(key)?;
        u64::try_from(number).map_err(|_| Error::invalid(format!("{key} cannot be negative")))
    }

    /// 0: the default; -1 from a client means one.
    fn workers(&self) -> Result<u32> {
        let asked = match self.number("num-workers")? {
            -1 => 1,
            asked => asked.clamp(0, MAX_WORKERS),
        };
        u32::try_from(asked).map_err(|_| Error::internal("a number of workers"))
    }

    /// The bucket of `tobck`.
    pub fn destination(&self) -> Result<Option<Bucket>> {
        let Some(value) = self.get("tobck") else { return Ok(None) };
        let fields = lower_keys(value.clone());
        let name = text(&fields, "name");
        if name.is_empty() {
            return Ok(None);
        }
        let mut bucket = Bucket::from_parts(&name, &text(&fields, "provider"), "")?;
        if let Some(namespace) = fields.get("namespace").filter(|n| !n.is_null()) {
            let read: Namespace = serde_json::from_value(namespace.clone())
                .map_err(|_| Error::invalid("tobck has an invalid namespace"))?;
            bucket.namespace = Arc::new(read);
        }
        Ok(Some(bucket))
    }

    /// Copies the common fields of these jobs into `spec`.
    pub fn common(&self, spec: &mut JobSpec) -> Result<()> {
        spec.workers = self.workers()?;
        spec.flat = self.flag("non-recurs")?;
        Ok(())
    }

    /// The prefix of every destination name.
    pub fn prepend(&self) -> Result<String> {
        let prepend = self.text("prepend")?;
        check_length("prepend", &prepend, MAX_OBJECT_NAME)?;
        Ok(prepend)
    }

    /// Whether objects removed at the source are also removed at the destination.
    pub fn synchronize(&self) -> Result<bool> {
        self.flag("synchronize")
    }

    /// The objects of a multi-object job.
    pub fn selection(&self) -> Result<Selection> {
        selection(&self.0)
    }

    /// Like [`Self::selection`], for a job that deletes: it must select objects explicitly.
    pub fn selection_to_delete(&self) -> Result<Selection> {
        if !has_selection(&self.0) {
            return Err(Error::invalid("the request does not say which objects to delete").hint(
                "send objnames, a template or a prefix; the template \"\" means all objects",
            ));
        }
        self.selection()
    }

    /// The task of `copy-bck` and `copy-listrange`, and, with a transform, of `etl-bck` and
    /// `etl-listrange`.
    pub fn copy(&self, to: Bucket, transformed: bool) -> Result<CopyTask> {
        let task = CopyTask {
            prepend: self.prepend()?,
            ext: self.extensions()?,
            dry_run: self.flag("dry_run")?,
            latest: self.flag("latest-ver")?,
            synchronize: self.flag("synchronize")?,
            continue_on_error: self.flag("coer")?,
            transform: if transformed { Some(self.transform()?) } else { None },
            ..CopyTask::new(to)
        };
        if task.synchronize && !task.prepend.is_empty() {
            return Err(Error::invalid("synchronize and prepend cannot be used together"));
        }
        Ok(task)
    }

    fn extensions(&self) -> Result<BTreeMap<String, String>> {
        let bad = || Error::invalid("ext must map extensions to extensions");
        match self.get("ext") {
            None => Ok(BTreeMap::new()),
            Some(value) => serde_json::from_value(value.clone()).map_err(|_| bad()),
        }
    }

    fn transform(&self) -> Result<Transform> {
        let first = self.text("id")?;
        let rest: Vec<String> = match self.get("pipeline") {
            None => Vec::new(),
            Some(names) => serde_json::from_value(names.clone())
                .map_err(|_| Error::invalid("pipeline must be a list of names"))?,
        };
        let mut pipeline = rest;
        if !first.is_empty() {
            pipeline.insert(0, first);
        }
        if pipeline.is_empty() {
            return Err(Error::invalid("a transform needs the name of an ETL in \"id\""));
        }
        let timeout = match self.get("request_timeout") {
            None => Duration::ZERO,
            // Go's own form is a number of nanoseconds.
            Some(Value::Number(n)) => Duration::from_nanos(n.as_u64().unwrap_or_default()),
            Some(_) => match self.text("request_timeout")?.as_str() {
                "" => Duration::ZERO,
                text => parse_duration(text)?,
            },
        };
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Ok(Transform { pipeline, timeout_ms })
    }

    /// The task of `archive`; without `tobck` the shard goes to `source`.
    pub fn archive(&self, source: &Bucket) -> Result<ArchiveTask> {
        let name = self.text("archname")?;
        if name.is_empty() {
            return Err(Error::invalid("archive: archname is missing"));
        }
        let name = ObjectName::new(name)?.as_str().to_owned();
        let unknown = |what: &str| {
            Error::invalid(format!("archive: unknown archive format \"{what}\""))
                .hint("formats are .tar, .tgz (.tar.gz), .zip, .tar.lz4")
        };
        let by_name = ArchiveFormat::from_name(&name);
        let mime = self.text("mime")?;
        let format = match (mime.as_str(), by_name) {
            ("", None) => return Err(unknown(&name)),
            ("", Some(format)) => format,
            (mime, by_name) => {
                let format = ArchiveFormat::from_mime(mime).ok_or_else(|| unknown(mime))?;
                if by_name.is_some_and(|by_name| by_name != format) {
                    return Err(Error::invalid(format!(
                        "archive: \"{name}\" and mime \"{mime}\" are different formats"
                    )));
                }
                format
            }
        };
        Ok(ArchiveTask {
            to: self.destination()?.unwrap_or_else(|| source.clone()),
            name,
            format: format.extension().to_owned(),
            with_bucket: self.flag("isbn")?,
            base_names: self.flag("bnonly")?,
            append: self.flag("aate")?,
            continue_on_error: self.flag("coer")?,
        })
    }

    /// The task of `prefetch-listrange`.
    pub fn prefetch(&self) -> Result<Task> {
        let task = PrefetchTask {
            latest: self.flag("latest-ver")?,
            sync: self.flag("synchronize")?,
            blob_threshold: self.size("blob-threshold")?,
            blob_chunk: self.size("blob-chunk-size")?,
            blob_workers: u32::try_from(self.size("blob-num-workers")?.min(64))
                .map_err(|_| Error::internal("a number of workers"))?,
        };
        Ok(Task::Prefetch(task))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::name::Provider;
    use serde_json::json;

    use super::*;

    fn bucket(name: &str) -> Bucket {
        Bucket::new(Provider::Ais, name).unwrap()
    }

    #[test]
    fn a_copy_as_the_sdk_asks_for_it() {
        let value = json!({"prefix": "p-", "prepend": "n-", "dry_run": false, "force": false,
            "latest-ver": true, "synchronize": false, "ext": {"jpg": "txt"}, "num-workers": 10});
        let fields = Fields::new(&value).unwrap();
        let task = fields.copy(bucket("b"), false).unwrap();
        assert_eq!((task.prepend.as_str(), task.latest, task.dry_run), ("n-", true, false));
        assert_eq!(task.name_of("a.jpg"), "n-a.txt");
        assert_eq!(fields.workers().unwrap(), 10);
        assert_eq!(fields.selection().unwrap(), Selection::Prefix("p-".into()));
        let both = json!({"synchronize": true, "prepend": "x"});
        assert!(Fields::new(&both).unwrap().copy(bucket("b"), false).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for bad in [json!({"dry_run": "yes"}), json!({"prepend": 1}), json!({"ext": ["a"]})] {
            assert!(Fields::new(&bad).unwrap().copy(bucket("b"), false).is_err(), "{bad}");
        }
        assert!(Fields::new(&json!({"num-workers": "many"})).unwrap().workers().is_err());
        assert!(Fields::new(&json!([1])).is_err());
        assert!(Fields::new(&json!({"blob-threshold": -1})).unwrap().prefetch().is_err());
        assert_eq!(Fields::new(&json!({"num-workers": -1})).unwrap().workers().unwrap(), 1);
    }

    #[test]
    fn an_archive_says_its_format_by_name_or_mime() {
        let archive = |value| Fields::new(&value).unwrap().archive(&bucket("b"));
        let task = archive(json!({"archname": "a.tar.gz", "isbn": true, "aate": false,
            "coer": false, "objnames": ["x"], "tobck": {"name": "c", "provider": "ais",
            "namespace": null}}))
        .unwrap();
        assert_eq!((task.to, task.with_bucket), (bucket("c"), true));
        assert_eq!(ArchiveFormat::from_name(&task.format), Some(ArchiveFormat::TarGz));
        assert!(archive(json!({"archname": "a", "mime": ".zip"})).is_ok());
        for bad in
            [json!({}), json!({"archname": "a"}), json!({"archname": "a.tar", "mime": "zip"})]
        {
            assert!(archive(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_transform_names_its_etls_in_order() {
        let value = json!({"id": "a", "request_timeout": "5m", "pipeline": ["b"]});
        let task = Fields::new(&value).unwrap().copy(bucket("b"), true).unwrap();
        let transform = task.transform.unwrap();
        assert_eq!(
            (transform.pipeline, transform.timeout_ms),
            (vec!["a".into(), "b".into()], 300_000)
        );
        assert!(Fields::new(&json!({})).unwrap().copy(bucket("b"), true).is_err());
    }
}
