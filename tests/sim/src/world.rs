//! The state of one simulated run: the nodes, the network between them, the clients' observations,
//! and the last events.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;
use std::sync::Arc;

use forebay_core::bucket::BucketInfo;
use forebay_core::state::ClusterState;
use forebay_core::{Bucket, Error, NodeId, Provider};

use crate::broken::Broken;
use crate::exec::{Exec, MS};
use crate::gateway::Gateway;
use crate::group::Group;
use crate::net::Net;
use crate::plan::Plan;
use crate::seen::Seen;
use crate::target::Target;

/// A node by its number: gateways first, then targets.
pub(crate) type At = usize;
pub(crate) type W = Rc<World>;

/// Owners of tasks that belong to no node.
pub(crate) const NETWORK: usize = 900;
pub(crate) const NEMESIS: usize = 901;
pub(crate) const CLIENTS: usize = 1_000;

/// Events, in order.
#[derive(Default)]
struct Trace {
    /// How many events a failure prints.
    keeps: usize,
    last: VecDeque<String>,
    digest: DefaultHasher,
    events: u64,
}

pub(crate) struct World {
    pub(crate) exec: Exec,
    pub(crate) net: Net,
    pub(crate) plan: Plan,
    pub(crate) broken: Option<Broken>,
    pub(crate) group: Group,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) targets: Vec<Target>,
    pub(crate) seen: Seen,
    /// The first rule that was broken.
    failed: RefCell<Option<String>>,
    trace: RefCell<Trace>,
    pub(crate) faults: Cell<u64>,
}

impl World {
    pub(crate) fn new(plan: Plan, seed: u64, broken: Option<Broken>, keeps: usize) -> W {
        let exec = Exec::new(seed);
        let gateways = (0..plan.gateways).map(|_| Gateway::default()).collect();
        let first = plan.gateways;
        let targets =
            (0..plan.targets_at_most).map(|n| Target::new(first + n, &exec, broken)).collect();
        let net = Net::default();
        net.delay.set(2 * MS);
        Rc::new(Self {
            exec,
            net,
            broken,
            group: Group::default(),
            gateways,
            targets,
            seen: Seen::default(),
            failed: RefCell::default(),
            trace: RefCell::new(Trace { keeps, ..Trace::default() }),
            faults: Cell::default(),
            plan,
        })
    }

    pub(crate) fn is_broken(&self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }

    pub(crate) fn target(&self, at: At) -> &Target {
        &self.targets[at - self.gateways.len()]
    }

    pub(crate) fn is_gateway(&self, at: At) -> bool {
        at < self.gateways.len()
    }

    /// Whether a process runs there, paused or not.
    pub(crate) fn is_up(&self, at: At) -> bool {
        match self.is_gateway(at) {
            true => self.gateways[at].up.get(),
            false => self.target(at).up.get(),
        }
    }

    pub(crate) fn gateways(&self) -> impl Iterator<Item = At> + use<> {
        0..self.gateways.len()
    }

    /// Records an event.
    pub(crate) fn note(&self, event: impl FnOnce() -> String) {
        let event = format!("{:>9.3} s  {}", self.exec.now() as f64 / 1e6, event());
        let mut trace = self.trace.borrow_mut();
        trace.digest.write(event.as_bytes());
        trace.events += 1;
        if trace.last.len() >= trace.keeps {
            trace.last.pop_front();
        }
        trace.last.push_back(event);
    }

    /// Records that a rule is broken.
    pub(crate) fn fail(&self, why: impl FnOnce() -> String) {
        let mut failed = self.failed.borrow_mut();
        if failed.is_none() {
            *failed = Some(why());
        }
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.borrow().clone()
    }

    pub(crate) fn last_events(&self) -> Vec<String> {
        self.trace.borrow().last.iter().cloned().collect()
    }

    /// A digest of all events, and their number.
    pub(crate) fn trace(&self) -> (u64, u64) {
        let trace = self.trace.borrow();
        (trace.digest.finish(), trace.events)
    }

    /// A point at which other tasks may run: a disk read, a change of threads.
    pub(crate) async fn moment(&self) {
        if self.exec.percent(50) {
            self.exec.sleep(self.exec.between(20, 400)).await;
        }
    }

    /// Duration of a synced write.
    pub(crate) async fn disk(&self) {
        self.exec.sleep(self.exec.between(100, 4_000)).await;
    }
}

/// The id of the node at a number.
pub(crate) fn id_of(at: At) -> NodeId {
    NodeId::new(&format!("node-{at:04}")).expect("letters and digits, long enough")
}

/// The number of the node with an id.
pub(crate) fn at_of(id: &NodeId) -> At {
    id.as_str().trim_start_matches("node-").parse().unwrap_or(NETWORK)
}

/// The `n`th bucket of a run.
pub(crate) fn bucket_of(n: usize) -> Bucket {
    Bucket::new(Provider::Ais, &format!("bucket-{n}")).expect("a usable name")
}

/// The bucket as a state has it.
pub(crate) fn info_in(state: &ClusterState, n: usize) -> Option<Arc<BucketInfo>> {
    state.bucket(&bucket_of(n)).ok().cloned()
}

/// The error for a bucket that a node's state does not have yet.
pub(crate) fn missing_info() -> Error {
    Error::unavailable("there is no such bucket yet")
}
