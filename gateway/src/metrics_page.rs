//! Renders `docs/metrics.md` from the families that nodes register and gateways sum, and checks the
//! file against it.

#[path = "../../tests/generated_page.rs"]
mod generated_page;

use std::collections::BTreeSet;
use std::fmt::Write;

use forebay_core::bill::RequestClass;
use forebay_core::intra::DiskStatus;
use forebay_core::state::{NodeStatus, Role};
use forebay_node::bucket_reads::MAX_NAMED_BUCKETS;
use forebay_node::metric_families::Family;
use forebay_node::metrics::Metrics;

use self::generated_page::{cell, check, sentence};
use crate::metric_sums::{ClusterGauge, FAMILIES, OF_CLUSTER, OF_NODE};

const INTRO: &str = "\
# Metrics

Every gateway and every target serves its metrics at `GET /metrics` on its port, in the text format of
Prometheus. `make docs` generates this page from the registry of the nodes.

- A counter starts at 0 with the process of its node.
- A family appears with its first sample: a target without a cloud bucket, for example, serves no
  `forebay_cloud_requests_total`. This page lists these families too.
- Labels never hold names of objects.
- A histogram `x_seconds` is served as `x_seconds_bucket` (with the label `le`, the upper bound in seconds),
  `x_seconds_sum` and `x_seconds_count`. A batch of objects is the operation `batch` of the API `api` in the
  histograms of requests.
- To watch a whole cluster, scrape every node, or one gateway alone for the sums over its targets. Do not add up
  the `forebay_cluster_` families of several gateways: each gateway exports the same sums.

";

/// Units of families, by a part of their name.
const UNITS: [(&str, &str); 24] = [
    ("requests_in_flight", "requests"),
    ("build_info", "always 1"),
    ("_fds", "descriptors"),
    ("_threads", "threads"),
    ("_voters", "gateways"),
    ("_term", "elections"),
    ("cpu_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_seconds", "seconds"),
    ("_requests_", "requests"),
    ("_records_", "records"),
    ("_spans_", "spans"),
    ("_marks_", "marks"),
    ("_objects", "objects"),
    ("_entries_", "entries"),
    ("_blocks_", "blocks"),
    ("_pages_", "pages"),
    ("_disks", "disks"),
    ("_nodes", "nodes"),
    ("_batches", "batches"),
    ("healed_total", "copies"),
    ("_handshakes_", "handshakes"),
    ("leader", "0 or 1"),
    ("leading", "0 or 1"),
];

/// Where the name has no unit in it.
const EVENTS: [&str; 4] =
    ["damaged_total", "lost_total", "rate_delayed_total", "rate_refused_total"];

#[test]
fn the_page_of_metrics_matches_the_registry() {
    check("metrics.md", &page());
}

#[test]
fn every_label_has_one_description() {
    let mut described: Vec<(String, String)> = Vec::new();
    for (label, families, _) in labels() {
        described.extend(families.iter().map(|family| ((*family).to_owned(), label.to_owned())));
    }
    let nodes = Metrics::of(Role::Target).families();
    let mut labels = BTreeSet::new();
    for family in nodes.into_iter().chain(gauges()) {
        for label in family.labels {
            labels.insert((family.name.clone(), label));
        }
    }
    assert_eq!(described.iter().cloned().collect::<BTreeSet<_>>(), labels);
    assert_eq!(described.len(), labels.len(), "a label is described twice");
}

#[test]
fn every_sum_is_over_a_family_of_targets_of_the_same_type() {
    let nodes = Metrics::of(Role::Target).families();
    for (name, kind, _) in FAMILIES {
        let family = nodes.iter().find(|family| family.name == format!("{OF_NODE}{name}"));
        assert_eq!(family.map(|family| family.kind), Some(kind), "{name}");
    }
}

