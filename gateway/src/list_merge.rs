//! Merging sorted pages of several targets into one.
//!
//! Pure: pages in, page out.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use forebay_core::intra::ListPage;
use forebay_core::list_columns::Columns;
use forebay_core::list_page::Detail;
use forebay_core::object::ListEntry;
use forebay_core::{Error, NodeId, Result};

/// A merged row and the target it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) entry: ListEntry,
    pub(crate) target: Option<NodeId>,
    /// Number of targets that list the object in this version; 0 if none does.
    pub(crate) copies: u16,
    /// How a copy here differs from the backend, if that was compared.
    pub(crate) drift: Drift,
}

/// How the backend differs from an object in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Drift {
    #[default]
    None,
    /// The backend has another version.
    Changed,
    /// The backend no longer has the object.
    Removed,
}

/// A part of a listing: rows in name order, each name once, and whether names after them exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part<R> {
    pub(crate) rows: R,
    pub(crate) more: bool,
}

/// A part with all properties of each object.
pub(crate) type Merged = Part<Vec<Row>>;

/// Rows of a part, in either form.
pub(crate) trait Rows: Default + Send {
    fn count(&self) -> usize;
    fn last_name(&self) -> Option<&str>;
    /// Appends the first `at_most` rows of `others`.
    fn append(&mut self, others: Self, at_most: usize);
}

impl Rows for Vec<Row> {
    fn count(&self) -> usize {
        self.len()
    }

    fn last_name(&self) -> Option<&str> {
        self.last().map(|row| row.entry.name.as_str())
    }

    fn append(&mut self, others: Self, at_most: usize) {
        self.extend(others.into_iter().take(at_most));
    }
}

impl Rows for Columns {
    fn count(&self) -> usize {
        self.len()
    }

    fn last_name(&self) -> Option<&str> {
        self.last_name()
    }

    fn append(&mut self, others: Self, at_most: usize) {
        self.append(others, at_most);
    }
}

/// One target's page, in name order.
pub(crate) trait Page: Sized + Send {
    /// The merged form of such pages.
    type Rows: Rows;
    /// Decodes a target's answer; returns whether the target has more.
    fn decode(bytes: &[u8], detail: Detail) -> Result<(Self, bool)>;
    fn count(&self) -> usize;
    fn name(&self, row: usize) -> &str;
    fn mtime_ns(&self, row: usize) -> u64;
    /// The picked rows of the pages; picks of one page are in its order.
    fn gather(shards: Vec<Shard<Self>>, picks: &[Pick]) -> Self::Rows;
}

impl Page for Vec<ListEntry> {
    type Rows = Vec<Row>;

    fn decode(bytes: &[u8], detail: Detail) -> Result<(Self, bool)> {
        ListPage::decode(bytes, detail).map(|page| (page.entries, page.more))
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn name(&self, row: usize) -> &str {
        &self[row].name
    }

    fn mtime_ns(&self, row: usize) -> u64 {
        self[row].meta.mtime_ns
    }

    fn gather(shards: Vec<Shard<Self>>, picks: &[Pick]) -> Vec<Row> {
        let mut pages: Vec<_> =
            shards.into_iter().map(|s| (s.target, s.page.into_iter().enumerate())).collect();
        let row = |pick: &Pick| {
            let (target, entries) = &mut pages[pick.shard];
            let (_, entry) = entries.find(|(row, _)| *row == pick.row)?;
            let (target, copies) = (Some(target.clone()), pick.copies);
            Some(Row { entry, target, copies, drift: Drift::None })
        };
        picks.iter().filter_map(row).collect()
    }
}

impl Page for Columns {
    type Rows = Self;

