//! Properties that hold for every plan.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::tests::{listing, shown, spec};
use super::*;

fn trees() -> impl Strategy<Value = BTreeMap<String, u64>> {
    let name = prop::sample::select(vec!["a", "b", "a/b", "c/d", "c/d/e", "a-b", "f/g/h", "ü"]);
    let file = (name, 0..30u32, prop::sample::select(vec!["", ".x", ".y.z", ".y"]), 0..100u64);
    prop::collection::vec(file, 1..200).prop_map(|files| {
        files.into_iter().map(|(d, n, ext, size)| (format!("{d}/{n}{ext}"), size)).collect()
    })
}

fn specs() -> impl Strategy<Value = IshardSpec> {
    let key =
        prop::sample::select(vec!["base_file_name", "full_name", "collapse_all_dir", "([a-h])/"]);
    let size =
        prop_oneof![(1..20u64).prop_map(ShardSize::Count), (1..2000u64).prop_map(ShardSize::Bytes)];
    let sort = prop::sample::select(vec!["folders", "alpha", "alpha:dec", "shuffle:5"]);
    (key, size, sort, any::<bool>(), any::<bool>()).prop_map(|(key, size, sort, collapse, last)| {
        IshardSpec {
            key: key.parse().unwrap(),
            size,
            sort: sort.parse().unwrap(),
            collapse,
            ext_mode: if last { ExtMode::Last } else { ExtMode::First },
            on_duplicate: OnDuplicate::Rename,
            ..spec()
        }
    })
}

proptest! {
    #[test]
    fn every_file_is_packed_once_samples_stay_whole_and_shards_have_their_size(
        files in trees(),
        s in specs(),
    ) {
        let files: Vec<(&str, u64)> = files.iter().map(|(n, s)| (n.as_str(), *s)).collect();
        let made = plan(&s, listing(&files)).unwrap();

        let mut packed: Vec<(String, u64)> = Vec::new();
        let mut shard_of: BTreeMap<String, usize> = BTreeMap::new();
        let mut weights: BTreeMap<String, u64> = BTreeMap::new();
        for i in 0..made.len() {
            let mut members = BTreeSet::new();
            for file in made.files(i) {
                prop_assert!(members.insert(file.member.clone()), "{} twice", file.member);
                packed.push((file.source.to_owned(), file.size));
            }
            for key in made.keys(i) {
                let before = shard_of.insert(key.clone(), i);
                prop_assert_eq!(before, None, "sample {} is split", key);
            }
            // Files of a sample are adjacent: there are as many runs of keys as samples.
            let shard = made.shard(i);
            prop_assert_eq!(shard.files, made.files(i).count() as u64);
            prop_assert_eq!(shard.samples, made.keys(i).count() as u64);
            prop_assert_eq!(shard.bytes, made.files(i).map(|f| f.size).sum::<u64>());
        }
        packed.sort();
        let mut want: Vec<_> = files.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect();
        want.sort();
        prop_assert_eq!(packed, want);

        // Groups are the folders of keys; with another order or collapse there is one.
        let folder = |key: &str| key.rfind('/').map_or(String::new(), |at| key[..at].to_owned());
        let one_group = s.sort != Sort::Folders || s.collapse;
        let mut last_of: BTreeMap<String, usize> = BTreeMap::new();
        let mut undersized = 0;
        for i in 0..made.len() {
            let shard = made.shard(i);
            let full = match s.size {
                ShardSize::Count(n) => shard.samples == n,
                ShardSize::Bytes(n) => shard.bytes >= n,
            };
            undersized += usize::from(!full);
            if one_group {
                prop_assert!(full || i + 1 == made.len(), "shard {} is small", i);
            } else {
                let keys: Vec<String> = made.keys(i).collect();
                let folders: BTreeSet<String> = keys.iter().map(|k| folder(k)).collect();
                prop_assert_eq!(folders.len(), 1, "{:?}", folders);
                let of = folders.into_iter().next().unwrap();
                prop_assert!(last_of.insert(of, usize::from(full)) != Some(0), "not the last");
            }
            for (key, weight) in sample_weights(&made, i) {
                weights.insert(key, weight);
            }
        }
        prop_assert!(!one_group || undersized <= 1);
        if let ShardSize::Bytes(n) = s.size {
            let largest = weights.values().max().copied().unwrap_or(0);
            for shard in made.shards() {
                prop_assert!(shard.bytes < n + largest.max(1), "{} of {n}", shard.bytes);
            }
        }
        prop_assert_eq!(shown(&made), shown(&plan(&s, listing(&files)).unwrap()));
    }
}

/// Bytes of each sample of a shard.
fn sample_weights(plan: &Plan, shard: usize) -> Vec<(String, u64)> {
    let weights = plan.sample_ids(shard).iter().map(|&s| plan.samples.bytes(s));
    plan.keys(shard).zip(weights).collect()
}
