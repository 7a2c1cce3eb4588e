//! `forebay cluster`: nodes, their load, and the map.

use std::io::Write;

use clap::Subcommand;
use forebay_core::NodeId;
use forebay_core::intra::NodeInfo;
use forebay_core::job::JobKind;
use forebay_core::size::ByteSize;
use forebay_core::state::{NodeStatus, Role};
use serde_json::json;

use crate::backup::{self, BackupArgs, RestoreArgs};
use crate::failure::Failure;
use crate::job;
use crate::output::{self, Column, Format, Row, Rows};
use crate::session::Session;
use crate::stop_check;
use crate::watch::WatchArgs;

/// Message if no gateway leads.
pub(crate) const NO_MAJORITY: &str = "no majority of the gateways replies: nothing can be changed, \
    and what is shown was known before";

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes with their objects, their bytes and their cache hits
    #[command(
        after_help = "Examples:\n  forebay cluster info -o json\n  forebay cluster info --watch"
    )]
    Info(WatchArgs),
    /// Show the cluster map: nodes and buckets
    #[command(after_help = "Example:\n  forebay cluster map -o json")]
    Map,
    /// Move native objects to their owners. Changes of the set of targets start this automatically
    #[command(after_help = "Example:\n  forebay cluster rebalance --wait")]
    Rebalance {
        /// Wait until the job ends
        #[arg(long)]
        wait: bool,
    },
    /// Check whether a node may be stopped without data being unavailable or lost
    #[command(after_help = "Examples:
  forebay cluster safe-to-stop target-02
  forebay cluster safe-to-stop gateway-1 && systemctl stop forebay@gateway

Exit codes: 0 it may be stopped, 4 no such node, 6 it should not, for the
printed reasons. Nothing is changed: another node may fail a moment later.")]
    SafeToStop {
        /// Id of the node, as in `forebay cluster info`
        #[arg(value_name = "NODE", value_parser = NodeId::new)]
        node: NodeId,
    },
    /// Show the version of every node
    #[command(after_help = "Example:
  forebay cluster versions -o json

A note says whether the nodes have several versions, as during an upgrade.")]
    Versions,
    /// Save the cluster's metadata (buckets, settings, members) to a file
    Backup(BackupArgs),
    /// Restore a gateway's metadata from a backup, after all gateways lost theirs
    Restore(RestoreArgs),
    /// Attach and detach other clusters
    #[command(subcommand)]
    Remote(RemoteCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RemoteCommand {
    /// Attach a cluster of Forebay or AIStore. Its buckets are then `ais://@ALIAS/BUCKET`
    #[command(after_help = "Example:
  forebay cluster remote attach far=http://10.0.0.7:7400
  forebay ls ais://@far/images

An alias has 2 to 64 letters, digits, - and _. A URL begins with http:// or
https:// and has no @, so no user and no password. Attaching an alias again
changes its URL, also for its buckets that are in use.")]
    Attach {
        /// The alias, and the URL of one of its gateways
        #[arg(value_name = "ALIAS=URL")]
        cluster: String,
    },
    /// Detach a cluster, and drop the cached copies of its buckets
    #[command(after_help = "Example:
  forebay cluster remote detach far

The buckets of the alias leave this cluster with their properties. The other
cluster keeps all objects. An alias that is not attached is exit code 4.")]
    Detach {
        /// The alias of the cluster
        alias: String,
    },
    /// List the attached clusters
    #[command(after_help = "Example:\n  forebay cluster remote ls")]
    Ls,
}

pub(crate) async fn run(session: &Session, command: &ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::Info(watch) => watch.run(session, async || info(session).await).await,
        ClusterCommand::Map => map(session).await,
        ClusterCommand::Rebalance { wait } => rebalance(session, *wait).await,
        ClusterCommand::SafeToStop { node } => stop_check::safe_to_stop(session, node).await,
        ClusterCommand::Versions => stop_check::versions(session).await,
        ClusterCommand::Backup(args) => backup::backup(session, args).await,
        ClusterCommand::Restore(args) => backup::restore(session, args),
        ClusterCommand::Remote(command) => remote(session, command).await,
    }
}

async fn rebalance(session: &Session, wait: bool) -> Result<(), Failure> {
    let id = session.client.start_rebalance().await?;
    job::started(session, JobKind::Rebalance, &id, wait).await
}

