//! `forebay dsort`: sorts or shuffles the records of shards into new shards, as a job of the
//! cluster.

use std::str::FromStr;

use clap::Args;
use forebay_core::dsort::{
    self, Algorithm, DsortSpec, InputFormat, KeyMap, KeyMapAt, KeyMapSource, Memory, Overwrite,
    Plan, Reaction, Reactions,
};
use forebay_core::size::ByteSize;
use forebay_core::{Error, ErrorCode, Result};
use forebay_v1::dsort::{request_json, requested};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::ishard::{DryRun, Progress, wait_for, word};
use crate::output::{self, Column, Format, Row, Rows};
use crate::session::Session;
use crate::uri::{self, Place};

#[derive(Debug, Args)]
#[command(
    after_help = "A record consists of all members with the same key in one input shard. The key
is the member's name up to the first dot of its last component. A record is
never split. Members are copied directly from the input shards. The output
becomes visible when all of it is written.

SRC is a bucket or a prefix (every archive there), or a template with a range.

Examples:
  forebay dsort ais://shards ais://shuffled --sort shuffle:7 --wait
  forebay dsort 'ais://in/train-{0000..0099}.tar' ais://out/ --size 256MiB
  forebay dsort ais://in ais://out --sort content:.cls:int:dec
  forebay dsort ais://in ais://out --template 'part-{000..999}'
  forebay dsort ais://in ais://zipped --sort none --output-ext .zip
  forebay dsort ais://in ais://out --ekm classes.tsv --dry-run
  forebay dsort --spec spec.json --wait

Exit codes: 1 the data breaks a rule (duplicates, missing keys), 2 usage or too
few names, 4 no such bucket or no shards, 6 a shard exists already, 8 the job
failed or was cancelled."
)]
pub(crate) struct DsortArgs {
    /// Input shards
    #[arg(value_name = "SRC", required_unless_present = "spec")]
    from: Option<String>,
    /// The bucket for the shards, optionally with a prefix for their names
    #[arg(value_name = "DST", required_unless_present = "spec")]
    to: Option<String>,
    /// The whole request in AIStore's JSON form: a file, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "to"])]
    spec: Option<String>,
    /// Names of the input shards in SRC, separated by commas [default: all shards in SRC]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    names: Vec<String>,
    /// Format of the input shards, by their extension [default: any]
    #[arg(long, value_name = "EXT")]
    input_ext: Option<String>,
    /// Format of the output shards, by their extension [default: the format of the input]
    #[arg(long, value_name = "EXT")]
    output_ext: Option<String>,
    /// Names of the output shards: shard-%06d, shard-{0000..0999} or shard-@0999
    #[arg(long, default_value = forebay_core::ishard::DEFAULT_TEMPLATE)]
    template: String,
    /// Size of an output shard, in bytes of members
    #[arg(long, default_value = "128MiB", value_name = "BYTES")]
    size: String,
    /// Order of the records: alpha, none, md5, shuffle[:SEED] or content:.EXT:int|float|string; :dec
    /// at the end reverses the order
    #[arg(long, default_value = "alpha", value_name = "ORDER")]
    sort: Sort,
    /// Map that assigns records to shards: JSON, or a file, an object or a URL that has it
    #[arg(long, value_name = "MAP", conflicts_with = "template")]
    ekm: Option<String>,
    /// Separator of key and template on a line of the map; only with --ekm [default: a tab]
    #[arg(long, requires = "ekm", default_value = "", value_name = "TEXT")]
    ekm_sep: String,
    /// Action for malformed lines of the map: ignore, warn or abort
    #[arg(long, default_value = "abort", value_name = "ACTION")]
    ekm_malformed_line: Reaction,
    /// Action for records that the map does not name: ignore, warn or abort. They are left out
    /// of the output
    #[arg(long, default_value = "abort", value_name = "ACTION")]
    ekm_missing_key: Reaction,
    /// Action for two members of the same name in one input shard: ignore, warn or abort
    #[arg(long, default_value = "abort", value_name = "ACTION")]
    duplicated_records: Reaction,
    /// Action for input shards that do not exist: ignore, warn or abort
    #[arg(long, default_value = "ignore", value_name = "ACTION")]
    missing_shards: Reaction,
    /// Most memory for the index of records on one target: a percentage of its memory, or bytes
    #[arg(long, default_value = "80%", value_name = "MEMORY")]
    max_mem: Memory,
    /// Accepted for compatibility with AIStore; it has no effect
    #[arg(long, default_value_t = 0, value_name = "N")]
    extract_limit: u32,
    /// Most output shards that one target writes at once; 0: automatic
    #[arg(long, default_value_t = 0, value_name = "N")]
    create_limit: u32,
    /// How long to retry a shard without progress: 10m, 90s
    #[arg(long, value_name = "TIME")]
    shard_timeout: Option<String>,
    /// Whether existing shards may be replaced
    #[arg(long, default_value = "never", value_name = "WHEN", value_parser = ["never", "always"])]
    overwrite: String,
    /// Create the destination bucket if it does not exist
    #[arg(long)]
    create: bool,
    /// Description of the job, shown in lists of jobs
    #[arg(long, default_value = "", value_name = "TEXT")]
    description: String,
    /// Show the planned shards and write nothing; =keys shows every member with its record
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

/// An order in the form of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sort {
    algorithm: Algorithm,
    decreasing: bool,
}

