//! Object listings over all targets: native buckets from the records of every member, others from
//! the backend, with cached objects marked.

use std::time::{Duration, Instant};

use forebay_core::cloud_rules::CloudRule;
use forebay_core::intra::{BACKEND_LIST_PATH, BackendListRequest, ListRequest, listers};
use forebay_core::list_columns::{ColumnRow, Columns};
use forebay_core::list_page::Detail;
use forebay_core::object::{ListEntry, RowKind};
use forebay_core::state::Node;
use forebay_core::{Error, Result};
use forebay_node::clock::unix_ns;

use crate::inventory_page;
use crate::list_level::{Level, lacks_slash, level, past};
use crate::list_merge::{Drift, Merged, Page, Part, Row, Rows, Shard, merge};
use crate::route::Found;
use crate::targets::{self, Targets};

/// Records requested at once when most of them may fold into directories.
const FOLDED_PAGE_ENTRIES: usize = 1_000;
/// A listing of shards ends its page after this time, with the rows found so far.
const PAGE_TIMEOUT: Duration = Duration::from_secs(8);
/// Records requested from each target beyond its even share of a page.
const SHARE_SLACK: usize = 64;

/// The names to list, and their source.
#[derive(Clone, Default)]
pub(crate) struct Want {
    pub(crate) prefix: String,
    /// Only names strictly greater than this.
    pub(crate) after: String,
    pub(crate) limit: usize,
    /// Only objects in the cluster, also for buckets with a backend.
    pub(crate) cached_only: bool,
    /// Directories instead of their contents.
    pub(crate) one_level: bool,
    /// Of one level: a prefix that is a directory's name without its slash opens that directory.
    pub(crate) enter: bool,
    /// Also lists the members of shards after each shard; only for objects in the cluster.
    pub(crate) archive: bool,
    /// The properties returned for each object.
    pub(crate) detail: Detail,
    /// Compares copies with the backend, and also lists copies that the backend no longer has.
    pub(crate) diff: bool,
    /// The following pages will be requested too: all pages come from one listing, which was taken
    /// at this time or later. In unix nanoseconds.
    pub(crate) whole: Option<u64>,
    /// Takes the backend's rows from an inventory: the bucket of inventories, and the object there.
    pub(crate) inventory: Option<(Found, String)>,
}

/// Returns one page. Directories are rows whose names end in a slash and that have no target.
pub(crate) async fn page(targets: &Targets, found: &Found, want: &Want) -> Result<Merged> {
    if !want.one_level {
        return flat(targets, found, want, &want.after, want.limit).await;
    }
    let mut page = Merged::default();
    // The last name of a page may be a directory: all names in it were covered. The directory that
    // the prefix opens is not among them: that name is at most an object.
    let opened = want.enter && lacks_slash(&want.prefix) && want.after.ends_with('/');
    let opened = want.prefix.len() + usize::from(opened);
    let is_directory = want.after.len() > opened && want.after.ends_with('/');
    let mut after = if is_directory { past(&want.after) } else { want.after.clone() };
    loop {
        let step = want.limit.min(FOLDED_PAGE_ENTRIES);
        let part = flat(targets, found, want, &after, step).await?;
        let mut rows = part.rows.into_iter().peekable();
        while let Some(row) = rows.next() {
            if page.rows.len() == want.limit {
                page.more = true;
                return Ok(page);
            }
            match level(&row.entry.name, &want.prefix, want.enter) {
                Level::Object => {
                    after.clone_from(&row.entry.name);
                    page.rows.push(row);
                }
                Level::Directory(directory) => {
                    after = past(directory);
                    let entry = ListEntry { name: directory.to_owned(), ..Default::default() };
                    page.rows.push(Row { entry, target: None, copies: 0, drift: Drift::None });
                    while rows.next_if(|r| r.entry.name < after).is_some() {}
                }
            }
        }
        if !part.more {
            return Ok(page);
        }
    }
}

/// Returns one page of names and sizes, in the order of [`page`]. Fast if the records alone
/// suffice.
pub(crate) async fn sizes(targets: &Targets, found: &Found, want: &Want) -> Result<Part<Columns>> {
    if want.is_held(found) && !want.one_level {
        let nodes = targets::holders(&found.state, &found.info)?;
        let request =
            ListRequest { detail: Detail::Size, ..want.request(found, &want.after, want.limit) };
        return held::<Columns>(targets, &nodes, request).await;
    }
    if !(want.one_level || want.diff || want.inventory.is_some()) {
        let nodes = targets::holders(&found.state, &found.info)?;
        let request =
            ListRequest { detail: Detail::Size, ..want.request(found, &want.after, want.limit) };
        let asked = want.of_backend(found, &want.after, want.limit, Detail::Size);
        let listed = backend::<Columns>(targets, found, &asked).await?;
        let rows = mark_columns(targets, &nodes, request, listed.rows, listed.more).await?;
        return Ok(Part { rows, more: listed.more });
    }
    let Merged { rows, more } = page(targets, found, want).await?;
    let mut columns = Columns::with_capacity(rows.len());
    for Row { entry, target, .. } in &rows {
        columns.push(ColumnRow {
            name: &entry.name,
            size: entry.meta.size,
            mtime_ns: entry.meta.mtime_ns,
            kind: entry.kind,
            present: target.is_some() && !is_in_part(entry),
        });
    }
    Ok(Part { rows: columns, more })
}

