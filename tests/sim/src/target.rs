//! A target: the content of its disks, the memory of its process, and its membership. Leases are
//! counted as real nodes count them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::Stamp;
use forebay_core::intra::LeaveRequest;
use forebay_core::lease::{HEARTBEAT_MS, LEASE_BACK_WITHIN_MS, LEASE_MS};
use forebay_core::replication::{Replication, View};
use forebay_core::state::ClusterState;
use forebay_core::{Error, NodeId, Result, native};

use crate::broken::Broken;
use crate::disks::AwayDisk;
use crate::exec::{Bell, Exec, Locks, MS, Micros, SECOND};
use crate::gateway::{Reply, Report, join_of};
use crate::slices::SliceRecord;
use crate::view::TargetView;
use crate::world::{At, W, World, id_of};

const ANSWERED_WITHIN: Micros = 2 * SECOND;
const JOIN_RETRY_INTERVAL: Micros = 100 * MS;
const REPORT_AGAIN: Micros = 200 * MS;
const LEFT_WITHIN: Micros = 3 * SECOND;
const LEAVE_GRACE: Micros = 300 * MS;

/// An object: the number of its bucket, and its name.
pub(crate) type Key = (usize, String);

/// An object on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) stamp: Stamp,
    pub(crate) value: u64,
    /// Distinguishes commits of one object.
    pub(crate) commit: u64,
}

/// One target.
pub(crate) struct Target {
    pub(crate) at: At,
    pub(crate) id: NodeId,
    pub(crate) up: Cell<bool>,
    /// It has sent its leave.
    pub(crate) leaving: Cell<bool>,
    /// Content of its disks, which outlives the process.
    pub(crate) records: RefCell<BTreeMap<Key, Record>>,
    pub(crate) slices: RefCell<BTreeMap<Key, Vec<SliceRecord>>>,
    pub(crate) tombstones: RefCell<BTreeMap<Key, Stamp>>,
    pub(crate) away: AwayDisk,
    /// Whether a disk was out of use for a time and is back.
    pub(crate) got_disk_back: Cell<bool>,
    pub(crate) process: RefCell<Process>,
    clock: Arc<AtomicU64>,
    broken: Option<Broken>,
    pub(crate) changed: Bell,
}

/// State that ends with the process.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) engine: Replication,
    pub(crate) view: Arc<TargetView>,
    pub(crate) locks: Locks<Key>,
    pub(crate) moving: Locks<()>,
    wake: Bell,
    leased: Bell,
    pub(crate) late_tombstones: Bell,
    pub(crate) lost: Bell,
    /// It is a member.
    pub(crate) joined: Rc<Cell<bool>>,
    /// It has sent its last report.
    silent: Rc<Cell<bool>>,
}

impl Process {
    fn new(id: NodeId, clock: &Arc<AtomicU64>, away: &AwayDisk, broken: Option<Broken>) -> Self {
        let has_lease_always = broken == Some(Broken::NoLease);
        let view = Arc::new(TargetView::new(clock.clone(), away.clone(), has_lease_always));
        let engine = Replication::new(id, view.clone());
        let engine = match broken.and_then(Broken::rule) {
            Some(rule) => engine.with_broken_rule(rule),
            None => engine,
        };
        Self {
            engine,
            view,
            locks: Locks::default(),
            moving: Locks::default(),
            wake: Bell::default(),
            leased: Bell::default(),
            late_tombstones: Bell::default(),
            lost: Bell::default(),
            joined: Rc::default(),
            silent: Rc::default(),
        }
    }
}

impl Target {
    pub(crate) fn new(at: At, exec: &Exec, broken: Option<Broken>) -> Self {
        let (id, clock, away) = (id_of(at), exec.clock(), AwayDisk::default());
        Self {
            at,
            id: id.clone(),
            up: Cell::new(false),
            leaving: Cell::new(false),
            records: RefCell::default(),
            slices: RefCell::default(),
            tombstones: RefCell::default(),
            process: RefCell::new(Process::new(id, &clock, &away, broken)),
            away,
            got_disk_back: Cell::default(),
            clock,
            broken,
            changed: Bell::default(),
        }
    }

    pub(crate) fn process(&self) -> Process {
        self.process.borrow().clone()
    }

    /// Resets the state of a process that starts; it keeps only what is on disk.
    pub(crate) fn forget(&self) {
        let process = Process::new(self.id.clone(), &self.clock, &self.away, self.broken);
        if self.away.is_away() {
            process.view.lose_objects();
        }
        *self.process.borrow_mut() = process;
    }

    pub(crate) fn map(&self) -> Arc<ClusterState> {
        self.process.borrow().view.state()
    }

    /// Takes over a state if it is newer than the current one.
    pub(crate) fn offer(&self, state: &Arc<ClusterState>) {
        if state.version > self.map().version {
            self.process.borrow().view.set_state(state.clone());
            self.changed.ring();
        }
    }