    fn decode(bytes: &[u8], _: Detail) -> Result<(Self, bool)> {
        Self::decode(bytes)
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn name(&self, row: usize) -> &str {
        self.name(row)
    }

    fn mtime_ns(&self, row: usize) -> u64 {
        self.mtime_ns(row)
    }

    fn gather(mut shards: Vec<Shard<Self>>, picks: &[Pick]) -> Self {
        if let [only] = &mut shards[..] {
            let mut rows = std::mem::take(&mut only.page);
            rows.truncate(picks.len());
            return rows;
        }
        let mut rows = Self::with_capacity(picks.len());
        for pick in picks {
            rows.push(shards[pick.shard].page.row(pick.row));
        }
        rows
    }
}

/// One target's page.
#[derive(Clone, Debug)]
pub(crate) struct Shard<P> {
    pub(crate) target: NodeId,
    pub(crate) page: P,
    pub(crate) more: bool,
}

/// A row of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    shard: usize,
    row: usize,
    /// Number of pages that have the row in this version.
    copies: u16,
}

impl Pick {
    fn new(shard: usize, row: usize) -> Self {
        Self { shard, row, copies: 1 }
    }
}

/// Merges pages that start at the same position. The result ends at the end of the first page that
/// has more: the rows that follow in that target are not known yet. Of two records of one name the
/// one modified last counts.
pub(crate) fn merge<P: Page>(shards: Vec<Shard<P>>, limit: usize) -> Result<Part<P::Rows>> {
    let (picks, more) = order(&shards, limit)?;
    Ok(Part { rows: P::gather(shards, &picks), more })
}

/// The rows of a merged listing, and whether there are more.
fn order<P: Page>(shards: &[Shard<P>], limit: usize) -> Result<(Vec<Pick>, bool)> {
    for Shard { target, page, more } in shards {
        let sorted = (1..page.count()).all(|row| page.name(row - 1) < page.name(row));
        if !sorted || (*more && page.count() == 0) {
            return Err(Error::internal(format!("target {target} lists out of order")));
        }
    }
    if let [only] = shards {
        let rows = only.page.count().min(limit);
        let more = only.more || rows < only.page.count();
        return Ok(((0..rows).map(|row| Pick::new(0, row)).collect(), more));
    }
    let ends = shards
        .iter()
        .filter(|s| s.more)
        .filter_map(|s| s.page.count().checked_sub(1).map(|n| s.page.name(n)));
    let horizon = ends.min();
    let total = shards.iter().map(|s| s.page.count()).sum::<usize>();
    let mut picks: Vec<Pick> = Vec::with_capacity(total.min(limit));
    let name = |pick: Pick| shards[pick.shard].page.name(pick.row);
    let head = |pick: Pick| {
        (pick.row < shards[pick.shard].page.count())
            .then(|| Reverse((name(pick), pick.shard, pick.row)))
    };
    let mut heads: BinaryHeap<_> =
        (0..shards.len()).filter_map(|shard| head(Pick::new(shard, 0))).collect();
    while let Some(mut top) = heads.peek_mut() {
        let Reverse((next, shard, row)) = *top;
        let repeated = picks.last().is_some_and(|last| name(*last) == next);
        if horizon.is_some_and(|h| next > h) || (!repeated && picks.len() == limit) {
            return Ok((picks, true));
        }
        // Replaces a name by the next name of its page.
        match head(Pick::new(shard, row + 1)) {
            Some(following) => *top = following,
            None => drop(PeekMut::pop(top)),
        }
        let pick = Pick::new(shard, row);
        let mtime = |pick: Pick| shards[pick.shard].page.mtime_ns(pick.row);
        match picks.last_mut() {
            Some(last) if repeated => match mtime(pick).cmp(&mtime(*last)) {
                Ordering::Greater => *last = pick,
                Ordering::Equal => last.copies = last.copies.saturating_add(1),
                Ordering::Less => {}
            },
            _ => picks.push(pick),
        }
    }
    Ok((picks, horizon.is_some()))
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

    fn shard(
        i: usize,
        names: &BTreeSet<String>,
        after: &str,
        limit: usize,
    ) -> Shard<Vec<ListEntry>> {
        let mut rest = names.iter().filter(|n| n.as_str() > after);
        let page: Vec<_> = rest
            .by_ref()
            .take(limit)
            .map(|n| ListEntry { name: n.clone(), ..Default::default() })
            .collect();
        Shard { target: id(i), page, more: rest.next().is_some() }
    }

    fn in_columns(shard: &Shard<Vec<ListEntry>>) -> Shard<Columns> {
        let page = Columns::from(&shard.page[..]);
        Shard { target: shard.target.clone(), page, more: shard.more }
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
                let pages: Vec<_> = shards.iter().enumerate()
                    .map(|(i, s)| shard(i, s, &after, shard_limit)).collect();
                let columns = merge(pages.iter().map(in_columns).collect(), limit).unwrap();
                let merged = merge(pages, limit).unwrap();
                prop_assert_eq!(columns.more, merged.more);
                let in_columns: Vec<&str> = columns.rows.rows().map(|r| r.name).collect();
                prop_assert_eq!(in_columns, names(&merged));
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
    }

    #[test]
    fn of_two_records_the_newer_counts() {
        let one = |i: usize, mtime_ns| {
            let mut entry = ListEntry { name: "x".into(), ..Default::default() };
            entry.meta.mtime_ns = mtime_ns;
            Shard { target: id(i), page: vec![entry], more: false }
        };
        let merged = merge(vec![one(0, 5), one(1, 9), one(2, 1)], 1).unwrap();
        assert_eq!((merged.rows.len(), merged.more), (1, false));
        assert_eq!(merged.rows[0].target, Some(id(1)));
    }

    #[test]
    fn copies_count_the_targets_with_the_newest_version() {
        let pages = |times: &[u64]| {
            let one = |(i, mtime_ns): (usize, &u64)| {
                let mut entry = ListEntry { name: "x".into(), ..Default::default() };
                entry.meta.mtime_ns = *mtime_ns;
                Shard { target: id(i), page: vec![entry], more: false }
            };
            times.iter().enumerate().map(one).collect()
        };
        for (times, copies) in [
            (&[5][..], 1),
            (&[5, 5][..], 2),
            (&[5, 9, 9][..], 2),
            (&[9, 5, 9][..], 2),
            (&[5, 9][..], 1),
        ] {
            let merged: Merged = merge::<Vec<ListEntry>>(pages(times), 9).unwrap();
            assert_eq!(merged.rows[0].copies, copies, "{times:?}");
        }
    }

    #[test]
    fn a_target_that_lists_out_of_order_is_an_error_not_a_wrong_listing() {
        let entry = |n: &str| ListEntry { name: n.into(), ..Default::default() };
        let bad = Shard { target: id(0), page: vec![entry("b"), entry("a")], more: false };
        assert!(merge(vec![bad], 5).is_err());
        let stuck = Shard { target: id(0), page: Vec::<ListEntry>::new(), more: true };
        assert!(merge(vec![stuck], 5).is_err());
    }
}