impl FromStr for Sort {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(format!("unknown order \"{text}\"")).hint(
                "one of alpha, none, md5, shuffle, shuffle:SEED, content:.EXT:int (or float, \
                 string); :dec behind it for downwards",
            )
        };
        let (order, decreasing) = match text.strip_suffix(":dec") {
            Some(order) => (order, true),
            None => (text.strip_suffix(":inc").unwrap_or(text), false),
        };
        let parts: Vec<&str> = order.split(':').collect();
        let algorithm = match parts[..] {
            ["alpha" | "alphanumeric"] => Algorithm::Alphanumeric,
            ["none"] => Algorithm::None,
            ["md5"] => Algorithm::Md5,
            ["shuffle"] => Algorithm::Shuffle { seed: rand::random::<u64>() >> 1 },
            ["shuffle", seed] => Algorithm::Shuffle { seed: seed.parse().map_err(|_| bad())? },
            ["content", ext, kind] => {
                Algorithm::Content { ext: ext.to_owned(), kind: kind.parse()? }
            }
            _ => return Err(bad()),
        };
        Ok(Self { algorithm, decreasing })
    }
}

pub(crate) async fn run(session: &Session, args: &DsortArgs) -> Result<(), Failure> {
    let spec = match &args.spec {
        Some(file) => {
            let mut text = String::new();
            match Place::parse(file)? {
                Place::Stream => std::io::Read::read_to_string(&mut std::io::stdin(), &mut text)
                    .map(drop)
                    .map_err(|e| Failure::local(file, &e))?,
                _ => text = std::fs::read_to_string(file).map_err(|e| Failure::local(file, &e))?,
            }
            let seed = rand::random::<u64>() >> 1;
            requested(text.as_bytes(), &Default::default(), seed)?
        }
        None => spec(session, args).await?,
    };
    spec.check()?;
    match session.client.head_bucket(&spec.destination).await {
        Err(e) if args.create && e.code() == ErrorCode::BucketNotFound => {}
        other => drop(other?),
    }
    if let Some(what) = args.dry_run {
        let plan = planned(session, &spec).await?;
        return show(session, &plan, what);
    }
    if let Algorithm::Shuffle { seed } = &spec.algorithm {
        session.note(format!("the seed is {seed}"));
    }
    let id = session.client.start_dsort(request_json(&spec).to_string().into_bytes()).await?;
    if args.wait || args.progress == Progress::Json {
        return wait_for(session, &id, args.progress).await;
    }
    session.note(format!("started; `forebay job wait {id}` waits for it"));
    match session.format {
        Format::Table => output::one(Format::Name, &id, &[], &Value::Null),
        format => output::one(format, &id, &[], &json!({ "id": id, "kind": "dsort" })),
    }
}

async fn spec(session: &Session, args: &DsortArgs) -> Result<DsortSpec, Failure> {
    let (source, input) = uri::remote(args.from.as_deref().unwrap_or_default())?;
    let (destination, prefix) = uri::remote(args.to.as_deref().unwrap_or_default())?;
    let key_map = match &args.ekm {
        Some(text) => Some(key_map(session, text, &args.ekm_sep).await?),
        None => None,
    };
    if key_map.is_some() && !prefix.is_empty() {
        return Err(Failure::usage(
            "with a key map the destination is a bucket",
            "put the prefix into the templates of the map",
        ));
    }
    Ok(DsortSpec {
        input: match args.names.is_empty() {
            true => InputFormat::parse(&input)?,
            false => InputFormat::Names(
                args.names.iter().map(|name| format!("{input}{}", name.trim())).collect(),
            ),
        },
        input_ext: args.input_ext.clone().unwrap_or_default(),
        template: if key_map.is_some() {
            String::new()
        } else {
            format!("{prefix}{}", args.template)
        },
        output_ext: args.output_ext.clone().unwrap_or_default(),
        shard_bytes: ByteSize::parse(&args.size)?.0,
        algorithm: args.sort.algorithm.clone(),
        decreasing: args.sort.decreasing,
        key_map,
        on: Reactions {
            duplicated_records: args.duplicated_records,
            missing_shards: args.missing_shards,
            ekm_malformed_line: args.ekm_malformed_line,
            ekm_missing_key: args.ekm_missing_key,
        },
        memory: args.max_mem,
        extract_limit: args.extract_limit,
        create_limit: args.create_limit,
        timeout_ms: match &args.shard_timeout {
            None => 0,
            Some(text) => forebay_core::size::parse_duration(text)?.as_millis() as u64,
        },
        overwrite: word::<Overwrite>(&args.overwrite)?,
        description: args.description.clone(),
        ..DsortSpec::new(source, destination)
    })
}

