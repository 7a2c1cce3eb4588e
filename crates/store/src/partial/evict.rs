//! Drops partial objects: replaced, evicted, or with their bucket. Accounts for their space.

use super::Known;
use crate::format;
use crate::index::Span;
use crate::shared::Shared;

impl Shared {
    /// Drops the partial object of a key. Returns the space freed, if there was one.
    pub(crate) fn drop_partial(&self, key: &[u8]) -> Option<u64> {
        self.drop_partial_if(key, |_| true)
    }

    pub(super) fn drop_partial_if(
        &self,
        key: &[u8],
        wanted: impl FnOnce(&Known) -> bool,
    ) -> Option<u64> {
        let mut table = self.partials.known();
        table.get(key).filter(|known| wanted(known))?;
        let known = table.remove(key)?;
        if let Some(open) = known.open.upgrade() {
            open.end();
        }
        drop(table);
        self.partials.unlink(&*self.io, known.id);
        self.room.set_aside(0, known.space);
        Some(known.space)
    }

    /// Drops all partial objects of a bucket.
    pub(crate) fn drop_partials_of(&self, bucket_id: u64) {
        let span = Span { bucket_id, ..Span::default() };
        for head in self.partials.scan(&span, usize::MAX) {
            self.drop_partial(&format::key(bucket_id, &head.name));
        }
    }

    /// Drops partial objects that were last used before `horizon_ns`, in the buckets for which
    /// `may_go` is true, the least recently used first, until `need` bytes are free. Returns the
    /// space that each of them freed.
    pub(crate) fn evict_partials(
        &self,
        need: u64,
        horizon_ns: u64,
        may_go: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let mut old: Vec<_> = {
            let known = self.partials.known();
            let old = known.iter().filter(|(_, k)| k.atime_ns < horizon_ns);
            let old = old.filter(|(_, k)| may_go(k.head.bucket_id));
            old.map(|(key, k)| (k.atime_ns, k.id, key.clone())).collect()
        };
        old.sort_unstable();
        let (mut freed, mut dropped) = (0, Vec::new());
        for (atime_ns, id, key) in old {
            if freed >= need {
                break;
            }
            // Unless it was used since.
            let space = self.drop_partial_if(&key, |k| k.id == id && k.atime_ns == atime_ns);
            freed += space.unwrap_or(0);
            dropped.extend(space);
        }
        dropped
    }

    /// Accounts for space of a partial object that is not dropped yet.
    /// `bytes`: of the granules that were stored or dropped.
    pub(super) fn count_partial(&self, key: &[u8], id: u64, (more, less): (u64, u64), bytes: i64) {
        let mut table = self.partials.known();
        let Some(known) = table.get_mut(key, id) else { return };
        known.space = (known.space + more).saturating_sub(less);
        table.change_bytes(key, id, bytes);
        drop(table);
        self.room.set_aside(more, less);
    }
}