impl Want {
    /// Whether the records of the targets suffice, so that no backend is called.
    pub(crate) fn is_held(&self, found: &Found) -> bool {
        !found.info.has_backend() || self.cached_only || self.archive
    }

    /// The request to a target that lists the backend.
    fn of_backend(
        &self,
        found: &Found,
        after: &str,
        limit: usize,
        detail: Detail,
    ) -> BackendListRequest {
        BackendListRequest {
            info: found.info.clone(),
            prefix: self.prefix.clone(),
            after: after.to_owned(),
            limit,
            whole: self.whole.is_some(),
            to_the_end: false,
            since_ns: self.whole.unwrap_or_else(|| youngest(found)),
            detail,
        }
    }

    fn request(&self, found: &Found, after: &str, limit: usize) -> ListRequest {
        ListRequest {
            bucket_id: found.info.id,
            prefix: self.prefix.clone(),
            after: after.to_owned(),
            limit,
            archive: self.archive,
            detail: if self.diff { Detail::All } else { self.detail },
            chosen_by: found.state.version,
            parts: self.cached_only && !self.archive && found.info.has_backend(),
            ..ListRequest::default()
        }
    }
}

/// The earliest time at which an acceptable cached listing was taken, by the rules of its bucket
/// and of the request; in unix nanoseconds.
pub(crate) fn youngest(found: &Found) -> u64 {
    let age = found.info.cloud.time(CloudRule::ListMaxAgeMs).unwrap_or_default();
    unix_ns().saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX))
}

async fn flat(
    targets: &Targets,
    found: &Found,
    want: &Want,
    after: &str,
    limit: usize,
) -> Result<Merged> {
    let request = want.request(found, after, limit);
    let nodes = targets::holders(&found.state, &found.info)?;
    if want.is_held(found) {
        return held::<Vec<ListEntry>>(targets, &nodes, request).await;
    }
    let mut page = if let Some((home, object)) = &want.inventory {
        inventory_page::page(targets, home, object, &want.prefix, after, limit).await?
    } else {
        let asked = want.of_backend(found, after, limit, request.detail);
        let mut page = backend::<Vec<ListEntry>>(targets, found, &asked).await?;
        for row in &mut page.rows {
            row.target = None;
            row.entry.meta.present = false;
        }
        page
    };
    mark_cached(targets, &nodes, request, want.diff, &mut page).await?;
    Ok(page)
}

/// Returns the records of the targets as one page. Each target is asked for its share of the page
/// and some more, and again if that was not enough: names spread evenly, so the first round nearly
/// always suffices.
async fn held<P: Page>(
    targets: &Targets,
    nodes: &[&Node],
    mut request: ListRequest,
) -> Result<Part<P::Rows>> {
    let limit = request.limit;
    let until = Instant::now() + PAGE_TIMEOUT;
    let mut page = Part::<P::Rows>::default();
    loop {
        let missing = limit - page.rows.count();
        request.limit = (missing.div_ceil(nodes.len()) * 9 / 8 + SHARE_SLACK).min(limit);
        let part = records::<P>(targets, nodes, &request).await?;
        let room = part.rows.count() <= missing;
        page.rows.append(part.rows, missing);
        page.more = part.more || !room;
        match page.rows.last_name() {
            // Listing shards that have no index yet takes time: a short page is acceptable.
            Some(_) if request.archive && Instant::now() > until => return Ok(page),
            Some(last) if page.more && page.rows.count() < limit => {
                request.after = last.to_owned();
            }
            _ => return Ok(page),
        }
    }
}

/// One round of requests, merged as far as all answers reach.
async fn records<P: Page>(
    targets: &Targets,
    nodes: &[&Node],
    request: &ListRequest,
) -> Result<Part<P::Rows>> {
    let answers = targets.list_all(nodes, request).await;
    let mut shards = Vec::with_capacity(answers.len());
    for (target, answer) in answers {
        let (page, more) = P::decode(&answer?, request.detail)?;
        // Names after the end of a window are outside of this listing.
        let more = more && !(page.count() == 0 && request.until.is_some());
        shards.push(Shard { target, page, more });
    }
    merge(shards, usize::MAX)
}