async fn remote(session: &Session, command: &RemoteCommand) -> Result<(), Failure> {
    match command {
        RemoteCommand::Attach { cluster } => {
            let Some((alias, url)) = cluster.split_once('=') else {
                let what = format!("\"{cluster}\" is not ALIAS=URL");
                return Err(Failure::usage(what, "for example far=http://10.0.0.7:7400"));
            };
            session.client.attach_cluster(alias, url).await?;
            let shown = [("attached", alias.to_owned())];
            output::one(session.format, alias, &shown, &json!({ "alias": alias, "url": url }))
        }
        RemoteCommand::Detach { alias } => {
            session.client.detach_cluster(alias).await?;
            let shown = [("detached", alias.clone())];
            output::one(session.format, alias, &shown, &json!({ "alias": alias }))
        }
        RemoteCommand::Ls => {
            let map = session.client.refresh_map().await?;
            let columns = [Column("ALIAS", false), Column("URL", false)];
            let mut rows = Rows::new(session.format, &columns);
            for (alias, url) in &map.state.remotes {
                let (cells, json) =
                    (vec![alias.clone(), url.clone()], json!({ "alias": alias, "url": url }));
                rows.push(Row { name: alias.clone(), cells, json })?;
            }
            rows.finish()
        }
    }
}

async fn info(session: &Session) -> Result<(), Failure> {
    let cluster = session.client.cluster_info().await?;
    if session.format.is_json() {
        let mut shown = json!(cluster);
        let nodes = shown["nodes"].as_array_mut().into_iter().flatten();
        for (json, node) in nodes.zip(&cluster.nodes) {
            json["state"] = json!(status_of(node).as_str());
            json["reported"] = json!(node.usage.is_known());
        }
        return output::one(session.format, &cluster.cluster_id, &[], &shown);
    }
    if cluster.led == Some(false) {
        let _ = writeln!(std::io::stderr(), "warning: {NO_MAJORITY}");
    }
    session.note(format!(
        "cluster {} at version {}, {} buckets, primary {}\n",
        cluster.cluster_id, cluster.version, cluster.buckets, cluster.primary
    ));
    let columns = [
        Column("NODE", false),
        Column("ROLE", false),
        Column("STATE", false),
        Column("UP", true),
        Column("OBJECTS", true),
        Column("USED", true),
        Column("BUDGET", true),
        Column("HIT", true),
        Column("MISS", true),
        Column("URL", false),
    ];
    let mut rows = Rows::new(session.format, &columns);
    for node in &cluster.nodes {
        let cells = cells(node);
        rows.push(Row { name: node.id.to_string(), cells, json: json!(node) })?;
    }
    rows.finish()
}

pub(crate) fn cells(node: &NodeInfo) -> Vec<String> {
    let usage = &node.usage;
    // A gateway holds no objects, and a target that has not reported has no known usage: zeroes
    // would be wrong for both.
    let of_target = |text: String| match node.role {
        Role::Target if usage.is_known() => text,
        Role::Target => "unknown".into(),
        Role::Gateway => "-".into(),
    };
    let size = |n: u64| of_target(ByteSize(n).to_string());
    vec![
        node.id.to_string(),
        node.role.name().into(),
        status_of(node).as_str().into(),
        if node.alive && usage.is_known() { uptime(usage.uptime_s) } else { "-".into() },
        of_target(usage.objects.to_string()),
        size(usage.bytes),
        size(usage.budget),
        size(usage.hit_bytes),
        size(usage.miss_bytes),
        node.url.clone(),
    ]
}

async fn map(session: &Session) -> Result<(), Failure> {
    let map = session.client.refresh_map().await?;
    if session.format.is_json() {
        // Without the grant, which is a secret and no part of the map.
        let json = json!({ "state": map.state, "primary": map.primary });
        return output::one(session.format, &map.state.cluster_id, &[], &json);
    }
    if session.format == Format::Table {
        session.note(format!(
            "cluster {} at version {}, primary {}\n",
            map.state.cluster_id, map.state.version, map.primary
        ));
    }
    let columns = [
        Column("NODE", false),
        Column("ROLE", false),
        Column("STATE", false),
        Column("URL", false),
    ];
    let mut rows = Rows::new(session.format, &columns);
    for node in map.state.nodes.values() {
        let name = node.id.to_string();
        let status = node.status().as_str();
        let cells = vec![name.clone(), node.role.name().into(), status.into(), node.url.clone()];
        rows.push(Row { name, cells, json: json!(node) })?;
    }
    rows.finish()
}

/// The status of a node for operators.
pub(crate) fn status_of(node: &NodeInfo) -> NodeStatus {
    NodeStatus::of(node.alive, node.maintenance, node.emptied)
}

/// The two largest units: `3d4h`, `5m12s`.
fn uptime(seconds: u64) -> String {
    let (d, h, m, s) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, m) => format!("{m}m{s}s"),
        (0, h, m) => format!("{h}h{m}m"),
        (d, h, _) => format!("{d}d{h}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_show_their_two_largest_units() {
        let cases = [(5, "5s"), (312, "5m12s"), (3 * 3600 + 61, "3h1m"), (90_000, "1d1h")];
        for (seconds, want) in cases {
            assert_eq!(uptime(seconds), want);
        }
    }
}
