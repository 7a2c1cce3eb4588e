//! `forebay cat`, `rm`, `stat`: single objects.

use clap::Args;
use forebay_core::bill::RequestClass;
use forebay_core::job::{JobKind, Selection};
use forebay_core::object::ObjectMeta;
use forebay_core::size::{ByteSize, RangeSpec};
use forebay_core::{Bucket, Error};
use futures::StreamExt;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::bucket::{backend_of, show_backend};
use crate::failure::{Failure, exit};
use crate::output::{self, Column, Format, Row, Rows, time, time_json};
use crate::session::Session;
use crate::{bucket_props, bucket_warmth};
use crate::{job, standard, uri};

/// Parses `a-b`, `a-` or `-n`, as in an HTTP range.
pub(crate) fn parse_range(text: &str) -> Result<RangeSpec, Error> {
    let bytes = text.strip_prefix("bytes=").unwrap_or(text);
    match RangeSpec::parse(&format!("bytes={bytes}")) {
        Ok(Some(range)) => Ok(range),
        _ => Err(Error::invalid(format!("invalid range \"{text}\"")).hint(
            "write 0-99 for the first hundred bytes, 100- from there on, -5 for the last five",
        )),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay cat ais://logs/today.txt
  forebay cat s3://data/model.bin --range 0-511 | xxd

Of several objects, those that cannot be read are left out; the exit code is 3.")]
pub(crate) struct CatArgs {
    /// Objects, for example ais://bucket/name
    #[arg(required = true, value_name = "URI")]
    objects: Vec<String>,
    /// Only these bytes: 0-99, 100- (from byte 100) or -5 (the last 5)
    #[arg(long, value_parser = parse_range, allow_hyphen_values = true, value_name = "A-B")]
    range: Option<RangeSpec>,
}

/// Writes objects to standard output; skips those that cannot be read.
pub(crate) async fn cat(session: &Session, args: &CatArgs) -> Result<(), Failure> {
    let objects: Vec<_> = args.objects.iter().map(|o| uri::object(o)).collect::<Result<_, _>>()?;
    let failed = |e: std::io::Error| Failure::local("standard output", &e);
    let mut out = standard::output().map_err(failed)?;
    let mut missing = 0;
    for (bucket, name) in &objects {
        let mut stream = match session.client.get(bucket, name, args.range).await {
            Ok(object) => object.stream,
            Err(e) if objects.len() > 1 && !e.is_transient() => {
                missing += 1;
                Failure::from(e).report(session.format.is_json());
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        while let Some(bytes) = stream.next().await {
            out.write_all(&bytes?).await.map_err(failed)?;
        }
    }
    out.flush().await.map_err(failed)?;
    in_part(session, "were not written", missing, objects.len())
}

/// The result of a command on several objects of which some failed and were reported.
fn in_part(session: &Session, what: &str, failed: usize, all: usize) -> Result<(), Failure> {
    if failed == 0 {
        return Ok(());
    }
    session.note(format!("{failed} of {all} {what}"));
    Err(Failure::silent(exit::PARTIAL))
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay rm ais://logs/old.txt
  forebay rm -r ais://logs/2024/ --yes     all objects with the prefix 2024/
  forebay rm -r ais://logs/2024/ --dry-run

Objects of a bucket with a backend are removed from the backend too;
`forebay evict` drops only the cached copies. A prefix is a text: logs/2 is the
beginning of logs/2024/x, too. If no object has the prefix, the exit code is 4.
If some of several objects cannot be removed, it is 3.")]
pub(crate) struct RemoveArgs {
    /// Objects; with -r, prefixes
    #[arg(required = true, value_name = "URI")]
    objects: Vec<String>,
    /// Remove all objects with these prefixes
    #[arg(short, long)]
    recursive: bool,
    /// List what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

/// Removes objects.
pub(crate) async fn remove(session: &Session, args: &RemoveArgs) -> Result<(), Failure> {
    if args.dry_run {
        return would_remove(session, args).await;
    }
    if args.recursive {
        let prefixes: Vec<_> =
            args.objects.iter().map(|o| uri::remote(o)).collect::<Result<_, _>>()?;
        session.confirm(&format!("remove everything under {}", args.objects.join(", ")))?;
        return remove_prefixes(session, prefixes).await;
    }
    let objects: Vec<_> = args.objects.iter().map(|o| uri::object(o)).collect::<Result<_, _>>()?;
    let many = objects.len() > 1;
    let mut removed = Rows::new(session.format, &[]);
    let mut failed = 0;
    for (bucket, name) in &objects {
        match session.client.delete(bucket, name).await {
            // For people it is a message on standard error, for programs a result.
            Ok(()) if session.format == Format::Table => {
                session.note(format!("removed {}", bucket.object_uri(name)));
            }
            Ok(()) => {
                let json = json!({"uri": bucket.object_uri(name), "removed": true});
                removed.push(Row { name: name.clone(), cells: Vec::new(), json })?;
            }
            Err(e) if many && !e.is_transient() => {
                failed += 1;
                Failure::from(e).report(session.format.is_json());
            }
            Err(e) => {
                removed.finish()?;
                return Err(e.into());
            }
        }
    }
    removed.finish()?;
    in_part(session, "were not removed", failed, objects.len())
}

/// Removes all objects with these prefixes, a prefix after the other; a failure ends it.
async fn remove_prefixes(
    session: &Session,
    prefixes: Vec<(Bucket, String)>,
) -> Result<(), Failure> {
    let mut removed = Rows::new(session.format, &[]);
    for (bucket, prefix) in prefixes {
        let what = format!("{prefix}*");
        let selection = Selection::Prefix(prefix);
        let id = session.client.start_job(JobKind::Delete, &bucket, &selection).await?;
        let done = job::ended(session, &id).await?;
        match session.format {
            Format::Table => job::show(session, &done)?,
            _ => {
                let json = job::to_json(&done);
                removed.push(Row { name: id, cells: Vec::new(), json })?;
            }
        }
        let mut result = job::verdict(&done);
        if result.is_ok() && done.objects == 0 {
            result = Err(bucket.object_not_found(&what).into());
        }
        if result.is_err() {
            removed.finish()?;
            return result;
        }
    }
    removed.finish()
}

/// Lists the objects that would be removed.
async fn would_remove(session: &Session, args: &RemoveArgs) -> Result<(), Failure> {
    let mut rows = Rows::new(session.format, &[Column("SIZE", true), Column("URI", false)]);
    for text in &args.objects {
        let (bucket, found) = if args.recursive {
            let (bucket, prefix) = uri::remote(text)?;
            let found = session.client.list_all(&bucket, &prefix).await?;
            if found.is_empty() {
                return Err(bucket.object_not_found(&format!("{prefix}*")).into());
            }
            (bucket, found)
        } else {
            let (bucket, name) = uri::object(text)?;
            let size = session.client.head(&bucket, &name).await?.size;
            (bucket, vec![(name, size)])
        };
        for (name, size) in found {
            let uri = bucket.object_uri(&name);
            let cells = vec![ByteSize(size).to_string(), uri.escape_debug().to_string()];
            let json = json!({ "uri": uri, "size": size, "removed": false });
            rows.push(Row { name: uri, cells, json })?;
        }
    }
    rows.finish()
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay stat ais://images/cat/1.jpg
  forebay stat s3://data -o json           properties of a bucket")]
pub(crate) struct StatArgs {
    /// An object or a bucket
    #[arg(value_name = "URI")]
    what: String,
}

/// Prints the properties of an object or a bucket.
pub(crate) async fn stat(session: &Session, args: &StatArgs) -> Result<(), Failure> {
    let (bucket, name) = uri::remote(&args.what)?;
    if name.is_empty() {
        return stat_bucket(session, &bucket).await;
    }
    let meta = session.client.head(&bucket, &name).await?;
    let uri = bucket.object_uri(&name);
    output::one(session.format, &name, &object_lines(&uri, &meta), &object_json(&uri, &name, &meta))
}

fn object_lines(uri: &str, meta: &ObjectMeta) -> Vec<(&'static str, String)> {
    let size = ByteSize(meta.size);
    let mut lines = vec![
        ("object", uri.to_owned()),
        (
            "size",
            if meta.size < 1024 {
                size.to_string()
            } else {
                format!("{size} ({} bytes)", meta.size)
            },
        ),
        ("cached", if meta.present { "yes" } else { "no" }.to_owned()),
    ];
    let mut add = |key, value: String| {
        if !matches!(value.as_str(), "" | "-") {
            lines.push((key, value));
        }
    };
    add("version", meta.version.clone());
    add("etag", meta.etag.clone());
    add(
        "checksum",
        meta.checksum
            .as_ref()
            .map_or(String::new(), |c| format!("{} {}", c.kind.as_str(), c.value)),
    );
    add("modified", time(meta.mtime_ns));
    add("accessed", time(meta.atime_ns));
    for (key, value) in &meta.custom {
        lines.push(("custom", format!("{key}={value}")));
    }
    lines
}

fn object_json(uri: &str, name: &str, meta: &ObjectMeta) -> serde_json::Value {
    json!({
        "uri": uri, "name": name, "size": meta.size, "cached": meta.present,
        "version": meta.version, "etag": meta.etag, "checksum": meta.checksum,
        "modified": time_json(meta.mtime_ns), "accessed": time_json(meta.atime_ns),
        "custom": meta.custom,
    })
}

pub(crate) async fn stat_bucket(session: &Session, bucket: &Bucket) -> Result<(), Failure> {
    let mut props = session.client.head_bucket(bucket).await?;
    let backend = backend_of(&props);
    let text = |key: &str| props.get(key).and_then(|v| v.as_str()).unwrap_or_default();
    let mut lines = vec![
        ("bucket", bucket.to_string()),
        (
            "backend",
            backend.as_ref().map_or("none: the objects live in this cluster".into(), show_backend),
        ),
        ("made", time(text("created").parse().unwrap_or(0))),
    ];
    lines.extend(bucket_props::lines(&props));
    if let Some(backend) = backend.filter(|backend| !RequestClass::of(backend.kind).is_empty()) {
        let bill = session.client.bucket_bill(bucket).await?;
        lines.extend(bucket_props::bill_lines(backend.kind, &bill));
        props["bill"] = json!(bill);
    }
    match session.client.bucket_warmth(bucket).await {
        Ok(reply) => {
            bucket_warmth::warn_of_missing(session, &reply);
            if let Some(warmth) = reply.buckets.first() {
                lines.extend(bucket_props::quota_line(&props, warmth));
                lines.extend(bucket_warmth::lines(warmth));
                props["warmth"] = bucket_warmth::json_of(warmth);
            }
        }
        // A gateway of an earlier version does not have it; the properties are shown all the same.
        Err(e) => session.warn(format!("warning: what is cached is not known: {}", e.message())),
    }
    output::one(session.format, &bucket.to_string(), &lines, &props)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_written_short_or_as_in_http() {
        assert_eq!(parse_range("0-99").unwrap(), RangeSpec::From(0, Some(99)));
        assert_eq!(parse_range("100-").unwrap(), RangeSpec::From(100, None));
        assert_eq!(parse_range("bytes=-5").unwrap(), RangeSpec::Suffix(5));
        for bad in ["", "5", "b-a", "9-1", "0-1,4-5"] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_properties_are_left_out() {
        let meta = ObjectMeta { size: 2048, present: true, ..ObjectMeta::default() };
        let lines = object_lines("ais://b/o", &meta);
        let keys: Vec<_> = lines.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["object", "size", "cached"]);
        assert_eq!(lines[1].1, "2KiB (2048 bytes)");
    }
}
