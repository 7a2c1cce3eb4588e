//! `forebay node`: shows nodes, drains targets, takes them back, removes nodes.

use std::time::Duration;

use clap::{Args, Subcommand};
use forebay_core::size::parse_duration;
use forebay_core::state::Node;
use forebay_core::{Error, ErrorCode, NodeId};
use serde_json::json;

use crate::failure::Failure;
use crate::job::{self, Waiting};
use crate::join_token::{self, JoinTokenCommand};
use crate::node_view::{self, LogArgs};
use crate::output;
use crate::prestop::PrestopArgs;
use crate::progress;
use crate::session::Session;

#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Take a target out of use: its native objects move to the other targets
    #[command(after_help = "Examples:
  forebay node drain target-02 --wait      before maintenance of its machine
  forebay node drain target-02 --wait --wait-timeout 10m
  forebay node uncordon target-02          returns it to use

Exit codes: 2 the node is a gateway, 4 no such node, 6 it is the last target in
use, 7 it is not drained within --wait-timeout.")]
    Drain(DrainArgs),
    /// Return a drained target to use
    #[command(after_help = "Example:\n  forebay node uncordon target-02")]
    Uncordon(NodeArgs),
    /// Drain a target, then stop it and remove it from the cluster. A gateway is removed at once
    #[command(after_help = "Examples:
  forebay node remove target-02 --wait
  forebay node remove target-02 --lost     down for good; its data is lost
  forebay node remove gateway-3            needs a majority of the others

Exit codes: 4 no such node, 6 it is the last target in use, or it is down and
may have the only copies of objects (see --lost), 7 no majority of gateways.")]
    Remove(RemoveArgs),
    /// Show one node: its state, its version, its objects and its disks
    #[command(after_help = "Example:\n  forebay node get target-02 -o json")]
    Get(NodeArgs),
    /// Show the last lines of a node's log
    #[command(after_help = "Examples:
  forebay node logs target-02 --level warning
  forebay node logs target-02 -n 20 -f

A node keeps its last lines in memory; those before its start are in its
journal.")]
    Logs(LogArgs),
    /// Prepare the stop of a target in Kubernetes: drain it at a scale-down, keep its data otherwise
    #[command(after_help = "Examples:
  forebay node prestop --config /etc/forebay/target.toml --statefulset target
  forebay node prestop --config target.toml --statefulset target --delay 10s

The preStop command of the container of a target. If the StatefulSet has no
place for the ordinal of this pod, the native objects move to other targets,
and the target leaves the cluster. In all other cases, also if the Kubernetes
API does not answer, the data stays. The log of the target has what it did.

Exit codes: 2 an invalid configuration, 6 the target is the last one in use,
7 objects are left after --drain-timeout.")]
    Prestop(PrestopArgs),
    /// Make, list and remove tokens by which targets join
    #[command(subcommand)]
    JoinToken(JoinTokenCommand),
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Id of the node, as in `forebay cluster info`
    #[arg(value_name = "NODE", value_parser = NodeId::new)]
    node: NodeId,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Stop the target's process when the target is drained
    #[arg(long)]
    stop: bool,
    /// Wait until the target is drained
    #[arg(long)]
    wait: bool,
    /// End the wait after this time with exit code 7; the objects go on moving
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "wait")]
    wait_timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// Remove a node that is down for good. Objects that only this node holds are lost
    #[arg(long)]
    lost: bool,
    /// Wait until the node has left the cluster
    #[arg(long, conflicts_with = "lost")]
    wait: bool,
}

pub(crate) async fn run(session: &Session, command: &NodeCommand) -> Result<(), Failure> {
    let (action, node, lost) = match command {
        NodeCommand::Prestop(_) => {
            return Err(Error::internal("not a client command").into());
        }
        NodeCommand::JoinToken(command) => return join_token::run(session, command).await,
        NodeCommand::Get(args) => return node_view::get(session, &args.node).await,
        NodeCommand::Logs(args) => return node_view::logs(session, args).await,
        NodeCommand::Drain(args) if args.stop => ("shutdown-node", &args.node.node, false),
        NodeCommand::Drain(args) => ("start-maintenance", &args.node.node, false),
        NodeCommand::Uncordon(args) => ("stop-maintenance", &args.node, false),
        NodeCommand::Remove(args) => ("decommission-node", &args.node.node, args.lost),
    };
    let job = session.client.act_on_node(action, node, lost).await?;
    match command {
        NodeCommand::Drain(args) if args.wait => {
            let is_drained = |found: Option<&Node>| found.is_none_or(|node| node.emptied);
            let drained = until(session, node, job.as_deref(), is_drained);
            match args.wait_timeout {
                None => drained.await?,
                Some(within) => {
                    tokio::time::timeout(within, drained)
                        .await
                        .map_err(|_| late(node, within))??;
                }
            }
            session.note(format!("{node} is drained: it holds no native object any more"));
        }
        NodeCommand::Remove(args) if args.wait => {
            until(session, node, job.as_deref(), |found| found.is_none()).await?;
            session.note(format!("{node} has left the cluster"));
        }
        _ => {
            if let Some(job) = &job {
                session.note(format!("objects move by job {job}, which begins in a moment"));
            }
        }
    }
    output::one(session.format, node.as_str(), &[], &json!({ "node": node, "job": job }))
}

/// The error of a wait that ended before the target was drained.
fn late(node: &NodeId, within: Duration) -> Error {
    let text =
        format!("{node} is not drained after {} s; its objects still move", within.as_secs());
    Error::new(ErrorCode::Timeout, text).hint(format!(
        "forebay node drain {node} --wait waits on; forebay node uncordon {node} stops it"
    ))
}

/// Waits until the map shows a node's expected state; shows the progress of the rebalance.
async fn until(
    session: &Session,
    node: &NodeId,
    job: Option<&str>,
    is_so: impl Fn(Option<&Node>) -> bool,
) -> Result<(), Failure> {
    let bar = progress::objects(progress::wanted(session.quiet), None);
    let mut waiting = job.map(Waiting::new);
    loop {
        let map = session.client.refresh_map().await?;
        if is_so(map.state.node(node)) {
            if let Some(waiting) = &mut waiting {
                waiting.over();
            }
            bar.finish_and_clear();
            return Ok(());
        }
        // The job starts a moment later, and other jobs may follow.
        if let Some(id) = job.filter(|_| !bar.is_hidden())
            && let Ok(status) = session.client.job(id).await
        {
            job::show_progress(&bar, &status);
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
}