/// Parses a key map, or reads it from its file, object or URL.
async fn key_map(session: &Session, text: &str, separator: &str) -> Result<KeyMapSource, Failure> {
    if text.trim_start().starts_with('{') {
        return Ok(KeyMapSource::text(text, separator));
    }
    if text.starts_with("http://") || text.starts_with("https://") {
        return Ok(KeyMapSource::url(text, separator));
    }
    let map = match Place::parse(text)? {
        Place::Remote(bucket, name) => {
            let bytes = session.client.get_bytes(&bucket, &name, None).await?;
            String::from_utf8(bytes.to_vec())
                .map_err(|_| Error::invalid(format!("{text} is not text in UTF-8")))?
        }
        _ => std::fs::read_to_string(text).map_err(|e| Failure::local(text, &e))?,
    };
    Ok(KeyMapSource::text(&map, separator))
}

/// The plan of the job; refused if the job would be refused.
async fn planned(session: &Session, spec: &DsortSpec) -> Result<Plan, Failure> {
    let client = &session.client;
    let mut notes = Vec::new();
    let map = match &spec.key_map {
        None => None,
        Some(KeyMapSource { at: KeyMapAt::Text(text), separator }) => {
            Some(KeyMap::parse(text, separator, spec.on.ekm_malformed_line, &mut notes)?)
        }
        Some(KeyMapSource { at: KeyMapAt::Url(url), .. }) => {
            return Err(Failure::usage(
                format!("a dry run does not fetch {url}"),
                "fetch the map first and name the file",
            ));
        }
    };
    let names = client.dsort_inputs(spec).await?;
    let gathered = client.gather_records(spec, &names, u64::MAX, |_| {}).await?;
    notes.extend(gathered.warnings);
    let plan = dsort::plan(spec, map.as_ref(), gathered.records, gathered.inputs, notes)?;
    if spec.overwrite == Overwrite::Never {
        let outputs = plan.outputs();
        let free = |name: &str, _| plan.refuse(spec, &outputs, name);
        match client.list_each(&spec.destination, &plan.output_prefix(), free).await {
            // The job creates the bucket.
            Err(e) if e.code() == ErrorCode::BucketNotFound => {}
            other => other?,
        }
    }
    Ok(plan)
}

fn show(session: &Session, plan: &Plan, what: DryRun) -> Result<(), Failure> {
    let by_key = what == DryRun::Keys && !session.format.is_json();
    let shards = [
        Column("SHARD", false),
        Column("RECORDS", true),
        Column("MEMBERS", true),
        Column("BYTES", true),
    ];
    let keys = [
        Column("SHARD", false),
        Column("RECORD", false),
        Column("MEMBER", false),
        Column("SIZE", true),
        Column("FROM", false),
    ];
    let mut rows = Rows::new(session.format, if by_key { &keys } else { &shards });
    for (index, shard) in plan.shards().enumerate() {
        if by_key {
            for (key, members) in plan.records(index) {
                for m in members {
                    let size = ByteSize(m.size).to_string();
                    let (name, from) = (m.name.to_owned(), m.source.to_owned());
                    let cells = vec![shard.name.into(), format!("[{key}]"), name, size, from];
                    rows.push(Row { name: m.name.to_owned(), cells, json: Value::Null })?;
                }
            }
            continue;
        }
        let cells = vec![
            shard.name.to_owned(),
            shard.records.to_string(),
            shard.members.to_string(),
            ByteSize(shard.bytes).to_string(),
        ];
        let json = if session.format.is_json() { to_json(plan, index) } else { Value::Null };
        rows.push(Row { name: shard.name.to_owned(), cells, json })?;
    }
    rows.finish()?;
    plan.notes.iter().for_each(|note| session.note(note));
    let t = &plan.totals;
    session.note(format!(
        "{} shards of {} records, {} members, {}; nothing was written",
        t.shards,
        t.records,
        t.members,
        ByteSize(t.bytes)
    ));
    Ok(())
}

fn to_json(plan: &Plan, index: usize) -> Value {
    let shard = plan.shard(index);
    let members = plan.records(index).flat_map(|(key, members)| {
        members
            .into_iter()
            .map(move |m| json!({ "name": m.name, "size": m.size, "object": m.source, "key": key }))
    });
    json!({
        "shard": shard.name, "records": shard.records, "files": shard.members,
        "bytes": shard.bytes, "members": members.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use forebay_core::dsort::ContentType;

    #[test]
    fn an_order_is_a_word_with_what_it_needs_and_a_direction() {
        let sort = |text: &str| text.parse::<Sort>().map(|s| (s.algorithm, s.decreasing));
        assert_eq!(sort("alpha").unwrap(), (Algorithm::Alphanumeric, false));
        assert_eq!(sort("md5:dec").unwrap(), (Algorithm::Md5, true));
        assert_eq!(sort("shuffle:7").unwrap(), (Algorithm::Shuffle { seed: 7 }, false));
        let content = Algorithm::Content { ext: ".cls".into(), kind: ContentType::Int };
        assert_eq!(sort("content:.cls:int:dec").unwrap(), (content, true));
        for bad in ["", "beta", "shuffle:x", "shuffle:-1", "content", "content:.cls:date"] {
            assert!(sort(bad).is_err(), "{bad}");
        }
    }
}
