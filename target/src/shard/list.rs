//! Listings that open shards: the objects on this target, and behind each shard its members, in
//! name order.
//!
//! A page costs only its rows: of a shard with a hundred thousand members only those of the page
//! are sorted, and the next page may begin at a name inside a shard.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_archive::ShardIndex;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{ListPage, ListRequest};
use forebay_core::name::MAX_OBJECT_NAME;
use forebay_core::object::{ListEntry, ObjectMeta, RowKind};
use forebay_core::shard::ArchiveFormat;
use forebay_core::{ErrorCode, Result};
use forebay_node::off_worker;

use super::Shards;
use crate::object::ObjectService;

/// A page with rows ends before it opens another shard after this time: shards that were never read
/// before are read now, and the caller waits only this long.
const PAGE_TIMEOUT: Duration = Duration::from_secs(4);

/// The source of a listing.
trait Source: Sync {
    /// A page of the objects on this target.
    fn held(&self, request: &ListRequest) -> impl Future<Output = Result<ListPage>> + Send;
    /// The members of an object; `None` if it is not on this target.
    fn members(&self, name: &str) -> impl Future<Output = Result<Option<Arc<ShardIndex>>>> + Send;
}

struct Here<'a> {
    objects: &'a ObjectService,
    shards: &'a Shards,
    info: &'a BucketInfo,
}

impl Source for Here<'_> {
    async fn held(&self, request: &ListRequest) -> Result<ListPage> {
        self.objects.listing().page_here(request).await
    }

    async fn members(&self, name: &str) -> Result<Option<Arc<ShardIndex>>> {
        let gone = |code| code == ErrorCode::ObjectNotFound;
        match self.objects.reads().head_local(self.info, name).await {
            Err(e) if gone(e.code) => return Ok(None),
            other => other.map(drop)?,
        }
        match self.shards.index(self.info, name, None).await {
            Err(e) if gone(e.code) => Ok(None),
            other => other.map(Some),
        }
    }
}

impl Shards {
    /// A page of the objects on this target, with the members of shards behind them.
    pub(crate) async fn page_here(
        &self,
        objects: &ObjectService,
        info: &BucketInfo,
        request: &ListRequest,
    ) -> Result<ListPage> {
        page(&Here { objects, shards: self, info }, request).await
    }
}

/// A shard with members to be listed.
struct Open {
    /// The next members by their full names, in order.
    rows: std::vec::IntoIter<(String, u64)>,
    head: (String, u64),
    /// There are more than `rows` has.
    cut: bool,
}

async fn page(source: &impl Source, request: &ListRequest) -> Result<ListPage> {
    let started = Instant::now();
    let limit = request.limit.max(1);
    let mut page = ListPage::default();
    let mut open: Vec<Open> = Vec::new();
    for shard in shards_behind(request) {
        if let Some(index) = source.members(shard).await? {
            open.extend(opened(shard, &index, request, limit));
        }
    }
    let mut records = Records { rows: VecDeque::new(), next: Some(request.clone()) };
    loop {
        records.refill(source).await?;
        let record = records.rows.front().map(|r| r.name.as_str());
        let first = (0..open.len()).min_by(|a, b| open[*a].head.0.cmp(&open[*b].head.0));
        let order = match (record, first) {
            (None, None) => return Ok(page),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(name), Some(first)) => name.cmp(&open[first].head.0),
        };
        if page.entries.len() == limit {
            page.more = true;
            return Ok(page);
        }
        // An object that has the name of a member hides it.
        if let (Ordering::Equal | Ordering::Greater, Some(first)) = (order, first) {
            let shard = &mut open[first];
            let ((name, size), end) = match shard.rows.next() {
                Some(next) => (std::mem::replace(&mut shard.head, next), false),
                None => (std::mem::take(&mut shard.head), true),
            };
            if order == Ordering::Greater {
                let meta = ObjectMeta { size, present: true, ..ObjectMeta::default() };
                page.entries.push(ListEntry { name, meta, kind: RowKind::Member });
            }
            if end && open.swap_remove(first).cut {
                page.more = true;
                if order == Ordering::Equal {
                    page.entries.extend(records.rows.pop_front());
                }
                return Ok(page);
            }
            continue;
        }
        let Some(mut entry) = records.rows.pop_front() else { continue };
        if ArchiveFormat::from_name(&entry.name).is_some() {
            if !page.entries.is_empty() && started.elapsed() > PAGE_TIMEOUT {
                page.more = true;
                return Ok(page);
            }
            if let Some(index) = source.members(&entry.name).await? {
                entry.kind = RowKind::Shard;
                open.extend(opened(&entry.name, &index, request, limit));
            }
        }
        page.entries.push(entry);
    }
}