/// Lists the backend through the first target that can reach it. Waits as long as that target
/// answers that the backend still works on it.
async fn backend<P: Page>(
    targets: &Targets,
    found: &Found,
    request: &BackendListRequest,
) -> Result<Part<P::Rows>> {
    let mut last = None;
    for node in listers(&found.state, &found.info.bucket) {
        loop {
            match targets.post_for_bytes(node, BACKEND_LIST_PATH, request).await {
                Ok(bytes) => {
                    let (page, more) = P::decode(&bytes, request.detail)?;
                    if more && page.count() == 0 {
                        continue;
                    }
                    let shard = Shard { target: node.id.clone(), page, more };
                    return merge(vec![shard], request.limit);
                }
                Err(e) if e.code.is_transient() => {
                    last = Some(e);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
    }
    Err(last.unwrap_or_else(|| Error::unavailable("no target could reach the backend")))
}

/// Like [`mark_cached`], for names and sizes in columns.
async fn mark_columns(
    targets: &Targets,
    nodes: &[&Node],
    mut request: ListRequest,
    listed: Columns,
    more: bool,
) -> Result<Columns> {
    request.until = listed.last_name().filter(|_| more).map(str::to_owned);
    let mut marked = Columns::with_capacity(listed.len());
    let mut rows = listed.rows().peekable();
    while rows.peek().is_some() {
        let cached = records::<Columns>(targets, nodes, &request).await?;
        for copy in cached.rows.rows() {
            while let Some(row) = rows.next_if(|row| row.name < copy.name) {
                marked.push(row);
            }
            if let Some(row) = rows.next_if(|row| row.name == copy.name) {
                let ColumnRow { mtime_ns, kind, .. } = copy;
                marked.push(ColumnRow { mtime_ns, kind, present: true, ..row });
            }
        }
        match cached.rows.last_name() {
            Some(last) if cached.more => request.after = last.to_owned(),
            _ => break,
        }
    }
    rows.for_each(|row| marked.push(row));
    Ok(marked)
}

/// Marks the rows of a backend's page that are in the cluster. The backend decides what exists; a
/// record alone adds no row, unless differences are requested.
async fn mark_cached(
    targets: &Targets,
    nodes: &[&Node],
    mut request: ListRequest,
    diff: bool,
    page: &mut Merged,
) -> Result<()> {
    // After the backend's last name, only a comparison can find further records.
    request.until = match page.rows.last() {
        Some(last) if page.more || !diff => Some(last.entry.name.clone()),
        None if page.more || !diff => return Ok(()),
        _ => None,
    };
    let mut removed = Vec::new();
    loop {
        let cached = records::<Vec<ListEntry>>(targets, nodes, &request).await?;
        let mut rows = page.rows.iter_mut().peekable();
        for row in &cached.rows {
            while rows.next_if(|r| r.entry.name < row.entry.name).is_some() {}
            if let Some(listed) = rows.next_if(|r| r.entry.name == row.entry.name) {
                mark(listed, row, diff);
            } else if diff {
                removed.push(Row { drift: Drift::Removed, ..row.clone() });
            }
        }
        match cached.rows.last() {
            Some(last) if cached.more && removed.len() < request.limit => {
                request.after.clone_from(&last.entry.name);
            }
            _ => break,
        }
    }
    if !removed.is_empty() {
        page.rows.append(&mut removed);
        page.rows.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        if page.rows.len() > request.limit {
            page.rows.truncate(request.limit);
            page.more = true;
        }
    }
    Ok(())
}

/// Whether the cluster has only some ranges of an object.
pub(crate) fn is_in_part(entry: &ListEntry) -> bool {
    entry.kind == RowKind::Object && !entry.meta.present
}

/// Merges the cached record of an object into the backend's row.
fn mark(listed: &mut Row, cached: &Row, diff: bool) {
    let (size, theirs) = (listed.entry.meta.size, std::mem::take(&mut listed.entry.meta));
    listed.target.clone_from(&cached.target);
    listed.entry.meta = cached.entry.meta.clone();
    listed.entry.meta.size = size;
    listed.entry.meta.present = true;
    if diff {
        let ours = &cached.entry.meta;
        let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
        let changed = ours.size != size
            || differ(&ours.etag, &theirs.etag)
            || (theirs.etag.is_empty() && differ(&ours.version, &theirs.version));
        if changed {
            listed.drift = Drift::Changed;
        }
    }
}
