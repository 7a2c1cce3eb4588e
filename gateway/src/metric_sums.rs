//! Sums of metrics over the targets, under their own names, for monitoring that reads one gateway
//! only.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// Families that are summed: the name behind the prefix, the type, the help.
pub(crate) const FAMILIES: [(&str, &str, &str); 11] = [
    ("backend_requests_total", "counter", "Requests to backends, over all targets"),
    (
        "backend_bytes_total",
        "counter",
        "Bytes of objects that were read from backends, over all targets",
    ),
    (
        "cloud_requests_total",
        "counter",
        "Requests to a bucket's cloud, by the class that the cloud bills, over all targets",
    ),
    (
        "cloud_bytes_total",
        "counter",
        "Bytes of objects fetched from a bucket's cloud and sent to it, and bytes of its listings, \
         over all targets",
    ),
    (
        "egress_saved_bytes_total",
        "counter",
        "Bytes of a cloud's objects that were served without another download, over all targets",
    ),
    (
        "get_bytes_total",
        "counter",
        "Bytes of objects served to clients, by cache result, over all targets",
    ),
    ("batch_entries_total", "counter", "Batch entries answered, over all targets"),
    (
        "damaged_total",
        "counter",
        "Times that stored bytes did not match their checksum, over all targets",
    ),
    (
        "healed_total",
        "counter",
        "Damaged copies that were repaired, or dropped to be fetched again, over all targets",
    ),
    (
        "lost_total",
        "counter",
        "Times that damage was found and no other copy could repair it, over all targets",
    ),
    ("disks", "gauge", "Disks of all targets that reply, by state"),
];
/// Prefix of the names of a node.
pub(crate) const OF_NODE: &str = "forebay_";
/// Prefix of the names of sums.
pub(crate) const OF_CLUSTER: &str = "forebay_cluster_";

/// A gauge of what the gateway sees of the cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClusterGauge {
    Leading,
    HasLeader,
    Voters,
    VotersReachable,
    Term,
    Nodes,
    ClockOffset,
}

impl ClusterGauge {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 7] = [
        Self::Leading,
        Self::HasLeader,
        Self::Voters,
        Self::VotersReachable,
        Self::Term,
        Self::Nodes,
        Self::ClockOffset,
    ];

    /// The name without the prefix, the labels, the help.
    pub(crate) fn family(self) -> (&'static str, &'static [&'static str], &'static str) {
        match self {
            Self::Leading => ("leading", &[], "Whether this gateway is the leader"),
            Self::HasLeader => (
                "has_leader",
                &[],
                "Whether a majority of the gateways has a leader; without a leader, no metadata can change",
            ),
            Self::Voters => ("voters", &[], "Gateways that vote about changes of metadata"),
            Self::VotersReachable => (
                "voters_reachable",
                &[],
                "Gateways that vote and send heartbeats, 1 without a leader; changes need more than half of those that vote",
            ),
            Self::Term => ("term", &[], "Term of the metadata log: it grows with each election"),
            Self::Nodes => {
                ("nodes", &["role", "state"], "Nodes by role and state, as known to this gateway")
            }
            Self::ClockOffset => (
                "clock_offset_seconds",
                &["node"],
                "Seconds by which a node's clock is ahead of the leading gateway's",
            ),
        }
    }
}

/// The counters of each target at the last scrape. A sum of counters must never decrease: the
/// counts of a target before it restarted or left stay in the sum.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// By target, then by series without the prefix.
    counters: BTreeMap<String, BTreeMap<String, Counter>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    /// The counts of earlier processes of the target.
    before: f64,
    now: f64,
}

impl Sums {
    /// Updates the sums with the pages of the targets that replied, by target, and renders them.
    /// Targets that are not in `members` are dropped.
    pub(crate) fn render<'a>(
        &mut self,
        pages: &[(String, String)],
        members: impl Iterator<Item = &'a str>,
    ) -> String {
        let members: Vec<&str> = members.collect();
        self.counters.retain(|target, _| members.contains(&target.as_str()));
        let mut gauges: BTreeMap<String, f64> = BTreeMap::new();
        for (target, page) in pages {
            let counters = self.counters.entry(target.clone()).or_default();
            for (series, value) in page.lines().filter_map(sample) {
                match kind(series) {
                    Some("gauge") => *gauges.entry(series.to_owned()).or_default() += value,
                    Some(_) => counters.entry(series.to_owned()).or_default().set(value),
                    None => {}
                }
            }
        }
        let mut totals = gauges;
        for (series, counter) in self.counters.values().flatten() {
            *totals.entry(series.clone()).or_default() += counter.before + counter.now;
        }
        let mut text = String::new();
        for (family, kind, help) in FAMILIES {
            let of_family = |(series, _): &(&String, &f64)| name(series) == family;
            let mut series = totals.iter().filter(of_family).peekable();
            if series.peek().is_some() {
                header(&mut text, family, kind, help);
            }
            for (series, total) in series {
                let _ = writeln!(text, "{OF_CLUSTER}{series} {total}");
            }
        }
        text
    }
}

