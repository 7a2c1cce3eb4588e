//! `forebay ishard`: packs objects of a bucket into shards, as a job of the cluster.

use std::io::Write;
use std::path::Path;

use clap::{Args, ValueEnum};
use forebay_core::ishard::{self, Ekm, IshardSpec, KeyMode, Listing, Plan, ShardSize, Sort};
use forebay_core::job::JobStatus;
use forebay_core::size::ByteSize;
use forebay_core::{Error, ErrorCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{self, Column, Format, Row, Rows};
use crate::session::Session;
use crate::{job, uri};

#[derive(Debug, Args)]
#[command(
    after_help = "A sample consists of all files with the same key. By default the key is the
file's name up to its first dot, without its folders (see --key). A sample is
never split. In a shard, its files are named key.extension, as WebDataset reads
them. The same command over the same objects makes the same bytes on any
cluster. The whole output is planned and checked before the first write.

Examples:
  forebay ishard ais://imagenet ais://shards --create --wait
  forebay ishard s3://data/train/ ais://shards --size 64MiB --sort shuffle:7
  forebay ishard ais://raw ais://out --exts .jpg,.json --missing exclude
  forebay ishard ais://raw ais://out --template 'part-{0000..0099}'
  forebay ishard ais://raw ais://out --key full_name --collapse --dry-run
  forebay ishard ais://raw ais://out --ekm '{\"cats-%04d\": [\"/cat/\"]}'

Exit codes: 1 the data breaks a rule (duplicates, missing extensions), 2 usage
or too few names, 4 no such bucket or no objects, 6 a shard exists already,
8 the job failed or was cancelled."
)]
pub(crate) struct IshardArgs {
    /// The bucket to pack, optionally with a prefix
    #[arg(value_name = "SRC")]
    from: String,
    /// The bucket for the shards, optionally with a prefix for their names
    #[arg(value_name = "DST")]
    to: String,
    /// Size of a full shard: a number of samples (1000), or bytes of files (64MiB)
    #[arg(long, default_value = "128MiB")]
    size: ShardSize,
    /// Key of a sample: base_file_name, full_name, collapse_all_dir, or a regular expression
    /// with the key as group 1
    #[arg(long, default_value = "base_file_name", value_name = "MODE")]
    key: KeyMode,
    /// The dot at which the extension starts
    #[arg(long, default_value = "first", value_parser = ["first", "last"], value_name = "DOT")]
    ext_mode: String,
    /// Names of shards: shard-%06d, shard-{0000..0999} or shard-@0999
    #[arg(long, default_value = ishard::DEFAULT_TEMPLATE)]
    template: String,
    /// Format of the shards: .tar, .tgz, .tar.gz, .tar.lz4, .tar.zst or .zip
    #[arg(long, default_value = ".tar")]
    ext: String,
    /// Extensions that every sample should have, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    exts: Vec<String>,
    /// Ignore upper and lower case in --exts; only with --exts
    #[arg(long, requires = "exts")]
    ext_ignore_case: bool,
    /// Action for samples that lack one of --exts, and with files of other extensions; only
    /// with --exts
    #[arg(long, default_value = "ignore", requires = "exts", value_name = "ACTION",
        value_parser = ["ignore", "warn", "abort", "exclude"])]
    missing: String,
    /// Let samples of small folders share a shard with samples of the parent folder
    #[arg(long)]
    collapse: bool,
    /// Order of samples over all folders: alpha[:inc|dec] or shuffle[:SEED] [default: by folder,
    /// with separate shards for each]
    #[arg(long, value_name = "ORDER")]
    sort: Option<Sort>,
    /// Map from shard names to patterns of keys, which assigns samples to shards: JSON, or a file
    /// with it
    #[arg(long, value_name = "JSON")]
    ekm: Option<String>,
    /// Action for samples that match no pattern of --ekm; only with --ekm
    #[arg(long, default_value = "skip", requires = "ekm", value_name = "ACTION",
        value_parser = ["skip", "abort", "template"])]
    ekm_unmatched: String,
    /// Action for two files that get the same name in a sample
    #[arg(long, default_value = "abort", value_name = "ACTION",
        value_parser = ["abort", "keep-first", "rename"])]
    on_duplicate: String,
    /// Whether existing shards may be replaced
    #[arg(long, default_value = "never", value_name = "WHEN", value_parser = ["never", "always"])]
    overwrite: String,
    /// Create the destination bucket if it does not exist
    #[arg(long)]
    create: bool,
    /// Name of the list of shards, written last
    #[arg(long, default_value = ishard::DEFAULT_MANIFEST, value_name = "NAME")]
    manifest: String,
    /// Write no list of shards
    #[arg(long, conflicts_with = "manifest")]
    no_manifest: bool,
    /// Show the planned shards and write nothing; =keys shows every file with its key
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "shards",
        value_name = "WHAT")]
    dry_run: Option<DryRun>,
    /// Wait until the job ends
    #[arg(long)]
    wait: bool,
    /// Progress on standard error while waiting; auto shows a bar on a terminal, json writes one line
    /// per second
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    Shards,
    Keys,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    #[default]
    Auto,
    None,
    Json,
}

