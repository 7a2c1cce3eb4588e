//! The clients' observations, and the rules that hold at every step: no acknowledged write is
//! missing from all disks, no target that the others count as dead has a lease, one gateway leads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use forebay_core::copies::Stamp;

use crate::ledger::{Act, Kind, Ledger, Listing, Observation, linearize};
use crate::target::Key;
use crate::versions::version_of;
use crate::world::World;

/// The history of all clients.
#[derive(Default)]
pub(crate) struct Seen {
    /// By bucket.
    ledgers: RefCell<BTreeMap<usize, Ledger>>,
    /// The history of each older version, or version that may become one, by its key.
    versions: RefCell<BTreeMap<Key, Vec<Act>>>,
    /// The value of each object that must be on some disk: that of an acknowledged write, while no
    /// change that began after it may have replaced it.
    kept: RefCell<BTreeMap<Key, Kept>>,
    commits: Cell<u64>,
    values: Cell<u64>,
    pub(crate) acts: Cell<u64>,
    pub(crate) answered: Cell<u64>,
    /// Acknowledged changes whose object got another owner while they were replicated.
    pub(crate) passed_on: Cell<u64>,
}

#[derive(Clone, Copy, Default)]
struct Kept {
    /// Number of changes that began.
    started: u64,
    /// Removals that may still be applied, and the number of changes that had begun when the last
    /// removal was answered.
    deletes: u64,
    deleted: u64,
    /// The value, and the number of changes that had begun when its write began.
    value: Option<(u64, u64)>,
}

impl Seen {
    pub(crate) fn next_commit(&self) -> u64 {
        self.commits.set(self.commits.get() + 1);
        self.commits.get()
    }

    /// Each write has a value of its own.
    pub(crate) fn next_value(&self) -> u64 {
        self.values.set(self.values.get() + 1);
        self.values.get()
    }

    /// Records the begin of a change of an object (`removes`: a removal); returns its number.
    pub(crate) fn begins(&self, key: &Key, removes: bool) -> u64 {
        let mut all = self.kept.borrow_mut();
        let kept = all.entry(key.clone()).or_default();
        kept.started += 1;
        kept.deletes += u64::from(removes);
        kept.value = None;
        kept.started
    }

    /// Records that a client got its response, or gave up.
    pub(crate) fn answered(&self, key: &Key, act: Act, started: u64) {
        self.acts.set(self.acts.get() + 1);
        if act.observed != Observation::Nothing {
            self.answered.set(self.answered.get() + 1);
        }
        if let (Kind::Put(value), Observation::Done) = (act.kind, act.observed)
            && let Some(kept) = self.kept.borrow_mut().get_mut(key)
            && (kept.started, kept.deletes) == (started, 0)
            && started > kept.deleted
        {
            kept.value = Some((value, started));
        }
        if act.kind == Kind::Delete
            && act.observed != Observation::Nothing
            && let Some(kept) = self.kept.borrow_mut().get_mut(key)
        {
            kept.deletes -= 1;
            kept.deleted = kept.started;
        }
        if version_of(key).is_some() {
            self.versions.borrow_mut().entry(key.clone()).or_default().push(act);
            return;
        }
        let mut ledgers = self.ledgers.borrow_mut();
        let ledger = ledgers.entry(key.0).or_default();
        ledger.keys.entry(key.1.clone()).or_default().push(act);
    }

    /// Records that an acknowledged write has made a version.
    pub(crate) fn version_written(&self, version: Key, act: Act) {
        if let Kind::Put(value) = act.kind {
            let written = Kept { value: Some((value, 0)), ..Kept::default() };
            self.kept.borrow_mut().insert(version.clone(), written);
        }
        self.versions.borrow_mut().entry(version).or_default().push(act);
    }

    /// The versions of an object that acknowledged writes have made.
    pub(crate) fn versions_of(&self, object: &Key) -> Vec<Key> {
        let versions = self.versions.borrow();
        let of = |key: &&Key| version_of(key).is_some_and(|(of, _)| of == *object);
        versions.keys().filter(of).cloned().collect()
    }

    pub(crate) fn listed(&self, bucket: usize, listing: Listing) {
        self.acts.set(self.acts.get() + 1);
        self.answered.set(self.answered.get() + 1);
        self.ledgers.borrow_mut().entry(bucket).or_default().listings.push(listing);
    }

    /// All observations of clients that break a rule.
    pub(crate) fn violations(&self) -> Vec<String> {
        let ledgers = self.ledgers.borrow();
        let found = ledgers.iter().flat_map(|(bucket, ledger)| {
            ledger.violations().into_iter().map(move |why| format!("bucket {bucket}: {why}"))
        });
        let versions = self.versions.borrow();
        let wrong = versions.iter().filter_map(|(key, acts)| {
            linearize(acts).err().map(|why| format!("version {key:?}: {why}"))
        });
        found.chain(wrong).collect()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let ledgers = self.ledgers.borrow();
        let keys = ledgers
            .iter()
            .flat_map(|(bucket, ledger)| ledger.keys.keys().map(|name| (*bucket, name.clone())));
        keys.collect()
    }
}

impl World {
    /// Checked after each change of a disk: the last acknowledged write of an object is on some
    /// disk. An earlier unacknowledged write may have been applied after it; then that write is on
    /// some disk.
    pub(crate) fn check_kept(&self, key: &Key) {
        if self.plan.keeps_versions(key.0) {
            let is_version = version_of(key).is_some();
            let versions = if is_version { vec![key.clone()] } else { self.seen.versions_of(key) };
            versions.iter().for_each(|version| self.check_version_kept(version));
            if is_version {
                return;
            }
        }
        let kept = self.seen.kept.borrow().get(key).copied().unwrap_or_default();
        let Some((value, _)) = kept.value else { return };
        if !self.is_readable(key, Stamp::default(), self.targets.iter()) {
            self.fail(|| {
                format!("no disk has {key:?} any more, whose write of {value} was acknowledged")
            });
        }
    }

    /// An acknowledged version is on some disk until its removal begins.
    fn check_version_kept(&self, version: &Key) {
        let kept = self.seen.kept.borrow().get(version).copied().unwrap_or_default();
        if kept.value.is_some() && !self.is_version_kept(version) {
            self.fail(|| format!("no disk has version {version:?} any more"));
        }
    }

    /// Checked after each step.
    pub(crate) fn check_step(&self) {
        let newest = self.group.newest();
        let now = self.exec.now();
        for target in self.targets.iter().filter(|target| target.up.get()) {
            let dead = newest.node(&target.id).is_some_and(|node| !node.alive);
            // A target that leaves may have its lease for a moment more; it serves no other
            // target's objects.
            if dead && now < target.lease_until() && !target.leaving.get() {
                self.fail(|| {
                    let (at, version) = (target.at, newest.version);
                    format!("target {at} has a lease and is dead by version {version}")
                });
            }
        }
        let leaders = self.gateways().filter(|at| self.gateways[*at].up.get());
        let leaders: Vec<usize> = leaders.filter(|at| self.is_sure_to_lead(*at)).collect();
        if leaders.len() > 1 {
            self.fail(|| format!("gateways {leaders:?} lead at once"));
        }
    }
}
