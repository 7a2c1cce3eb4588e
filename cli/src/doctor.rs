//! `forebay doctor`: checks the connection and the cluster for faults; prints a line with advice
//! for each.

mod clocks;
mod disks;
mod endpoints;
mod finding;
mod members;
mod open_files;
mod reach;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use forebay_client::Client;
use forebay_core::Error;
use forebay_core::sign::GRANT_TTL_S;
use forebay_node::cgroup::Resources;
use serde_json::{Value, json};

use crate::doctor_bucket;
use crate::failure::{Failure, exit};
use crate::output::{Column, Format, Row, Rows};
use crate::session::Session;
pub(crate) use finding::Finding;
use finding::Verdict;

/// A check that takes longer than this is reported as a failure.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of buckets with a backend that are checked.
const BACKENDS: usize = 16;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A bucket, optionally with a prefix or the name of an object. Each target reports the identity
    /// that it uses at the bucket's cloud, and whether it can list and read the bucket
    #[arg(value_name = "BUCKET[/PREFIX]")]
    bucket: Option<String>,
}

pub(crate) async fn run(session: &Session, args: &DoctorArgs) -> Result<(), Failure> {
    match &args.bucket {
        Some(bucket) => doctor_bucket::run(session, bucket).await,
        None => cluster(session).await,
    }
}

async fn cluster(session: &Session) -> Result<(), Failure> {
    let all = findings(session).await?;
    let reached = all.iter().all(|f| f.check != "endpoint" || f.verdict == Verdict::Ok);
    let failed = all.iter().any(|f| f.verdict == Verdict::Fail);
    print(session, all)?;
    match (reached, failed) {
        (false, _) => Err(Failure::silent(exit::UNAVAILABLE)),
        (true, true) => Err(Failure::silent(exit::FAILED)),
        (true, false) => Ok(()),
    }
}

/// The results of all checks of the cluster.
pub(crate) async fn findings(session: &Session) -> Result<Vec<Finding>, Error> {
    let mut all =
        vec![open_files::here(&std::fs::read_to_string("/proc/self/limits").unwrap_or_default())];
    let machine = format!("this process may use {}", Resources::read().describe());
    all.push(Finding::ok("machine", machine));
    let config = session.config_with(CHECK_TIMEOUT);
    let client = Client::new(config)?;
    let started = Instant::now();
    match client.map().await {
        Err(e) => {
            let hint = format!(
                "start one with `forebay serve --dir DIR`, or set FOREBAY_ENDPOINT; now it is {}",
                session.endpoint
            );
            all.push(Finding::bad(Verdict::Fail, "endpoint", e.message(), hint));
        }
        Ok(map) => {
            let took = started.elapsed().as_millis();
            let detail = format!("{} answers in {took} ms", session.endpoint);
            all.push(Finding::ok("endpoint", detail));
            all.push(members::targets(&map));
            all.extend(endpoints::accepted(&map.state));
            all.push(clocks::here(&map, now_s()));
            let gateway_s = map.grant_expires_s.saturating_sub(GRANT_TTL_S);
            let nodes = map.state.nodes.values().map(|node| reach::health(node, gateway_s));
            all.extend(futures::future::join_all(nodes).await);
            let backed = map.state.buckets.values().filter(|b| b.has_backend()).take(BACKENDS);
            let backends = backed.map(|bucket| reach::backend(&client, bucket));
            all.extend(futures::future::join_all(backends).await);
            match client.cluster_info().await {
                Ok(info) => {
                    all.extend(members::majority(&info));
                    all.extend(clocks::of_nodes(&info));
                    all.extend(members::drained(&info));
                    all.extend(disks::budgets(&info));
                    all.extend(disks::disks(&info));
                    all.extend(open_files::of_nodes(&info));
                    all.extend(disks::lost(&info));
                }
                Err(e) => all.push(Finding::bad(Verdict::Fail, "budgets", e.message(), "")),
            }
        }
    }
    Ok(all)
}

/// A finding as JSON output.
pub(crate) fn finding_json(f: &Finding) -> Value {
    json!({
        "check": f.check, "result": mark(f).to_lowercase(), "found": f.detail,
        "hint": (!f.hint.is_empty()).then_some(&f.hint),
    })
}

fn mark(f: &Finding) -> &'static str {
    match f.verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    }
}

fn print(session: &Session, all: Vec<Finding>) -> Result<(), Failure> {
    let columns = [Column("", false), Column("CHECK", false), Column("FOUND", false)];
    let mut rows = Rows::new(session.format, &columns);
    for f in all {
        let found = match f.hint.as_str() {
            "" => f.detail.clone(),
            hint => format!("{}; fix: {hint}", f.detail),
        };
        if session.format == Format::Table && session.quiet && f.verdict == Verdict::Ok {
            continue;
        }
        let (json, cells) = (finding_json(&f), vec![mark(&f).into(), f.check.clone(), found]);
        rows.push(Row { name: f.check, cells, json })?;
    }
    rows.finish()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
