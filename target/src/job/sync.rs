//! Compares cached copies with a listing of their backend: copies that the backend does not have
//! any more, or has in another version, are dropped.

use std::collections::VecDeque;
use std::pin::pin;

use forebay_core::Result;
use forebay_core::list_page::Detail;
use forebay_core::object::{ListEntry, ObjectMeta};
use futures::TryStreamExt;

use super::walk::Walk;

/// Drops the stale copies on this target, independent of the owner of their objects. The listing
/// only selects candidates: each is compared with the backend itself before it is dropped.
pub(super) async fn drop_stale(walk: &Walk<'_>, prefix: &str) -> Result<()> {
    let mut pages = pin!(walk.pages(prefix, "", Detail::All));
    let mut listed: VecDeque<ListEntry> = VecDeque::new();
    let (mut after, mut dropped) = (String::new(), 0u64);
    loop {
        let here = walk.copies_here(prefix, &after).await?;
        for copy in &here.entries {
            loop {
                match listed.front() {
                    Some(first) if first.name >= copy.name => break,
                    Some(_) => {
                        listed.pop_front();
                    }
                    None => match pages.try_next().await? {
                        Some(page) => listed.extend(page),
                        None => break,
                    },
                }
            }
            let first = listed.front().filter(|first| first.name == copy.name);
            if first.is_none_or(|first| differs(&first.meta, &copy.meta)) {
                dropped +=
                    u64::from(walk.objects.cold_cache().drop_stale(&walk.info, &copy.name).await?);
            }
        }
        match here.entries.last() {
            Some(last) if here.more => after.clone_from(&last.name),
            _ => break,
        }
    }
    if dropped > 0 {
        walk.job.note(format!("{dropped} copies were stale, and dropped"));
    }
    Ok(())
}

/// Whether a listing has another version. Listings of S3 have ETags instead of versions.
fn differs(listed: &ObjectMeta, copy: &ObjectMeta) -> bool {
    let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
    listed.size != copy.size
        || differ(&listed.etag, &copy.etag)
        || listed.etag.is_empty() && differ(&listed.version, &copy.version)
}
