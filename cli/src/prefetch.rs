//! `forebay prefetch`: fetches objects ahead of need as a job, or shows what that would fetch.

use clap::Args;
use forebay_client::PrefetchPlan;
use forebay_core::job::{JobKind, Selection};
use forebay_core::size::ByteSize;
use forebay_core::{Bucket, Error};
use serde_json::Value;

use crate::failure::Failure;
use crate::job::{self, SelectArgs};
use crate::session::Session;
use crate::{output, uri};

#[derive(Debug, Args)]
#[command(after_help = "--dry-run lists the backend once; a prefetch without it prints no numbers
before it starts, because it would have to list the backend twice. Requests are
GETs, of large objects one for each range, and pages of 1,000 listed names.
With --price-per-gb, egress is the price of the bytes to fetch; a GB is 10^9
bytes. An object that is cached in part counts with all its bytes.

Examples:
  forebay prefetch s3://data/train/ --dry-run  what it fetches
  forebay prefetch s3://data --dry-run --price-per-gb 0.09
  forebay prefetch s3://data/train/ --wait     before the first epoch
  forebay prefetch s3://data/train/ --sync     drops outdated copies first
  forebay job ls                               progress of all jobs

With --wait, the exit code is 8 if one object or more failed, or if the job was
cancelled. A native bucket is refused (2): its objects are in the cluster.")]
pub(crate) struct PrefetchArgs {
    #[command(flatten)]
    select: SelectArgs,
    /// First drop copies of objects that the backend no longer has, or has in another version
    #[arg(long)]
    sync: bool,
    /// Show what matches, what of it is cached, and the objects, bytes and requests to fetch the
    /// rest; fetch nothing
    #[arg(long)]
    dry_run: bool,
    /// Egress price of the backend in dollars per GB, for the cost in a dry run; none by default
    #[arg(long, value_name = "PRICE", requires = "dry_run", value_parser = price)]
    price_per_gb: Option<f64>,
}

/// Starts a prefetch, or shows its plan.
pub(crate) async fn run(session: &Session, args: &PrefetchArgs) -> Result<(), Failure> {
    let (bucket, prefix) = uri::remote(&args.select.what)?;
    if args.dry_run {
        return show_plan(session, args, &bucket, prefix).await;
    }
    if !args.sync {
        return job::start(session, JobKind::Prefetch, &args.select).await;
    }
    let id = session.client.start_sync(&bucket, &Selection::Prefix(prefix)).await?;
    job::started(session, JobKind::Prefetch, &id, args.select.wait).await
}

async fn show_plan(
    session: &Session,
    args: &PrefetchArgs,
    bucket: &Bucket,
    prefix: String,
) -> Result<(), Failure> {
    let plan = match args.sync {
        true => session.client.sync_plan(bucket, &prefix).await?,
        false => session.client.prefetch_plan(bucket, &Selection::Prefix(prefix)).await?,
    };
    let json = json_of(&plan, args.price_per_gb);
    output::one(session.format, &args.select.what, &lines(&plan, args.price_per_gb), &json)
}

/// The plan as lines to print.
fn lines(plan: &PrefetchPlan, price_per_gb: Option<f64>) -> Vec<(&'static str, String)> {
    let objects = |objects, bytes| format!("{}, {}", counted(objects, "object"), ByteSize(bytes));
    let (gets, pages) = (counted(plan.gets, "GET"), counted(plan.listing_pages, "listing page"));
    let mut lines = vec![
        ("match", objects(plan.objects(), plan.bytes())),
        ("cached whole", objects(plan.cached_objects, plan.cached_bytes)),
        ("to fetch", objects(plan.fetch_objects, plan.fetch_bytes)),
        ("requests", format!("{}: {gets}, {pages}", plan.requests())),
    ];
    if let Some(price) = price_per_gb {
        lines.push(("egress", format!("{} at ${price} per GB", dollars(plan.cost(price)))));
    }
    lines
}

fn json_of(plan: &PrefetchPlan, price_per_gb: Option<f64>) -> Value {
    let mut json = plan.to_json();
    if let Some(price) = price_per_gb {
        json["price_per_gb"] = price.into();
        json["egress_cost"] = plan.cost(price).into();
    }
    json
}

fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// An amount in cents, or with four digits after the point if it is less than a dollar.
fn dollars(amount: f64) -> String {
    match amount {
        0.0 => "$0".into(),
        small if small < 0.0001 => "less than $0.0001".into(),
        small if small < 1.0 => format!("${small:.4}"),
        large => format!("${large:.2}"),
    }
}

fn price(text: &str) -> Result<f64, Error> {
    match text.parse::<f64>() {
        Ok(price) if price.is_finite() && price >= 0.0 => Ok(price),
        _ => Err(Error::invalid(format!("invalid price \"{text}\""))
            .hint("dollars per GB, for example 0.09")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn plan() -> PrefetchPlan {
        PrefetchPlan {
            cached_objects: 1,
            cached_bytes: 1 << 20,
            fetch_objects: 2,
            fetch_bytes: 40_000_000_000,
            gets: 4_770,
            listing_pages: 1,
        }
    }

    #[test]
    fn lines_have_dollars_only_with_a_price() {
        let shown = lines(&plan(), None);
        assert_eq!(shown.len(), 4);
        assert_eq!(shown[1].1, "1 object, 1MiB");
        assert_eq!(shown[3].1, "4771: 4770 GETs, 1 listing page");
        let priced = lines(&plan(), Some(0.09));
        assert_eq!(priced[4], ("egress", "$3.60 at $0.09 per GB".to_owned()));
    }

    #[test]
    fn json_has_the_cost_only_with_a_price() {
        let json = json_of(&plan(), None);
        assert_eq!((&json["requests"], json.get("egress_cost")), (&4_771.into(), None));
        let cost = json_of(&plan(), Some(0.09))["egress_cost"].as_f64().unwrap();
        assert!((cost - 3.6).abs() < 1e-9);
    }

    #[test]
    fn small_amounts_are_not_shown_as_nothing() {
        let shown = [0.0, 0.000_01, 0.0123, 0.5, 1234.567].map(dollars);
        assert_eq!(shown, ["$0", "less than $0.0001", "$0.0123", "$0.5000", "$1234.57"]);
    }

    #[test]
    fn a_price_is_a_number_that_is_not_negative() {
        assert_eq!(price("0.09").unwrap(), 0.09);
        for bad in ["-1", "NaN", "inf", "9 cents", ""] {
            assert!(price(bad).is_err(), "{bad}");
        }
    }
}
