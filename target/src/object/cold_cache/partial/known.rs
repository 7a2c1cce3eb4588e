//! Operations on partial copies other than range reads: metadata requests, listings, evictions and
//! checks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_clouds::RemoteMeta;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{ListPage, ListRequest};
use forebay_core::object::{ListEntry, ObjectMeta, RowKind, remote_etag};
use forebay_core::size::ByteRange;
use forebay_core::{ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_store::{GRANULE, PartialHead, Span, Validation};

use crate::object::cold_cache::ColdCache;
use crate::object::listing::start;

/// The result of checking a partial copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckedParts {
    pub(crate) bytes: u64,
    /// Number of damaged granules; they are fetched again when they are read.
    pub(crate) damaged: u64,
}

impl ColdCache {
    /// Requests an object's metadata from the backend. A partial copy of another version is
    /// dropped, so that the next range read is of the version in the response.
    pub(in crate::object) async fn stat(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<RemoteMeta> {
        let asked = self.asked_now();
        let answer = self.backend(info).await?.stat(name).await;
        self.noticed(info, name, answer.as_ref().map_err(|e| e.code), asked).await?;
        answer
    }

    /// The time and state at the begin of a request to a backend.
    pub(in crate::object) fn asked_now(&self) -> Validation {
        Validation { epoch: self.state().version, ns: unix_ns() }
    }

    /// Updates the partial copy by a backend's response.
    pub(in crate::object) async fn noticed(
        &self,
        info: &BucketInfo,
        name: &str,
        answer: Result<&RemoteMeta, ErrorCode>,
        asked: Validation,
    ) -> Result<()> {
        let version = match answer {
            Ok(remote) => Some(remote.version.as_str()),
            Err(ErrorCode::ObjectNotFound) => None,
            Err(_) => return Ok(()),
        };
        self.store().keep_partial_of((info.id, name), version, asked).await.map(drop)
    }

    /// Adds the partial copies to a page.
    pub(crate) fn with_parts(&self, request: &ListRequest, page: ListPage) -> ListPage {
        let ListRequest { bucket_id, prefix, after, until, limit, .. } = request;
        let span = Span::new(*bucket_id, prefix, start(after), until.as_deref());
        let (parts, more) = self.store().partials(&span, *limit);
        if parts.is_empty() { page } else { merged(page, (parts, more), *limit) }
    }

    /// Compares a partial copy with its checksums, and drops damaged granules. `rest` gets the
    /// number of bytes read, the duration, and whether it was a full step. `None`: there is no
    /// partial copy.
    pub(crate) async fn check_parts(
        &self,
        bucket_id: u64,
        name: &str,
        mut rest: impl FnMut(u64, Duration, bool) -> Duration + Send,
    ) -> Result<Option<CheckedParts>> {
        let Some(partial) = self.store().partial(bucket_id, name).await? else { return Ok(None) };
        let mut checked = CheckedParts::default();
        for granule in 0..partial.head().granules() {
            if !partial.has(granule) {
                continue;
            }
            let start = u64::from(granule) * GRANULE;
            let len = partial.head().granule_len(granule);
            let started = Instant::now();
            match partial.read(ByteRange { start, end: start + len }).await {
                Ok(bytes) => checked.bytes += bytes.len() as u64,
                Err(e) if e.code == ErrorCode::Corrupt => checked.damaged += 1,
                Err(e) if e.code == ErrorCode::ObjectNotFound => return Ok(None),
                Err(e) => return Err(e),
            }
            let pause = rest(len, started.elapsed(), false);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        Ok(Some(checked))
    }

    /// Names of the partial copies on a disk, with the ids of their buckets.
    pub(crate) fn parts_on(&self, number: usize) -> Result<Vec<Arc<PartialHead>>> {
        Ok(self.local().volume(number)?.partial_heads())
    }

    /// Keeps fetches in progress of a prefix out of the store: they are of before this moment.
    /// `flat`: without objects in directories below.
    pub(crate) fn keep_nothing_under_way(&self, info: &BucketInfo, prefix: &str, flat: bool) {
        self.0.fetches.supersede_all(|key| {
            let rest = key.name.strip_prefix(prefix).filter(|_| key.bucket_id == info.id);
            rest.is_some_and(|rest| !flat || !rest.contains('/'))
        });
    }
}

/// Rows of both in the order of names; a whole copy comes before a partial one of the same object.
fn merged(
    page: ListPage,
    (parts, more_parts): (Vec<Arc<PartialHead>>, bool),
    limit: usize,
) -> ListPage {
    let ListPage { mut entries, more } = page;
    // After the last name of a list that has more, its names are unknown.
    let ends = [
        entries.last().filter(|_| more).map(|entry| entry.name.clone()),
        parts.last().filter(|_| more_parts).map(|head| head.name.clone()),
    ];
    let end = ends.into_iter().flatten().min();
    entries.extend(parts.iter().map(|head| row(head)));
    entries.retain(|entry| end.as_ref().is_none_or(|end| entry.name <= *end));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries.dedup_by(|later, first| later.name == first.name);
    let more = end.is_some() || entries.len() > limit;
    entries.truncate(limit);
    ListPage { entries, more }
}

fn row(head: &PartialHead) -> ListEntry {
    let PartialHead { name, size, version, etag, mtime_ns, .. } = head;
    let meta = ObjectMeta {
        size: *size,
        version: version.clone(),
        etag: remote_etag(etag, version, *size),
        mtime_ns: *mtime_ns,
        present: false,
        ..ObjectMeta::default()
    };
    ListEntry { name: name.clone(), meta, kind: RowKind::Object }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: &[&str], more: bool) -> ListPage {
        let meta = ObjectMeta { present: true, ..ObjectMeta::default() };
        let entry =
            |name: &&str| ListEntry { name: (*name).into(), meta: meta.clone(), ..<_>::default() };
        ListPage { entries: names.iter().map(entry).collect(), more }
    }

    fn parts(names: &[&str], more: bool) -> (Vec<Arc<PartialHead>>, bool) {
        let head = |name: &&str| PartialHead { name: (*name).into(), ..PartialHead::default() };
        (names.iter().map(head).map(Arc::new).collect(), more)
    }

    fn names(page: &ListPage) -> String {
        let mark =
            |e: &ListEntry| if e.meta.present { e.name.clone() } else { format!("({})", e.name) };
        let names: Vec<_> = page.entries.iter().map(mark).collect();
        format!("{}{}", names.join(" "), if page.more { " ..." } else { "" })
    }

    #[test]
    fn a_page_has_whole_copies_and_parts_in_order_and_goes_on_where_either_does() {
        let cases = [
            ((&["a", "c"][..], false), (&["b", "c"][..], false), 9, "a (b) c"),
            ((&["a", "c"], true), (&["b", "d"], false), 9, "a (b) c ..."),
            ((&["a", "d"], false), (&["b", "c"], true), 9, "a (b) (c) ..."),
            ((&["a", "c"], false), (&["b", "d"], false), 3, "a (b) c ..."),
            ((&[], false), (&["b"], false), 9, "(b)"),
        ];
        for ((whole, more), (in_part, more_parts), limit, expected) in cases {
            let got = merged(page(whole, more), parts(in_part, more_parts), limit);
            assert_eq!(names(&got), expected);
        }
    }
}
