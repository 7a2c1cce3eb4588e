//! Coded objects in the simulated world: slices on disks, and the checks of their placement.

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::Stamp;
use forebay_core::erasure::{Form, Slice};
use forebay_core::rebalance;
use forebay_core::replication::{Answer, LocalCopy, LocalSlice, SliceSource};
use forebay_core::state::ClusterState;
use forebay_core::{Error, ErrorCode, Result};
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};

use crate::driver::{Payload, REQUEST_TIMEOUT, gone, size_of};
use crate::target::{Key, Target};
use crate::versions::version_of;
use crate::world::{At, W, World, at_of};

/// Versions of a slice that a target keeps.
const MAX_VERSIONS: usize = 2;

/// A slice on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceRecord {
    pub(crate) slice: Slice,
    pub(crate) stamp: Stamp,
    pub(crate) commit: u64,
    /// The value of the object.
    pub(crate) value: u64,
}

impl SliceRecord {
    fn local(self) -> LocalSlice {
        let Self { slice, stamp, commit, value } = self;
        LocalSlice { slice, stamp, commit, size: size_of(value) }
    }
}

impl Target {
    pub(crate) fn slices_of(&self, key: &Key) -> Vec<SliceRecord> {
        self.slices.borrow().get(key).cloned().unwrap_or_default()
    }

    /// The keys of which any form is here.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        let (records, slices) = (self.records.borrow(), self.slices.borrow());
        records.keys().chain(slices.keys()).cloned().collect()
    }

    /// The keys that a listing of a bucket has, with the stamps of their newest forms here: the first
    /// slices of each object are listed, too.
    pub(crate) fn listed(&self, bucket: usize) -> BTreeMap<Key, Stamp> {
        let mut listed = BTreeMap::new();
        let mut add = |key: &Key, stamp: Stamp| {
            let newest: &mut Stamp = listed.entry(key.clone()).or_default();
            *newest = stamp.max(*newest);
        };
        let records = self.records.borrow();
        records
            .iter()
            .filter(|(key, _)| key.0 == bucket && version_of(key).is_none())
            .for_each(|(key, record)| add(key, record.stamp));
        let slices = self.slices.borrow();
        for (key, slices) in slices.iter().filter(|(key, _)| key.0 == bucket) {
            let first = slices.iter().filter(|here| here.slice.number < here.slice.parity);
            first.for_each(|here| add(key, here.stamp));
        }
        listed
    }

    fn commit_slice(&self, key: &Key, new: SliceRecord) {
        let mut all = self.slices.borrow_mut();
        let slices = all.entry(key.clone()).or_default();
        let same = || slices.iter().filter(|here| here.slice == new.slice);
        if same().count() >= MAX_VERSIONS {
            // The oldest one stays: the newer one may not be on all holders.
            let newest = same().max_by_key(|here| here.stamp).map(|here| here.commit);
            slices.retain(|here| Some(here.commit) != newest);
        }
        slices.push(new);
    }

    fn remove_slices(&self, key: &Key, which: &[LocalSlice]) {
        let mut all = self.slices.borrow_mut();
        let Some(slices) = all.get_mut(key) else { return };
        slices.retain(|here| {
            let goes = which.iter().any(|gone| gone.commit == here.commit);
            if goes {
                self.away.note_slice_removal(key, here.slice, here.stamp);
            }
            !goes
        });
        if slices.is_empty() {
            all.remove(key);
        }
    }
}

impl World {
    pub(crate) async fn get_slices(&self, at: At, key: &Key) -> Answer {
        self.moment().await;
        let here = self.target(at).slices_of(key);
        Answer::Slices(here.into_iter().map(SliceRecord::local).collect())
    }

    pub(crate) async fn commit_slice(
        &self,
        at: At,
        key: &Key,
        (slice, stamp): (Slice, Stamp),
        value: u64,
    ) -> Answer {
        self.disk().await;
        let commit = self.seen.next_commit();
        self.target(at).commit_slice(key, SliceRecord { slice, stamp, commit, value });
        let number = slice.number;
        self.note(|| {
            format!("target {at} commits slice {number} of {key:?} as {stamp:?}: {value}")
        });
        self.check_kept(key);
        self.moment().await;
        Answer::Done
    }

    pub(crate) async fn keep_slice(
        &self,
        at: At,
        key: &Key,
        copy: LocalCopy,
        slice: Slice,
    ) -> Answer {
        self.moment().await;
        let record = self.target(at).get(key).filter(|now| now.commit == copy.commit);
        match record {
            Some(record) => self.commit_slice(at, key, (slice, record.stamp), record.value).await,
            None => Answer::Failed(gone()),
        }
    }

    pub(crate) async fn remove_slices(&self, at: At, key: &Key, slices: &[LocalSlice]) -> Answer {
        self.disk().await;
        self.target(at).remove_slices(key, slices);
        let what: Vec<_> = slices.iter().map(|gone| (gone.slice.number, gone.stamp)).collect();
        self.note(|| format!("target {at} removes slices of {key:?}: {what:?}"));
        self.check_kept(key);
        self.moment().await;
        Answer::Done
    }

