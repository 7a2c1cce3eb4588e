//! Listings of any page size agree with the simplest implementation.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use forebay_archive::Member;
use forebay_core::shard::Stat;
use futures::FutureExt;
use proptest::prelude::*;

use super::*;

/// Objects by name; shards with the names of their members.
type World = BTreeMap<String, Vec<String>>;

impl Source for World {
    async fn held(&self, request: &ListRequest) -> Result<ListPage> {
        let mut rest = self.keys().filter(|n| {
            **n > request.after
                && n.starts_with(&request.prefix)
                && request.until.as_ref().is_none_or(|until| *n <= until)
        });
        let entries = rest
            .by_ref()
            .take(request.limit)
            .map(|n| ListEntry { name: n.clone(), ..ListEntry::default() })
            .collect();
        Ok(ListPage { entries, more: rest.next().is_some() })
    }

    async fn members(&self, name: &str) -> Result<Option<Arc<ShardIndex>>> {
        let member = |(i, name): (usize, &String)| {
            let offset = 512 * i as u64;
            let (stat, is_sparse) = (Stat::default(), false);
            Member { name: name.clone(), offset, size: i as u64, stat, is_sparse }
        };
        let members = |m: &Vec<String>| m.iter().enumerate().map(member).collect();
        Ok(self.get(name).map(|m| Arc::new(ShardIndex::new(ArchiveFormat::Tar, members(m)))))
    }
}

fn request(prefix: &str, after: &str, until: Option<&str>, limit: usize) -> ListRequest {
    ListRequest {
        bucket_id: 1,
        prefix: prefix.into(),
        after: after.into(),
        until: until.map(Into::into),
        limit,
        archive: true,
        ..ListRequest::default()
    }
}

fn ask(world: &World, request: &ListRequest) -> ListPage {
    // A map never makes it wait.
    page(world, request).now_or_never().unwrap().unwrap()
}

/// All pages joined, as `(name, kind, size)`.
fn all(
    world: &World,
    prefix: &str,
    until: Option<&str>,
    limit: usize,
) -> Vec<(String, RowKind, u64)> {
    let mut rows = Vec::new();
    let mut after = String::new();
    loop {
        let page = ask(world, &request(prefix, &after, until, limit));
        assert!(page.entries.len() <= limit);
        assert!(!page.more || !page.entries.is_empty(), "a page that has more must move on");
        rows.extend(page.entries.into_iter().map(|e| (e.name, e.kind, e.meta.size)));
        match rows.last() {
            Some(last) if page.more => after = last.0.clone(),
            _ => return rows,
        }
    }
}

/// The same by the simplest implementation.
fn naive(world: &World, prefix: &str, until: Option<&str>) -> Vec<(String, RowKind, u64)> {
    let mut rows: BTreeMap<String, (RowKind, u64)> = BTreeMap::new();
    for (name, members) in world {
        let is_shard = ArchiveFormat::from_name(name).is_some();
        for (i, member) in members.iter().enumerate().filter(|_| is_shard) {
            rows.entry(format!("{name}/{member}")).or_insert((RowKind::Member, i as u64));
        }
    }
    for name in world.keys() {
        let is_shard = ArchiveFormat::from_name(name).is_some();
        let kind = if is_shard { RowKind::Shard } else { RowKind::Object };
        rows.insert(name.clone(), (kind, 0));
    }
    rows.into_iter()
        .filter(|(n, _)| n.starts_with(prefix) && until.is_none_or(|u| n.as_str() <= u))
        .map(|(name, (kind, size))| (name, kind, size))
        .collect()
}

fn part() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", ".tar", "/", "-", "0", ".zip", "é"]).prop_map(str::to_owned)
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(part(), 1..5).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn pages_of_any_size_join_to_the_sorted_whole(
        world in prop::collection::btree_map(name(), prop::collection::vec(name(), 0..6), 0..8),
        prefix in prop::option::of(name()),
        until in prop::option::of(name()),
        limit in 1usize..6,
    ) {
        let prefix = prefix.unwrap_or_default();
        let until = until.as_deref();
        prop_assert_eq!(all(&world, &prefix, until, limit), naive(&world, &prefix, until));
    }
}

fn world(objects: &[(&str, &[&str])]) -> World {
    let owned = |m: &[&str]| m.iter().map(|m| (*m).to_owned()).collect();
    objects.iter().map(|(name, members)| ((*name).to_owned(), owned(members))).collect()
}

fn names(rows: Vec<(String, RowKind, u64)>) -> Vec<String> {
    rows.into_iter().map(|row| row.0).collect()
}

#[test]
fn members_stand_behind_whatever_sorts_between_them_and_their_shard() {
    let world = world(&[("a.tar", &["y", "x"]), ("a.tar-1", &[]), ("a.tar.gz", &["m"])]);
    let sorted =
        ["a.tar", "a.tar-1", "a.tar.gz", "a.tar.gz/m", "a.tar/x", "a.tar/y"].map(String::from);
    for limit in 1..8 {
        assert_eq!(names(all(&world, "", None, limit)), sorted, "{limit}");
    }
}

#[test]
fn a_prefix_may_name_a_shard_or_lie_inside_it() {
    let world = world(&[("s.tar", &["d/1", "d/2", "e"]), ("s.tar2", &[])]);
    assert_eq!(names(all(&world, "s.tar/", None, 9)), ["s.tar/d/1", "s.tar/d/2", "s.tar/e"]);
    assert_eq!(names(all(&world, "s.tar/d", None, 1)), ["s.tar/d/1", "s.tar/d/2"]);
    assert_eq!(all(&world, "s.tar", None, 2).len(), 5);
    assert!(all(&world, "s.tar/x", None, 2).is_empty());
}

#[test]
fn of_members_of_one_name_the_first_is_listed_and_an_object_hides_them() {
    let world = world(&[("s.tar", &["z", "x", "x"]), ("s.tar/z", &[])]);
    let rows = all(&world, "s.tar/", None, 9);
    let member = |name: &str, size| (name.to_owned(), RowKind::Member, size);
    assert_eq!(rows[0], member("s.tar/x", 1));
    assert_eq!(rows[1], ("s.tar/z".to_owned(), RowKind::Object, 0));
    assert_eq!(rows.len(), 2);
}

#[test]
fn a_shard_of_many_members_is_listed_page_by_page() {
    let members: Vec<String> = (0..100_000).rev().map(|n| format!("m/{n:06}")).collect();
    let world = World::from([("s.tar".to_owned(), members)]);
    let rows = all(&world, "", None, 9_999);
    assert_eq!(rows.len(), 100_001);
    assert!(rows.is_sorted_by_key(|row| &row.0));
    assert_eq!(rows[100_000], ("s.tar/m/099999".to_owned(), RowKind::Member, 0));
}
