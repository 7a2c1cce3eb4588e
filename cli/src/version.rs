//! `forebay version`: what this binary is and which formats it speaks.

use std::io::Write;

use forebay_core::batch_stream::VERSION as BATCH_STREAM;
use forebay_target::DISK_FORMAT;
use serde_json::json;

use crate::output::Format;

/// Compiled-in features; none is optional yet.
const FEATURES: [&str; 8] = [
    "v1",
    "batch",
    "backend-s3",
    "backend-gcs",
    "backend-azure",
    "backend-http",
    "backend-folder",
    "backend-cluster",
];

/// Prints version, commit, features and formats.
pub(crate) fn run(format: Format) -> u8 {
    let version = env!("CARGO_PKG_VERSION");
    let commit = option_env!("FOREBAY_COMMIT").unwrap_or("unknown");
    let text = match format {
        Format::Json | Format::Jsonl => json!({
            "version": version,
            "commit": commit,
            "features": FEATURES,
            "formats": {"disk": DISK_FORMAT, "batch_stream": BATCH_STREAM},
        })
        .to_string(),
        Format::Name => version.to_owned(),
        Format::Table => format!(
            "forebay {version} (commit {commit})\nfeatures  {}\nformats   disk {DISK_FORMAT}, \
             batch stream {BATCH_STREAM}",
            FEATURES.join(" ")
        ),
    };
    let _ = writeln!(std::io::stdout(), "{text}");
    0
}
