//! Merging sorted pages of several targets into one, and folding names into directories.
//!
//! Pure: pages in, page out.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use forebay_core::name::MAX_OBJECT_NAME;
use forebay_core::object::ListEntry;
use forebay_core::{Error, NodeId, Result};

/// A merged row and the target it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) entry: ListEntry,
    pub(crate) target: Option<NodeId>,
    /// How a copy here compares with the backend, where that was asked.
    pub(crate) drift: Drift,
}

/// What the backend says of an object that is in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Drift {
    #[default]
    None,
    /// It has another version.
    Changed,
    /// It has it no more.
    Removed,
}

/// A part of a listing: rows in name order, each name once, and whether names after them exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    pub(crate) rows: Vec<Row>,
    pub(crate) more: bool,
}

/// One target's page, in name order.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) target: NodeId,
    pub(crate) entries: Vec<ListEntry>,
    pub(crate) more: bool,
}

/// The next entry of one page; the first name comes first.
struct Head {
    entry: ListEntry,
    shard: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        self.entry.name.cmp(&other.entry.name).then(self.shard.cmp(&other.shard))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// Merges pages that start at the same place. The result ends where the first page that has more
/// ends: what that target has behind is not known yet. Of two records of one name the one modified
/// last counts.
pub(crate) fn merge(shards: Vec<Shard>, limit: usize) -> Result<Merged> {
    for shard in &shards {
        let sorted = shard.entries.is_sorted_by(|a, b| a.name < b.name);
        if !sorted || (shard.more && shard.entries.is_empty()) {
            return Err(Error::internal(format!("target {} lists out of order", shard.target)));
        }
    }
    let mut more = false;
    let horizon = shards
        .iter()
        .filter(|s| s.more)
        .filter_map(|s| s.entries.last())
        .map(|e| e.name.clone())
        .min();
    let ids: Vec<NodeId> = shards.iter().map(|s| s.target.clone()).collect();
    let mut rows: Vec<Row> =
        Vec::with_capacity(shards.iter().map(|s| s.entries.len()).sum::<usize>().min(limit));
    let mut cursors: Vec<_> = shards.into_iter().map(|s| s.entries.into_iter()).collect();
    let head = |cursors: &mut Vec<std::vec::IntoIter<ListEntry>>, shard: usize| {
        cursors[shard].next().map(|entry| Reverse(Head { entry, shard }))
    };
    let mut heads: BinaryHeap<_> =
        (0..cursors.len()).filter_map(|i| head(&mut cursors, i)).collect();
    while let Some(mut next) = heads.peek_mut() {
        let name = &next.0.entry.name;
        let repeated = rows.last().is_some_and(|r| r.entry.name == *name);
        let behind_horizon = horizon.as_ref().is_some_and(|h| name > h);
        if behind_horizon || (!repeated && rows.len() == limit) {
            more = true;
            break;
        }
        // In place of the head comes what follows it in its page.
        let shard = next.0.shard;
        let Reverse(Head { entry, .. }) = match head(&mut cursors, shard) {
            Some(following) => std::mem::replace(&mut *next, following),
            None => PeekMut::pop(next),
        };
        let row = Row { entry, target: Some(ids[shard].clone()), drift: Drift::None };
        match rows.last_mut() {
            Some(last) if repeated => {
                if row.entry.meta.mtime_ns > last.entry.meta.mtime_ns {
                    *last = row;
                }
            }
            _ => rows.push(row),
        }
    }
    Ok(Merged { rows, more: more || horizon.is_some() })
}

/// What a name is in a listing of one level.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Level<'a> {
    Object,
    /// The directory the name lies in, with its slash.
    Directory(&'a str),
}

/// Where a name stands in the level that `prefix` opens.
pub(crate) fn level<'a>(name: &'a str, prefix: &str) -> Level<'a> {
    match name.get(prefix.len()..).and_then(|rest| rest.find('/')) {
        Some(slash) => Level::Directory(&name[..=prefix.len() + slash]),
        None => Level::Object,
    }
}

