//! Draws the full-screen view.

use forebay_core::overview::Severity;

use super::app::App;
use super::canvas::{Line, Span, Style};
use super::grid::{View, summary};

/// Alerts that are shown; the number of the others is.
const MAX_ALERTS: usize = 4;

const HELP: [&str; 12] = [
    "n b c d j   nodes, buckets, clients, disks, jobs",
    "Tab         the next view; Shift-Tab the previous",
    "s           sort by the next column, after the last as the cluster sorts",
    "Up Down     select a row; Home and End the first and the last",
    "Enter       the disks of a node, the jobs of a bucket",
    "Esc         back",
    "q           quit",
    "",
    "Rates are those of the last 5 seconds. HIT is the share of reads without a",
    "new download. P50 and P99 are whole times of requests at the node. A request",
    "of a bucket is an object that was read or written.",
    "Any key returns.",
];

/// The lines of a screen of this height.
pub(crate) fn draw(app: &App, height: usize) -> Vec<Line> {
    let mut lines = head_lines(app);
    lines.extend(alert_lines(app));
    lines.push(tab_line(app));
    let space = height.saturating_sub(lines.len() + 1);
    let mut body = match app.shows_help {
        true => HELP.iter().map(|line| plain(*line)).collect(),
        false => table_lines(app, space),
    };
    body.resize(space, Line::new());
    lines.extend(body);
    lines.truncate(height.saturating_sub(1));
    lines.push(match &app.error {
        Some(error) => styled(Style::Red, format!("no reply: {error}")),
        None => styled(Style::Dim, "q quit  s sort  Enter more  ? help"),
    });
    lines
}

fn styled(style: Style, text: impl Into<String>) -> Line {
    vec![Span(style, text.into())]
}

fn plain(text: impl Into<String>) -> Line {
    styled(Style::Plain, text)
}

fn head_lines(app: &App) -> Vec<Line> {
    let Some(overview) = &app.overview else { return vec![plain("forebay top: waiting")] };
    // To the second.
    let at = overview.at.chars().take(19).collect::<String>().replace('T', " ");
    let mut lines = vec![styled(Style::Bold, format!("forebay top   {at} UTC"))];
    lines.extend(summary(overview).into_iter().map(plain));
    lines
}

fn alert_lines(app: &App) -> Vec<Line> {
    let Some(overview) = &app.overview else { return Vec::new() };
    let shown = overview.alerts.iter().take(MAX_ALERTS).map(|alert| {
        let style = match alert.severity {
            Severity::Critical => Style::Red,
            Severity::Warning => Style::Yellow,
            Severity::Info => Style::Cyan,
        };
        let severity = Span(style, alert.severity.as_str().to_owned());
        vec![severity, Span(Style::Plain, format!("  {}", alert.text))]
    });
    let mut lines: Vec<Line> = shown.collect();
    let more = overview.alerts.len().saturating_sub(MAX_ALERTS);
    if more > 0 {
        lines.push(styled(Style::Dim, format!("and {more} more alerts")));
    }
    lines
}

fn tab_line(app: &App) -> Line {
    let mut line = Line::new();
    for view in View::ALL {
        let style = if view == app.view { Style::Selected } else { Style::Dim };
        line.push(Span(style, format!(" {} ", view.title())));
        line.push(Span(Style::Plain, " ".to_owned()));
    }
    if let Some(detail) = &app.detail {
        let what = if app.view == View::Buckets { "jobs of" } else { "disks of" };
        line.push(Span(Style::Plain, format!("{what} {detail}")));
    }
    line
}

/// The titles, and as many rows as there is space for; the selected row is among them.
fn table_lines(app: &App, space: usize) -> Vec<Line> {
    let grid = app.grid();
    if grid.rows.is_empty() {
        let nothing = if app.overview.is_some() { "nothing here" } else { "" };
        return vec![styled(Style::Dim, nothing)];
    }
    let mut lines = vec![title_line(app, &grid.widths())];
    let first = (app.row + 2).saturating_sub(space);
    for (place, line) in grid.lines().into_iter().skip(1).enumerate().skip(first) {
        let style = if place == app.row { Style::Selected } else { Style::Plain };
        lines.push(styled(style, line));
    }
    lines
}

/// The titles of the columns; that of the column that sorts stands out.
fn title_line(app: &App, widths: &[usize]) -> Line {
    let grid = app.grid();
    let sorted = app.sorted_by();
    let mut line = Line::new();
    for (place, ((title, is_number), width)) in grid.columns.iter().zip(widths).enumerate() {
        let gap = Span(Style::Plain, " ".repeat(width.saturating_sub(title.len())));
        let style = if sorted == Some(place) { Style::Sorted } else { Style::Bold };
        let title = Span(style, (*title).to_owned());
        if place > 0 {
            line.push(Span(Style::Plain, "  ".to_owned()));
        }
        match is_number {
            true => line.extend([gap, title]),
            false => line.extend([title, gap]),
        }
    }
    line
}

#[cfg(test)]
pub(crate) mod tests {
    use console::Key;
    use forebay_core::overview::{
        Alert, Overview, OverviewBucket, OverviewClient, OverviewDisk, OverviewJob, OverviewNode,
        Rates,
    };

    use super::*;
    use crate::top::canvas::text_of;

