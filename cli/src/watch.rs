//! `--watch` of the commands that list: prints the list again and again, in place on a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use forebay_core::date::format_time;
use forebay_node::clock::unix_ns;

use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use crate::top::interval;

/// Clears the terminal and moves to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct WatchArgs {
    /// List again every SECONDS, in place on a terminal; 2 without a number
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = interval
    )]
    watch: Option<Duration>,
}

impl WatchArgs {
    /// Runs a command once, or until the user interrupts if it is to be watched. A failure of the first
    /// run ends it; later ones are printed, and the next run may succeed.
    pub(crate) async fn run(
        self,
        session: &Session,
        list: impl AsyncFn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(pause) = self.watch else { return list().await };
        let is_terminal = std::io::stdout().is_terminal();
        let mut is_first = true;
        loop {
            if !session.format.is_json() {
                output::begin_with(heading(pause, is_terminal, is_first));
            }
            match list().await {
                Err(failure) if is_first => return Err(failure),
                Err(failure) => failure.report(session.format.is_json()),
                Ok(()) => {}
            }
            is_first = false;
            tokio::time::sleep(pause).await;
        }
    }
}

/// The text before a list.
fn heading(pause: Duration, is_terminal: bool, is_first: bool) -> String {
    match (is_terminal, is_first) {
        (true, _) => {
            let now = format_time(unix_ns());
            format!("{CLEAR}every {}s, {now} UTC\n\n", pause.as_secs_f64())
        }
        (false, true) => String::new(),
        // Lists in a file or a pipe are separated.
        (false, false) => "\n".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: WatchArgs,
        bucket: Option<String>,
    }

    #[test]
    fn the_pause_is_optional_and_never_taken_from_the_next_argument() {
        let parsed = |line: &[&str]| {
            let all = std::iter::once("x").chain(line.iter().copied());
            Line::try_parse_from(all).map(|line| (line.args.watch, line.bucket))
        };
        let two = Some(Duration::from_secs(2));
        assert_eq!(parsed(&[]).ok(), Some((None, None)));
        assert_eq!(parsed(&["--watch"]).ok(), Some((two, None)));
        assert_eq!(parsed(&["--watch", "b"]).ok(), Some((two, Some("b".into()))));
        let half = Some(Duration::from_millis(500));
        assert_eq!(parsed(&["--watch=0.5"]).ok(), Some((half, None)));
        assert!(parsed(&["--watch=0"]).is_err() && parsed(&["--watch=x"]).is_err());
    }

    #[test]
    fn only_a_terminal_is_cleared() {
        let pause = Duration::from_secs(2);
        assert!(heading(pause, true, false).starts_with(CLEAR));
        assert_eq!(heading(pause, false, true), "");
        assert_eq!(heading(pause, false, false), "\n");
    }
}
