//! The tables of an overview, for the full-screen view and for plain output.

use forebay_core::overview::{Overview, OverviewNode, Rates};

/// A table of texts, with a value to sort each cell by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Grid {
    pub(crate) columns: Vec<(&'static str, bool)>,
    pub(crate) rows: Vec<GridRow>,
}

/// One row. `id` names what it is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GridRow {
    pub(crate) id: String,
    pub(crate) cells: Vec<GridCell>,
}

/// A text, and its value if it is a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GridCell {
    pub(crate) text: String,
    pub(crate) value: Option<f64>,
}

/// A table of the overview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Nodes,
    Buckets,
    Clients,
    Disks,
    Jobs,
}

impl View {
    pub(crate) const ALL: [Self; 5] =
        [Self::Nodes, Self::Buckets, Self::Clients, Self::Disks, Self::Jobs];

    /// The title; its first letter in lower case is the key of the view.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Nodes => "Nodes",
            Self::Buckets => "Buckets",
            Self::Clients => "Clients",
            Self::Disks => "Disks",
            Self::Jobs => "Jobs",
        }
    }

    /// The table of this view.
    pub(crate) fn grid(self, overview: &Overview) -> Grid {
        match self {
            Self::Nodes => nodes(overview),
            Self::Buckets => {
                let rows = overview.buckets.iter().map(|b| (b.uri.as_str(), &b.rates));
                traffic("BUCKET", rows, true)
            }
            Self::Clients => {
                let rows = overview.clients.iter().map(|c| (c.client.as_str(), &c.rates));
                traffic("CLIENT", rows, false)
            }
            Self::Disks => disks(overview.nodes.iter()),
            Self::Jobs => jobs(overview, |_| true),
        }
    }
}

impl Grid {
    /// Sorts by a column: numbers from the largest, texts from A.
    pub(crate) fn sort(&mut self, column: usize) {
        self.rows.sort_by(|a, b| match (a.cells.get(column), b.cells.get(column)) {
            (Some(a), Some(b)) => match (a.value, b.value) {
                (Some(a), Some(b)) => b.total_cmp(&a),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => a.text.cmp(&b.text),
            },
            _ => std::cmp::Ordering::Equal,
        });
    }

    /// Width of each column.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(title, _)| title.len()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        widths
    }

    /// The lines of the table.
    pub(crate) fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let line = |cells: Vec<&str>| {
            let mut line = String::new();
            for (place, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let gap = if place == 0 { "" } else { "  " };
                match self.columns[place].1 {
                    true => line.push_str(&format!("{gap}{cell:>width$}")),
                    false => line.push_str(&format!("{gap}{cell:<width$}")),
                }
            }
            line.trim_end().to_owned()
        };
        let titles = line(self.columns.iter().map(|(title, _)| *title).collect());
        let rows = self
            .rows
            .iter()
            .map(|row| line(row.cells.iter().map(|cell| cell.text.as_str()).collect()));
        std::iter::once(titles).chain(rows).collect()
    }
}

fn text(text: impl Into<String>) -> GridCell {
    GridCell { text: text.into(), value: None }
}

fn number(value: f64, text: String) -> GridCell {
    GridCell { text, value: Some(value) }
}

fn known(value: Option<f64>, shown: impl Fn(f64) -> String) -> GridCell {
    match value {
        Some(value) => number(value, shown(value)),
        None => text("-"),
    }
}

