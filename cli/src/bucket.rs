//! `forebay mb`, `rb`, `ls`: create, remove and list buckets.

use std::path::{Path, PathBuf};

use clap::Args;
use forebay_core::bucket::{BackendKind, BackendSpec, implied_backend};
use forebay_core::list_columns::ColumnRow;
use forebay_core::origin::Origin;
use forebay_core::size::ByteSize;
use forebay_core::{Bucket, Error, ErrorCode, Provider};
use forebay_v1::list::{ListMsg, MAX_PAGE, entry_flags, flags};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{self, Column, Row, Rows};
use crate::session::Session;
use crate::uri::{self, Listing};
use crate::watch::WatchArgs;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay mb ais://scratch                       a bucket of this cluster
  forebay mb ais://images --folder /data/images  a cache of a shared folder
  forebay mb s3://my-bucket                      a cache of a bucket in S3
  forebay mb gs://my-bucket                      of a bucket in Google Cloud
  forebay mb az://my-container                   of a container in Azure
  forebay mb s3://#prod/data --account prod      of a bucket in another account
  forebay mb ht://set --url https://host/data    of files on a web server

The objects of a cached bucket stay in their backend.")]
pub(crate) struct MakeArgs {
    /// The bucket, for example ais://images
    #[arg(value_name = "URI")]
    bucket: String,
    /// Cache the files of this folder. Every target needs it at this path, below one of its folder
    /// roots (`folder.roots`, or --folder-root of `serve` and `dev`)
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,
    /// Cache the files below this URL. A bucket written as `ht://` gets a name made from the URL
    #[arg(long, value_name = "URL", conflicts_with = "folder")]
    url: Option<String>,
    /// Call the cloud with this account of the targets' configuration (`[[cloud]]`)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["folder", "url"])]
    account: Option<String>,
    /// Region of a bucket in S3; found out if absent
    #[arg(long, value_name = "REGION", conflicts_with_all = ["folder", "url"])]
    region: Option<String>,
}

/// Creates a bucket.
pub(crate) async fn make(session: &Session, args: &MakeArgs) -> Result<(), Failure> {
    let origin = args.url.as_deref().map(Origin::parse).transpose()?;
    let bucket = match &origin {
        Some(origin) if uri::provider(&args.bucket) == Some(Provider::Ht) => origin.bucket()?,
        _ => uri::bucket(&args.bucket)?,
    };
    let backend = match (origin, args.folder.as_deref()) {
        (Some(origin), _) => Some(origin_backend(&bucket, &origin)?),
        (None, Some(folder)) => Some(folder_backend(&bucket, folder)?),
        (None, None) if args.account.is_some() || args.region.is_some() => {
            Some(cloud_backend(&bucket, args)?)
        }
        (None, None) => None,
    };
    session.client.create_bucket(&bucket, backend).await?;
    let json = json!({ "bucket": bucket.to_string() });
    output::one(session.format, &bucket.to_string(), &[("made", bucket.to_string())], &json)
}

fn cloud_backend(bucket: &Bucket, args: &MakeArgs) -> Result<BackendSpec, Failure> {
    let Some(backend) = implied_backend(bucket) else {
        return Err(Failure::usage(
            format!("{bucket} is no bucket of a cloud and cannot have --account or --region"),
            format!("name it s3://{0}, gs://{0} or az://{0}", bucket.name),
        ));
    };
    Ok(BackendSpec { account: args.account.clone(), region: args.region.clone(), ..backend })
}

fn origin_backend(bucket: &Bucket, origin: &Origin) -> Result<BackendSpec, Failure> {
    match bucket.provider {
        Provider::Ht | Provider::Ais => Ok(origin.backend()),
        _ => Err(Failure::usage(
            format!("{bucket} is a bucket of a cloud and cannot have --url"),
            format!("name it ht://{}", bucket.name),
        )),
    }
}

