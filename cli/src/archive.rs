//! `forebay archive`: the members of shards (TAR and ZIP archives that are objects).

use clap::{Args, Subcommand};
use forebay_core::ObjectName;
use forebay_core::size::ByteSize;
use serde_json::json;

use crate::failure::Failure;
use crate::get::{Source, get_one};
use crate::output::{Column, Row, Rows};
use crate::session::Session;
use crate::transfer::Pattern;
use crate::uri::{self, Place};

#[derive(Debug, Subcommand)]
pub(crate) enum ArchiveCommand {
    /// List the members of a shard
    #[command(after_help = "Examples:
  forebay archive ls ais://shards/train-0001.tar
  forebay archive ls s3://data/set.zip --name '*.jpg' -o json

Shards are .tar, .tgz, .tar.gz, .tar.lz4, .tar.zst and .zip. Members are in the
order of the archive. A shard that is not in the cluster is fetched for it.")]
    Ls(ListArgs),
    /// Download one member of a shard
    #[command(after_help = "Examples:
  forebay archive get ais://shards/a.tar cat/1.jpg        into ./1.jpg
  forebay archive get ais://shards/a.tar cat/1.jpg x.jpg
  forebay archive get ais://shards/a.tar labels.json - | head

If several members have this name, the first is taken. A file that exists is
replaced when the whole member has arrived. Without such a member, the exit code
is 4. All members at once: forebay get ais://shards/a.tar - | tar x")]
    Get(GetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The shard
    #[arg(value_name = "URI")]
    shard: String,
    /// Only members whose names match this pattern, or one of several; * is any text
    #[arg(long, value_name = "PATTERN")]
    name: Vec<Pattern>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The shard
    #[arg(value_name = "URI")]
    shard: String,
    /// Name of the member in the shard
    #[arg(value_name = "MEMBER")]
    member: String,
    /// A file, a folder, or - for standard output
    #[arg(value_name = "TO", default_value = ".")]
    to: String,
}

pub(crate) async fn run(session: &Session, command: &ArchiveCommand) -> Result<(), Failure> {
    match command {
        ArchiveCommand::Ls(args) => list(session, args).await,
        ArchiveCommand::Get(args) => get(session, args).await,
    }
}

async fn list(session: &Session, args: &ListArgs) -> Result<(), Failure> {
    let (bucket, name) = uri::object(&args.shard)?;
    let index = session.client.shard_index(&bucket, &ObjectName::new(name)?).await?;
    let columns = [Column("SIZE", true), Column("OFFSET", true), Column("NAME", false)];
    let mut rows = Rows::new(session.format, &columns);
    let wanted = |name: &str| args.name.is_empty() || args.name.iter().any(|p| p.matches(name));
    for (name, offset, size) in index.members.into_iter().filter(|(name, ..)| wanted(name)) {
        let shown = name.escape_debug().to_string();
        let cells = vec![ByteSize(size).to_string(), offset.to_string(), shown];
        let json = json!({ "name": name, "size": size, "offset": offset });
        rows.push(Row { name, cells, json })?;
    }
    rows.finish()
}

async fn get(session: &Session, args: &GetArgs) -> Result<(), Failure> {
    let (bucket, name) = uri::object(&args.shard)?;
    let to = match Place::parse(&args.to)? {
        Place::Stream => None,
        Place::Local(path) => Some(path),
        Place::Remote(..) => {
            let text = format!("\"{}\" is not a local file", args.to);
            return Err(Failure::usage(text, "a member is downloaded into a file"));
        }
    };
    let member = args.member.as_str();
    let source = Source { member: Some(member), ..Source::object(&bucket, &name) };
    let uri = format!("{}/{member}", bucket.object_uri(&name));
    get_one(session, &source, &uri, to).await
}
