//! `forebay top`: what the cluster does now, on the whole terminal or as plain tables.

mod app;
mod canvas;
mod grid;
mod screen;
mod terminal;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use forebay_core::overview::Overview;
use serde_json::json;

use self::grid::{View, summary};
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::session::Session;

pub(crate) use self::grid::{bytes, duration};

#[derive(Debug, Args)]
#[command(
    after_help = "Rates are those of the last 5 seconds. Keys: n nodes, b buckets, c clients,
d disks, j jobs, Tab the next of them, s the column to sort by, Enter more about
a node or a bucket, Esc back, ? all keys, q quit.

Without a terminal, or with --once, the tables are printed once.

Examples:
  forebay top
  forebay top --once
  forebay top --json | jq '.nodes[] | select(.answered | not)'"
)]
pub(crate) struct TopArgs {
    /// Print the tables once, instead of the full screen
    #[arg(long)]
    once: bool,
    /// Print the overview once, as JSON
    #[arg(long)]
    json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
}

/// A pause in seconds between two looks.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("\"{text}\" is no number of seconds"))?;
    match (0.1..=3_600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("a number of seconds from 0.1 to 3600".to_owned()),
    }
}

pub(crate) async fn run(session: &Session, args: &TopArgs) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let is_table = session.format == Format::Table && !args.json;
    if is_terminal && is_table && !args.once {
        return terminal::run(session, args.interval).await;
    }
    let overview = session.client.overview().await?;
    if !is_table {
        let format = if session.format == Format::Table { Format::Json } else { session.format };
        return output::one(format, "overview", &[], &json!(overview));
    }
    std::io::stdout()
        .write_all(plain(&overview).as_bytes())
        .map_err(|e| Failure::local("standard output", &e))
}

/// The overview as plain text.
fn plain(overview: &Overview) -> String {
    let mut text = summary(overview).join("\n") + "\n";
    for alert in &overview.alerts {
        text.push_str(&format!("{}: {} ({})\n", alert.severity.as_str(), alert.text, alert.name));
    }
    for view in View::ALL {
        let grid = view.grid(overview);
        if !grid.rows.is_empty() {
            text.push_str(&format!("\n{}\n", grid.lines().join("\n")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_output_has_a_table_for_each_view_with_rows() {
        let text = plain(&screen::tests::overview());
        for line in [
            "2 of 3 nodes answer   120 req/s   0.2 err/s   p50 90us   p99 12.0ms",
            "critical: target t2 is down (ForebayTargetDead)",
        ] {
            assert!(text.contains(line), "{text}");
        }
        for title in ["NODE", "BUCKET", "CLIENT", "NODE  DISK", "JOB"] {
            assert!(text.lines().any(|line| line.starts_with(title)), "{title}: {text}");
        }
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    }

    #[test]
    fn an_interval_is_a_bounded_number_of_seconds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "x", "-1", "1e9", "NaN"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
