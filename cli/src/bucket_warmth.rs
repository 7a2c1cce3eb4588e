//! `forebay bucket ls`, and the warmth in `bucket show`: how much of a bucket is cached.

use std::fmt::Display;

use clap::Args;
use forebay_core::size::ByteSize;
use forebay_core::warmth::{BucketWarmth, ReadWindow, WarmthReply};
use forebay_core::{Error, date};
use forebay_node::clock::unix_ns;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Column, Row, Rows};
use crate::session::Session;
use crate::uri::Listing;
use crate::watch::WatchArgs;

/// Shown for a value that nothing in the cluster counted yet.
const UNKNOWN: &str = "unknown";
/// Before a number that is not exact.
const ABOUT: &str = "~";
/// Shown for a value that a bucket cannot have.
const NONE: &str = "-";

const COLUMNS: [Column; 8] = [
    Column("BUCKET", false),
    Column("OBJECTS", true),
    Column("BYTES", true),
    Column("CACHED", true),
    Column("CACHED BYTES", true),
    Column("SHARE", true),
    Column("HITS 1H", true),
    Column("SAVED 1D", true),
];

#[derive(Debug, Args)]
#[command(
    after_help = "OBJECTS and BYTES of a bucket with a backend are those of the last complete
listing that the cluster made, for example by `forebay ls`; no listing is made
for this command. SHARE is the cached part of these bytes. HITS 1H is the
share of reads of the last hour that needed no new download, SAVED 1D what a
cloud would have billed as egress in the last day without the cache. Numbers
with ~ are not exact: a target does not reply, native objects are moving, or
the bucket has erasure coding.

Examples:
  forebay bucket ls          all buckets
  forebay bucket ls s3://    all buckets in S3
  forebay bucket ls --watch  again every 2 s"
)]
pub(crate) struct ListArgs {
    /// A provider, such as s3://; all buckets if absent
    #[arg(value_name = "PROVIDER")]
    what: Option<String>,
    #[command(flatten)]
    watch: WatchArgs,
}

/// Lists buckets with their warmth.
pub(crate) async fn list(session: &Session, args: &ListArgs) -> Result<(), Failure> {
    args.watch.run(session, async || list_once(session, args).await).await
}

async fn list_once(session: &Session, args: &ListArgs) -> Result<(), Failure> {
    let Listing::Buckets(provider) = Listing::parse(args.what.as_deref())? else {
        return Err(Error::invalid("this command lists buckets, not objects")
            .hint("forebay bucket show URI shows one bucket, forebay ls URI its objects")
            .into());
    };
    let reply = session.client.warmth(provider).await?;
    warn_of_missing(session, &reply);
    let mut rows = Rows::new(session.format, &COLUMNS);
    for warmth in &reply.buckets {
        rows.push(row(warmth))?;
    }
    rows.finish()
}

/// Names the targets whose part is missing in the sums.
pub(crate) fn warn_of_missing(session: &Session, reply: &WarmthReply) {
    if !reply.away.is_empty() {
        let away: Vec<_> = reply.away.iter().map(ToString::to_string).collect();
        session.warn(format!("warning: without the part of {}: no reply", away.join(", ")));
    }
}

/// Objects and bytes of the whole bucket, if they are known.
fn totals(warmth: &BucketWarmth) -> Option<(u64, u64)> {
    match warmth.backed {
        true => warmth.listing.map(|listing| (listing.objects, listing.bytes)),
        false => Some((warmth.objects, warmth.bytes)),
    }
}

/// A number of what is stored, marked if it is not exact.
fn stored(warmth: &BucketWarmth, number: impl Display) -> String {
    let mark = if warmth.exact { "" } else { ABOUT };
    format!("{mark}{number}")
}

fn row(warmth: &BucketWarmth) -> Row {
    let name = warmth.bucket.to_string();
    let (objects, bytes) = match totals(warmth) {
        Some((objects, bytes)) if warmth.backed => (objects.to_string(), size(bytes)),
        Some((objects, bytes)) => (stored(warmth, objects), stored(warmth, size(bytes))),
        None => (UNKNOWN.into(), UNKNOWN.into()),
    };
    let cells = vec![
        name.clone(),
        objects,
        bytes,
        stored(warmth, warmth.objects),
        stored(warmth, size(warmth.bytes + warmth.partial_bytes)),
        share(warmth),
        hit_rate(&warmth.hour).map_or(NONE.into(), percent),
        size(warmth.egress_saved_day_bytes),
    ];
    Row { name, cells, json: json_of(warmth) }
}

fn share(warmth: &BucketWarmth) -> String {
    match warmth.backed {
        true => warmth.byte_share().map_or(UNKNOWN.into(), percent),
        false => NONE.into(),
    }
}

/// The warmth with the values that follow from it.
pub(crate) fn json_of(warmth: &BucketWarmth) -> Value {
    let mut json = json!(warmth);
    json["bucket"] = warmth.bucket.to_string().into();
    json["object_share"] = json!(warmth.object_share());
    json["byte_share"] = json!(warmth.byte_share());
    json["hour"]["hit_rate"] = json!(hit_rate(&warmth.hour));
    json["day"]["hit_rate"] = json!(hit_rate(&warmth.day));
    json
}

