//! `forebay why`: what the steps of a training loop waited for, with the remedy of each cause.

use std::io::Write;

use clap::Args;
use forebay_core::feed::advice::{Finding, NEGLIGIBLE_WAIT_SHARE, findings};
use forebay_core::feed::{Cause, Feed};
use forebay_core::trace::causes;
use forebay_core::warmth::BucketWarmth;
use forebay_core::{Bucket, Error, ErrorCode};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Column, Format, Row, Rows};
use crate::session::Session;
use crate::top::duration;
use crate::trace;

const COLUMNS: [Column; 7] = [
    Column("ID", false),
    Column("JOB", false),
    Column("HOST", false),
    Column("RANK", true),
    Column("STEPS", true),
    Column("WAITED", true),
    Column("LARGEST CAUSE", false),
];

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay why                    the loops that reported in the last minutes
  forebay why resnet             all ranks of the job together
  forebay why node7-4211-1       one loader of one process
  forebay why resnet -o json
  forebay why 0123456789ABCDEF   a request, or a trace of `forebay trace ls`

Loops report every few seconds while they run: ThreadLoader, and a DataLoader
in forebay_torch.observe(). A loop that ended is shown for three minutes.")]
pub(crate) struct WhyArgs {
    /// Name of a job, or id of a feed, a trace or a request; all feeds if absent
    job: Option<String>,
    /// As `-o json`
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(session: &Session, args: &WhyArgs) -> Result<(), Failure> {
    let reply = session.client.feeds().await?;
    if !reply.away.is_empty() {
        let away = reply.away.join(", ");
        session.warn(format!("warning: without the feeds of {away}: no reply"));
    }
    let format = if args.json { Format::Json } else { session.format };
    let Some(job) = &args.job else { return list(format, &reply.feeds) };
    let found: Vec<Feed> =
        reply.feeds.into_iter().filter(|feed| feed.id == *job || feed.name == *job).collect();
    if found.is_empty()
        && let Some(spans) = trace::spans_of(session, job).await?
    {
        let feed = causes(&spans);
        let found = findings(&feed, &warmth(session, &feed).await);
        return match format {
            Format::Table => print(&trace_text(job, spans.len(), &feed, &found)),
            Format::Name => print(&format!("{job}\n")),
            Format::Json => print(&format!("{:#}\n", as_json(&feed, 1, &found))),
            Format::Jsonl => print(&format!("{}\n", as_json(&feed, 1, &found))),
        };
    }
    let Some(feed) = Feed::merged(&found) else {
        let text = format!("no training loop \"{job}\" reported in the last minutes");
        return Err(Error::new(ErrorCode::JobNotFound, text)
            .hint("forebay why lists the loops that did; loops report while they run")
            .into());
    };
    let warmth = warmth(session, &feed).await;
    let found_causes = findings(&feed, &warmth);
    match format {
        Format::Table => print(&text(job, &feed, found.len(), &found_causes)),
        Format::Name => print(&format!("{}\n", feed.name)),
        Format::Json => print(&format!("{:#}\n", as_json(&feed, found.len(), &found_causes))),
        Format::Jsonl => print(&format!("{}\n", as_json(&feed, found.len(), &found_causes))),
    }
}

fn list(format: Format, feeds: &[Feed]) -> Result<(), Failure> {
    let mut rows = Rows::new(format, &COLUMNS);
    for feed in feeds {
        let largest = findings(feed, &[]).into_iter().next();
        let largest =
            largest.map_or("-".into(), |f| format!("{} {}", f.cause.name(), percent(f.share)));
        rows.push(Row {
            name: feed.id.clone(),
            cells: vec![
                feed.id.clone(),
                feed.name.clone(),
                feed.host.clone(),
                feed.rank.to_string(),
                feed.steps.to_string(),
                percent(feed.wait_share()),
                largest,
            ],
            json: json!(feed),
        })?;
    }
    rows.finish()
}

/// The warmth of the feed's buckets, as far as the user may see it: the remedies are less exact
/// without it.
async fn warmth(session: &Session, feed: &Feed) -> Vec<BucketWarmth> {
    if feed.causes.get(Cause::Cold) <= 0.0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    for uri in &feed.buckets {
        let Ok((bucket, _)) = Bucket::parse_uri(uri) else { continue };
        if let Ok(reply) = session.client.bucket_warmth(&bucket).await {
            all.extend(reply.buckets);
        }
    }
    all
}

fn as_json(feed: &Feed, loaders: usize, found: &[Finding]) -> Value {
    let mut json = json!(feed);
    json["loaders"] = loaders.into();
    json["wait_share"] = feed.wait_share().into();
    json["findings"] = json!(found);
    json
}

fn text(job: &str, feed: &Feed, loaders: usize, found: &[Finding]) -> String {
    let waited = percent(feed.wait_share());
    let loops = if loaders == 1 { "1 loader".into() } else { format!("{loaders} loaders") };
    let mut text = format!(
        "{job}: {loops}, {} steps; {waited} of their time was waiting ({:.1} s of {:.1} s)\n",
        feed.steps, feed.wait_s, feed.step_s
    );
    if feed.wait_share() < NEGLIGIBLE_WAIT_SHARE {
        text.push_str("The loop hardly waits: nothing needs to be done.\n");
    }
    push_findings(&mut text, found);
    text
}

/// The causes of the time of one trace.
fn trace_text(id: &str, spans: usize, feed: &Feed, found: &[Finding]) -> String {
    let mut text = format!("{id}: {spans} spans in {}\n", duration(feed.wait_s));
    push_findings(&mut text, found);
    text
}

fn push_findings(text: &mut String, found: &[Finding]) {
    for finding in found {
        let (share, cause) = (percent(finding.share), finding.cause.name());
        text.push_str(&format!(
            "\n{share:>6}  {cause:<8} {:>8.1} s  {}\n",
            finding.seconds, finding.text
        ));
        for remedy in &finding.remedies {
            text.push_str(&format!("        - {remedy}\n"));
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| Failure::local("standard output", &e))
}

#[cfg(test)]
mod tests {
    use forebay_core::feed::Causes;

    use super::*;

    #[test]
    fn the_text_names_the_largest_cause_first_with_its_remedy() {
        let causes = Causes { decode: 8.0, cold: 1.0, ..Causes::default() };
        let feed = Feed { steps: 7, wait_s: 9.0, step_s: 10.0, causes, ..Feed::default() };
        let shown = text("job", &feed, 2, &findings(&feed, &[]));
        assert!(shown.starts_with("job: 2 loaders, 7 steps; 90.0% of their time"), "{shown}");
        let at = |word| shown.find(word).unwrap_or(usize::MAX);
        assert!(at("decode") < at("cold") && at("more workers") < at("cold"), "{shown}");
        assert!(!shown.contains("hardly"));
        let idle = Feed { wait_s: 0.1, step_s: 10.0, ..feed };
        assert!(text("job", &idle, 1, &[]).contains("hardly waits"));
    }
}