fn folder_backend(bucket: &Bucket, folder: &Path) -> Result<BackendSpec, Failure> {
    if bucket.is_remote() {
        return Err(Failure::usage(
            format!("{bucket} is a bucket of a cloud and cannot have --folder"),
            format!("name it ais://{}", bucket.name),
        ));
    }
    // The targets open the folder, so it need not exist here; but a relative path is relative to
    // here.
    let path = std::path::absolute(folder)
        .map_err(|e| Failure::local(format!("--folder {}", folder.display()), &e))?;
    let Some(root) = path.to_str() else {
        return Err(Error::invalid(format!("--folder {} is not UTF-8", path.display())).into());
    };
    let root = Some(root.to_owned());
    Ok(BackendSpec { root, ..BackendSpec::new(BackendKind::Folder, "") })
}

#[derive(Debug, Args)]
#[command(after_help = "For a bucket with a backend, only the cached copies are removed. A native
bucket must be empty; with --force its objects are removed with it.

Example:
  forebay rb ais://scratch --force --yes")]
pub(crate) struct RemoveArgs {
    /// The bucket, for example ais://scratch
    #[arg(value_name = "URI")]
    bucket: String,
    /// Remove a native bucket together with its objects
    #[arg(long)]
    force: bool,
}

/// Removes a bucket.
pub(crate) async fn remove(session: &Session, args: &RemoveArgs) -> Result<(), Failure> {
    let bucket = uri::bucket(&args.bucket)?;
    if bucket.is_remote() {
        session.client.evict_bucket(&bucket, false).await?;
    } else {
        let props = session.client.head_bucket(&bucket).await?;
        if backend_of(&props).is_none() && !is_empty(session, &bucket).await? {
            if !args.force {
                let e = Error::new(ErrorCode::BucketNotEmpty, format!("{bucket} is not empty"));
                let hint = format!("forebay rb {bucket} --force removes it with its objects");
                return Err(e.hint(hint).into());
            }
            session.confirm(&format!("remove {bucket} with all its objects"))?;
        }
        session.client.destroy_bucket(&bucket).await?;
    }
    let json = json!({ "bucket": bucket.to_string() });
    output::one(session.format, &bucket.to_string(), &[("removed", bucket.to_string())], &json)
}

