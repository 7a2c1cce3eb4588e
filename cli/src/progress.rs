//! Progress on a terminal: a bar of bytes or objects on standard error, nothing elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Whether anybody would see a bar.
pub(crate) fn wanted(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

/// A bar over `total` bytes; a counter when the total is not known.
pub(crate) fn bytes(shown: bool, total: Option<u64>) -> ProgressBar {
    let bar = "{wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}";
    make(shown, total, bar, "{spinner} {bytes}  {bytes_per_sec}")
}

/// A bar over `total` objects; a counter when the total is not known.
pub(crate) fn objects(shown: bool, total: Option<u64>) -> ProgressBar {
    let bar = "{wide_bar} {pos}/{len} objects  {msg}  {eta}";
    make(shown, total, bar, "{spinner} {pos} objects  {msg}")
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
