//! What clients saw, and the rules that hold at every step: no acknowledged write is gone from all
//! disks, no target has a lease that the others take for dead, one gateway leads.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::ledger::{Act, Kind, Ledger, Listing, Observation};
use crate::target::Key;
use crate::world::World;

/// The history of all clients.
#[derive(Default)]
pub(crate) struct Seen {
    /// By bucket.
    ledgers: RefCell<BTreeMap<usize, Ledger>>,
    /// What of each object must be on some disk: the value of a write that was acknowledged, while no
    /// change that began after it may have taken its place.
    kept: RefCell<BTreeMap<Key, Kept>>,
    commits: Cell<u64>,
    values: Cell<u64>,
    pub(crate) acts: Cell<u64>,
    pub(crate) answered: Cell<u64>,
    /// Changes whose object got another owner while others were told, and that were acknowledged.
    pub(crate) passed_on: Cell<u64>,
}

#[derive(Clone, Copy, Default)]
struct Kept {
    /// Changes that were begun.
    started: u64,
    /// Removals that may still be done, and how many changes had begun when the last was answered.
    deletes: u64,
    deleted: u64,
    /// The value, and how many changes had begun when its write did.
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

    /// A change of an object begins (`removes`: its removal); its number.
    pub(crate) fn begins(&self, key: &Key, removes: bool) -> u64 {
        let mut all = self.kept.borrow_mut();
        let kept = all.entry(key.clone()).or_default();
        kept.started += 1;
        kept.deletes += u64::from(removes);
        kept.value = None;
        kept.started
    }

    /// A client has its answer, or gave up.
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
        let mut ledgers = self.ledgers.borrow_mut();
        let ledger = ledgers.entry(key.0).or_default();
        ledger.keys.entry(key.1.clone()).or_default().push(act);
    }

    pub(crate) fn listed(&self, bucket: usize, listing: Listing) {
        self.acts.set(self.acts.get() + 1);
        self.answered.set(self.answered.get() + 1);
        self.ledgers.borrow_mut().entry(bucket).or_default().listings.push(listing);
    }

    /// All that clients saw and that cannot be.
    pub(crate) fn violations(&self) -> Vec<String> {
        let ledgers = self.ledgers.borrow();
        let found = ledgers.iter().flat_map(|(bucket, ledger)| {
            ledger.violations().into_iter().map(move |why| format!("bucket {bucket}: {why}"))
        });
        found.collect()
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
    /// After each change of a disk: the last acknowledged write of an object lies on some disk. An
    /// earlier write that nobody answered may have come after it all the same, and then it is that
    /// one which lies there.
    pub(crate) fn check_kept(&self, key: &Key) {
        let kept = self.seen.kept.borrow().get(key).copied().unwrap_or_default();
        let Some((value, _)) = kept.value else { return };
        let there = self.targets.iter().any(|target| target.get(key).is_some());
        if !there {
            self.fail(|| {
                format!("no disk has {key:?} any more, whose write of {value} was acknowledged")
            });
        }
    }

    /// After each step.
    pub(crate) fn check_step(&self) {
        let newest = self.group.newest();
        let now = self.exec.now();
        for target in self.targets.iter().filter(|target| target.up.get()) {
            let dead = newest.node(&target.id).is_some_and(|node| !node.alive);
            // Who takes its leave has its lease for a moment more, and answers nobody else's.
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
