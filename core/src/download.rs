//! Downloads of web objects into a bucket: what is asked for, and how far it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::name::{Bucket, NodeId, ObjectName};
use crate::template::{Ranges, Template};
use crate::v1::query::decode_path;

/// Longest time for one try at one object, when the request names none. Milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 3_600_000;
/// Finished and failed tasks that a target remembers by name.
pub const REMEMBERED_TASKS: usize = 1000;

/// A download job; every target gets the whole of it, and does what it owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownloadSpec {
    pub id: String,
    pub bucket: Bucket,
    pub description: String,
    /// For one try at one object.
    pub timeout_ms: u64,
    #[serde(default)]
    pub limits: Limits,
    /// Sent with every request to the web.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    pub what: What,
}

/// Bounds that the request sets itself; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Objects in flight at once on one target.
    pub connections: u64,
    /// Of all targets together.
    pub bytes_per_hour: u64,
}

/// Which objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Name and link of each. An empty link is the object of that name in the bucket's backend.
    Objects(Vec<(String, String)>),
    /// Links made by a template; each object is called by the last part of its link.
    Range { template: String, subdir: String },
    /// What the bucket's backend has.
    Backend {
        prefix: String,
        suffix: String,
        /// Drops copies of objects that the backend has no more.
        sync: bool,
    },
}

impl DownloadSpec {
    /// Checks names and links, so that what cannot work is refused at once.
    pub fn check(&self) -> Result<()> {
        match &self.what {
            What::Objects(objects) => objects.iter().try_for_each(|(name, link)| {
                self.check_name(name)?;
                check_link(link)
            }),
            What::Range { template, subdir } => {
                let ranges = links(template)?;
                let mut all = ranges.names();
                all.next().map_or(Ok(()), |link| {
                    check_link(&link)?;
                    self.check_name(&range_name(subdir, &link)?)
                })
            }
            What::Backend { .. } => Ok(()),
        }
    }

    /// Whether an object of the bucket may be called so.
    pub fn check_name(&self, name: &str) -> Result<()> {
        let name = ObjectName::new(name)?;
        if self.bucket.is_remote() { Ok(()) } else { name.check_v1_native() }
    }
}

/// The links of a template with at least one range.
pub fn links(template: &str) -> Result<Ranges> {
    match Template::parse(&with_scheme(template))? {
        Template::Ranges(ranges) => Ok(ranges),
        Template::Prefix(_) => Err(Error::invalid(format!("template \"{template}\" has no range"))
            .hint("for example http://host/shard-{0000..0999}.tar")),
    }
}

/// What the object behind one link of a range is called.
pub fn range_name(subdir: &str, link: &str) -> Result<String> {
    let name = name_of_link(link)?;
    let subdir = subdir.trim_matches('/');
    Ok(if subdir.is_empty() { name } else { format!("{subdir}/{name}") })
}

/// The last part of a link's path, decoded; without query and fragment.
pub fn name_of_link(link: &str) -> Result<String> {
    let rest = link.split_once("://").map_or(link, |(_, rest)| rest);
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let last = path.trim_end_matches('/').rsplit_once('/').map(|(_, last)| last);
    match last {
        Some(last) if !last.is_empty() => decode_path(last),
        _ => Err(Error::invalid(format!(
            "cannot extract a valid object_name from the download link \"{}\"",
            without_password(link)
        ))),
    }
}

/// A name as a client gives it: what follows a `?` belongs to a link.
pub fn given_name(name: &str) -> String {
    name.split('?').next().unwrap_or_default().to_owned()
}

/// A link with its scheme.
pub fn with_scheme(link: &str) -> String {
    if link.is_empty() || link.contains("://") { link.to_owned() } else { format!("http://{link}") }
}

/// A link as others may read it: without the user and the password in it.
pub fn without_password(link: &str) -> String {
    let (scheme, rest) = match link.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, link),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some(at) = rest[..end].rfind('@') else { return link.to_owned() };
    let shown = &rest[at + 1..];
    scheme.map_or_else(|| format!("***@{shown}"), |scheme| format!("{scheme}://***@{shown}"))
}

/// Only the web can be downloaded from; nothing is a link into the bucket's own backend.
pub fn check_link(link: &str) -> Result<()> {
    let rest = link.strip_prefix("http://").or_else(|| link.strip_prefix("https://"));
    match rest {
        None if link.is_empty() => Ok(()),
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') => Ok(()),
        _ => Err(Error::invalid(format!(
            "cannot download \"{}\": not an http or https URL",
            without_password(link)
        ))),
    }
}

/// One object of a job that is under way or done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub name: String,
    pub bytes: u64,
    /// 0 while it is not known.
    pub total: u64,
    /// Unix nanoseconds.
    pub started_ns: u64,
    /// 0 while it runs.
    pub ended_ns: u64,
}

