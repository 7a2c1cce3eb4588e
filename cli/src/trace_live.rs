//! `forebay trace`: requests of all nodes, as they finish.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use forebay_client::Seen;
use forebay_core::traffic::{LiveFilter, LiveRequest};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Format;
use crate::session::Session;
use crate::top::{bytes, duration};

/// Pause before a stream that ended is begun anew.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    /// Only requests for this bucket, such as s3://data or data
    #[arg(long, value_name = "BUCKET")]
    bucket: Option<String>,
    /// Only this operation, such as get, put or PutObject
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Only this API: v1, s3, api, internal (between nodes) or operations
    #[arg(long, value_name = "NAME")]
    api: Option<String>,
    /// Only requests of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only requests that took at least this many milliseconds
    #[arg(long, value_name = "MS", default_value = "0")]
    min_ms: f64,
    /// Only requests that failed, or whose client went away
    #[arg(long)]
    failed: bool,
    /// End after this many requests
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print one JSON document per line
    #[arg(long)]
    json: bool,
}

impl LiveArgs {
    fn filter(&self) -> LiveFilter {
        LiveFilter {
            bucket: self.bucket.clone(),
            operation: self.operation.clone(),
            api: self.api.clone(),
            min_ms: self.min_ms,
            failed: self.failed,
            node: self.node.clone(),
        }
    }
}

/// Prints requests until the user interrupts.
pub(crate) async fn run(session: &Session, args: &LiveArgs) -> Result<(), Failure> {
    let filter = args.filter();
    let is_json = args.json || session.format.is_json();
    let has_colors = !is_json && std::io::stdout().is_terminal();
    let mut left = args.count.unwrap_or(u64::MAX);
    // The first stream reports errors such as a missing right as every command does.
    let mut live = session.client.live_requests(&filter).await?;
    while left > 0 {
        match live.next().await {
            Ok(Some(Seen::Request(request))) => {
                let line = match session.format {
                    _ if is_json => json!(request).to_string(),
                    Format::Name => request.request_id.clone(),
                    _ => line(&request, has_colors),
                };
                print(&line)?;
                left -= 1;
            }
            Ok(Some(Seen::Dropped(count))) => {
                session.warn(format!("{count} requests were left out: this reader is too slow"));
            }
            // The gateway ended the stream; another may answer.
            Ok(None) | Err(_) => {
                tokio::time::sleep(PAUSE).await;
                live = session.client.live_requests(&filter).await?;
            }
        }
    }
    Ok(())
}

fn print(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| Failure::local("standard output", &e))
}

/// A request in one line.
fn line(request: &LiveRequest, has_colors: bool) -> String {
    // To the millisecond; the date is today's.
    let time = request.time.get(11..23).unwrap_or(&request.time);
    let color = match request.status {
        _ if !has_colors => "",
        200..400 => "\x1b[32m",
        404 => "\x1b[33m",
        _ => "\x1b[31m",
    };
    let end = if has_colors { "\x1b[0m" } else { "" };
    let status = match request.status {
        0 => "-".to_owned(),
        status => status.to_string(),
    };
    let LiveRequest { node, api, operation, client, request_id, .. } = request;
    let (whole, size) = (duration(request.duration_s), bytes(request.bytes as f64));
    let first = request.ttfb_s.map_or_else(|| "-".to_owned(), duration);
    let subject = match (&request.bucket, &request.object) {
        (Some(bucket), Some(object)) => format!("{bucket}/{object}"),
        (Some(bucket), None) => bucket.clone(),
        (None, _) => "-".to_owned(),
    };
    let who = request.user.as_ref().unwrap_or(client);
    format!(
        "{time} {node} {color}{status:>3}{end} {whole:>7} {first:>7} {size:>8} {api}.{operation} \
         {subject} {who} {request_id}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(status: u16) -> LiveRequest {
        LiveRequest {
            time: "2026-11-28T19:30:00.123456789Z".into(),
            node: "t1".into(),
            request_id: "00000000000000AB".into(),
            api: "v1".into(),
            operation: "get".into(),
            bucket: Some("s3://data".into()),
            object: Some("a/b".into()),
            client: "10.0.0.1".into(),
            user: Some("eva".into()),
            status,
            result: "ok".into(),
            duration_s: 0.0042,
            ttfb_s: Some(42e-6),
            bytes: 1_024,
        }
    }

    #[test]
    fn a_line_has_colors_only_on_a_terminal() {
        let plain = "19:30:00.123 t1 200   4.2ms    42us     1KiB v1.get s3://data/a/b eva \
                     00000000000000AB";
        assert_eq!(line(&request(200), false), plain);
        let colored = line(&request(503), true);
        assert!(colored.contains("\x1b[31m503\x1b[0m"), "{colored}");
        assert!(line(&request(0), false).contains(" t1   -  "));
    }
}
