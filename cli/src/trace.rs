//! `forebay trace`: requests as they finish, and the traces that the nodes chose.

use std::io::Write;

use clap::{Args, Subcommand};
use forebay_core::trace::{Span, TraceKey, TraceReply, TraceSummary};
use forebay_core::{Error, date};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Column, Format, Row, Rows};
use crate::session::Session;
use crate::top::duration;
use crate::trace_live::{self, LiveArgs};
use crate::trace_tree;

const COLUMNS: [Column; 9] = [
    Column("TRACE", false),
    Column("ENDED", false),
    Column("WHY", false),
    Column("NODE", false),
    Column("OPERATION", false),
    Column("STATUS", true),
    Column("TIME", true),
    Column("SPANS", true),
    Column("OBJECT", false),
];

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Each line: time, node, status, duration, time to the first byte, bytes of the
answer, API and operation, object, user or address of the client, request id.
Nodes describe requests only while somebody watches. Requests between nodes are
shown with --api internal. Watching needs the right of an admin.

Examples:
  forebay trace                          all requests of clients
  forebay trace --bucket s3://data --min-ms 100
  forebay trace --failed --json | jq .request_id
  forebay trace ls                       slow, failed and sampled requests
  forebay trace show 0123456789ABCDEF    the spans of one of them"
)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    action: Option<TraceAction>,
    #[command(flatten)]
    live: LiveArgs,
}

#[derive(Debug, Subcommand)]
enum TraceAction {
    /// List the slow, failed and sampled traces of the last hour
    Ls(ListArgs),
    /// Show the spans of a trace as a tree, with bars of their time
    Show(ShowArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "A node keeps a trace for an hour if it is sampled, or if a request of it failed
with a status of 5xx or took trace.slow_ms or more. The right of an admin is
needed.

Examples:
  forebay trace ls
  forebay trace ls --why failed --json | jq -r .trace"
)]
struct ListArgs {
    /// Only these: sampled, slow or failed
    #[arg(long, value_name = "REASON", value_parser = ["sampled", "slow", "failed"])]
    why: Option<String>,
    /// Print one JSON document per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each line: time, start after the first span, a bar, node, span, object, status
or result. The id of a request is in each answer (forebay-request-id), and in
logs; requests that were not chosen are shown for 10 s after their end.

Examples:
  forebay trace show 0123456789ABCDEF
  forebay trace show 4bf92f3577b34da6a3ce929d0e0e4736 --json"
)]
struct ShowArgs {
    /// Id of the trace (32 digits) or of a request in it (16 digits)
    #[arg(value_name = "ID")]
    id: String,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(session: &Session, args: &TraceArgs) -> Result<(), Failure> {
    match &args.action {
        None => trace_live::run(session, &args.live).await,
        Some(TraceAction::Ls(args)) => list(session, args).await,
        Some(TraceAction::Show(args)) => show(session, args).await,
    }
}

async fn list(session: &Session, args: &ListArgs) -> Result<(), Failure> {
    let reply = session.client.traces().await?;
    warn_of_missing(session, &reply.away);
    let format = if args.json { Format::Jsonl } else { session.format };
    let mut rows = Rows::new(format, &COLUMNS);
    let is_wanted =
        |trace: &&TraceSummary| args.why.as_deref().is_none_or(|why| why == trace.reason.name());
    for trace in reply.traces.iter().filter(is_wanted) {
        rows.push(row(trace))?;
    }
    rows.finish()
}

fn row(trace: &TraceSummary) -> Row {
    let seconds = trace.end_ns.saturating_sub(trace.start_ns) as f64 / 1e9;
    let cells = vec![
        trace.trace.to_string(),
        date::format_rfc3339(trace.end_ns),
        trace.reason.name().to_owned(),
        trace.node.clone(),
        trace.name.clone(),
        if trace.status == 0 { "-".to_owned() } else { trace.status.to_string() },
        duration(seconds),
        trace.spans.to_string(),
        trace_tree::subject(&trace.bucket, &trace.object),
    ];
    Row { name: trace.trace.to_string(), cells, json: json!(trace) }
}

async fn show(session: &Session, args: &ShowArgs) -> Result<(), Failure> {
    let reply = fetch(session, &args.id).await?;
    let is_json = args.json || session.format.is_json();
    let text = match session.format {
        _ if is_json => format!("{}\n", json!({ "spans": reply.spans, "away": reply.away })),
        Format::Name => format!("{}\n", args.id),
        _ => trace_tree::text(&reply.spans),
    };
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|e| Failure::local("standard output", &e))
}

/// The spans of a trace. Nodes that do not reply are named in a warning.
async fn fetch(session: &Session, id: &str) -> Result<TraceReply, Failure> {
    if TraceKey::parse(id).is_none() {
        return Err(Error::invalid(format!("\"{id}\" is no id of a trace or a request"))
            .hint("a trace has 32 hexadecimal digits, a request 16; forebay trace ls lists traces")
            .into());
    }
    let reply = session.client.trace(id).await?;
    warn_of_missing(session, &reply.away);
    Ok(reply)
}

/// The spans of the trace that this text names, if it is an id.
pub(crate) async fn spans_of(session: &Session, id: &str) -> Result<Option<Vec<Span>>, Failure> {
    match TraceKey::parse(id) {
        Some(_) => Ok(Some(fetch(session, id).await?.spans)),
        None => Ok(None),
    }
}

fn warn_of_missing(session: &Session, away: &[String]) {
    if !away.is_empty() {
        session.warn(format!("warning: without the spans of {}: no reply", away.join(", ")));
    }
}
