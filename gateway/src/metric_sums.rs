//! Adds up what targets count, for readers that look at one gateway only.

use std::collections::BTreeMap;

/// Families that are summed: what a client can check from outside.
const FAMILIES: [(&str, &str, &str); 11] = [
    ("forebay_backend_requests_total", "counter", "Requests to backends, over all targets"),
    ("forebay_backend_bytes_total", "counter", "Bytes read from backends, over all targets"),
    (
        "forebay_cloud_requests_total",
        "counter",
        "Requests to a bucket's cloud by the class it bills, over all targets",
    ),
    (
        "forebay_cloud_bytes_total",
        "counter",
        "Bytes fetched from a bucket's cloud and sent to it, over all targets",
    ),
    (
        "forebay_egress_saved_bytes_total",
        "counter",
        "Bytes of a cloud's objects served without another download, over all targets",
    ),
    ("forebay_get_bytes_total", "counter", "Bytes of objects served to clients, over all targets"),
    ("forebay_batch_entries_total", "counter", "Entries of batches answered, over all targets"),
    (
        "forebay_damaged_total",
        "counter",
        "Times that stored bytes failed their check, over all targets",
    ),
    (
        "forebay_healed_total",
        "counter",
        "Damaged copies given up for their backend's, over all targets",
    ),
    (
        "forebay_lost_total",
        "counter",
        "Times that damage had no other copy to heal it, over all targets",
    ),
    ("forebay_disks", "gauge", "Disks by their state, over all targets"),
];

/// Sums series of the same name and labels over Prometheus text pages.
pub(crate) fn sum(pages: &[String]) -> String {
    let mut totals: BTreeMap<&str, f64> = BTreeMap::new();
    for line in pages.iter().flat_map(|p| p.lines()) {
        // `name{labels} value`; labels may hold spaces, the value may not.
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let name = series.split('{').next().unwrap_or(series);
        if let Ok(value) = value.parse::<f64>()
            && FAMILIES.iter().any(|(family, ..)| *family == name)
        {
            *totals.entry(series).or_default() += value;
        }
    }
    let mut text = String::new();
    for (family, kind, help) in FAMILIES {
        let mut series =
            totals.iter().filter(|(series, _)| series.split('{').next() == Some(family)).peekable();
        if series.peek().is_some() {
            text.push_str(&format!("# HELP {family} {help}\n# TYPE {family} {kind}\n"));
        }
        for (series, total) in series {
            text.push_str(&format!("{series} {total}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_series_add_up_and_others_stay_out() {
        let one = "# HELP forebay_get_bytes_total x\nforebay_get_bytes_total{result=\"hit\"} 5\n\
            forebay_backend_requests_total{op=\"get\",provider=\"a b\"} 1\nforebay_store{what=\"x\"} 9\n";
        let two = "forebay_get_bytes_total{result=\"hit\"} 7\n\
            forebay_get_bytes_total{result=\"miss\"} 1e3\nbroken\n";
        let text = sum(&[one.into(), two.into()]);
        for line in [
            "forebay_get_bytes_total{result=\"hit\"} 12",
            "forebay_get_bytes_total{result=\"miss\"} 1000",
            "forebay_backend_requests_total{op=\"get\",provider=\"a b\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
        assert!(!text.contains("forebay_store"));
        assert_eq!(text.matches("# TYPE").count(), 2);
        assert_eq!(sum(&[]), "");
    }
}