impl Counter {
    fn set(&mut self, value: f64) {
        if value < self.now {
            self.before += self.now;
        }
        self.now = value;
    }
}

/// Renders a gauge of the cluster: its samples are `(labels, value)`.
pub(crate) fn gauge<N: Display>(gauge: ClusterGauge, samples: &[(String, N)]) -> String {
    let (name, _, help) = gauge.family();
    let mut text = String::new();
    header(&mut text, name, "gauge", help);
    for (labels, value) in samples {
        let _ = writeln!(text, "{OF_CLUSTER}{name}{labels} {value}");
    }
    text
}

fn header(text: &mut String, family: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {OF_CLUSTER}{family} {help}");
    let _ = writeln!(text, "# TYPE {OF_CLUSTER}{family} {kind}");
}

/// A sample of a node's page: the series without the prefix, and its value.
fn sample(line: &str) -> Option<(&str, f64)> {
    // `name{labels} value`; labels may hold spaces, the value may not.
    let (series, value) = line.rsplit_once(' ')?;
    Some((series.strip_prefix(OF_NODE)?, value.parse().ok()?))
}

fn name(series: &str) -> &str {
    series.split('{').next().unwrap_or(series)
}

fn kind(series: &str) -> Option<&'static str> {
    FAMILIES.iter().find(|(family, ..)| *family == name(series)).map(|(_, kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(target: &str, text: &str) -> (String, String) {
        (target.to_owned(), text.to_owned())
    }

    #[test]
    fn same_series_add_up_under_names_of_the_cluster_and_others_stay_out() {
        let one = page(
            "t1",
            "# HELP forebay_get_bytes_total x\nforebay_get_bytes_total{result=\"hit\"} 5\n\
            forebay_backend_requests_total{op=\"get\",provider=\"a b\"} 1\nforebay_store_bytes 9\n\
            forebay_disks{state=\"in_use\"} 1\n",
        );
        let two = page(
            "t2",
            "forebay_get_bytes_total{result=\"hit\"} 7\n\
            forebay_get_bytes_total{result=\"miss\"} 1e3\nbroken\nforebay_disks{state=\"in_use\"} 2\n",
        );
        let mut sums = Sums::default();
        let text = sums.render(&[one, two.clone()], ["t1", "t2"].into_iter());
        for line in [
            "forebay_cluster_get_bytes_total{result=\"hit\"} 12",
            "forebay_cluster_get_bytes_total{result=\"miss\"} 1000",
            "forebay_cluster_backend_requests_total{op=\"get\",provider=\"a b\"} 1",
            "forebay_cluster_disks{state=\"in_use\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
        assert!(!text.contains("store") && !text.contains("forebay_get_bytes_total"), "{text}");
        assert_eq!(text.matches("# TYPE").count(), 3);
        assert_eq!(Sums::default().render(&[], [].into_iter()), "");
    }

    #[test]
    fn a_sum_of_counters_never_falls_when_a_target_restarts_or_goes_away() {
        let mut sums = Sums::default();
        let hits = |n: u64| page("t1", &format!("forebay_get_bytes_total{{result=\"hit\"}} {n}\n"));
        let both = || ["t1", "t2"].into_iter();
        let other = page("t2", "forebay_get_bytes_total{result=\"hit\"} 1\nforebay_disks 1\n");
        let hit = "forebay_cluster_get_bytes_total{result=\"hit\"} ";
        let text = sums.render(&[hits(10), other], both());
        assert!(text.contains(&format!("{hit}11\n")), "{text}");
        // It restarts from zero, and the other one does not reply.
        let text = sums.render(&[hits(2)], both());
        assert!(text.contains(&format!("{hit}13\n")), "{text}");
        assert!(!text.contains("disks"), "a gauge is of those that reply: {text}");
        let text = sums.render(&[hits(3)], ["t1"].into_iter());
        assert!(
            text.contains(&format!("{hit}13\n")),
            "the other one is no member any more: {text}"
        );
    }
}
