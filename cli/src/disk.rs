//! `forebay disk`: lists the disks of targets, and attaches and detaches them at run time.

use std::time::Duration;

use clap::{Args, Subcommand};
use forebay_core::intra::{DiskAction, DiskCommand, DiskStatus, DiskUsage};
use forebay_core::size::ByteSize;
use forebay_core::state::Role;
use forebay_core::{Error, ErrorCode, NodeId};
use serde_json::json;

use crate::failure::{Failure, exit};
use crate::node_view;
use crate::output::{self, Column, Format, Row, Rows};
use crate::session::Session;
use crate::watch::WatchArgs;

/// Polling interval while a disk is drained.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommands {
    /// List the disks of all targets, or of one
    #[command(
        after_help = "Example:\n  forebay disk ls target-1\n\nExit codes: 2 the node is a gateway, 4 no such node."
    )]
    Ls {
        /// Id of the target; all targets if absent
        #[arg(value_parser = NodeId::new)]
        target: Option<NodeId>,
        #[command(flatten)]
        watch: WatchArgs,
    },
    /// Add a folder of a target's machine as a disk
    #[command(
        after_help = "Example:\n  forebay disk attach target-1 /mnt/nvme3 --size 2TiB --mount

Objects that belong on the new disk move there. With --force, the folder may
hold objects from earlier use. Objects that were deleted since then reappear.
The target records the disk with its size in disks.json in node.dir, which takes
precedence over the configuration file at the next start.

Exit codes: 1 node.dir is not set, 2 the folder cannot be a disk, 4 no such
target, 6 the disk is attached already, or the folder is not empty."
    )]
    Attach(AttachArgs),
    /// Move all objects off a disk, then remove the disk from its target
    #[command(after_help = "Example:\n  forebay disk detach target-1 /mnt/nvme3

The command waits until the disk is empty. If an object cannot be moved, the
disk stays. Copies that a backend has too are dropped if the other disks have no
space for them. With --force, the disk is removed at once; objects that exist
only on this disk are lost. The disk is not used after a restart either,
although the configuration file may name it.

Exit codes: 1 an object cannot be moved and the disk stays, or node.dir is not
set; 4 no such target or disk; 6 it is the last disk in use, another disk is
away, or an upload in parts is under way on it.")]
    Detach(TakeArgs),
    /// Move all objects off a disk, and stop using it until it is enabled
    #[command(after_help = "Example:\n  forebay disk disable target-1 /mnt/nvme3

The exit codes are those of `forebay disk detach`. With --force, objects stay on
the disk, and are not available until it is enabled.")]
    Disable(TakeArgs),
    /// Use a disabled disk again
    #[command(after_help = "Example:\n  forebay disk enable target-1 /mnt/nvme3

