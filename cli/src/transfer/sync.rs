//! `forebay sync`: makes a prefix or a folder equal to another one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use forebay_core::checksum::ChecksumKind;
use forebay_core::object::ObjectMeta;
use forebay_core::{Bucket, Error, ErrorCode};
use futures::{StreamExt, stream};

use super::copy::checksum;
use super::filter::FilterArgs;
use super::run::{Plan, RunArgs, carry_out};
use super::select::as_folder;
use super::step::{Action, End, Step};
use crate::failure::Failure;
use crate::put::{Unsent, blocking, find};
use crate::session::Session;
use crate::uri::{self, Place};

/// Two times that are closer do not show which side was changed last: clouds give whole seconds, and
/// their clocks differ from the cluster's.
const DOUBTFUL_NS: u64 = 60_000_000_000;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay sync ./dataset ais://b/dataset
  forebay sync s3://data/train/ ais://copy/train --delete --dry-run
  forebay sync ais://b/results ./results --exclude '*.tmp'

Both sides are folders: ais://b/train is the prefix train/, and ais://b is all
of the bucket. Objects that TO lacks, or that differ, are copied. Objects and
files differ if their sizes differ, or else their checksums. A local file is
read for it. Where the cluster has no checksum to compare, a source that was
changed after its copy differs, and if both were changed within a minute, their
bytes are read and compared. --size-only compares sizes alone, and reads
nothing.

With --delete, objects and files of TO that FROM does not have are removed at
the end, after a question; --yes answers it. Paths that --exclude leaves out are
neither copied nor removed. After any error nothing is removed.

If FROM has nothing, the exit code is 4, and nothing is removed. If a part
cannot be copied, the exit code is 3. -o json lists each step, and the error of
each that failed. For a bucket with directory markers, add --exclude '*/' before
you sync it to a local folder.")]
pub(crate) struct SyncArgs {
    /// A bucket, a prefix or a local folder
    #[arg(value_name = "FROM")]
    from: String,
    /// A bucket, a prefix or a local folder
    #[arg(value_name = "TO")]
    to: String,
    /// Remove what TO has and FROM does not
    #[arg(long)]
    delete: bool,
    /// Compare sizes only
    #[arg(long)]
    size_only: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// One side of a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Side {
    Prefix(Bucket, String),
    Folder(PathBuf),
}

impl Side {
    fn parse(text: &str) -> Result<Self, Failure> {
        match Place::parse(text)? {
            Place::Remote(bucket, prefix) => Ok(Self::Prefix(bucket, as_folder(&prefix))),
            Place::Local(path) => Ok(Self::Folder(path)),
            Place::Stream => Err(Failure::usage("sync takes no stream", "name a folder")),
        }
    }

    /// The end of a path below this side; `None` if no file can have this name.
    fn end(&self, path: &str) -> Option<End> {
        match self {
            Self::Prefix(bucket, prefix) => {
                Some(End::Object(bucket.clone(), format!("{prefix}{path}")))
            }
            Self::Folder(folder) => uri::path_below(path).map(|path| End::File(folder.join(path))),
        }
    }

    /// Paths below this side with their sizes, in the order of names, and messages about files that
    /// cannot be used.
    async fn list(&self, session: &Session) -> Result<(Vec<(String, u64)>, Vec<String>), Failure> {
        match self {
            Self::Prefix(bucket, prefix) => {
                let all = session.client.list_all(bucket, prefix).await?;
                let below = |name: String| name.get(prefix.len()..).unwrap_or_default().to_owned();
                // The marker of the folder itself has no name below it.
                let all = all.into_iter().map(|(name, size)| (below(name), size));
                Ok((all.filter(|(path, _)| !path.is_empty()).collect(), Vec::new()))
            }
            Self::Folder(folder) => {
                let folder = folder.clone();
                let (files, problems) = blocking(move || find(&folder, "")).await?;
                Ok((files.into_iter().map(|file| (file.name, file.size)).collect(), problems))
            }
        }
    }
}

/// Makes TO equal to FROM.
pub(crate) async fn sync(session: &Session, args: &SyncArgs) -> Result<(), Failure> {
    let (from, to) = (Side::parse(&args.from)?, Side::parse(&args.to)?);
    check_sides(&from, &to)?;
    let plan = compare(session, args, &from, &to).await?;
    if !plan.removals.is_empty() && !args.run.dry_run {
        let many = plan.removals.len();
        session.confirm(&format!("remove {many} objects that {} does not have", args.from))?;
    }
    carry_out(session, plan, args.run).await
}

fn check_sides(from: &Side, to: &Side) -> Result<(), Failure> {
    match (from, to) {
        (Side::Folder(_), Side::Folder(_)) => Err(Failure::usage(
            "neither FROM nor TO is in a bucket",
            "write one of them with a scheme: ais://bucket/prefix",
        )),
        (Side::Prefix(a, from), Side::Prefix(b, to))
            if a == b && (from.starts_with(to.as_str()) || to.starts_with(from.as_str())) =>
        {
            Err(Failure::usage("one of FROM and TO lies in the other", "use another prefix"))
        }
        _ => Ok(()),
    }
}