/// A text that sorts behind every name in `directory` and before every other name behind it.
pub(crate) fn past(directory: &str) -> String {
    let mut text = directory.to_owned();
    while text.len() <= MAX_OBJECT_NAME {
        text.push(char::MAX);
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn id(i: usize) -> NodeId {
        NodeId::new(&format!("target-{i:02}")).unwrap()
    }

    fn shard(i: usize, names: &BTreeSet<String>, after: &str, limit: usize) -> Shard {
        let mut rest = names.iter().filter(|n| n.as_str() > after);
        let entries: Vec<_> = rest
            .by_ref()
            .take(limit)
            .map(|n| ListEntry { name: n.clone(), ..Default::default() })
            .collect();
        Shard { target: id(i), entries, more: rest.next().is_some() }
    }

    fn names(merged: &Merged) -> Vec<String> {
        merged.rows.iter().map(|r| r.entry.name.clone()).collect()
    }

    proptest! {
        #[test]
        fn pages_of_any_size_join_to_the_sorted_union(
            shards in prop::collection::vec(
                prop::collection::btree_set("[ab/é]{1,4}", 0..30), 1..5),
            limit in 1usize..9,
            shard_limit in 1usize..9,
        ) {
            let union: Vec<String> =
                shards.iter().flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect();
            let mut got = Vec::new();
            let mut after = String::new();
            loop {
                let pages = shards.iter().enumerate()
                    .map(|(i, s)| shard(i, s, &after, shard_limit)).collect();
                let merged = merge(pages, limit).unwrap();
                prop_assert!(merged.rows.len() <= limit);
                got.extend(names(&merged));
                if !merged.more {
                    break;
                }
                prop_assert!(!merged.rows.is_empty(), "a page that has more must move on");
                after = got.last().unwrap().clone();
            }
            prop_assert_eq!(got, union);
        }

        #[test]
        fn past_sorts_behind_the_directory_and_before_the_rest(
            inside in "\\PC{0,20}", other in "\\PC{1,20}",
        ) {
            let end = past("a/b/");
            let name = format!("a/b/{inside}");
            prop_assert!(name < end);
            prop_assert!(other.starts_with("a/b/") || (other < end) == (other.as_str() < "a/b/"));
        }
    }

    #[test]
    fn of_two_records_the_newer_counts() {
        let one = |i: usize, mtime_ns| {
            let mut entry = ListEntry { name: "x".into(), ..Default::default() };
            entry.meta.mtime_ns = mtime_ns;
            Shard { target: id(i), entries: vec![entry], more: false }
        };
        let merged = merge(vec![one(0, 5), one(1, 9), one(2, 1)], 1).unwrap();
        assert_eq!((merged.rows.len(), merged.more), (1, false));
        assert_eq!(merged.rows[0].target, Some(id(1)));
    }

    #[test]
    fn a_target_that_lists_out_of_order_is_an_error_not_a_wrong_listing() {
        let entry = |n: &str| ListEntry { name: n.into(), ..Default::default() };
        let bad = Shard { target: id(0), entries: vec![entry("b"), entry("a")], more: false };
        assert!(merge(vec![bad], 5).is_err());
        let stuck = Shard { target: id(0), entries: vec![], more: true };
        assert!(merge(vec![stuck], 5).is_err());
    }

    #[test]
    fn names_fold_at_the_first_slash_behind_the_prefix() {
        assert_eq!(level("a/b/c", ""), Level::Directory("a/"));
        assert_eq!(level("a/b/c", "a/"), Level::Directory("a/b/"));
        assert_eq!(level("a/b/c", "a"), Level::Directory("a/"));
        assert_eq!(level("a/b", "a/"), Level::Object);
        assert_eq!(level("a/", "a/"), Level::Object);
    }
}
