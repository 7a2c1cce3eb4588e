//! Builds clusters by the commands of their log.

use forebay_core::bucket::BucketInfo;
use forebay_core::name::{Bucket, NodeId, Provider};
use forebay_core::state::{ClusterState, Command, Role};
use forebay_core::{Error, Result};

/// Gateways of every simulated cluster.
const GATEWAYS: u64 = 3;
/// Zones over which targets are spread, if they have zones.
pub(crate) const ZONES: u64 = 20;

/// Names and addresses of nodes, which are most of the bytes of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// Short ids and IP addresses.
    Ip,
    /// Pods of the Helm chart by their full names.
    Chart,
}

/// The shape of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) targets: u64,
    pub(crate) addresses: Addresses,
    pub(crate) zones: bool,
    /// Every fourth target has twice the capacity.
    pub(crate) unequal: bool,
}

impl Shape {
    pub(crate) fn plain(targets: u64) -> Self {
        Self { targets, addresses: Addresses::Ip, zones: false, unequal: false }
    }

    /// The join command of the target of this number.
    pub(crate) fn target(&self, n: u64) -> Result<Command> {
        let zone = if self.zones { format!("rack-{:02}", n % ZONES) } else { String::new() };
        let weight = if self.unequal && n.is_multiple_of(4) { 2 } else { 1 };
        self.join(Role::Target, n, weight, zone)
    }

    fn join(&self, role: Role, n: u64, weight: u32, zone: String) -> Result<Command> {
        let (word, net, port) = match role {
            Role::Gateway => ("gateway", 1, 7400),
            Role::Target => ("target", 2, 7401),
        };
        let (id, host) = match self.addresses {
            Addresses::Ip => (format!("{word}-{n:04}"), format!("10.{net}.{}.{}", n >> 8, n & 255)),
            Addresses::Chart => {
                let id = format!("forebay-{word}-{n}");
                let host = format!("{id}.forebay-{word}-headless.training.svc.cluster.local");
                (id, host)
            }
        };
        let id = NodeId::new(&id)?;
        let url = format!("http://{host}:{port}");
        Ok(Command::Join {
            id,
            role,
            url,
            weight,
            zone,
            instance: 0,
            https: String::new(),
            external: String::new(),
        })
    }

    /// The cluster after all of its nodes have joined and a bucket was created.
    pub(crate) fn build(&self) -> Result<ClusterState> {
        let mut state = ClusterState::default();
        let cluster_id = "f0e1d2c3b4a59687".to_owned();
        change(&mut state, Command::Init { cluster_id, now_ns: 1_700_000_000_000_000_000 })?;
        for n in 0..GATEWAYS {
            change(&mut state, self.join(Role::Gateway, n, 1, String::new())?)?;
        }
        for n in 0..self.targets {
            change(&mut state, self.target(n)?)?;
        }
        let info = Box::new(bucket(1)?);
        change(&mut state, Command::CreateBucket { info, now_ns: 1_700_000_000_000_000_000 })?;
        Ok(state)
    }
}

/// Applies the next command of the log.
pub(crate) fn change(state: &mut ClusterState, command: Command) -> Result<()> {
    state.apply(state.version + 1, command)
}

/// A native bucket.
pub(crate) fn bucket(copies: u32) -> Result<BucketInfo> {
    let bucket = Bucket::new(Provider::Ais, "train")?;
    Ok(BucketInfo { copies, ..BucketInfo::requested(bucket, None) })
}

/// The name of the object of this number, in the form of a data set's names.
pub(crate) fn name(n: u64) -> String {
    format!("images/{:05}/{n:09}.jpg", n / 1_000)
}

/// The target of this number in `state`.
pub(crate) fn nth(state: &ClusterState, n: usize) -> Result<NodeId> {
    let node = state.targets().nth(n);
    node.map(|node| node.id.clone()).ok_or_else(|| Error::internal("no such target"))
}