async fn compare(
    session: &Session,
    args: &SyncArgs,
    from: &Side,
    to: &Side,
) -> Result<Plan, Failure> {
    let (sources, problems) = from.list(session).await?;
    let sources: Vec<_> = sources.into_iter().filter(|(path, _)| args.filter.takes(path)).collect();
    if sources.is_empty() && problems.is_empty() {
        let e = Error::new(ErrorCode::ObjectNotFound, format!("nothing matches {}", args.from));
        return Err(e.hint("nothing was copied or removed").into());
    }
    let (mut there, unusable) = match to {
        Side::Folder(folder) if !folder.exists() => (HashMap::new(), Vec::new()),
        to => {
            let (all, unusable) = to.list(session).await?;
            (all.into_iter().collect::<HashMap<_, _>>(), unusable)
        }
    };
    let mut plan = Plan { problems, ..Plan::default() };
    plan.problems.extend(unusable);
    let mut alike = Vec::new();
    for (path, size) in sources {
        let (Some(source), Some(end)) = (from.end(&path), to.end(&path)) else {
            plan.problems.push(format!("{path}: no file can have this name"));
            there.remove(&path);
            continue;
        };
        match there.remove(&path) {
            None => plan.steps.push(copy(source, end, size, "missing")),
            Some(other) if other != size => plan.steps.push(copy(source, end, size, "size")),
            Some(_) if args.size_only => plan.unchanged += 1,
            Some(_) => alike.push((source, end, size)),
        }
    }
    let mut comparing =
        stream::iter(alike)
            .map(|(from, to, size)| async move {
                (difference(session, &from, &to).await, from, to, size)
            })
            .buffered(args.run.jobs());
    while let Some((found, from, to, size)) = comparing.next().await {
        match found {
            Ok(None) => plan.unchanged += 1,
            Ok(Some(reason)) => plan.steps.push(copy(from, to, size, reason)),
            Err(e) if e.will_repeat() => return Err(e.into_failure()),
            Err(e) => {
                let text = e.into_failure().error.map_or_else(String::new, |e| e.to_string());
                plan.problems.push(format!("{from}: {text}"));
            }
        }
    }
    drop(comparing);
    if args.delete {
        let mut extra: Vec<_> =
            there.into_iter().filter(|(path, _)| args.filter.takes(path)).collect();
        extra.sort();
        plan.removals =
            extra.into_iter().filter_map(|(path, size)| removal(to, &path, size)).collect();
    }
    Ok(plan)
}

fn copy(from: End, to: End, size: u64, reason: &'static str) -> Step {
    Step { action: Action::Copy, from, to: Some(to), size, reason: Some(reason) }
}

fn removal(side: &Side, path: &str, size: u64) -> Option<Step> {
    let from = side.end(path)?;
    Some(Step { action: Action::Remove, from, to: None, size, reason: Some("extra") })
}

/// Why two ends of one size differ; `None` if they are equal.
async fn difference(
    session: &Session,
    from: &End,
    to: &End,
) -> Result<Option<&'static str>, Unsent> {
    let (source, copy) = (known(session, from).await?, known(session, to).await?);
    let pair = match (&source.checksum, &copy.checksum) {
        (Some(a), Some(b)) if a.kind == b.kind => Some((a.clone(), b.clone())),
        (Some(a), _) if matches!(to, End::File(_)) => {
            Some((a.clone(), checksum(session, to, a.kind).await?))
        }
        (_, Some(b)) if matches!(from, End::File(_)) => {
            Some((checksum(session, from, b.kind).await?, b.clone()))
        }
        _ => None,
    };
    if let Some((a, b)) = pair {
        let equal = a.value.eq_ignore_ascii_case(&b.value);
        return Ok((!equal).then_some("checksum"));
    }
    if !source.etag.is_empty() && source.etag == copy.etag {
        return Ok(None);
    }
    if source.mtime_ns.abs_diff(copy.mtime_ns) > DOUBTFUL_NS {
        return Ok((source.mtime_ns > copy.mtime_ns).then_some("modified"));
    }
    let kind = ChecksumKind::default();
    let (a, b) = (checksum(session, from, kind).await?, checksum(session, to, kind).await?);
    Ok((a != b).then_some("checksum"))
}

/// The properties of an end; those of a file are its size and its time of modification.
async fn known(session: &Session, end: &End) -> Result<ObjectMeta, Unsent> {
    match end {
        End::Object(bucket, name) => {
            let head = session.client.head(bucket, name).await;
            let mut meta = head.map_err(|e| Unsent::Cluster(e.into()))?;
            meta.checksum = meta.checksum.filter(|sum| sum.kind != ChecksumKind::None);
            Ok(meta)
        }
        End::File(path) => {
            of_file(path).await.map_err(|e| Unsent::File(Failure::local(path.display(), &e)))
        }
    }
}

async fn of_file(path: &Path) -> std::io::Result<ObjectMeta> {
    let meta = tokio::fs::metadata(path).await?;
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mtime_ns = meta.modified().map_or(0, |time| since(time).as_nanos() as u64);
    Ok(ObjectMeta { size: meta.len(), mtime_ns, ..ObjectMeta::default() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sides(from: &str, to: &str) -> bool {
        check_sides(&Side::parse(from).unwrap(), &Side::parse(to).unwrap()).is_ok()
    }

    #[test]
    fn a_side_never_lies_in_the_other() {
        assert!(sides("ais://b/train", "ais://b/train-2") && sides("ais://b/a", "ais://c/a"));
        assert!(!sides("ais://b/a", "ais://b/a/b") && !sides("ais://b", "ais://b/x"));
        assert!(!sides("./a", "./b") && sides("./a", "ais://b"));
    }

    #[test]
    fn a_prefix_is_a_folder_with_and_without_its_slash() {
        let side = Side::parse("ais://b/train").unwrap();
        assert_eq!(side, Side::parse("ais://b/train/").unwrap());
        assert_eq!(side.end("x/1").unwrap().to_string(), "ais://b/train/x/1");
        assert!(Side::parse("./to").unwrap().end("../x").is_none());
    }
}
