//! The objects that a job is about: named one by one, or by a prefix in a listing.

use forebay_core::cloud_rules::CloudRule;
use forebay_core::intra::{ListPage, ListRequest};
use forebay_core::job::Selection;
use forebay_core::list_page::Detail;
use forebay_core::object::ListEntry;
use forebay_core::{Result, placement};
use futures::{Stream, TryStreamExt};
use tokio::sync::mpsc;

use super::scope::{Item, Listed, Source};
use super::walk::{PAGE, Walk};

/// Pages of a backend's listing that are read ahead: the totals are known early.
const PAGES_AHEAD: usize = 64;
/// Longer lists of names are not counted before the work begins.
const COUNTED: usize = 1_000_000;

impl Walk<'_> {
    /// The listings to walk for a prefix.
    pub(super) fn sources(&self) -> &'static [Source] {
        match self.info.has_backend() {
            true => self.kind.scope().sources,
            false => &[Source::Here],
        }
    }

    /// Sets the expected objects of the job to those of the given names that this target owns.
    pub(super) async fn expect_owned_names(&self) -> Result<()> {
        let Some(mut names) = self.job.spec.selection.names()? else { return Ok(()) };
        let (mut mine, mut seen) = (0, 0);
        loop {
            let state = self.objects.state();
            let before = seen;
            for name in names.by_ref().take(PAGE) {
                seen += 1;
                mine += u64::from(
                    placement::owner(&state, &self.info, &name)?.id == *self.objects.me(),
                );
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
            let state = self.objects.state();
            for item in &items {
                if placement::owner(&state, &self.info, &item.name)?.id == *self.objects.me() {
                    objects += 1;
                    bytes += item.size.unwrap_or(0);
                }
            }
            if to.send(items).await.is_err() {
                return Ok(());
            }
        }
        if self.kind.expects_listed() {
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
        self.objects.listing().listed(&self.info, prefix, after, since_ns, detail)
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
        match self.kind.scope().listed {
            Listed::Anything => {
                let page = self.objects.replication().page_of_anything(&request).await?;
                Ok(self.objects.cold_cache().with_parts(&request, page))
            }
            Listed::Copies => self.objects.listing().page_of_copies(&request).await,
            Listed::Objects => self.objects.listing().page_here(&request).await,
        }
    }
}