    /// Decodes an object: any slices of one stamp are enough, if they are as many as are needed.
    pub(crate) async fn assemble(
        self: &W,
        at: At,
        key: &Key,
        (stamp, sources): (Stamp, Vec<SliceSource>),
        payload: &Payload,
    ) -> Answer {
        let needed = sources.first().map_or(1, |source| usize::from(source.slice.data));
        let reads = sources.iter().map(|source| self.read_slice(at, key, stamp, source));
        let values: Vec<u64> = join_all(reads).await.into_iter().filter_map(Result::ok).collect();
        if values.len() < needed {
            let text = format!("{} of {needed} slices can be read", values.len());
            return Answer::Failed(Error::unavailable(text));
        }
        if values.iter().any(|value| *value != values[0]) {
            self.fail(|| format!("slices of {key:?} as {stamp:?} are of values {values:?}"));
        }
        payload.assembled.set(values[0]);
        Answer::Done
    }

    async fn read_slice(
        self: &W,
        at: At,
        key: &Key,
        stamp: Stamp,
        source: &SliceSource,
    ) -> Result<u64> {
        let (from, slice) = (at_of(&source.target), source.slice);
        let (world, key) = (self.clone(), key.clone());
        let version = self.target(at).map().version;
        let read = async move {
            world.caught_up(from, version).await?;
            world.moment().await;
            let here = world.target(from).slices_of(&key);
            let found = here.iter().find(|here| (here.slice, here.stamp) == (slice, stamp));
            let none = || Error::new(ErrorCode::ObjectNotFound, "there is no such slice");
            found.map(|here| here.value).ok_or_else(none)
        };
        match from == at {
            true => read.await,
            false => self.call_within(REQUEST_TIMEOUT, (at, from), read).await,
        }
    }

    /// Whether the forms of an object on these targets' disks, also on those that are out of use, are
    /// enough to read a version that is as new as `stamp`.
    pub(crate) fn is_readable<'a>(
        &self,
        key: &Key,
        stamp: Stamp,
        targets: impl Iterator<Item = &'a Target>,
    ) -> bool {
        let mut slices: BTreeMap<Stamp, BTreeSet<Slice>> = BTreeMap::new();
        for target in targets {
            let (copy_away, slices_away) = target.away.content(key);
            if copy_away.max(target.get(key).map(|record| record.stamp)) >= Some(stamp) {
                return true;
            }
            let here = target.slices_of(key).into_iter().chain(slices_away);
            for here in here.filter(|here| here.stamp >= stamp) {
                slices.entry(here.stamp).or_default().insert(here.slice);
            }
        }
        let is_enough = |slices: &BTreeSet<Slice>| {
            slices.first().is_some_and(|slice| slices.len() >= usize::from(slice.data))
        };
        slices.values().any(is_enough)
    }

    /// The forms of a coded object that are missing or misplaced, when all has converged.
    pub(crate) fn misplaced_forms(
        &self,
        state: &ClusterState,
        info: &BucketInfo,
        key: &Key,
    ) -> Vec<String> {
        let mut there: BTreeSet<(At, Option<u8>, Stamp)> = BTreeSet::new();
        let mut values = BTreeMap::new();
        for target in &self.targets {
            let whole = target.get(key).map(|record| (None, record.stamp, record.value));
            let slices = target.slices_of(key).into_iter();
            let slices = slices.map(|here| (Some(here.slice.number), here.stamp, here.value));
            for (number, stamp, value) in whole.into_iter().chain(slices) {
                there.insert((target.at, number, stamp));
                values.insert(stamp, value);
            }
        }
        // Slices of newer versions that are too few are of a write, or of an object whose removal,
        // was never acknowledged.
        let is_readable = |stamp: &Stamp| self.is_readable(key, *stamp, self.targets.iter());
        let newest = values.into_iter().rev().find(|(stamp, _)| is_readable(stamp));
        let Some((stamp, value)) = newest else { return Vec::new() };
        there.retain(|(_, _, of)| *of <= stamp);
        let forms = rebalance::forms(state, info, &key.1, size_of(value));
        let belongs: BTreeSet<_> = forms
            .iter()
            .map(|(node, form)| match form {
                Form::Whole => (at_of(&node.id), None, stamp),
                Form::Slice(slice) => (at_of(&node.id), Some(slice.number), stamp),
            })
            .collect();
        // An owner that stood in for the first holder may still have the whole beside its slice.
        let owners = forms.iter().take(info.metadata_holders());
        let owners: BTreeSet<At> = owners.map(|(node, _)| at_of(&node.id)).collect();
        there.retain(|form @ (at, number, of)| {
            let is_spare = number.is_none() && *of == stamp && owners.contains(at);
            // An older slice that came back with a disk stays until the next write or rebalance.
            let is_late = number.is_some() && *of < stamp && self.target(*at).got_disk_back.get();
            !is_late && (!is_spare || belongs.contains(form))
        });
        let wrong = there != belongs;
        let text = || format!("the forms of {key:?} are {there:?} and should be {belongs:?}");
        wrong.then(text).into_iter().collect()
    }
}
