//! The decision whether a request may be served, from a row of the table.

use forebay_core::access::{Access, Right, Scope, unauthenticated};
use forebay_core::error::{Error, ErrorCode, Result};
use forebay_core::feed::Feed;
use forebay_core::job::{JobStatus, Selection};
use forebay_core::name::Bucket;
use forebay_core::request::RequestContext;
use forebay_core::template::Template;
use forebay_v1::action::ActionMsg;
use forebay_v1::etl::pulled_object;
use forebay_v1::object::CopyArgs;
use forebay_v1::query::{Query, split_path};

use super::{By, Case, Need, On, Rule, Verb, Who};

/// One row of the table: a route, or one of its cases.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub rule: &'static Rule,
    pub case: Option<&'static Case>,
}

/// A row together with the sender of a request: what the handler of the request checks.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    row: Row,
    access: &'a Access,
}

impl Row {
    pub fn operation(&self) -> &'static str {
        self.case.map_or(self.rule.operation, |case| case.operation)
    }

    pub fn who(&self) -> Who {
        self.case.map_or(self.rule.who, |case| case.who)
    }

    pub fn needs(&self) -> &'static [Need] {
        self.case.map_or(self.rule.needs, |case| case.needs)
    }

    /// The row for one sender.
    pub fn of<'a>(self, access: &'a Access) -> Grant<'a> {
        Grant { row: self, access }
    }

    /// Returns an error unless the sender may send such a request at all.
    fn check_sender(&self, access: &Access) -> Result<()> {
        match (self.who(), access) {
            (Who::User, Access::Anonymous) => Err(unauthenticated()),
            (Who::Operator, _) => access.require(&[Right::Admin], Scope::Cluster),
            (Who::User | Who::Anyone, _) => Ok(()),
            // Checked by its proof before.
            (Who::Node, _) => Ok(()),
        }
    }
}

impl Rule {
    /// Checks what method, path and query decide, before the handler runs. Without users it only
    /// checks the proofs of nodes.
    pub fn admit(
        &'static self,
        about: &RequestContext,
        path: &str,
        query: Option<&str>,
    ) -> Result<()> {
        match (self.who, about.access()) {
            (Who::Anyone, _) => Ok(()),
            (Who::Node, _) => about.require_node(),
            (Who::User | Who::Operator, Access::Open) => Ok(()),
            (Who::User | Who::Operator, access) => self.check(access, path, query),
        }
    }