fn nodes(overview: &Overview) -> Grid {
    let columns = vec![
        ("NODE", false),
        ("ROLE", false),
        ("STATE", false),
        ("REQ/S", true),
        ("ERR/S", true),
        ("READ/S", true),
        ("WRITE/S", true),
        ("HIT", true),
        ("P50", true),
        ("P99", true),
        ("CPU", true),
        ("MEM", true),
        ("USED", true),
    ];
    let rows = overview.nodes.iter().map(|node| {
        let rates = &node.rates;
        let mut cells = vec![text(&node.id), text(&node.role), text(state(node))];
        if node.answered {
            cells.extend(rate_cells(rates));
            cells.push(known(rates.p50_s, duration));
            cells.push(known(rates.p99_s, duration));
            cells.push(number(node.cpu_percent, format!("{:.0}%", node.cpu_percent)));
            cells.push(number(node.memory_bytes as f64, bytes(node.memory_bytes as f64)));
        } else {
            // Zeros would say that the node does nothing.
            cells.extend((3..columns.len() - 1).map(|_| text("-")));
        }
        let (used, size) = node
            .disks
            .iter()
            .fold((0, 0), |(used, size), disk| (used + disk.used_bytes, size + disk.size_bytes));
        cells.push(share(used, size));
        GridRow { id: node.id.clone(), cells }
    });
    let rows = rows.collect();
    Grid { columns, rows }
}

/// The state of a node, and whether it did not answer.
pub(crate) fn state(node: &OverviewNode) -> String {
    match (node.answered, node.state.as_str(), node.leads) {
        (false, "alive", _) => "no answer".to_owned(),
        (true, "alive", true) => "leads".to_owned(),
        (_, state, _) => state.to_owned(),
    }
}

/// Requests, errors, bytes in both directions, and the hit rate.
fn rate_cells(rates: &Rates) -> Vec<GridCell> {
    vec![
        number(rates.requests_per_s, count(rates.requests_per_s)),
        number(rates.errors_per_s, count(rates.errors_per_s)),
        number(rates.read_bytes_per_s, bytes(rates.read_bytes_per_s)),
        number(rates.written_bytes_per_s, bytes(rates.written_bytes_per_s)),
        known(rates.hit_rate, percent),
    ]
}

fn traffic<'a>(
    title: &'static str,
    rows: impl Iterator<Item = (&'a str, &'a Rates)>,
    has_hits: bool,
) -> Grid {
    let mut columns = vec![
        (title, false),
        ("REQ/S", true),
        ("ERR/S", true),
        ("READ/S", true),
        ("WRITE/S", true),
        ("HIT", true),
        ("MISS/S", true),
    ];
    columns.truncate(if has_hits { 7 } else { 5 });
    let rows = rows.map(|(id, rates)| {
        let mut cells = vec![text(id)];
        cells.extend(rate_cells(rates));
        cells.push(number(rates.misses_per_s, count(rates.misses_per_s)));
        cells.truncate(columns.len());
        GridRow { id: id.to_owned(), cells }
    });
    let rows = rows.collect();
    Grid { columns, rows }
}

/// The disks of some nodes.
pub(crate) fn disks<'a>(nodes: impl Iterator<Item = &'a OverviewNode>) -> Grid {
    let columns = vec![
        ("NODE", false),
        ("DISK", false),
        ("STATE", false),
        ("USED", true),
        ("SIZE", true),
        ("FULL", true),
    ];
    let rows = nodes.flat_map(|node| {
        node.disks.iter().map(|disk| GridRow {
            id: node.id.clone(),
            cells: vec![
                text(&node.id),
                text(&disk.path),
                text(disk.state.replace('_', " ")),
                number(disk.used_bytes as f64, bytes(disk.used_bytes as f64)),
                number(disk.size_bytes as f64, bytes(disk.size_bytes as f64)),
                share(disk.used_bytes, disk.size_bytes),
            ],
        })
    });
    Grid { columns, rows: rows.collect() }
}

/// The jobs on the buckets that `is_shown` selects.
pub(crate) fn jobs(overview: &Overview, is_shown: impl Fn(Option<&str>) -> bool) -> Grid {
    let columns = vec![
        ("JOB", false),
        ("KIND", false),
        ("BUCKET", false),
        ("STATE", false),
        ("DONE", true),
        ("OF", true),
        ("ERRORS", true),
        ("LEFT", true),
    ];
    let shown = overview.jobs.iter().filter(|job| is_shown(job.bucket.as_deref()));
    let rows = shown.map(|job| GridRow {
        id: job.id.clone(),
        cells: vec![
            text(&job.id),
            text(&job.kind),
            text(job.bucket.as_deref().unwrap_or("-")),
            text(&job.state),
            number(job.done as f64, job.done.to_string()),
            known(job.total.map(|total| total as f64), |total| format!("{total:.0}")),
            number(job.errors as f64, job.errors.to_string()),
            known(job.eta_s, duration),
        ],
    });
    Grid { columns, rows: rows.collect() }
}

