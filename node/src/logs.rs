//! The last log lines of this process, kept in memory and served over HTTP.
//!
//! Bounded: old lines are dropped for new ones. Warnings and errors are kept separately, so that
//! info lines of a busy node never displace them.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock};

use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result};
use forebay_v1::query::Query;
use tracing::Level;

use crate::clock::unix_s;
use crate::reply::{text, with_type};

/// Maximum bytes of lines of every level.
const KEEP_ALL: usize = 4 << 20;
/// Maximum bytes of warnings, and of errors.
const KEEP_SERIOUS: usize = 1 << 20;
/// Maximum bytes of a line; longer lines are cut.
const MAX_LINE: usize = 16 << 10;

/// Minimum level of requested lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Everything that is logged.
    Info,
    Warning,
    Error,
}

impl Severity {
    /// Parses the names that v1 clients use; an empty name means all lines.
    pub fn parse(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "" | "i" | "info" => Ok(Self::Info),
            "w" | "warn" | "warning" => Ok(Self::Warning),
            "e" | "err" | "error" => Ok(Self::Error),
            _ => Err(Error::invalid(format!("unknown log severity \"{text}\""))
                .hint("info, warning or error")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Lines in the order of arrival, up to a number of bytes.
#[derive(Debug)]
struct Ring {
    lines: VecDeque<String>,
    held: usize,
    /// Bytes of lines that were dropped.
    dropped: usize,
    keep: usize,
}

impl Ring {
    fn new(keep: usize) -> Self {
        Self { lines: VecDeque::new(), held: 0, dropped: 0, keep }
    }

    fn push(&mut self, line: &str) {
        self.held += line.len();
        self.lines.push_back(line.to_owned());
        while self.held > self.keep
            && let Some(oldest) = self.lines.pop_front()
        {
            self.held -= oldest.len();
            self.dropped += oldest.len();
        }
    }

    /// The log after its first `offset` bytes, as far as it is still kept.
    fn text(&self, offset: usize) -> String {
        let mut skip = offset.saturating_sub(self.dropped);
        let mut text = String::with_capacity(self.held.saturating_sub(skip));
        for line in &self.lines {
            if skip < line.len() {
                text.push_str(line.get(skip..).unwrap_or(line));
            }
            skip = skip.saturating_sub(line.len());
        }
        text
    }
}

#[derive(Debug)]
struct Rings {
    all: Ring,
    warnings: Ring,
    errors: Ring,
}

/// The log of a process; one instance per process, see [`logs`].
#[derive(Debug)]
pub struct Logs(Mutex<Rings>);

impl Default for Logs {
    fn default() -> Self {
        Self(Mutex::new(Rings {
            all: Ring::new(KEEP_ALL),
            warnings: Ring::new(KEEP_SERIOUS),
            errors: Ring::new(KEEP_SERIOUS),
        }))
    }
}

impl Logs {
    fn rings(&self) -> MutexGuard<'_, Rings> {
        // Lines are complete before they are pushed, so a panic leaves nothing half done.
        self.0.locked()
    }

    /// Stores one line, which ends in a line feed.
    pub fn push(&self, level: Level, line: &str) {
        let mut end = line.len().min(MAX_LINE);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let cut = format!("{}\n", line[..end].trim_end());
        let mut rings = self.rings();
        rings.all.push(&cut);
        if level <= Level::WARN {
            rings.warnings.push(&cut);
        }
        if level == Level::ERROR {
            rings.errors.push(&cut);
        }
    }

    /// Lines of `severity` and worse, without the first `offset` bytes.
    pub fn text(&self, severity: Severity, offset: usize) -> String {
        let rings = self.rings();
        match severity {
            Severity::Info => rings.all.text(offset),
            Severity::Warning => rings.warnings.text(offset),
            Severity::Error => rings.errors.text(offset),
        }
    }
}

/// The lines of this process.
pub fn logs() -> &'static Logs {
    static LOGS: OnceLock<Logs> = OnceLock::new();
    LOGS.get_or_init(Logs::default)
}

/// Answers `what=log` of v1: text, or with `all=true` a gzipped TAR. `node` names the file in it.
pub fn answer(query: &Query, node: &str) -> Result<Response> {
    let severity = Severity::parse(query.get("severity").unwrap_or(""))?;
    let offset = match query.get("offset") {
        None => 0,
        Some(offset) => offset
            .parse()
            .map_err(|_| Error::invalid(format!("invalid offset \"{offset}\" of a log")))?,
    };
    if !query.flag("all") {
        return Ok(text(logs().text(severity, offset)));
    }
    let name = format!("{node}.{}.log", severity.name());
    let archive = packed(&name, &logs().text(severity, 0), unix_s())?;
    Ok(with_type("application/x-gtar", archive))
}

/// A TAR with one file, gzipped.
fn packed(name: &str, content: &str, mtime_s: u64) -> Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(mtime_s);
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    archive.append_data(&mut header, name, content.as_bytes())?;
    Ok(archive.into_inner()?.finish()?)
}

/// Writes a formatted line to standard error and keeps it.
#[derive(Debug)]
pub(crate) struct Tee(pub(crate) Level);

impl Write for Tee {
    /// The formatter calls this once per line, with the complete line.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        logs().push(self.0, &String::from_utf8_lossy(line));
        // A closed standard error must not end a node; the line is kept above.
        let _ = std::io::stderr().write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn each_severity_holds_its_lines_and_the_worse_ones() {
        let logs = Logs::default();
        logs.push(Level::INFO, "one\n");
        logs.push(Level::WARN, "two\n");
        logs.push(Level::ERROR, "three\n");
        assert_eq!(logs.text(Severity::Info, 0), "one\ntwo\nthree\n");
        assert_eq!(logs.text(Severity::Warning, 0), "two\nthree\n");
        assert_eq!(logs.text(Severity::Error, 0), "three\n");
        assert_eq!(logs.text(Severity::Info, 5), "wo\nthree\n");
        assert_eq!(logs.text(Severity::Info, 1 << 40), "");
    }

    #[test]
    fn a_flood_takes_bounded_room_and_leaves_the_errors() {
        let logs = Logs::default();
        logs.push(Level::ERROR, "the cause\n");
        let line = format!("{}\n", "é".repeat(MAX_LINE));
        for _ in 0..2 * KEEP_ALL / MAX_LINE {
            logs.push(Level::INFO, &line);
        }
        let all = logs.text(Severity::Info, 0);
        assert!(all.len() <= KEEP_ALL && all.len() > KEEP_ALL / 2, "{}", all.len());
        assert!(!all.contains("the cause"));
        assert_eq!(logs.text(Severity::Error, 0), "the cause\n");
        let total = logs.rings().all.dropped + all.len();
        logs.push(Level::INFO, "next\n");
        assert_eq!(logs.text(Severity::Info, total), "next\n", "offsets count dropped lines too");
    }

    #[test]
    fn an_archive_is_a_gzipped_tar_with_the_text() {
        let packed = packed("t1.info.log", "hello\n", 7).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!(
            (entry.path().unwrap().to_str(), text.as_str()),
            (Some("t1.info.log"), "hello\n")
        );
    }

    #[test]
    fn severities_are_named_as_clients_name_them() {
        assert_eq!(Severity::parse("").unwrap(), Severity::Info);
        assert_eq!(Severity::parse("Warning").unwrap(), Severity::Warning);
        assert_eq!(Severity::parse("error").unwrap(), Severity::Error);
        assert!(Severity::parse("loud").is_err());
    }
}