/// How far a job is: on one target, or merged over all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DownloadStatus {
    pub id: String,
    pub description: String,
    /// Unix nanoseconds.
    pub started_ns: u64,
    /// 0 while it runs.
    pub finished_ns: u64,
    /// Objects that are there, skipped ones among them.
    pub finished: u64,
    /// Objects begun.
    pub scheduled: u64,
    /// Objects that were there already.
    pub skipped: u64,
    pub errors: u64,
    /// Negative while it is not known.
    pub total: i64,
    pub all_dispatched: bool,
    pub aborted: bool,
    #[serde(default)]
    pub current: Vec<Task>,
    #[serde(default)]
    pub done: Vec<Task>,
    /// Name and words of each failure.
    #[serde(default)]
    pub failures: Vec<(String, String)>,
}

impl DownloadStatus {
    pub fn new(spec: &DownloadSpec, started_ns: u64) -> Self {
        Self {
            id: spec.id.clone(),
            description: spec.description.clone(),
            started_ns,
            finished_ns: 0,
            finished: 0,
            scheduled: 0,
            skipped: 0,
            errors: 0,
            total: -1,
            all_dispatched: false,
            aborted: false,
            current: Vec::new(),
            done: Vec::new(),
            failures: Vec::new(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.finished_ns != 0
    }
}

/// One status out of many targets'; `None` when there is none.
pub fn merge(parts: &BTreeMap<NodeId, DownloadStatus>) -> Option<DownloadStatus> {
    let mut parts = parts.values();
    let mut all = parts.next()?.clone();
    for part in parts {
        let running = !all.is_over() || !part.is_over();
        all.finished_ns = if running { 0 } else { all.finished_ns.max(part.finished_ns) };
        all.started_ns = all.started_ns.min(part.started_ns);
        all.finished += part.finished;
        all.scheduled += part.scheduled;
        all.skipped += part.skipped;
        all.errors += part.errors;
        all.total = if all.total < 0 || part.total < 0 { -1 } else { all.total + part.total };
        all.all_dispatched &= part.all_dispatched;
        all.aborted |= part.aborted;
        all.current.extend(part.current.iter().cloned());
        all.done.extend(part.done.iter().cloned());
        all.failures.extend(part.failures.iter().cloned());
    }
    all.current.sort_by(|a, b| a.name.cmp(&b.name));
    all.done.sort_by(|a, b| a.name.cmp(&b.name));
    all.failures.sort();
    Some(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_shown_without_its_password() {
        for (link, shown) in [
            ("http://user:pw@h:1/a@b", "http://***@h:1/a@b"),
            ("https://token@h", "https://***@h"),
            ("user:p@w@h/a", "***@h/a"),
            ("http://h/a?to=me@there", "http://h/a?to=me@there"),
            ("", ""),
        ] {
            assert_eq!(without_password(link), shown);
        }
    }

    #[test]
    fn an_object_is_called_by_the_last_part_of_its_link() {
        assert_eq!(name_of_link("http://h/a/b%20c.tar?x=1/2#y").unwrap(), "b c.tar");
        assert_eq!(name_of_link("http://h/a/").unwrap(), "a");
        for bad in ["http://h", "http://h/", "", "h"] {
            assert!(name_of_link(bad).is_err(), "{bad}");
        }
        assert_eq!(range_name("/sub/dir/", "http://h/x-01.tar").unwrap(), "sub/dir/x-01.tar");
    }

    #[test]
    fn only_the_web_is_downloaded_from() {
        for good in ["", "http://h/x", "https://h"] {
            check_link(good).unwrap();
        }
        for bad in ["file:///etc/passwd", "ftp://h/x", "http://", "http:///x", "gopher://h", "x"] {
            assert!(check_link(bad).is_err(), "{bad}");
        }
        assert_eq!(with_scheme("h/x"), "http://h/x");
        assert_eq!(with_scheme("ftp://h/x"), "ftp://h/x");
    }

    #[test]
    fn a_range_stands_for_links_and_is_bounded() {
        let all: Vec<_> = links("h/x-{00..02}.tar").unwrap().names().collect();
        assert_eq!(all, ["http://h/x-00.tar", "http://h/x-01.tar", "http://h/x-02.tar"]);
        assert!(links("http://h/x").is_err());
        assert!(links("http://h/{0..99999}-{0..99999}").is_err());
    }

    #[test]
    fn parts_add_up_and_one_that_runs_is_all_that_run() {
        let spec = DownloadSpec {
            id: "dnl-1".into(),
            bucket: Bucket::parse_uri("ais://b").unwrap().0,
            description: String::new(),
            timeout_ms: 1,
            limits: Limits::default(),
            headers: Vec::new(),
            what: What::Objects(Vec::new()),
        };
        let part = |finished_ns, total| DownloadStatus {
            finished_ns,
            total,
            finished: 2,
            all_dispatched: true,
            ..DownloadStatus::new(&spec, 5)
        };
        let merged = |a, b| {
            let id = |n: &str| NodeId::new(n).unwrap();
            merge(&BTreeMap::from([(id("target-01"), a), (id("target-02"), b)])).unwrap()
        };
        let both = merged(part(7, 2), part(9, 3));
        assert_eq!((both.finished_ns, both.total, both.finished), (9, 5, 4));
        assert_eq!(merged(part(7, 2), part(0, 3)).finished_ns, 0);
        assert_eq!(merged(part(7, -1), part(9, 3)).total, -1);
        assert_eq!(merge(&BTreeMap::new()), None);
    }
}