/// The lines about the whole cluster.
pub(crate) fn summary(overview: &Overview) -> Vec<String> {
    let rates = &overview.cluster;
    let answered = overview.nodes.iter().filter(|node| node.answered).count();
    let shown = |value: Option<f64>, of: fn(f64) -> String| value.map_or("-".to_owned(), of);
    vec![
        format!(
            "{answered} of {} nodes answer   {} req/s   {} err/s   p50 {}   p99 {}",
            overview.nodes.len(),
            count(rates.requests_per_s),
            count(rates.errors_per_s),
            shown(rates.p50_s, duration),
            shown(rates.p99_s, duration),
        ),
        format!(
            "read {}/s   write {}/s   hit rate {}   {} misses/s",
            bytes(rates.read_bytes_per_s),
            bytes(rates.written_bytes_per_s),
            shown(rates.hit_rate, percent),
            count(rates.misses_per_s),
        ),
    ]
}

/// A number of things per second.
fn count(n: f64) -> String {
    match n {
        0.0 => "0".to_owned(),
        n if n < 10.0 => format!("{n:.1}"),
        n if n < 10_000.0 => format!("{n:.0}"),
        n if n < 10_000_000.0 => format!("{:.1}k", n / 1e3),
        n => format!("{:.1}M", n / 1e6),
    }
}

/// Bytes with at most one decimal.
pub(crate) fn bytes(n: f64) -> String {
    forebay_core::size::ByteSize(n.max(0.0).round() as u64).to_string()
}

/// Seconds in a fitting unit.
pub(crate) fn duration(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.0}us", s * 1e6),
        s if s < 1.0 => format!("{:.1}ms", s * 1e3),
        s if s < 100.0 => format!("{s:.1}s"),
        s if s < 5_400.0 => format!("{:.0}min", s / 60.0),
        s => format!("{:.1}h", s / 3_600.0),
    }
}

/// A share, never rounded up to all.
fn percent(share: f64) -> String {
    format!("{:.1}%", (share * 1_000.0).floor() / 10.0)
}

fn share(used: u64, size: u64) -> GridCell {
    match size {
        0 => text("-"),
        size => {
            let share = used as f64 / size as f64;
            number(share, format!("{:.0}%", share * 100.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units_and_few_digits() {
        let counts = [0.0, 0.2, 12.4, 9_999.0, 12_345.0, 12_345_678.0].map(count);
        assert_eq!(counts, ["0", "0.2", "12", "9999", "12.3k", "12.3M"]);
        let times = [42e-6, 0.0042, 4.2, 600.0, 7_200.0].map(duration);
        assert_eq!(times, ["42us", "4.2ms", "4.2s", "10min", "2.0h"]);
        assert_eq!((percent(0.9999), percent(1.0)), ("99.9%".into(), "100.0%".into()));
    }

    #[test]
    fn a_table_is_sorted_by_numbers_downwards_and_by_texts_upwards() {
        let row = |id: &str, n: Option<f64>| GridRow {
            id: id.into(),
            cells: vec![text(id), known(n, count)],
        };
        let rows = vec![row("b", Some(2.0)), row("c", None), row("a", Some(10.0))];
        let mut grid = Grid { columns: vec![("NAME", false), ("N", true)], rows };
        grid.sort(1);
        let ids = |grid: &Grid| grid.rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&grid), ["a", "b", "c"]);
        assert_eq!(grid.lines(), ["NAME    N", "a      10", "b     2.0", "c       -"]);
        grid.rows.reverse();
        grid.sort(0);
        assert_eq!(ids(&grid), ["a", "b", "c"]);
    }
}
