//! Standard output: rows as a table, JSON, lines of JSON, or bare names.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_core::locks::MutexExt;
use serde_json::Value;

use crate::failure::Failure;

/// Forms of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line
    Jsonl,
    /// Names only, one per line
    Name,
}

impl Format {
    pub(crate) fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::Jsonl)
    }
}

/// A column: its title, and whether its texts are numbers to be aligned at the right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column(pub(crate) &'static str, pub(crate) bool);

/// One line of output in all its forms.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) cells: Vec<String>,
    pub(crate) json: Value,
}

/// Writes rows of output. [`Rows::finish`] must be called for the output to be complete.
pub(crate) struct Rows<W: Write = BufWriter<Stdout>> {
    format: Format,
    columns: Vec<Column>,
    widths: Vec<usize>,
    /// Rows that are buffered until the columns' widths are known.
    held: Vec<Row>,
    has_titles: bool,
    started: bool,
    written: usize,
    out: W,
}

/// The text before the next rows.
static HEADING: Mutex<String> = Mutex::new(String::new());

/// Writes a text before the next rows, and together with them.
pub(crate) fn begin_with(heading: String) {
    *HEADING.locked() = heading;
}

/// Whether tables have no line of titles.
static NO_TITLES: AtomicBool = AtomicBool::new(false);

/// Prints the tables of this run without their titles.
pub(crate) fn hide_titles() {
    NO_TITLES.store(true, Ordering::Relaxed);
}

/// Number of rows that decide the widths of a long table's columns.
const HOLD: usize = 1000;

impl Rows {
    pub(crate) fn new(format: Format, columns: &[Column]) -> Self {
        let mut out = BufWriter::new(io::stdout());
        let heading = std::mem::take(&mut *HEADING.locked());
        // It fits the buffer; a failure of standard output shows at the first row.
        let _ = out.write_all(heading.as_bytes());
        let mut rows = Self::to(out, format, columns);
        if NO_TITLES.load(Ordering::Relaxed) {
            rows.remove_titles();
        }
        rows
    }
}

impl<W: Write> Rows<W> {
    fn to(out: W, format: Format, columns: &[Column]) -> Self {
        let widths = columns.iter().map(|c| c.0.len()).collect();
        let columns = columns.to_vec();
        let (held, started, written, has_titles) = (Vec::new(), false, 0, true);
        Self { format, columns, widths, held, has_titles, started, written, out }
    }

    /// Leaves out the titles; the columns are as wide as their texts then.
    fn remove_titles(&mut self) {
        self.has_titles = false;
        self.widths.fill(0);
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: Row) -> Result<(), Failure> {
        self.try_push(row).map_err(|e| Failure::local("standard output", &e))
    }

    fn try_push(&mut self, row: Row) -> io::Result<()> {
        self.written += 1;
        match self.format {
            Format::Name => writeln!(self.out, "{}", row.name),
            Format::Jsonl => writeln!(self.out, "{}", row.json),
            Format::Json => {
                let before = if self.written == 1 { "[\n" } else { ",\n" };
                write!(self.out, "{before}{}", row.json)
            }
            Format::Table if self.started => self.line(&row.cells),
            Format::Table => {
                for (width, cell) in self.widths.iter_mut().zip(&row.cells) {
                    *width = (*width).max(cell.chars().count());
                }
                self.held.push(row);
                if self.held.len() >= HOLD { self.start() } else { Ok(()) }
            }
        }
    }

    fn start(&mut self) -> io::Result<()> {
        self.started = true;
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return Ok(());
        }
        if self.has_titles {
            let titles: Vec<String> = self.columns.iter().map(|c| c.0.to_owned()).collect();
            self.line(&titles)?;
        }
        held.iter().try_for_each(|row| self.line(&row.cells))
    }

    fn line(&mut self, cells: &[String]) -> io::Result<()> {
        let mut line = String::new();
        for (i, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
            if i > 0 {
                line.push_str("  ");
            }
            if self.columns[i].1 {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        writeln!(self.out, "{}", line.trim_end())
    }

    /// Writes the buffered rows and the end of a JSON document.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.try_finish().map_err(|e| Failure::local("standard output", &e))
    }

    fn try_finish(&mut self) -> io::Result<()> {
        match self.format {
            Format::Table if !self.started => self.start()?,
            Format::Json if self.written == 0 => writeln!(self.out, "[]")?,
            Format::Json => writeln!(self.out, "\n]")?,
            _ => {}
        }
        self.out.flush()
    }
}

/// Prints one item: as `key  value` lines, JSON, or its name.
pub(crate) fn one(
    format: Format,
    name: &str,
    lines: &[(&str, String)],
    json: &Value,
) -> Result<(), Failure> {
    let text = match format {
        Format::Name => format!("{name}\n"),
        Format::Jsonl => format!("{json}\n"),
        Format::Json => format!("{json:#}\n"),
        Format::Table => {
            let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
            lines.iter().map(|(key, value)| format!("{key:<width$}  {value}\n")).collect()
        }
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Failure::local("standard output", &e))
}

/// `2026-11-21 03:51:51 UTC` of unix nanoseconds; `-` when unknown.
pub(crate) fn time(unix_ns: u64) -> String {
    match unix_ns {
        0 => "-".into(),
        ns => format!("{} UTC", forebay_core::date::format_time(ns)),
    }
}

/// RFC 3339 for JSON; `null` when unknown.
pub(crate) fn time_json(unix_ns: u64) -> Value {
    match unix_ns {
        0 => Value::Null,
        ns => forebay_core::date::format_rfc3339(ns).into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn print(format: Format, names: &[&str]) -> String {
        let mut out = Vec::new();
        let mut rows = Rows::to(&mut out, format, &[Column("SIZE", true), Column("NAME", false)]);
        for name in names {
            let cells = vec![name.len().to_string(), (*name).to_owned()];
            let json = json!({"name": name, "size": name.len()});
            rows.push(Row { name: (*name).to_owned(), cells, json }).unwrap();
        }
        rows.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_print_in_every_form() {
        let names = ["a", "three-letters"];
        let want = "SIZE  NAME\n   1  a\n  13  three-letters\n";
        assert_eq!(print(Format::Table, &names), want);
        assert_eq!(print(Format::Name, &names), "a\nthree-letters\n");
        let lines = print(Format::Jsonl, &names);
        assert_eq!(lines.lines().count(), 2);
        let all: Value = serde_json::from_str(&print(Format::Json, &names)).unwrap();
        assert_eq!(all[1]["size"], 13);
    }

    #[test]
    fn nothing_is_an_empty_list_and_no_titles() {
        assert_eq!(print(Format::Table, &[]), "");
        assert_eq!(print(Format::Name, &[]), "");
        assert_eq!(print(Format::Json, &[]).trim(), "[]");
    }

    #[test]
    fn a_table_without_titles_is_as_wide_as_its_texts() {
        let mut out = Vec::new();
        let mut rows =
            Rows::to(&mut out, Format::Table, &[Column("SIZE", true), Column("N", false)]);
        rows.remove_titles();
        let cells = vec!["1".to_owned(), "a".to_owned()];
        rows.push(Row { name: "a".into(), cells, json: Value::Null }).unwrap();
        rows.finish().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1  a\n");
    }

    #[test]
    fn a_long_table_prints_every_row_once() {
        let names: Vec<String> = (0..HOLD * 2 + 7).map(|i| format!("o{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = print(Format::Table, &names);
        assert_eq!(text.lines().count(), names.len() + 1);
        assert!(text.lines().skip(1).zip(&names).all(|(line, name)| line.ends_with(name)));
    }
}
