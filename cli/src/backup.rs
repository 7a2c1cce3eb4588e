//! `forebay cluster backup` and `restore`: saves the gateways' metadata to a file, and restores it.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use forebay_core::state::Role;
use forebay_core::state::backup::Backup;
use forebay_node::clock::unix_ns;
use forebay_node::{config_load, file_modes};
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::part::Part;
use crate::session::Session;

/// A standard stream instead of a file.
const STREAM: &str = "-";

#[derive(Debug, Args)]
#[command(after_help = "A backup has no objects: native objects stay on the disks of the targets,
cached ones are fetched again.

Examples:
  forebay cluster backup cluster.forebay
  forebay cluster backup - | forebay put - s3://backups/cluster.forebay")]
pub(crate) struct BackupArgs {
    /// File to write; - is standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Run this command for each gateway of the new group, on its machine, before
the first of them starts. Its node.dir must have no meta.redb. Targets with the
disks of the lost cluster rejoin automatically. Buckets that are newer than the
backup are gone from the metadata; their objects stay on the disks.

Examples:
  forebay cluster restore cluster.forebay --dry-run
  forebay cluster restore cluster.forebay --config gateway.toml")]
pub(crate) struct RestoreArgs {
    /// File that `forebay cluster backup` wrote; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Configuration file of the gateway (TOML), required without --dry-run; the gateway must not run
    #[arg(long, value_name = "FILE", required_unless_present = "dry_run")]
    config: Option<PathBuf>,
    /// Check the backup and show its content, and restore nothing
    #[arg(long)]
    dry_run: bool,
}

/// Writes the newest state of the cluster to a file, atomically.
pub(crate) async fn backup(session: &Session, args: &BackupArgs) -> Result<(), Failure> {
    let map = session.client.refresh_map().await?;
    // The map has no users: without them, the restored cluster would be open to everybody.
    let mut state = map.state.clone();
    state.access = session.client.access_section().await?.into();
    let backup = Backup { taken_ns: unix_ns(), state };
    let bytes = backup.encode()?;
    if args.file == Path::new(STREAM) {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(&bytes).and_then(|()| out.flush());
        return written.map_err(|e| Failure::local("stdout", &e));
    }
    write(&args.file, &bytes).map_err(|e| Failure::local(args.file.display(), &e))?;
    let what = json!({ "file": args.file, "bytes": bytes.len() });
    shown(session, &backup, "written", &args.file, what)
}

/// Creates a gateway's metadata from a backup.
pub(crate) fn restore(session: &Session, args: &RestoreArgs) -> Result<(), Failure> {
    let bytes = read(&args.file).map_err(|e| Failure::local(args.file.display(), &e))?;
    let backup = Backup::decode(&bytes)?;
    let summary = backup.clone();
    let verb = match &args.config {
        Some(config) if !args.dry_run => {
            file_modes::make_private();
            let config = config_load::load(Some(config), &[])?.config;
            forebay_gateway::restore(&config, backup)?;
            let of_group = config.cluster.gateways.len() > 1;
            if of_group {
                session.note("do the same for every gateway of the group, then start them");
            }
            "restored"
        }
        _ => "readable",
    };
    let what = json!({ "file": args.file, "restored": verb == "restored" });
    shown(session, &summary, verb, &args.file, what)
}

fn shown(
    session: &Session,
    backup: &Backup,
    verb: &'static str,
    file: &Path,
    mut what: serde_json::Value,
) -> Result<(), Failure> {
    let state = &backup.state;
    let targets = state.nodes.values().filter(|node| node.role == Role::Target).count();
    let lines = [
        (verb, file.display().to_string()),
        ("cluster", state.cluster_id.clone()),
        ("taken", output::time(backup.taken_ns)),
        ("version", state.version.to_string()),
        ("buckets", state.buckets.len().to_string()),
        ("targets", targets.to_string()),
    ];
    what["cluster_id"] = json!(state.cluster_id);
    what["taken"] = output::time_json(backup.taken_ns);
    what["version"] = json!(state.version);
    what["buckets"] = json!(state.buckets.len());
    what["targets"] = json!(targets);
    output::one(session.format, &state.cluster_id, &lines, &what)
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match file == Path::new(STREAM) {
        true => std::io::stdin().lock().read_to_end(&mut bytes)?,
        false => File::open(file)?.read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

/// Replaces the file by rename, so that it is never incomplete.
fn write(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let part = Part::beside(file);
    let mut to = File::create_new(part.path())?;
    to.write_all(bytes)?;
    to.sync_all()?;
    std::fs::rename(part.path(), file)
}
