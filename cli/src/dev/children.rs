//! The processes of a `dev` cluster: starts them, reports when one ends, stops them all.

use std::fs::OpenOptions;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use forebay_core::Error;
use forebay_core::state::Role;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::plan::NodePlan;
use crate::node::{Stopped, exit};
use crate::os::{Signal, die_with_parent, keep_user_umask, signal};
use crate::{home, pid_file};

/// Settings that only one node may have; the environment must not set them for all nodes.
const OF_ONE_NODE: [&str; 6] = [
    "FOREBAY_NODE__ID",
    "FOREBAY_NODE__DIR",
    "FOREBAY_LISTEN__HTTP",
    "FOREBAY_LISTEN__ADVERTISE",
    "FOREBAY_CLUSTER__GATEWAYS",
    "FOREBAY_CLUSTER__SECRET_FILE",
];

/// All processes this command has started.
pub(super) struct Children {
    /// By position of the node in the plan; `None` once it has ended.
    pids: Vec<Option<u32>>,
    ends: mpsc::UnboundedReceiver<(usize, ExitStatus)>,
    sender: mpsc::UnboundedSender<(usize, ExitStatus)>,
}

impl Children {
    pub(super) fn new() -> Self {
        let (sender, ends) = mpsc::unbounded_channel();
        Self { pids: Vec::new(), ends, sender }
    }

    /// Starts the next node of the plan. Call it on the main thread: the child ends with the thread
    /// that started it.
    pub(super) fn start(&mut self, node: &NodePlan) -> Result<(), Stopped> {
        let log_file = node.log_file();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_file)
            .and_then(|log| Ok((log.try_clone()?, log)))
            .map_err(|e| home::failed(&log_file, &e))?;
        let mut command = Command::new(&node.program);
        command.args(node.args()).stdin(Stdio::null()).stdout(log.0).stderr(log.1);
        // In a group of its own: Ctrl-C in a terminal reaches only this process, which stops the
        // others in order.
        command.process_group(0);
        for name in OF_ONE_NODE {
            command.env_remove(name);
        }
        die_with_parent(&mut command);
        keep_user_umask(&mut command);
        let mut child = command.spawn().map_err(|e| {
            let error = Error::internal(format!("cannot start {}: {e}", node.command_line()));
            Stopped::new(exit::FAILED, error)
        })?;
        let index = self.pids.len();
        self.pids.push(child.id());
        let sender = self.sender.clone();
        tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                let _ = sender.send((index, status));
            }
        });
        Ok(())
    }

    pub(super) fn pid(&self, index: usize) -> Option<u32> {
        self.pids.get(index).copied().flatten()
    }

    /// The next process to end, by position in the plan. Never resolves when none runs.
    pub(super) async fn next_end(&mut self) -> (usize, ExitStatus) {
        match self.ends.recv().await {
            Some((index, status)) => {
                self.pids[index] = None;
                (index, status)
            }
            // This object holds a sender, so the channel stays open.
            None => std::future::pending().await,
        }
    }

    /// Stops targets first, then gateways, so that targets can leave the cluster: SIGTERM, and
    /// SIGKILL at the deadline. Nodes that were restarted by their `cmd` are stopped as well.
    pub(super) async fn stop(&mut self, nodes: &[NodePlan], within: Duration) {
        let deadline = Instant::now() + within;
        for role in [Role::Target, Role::Gateway] {
            let group: Vec<usize> =
                (0..nodes.len()).filter(|&index| nodes[index].role == role).collect();
            for &index in &group {
                if let Some(pid) = self.pid(index).or_else(|| started_by_hand(&nodes[index])) {
                    signal(pid, Signal::Terminate);
                }
            }
            while group.iter().any(|&index| self.pid(index).is_some()) {
                if timeout_at(deadline, self.next_end()).await.is_err() {
                    break;
                }
            }
            for &index in &group {
                while Instant::now() < deadline && started_by_hand(&nodes[index]).is_some() {
                    sleep(Duration::from_millis(20)).await;
                }
                if let Some(pid) = self.pid(index).or_else(|| started_by_hand(&nodes[index])) {
                    signal(pid, Signal::Kill);
                }
            }
        }
    }

    /// Kills all processes immediately.
    pub(super) fn kill(&self) {
        for &pid in self.pids.iter().flatten() {
            signal(pid, Signal::Kill);
        }
    }
}

fn started_by_hand(node: &NodePlan) -> Option<u32> {
    pid_file::running(&node.state_dir(), &node.config_file())
}
