//! Progress on a terminal: a bar of bytes or objects on standard error, nothing elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const BYTES_BAR: &str =
    "{wide_bar} {percent:>3}%  {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left";
const OBJECTS_BAR: &str =
    "{wide_bar} {percent:>3}%  {pos}/{len} objects  {msg}  {per_sec:1}  {eta} left";

/// Whether a bar would be visible.
pub(crate) fn wanted(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// A bar over `total` bytes; a counter when the total is not known.
pub(crate) fn bytes(shown: bool, total: Option<u64>) -> ProgressBar {
    make(shown, total, BYTES_BAR, "{spinner} {bytes}  {bytes_per_sec}")
}

/// A bar over `total` objects; a counter when the total is not known.
pub(crate) fn objects(shown: bool, total: Option<u64>) -> ProgressBar {
    make(shown, total, OBJECTS_BAR, "{spinner} {pos} objects  {msg}")
}

/// Turns a counter of bytes into a bar, when the total becomes known.
pub(crate) fn total_bytes(progress: &ProgressBar, total: u64) {
    set_total(progress, total, BYTES_BAR);
}

/// Turns a counter of objects into a bar, when the total becomes known. The total may grow.
pub(crate) fn total_objects(progress: &ProgressBar, total: u64) {
    set_total(progress, total, OBJECTS_BAR);
}

fn set_total(progress: &ProgressBar, total: u64, bar: &str) {
    if total == 0 || progress.length() == Some(total) {
        return;
    }
    progress.set_length(total);
    if let Ok(style) = ProgressStyle::with_template(bar) {
        progress.set_style(style.progress_chars("=> "));
    }
}

fn make(shown: bool, total: Option<u64>, bar: &str, counter: &str) -> ProgressBar {
    if !shown {
        return ProgressBar::hidden();
    }
    let (progress, template) = match total {
        Some(total) => (ProgressBar::new(total), bar),
        None => (ProgressBar::new_spinner(), counter),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        progress.set_style(style.progress_chars("=> "));
    }
    progress.enable_steady_tick(Duration::from_millis(150));
    progress
}
