//! Plans of prefetches: the objects that match are listed, or looked up by name, and summed.

use forebay_core::job::Selection;
use forebay_core::template::Template;
use forebay_core::{Bucket, Error as CoreError, ErrorCode};
use forebay_v1::list::{Entry, ListMsg, entry_flags, flags};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::prefetch_plan::{
    LISTING_PAGE_OBJECTS, PlanRules, PrefetchPlan, SortedNames, next_window,
};

/// Up to this many names are looked up one by one; more are searched in a listing.
const MAX_LOOKED_UP_NAMES: usize = 1_000;
/// Names that are in memory at once, if they come from a template.
const WINDOW_NAMES: usize = 1_000_000;
const CONCURRENT_LOOKUPS: usize = 32;

impl Client {
    /// Returns what a prefetch of these objects would fetch, and its requests; fetches nothing.
    ///
    /// A prefix is listed once. Names are looked up one by one, or searched in a listing if they are
    /// more than 1,000; a look-up of an object that is not cached is a request to the backend.
    ///
    /// The error is the one of the prefetch if the bucket has no backend or keeps no copies, and
    /// [`ErrorCode::ObjectNotFound`] if an object that was given by name does not exist.
    pub async fn prefetch_plan(
        &self,
        bucket: &Bucket,
        selection: &Selection,
    ) -> Result<PrefetchPlan> {
        let rules = self.plan_rules(bucket).await?;
        match selection {
            Selection::Names(names) if names.is_empty() => {
                Err(Error::Api(CoreError::invalid("the list of objects is empty")))
            }
            Selection::Names(names) => {
                let mut plan = PrefetchPlan::default();
                let names = SortedNames::of(names.clone());
                self.plan_names(bucket, &rules, names, true, &mut plan).await?;
                Ok(plan)
            }
            Selection::Template(text) => match Template::parse(text)? {
                Template::Prefix(prefix) => self.plan_prefix(bucket, &rules, &prefix).await,
                Template::Ranges(ranges) => {
                    let (mut plan, mut names) =
                        (PrefetchPlan::default(), ranges.into_names().peekable());
                    while let Some(window) = next_window(&mut names, WINDOW_NAMES) {
                        self.plan_names(bucket, &rules, window, false, &mut plan).await?;
                    }
                    Ok(plan)
                }
            },
            Selection::Prefix(prefix) => self.plan_prefix(bucket, &rules, prefix).await,
        }
    }

    /// Like [`Self::prefetch_plan`] for [`Self::start_sync`]: cached copies are compared with the
    /// listing of the backend, and those that differ are fetched again.
    pub async fn sync_plan(&self, bucket: &Bucket, prefix: &str) -> Result<PrefetchPlan> {
        let rules = PlanRules { compares: true, ..self.plan_rules(bucket).await? };
        self.plan_prefix(bucket, &rules, prefix).await
    }

    async fn plan_rules(&self, bucket: &Bucket) -> Result<PlanRules> {
        Ok(PlanRules::of(bucket, &self.head_bucket(bucket).await?)?)
    }

    async fn plan_prefix(
        &self,
        bucket: &Bucket,
        rules: &PlanRules,
        prefix: &str,
    ) -> Result<PrefetchPlan> {
        let mut plan = PrefetchPlan::default();
        if rules.compares {
            self.compare_listed(bucket, prefix, |entry| {
                let is_current = is_current_copy(entry);
                plan.add(entry.size, is_current, rules.ranges.requests(entry.size));
            })
            .await?;
        } else {
            self.list_blocks(bucket, prefix, |rows| {
                for row in rows.rows() {
                    plan.add(row.size, row.present, rules.ranges.requests(row.size));
                }
                Ok(())
            })
            .await?;
        }
        plan.set_listing_pages();
        Ok(plan)
    }

    /// Shows the objects of the backend, a page in memory at a time, with copies compared.
    async fn compare_listed(
        &self,
        bucket: &Bucket,
        prefix: &str,
        mut show: impl FnMut(&Entry),
    ) -> Result<()> {
        let props = "name,size,cached,version".into();
        let prefix = prefix.to_owned();
        let mut msg = ListMsg { prefix, props, flags: flags::DIFF, ..ListMsg::default() };
        loop {
            let page = self.list_page(bucket, &msg).await?;
            let exists = |entry: &&Entry| entry.flags & entry_flags::REMOVED == 0;
            page.entries.iter().filter(exists).for_each(&mut show);
            if page.token.is_empty() {
                return Ok(());
            }
            (msg.uuid, msg.token) = (page.uuid, page.token);
        }
    }

