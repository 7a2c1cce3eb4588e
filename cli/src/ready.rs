//! `forebay ready`: whether a node answers requests, for scripts and for health checks of containers.

use std::time::{Duration, Instant};

use clap::Args;
use forebay_core::{Error, ErrorCode};
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::probe;
use crate::session::Session;

/// Interval of checks with `--wait`.
const INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct ReadyArgs {
    /// URL of a node [default: the endpoint]
    url: Option<String>,
    /// Wait until the node is ready, for as long as --timeout allows
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(session: &Session, args: &ReadyArgs) -> Result<(), Failure> {
    let url = args.url.as_deref().unwrap_or(&session.endpoint).trim_end_matches('/');
    let until = Instant::now() + session.deadline();
    loop {
        match check(session, url).await {
            Ok(()) => break,
            Err(e) if !args.wait || Instant::now() >= until => return Err(e.into()),
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
    let json = json!({ "url": url, "ready": true });
    output::one(session.format, url, &[("node", url.to_owned()), ("state", "ready".into())], &json)
}

async fn check(session: &Session, url: &str) -> Result<(), Error> {
    let not_ready = |why: String| {
        let text = format!("{url} is not ready: {why}");
        Error::new(ErrorCode::Unavailable, text).hint("--wait waits until it is")
    };
    match probe::get(&session.tls(), url, "/readyz").await {
        Ok(answer) if answer.status == 200 => Ok(()),
        Ok(answer) => {
            let body = String::from_utf8_lossy(&answer.body);
            let body = body.trim();
            let body = if body.is_empty() { String::new() } else { format!(", {body}") };
            Err(not_ready(format!("status {}{body}", answer.status)))
        }
        Err(e) => Err(not_ready(e.to_string())),
    }
}