fn page() -> String {
    let nodes = Metrics::of(Role::Target).families();
    let mut page = INTRO.to_owned();
    section(&mut page, "Targets", "Every target exports these families.", &nodes);
    let own = Metrics::of(Role::Gateway).families();
    section(
        &mut page,
        "Gateways",
        "Every gateway exports the requests that it answered itself, its audit log, its traces, its TLS, and its process.",
        &own,
    );
    let labels_of = |name: &str| {
        let of_node = nodes.iter().find(|family| family.name == format!("{OF_NODE}{name}"));
        of_node.map(|family| family.labels.clone()).unwrap_or_default()
    };
    let sums = FAMILIES.map(|(name, kind, help)| Family {
        name: format!("{OF_CLUSTER}{name}"),
        kind,
        labels: labels_of(name),
        help: help.to_owned(),
    });
    section(
        &mut page,
        "Sums over all targets",
        "Every gateway exports these families. For each scrape, the gateway requests the metrics of the targets \
         and adds them up. A sum of counters keeps the share of a target that restarted or does not reply, until the gateway \
         itself restarts. A sum of gauges covers the targets that reply.",
        &sums,
    );
    section(
        &mut page,
        "The cluster as a gateway sees it",
        "Every gateway exports these families; only the gateway that leads exports the offsets of clocks.",
        &gauges(),
    );
    page.push_str("## Labels\n\nA sum has the labels of the family that it adds up.\n\n");
    page.push_str("| label | families | values |\n|---|---|---|\n");
    for (label, families, values) in labels() {
        let families: Vec<_> = families.iter().map(|family| format!("`{family}`")).collect();
        let _ = writeln!(page, "| `{label}` | {} | {} |", families.join(", "), cell(&values));
    }
    page
}

fn gauges() -> Vec<Family> {
    let family = |gauge: ClusterGauge| {
        let (name, labels, help) = gauge.family();
        Family {
            name: format!("{OF_CLUSTER}{name}"),
            kind: "gauge",
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            help: help.to_owned(),
        }
    };
    ClusterGauge::ALL.map(family).into()
}

fn section(page: &mut String, title: &str, about: &str, families: &[Family]) {
    let _ = writeln!(page, "## {title}\n\n{about}\n");
    page.push_str("| name | type | labels | unit | meaning |\n|---|---|---|---|---|\n");
    for Family { name, kind, labels, help } in families {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (labels, unit, help) = (labels.join(", "), unit(name), cell(&sentence(help)));
        let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {unit} | {help} |");
    }
    page.push('\n');
}

fn unit(name: &str) -> &'static str {
    if EVENTS.iter().any(|event| name.ends_with(event)) {
        return "events";
    }
    let found = UNITS.iter().find(|(part, _)| name.contains(part));
    found.map(|(_, unit)| *unit).unwrap_or_else(|| panic!("UNITS has no unit of {name}"))
}