pub(crate) async fn run(session: &Session, args: &IshardArgs) -> Result<(), Failure> {
    let spec = spec(args)?;
    spec.check()?;
    if let Some(what) = args.dry_run {
        let plan = planned(session, &spec).await?;
        return show(session, &plan, what);
    }
    let id = session.client.start_ishard(&spec).await?;
    if args.wait || args.progress == Progress::Json {
        return wait_for(session, &id, args.progress).await;
    }
    session.note(format!("started; `forebay job wait {id}` waits for it"));
    match session.format {
        Format::Table => output::one(Format::Name, &id, &[], &Value::Null),
        format => output::one(format, &id, &[], &json!({ "id": id, "kind": "ishard" })),
    }
}

fn spec(args: &IshardArgs) -> Result<IshardSpec, Failure> {
    let (source, prefix) = uri::remote(&args.from)?;
    let (destination, destination_prefix) = uri::remote(&args.to)?;
    Ok(IshardSpec {
        prefix,
        destination_prefix,
        create: args.create,
        key: args.key.clone(),
        ext_mode: word(&args.ext_mode)?,
        size: args.size,
        template: args.template.clone(),
        ext: args.ext.clone(),
        sample_exts: args.exts.clone(),
        ext_ignore_case: args.ext_ignore_case,
        missing: word(&args.missing)?,
        collapse: args.collapse,
        sort: args.sort.unwrap_or_default(),
        ekm: args.ekm.as_deref().map(key_map).transpose()?.unwrap_or_default(),
        ekm_unmatched: word(&args.ekm_unmatched)?,
        on_duplicate: word(&args.on_duplicate)?,
        overwrite: word(&args.overwrite)?,
        manifest: if args.no_manifest { String::new() } else { args.manifest.clone() },
        ..IshardSpec::new(source, destination)
    })
}

/// Converts a word that clap has checked into its enum value.
pub(crate) fn word<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_value(Value::String(text.to_owned()))
        .map_err(|e| Error::invalid(format!("invalid choice \"{text}\": {e}")).into())
}

/// JSON itself, or a file of it.
fn key_map(text: &str) -> Result<Ekm, Failure> {
    if text.trim_start().starts_with('{') {
        return Ok(Ekm::parse(text)?);
    }
    let json = std::fs::read_to_string(Path::new(text)).map_err(|e| Failure::local(text, &e))?;
    Ok(Ekm::parse(&json)?)
}

/// The plan of the job; refused if the job would be refused.
async fn planned(session: &Session, spec: &IshardSpec) -> Result<Plan, Failure> {
    let mut listing = Listing::default();
    session
        .client
        .list_each(&spec.source, &spec.prefix, |name, size| listing.push(name, size))
        .await?;
    let plan = ishard::plan(spec, listing)?;
    match session.client.head_bucket(&spec.destination).await {
        Ok(_) => {
            let (prefix, outputs) = (plan.output_prefix(spec), plan.outputs(spec));
            let free = |name: &str, _| outputs.refuse(spec, name);
            session.client.list_each(&spec.destination, &prefix, free).await?;
        }
        Err(e) if e.code() == ErrorCode::BucketNotFound && spec.create => {}
        Err(e) => return Err(e.into()),
    }
    Ok(plan)
}

