//! ListObjectVersions: merges current objects and older versions by key.

use std::collections::VecDeque;

use axum::http::StatusCode;
use axum::response::Response;
use forebay_core::history::{self, MARKER, NULL, VERSION};
use forebay_core::object::ListEntry;
use forebay_node::s3;
use forebay_s3::S3Result;
use forebay_s3::answers::{ListedVersion, VersionPage};
use forebay_s3::listing::common_prefix;
use forebay_s3::operation::ListObjectVersions;

use super::list::listed;
use super::{Call, S3};
use crate::list_level::past;
use crate::listing::{self, Want};
use crate::route::Found;

/// Rows requested at once.
const PAGE_ENTRIES: usize = 1_000;
/// Prefix of the marker of a null version in the history, before its sort key.
const NULL_MARKER: &str = "null-";

/// Rows of one of the two listings, fetched on demand.
struct Rows {
    found: Found,
    prefix: String,
    after: String,
    ready: VecDeque<ListEntry>,
    more: bool,
}

impl Rows {
    fn new(found: Found, prefix: &str, after: String) -> Self {
        Self { found, prefix: prefix.to_owned(), after, ready: VecDeque::new(), more: true }
    }

    async fn peek(&mut self, s3: &S3) -> S3Result<Option<&ListEntry>> {
        while self.ready.is_empty() && self.more {
            let want = Want {
                prefix: self.prefix.clone(),
                after: self.after.clone(),
                limit: PAGE_ENTRIES,
                ..Want::default()
            };
            let part = listing::page(&s3.targets, &self.found, &want).await?;
            self.more = part.more;
            self.ready.extend(part.rows.into_iter().map(|row| row.entry));
            if let Some(last) = self.ready.back() {
                self.after.clone_from(&last.name);
            }
        }
        Ok(self.ready.front())
    }
}

/// The next row: its key, and whether it is the current version.
struct Next {
    key: String,
    entry: ListEntry,
    now: bool,
}

impl S3 {
    pub(super) async fn list_versions(
        &self,
        call: &Call,
        asked: &ListObjectVersions,
    ) -> S3Result<Response> {
        let found = self.found(&call.request.bucket)?;
        let page = self.version_page(&found, asked).await?;
        let xml = page.to_xml(&call.request.bucket, asked, &s3::owner_of(&found.info))?;
        Ok(s3::xml(StatusCode::OK, xml))
    }

    async fn version_page(
        &self,
        found: &Found,
        asked: &ListObjectVersions,
    ) -> S3Result<VersionPage> {
        let (scope, max) = (&asked.scope, asked.scope.max as usize);
        let mut page = VersionPage::default();
        if max == 0 {
            return Ok(page);
        }
        let marker = &asked.key_marker;
        let folded = common_prefix(marker, &scope.prefix, scope.delimiter.as_deref());
        let folded = folded.filter(|prefix| prefix == marker);
        let (now_after, older_after) = match (&asked.version_id_marker, folded) {
            _ if marker.is_empty() => (String::new(), String::new()),
            (_, Some(prefix)) => (past(prefix), past(prefix)),
            (None, None) => (marker.clone(), past(&history::prefix(marker))),
            (Some(version), None) => (marker.clone(), older_after(marker, version)),
        };
        let mut now = Rows::new(found.clone(), &scope.prefix, now_after);
        let mut older = Rows::new(found.history(), &scope.prefix, older_after);
        // Versions of a cloud bucket are not listed.
        older.more = !found.info.has_backend();
        let mut key_before = marker.clone();
        while let Some(next) = self.next(&mut now, &mut older).await? {
            let prefix = common_prefix(&next.key, &scope.prefix, scope.delimiter.as_deref());
            if prefix.is_some_and(|p| page.common_prefixes.last().is_some_and(|last| last == p)) {
                continue;
            }
            if page.versions.len() + page.common_prefixes.len() == max {
                page.truncated = true;
                return Ok(page);
            }
            match prefix {
                Some(prefix) => {
                    page.next_key_marker = prefix.to_owned();
                    page.next_version_id_marker.clear();
                    page.common_prefixes.push(prefix.to_owned());
                }
                None => {
                    let row = row(&next, next.key != key_before);
                    page.next_key_marker.clone_from(&next.key);
                    page.next_version_id_marker = marker_of(&next, &row.version_id);
                    page.versions.push(row);
                }
            }
            key_before = next.key;
        }
        Ok(page)
    }

    async fn next(&self, now: &mut Rows, older: &mut Rows) -> S3Result<Option<Next>> {
        let first = now.peek(self).await?.map(|entry| entry.name.clone());
        let second = loop {
            match older.peek(self).await? {
                None => break None,
                Some(entry) => match history::split(&entry.name) {
                    Some((key, _)) => break Some(key.to_owned()),
                    None => drop(older.ready.pop_front()),
                },
            }
        };
        let is_now = match (&first, &second) {
            (None, None) => return Ok(None),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(now), Some(older)) => now <= older,
        };
        let (rows, key) = if is_now { (now, first) } else { (older, second) };
        let next = rows.ready.pop_front().zip(key);
        Ok(next.map(|(entry, key)| Next { key, entry, now: is_now }))
    }
}

fn row(next: &Next, first: bool) -> ListedVersion {
    let custom = &next.entry.meta.custom;
    let mut object = listed(&next.entry);
    object.key.clone_from(&next.key);
    ListedVersion {
        object,
        version_id: custom.get(VERSION).map_or(NULL, String::as_str).to_owned(),
        latest: next.now || first,
        delete_marker: custom.contains_key(MARKER),
    }
}

/// The marker with which a client continues after a row.
fn marker_of(next: &Next, version: &str) -> String {
    match history::split(&next.entry.name) {
        Some((_, order)) if !next.now && version == NULL => format!("{NULL_MARKER}{order}"),
        _ => version.to_owned(),
    }
}

/// The position in the history after a version.
fn older_after(key: &str, version: &str) -> String {
    match version.strip_prefix(NULL_MARKER) {
        Some(order) => history::name(key, order, 0),
        // The current version: everything older follows.
        None if version == NULL => history::prefix(key),
        None => history::name(key, version, 0),
    }
}
