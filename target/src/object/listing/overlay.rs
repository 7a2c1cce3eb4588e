//! Writes through the cluster since a listing was taken.

use std::collections::BTreeMap;
use std::ops::Bound;

use forebay_core::NodeId;
use forebay_core::intra::{Change, Changed, JournalMark};
use forebay_core::list_columns::ColumnRow;
use forebay_core::object::RowKind;

use super::rows::{Row, RowsBuilder};

/// A listing with more changes than this is not used.
const MOST: usize = 1 << 16;

/// Changes, from the journals of all targets.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    /// Position up to which each target's journal was read; empty if the journals were unavailable
    /// when the listing was taken.
    pub(super) marks: BTreeMap<NodeId, JournalMark>,
    changes: BTreeMap<String, (NodeId, Changed)>,
}

impl Overlay {
    pub(super) fn new(marks: BTreeMap<NodeId, JournalMark>) -> Self {
        Self { marks, changes: BTreeMap::new() }
    }

    /// Adds a target's changes of names with `prefix`.
    pub(super) fn take(&mut self, node: &NodeId, prefix: &str, changes: Vec<Change>) {
        for Change { name, now } in changes {
            if !name.starts_with(prefix) {
                continue;
            }
            // The order of writes by two targets is unknown.
            let now = match self.changes.get(&name) {
                Some((other, _)) if other != node => Changed::Unknown,
                _ => now,
            };
            self.changes.insert(name, (node.clone(), now));
        }
    }

    /// Names whose current state must be looked up.
    pub(super) fn unknown(&self) -> Vec<String> {
        let unknown = self.changes.iter().filter(|(_, (_, now))| *now == Changed::Unknown);
        unknown.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn learned(&mut self, name: &str, now: Changed) {
        if let Some(change) = self.changes.get_mut(name) {
            change.1 = now;
        }
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.changes.len() > MOST
    }

    /// Whether the listing's entry of a name is outdated.
    pub(super) fn replaces(&self, name: &str) -> bool {
        !self.changes.is_empty() && self.changes.contains_key(name)
    }

    /// Adds the changed names with `prefix` after `after`, up to and including `until`; returns
    /// whether they do not all fit.
    pub(super) fn add_between<B: RowsBuilder>(
        &self,
        page: &mut B,
        prefix: &str,
        after: &str,
        until: Option<&str>,
        limit: usize,
    ) -> bool {
        if self.changes.is_empty() || until.is_some_and(|until| until <= after) {
            return false;
        }
        let until = until.map_or(Bound::Unbounded, Bound::Included);
        let behind = self.changes.range::<str, _>((Bound::Excluded(after), until));
        for (name, (_, now)) in behind.filter(|(name, _)| name.starts_with(prefix)) {
            let Changed::There { size, version, etag, mtime_ns } = now else { continue };
            if page.count() >= limit {
                return true;
            }
            let (size, mtime_ns) = (*size, *mtime_ns);
            let columns = ColumnRow { name, size, mtime_ns, kind: RowKind::Object, present: false };
            page.push(Row { columns, version, etag });
        }
        false
    }
}