    pub(crate) fn lease_until(&self) -> Micros {
        self.process.borrow().view.lease_until()
    }

    pub(crate) fn may_have_missed_changes(&self, state: &ClusterState, info: &BucketInfo) -> bool {
        let complete = self.process.borrow().view.complete_version();
        native::may_have_missed_changes(state, info, &self.id, complete)
    }

    pub(crate) fn has_lost_objects(&self) -> bool {
        self.process.borrow().view.has_lost_objects()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Record> {
        self.records.borrow().get(key).copied()
    }

    pub(crate) fn tombstone(&self, key: &Key) -> Option<Stamp> {
        self.tombstones.borrow().get(key).copied()
    }
}

impl World {
    pub(crate) fn has_lease(&self, at: At) -> bool {
        self.target(at).process().view.has_lease()
    }

    /// Waits a moment for a new lease if the old one has expired.
    pub(crate) async fn leased(&self, at: At) -> Result<()> {
        let comes = async {
            while !self.has_lease(at) {
                let leased = self.target(at).process().leased.rung();
                leased.await;
            }
        };
        let within = LEASE_BACK_WITHIN_MS * MS;
        let no = || Error::unavailable("no gateway that leads a majority has confirmed this node");
        self.exec.within(within, comes).await.ok_or_else(no)
    }

    /// Fetches the state that the sender acted by, before the request is handled.
    pub(crate) async fn caught_up(&self, at: At, version: u64) -> Result<()> {
        let target = self.target(at);
        if target.map().version >= version {
            return Ok(());
        }
        target.process().wake.ring();
        let comes = async {
            while target.map().version < version {
                target.changed.rung().await;
            }
        };
        let late = || Error::unavailable("this node cannot get the state that the sender has");
        self.exec.within(ANSWERED_WITHIN, comes).await.ok_or_else(late)
    }

    /// Starts a target's process.
    pub(crate) fn start_target(self: &W, at: At) {
        let target = self.target(at);
        target.forget();
        target.up.set(true);
        target.leaving.set(false);
        self.exec.spawn(at, self.clone().report(at));
        self.exec.spawn(at, self.clone().watch_tombstones(at));
        self.exec.spawn(at, self.clone().restore_lost_objects(at));
    }

    /// Joins, and sends reports while the process runs.
    async fn report(self: W, at: At) {
        let target = self.target(at);
        let wake = target.process().wake.clone();
        let joined = target.process().joined;
        let mut gateway = self.exec.below(self.gateways.len() as u64) as At;
        loop {
            let reported = self.exec.now();
            let report = match joined.get() {
                true => Report::Beat { id: target.id.clone(), version: target.map().version },
                false => Report::Join(join_of(at)),
            };
            let mut pause = if joined.get() { REPORT_AGAIN } else { JOIN_RETRY_INTERVAL };
            match self.say(at, gateway, report, ANSWERED_WITHIN).await {
                Ok(reply) => {
                    joined.set(!reply.unknown);
                    target.offer(&reply.state);
                    // Only now: the lease is valid only for a target that has the state that came
                    // with it.
                    if reply.lease {
                        pause = HEARTBEAT_MS * MS;
                        self.record_heartbeat(at, reported, &reply);
                    }
                }
                Err(_) => gateway = (gateway + 1) % self.gateways.len(),
            }
            self.exec.within(pause, wake.rung()).await;
            if target.process().silent.get() {
                return;
            }
        }
    }

    fn record_heartbeat(&self, at: At, reported: Micros, reply: &Reply) {
        let target = self.target(at);
        let since = match self.is_broken(Broken::LeaseFromTheAnswer) {
            true => self.exec.now(),
            false => reported.saturating_sub(reply.confirmed_ms * MS),
        };
        target.process().view.extend_lease(since + LEASE_MS * MS);
        target.process().leased.ring();
    }

    pub(crate) async fn say(
        self: &W,
        at: At,
        gateway: At,
        report: Report,
        within: Micros,
    ) -> Result<Reply> {
        let world = self.clone();
        let taken = async move { world.handle_report(gateway, report, false).await };
        self.call_within(within, (at, gateway), taken).await
    }

    /// A clean stop: other holders take over this target's objects first. The caller ends the
    /// process after that.
    pub(crate) async fn leave(self: W, at: At) {
        let id = || self.target(at).id.clone();
        for yields in [true, false] {
            self.target(at).process().silent.set(!yields);
            let gateway = self.exec.below(self.gateways.len() as u64) as At;
            let since = self.target(at).map().node(&id()).map_or(0, |node| node.alive_since);
            let leave = Report::Leave(LeaveRequest { id: id(), yields, since, instance: 0 });
            if let Ok(reply) = self.say(at, gateway, leave, LEFT_WITHIN).await {
                self.target(at).offer(&reply.state);
                self.exec.sleep(LEAVE_GRACE).await;
            }
        }
    }
}
