"""The dashboard of a cluster: is it healthy, what does it serve, and what do disks and backends do?"""

from dashboard import NODE_VARIABLES, Dashboard
from panel import GREEN, ORANGE, RATIO, RED, SECONDS, YELLOW, Panel, Query, Row
from queries import heatmap, one, quantile, quantiles, rate, share

GETS = 'op=~"get|GetObject"'
ZERO_IS_GOOD = ((None, GREEN), (1, RED))
NODE = "namespace, instance"

STATE = Row(
    "State",
    (
        Panel(
            "Leader",
            one("min(max by (cluster, namespace) (forebay_cluster_has_leader{CLUSTER}))"),
            kind="stat",
            values={0: ("none", RED), 1: ("yes", GREEN)},
            width=4,
            height=4,
        ),
        Panel(
            "Votes",
            (
                Query(
                    "sum(max by (cluster, namespace) (forebay_cluster_voters_reachable{CLUSTER}))",
                    "reachable",
                ),
                Query("sum(max by (cluster, namespace) (forebay_cluster_voters{CLUSTER}))", "in all"),
            ),
            kind="stat",
            note="More than half of the gateways that vote must be reachable.",
            width=4,
            height=4,
        ),
        Panel(
            "Nodes down",
            one('sum(max by (cluster, namespace, role) (forebay_cluster_nodes{CLUSTER,state="down"}))'),
            kind="stat",
            thresholds=ZERO_IS_GOOD,
            width=4,
            height=4,
        ),
        Panel(
            "Disks away",
            one('sum(forebay_disks{NODES,state="away"})'),
            kind="stat",
            thresholds=ZERO_IS_GOOD,
            width=4,
            height=4,
        ),
        Panel(
            "Damage without another copy",
            one("sum(increase(forebay_lost_total{NODES}[$__range]))"),
            kind="stat",
            note="In the time range of the dashboard.",
            thresholds=ZERO_IS_GOOD,
            width=4,
            height=4,
        ),
        Panel(
            "First certificate expires in",
            one("min(forebay_tls_certificate_expiry_seconds{NODES}) - time()"),
            kind="stat",
            note="Without TLS there is no value.",
            thresholds=((None, RED), (2 * 86400, ORANGE), (14 * 86400, GREEN)),
            width=4,
            height=4,
        ),
        Panel(
            "Nodes by state",
            one(
                "max by (cluster, namespace, role, state) (forebay_cluster_nodes{CLUSTER})",
                "{{role}} {{state}}",
            ),
        ),
        Panel(
            "Firing alerts",
            one('ALERTS{NAMESPACE,alertname=~"Forebay.+",alertstate="firing"}'),
            kind="table",
            note="The pages of the alerts are in docs/runbooks.md.",
            columns=("alertname", "severity", "namespace", "instance"),
        ),
        Panel(
            "Versions",
            one("forebay_build_info{NODES}"),
            kind="table",
            columns=("instance", "role", "version"),
        ),
        Panel("Leading gateway", one("forebay_cluster_leading{CLUSTER}", "{{instance}}"), limit=1),
        Panel(
            "Raft term",
            one("max by (cluster, namespace) (forebay_cluster_term{CLUSTER})", "{{namespace}} term"),
            note="The term grows with each election.",
        ),
        Panel(
            "Clock offsets",
            one("forebay_cluster_clock_offset_seconds{CLUSTER}", "{{node}}"),
            note="The leading gateway measures them.",
            signed=True,
        ),
    ),
)

REQUESTS = Row(
    "Requests",
    (
        Panel("Requests by API", one(rate("forebay_http_requests_total", "api"), "{{api}}"), stacked=True),
        Panel(
            "Requests that do not succeed",
            one(rate("forebay_http_requests_total", "api, result", 'result!="ok"'), "{{api}} {{result}}"),
        ),
        Panel(
            "Share of errors by node",
            one(share("forebay_http_requests_total", 'result="error"', NODE), "{{instance}}"),
            unit=RATIO,
            thresholds=((None, GREEN), (0.05, RED)),
        ),
        Panel(
            "First byte of reads",
            quantiles("forebay_http_first_byte_seconds", f'{GETS},result="ok"'),
            note="Reads of objects over all APIs.",
        ),
        Panel(
            "First byte of reads, spread",
            heatmap("forebay_http_first_byte_seconds", f'{GETS},result="ok"'),
            kind="heatmap",
        ),
        Panel(
            "Slowest 1 % of requests by operation",
            one(quantile(0.99, "forebay_http_request_seconds", "api, op"), "{{api}} {{op}}"),
        ),
        Panel(
            "Requests in progress",
            one("sum by (namespace, instance) (forebay_http_requests_in_flight{NODES})", "{{instance}}"),
        ),
        Panel(
            "Slowest 1 % of first bytes by node",
            one(quantile(0.99, "forebay_http_first_byte_seconds", NODE), "{{instance}}"),
        ),
        Panel(
            "Requests by operation",
            one(rate("forebay_http_requests_total", "api, op"), "{{api}} {{op}}"),
        ),
    ),
)