/// `a`, `b`, `c`.
fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Each label with the families that have it, and its values.
fn labels() -> Vec<(&'static str, &'static [&'static str], String)> {
    let disk_states = DiskStatus::ALL.map(|state| {
        let meaning = match state {
            DiskStatus::InUse => "",
            DiskStatus::Leaving => " (its objects move to other disks)",
            DiskStatus::Away => " (failed or missing)",
            DiskStatus::Mending => " (its index is being rebuilt)",
            DiskStatus::Disabled => " (by command)",
        };
        format!("`{}`{meaning}", state.as_str())
    });
    let classes = words(RequestClass::ALL.map(RequestClass::as_str));
    let standings = words(NodeStatus::ALL.map(NodeStatus::as_str));
    vec![
        (
            "api",
            &[
                "forebay_http_requests_total",
                "forebay_http_first_byte_seconds",
                "forebay_http_request_seconds",
                "forebay_http_requests_in_flight",
            ],
            "`v1` (the AIStore API), `s3`, `api` (Forebay's own API), `internal` (requests of nodes to each other), \
             `operations` (health, metrics, the console), or `unknown` (refused before that was decided)."
                .into(),
        ),
        (
            "op",
            &[
                "forebay_http_requests_total",
                "forebay_http_first_byte_seconds",
                "forebay_http_request_seconds",
            ],
            "The operation: a method such as `get` and `put`, `batch` or `moss` (batches of Forebay's and of \
             AIStore's clients), a v1 action, the name of an S3 operation, or the path of a request between nodes."
                .into(),
        ),
        (
            "result",
            &[
                "forebay_http_requests_total",
                "forebay_http_first_byte_seconds",
                "forebay_http_request_seconds",
            ],
            "`ok`, `not_found`, `wrong_owner` (another target owns the object), `busy` (429), `refused` (another \
             4xx), `error` (5xx, or an answer that broke off) or `aborted` (the client went away)."
                .into(),
        ),
        (
            "result",
            &[
                "forebay_get_bytes_total",
                "forebay_get_objects_total",
                "forebay_bucket_get_bytes_total",
                "forebay_bucket_get_objects_total",
            ],
            "`hit` (served from the target), `miss` (fetched for this reader) or `coalesced` (fetched for another \
             reader at the same time)."
                .into(),
        ),
        (
            "result",
            &["forebay_tls_handshakes_total"],
            "`ok`, `failed`, `timeout`, or `plain` (plain HTTP that was refused).".into(),
        ),
        (
            "result",
            &["forebay_trace_spans_total"],
            "`exported` (received by the collector) or `dropped` (the queue was full, or the collector failed).".into(),
        ),
        (
            "sink",
            &["forebay_audit_records_total", "forebay_audit_lost_total"],
            "`file` (`audit.file`) or `collector` (`audit.url`). A node without this sink serves no such sample.".into(),
        ),
        (
            "subject",
            &["forebay_tls_certificate_expiry_seconds"],
            "The subject of the certificate.".into(),
        ),
        ("result", &["forebay_batch_entries_total"], "`ok`, `missing` or `error`.".into()),
        (
            "provider",
            &[
                "forebay_backend_requests_total",
                "forebay_backend_request_seconds",
                "forebay_backend_bytes_total",
            ],
            "`aws`, `gcp`, `azure`, `ht` (web server), `ais` (another cluster) or `folder`.".into(),
        ),
        (
            "op",
            &["forebay_backend_requests_total", "forebay_backend_request_seconds"],
            "`head_bucket`, `stat`, `get`, `put`, `delete`, `list` or `compose`.".into(),
        ),
        (
            "result",
            &["forebay_backend_requests_total", "forebay_backend_request_seconds"],
            "`ok`, `not_found`, `denied`, `changed` (the object changed), `unavailable` (worth a retry) or \
             `error`. Every retry counts."
                .into(),
        ),
        (
            "bucket",
            &[
                "forebay_cloud_requests_total",
                "forebay_cloud_bytes_total",
                "forebay_egress_saved_bytes_total",
                "forebay_cloud_listing_pages_total",
            ],
            "The bucket as a URI, such as `s3://data`.".into(),
        ),
        (
            "bucket",
            &["forebay_bucket_get_bytes_total", "forebay_bucket_get_objects_total"],
            format!(
                "The bucket as a URI, for the first {MAX_NAMED_BUCKETS} buckets that the target serves objects \
                 of; `other` is the sum of the others."
            ),
        ),
        (
            "class",
            &["forebay_cloud_requests_total"],
            format!("{classes}. S3 and Google bill `a` and `b`; Azure bills `write`, `list`, `read` and `other`; \
                 `free` costs nothing; `request` is a request to a server without a price list. See \
                 [what a cloud bills](clouds.md#what-it-costs)."),
        ),
        (
            "direction",
            &["forebay_cloud_bytes_total"],
            "`fetched`, `sent` or `listed`.".into(),
        ),
        (
            "reason",
            &["forebay_evicted_bytes_total"],
            "`room` (the disk is above the high watermark), `share` (the bucket is above its share), `ttl` (not \
             read for the bucket's `ttl`), `request` (a client or a job evicted it) or `unowned` (another target \
             owns the object since `cache.unowned_s` or longer)."
                .into(),
        ),
        (
            "reason",
            &["forebay_rate_delayed_total", "forebay_rate_refused_total"],
            "`bucket_requests` and `bucket_bytes` (the bucket's `rate.…`), `user_requests` and `user_bytes` (the \
             setting `limits.user_…`)."
                .into(),
        ),
        (
            "path",
            &[
                "forebay_checked_blocks_total",
                "forebay_checked_bytes_total",
                "forebay_damaged_total",
                "forebay_healed_total",
                "forebay_lost_total",
            ],
            "`read` (a request read the bytes) or `scrub`.".into(),
        ),
        ("state", &["forebay_batches", "forebay_batch_held_bytes"], "`open`.".into()),
        ("state", &["forebay_disks"], format!("{}.", disk_states.join(", "))),
        (
            "disk",
            &[
                "forebay_disk_read_seconds",
                "forebay_disk_write_seconds",
                "forebay_disk_sync_seconds",
                "forebay_disk_size_bytes",
                "forebay_disk_free_bytes",
            ],
            "The path of the disk.".into(),
        ),
        ("version", &["forebay_build_info"], "The version of the program.".into()),
        ("role", &["forebay_build_info", "forebay_cluster_nodes"], "`gateway` or `target`.".into()),
        ("state", &["forebay_cluster_nodes"], format!("{standings}.")),
        ("node", &["forebay_cluster_clock_offset_seconds"], "The id of the node.".into()),
    ]
}