    fn rates(requests_per_s: f64) -> Rates {
        Rates {
            requests_per_s,
            errors_per_s: 0.2,
            read_bytes_per_s: requests_per_s * 1_024.0,
            written_bytes_per_s: 512.0,
            hits_per_s: 90.0,
            misses_per_s: 10.0,
            hit_rate: Some(0.9),
            p50_s: Some(90e-6),
            p99_s: Some(0.012),
        }
    }

    fn node(id: &str, role: &str, state: &str) -> OverviewNode {
        let disk = |path: &str| OverviewDisk {
            path: path.into(),
            used_bytes: 3 << 30,
            size_bytes: 4 << 30,
            state: "in_use".into(),
        };
        OverviewNode {
            id: id.into(),
            role: role.into(),
            state: state.into(),
            answered: state == "alive",
            leads: role == "gateway",
            memory_bytes: 64 << 20,
            cpu_percent: 42.0,
            rates: rates(if state == "alive" { 60.0 } else { 0.0 }),
            disks: if role == "target" { vec![disk("/d1"), disk("/d2")] } else { vec![] },
            ..OverviewNode::default()
        }
    }

    /// A cluster of three nodes, one of which is down.
    pub(crate) fn overview() -> Overview {
        let bucket = |uri: &str, n| OverviewBucket {
            uri: uri.into(),
            rates: rates(n),
            ..OverviewBucket::default()
        };
        let client = |client: &str, n| OverviewClient { client: client.into(), rates: rates(n) };
        Overview {
            at: "2026-11-28T19:30:00.123456789Z".into(),
            interval_s: 5,
            cluster: rates(120.0),
            nodes: vec![
                node("g1", "gateway", "alive"),
                node("t1", "target", "alive"),
                node("t2", "target", "down"),
            ],
            buckets: vec![bucket("s3://train", 100.0), bucket("ais://ckpt", 20.0)],
            clients: vec![client("10.0.0.7", 80.0), client("eva", 40.0)],
            jobs: vec![OverviewJob {
                id: "prefetch-x7".into(),
                kind: "prefetch".into(),
                state: "running".into(),
                bucket: Some("s3://train".into()),
                done: 25,
                total: Some(100),
                errors: 0,
                eta_s: Some(30.0),
            }],
            alerts: vec![Alert {
                name: "ForebayTargetDead".into(),
                severity: Severity::Critical,
                text: "target t2 is down".into(),
            }],
        }
    }

    fn drawn(app: &App) -> Vec<String> {
        let lines = draw(app, 14);
        assert_eq!(lines.len(), 14);
        lines.iter().map(|line| text_of(line).trim_end().to_owned()).collect()
    }

    fn pressed(keys: &[Key]) -> Vec<String> {
        let mut app = App::new();
        app.look(Ok(overview()));
        keys.iter().for_each(|key| app.press(key));
        drawn(&app)
    }

    #[test]
    fn the_nodes_are_drawn_with_the_cluster_and_its_alerts_above() {
        let expected = "\
forebay top   2026-11-28 19:30:00 UTC
2 of 3 nodes answer   120 req/s   0.2 err/s   p50 90us   p99 12.0ms
read 120KiB/s   write 512B/s   hit rate 90.0%   10 misses/s
critical  target t2 is down
 Nodes   Buckets   Clients   Disks   Jobs
NODE  ROLE     STATE  REQ/S  ERR/S  READ/S  WRITE/S    HIT   P50     P99  CPU    MEM  USED
g1    gateway  leads     60    0.2   60KiB     512B  90.0%  90us  12.0ms  42%  64MiB     -
t1    target   alive     60    0.2   60KiB     512B  90.0%  90us  12.0ms  42%  64MiB   75%
t2    target   down       -      -       -        -      -     -       -    -      -   75%




q quit  s sort  Enter more  ? help";
        assert_eq!(pressed(&[]).join("\n"), expected);
    }

    #[test]
    fn buckets_sorted_by_name_and_the_disks_of_a_node_are_drawn() {
        let lines = pressed(&[Key::Char('b'), Key::Char('s')]);
        assert_eq!(lines[5], "BUCKET      REQ/S  ERR/S  READ/S  WRITE/S    HIT  MISS/S");
        assert_eq!(lines[6], "ais://ckpt     20    0.2   20KiB     512B  90.0%      10");
        assert_eq!(lines[7], "s3://train    100    0.2  100KiB     512B  90.0%      10");
        let lines = pressed(&[Key::ArrowDown, Key::Enter]);
        assert_eq!(lines[4], " Nodes   Buckets   Clients   Disks   Jobs  disks of t1");
        assert_eq!(lines[5], "NODE  DISK  STATE   USED  SIZE  FULL");
        assert_eq!(lines[6], "t1    /d1   in use  3GiB  4GiB   75%");
    }

    #[test]
    fn jobs_and_the_help_are_drawn_and_a_failed_look_is_named() {
        let lines = pressed(&[Key::Char('j')]);
        assert_eq!(
            lines[6],
            "prefetch-x7  prefetch  s3://train  running    25  100       0  30.0s"
        );
        assert_eq!(pressed(&[Key::Char('?')])[5], HELP[0]);
        let mut app = App::new();
        assert_eq!(drawn(&app)[0], "forebay top: waiting");
        app.look(Err("timed out".into()));
        assert_eq!(drawn(&app)[13], "no reply: timed out");
    }
}
