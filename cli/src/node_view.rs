//! `forebay node get` and `node logs`: one node of the cluster.

use std::io::Write;
use std::time::Duration;

use clap::{Args, ValueEnum};
use forebay_core::intra::{ClusterInfo, Machine, NodeInfo};
use forebay_core::{Error, ErrorCode, NodeId};
use forebay_node::cgroup::Resources;
use serde_json::json;

use crate::cluster::{cells, status_of};
use crate::failure::Failure;
use crate::output;
use crate::session::Session;

/// Interval of requests for new lines.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Id of the node, as in `forebay cluster info`
    #[arg(value_name = "NODE", value_parser = NodeId::new)]
    node: NodeId,
    /// Lowest level of the lines
    #[arg(long, value_enum, default_value_t)]
    level: Level,
    /// Lines to show, from the end
    #[arg(long, short = 'n', value_name = "LINES", default_value_t = 100)]
    lines: usize,
    /// Go on with new lines until Ctrl-C
    #[arg(long, short)]
    follow: bool,
}

/// Lowest level of lines of a log.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Level {
    /// All lines
    #[default]
    Info,
    /// Warnings and errors
    Warning,
    /// Errors
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Prints one node: its state, version, objects and disks.
pub(crate) async fn get(session: &Session, id: &NodeId) -> Result<(), Failure> {
    let cluster = session.client.cluster_info().await?;
    let node = node_of(&cluster, id)?;
    let mut json = json!(node);
    json["state"] = json!(status_of(node).as_str());
    json["reported"] = json!(node.usage.is_known());
    output::one(session.format, id.as_str(), &shown(node), &json)
}

/// The node with this id, or the error that there is none.
pub(crate) fn node_of<'a>(cluster: &'a ClusterInfo, id: &NodeId) -> Result<&'a NodeInfo, Error> {
    cluster.nodes.iter().find(|node| node.id == *id).ok_or_else(|| {
        let text = format!("node {id} does not exist in this cluster");
        Error::new(ErrorCode::NodeNotFound, text).hint("forebay cluster info lists the nodes")
    })
}

fn shown(node: &NodeInfo) -> Vec<(&'static str, String)> {
    const TITLES: [&str; 10] =
        ["node", "role", "state", "up", "objects", "used", "budget", "hit", "miss", "url"];
    let mut shown: Vec<_> = TITLES.into_iter().zip(cells(node)).collect();
    let version = node.usage.version.as_str();
    shown.push(("version", if version.is_empty() { "unknown" } else { version }.to_owned()));
    let Machine { cpus, host_cpus, mem_limit: memory, host_mem: host_memory, .. } =
        node.usage.machine;
    if memory > 0 {
        let here = Resources { cpus, host_cpus, memory, host_memory };
        shown.push(("may use", here.describe()));
    }
    for disk in &node.usage.mountpaths {
        shown.push(("disk", format!("{} ({})", disk.path, disk.state.as_str())));
    }
    shown
}

/// Prints the last lines of a node's log, and new ones with `--follow`.
pub(crate) async fn logs(session: &Session, args: &LogArgs) -> Result<(), Failure> {
    let level = args.level.name();
    let text = session.client.node_log(&args.node, level, 0).await?;
    write(last_lines(&text, args.lines))?;
    // The node counts bytes from its start, also those of lines that it dropped. Until the first answer
    // shows lines twice, its length is a lower bound of that.
    let mut offset = text.len();
    let mut seen = text;
    if !args.follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(FOLLOW_INTERVAL).await;
        let new = session.client.node_log(&args.node, level, offset).await?;
        // A node that dropped old lines answers with lines that were shown.
        let shown = overlap(&seen, &new);
        write(&new[shown..])?;
        offset += new.len() - shown;
        if new.len() > shown {
            seen = new;
        }
    }
}

/// Bytes at the begin of `new` that are the end of `seen`.
fn overlap(seen: &[u8], new: &[u8]) -> usize {
    let longest = seen.len().min(new.len());
    (0..=longest).rev().find(|len| seen.ends_with(&new[..*len])).unwrap_or(0)
}

fn last_lines(text: &[u8], count: usize) -> &[u8] {
    if count == 0 {
        return &[];
    }
    let end = text.len().saturating_sub(1);
    let breaks = text[..end].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let begin = breaks.map(|(at, _)| at + 1).nth(count - 1);
    &text[begin.unwrap_or(0)..]
}

fn write(text: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let written = out.write_all(text).and_then(|()| out.flush());
    written.map_err(|e| Failure::local("standard output", &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole() {
        assert_eq!(last_lines(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\n", 7), b"a\nb\n");
        assert_eq!(last_lines(b"a\nb\n", 0), b"");
        assert_eq!(last_lines(b"", 3), b"");
    }

    #[test]
    fn lines_that_were_shown_are_found_at_the_begin() {
        assert_eq!(overlap(b"a\nb\n", b"b\nc\n"), 2);
        assert_eq!(overlap(b"a\n", b"c\n"), 0);
        assert_eq!(overlap(b"a\n", b""), 0);
    }
}
