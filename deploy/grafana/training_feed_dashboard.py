"""The dashboard of a training run: do the targets feed it fast enough, and where does the time go?"""

from cluster_dashboard import GETS, NODE
from dashboard import NODE_VARIABLES, Dashboard, Variable
from panel import RATIO, Panel, Query, Row
from queries import heatmap, one, quantile, quantiles, rate, share

BUCKETS = 'bucket=~"$bucket"'
REQUEST_SECONDS = "forebay_http_request_seconds"
# Batches of our own clients, and of AIStore's.
BATCH = 'op=~"batch|moss"'
BATCHES_OK = f'{BATCH},result="ok"'

NOW = Row(
    "Now",
    (
        Panel(
            "Read by clients",
            one("sum(rate(forebay_get_bytes_total{NODES}[RATE]))"),
            kind="stat",
            width=4,
            height=4,
        ),
        Panel(
            "Hit ratio of bytes",
            one(share("forebay_get_bytes_total", 'result="hit"')),
            kind="stat",
            note="Above 95 % from the second epoch on, if the data set fits the cache.",
            unit=RATIO,
            width=4,
            height=4,
        ),
        Panel(
            "Read from backends",
            one("sum(rate(forebay_backend_bytes_total{NODES}[RATE]))"),
            kind="stat",
            width=4,
            height=4,
        ),
        Panel("Batches in progress", one("sum(forebay_batches{NODES})"), kind="stat", width=4, height=4),
        Panel(
            "Slowest 5 % of batches",
            one(quantile(0.95, REQUEST_SECONDS, matchers=BATCHES_OK)),
            kind="stat",
            width=4,
            height=4,
        ),
        Panel(
            "Slowest 5 % of first bytes",
            one(quantile(0.95, "forebay_http_first_byte_seconds", matchers=f'{GETS},result="ok"')),
            kind="stat",
            note="Reads of single objects.",
            width=4,
            height=4,
        ),
    ),
)

THROUGHPUT = Row(
    "Throughput",
    (
        Panel(
            "Bytes read by cache result",
            one(rate("forebay_get_bytes_total", "result"), "{{result}}"),
            stacked=True,
        ),
        Panel(
            "Objects read by cache result",
            one(rate("forebay_get_objects_total", "result"), "{{result}}"),
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
        Panel("Bytes read by target", one(rate("forebay_get_bytes_total", NODE), "{{instance}}")),
        Panel(
            "Entries of batches",
            one(rate("forebay_batch_entries_total", "result"), "{{result}}"),
            stacked=True,
        ),
        Panel(
            "Requests that clients repeat or gave up",
            one(rate("forebay_http_requests_total", "result", 'result=~"busy|error|aborted"'), "{{result}}"),
            note="busy: above limits.batches or another limit. aborted: the client closed the connection.",
        ),
    ),
)

BATCHES = Row(
    "Batches",
    (
        Panel(
            "Batches by result",
            one(rate("forebay_http_requests_total", "result", BATCH), "{{result}}"),
            stacked=True,
        ),
        Panel("Time of a batch", quantiles(REQUEST_SECONDS, BATCHES_OK)),
        Panel("Time of a batch, spread", heatmap(REQUEST_SECONDS, BATCHES_OK), kind="heatmap"),
        Panel("Batches in progress by target", one("forebay_batches{NODES}", "{{instance}} {{state}}")),
        Panel("Wait of a batch for a place", quantiles("forebay_batch_queue_seconds")),
        Panel("Wait of a batch for a place, spread", heatmap("forebay_batch_queue_seconds"), kind="heatmap"),
        Panel(
            "Bytes that batches hold by target",
            one("forebay_batch_held_bytes{NODES}", "{{instance}} {{state}}"),
            note="Near limits.batch_memory the clients read too slowly, or the limit is too low.",
        ),
        Panel(
            "Slowest 5 % of batches by target",
            one(quantile(0.95, REQUEST_SECONDS, NODE, BATCHES_OK), "{{instance}}"),
            note="A target that is slower than the others delays each batch.",
        ),
        Panel(
            "Longest 5 % of waits by target",
            one(quantile(0.95, "forebay_batch_queue_seconds", NODE), "{{instance}}"),
        ),
    ),
)

PER_BUCKET = Row(
    "Buckets",
    (
        Panel(
            "Bytes read by bucket",
            one(rate("forebay_bucket_get_bytes_total", "bucket", BUCKETS), "{{bucket}}"),
            stacked=True,
        ),
        Panel(
            "Objects read by bucket",
            one(rate("forebay_bucket_get_objects_total", "bucket", BUCKETS), "{{bucket}}"),
            stacked=True,
        ),
        Panel(
            "Hit ratio by bucket",
            one(share("forebay_bucket_get_bytes_total", 'result="hit"', "bucket", BUCKETS), "{{bucket}}"),
            unit=RATIO,
            limit=1,
        ),
    ),
)

LATENCY = Row(
    "First bytes of reads",
    (
        Panel("First byte", quantiles("forebay_http_first_byte_seconds", f'{GETS},result="ok"')),
        Panel(
            "First byte, spread",
            heatmap("forebay_http_first_byte_seconds", f'{GETS},result="ok"'),
            kind="heatmap",
        ),
        Panel(
            "Slowest 1 % of first bytes by target",
            one(
                quantile(0.99, "forebay_http_first_byte_seconds", NODE, f'{GETS},result="ok"'),
                "{{instance}}",
            ),
            note="A target that is slower than the others delays all readers.",
        ),
    ),
)

COLD = Row(
    "Cold reads",
    (
        Panel(
            "Bytes read from backends",
            one(rate("forebay_backend_bytes_total", "provider"), "{{provider}}"),
            stacked=True,
        ),
        Panel(
            "Time of a GET from a backend",
            quantiles("forebay_backend_request_seconds", 'op="get",result="ok"'),
        ),
        Panel(
            "Reads that shared a download",
            one(share("forebay_get_bytes_total", 'result="coalesced"')),
            note="Share of the bytes that clients read.",
            unit=RATIO,
        ),
        Panel(
            "Slowest 1 % of disk reads by target",
            one(quantile(0.99, "forebay_disk_read_seconds", NODE), "{{instance}}"),
        ),
        Panel("Evicted bytes by reason", one(rate("forebay_evicted_bytes_total", "reason"), "{{reason}}")),
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
    ),
)

DASHBOARD = Dashboard(
    uid="forebay-training-feed",
    title="Forebay / Training feed",
    description="Throughput, batches, hit ratio and slow targets of a training run.",
    variables=(
        *NODE_VARIABLES,
        Variable(
            "bucket",
            "Bucket",
            'forebay_bucket_get_bytes_total{cluster=~"$cluster",namespace=~"$namespace",job=~"$job"}',
            "For the row of buckets.",
        ),
    ),
    rows=(NOW, THROUGHPUT, BATCHES, PER_BUCKET, LATENCY, COLD),
)
