//! The objects that a job is about: named one by one, or by a prefix in a listing.

use forebay_core::cloud_rules::CloudRule;
use forebay_core::intra::{ListPage, ListRequest};
use forebay_core::job::{JobKind, Selection, Task};
use forebay_core::list_page::Detail;
use forebay_core::object::ListEntry;
use forebay_core::{Result, placement};
use futures::{Stream, TryStreamExt};
use tokio::sync::mpsc;

use super::work::{Walk, is_local};
use super::write_back;

/// Names taken from a listing at once.
pub(super) const PAGE: usize = 1000;
/// Pages of a backend's listing that are read ahead: the totals are known early.
const PAGES_AHEAD: usize = 64;
/// Longer lists of names are not counted before the work begins.
const COUNTED: usize = 1_000_000;

/// An object to process.
pub(super) struct Item {
    pub(super) name: String,
    /// If the listing has it.
    pub(super) size: Option<u64>,
}

impl From<String> for Item {
    fn from(name: String) -> Self {
        Self { name, size: None }
    }
}

/// The source of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The list of the client.
    Named,
    /// The copies on this target.
    Here,
    /// The listing of the backend.
    Backend,
}

impl Walk<'_> {
    /// The listings to walk for a prefix.
    pub(super) fn sources(&self) -> Vec<Source> {
        if !self.info.has_backend() || is_local(self.job.spec.kind) {
            return vec![Source::Here];
        }
        match &self.job.spec.task {
            Task::Copy(task) if !task.remote_too => vec![Source::Here],
            // Objects that the backend does not have any more are found only among the copies here.
            Task::Copy(task) if task.synchronize => vec![Source::Here, Source::Backend],
            _ => vec![Source::Backend],
        }
    }

    /// Counts those of the given names that this target owns, for the job's status.
    pub(super) async fn count_mine(&self) -> Result<()> {
        match self.job.spec.kind {
            JobKind::Prefetch => {}
            JobKind::WriteBack => return write_back::count_mine(self).await,
            _ => return Ok(()),
        }
        let Some(mut names) = self.job.spec.selection.names()? else { return Ok(()) };
        let (mut mine, mut seen) = (0, 0);
        loop {
            let state = self.objects().state();
            let before = seen;
            for name in names.by_ref().take(PAGE) {
                seen += 1;
                mine +=
                    u64::from(placement::owner(&state, &self.info, &name)?.id == self.jobs.0.me);
            }
            if seen > COUNTED {
                return Ok(());
            }
            if seen == before {
                self.job.expect_totals(mine, 0);
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn listed(&self, source: Source) -> Result<()> {
        let Selection::Prefix(prefix) = &self.job.spec.selection else { return Ok(()) };
        if source == Source::Backend {
            let (pages, coming) = mpsc::channel(PAGES_AHEAD);
            let list = self.list_backend(prefix, pages);
            return tokio::try_join!(list, self.each_page(coming)).map(drop);
        }
        let mut after = String::new();
        loop {
            let (names, more) = self.page_here(prefix, &after).await?;
            let Some(last) = names.last().cloned() else { return Ok(()) };
            let items = names.into_iter().map(Item::from).collect();
            self.each(self.chosen(items, prefix), source).await?;
            if !more {
                return Ok(());
            }
            after = last;
        }
    }

    /// Sends the pages of the backend's listing ahead of the work, and records the totals at its
    /// end.
    async fn list_backend(&self, prefix: &str, to: mpsc::Sender<Vec<Item>>) -> Result<()> {
        let at = self.job.walked().at();
        let pages = self.pages(prefix, &at.after, Detail::Size);
        let mut pages = std::pin::pin!(pages);
        let (mut objects, mut bytes) = (at.listed, at.listed_bytes);
        while let Some(page) = pages.try_next().await? {
            let item = |entry: ListEntry| Item { name: entry.name, size: Some(entry.meta.size) };
            let items = self.chosen(page.into_iter().map(item).collect(), prefix);
            let state = self.objects().state();
            for item in &items {
                if placement::owner(&state, &self.info, &item.name)?.id == self.jobs.0.me {
                    objects += 1;
                    bytes += item.size.unwrap_or(0);
                }
            }
            if to.send(items).await.is_err() {
                return Ok(());
            }
        }
        if self.job.spec.kind == JobKind::Prefetch {
            self.job.expect_totals(objects, bytes);
        }
        Ok(())
    }

    /// The backend's listing, not older than the start of the job; shared by the job's parts of all
    /// targets.
    pub(super) fn pages(
        &self,
        prefix: &str,
        after: &str,
        detail: Detail,
    ) -> impl Stream<Item = Result<Vec<ListEntry>>> + Send + use<> {
        let age = self.info.cloud.time(CloudRule::ListMaxAgeMs).unwrap_or_default();
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let since_ns = self.job.spec.asked_ns.saturating_sub(age_ns);
        self.objects().listing().listed(&self.info, prefix, after, since_ns, detail)
    }

    async fn each_page(&self, mut pages: mpsc::Receiver<Vec<Item>>) -> Result<()> {
        while let Some(items) = pages.recv().await {
            self.each(items, Source::Backend).await?;
        }
        Ok(())
    }

    /// The entries of a listing page that the job is about.
    fn chosen(&self, mut items: Vec<Item>, prefix: &str) -> Vec<Item> {
        if self.job.spec.flat {
            items.retain(|item| !item.name[prefix.len()..].contains('/'));
        }
        items
    }

    async fn page_here(&self, prefix: &str, after: &str) -> Result<(Vec<String>, bool)> {
        let page = self.copies_here(prefix, after).await?;
        Ok((page.entries.into_iter().map(|entry| entry.name).collect(), page.more))
    }

    /// The copies of a prefix on this target.
    pub(super) async fn copies_here(&self, prefix: &str, after: &str) -> Result<ListPage> {
        let request = ListRequest {
            bucket_id: self.info.id,
            prefix: prefix.to_owned(),
            after: after.to_owned(),
            limit: PAGE,
            detail: Detail::Size,
            ..ListRequest::default()
        };
        match self.job.spec.kind {
            JobKind::Scrub => {
                let page = self.objects().replication().page_of_anything(&request).await?;
                Ok(self.objects().cold_cache().with_parts(&request, page))
            }
            JobKind::Evict | JobKind::Prefetch => {
                self.objects().listing().page_of_copies(&request).await
            }
            _ => self.objects().listing().page_here(&request).await,
        }
    }
}