async fn is_empty(session: &Session, bucket: &Bucket) -> Result<bool, Failure> {
    let msg = ListMsg { page_size: 1, props: "name".into(), ..ListMsg::default() };
    Ok(session.client.list_page(bucket, &msg).await?.entries.is_empty())
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay ls                       all buckets
  forebay ls s3://                 all buckets in S3
  forebay ls ais://images/cat/     objects whose names start with cat/
  forebay ls s3://data --cached    only objects with a copy in the cluster
  forebay ls s3://data --fresh     a new listing from the cloud
  forebay ls ais://images -o name | wc -l")]
pub(crate) struct ListArgs {
    /// A bucket, optionally with a prefix; all buckets if absent
    #[arg(value_name = "URI")]
    what: Option<String>,
    /// List only objects that have their bytes in the cluster
    #[arg(long)]
    cached: bool,
    /// List the cloud again instead of using a cached listing (see `cloud.list_max_age_ms`)
    #[arg(long, conflicts_with = "cached")]
    fresh: bool,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Lists buckets or objects.
pub(crate) async fn list(session: &Session, args: &ListArgs) -> Result<(), Failure> {
    args.watch.run(session, async || list_once(session, args).await).await
}

async fn list_once(session: &Session, args: &ListArgs) -> Result<(), Failure> {
    match Listing::parse(args.what.as_deref())? {
        Listing::Buckets(provider) => {
            let columns = [Column("BUCKET", false), Column("BACKEND", false)];
            let mut rows = Rows::new(session.format, &columns);
            let map = session.client.map().await?;
            for bucket in session.client.list_buckets(provider).await? {
                let backend = map.state.bucket(&bucket).ok().and_then(|b| b.backend.as_ref());
                let name = bucket.to_string();
                let cells = vec![name.clone(), backend.map_or("-".into(), show_backend)];
                let json = json!({ "bucket": name, "name": bucket.name,
                    "provider": bucket.provider, "backend": backend });
                rows.push(Row { name, cells, json })?;
            }
            rows.finish()
        }
        Listing::Objects(bucket, prefix) if args.cached => {
            list_cached(session, &bucket, prefix).await
        }
        Listing::Objects(bucket, prefix) => list_objects(session, &bucket, &prefix, args).await,
    }
}

const OBJECT_COLUMNS: [Column; 3] =
    [Column("SIZE", true), Column("CACHED", false), Column("NAME", false)];

fn object_row(name: &str, size: u64, present: bool) -> Row {
    let mark = if present { "yes" } else { "no" };
    let cells = vec![ByteSize(size).to_string(), mark.into(), name.escape_debug().to_string()];
    let json = json!({ "name": name, "size": size, "cached": present });
    Row { name: name.to_owned(), cells, json }
}

/// All objects, as one stream: requests many pages of a cloud's listing concurrently.
async fn list_objects(
    session: &Session,
    bucket: &Bucket,
    prefix: &str,
    args: &ListArgs,
) -> Result<(), Failure> {
    let mut rows = Rows::new(session.format, &OBJECT_COLUMNS);
    let client = if args.fresh { &session.fresh()? } else { &session.client };
    let mut unwritten = None;
    let listed = client.list_blocks(bucket, prefix, |block| {
        let write = |row: ColumnRow<'_>| rows.push(object_row(row.name, row.size, row.present));
        block.rows().try_for_each(write).map_err(|e| {
            unwritten = Some(e);
            Error::internal("nobody reads the listing")
        })
    });
    let listed = listed.await;
    match unwritten {
        Some(e) => Err(e),
        None => {
            listed?;
            rows.finish()
        }
    }
}

async fn list_cached(session: &Session, bucket: &Bucket, prefix: String) -> Result<(), Failure> {
    let mut rows = Rows::new(session.format, &OBJECT_COLUMNS);
    let mut msg = ListMsg {
        prefix,
        page_size: MAX_PAGE,
        props: "name,size,cached".into(),
        flags: flags::CACHED,
        ..ListMsg::default()
    };
    loop {
        let page = session.client.list_page(bucket, &msg).await?;
        for entry in page.entries {
            let present = entry.flags & entry_flags::PRESENT != 0;
            let mut row = object_row(&entry.name, entry.size, present);
            if !present {
                row.cells[1] = "in part".into();
            }
            rows.push(row)?;
        }
        if page.token.is_empty() || page.token == msg.token {
            return rows.finish();
        }
        (msg.uuid, msg.token) = (page.uuid, page.token);
    }
}

/// The backend among a bucket's properties.
pub(crate) fn backend_of(props: &Value) -> Option<BackendSpec> {
    props.get("backend").and_then(|backend| serde_json::from_value(backend.clone()).ok())
}

/// A backend in one word.
pub(crate) fn show_backend(backend: &BackendSpec) -> String {
    let kind = match backend.kind {
        BackendKind::Folder => {
            return format!("folder {}", backend.root.as_deref().unwrap_or("?"));
        }
        BackendKind::Http => {
            return format!("http {}", backend.endpoint.as_deref().unwrap_or("?"));
        }
        BackendKind::Ais => "ais",
        BackendKind::S3 => "s3",
        BackendKind::Gcs => "gcs",
        BackendKind::Azure => "azure",
    };
    let mut shown = format!("{kind} {}", backend.bucket);
    let more =
        [("at", &backend.endpoint), ("account", &backend.account), ("region", &backend.region)];
    for (word, value) in more {
        if let Some(value) = value {
            shown.push_str(&format!(" {word} {value}"));
        }
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_for_native_buckets_and_becomes_absolute() {
        let native = Bucket::new(Provider::Ais, "b").unwrap();
        let cloud = Bucket::new(Provider::Aws, "b").unwrap();
        let spec = folder_backend(&native, Path::new("some/where")).unwrap();
        assert!(Path::new(spec.root.as_deref().unwrap()).is_absolute());
        assert_eq!(folder_backend(&cloud, Path::new("/x")).unwrap_err().code, 2);
        let props = json!({ "backend": spec, "provider": "ais" });
        assert_eq!(backend_of(&props).unwrap(), spec);
        assert!(show_backend(&spec).starts_with("folder /"));
    }
}