    fn check(&'static self, access: &Access, path: &str, query: Option<&str>) -> Result<()> {
        if *access == Access::Anonymous {
            return Err(unauthenticated());
        }
        let query = Query::parse(query);
        let row = self.by_query(&query);
        row.check_sender(access)?;
        for need in row.needs() {
            match need.on {
                On::Cluster => access.require(need.any_of, Scope::Cluster)?,
                On::Bucket => {
                    let (bucket, _) = subject(path, &query)?;
                    access.require(need.any_of, Scope::Bucket(&bucket))?;
                }
                On::Object => {
                    let (bucket, name) = subject(path, &query)?;
                    // The body names the object, and the handler checks it.
                    if name.is_empty() && self.verb == Verb::Post {
                        continue;
                    }
                    access.require(need.any_of, Scope::Object(&bucket, &name))?;
                }
                On::Destination => {
                    if let Some(copy) = CopyArgs::parse(&query)? {
                        let scope = Scope::Object(&copy.bucket, copy.name.as_str());
                        access.require(need.any_of, scope)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The row that the query selects.
    pub fn by_query(&'static self, query: &Query) -> Row {
        let is_it = |case: &&Case| match case.by {
            By::What(what) => query.get("what") == Some(what),
            By::Query(key) => query.has(key),
            By::Action(_) | By::Header(_) => false,
        };
        Row { rule: self, case: self.cases.iter().find(is_it) }
    }

    /// The row of an action in the body.
    pub fn action(&'static self, action: &str) -> Option<Row> {
        let is_it = |case: &&Case| matches!(case.by, By::Action(name) if name == action);
        let case = self.cases.iter().find(is_it)?;
        Some(Row { rule: self, case: Some(case) })
    }

    /// Returns an error unless the sender may send this action on an object of v1, whose objects
    /// are that of the path and the one that the body names.
    pub fn require_action(
        &'static self,
        access: &Access,
        bucket: &Bucket,
        object: &str,
        action: &ActionMsg,
    ) -> Result<()> {
        let name = match action.action.as_str() {
            "" if self.verb == Verb::Delete => "delete",
            name => name,
        };
        let unknown = || Error::invalid(format!("unknown action \"{name}\" on an object"));
        let grant = self.action(name).ok_or_else(unknown)?.of(access);
        for need in grant.row.needs() {
            let name = match need.on {
                On::Object | On::Source => object,
                _ => &action.name,
            };
            grant.require(need.on, Scope::Object(bucket, name))?;
        }
        Ok(())
    }

    /// The row of the route itself.
    pub fn row(&'static self) -> Row {
        Row { rule: self, case: None }
    }
}

impl<'a> Grant<'a> {
    /// Returns an error unless the sender has the rights that the row needs on `on`, which is
    /// `scope` in this request. A row that needs nothing on it is a mistake, and refuses.
    pub fn require(&self, on: On, scope: Scope<'_>) -> Result<()> {
        if *self.access == Access::Open {
            return Ok(());
        }
        self.check_sender()?;
        let mut needs = self.row.needs().iter().filter(|need| need.on == on).peekable();
        if needs.peek().is_none() {
            let text = format!("{}: no right is defined on {on:?}", self.row.operation());
            return Err(Error::new(ErrorCode::AccessDenied, text));
        }
        needs.try_for_each(|need| self.access.require(need.any_of, scope))
    }

    /// Returns an error unless the sender may send such a request at all.
    pub fn check_sender(&self) -> Result<()> {
        self.row.check_sender(self.access)
    }

    /// Whether [`Self::require`] succeeds.
    pub fn has(&self, on: On, scope: Scope<'_>) -> bool {
        self.require(on, scope).is_ok()
    }

    /// Like [`Self::require`], for all objects of a bucket that a request selects.
    pub fn require_selection(&self, on: On, bucket: &Bucket, selection: &Selection) -> Result<()> {
        if *self.access == Access::Open {
            return Ok(());
        }
        match selection {
            Selection::Names(names) => {
                names.iter().try_for_each(|name| self.require(on, Scope::Object(bucket, name)))
            }
            Selection::Prefix(prefix) => self.require(on, Scope::Prefix(bucket, prefix)),
            Selection::Template(text) => {
                self.require(on, Scope::Prefix(bucket, literal_prefix(text)))
            }
        }
    }

    /// Like [`Self::require`], for the copies of the selected objects in another bucket. The names
    /// of the copies begin with `prepend`.
    pub fn require_copies(
        &self,
        bucket: &Bucket,
        prepend: &str,
        selection: &Selection,
    ) -> Result<()> {
        if *self.access == Access::Open {
            return Ok(());
        }
        let copied = match selection {
            Selection::Names(names) => {
                Selection::Names(names.iter().map(|name| format!("{prepend}{name}")).collect())
            }
            Selection::Prefix(prefix) => Selection::Prefix(format!("{prepend}{prefix}")),
            Selection::Template(text) => {
                Selection::Prefix(format!("{prepend}{}", literal_prefix(text)))
            }
        };
        self.require_selection(On::Destination, bucket, &copied)
    }

    /// Returns an error unless the sender may control jobs on this bucket; `None`: a job on the
    /// whole cluster.
    pub fn require_job(&self, bucket: Option<&Bucket>) -> Result<()> {
        self.require(On::Job, bucket.map_or(Scope::Cluster, Scope::Bucket))
    }

    /// Whether the sender sees a job: one on a bucket that it sees, or on the whole cluster.
    pub fn sees_job(&self, job: &JobStatus) -> bool {
        let mut buckets = job.bucket.iter().chain(&job.destination).peekable();
        match buckets.peek() {
            None => self.access.has(Right::ShowCluster, &Scope::Cluster),
            Some(_) => buckets.any(|bucket| self.has(On::Job, Scope::Bucket(bucket))),
        }
    }

    /// Whether the sender has the rights of the row on one bucket of a feed at least. A feed without
    /// buckets needs those to see the cluster.
    pub fn has_feed(&self, feed: &Feed) -> bool {
        if *self.access == Access::Open {
            return true;
        }
        let mut buckets = feed.buckets.iter().filter_map(|uri| Bucket::parse_uri(uri).ok());
        match feed.buckets.is_empty() {
            true => self.access.has(Right::ShowCluster, &Scope::Cluster),
            false => buckets.any(|(bucket, _)| self.has(On::Job, Scope::Bucket(&bucket))),
        }
    }

    /// Like [`Self::require`], for each object of a batch. A bucket on which the sender has the
    /// right as a whole is checked once for all entries of it that follow one another.
    pub fn require_entries<'b>(
        &self,
        entries: impl IntoIterator<Item = (&'b Bucket, &'b str)>,
    ) -> Result<()> {
        if *self.access == Access::Open {
            return Ok(());
        }
        let mut last: Option<(&Bucket, bool)> = None;
        for (bucket, name) in entries {
            let known = last.filter(|(known, _)| *known == bucket).map(|(_, whole)| whole);
            let whole = known.unwrap_or_else(|| self.has(On::Entry, Scope::Prefix(bucket, "")));
            last = Some((bucket, whole));
            if !whole {
                self.require(On::Entry, Scope::Object(bucket, name))?;
            }
        }
        Ok(())
    }

    /// The sender.
    pub fn access(&self) -> &'a Access {
        self.access
    }
}

/// The text with which all names of a template begin.
fn literal_prefix(template: &str) -> &str {
    match Template::parse(template) {
        Ok(Template::Prefix(_)) => template.trim_end_matches('*'),
        _ => template.split(['{', '@']).next().unwrap_or_default(),
    }
}

/// The bucket and the object that a path names; the object may be empty.
fn subject(path: &str, query: &Query) -> Result<(Bucket, String)> {
    if path.starts_with("/v1/etl/_object/") {
        let (bucket, object) = pulled_object(path)?;
        return Ok((bucket, object.as_str().to_owned()));
    }
    let path = path.strip_prefix("/api").unwrap_or(path);
    let collection = path.strip_prefix("/v1/").and_then(|rest| rest.split('/').next());
    let (bucket, object) = split_path(path, collection.unwrap_or_default())?;
    Ok((query.bucket(&bucket)?, object))
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