CACHE = Row(
    "Cache",
    (
        Panel(
            "Bytes served by cache result",
            one(rate("forebay_get_bytes_total", "result"), "{{result}}"),
            stacked=True,
        ),
        Panel(
            "Hit ratio",
            (
                Query(share("forebay_get_bytes_total", 'result="hit"'), "bytes"),
                Query(share("forebay_get_objects_total", 'result="hit"'), "objects"),
            ),
            unit=RATIO,
            limit=1,
        ),
        Panel(
            "Evicted bytes by reason",
            one(rate("forebay_evicted_bytes_total", "reason"), "{{reason}}"),
            stacked=True,
        ),
        Panel(
            "Requests over a rate",
            (
                Query(rate("forebay_rate_delayed_total", "reason"), "delayed {{reason}}"),
                Query(rate("forebay_rate_refused_total", "reason"), "refused {{reason}}"),
            ),
        ),
        Panel(
            "Use of the budget by target",
            one("forebay_store_bytes{NODES} / forebay_store_budget_bytes{NODES}", "{{instance}}"),
            unit=RATIO,
            thresholds=((None, GREEN), (0.93, RED)),
        ),
        Panel(
            "Stored bytes",
            (
                Query("sum(forebay_store_bytes{NODES})", "stored"),
                Query("sum(forebay_store_budget_bytes{NODES})", "budget"),
            ),
        ),
        Panel("Stored objects by target", one("forebay_store_objects{NODES}", "{{instance}}"), stacked=True),
    ),
)

DISKS = Row(
    "Disks",
    (
        Panel("Disks by state", one("sum by (state) (forebay_disks{NODES})", "{{state}}"), stacked=True),
        Panel(
            "Free share of the file systems",
            one("forebay_disk_free_bytes{NODES} / forebay_disk_size_bytes{NODES}", "{{instance}} {{disk}}"),
            unit=RATIO,
            limit=1,
            thresholds=((None, RED), (0.05, GREEN)),
        ),
        Panel(
            "Free bytes of the file systems", one("forebay_disk_free_bytes{NODES}", "{{instance}} {{disk}}")
        ),
        Panel(
            "Slowest 1 % of reads by disk",
            one(quantile(0.99, "forebay_disk_read_seconds", f"{NODE}, disk"), "{{instance}} {{disk}}"),
        ),
        Panel(
            "Slowest 1 % of writes by disk",
            one(quantile(0.99, "forebay_disk_write_seconds", f"{NODE}, disk"), "{{instance}} {{disk}}"),
        ),
        Panel(
            "Slowest 1 % of fsyncs by disk",
            one(quantile(0.99, "forebay_disk_sync_seconds", f"{NODE}, disk"), "{{instance}} {{disk}}"),
        ),
        Panel("Reads, spread", heatmap("forebay_disk_read_seconds"), kind="heatmap"),
        Panel("Writes, spread", heatmap("forebay_disk_write_seconds"), kind="heatmap"),
        Panel("Fsyncs, spread", heatmap("forebay_disk_sync_seconds"), kind="heatmap"),
    ),
)

BACKENDS = Row(
    "Backends",
    (
        Panel(
            "Requests to backends",
            one(rate("forebay_backend_requests_total", "provider, op"), "{{provider}} {{op}}"),
            stacked=True,
        ),
        Panel(
            "Failed requests to backends",
            one(
                rate(
                    "forebay_backend_requests_total", "provider, result", 'result=~"error|denied|unavailable"'
                ),
                "{{provider}} {{result}}",
            ),
            note="Each retry counts.",
        ),
        Panel(
            "Bytes read from backends",
            one(rate("forebay_backend_bytes_total", "provider"), "{{provider}}"),
            stacked=True,
        ),
        Panel("Time of requests to backends", quantiles("forebay_backend_request_seconds", 'result="ok"')),
        Panel(
            "Time of requests to backends, spread", heatmap("forebay_backend_request_seconds"), kind="heatmap"
        ),
        Panel(
            "Slowest 1 % of requests by backend and operation",
            one(quantile(0.99, "forebay_backend_request_seconds", "provider, op"), "{{provider}} {{op}}"),
        ),
    ),
)

