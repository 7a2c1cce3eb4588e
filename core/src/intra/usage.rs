//! The report of a node about itself: load, objects, errors, machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DiskUsage, is_zero};
use crate::clock_offset::ClockOffset;
use crate::quota::QuotaReport;

/// The report of a node about itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeUsage {
    pub uptime_s: u64,
    pub objects: u64,
    pub bytes: u64,
    /// Bytes that it may use.
    pub budget: u64,
    pub hit_bytes: u64,
    pub miss_bytes: u64,
    pub backend_reads: u64,
    #[serde(default)]
    pub disks: Vec<String>,
    /// Objects that are damaged and have no other copy; at most 1,000 are recorded.
    #[serde(default)]
    pub lost: u64,
    /// The names of the first few of them.
    #[serde(default)]
    pub lost_names: Vec<String>,
    #[serde(default)]
    pub machine: Machine,
    /// The usage of each disk; the paths are those of `disks`.
    #[serde(default)]
    pub mountpaths: Vec<DiskUsage>,
    /// Requests answered so far, by the names of v1 such as `get.n` and `err.get.n`.
    #[serde(default)]
    pub tracker: BTreeMap<String, u64>,
    /// The node's clock compared with the leading gateway's; `None` before the leader's first
    /// reply, and from older nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
    /// Usage of the buckets with a quota; `None` from gateways and older nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotas: Option<Vec<QuotaReport>>,
    /// Version of the program; empty from nodes that do not report it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

impl NodeUsage {
    /// Whether the node has reported: without a leader, and shortly after a start, it has not, and
    /// all numbers are zero.
    pub fn is_known(&self) -> bool {
        self.uptime_s > 0 || self.budget > 0 || !self.mountpaths.is_empty()
    }
}

fn is_unknown(n: &u32) -> bool {
    *n == 0
}

/// The machine of a node, for display.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Memory of the node's process in bytes.
    pub mem_used: u64,
    /// Memory available to all processes in bytes.
    pub mem_avail: u64,
    pub pct_mem_used: f64,
    /// Percent of one processor, used by the node's process.
    pub pct_cpu_used: f64,
    /// Percent of all processors, used by all processes.
    pub cpu_util: u64,
    /// Load averages over 1, 5 and 15 minutes.
    pub loads: [f64; 3],
    /// Limit of open files and connections of the node's process; 0 if unknown.
    #[serde(default)]
    pub open_files: u64,
    /// Processors that the node's process may use; 0 if unknown, and from older nodes.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub cpus: u32,
    /// Processors of the machine.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub host_cpus: u32,
    /// Bytes of memory that the node's process may use: the limit of its cgroup, or the machine's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mem_limit: u64,
    /// Bytes of memory of the machine.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub host_mem: u64,
}