/// [`Open::new`], which examines every member of the shard.
fn opened(shard: &str, index: &ShardIndex, request: &ListRequest, limit: usize) -> Option<Open> {
    let memory = usize::try_from(index.memory()).unwrap_or(usize::MAX);
    off_worker(memory, || Open::new(shard, index, request, limit))
}

/// Names of shards before the page that have members in it: prefixes of the page's start. All
/// others are found among the objects.
fn shards_behind(request: &ListRequest) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (text, by_prefix) in [(request.after.as_str(), false), (request.prefix.as_str(), true)] {
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        for end in ends.take_while(|end| *end <= MAX_OBJECT_NAME) {
            let (name, rest) = text.split_at(end);
            let leads_here = match by_prefix {
                true => rest.starts_with('/'),
                false => name.starts_with(&request.prefix),
            };
            if leads_here && ArchiveFormat::from_name(name).is_some() {
                found.insert(name);
            }
        }
    }
    found
}

/// The requested names of a shard's members, for a bound on full names.
enum Bound<'a> {
    All,
    None,
    /// Members compared with the part of the bound that lies inside the shard.
    Inside(&'a str),
}

impl<'a> Bound<'a> {
    /// Full names greater than `text`.
    fn above(folder: &str, text: &'a str) -> Self {
        match text.strip_prefix(folder) {
            Some(inside) => Self::Inside(inside),
            None if folder > text => Self::All,
            None => Self::None,
        }
    }

    /// Full names that begin with `text`.
    fn under(folder: &str, text: &'a str) -> Self {
        match text.strip_prefix(folder) {
            Some(inside) => Self::Inside(inside),
            None if folder.starts_with(text) => Self::All,
            None => Self::None,
        }
    }

    fn admits(&self, test: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Inside(bound) => test(bound),
        }
    }
}

impl Open {
    /// The members of `shard` that the request selects, at most one more than fits its page; `None`
    /// if there are none. Of members with one name the first counts.
    fn new(shard: &str, index: &ShardIndex, request: &ListRequest, limit: usize) -> Option<Self> {
        let folder = format!("{shard}/");
        let above = Bound::above(&folder, &request.after);
        let under = Bound::under(&folder, &request.prefix);
        let until = request.until.as_deref().map(|text| Bound::above(&folder, text));
        let is_wanted = |name: &str| {
            above.admits(|bound| name > bound)
                && under.admits(|bound| name.starts_with(bound))
                && !until.as_ref().is_some_and(|until| until.admits(|bound| name > bound))
        };
        let mut wanted: Vec<(&str, usize, u64)> = index
            .members
            .iter()
            .enumerate()
            .filter(|(_, member)| is_wanted(&member.name))
            .map(|(place, member)| (member.name.as_str(), place, member.size))
            .collect();
        let cut = wanted.len() > limit + 1;
        if cut {
            wanted.select_nth_unstable(limit);
            wanted.truncate(limit + 1);
        }
        wanted.sort_unstable();
        wanted.dedup_by_key(|(name, ..)| *name);
        let rows: Vec<(String, u64)> =
            wanted.iter().map(|(name, _, size)| (format!("{folder}{name}"), *size)).collect();
        let mut rows = rows.into_iter();
        rows.next().map(|head| Self { rows, head, cut })
    }
}

/// The objects on this target, page by page.
struct Records {
    rows: VecDeque<ListEntry>,
    /// The next request when `rows` is empty.
    next: Option<ListRequest>,
}

impl Records {
    async fn refill(&mut self, source: &impl Source) -> Result<()> {
        while self.rows.is_empty()
            && let Some(mut request) = self.next.take()
        {
            let ListPage { entries, more } = source.held(&request).await?;
            if let (Some(last), true) = (entries.last(), more) {
                request.after.clone_from(&last.name);
                self.next = Some(request);
            }
            self.rows = entries.into();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
