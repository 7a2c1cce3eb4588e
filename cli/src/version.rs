//! `forebay version`: what this binary is, what is compiled in, and which formats it speaks.

use std::io::Write;

use forebay_core::batch_stream::VERSION as BATCH_STREAM;
use forebay_node::cgroup::Resources;
use forebay_target::DISK_FORMAT;
use serde_json::{Value, json};

use crate::output::Format;

/// Compiled-in features; none is optional yet.
const FEATURES: [&str; 12] = [
    "v1",
    "batch",
    "s3",
    "console",
    "tracing",
    "users",
    "backend-s3",
    "backend-gcs",
    "backend-azure",
    "backend-http",
    "backend-folder",
    "backend-cluster",
];
/// Libraries that a report of a problem should name.
const TLS: &str = "rustls with aws-lc-rs";
const ALLOCATOR: &str = "mimalloc";

/// Prints version, commit, platform, features and formats.
pub(crate) fn run(format: Format) -> u8 {
    let text = match format {
        Format::Json | Format::Jsonl => described().to_string(),
        Format::Name => env!("CARGO_PKG_VERSION").to_owned(),
        Format::Table => table(),
    };
    let _ = writeln!(std::io::stdout(), "{text}");
    0
}

fn commit() -> &'static str {
    option_env!("FOREBAY_COMMIT").unwrap_or("unknown")
}

fn platform() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "release" }
}

/// The backends among the features.
fn backends() -> Vec<&'static str> {
    FEATURES.iter().filter_map(|feature| feature.strip_prefix("backend-")).collect()
}

/// The description as JSON.
pub(crate) fn described() -> Value {
    let here = Resources::read();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": commit(),
        "platform": platform(),
        "build": build(),
        "features": FEATURES,
        "backends": backends(),
        "tls": TLS,
        "allocator": ALLOCATOR,
        "machine": {
            "cpus": here.cpus, "host_cpus": here.host_cpus,
            "memory": here.memory, "host_memory": here.host_memory,
        },
        "formats": {"disk": DISK_FORMAT, "batch_stream": BATCH_STREAM},
    })
}

fn table() -> String {
    let features: Vec<_> =
        FEATURES.iter().filter(|feature| !feature.starts_with("backend-")).copied().collect();
    format!(
        "forebay {} (commit {})\nplatform   {}, {} build\nfeatures   {}\nbackends   {}\n\
         tls        {TLS}\nallocator  {ALLOCATOR}\nformats    disk {DISK_FORMAT}, batch stream {BATCH_STREAM}\n\
         may use    {}",
        env!("CARGO_PKG_VERSION"),
        commit(),
        platform(),
        build(),
        features.join(" "),
        backends().join(" "),
        Resources::read().describe(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_each_part_that_is_compiled_in() {
        let described = described();
        assert_eq!(described["formats"]["disk"], DISK_FORMAT);
        assert_eq!(described["backends"].as_array().map(Vec::len), Some(6));
        assert!(described["machine"]["cpus"].as_u64() > Some(0), "{described}");
        let table = table();
        assert!(table.contains("s3 gcs azure http folder cluster"), "{table}");
        assert!(table.contains(&format!("disk {DISK_FORMAT}, batch stream")), "{table}");
    }
}