Exit codes: 4 no such target or disk, 6 the disk is not disabled, 7 it is not in
use after 15 s; the target tries it again by itself.")]
    Enable(DiskArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DiskArgs {
    /// Id of the target
    #[arg(value_parser = NodeId::new)]
    target: NodeId,
    /// The folder, as a path on the target's machine
    path: String,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    disk: DiskArgs,
    /// Most bytes to use on it [default: 10 % of the file system or 20 GiB, the smaller]
    #[arg(long, value_parser = ByteSize::parse)]
    size: Option<ByteSize>,
    /// Use the disk only while a file system is mounted at the folder
    #[arg(long)]
    mount: bool,
    /// Accept a folder that holds objects already
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TakeArgs {
    #[command(flatten)]
    disk: DiskArgs,
    /// Stop using the disk at once, without moving its objects
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(session: &Session, command: &DiskCommands) -> Result<(), Failure> {
    match command {
        DiskCommands::Ls { target, watch } => {
            watch.run(session, async || list(session, target.as_ref()).await).await
        }
        DiskCommands::Attach(args) => {
            let command = DiskCommand {
                size: args.size,
                mount: args.mount,
                force: args.force,
                ..DiskCommand::new(DiskAction::Attach, &args.disk.path)
            };
            session.client.act_on_disk(&args.disk.target, &command).await?;
            finished(session, &args.disk, "attached")
        }
        DiskCommands::Enable(disk) => {
            let command = DiskCommand::new(DiskAction::Enable, &disk.path);
            session.client.act_on_disk(&disk.target, &command).await?;
            finished(session, disk, "enabled")
        }
        DiskCommands::Detach(args) => take(session, args, DiskAction::Detach).await,
        DiskCommands::Disable(args) => take(session, args, DiskAction::Disable).await,
    }
}

async fn take(session: &Session, args: &TakeArgs, action: DiskAction) -> Result<(), Failure> {
    let TakeArgs { disk: DiskArgs { target, path }, force } = args;
    if *force {
        session.confirm(&format!("give up what is on {path} of {target}"))?;
    }
    let command = DiskCommand { force: *force, ..DiskCommand::new(action, path) };
    let mut disks = session.client.act_on_disk(target, &command).await?;
    let mut printed = false;
    loop {
        match disks.iter().find(|disk| disk.path == *path) {
            Some(disk) if disk.state == DiskStatus::Leaving => {
                if !printed {
                    session.note(format!("{} of {path} move to other disks", ByteSize(disk.used)));
                    printed = true;
                }
            }
            Some(disk) if disk.state != DiskStatus::Disabled => {
                let why = if disk.why.is_empty() { "it stays in use" } else { &disk.why };
                let text = format!("{path} was not taken out: {why}");
                let error = Some(Error::new(ErrorCode::Conflict, text));
                return Err(Failure::new(exit::FAILED, error));
            }
            _ => break,
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let show = DiskCommand::new(DiskAction::Show, path);
        disks = session.client.act_on_disk(target, &show).await?;
    }
    let done = if action == DiskAction::Detach { "detached" } else { "disabled" };
    finished(session, &args.disk, done)
}

/// Reports a change of a disk: to people on standard error, to programs as the result.
fn finished(session: &Session, disk: &DiskArgs, done: &str) -> Result<(), Failure> {
    session.note(format!("{done} {}", disk.path));
    let json = json!({ "target": disk.target, "disk": disk.path, "state": done });
    match session.format {
        Format::Table => Ok(()),
        format => output::one(format, &disk.path, &[], &json),
    }
}

async fn list(session: &Session, target: Option<&NodeId>) -> Result<(), Failure> {
    let columns = [
        Column("TARGET", false),
        Column("STATE", false),
        Column("USED", true),
        Column("BUDGET", true),
        Column("FREE", true),
        Column("PATH", false),
        Column("WHY", false),
    ];
    let mut rows = Rows::new(session.format, &columns);
    let info = session.client.cluster_info().await?;
    if let Some(id) = target
        && node_view::node_of(&info, id)?.role != Role::Target
    {
        let hint = "forebay cluster info shows which nodes are targets";
        return Err(Error::invalid(format!("{id} is a gateway, which has no disks"))
            .hint(hint)
            .into());
    }
    let targets = info.nodes.iter().filter(|node| node.role == Role::Target);
    for node in targets.filter(|node| target.is_none_or(|id| *id == node.id)) {
        for disk in &node.usage.mountpaths {
            let cells = cells(&node.id, disk);
            rows.push(Row {
                name: format!("{}={}", node.id, disk.path),
                cells,
                json: json!({ "target": node.id, "disk": disk }),
            })?;
        }
    }
    rows.finish()
}

fn cells(target: &NodeId, disk: &DiskUsage) -> Vec<String> {
    let in_use = matches!(disk.state, DiskStatus::InUse | DiskStatus::Leaving);
    let size = |n: u64| if in_use { ByteSize(n).to_string() } else { "-".into() };
    let file_system = disk.file_system;
    let full = in_use && file_system.is_some_and(|f| f.full);
    let state = if full { "full".to_owned() } else { disk.state.as_str().replace('_', " ") };
    vec![
        target.to_string(),
        state,
        size(disk.used),
        size(disk.budget),
        file_system.map_or_else(|| "-".into(), |f| size(f.free)),
        disk.path.clone(),
        if disk.why.is_empty() { "-".into() } else { disk.why.clone() },
    ]
}