    /// Adds objects that are given by name; with `must_exist`, one that does not exist is an error.
    async fn plan_names(
        &self,
        bucket: &Bucket,
        rules: &PlanRules,
        mut names: SortedNames,
        must_exist: bool,
        plan: &mut PrefetchPlan,
    ) -> Result<()> {
        // A listing does not compare copies with the backend, a look-up does.
        if names.len() > MAX_LOOKED_UP_NAMES && !rules.compares {
            self.search_listing(bucket, &mut names, plan).await?;
        }
        if let (Some(name), true) = (names.missing(), must_exist) {
            return Err(Error::Api(bucket.object_not_found(name)));
        }
        let looked_up = stream::iter(names.take_rest()).map(|name| async move {
            match self.head(bucket, &name).await {
                Ok(meta) => Ok(Some(meta)),
                Err(e) if e.code() == ErrorCode::ObjectNotFound && !must_exist => Ok(None),
                Err(e) => Err(e),
            }
        });
        let mut looked_up = looked_up.buffer_unordered(CONCURRENT_LOOKUPS);
        while let Some(meta) = looked_up.try_next().await? {
            // The job does not know the sizes of named objects, so it reads each by one request.
            if let Some(meta) = meta {
                plan.add(meta.size, meta.present, 1);
            }
        }
        Ok(())
    }