fn show(session: &Session, plan: &Plan, what: DryRun) -> Result<(), Failure> {
    let by_key = what == DryRun::Keys && !session.format.is_json();
    let shards = [
        Column("SHARD", false),
        Column("SAMPLES", true),
        Column("FILES", true),
        Column("BYTES", true),
    ];
    let keys = [
        Column("SHARD", false),
        Column("KEY", false),
        Column("SIZE", true),
        Column("OBJECT", false),
    ];
    let columns = if by_key { &keys } else { &shards };
    let mut rows = Rows::new(session.format, columns);
    for (index, shard) in plan.shards().enumerate() {
        if by_key {
            for (key, files) in plan.samples(index) {
                for file in files {
                    let size = ByteSize(file.size).to_string();
                    let cells =
                        vec![shard.name.into(), format!("[{key}]"), size, file.source.into()];
                    rows.push(Row { name: file.source.into(), cells, json: Value::Null })?;
                }
            }
            continue;
        }
        let cells = vec![
            shard.name.to_owned(),
            shard.samples.to_string(),
            shard.files.to_string(),
            ByteSize(shard.bytes).to_string(),
        ];
        let json = if session.format.is_json() { to_json(plan, index) } else { Value::Null };
        rows.push(Row { name: shard.name.to_owned(), cells, json })?;
    }
    rows.finish()?;
    plan.notes.iter().for_each(|note| session.note(note));
    let t = &plan.totals;
    session.note(format!(
        "{} shards of {} samples, {} files, {}; nothing was written",
        t.shards,
        t.samples,
        t.files,
        ByteSize(t.bytes)
    ));
    Ok(())
}

fn to_json(plan: &Plan, index: usize) -> Value {
    let shard = plan.shard(index);
    let samples = plan.samples(index);
    let members = samples.flat_map(|(key, files)| {
        files.into_iter().map(move |file| {
            json!({ "name": file.member, "size": file.size, "object": file.source, "key": key })
        })
    });
    json!({
        "shard": shard.name, "samples": shard.samples, "files": shard.files, "bytes": shard.bytes,
        "members": members.collect::<Vec<_>>(),
    })
}

pub(crate) async fn wait_for(session: &Session, id: &str, form: Progress) -> Result<(), Failure> {
    match form {
        Progress::Auto => job::wait_for(session, id).await,
        Progress::None | Progress::Json => {
            let tell = |job: &JobStatus| {
                if form == Progress::Json {
                    let line = json!({ "progress": job::to_json(job) });
                    let _ = writeln!(std::io::stderr(), "{line}");
                }
            };
            let ended = job::watch(session, id, tell).await?;
            job::show(session, &ended)?;
            job::verdict(&ended)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use clap::Parser;
    use forebay_core::ishard::{MissingAction, OnDuplicate, Overwrite};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: IshardArgs,
    }

    fn parsed(words: &[&str]) -> IshardArgs {
        let words = ["ishard", "ais://a/p/", "ais://b/q/"].iter().chain(words);
        Line::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).args
    }

    #[test]
    fn words_become_a_spec() {
        let plain = spec(&parsed(&[])).unwrap();
        let (source, prefix) = uri::remote("ais://a/p/").unwrap();
        let (destination, destination_prefix) = uri::remote("ais://b/q/").unwrap();
        let bare = IshardSpec::new(source, destination);
        assert_eq!(plain, IshardSpec { prefix, destination_prefix, ..bare });

        let all = parsed(&[
            "--size=10",
            "--key",
            "x/(.*)",
            "--exts",
            ".jpg,.xml",
            "--missing",
            "exclude",
            "--sort=shuffle:7",
            "--on-duplicate=keep-first",
            "--overwrite=always",
            "--no-manifest",
            "--ekm",
            r#"{"z-%d": "a", "b-%d": ["c"]}"#,
            "--dry-run=keys",
        ]);
        let made = spec(&all).unwrap();
        assert_eq!((made.size, made.missing), (ShardSize::Count(10), MissingAction::Exclude));
        assert_eq!((made.sort, made.overwrite), (Sort::Shuffle { seed: 7 }, Overwrite::Always));
        assert_eq!((made.on_duplicate, &*made.manifest), (OnDuplicate::KeepFirst, ""));
        assert_eq!(made.ekm.0[0].template, "z-%d");
        assert_eq!(all.dry_run, Some(DryRun::Keys));
        assert_eq!(parsed(&["--dry-run"]).dry_run, Some(DryRun::Shards));
    }

    #[test]
    fn words_that_make_no_sense_are_refused() {
        for bad in [
            &["--missing=abort"][..],
            &["--size=many"],
            &["--key=base_filname"],
            &["--sort=beta"],
            &["--on-duplicate=drop"],
            &["--ekm-unmatched=skip"],
        ] {
            let words = ["ishard", "ais://a", "ais://b"].iter().chain(bad);
            assert!(Line::try_parse_from(words).is_err(), "{bad:?}");
        }
    }
}