/// The warmth as lines to print.
pub(crate) fn lines(warmth: &BucketWarmth) -> Vec<(&'static str, String)> {
    let objects = |objects: u64, bytes: u64| format!("{objects} objects, {}", size(bytes));
    let mut lines = Vec::new();
    if warmth.backed {
        let listed = warmth.listing.map_or(UNKNOWN.to_owned(), |listing| {
            let age = unix_ns().saturating_sub(listing.taken_ns) / 1_000_000_000;
            let age = forebay_core::cache_rules::show_seconds(age);
            format!("{}, listed {age} ago", objects(listing.objects, listing.bytes))
        });
        lines.push(("content", listed));
        let whole = stored(warmth, objects(warmth.objects, warmth.bytes));
        lines.push(("cached whole", whole));
        let partial = objects(warmth.partial_objects, warmth.partial_bytes);
        lines.push(("cached in part", partial));
        lines.push(("cached share", share(warmth)));
    } else {
        let content = stored(warmth, objects(warmth.objects, warmth.bytes));
        lines.push(("content", content));
    }
    lines.push(("no access before", oldest(warmth.no_access_before_ns)));
    lines.push(("reads, last hour", reads(&warmth.hour)));
    lines.push(("reads, last day", reads(&warmth.day)));
    if warmth.backed {
        let (hour, day) = (warmth.egress_saved_hour_bytes, warmth.egress_saved_day_bytes);
        let saved = format!("{} in the last hour, {} in the last day", size(hour), size(day));
        lines.push(("egress saved lately", saved));
    }
    lines
}

fn oldest(unix_ns: u64) -> String {
    match unix_ns {
        0 => UNKNOWN.into(),
        ns => format!("{} UTC", date::format_time(ns)),
    }
}

/// The share of objects that were served without a download of their own; `None` without reads.
fn hit_rate(window: &ReadWindow) -> Option<f64> {
    let reads = &window.reads;
    let served = reads.hit_objects + reads.coalesced_objects;
    (reads.objects() > 0).then(|| served as f64 / reads.objects() as f64)
}

fn reads(window: &ReadWindow) -> String {
    let Some(rate) = hit_rate(window) else { return "none".into() };
    let (objects, bytes) = (window.reads.objects(), window.reads.bytes());
    let span = forebay_core::cache_rules::show_seconds(window.seconds);
    format!("{objects} objects, {}, {} hits, in {span}", size(bytes), percent(rate))
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// A share in percent. Only the whole is 100%.
fn percent(share: f64) -> String {
    let rounded = (share * 1000.0).floor() / 10.0;
    format!("{rounded:.1}%")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::warmth::{ListingTotals, ReadCounts};
    use forebay_core::{Bucket, Provider};

    use super::*;

    fn cloud() -> BucketWarmth {
        let bucket = Bucket::new(Provider::Aws, "data").unwrap();
        let reads = ReadCounts {
            hit_objects: 2,
            hit_bytes: 2_000,
            miss_objects: 1,
            ..ReadCounts::default()
        };
        BucketWarmth {
            backed: true,
            exact: true,
            objects: 999,
            bytes: 999 << 10,
            hour: ReadWindow { seconds: 3_600, reads },
            egress_saved_day_bytes: 2_048,
            ..BucketWarmth::of(bucket)
        }
    }

    #[test]
    fn numbers_that_are_not_exact_are_marked() {
        let exact = BucketWarmth { backed: false, ..cloud() };
        assert_eq!(row(&exact).cells[1..5], ["999", "999KiB", "999", "999KiB"]);
        let about = BucketWarmth { exact: false, ..exact };
        assert_eq!(row(&about).cells[1..5], ["~999", "~999KiB", "~999", "~999KiB"]);
        assert_eq!(lines(&about)[0], ("content", "~999 objects, 999KiB".to_owned()));
    }

    #[test]
    fn what_is_not_known_is_shown_as_unknown_and_not_as_nothing() {
        let cells = row(&cloud()).cells;
        assert_eq!(cells[1..6], ["unknown", "unknown", "999", "999KiB", "unknown"]);
        assert_eq!(cells[6..], ["66.6%", "2KiB"]);
        assert_eq!(json_of(&cloud())["byte_share"], Value::Null);
    }

    #[test]
    fn the_share_is_of_the_last_complete_listing_and_never_rounded_up_to_all() {
        let listing = ListingTotals { objects: 1_000, bytes: 1_000 << 10, taken_ns: 5 };
        let warmth = BucketWarmth { listing: Some(listing), ..cloud() };
        assert_eq!(row(&warmth).cells[1..6], ["1000", "1000KiB", "999", "999KiB", "99.9%"]);
        let all = BucketWarmth { bytes: (1_000 << 10) - 1, ..warmth.clone() };
        assert_eq!(share(&all), "99.9%");
        let lines = lines(&warmth);
        assert!(lines[0].1.starts_with("1000 objects, 1000KiB, listed "), "{lines:?}");
    }

    #[test]
    fn a_native_bucket_has_no_share_and_a_bucket_that_nobody_read_no_rate() {
        let bucket = Bucket::new(Provider::Ais, "own").unwrap();
        let native =
            BucketWarmth { exact: true, objects: 3, bytes: 30, ..BucketWarmth::of(bucket) };
        assert_eq!(row(&native).cells[1..7], ["3", "30B", "3", "30B", "-", "-"]);
    }
}