CLOUD_COSTS = Row(
    "Costs of clouds",
    (
        Panel(
            "Billed requests by bucket and class",
            one(
                rate("forebay_cloud_requests_total", "bucket, class", 'class!="free"'), "{{bucket}} {{class}}"
            ),
        ),
        Panel(
            "Bytes between clouds and targets",
            one(rate("forebay_cloud_bytes_total", "bucket, direction"), "{{bucket}} {{direction}}"),
        ),
        Panel(
            "Downloads saved",
            one(rate("forebay_egress_saved_bytes_total", "bucket"), "{{bucket}}"),
            stacked=True,
        ),
        Panel("Pages of listings", one(rate("forebay_cloud_listing_pages_total", "bucket"), "{{bucket}}")),
    ),
    closed=True,
)

INTEGRITY = Row(
    "Checksums",
    (
        Panel("Checked bytes", one(rate("forebay_checked_bytes_total", "path"), "{{path}}"), stacked=True),
        Panel("Checked blocks", one(rate("forebay_checked_blocks_total", "path"), "{{path}}"), stacked=True),
        Panel(
            "Damage in the last hour",
            (
                Query(
                    "sum by (namespace, instance) (increase(forebay_damaged_total{NODES}[1h]))",
                    "{{instance}} found",
                ),
                Query(
                    "sum by (namespace, instance) (increase(forebay_healed_total{NODES}[1h]))",
                    "{{instance}} repaired",
                ),
                Query(
                    "sum by (namespace, instance) (increase(forebay_lost_total{NODES}[1h]))",
                    "{{instance}} lost",
                ),
            ),
        ),
    ),
    closed=True,
)

SECURITY = Row(
    "TLS, audit log and traces",
    (
        Panel(
            "TLS handshakes", one(rate("forebay_tls_handshakes_total", "result"), "{{result}}"), stacked=True
        ),
        Panel(
            "Time to the end of certificates",
            one("forebay_tls_certificate_expiry_seconds{NODES} - time()", "{{instance}} {{subject}}"),
            signed=True,
            thresholds=((None, RED), (14 * 86400, GREEN)),
        ),
        Panel("Records of the audit log", one(rate("forebay_audit_records_total", "sink"), "{{sink}}")),
        Panel(
            "Lost records of the audit log",
            one(rate("forebay_audit_lost_total", f"{NODE}, sink"), "{{instance}} {{sink}}"),
        ),
        Panel("Spans for the collector", one(rate("forebay_trace_spans_total", "result"), "{{result}}")),
        Panel(
            "Choices of traces not sent to other nodes",
            one(rate("forebay_trace_dropped_marks_total", NODE), "{{instance}}"),
        ),
    ),
    closed=True,
)

PROCESSES = Row(
    "Processes",
    (
        Panel(
            "CPU",
            one("rate(process_cpu_seconds_total{NODES}[RATE])", "{{instance}}"),
            note="1 is one core.",
        ),
        Panel("Resident memory", one("process_resident_memory_bytes{NODES}", "{{instance}}")),
        Panel(
            "Open files of the limit",
            one("process_open_fds{NODES} / process_max_fds{NODES}", "{{instance}}"),
            unit=RATIO,
            limit=1,
            thresholds=((None, GREEN), (0.5, YELLOW), (0.8, RED)),
        ),
        Panel("Threads", one("process_threads{NODES}", "{{instance}}")),
        Panel(
            "Time since the start",
            one("time() - process_start_time_seconds{NODES}", "{{instance}}"),
            unit=SECONDS,
        ),
    ),
    closed=True,
)

DASHBOARD = Dashboard(
    uid="forebay-cluster",
    title="Forebay / Cluster",
    description="State of the nodes, requests, cache, disks and backends of a cluster.",
    variables=NODE_VARIABLES,
    rows=(STATE, REQUESTS, CACHE, DISKS, BACKENDS, CLOUD_COSTS, INTEGRITY, SECURITY, PROCESSES),
)