    /// Adds the names that a listing has. Names remain if the backend cannot be listed, or if the
    /// listing needs more requests than the names.
    async fn search_listing(
        &self,
        bucket: &Bucket,
        names: &mut SortedNames,
        plan: &mut PrefetchPlan,
    ) -> Result<()> {
        let prefix = names.common_prefix().to_owned();
        let mut rows_left = (names.len() as u64).saturating_mul(LISTING_PAGE_OBJECTS);
        let mut is_stopped = false;
        let listed = self
            .list_blocks(bucket, &prefix, |rows| {
                for row in rows.rows() {
                    if names.matches(row.name) {
                        plan.add(row.size, row.present, 1);
                    }
                }
                rows_left = rows_left.saturating_sub(rows.len() as u64);
                is_stopped = names.len() == 0 || rows_left == 0;
                match is_stopped {
                    true => Err(CoreError::internal("the listing has all that is needed")),
                    false => Ok(()),
                }
            })
            .await;
        match listed {
            Ok(()) => names.end_listing(),
            Err(_) if is_stopped => {}
            Err(e) if e.code() == ErrorCode::Unsupported => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// Whether the cluster has the object whole, in the version that the backend lists.
fn is_current_copy(entry: &Entry) -> bool {
    let relevant = entry_flags::PRESENT | entry_flags::CHANGED;
    entry.flags & relevant == entry_flags::PRESENT
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use forebay_core::list_columns::{ColumnRow, Columns};
    use forebay_core::object::RowKind;
    use forebay_v1::headers::{BUCKET_PROPS, PRESENT};
    use forebay_v1::list::Page;
    use http::Method;

    use super::*;
    use crate::scripted_server::{Reply, Seen, Server, bucket, client, json, map, not_here, reply};

    const TIMEOUT: Duration = Duration::from_secs(20);
    const GONE: &str =
        r#"{"message":"ais://b/gone does not exist","status":404,"code":"object_not_found"}"#;

    /// A listing of objects of 7 bytes, of which those with an even number are cached.
    fn listing(names: impl Iterator<Item = u32>) -> Reply {
        let mut rows = Columns::default();
        for n in names {
            let (name, kind) = (&format!("p/{n:04}"), RowKind::Object);
            rows.push(ColumnRow { name, size: 7, mtime_ns: 1, kind, present: n % 2 == 0 });
        }
        reply(200, &[], rows.encode(false))
    }

    /// A node that is gateway and target of a bucket with this freshness, and lists it by `list`.
    async fn node(
        freshness: &'static str,
        list: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let target = Server::start(|seen| match seen.path.contains("gone") {
            true => reply(404, &[("hdr-error", GONE)], ""),
            false => {
                let present = if seen.path.contains("0001") { "false" } else { "true" };
                reply(200, &[("content-length", "5"), (PRESENT, present)], "")
            }
        })
        .await;
        Server::start(move |seen| match (&seen.method, seen.path.as_str()) {
            // The target stays up as long as the gateway that names it.
            (_, "/api/v1/map") => json(&map(7, &[("target-01", &target.url)])),
            (&Method::HEAD, _) => {
                let props = format!(
                    r#"{{"backend":{{"type":"s3","bucket":"b"}},"freshness":{freshness}}}"#
                );
                reply(200, &[(BUCKET_PROPS, &props)], "")
            }
            (&Method::GET, _) => list(seen),
            _ => not_here(),
        })
        .await
    }

    async fn plan(server: &Server, selection: &Selection) -> Result<PrefetchPlan> {
        client(&server.url, TIMEOUT).prefetch_plan(&bucket(), selection).await
    }

    fn names(range: std::ops::Range<u32>) -> Vec<String> {
        range.map(|n| format!("p/{n:04}")).collect()
    }

    #[tokio::test]
    async fn a_prefix_is_planned_by_one_listing() {
        let server = node(r#"{"age":600}"#, |_| listing(0..9)).await;
        let plan = plan(&server, &Selection::Prefix("p/".into())).await.unwrap();
        assert_eq!((plan.cached_objects, plan.cached_bytes), (5, 35));
        assert_eq!((plan.fetch_objects, plan.fetch_bytes), (4, 28));
        assert_eq!((plan.gets, plan.listing_pages), (4, 1));
    }

    #[tokio::test]
    async fn copies_that_differ_from_the_backend_are_planned_to_be_fetched() {
        let pages = |seen: &Seen| {
            let is_second = String::from_utf8_lossy(&seen.body).contains("\"p/b\"");
            let entry =
                |name: &str, flags| Entry { name: name.into(), size: 7, flags, ..Entry::default() };
            let (entries, token) = match is_second {
                false => (vec![entry("p/a", 64), entry("p/b", 64 | 1024)], "p/b"),
                true => (vec![entry("p/c", 0), entry("p/d", 64 | 2048)], ""),
            };
            let page = Page { token: token.into(), entries, ..Page::default() };
            reply(200, &[], page.to_msgpack())
        };
        let server = node(r#"{"age":600}"#, pages).await;
        let plan = client(&server.url, TIMEOUT).sync_plan(&bucket(), "p/").await.unwrap();
        assert_eq!((plan.cached_objects, plan.fetch_objects, plan.listing_pages), (1, 2, 1));
    }

    #[tokio::test]
    async fn few_names_are_looked_up_and_one_that_does_not_exist_is_an_error() {
        let server = node(r#"{"age":600}"#, |_| not_here()).await;
        let some = plan(&server, &Selection::Names(names(0..2))).await.unwrap();
        assert_eq!((some.cached_bytes, some.fetch_bytes, some.requests()), (5, 5, 1));
        let gone = Selection::Names(vec!["p/0000".into(), "gone".into()]);
        let e = plan(&server, &gone).await.unwrap_err();
        assert_eq!(
            (e.code(), e.to_string()),
            (ErrorCode::ObjectNotFound, "ais://b/gone does not exist".into())
        );
        let none = plan(&server, &Selection::Names(Vec::new())).await.unwrap_err();
        assert!(none.to_string().contains("empty"), "{none}");
    }

    #[tokio::test]
    async fn a_template_leaves_out_objects_that_do_not_exist() {
        let server = node(r#"{"age":600}"#, |_| not_here()).await;
        let some = Selection::Template("p/gone{0..9}".into());
        assert_eq!(plan(&server, &some).await.unwrap(), PrefetchPlan::default());
    }

    #[tokio::test]
    async fn many_names_are_searched_in_a_listing() {
        let server = node(r#"{"age":600}"#, |_| listing(0..2000)).await;
        let some = plan(&server, &Selection::Names(names(10..1510))).await.unwrap();
        assert_eq!((some.cached_objects, some.fetch_objects, some.requests()), (750, 750, 750));
        let more = plan(&server, &Selection::Names(names(10..2010))).await.unwrap_err();
        assert_eq!(more.to_string(), "ais://b/p/2000 does not exist");
        let template = Selection::Template("p/{0010..2999}".into());
        assert_eq!(plan(&server, &template).await.unwrap().objects(), 1990);
    }

    #[tokio::test]
    async fn where_nothing_is_listed_all_names_are_looked_up() {
        let server = node(r#"{"age":600}"#, |_| reply(501, &[], "")).await;
        let some = plan(&server, &Selection::Names(names(0..1001))).await.unwrap();
        assert_eq!((some.objects(), some.bytes()), (1001, 5005));
    }
}
