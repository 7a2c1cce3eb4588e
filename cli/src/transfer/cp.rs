//! `forebay cp` and `mv`: objects to other names and buckets, and to and from local files.

use clap::Args;

use super::filter::FilterArgs;
use super::run::{RunArgs, carry_out};
use super::select::{Request, select};
use super::step::Action;
use crate::failure::Failure;
use crate::session::Session;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay cp ais://b/cat/1.jpg ais://c/new.jpg     inside the cluster
  forebay cp ais://b/1.jpg ais://b/2.jpg s3://data/copies/
  forebay cp -r ais://b/train/ s3://data/train     to a bucket of a cloud
  forebay cp -r ./dataset ais://b/train --include '*.jpg' --dry-run
  forebay cp -r ais://b/train/ ./train             from a bucket to a folder

The names of the copies:
  cp ais://b/cat/1.jpg ais://c/new.jpg     new.jpg
  cp ais://b/cat/1.jpg ais://c/pics/       pics/1.jpg
  cp -r ais://b/cat/ ais://c/pics          pics/1.jpg and pics/sub/2.jpg
  cp -r ais://b/cat ais://c/pics           pics/cat/1.jpg, pics/category/3.jpg
  cp -r dir ais://c/pics                   pics/a for dir/a

A prefix is a text, not a folder; its part up to the last / is left out of the
names. Several sources need a folder, a bucket, or a prefix that ends in /; then
local folders keep their names. An object or a file that exists is replaced. If
two sources would become one object, or a copy would replace another source,
nothing is copied, and the exit code is 2.

From bucket to bucket the targets copy, and no byte passes this machine; custom
metadata goes along. --include and --exclude match the path below the source:
'*' is any text, also with slashes.

If no source matches, the exit code is 4. If a part of the sources cannot be
copied, it is 3, and the others are copied.")]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    what: TransferArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay mv ais://b/old.bin ais://b/new.bin
  forebay mv -r ais://b/run-7/ ais://archive/run-7
  forebay mv -r ./results ais://b/results --exclude '*.tmp' --dry-run

Each object is copied, the copy is compared with the source by size and
checksum, and the source is removed then. If anything fails, or the source
changed meanwhile, the source stays. Names are those of `forebay cp`. Local
folders stay, empty.

If no source matches, the exit code is 4. If a part of the sources cannot be
moved, it is 3, and the others are moved.")]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    what: TransferArgs,
}

#[derive(Debug, Args)]
struct TransferArgs {
    /// Objects, prefixes (with -r), files, or folders (with -r)
    #[arg(value_name = "FROM", required = true)]
    from: Vec<String>,
    /// An object, a prefix that ends in /, a bucket, a file or a folder
    #[arg(value_name = "TO")]
    to: String,
    /// Take all objects with the prefix, or all files below the folder
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// Copies objects and files.
pub(crate) async fn copy(session: &Session, args: &CopyArgs) -> Result<(), Failure> {
    transfer(session, &args.what, Action::Copy).await
}

/// Moves objects and files.
pub(crate) async fn move_all(session: &Session, args: &MoveArgs) -> Result<(), Failure> {
    transfer(session, &args.what, Action::Move).await
}

async fn transfer(session: &Session, args: &TransferArgs, action: Action) -> Result<(), Failure> {
    if !args.recursive && !args.filter.is_empty() {
        return Err(Failure::usage(
            "--include and --exclude choose among many objects",
            "add -r to take all objects with a prefix, or all files of a folder",
        ));
    }
    let request = Request {
        action,
        from: &args.from,
        to: &args.to,
        recursive: args.recursive,
        filter: &args.filter,
    };
    let plan = select(session, &request).await?;
    carry_out(session, plan, args.run).await
}
