"""A training job beside a scanner of another bucket: latencies of the job's reads.

    python bench/fairness.py --bin build/dist/forebay --load build/dist/forebay-load

The job reads objects of 64 KiB over four connections, each its next object after its last one. The
scanner reads another bucket over 64 connections, as fast as it may. Three loads take turns: the job
alone, beside the scanner, and beside the scanner with a limit of a tenth of the job's lone rate
(`rate.requests_per_second`). With the limit, the 99th percentile of the job's latencies is to be at most
1.5 times that of the job alone. Medians of the rounds. The generators and the servers share the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measurement
import peers
from connections import command, fill, load
from measurement import KIB, Row, judged, shown

OBJECT_BYTES = 64 * KIB
JOB, SCAN = "job", "scan"
OBJECTS = {JOB: 500, SCAN: 5_000}
CONNECTIONS = {JOB: 4, SCAN: 64}
LATENCY_GOAL = 1.5
LIMIT = 0.1
"""Of the job's lone rate."""
ROUNDS = 5


@contextlib.contextmanager
def scanner(program: str, server: peers.Server, seconds: float) -> Iterator[None]:
    """Reads the bucket of the scanner meanwhile."""
    numbers = {"connections": CONNECTIONS[SCAN], "count": OBJECTS[SCAN]}
    words = command(program, server, SCAN, numbers, seconds)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as running:
        try:
            yield
        finally:
            running.terminate()


def limit(program: str, server: peers.Forebay, per_s: str) -> None:
    """Sets the scanner's limit of requests."""
    words = [program, "--endpoint", server.endpoint, "bucket", "set", f"ais://{SCAN}"]
    words.append(f"rate.requests_per_second={per_s}")
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def rows(options: argparse.Namespace) -> list[Row]:
    """A row for each of the three loads."""
    seconds, rounds = (1.0, 1) if options.quick else (4.0, ROUNDS)
    numbers = {"connections": CONNECTIONS[JOB], "count": OBJECTS[JOB]}
    results: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.out)))
        server = stack.enter_context(peers.forebay(options.bin, folder.absolute()))
        for bucket, count in OBJECTS.items():
            fill(server, bucket, count, OBJECT_BYTES)

        def job() -> dict[str, Any]:
            return load(options.load, server, numbers, seconds, JOB)

        # The first run warms caches.
        allowed = str(max(1, int(LIMIT * job()["ops_per_s"])))
        for _ in range(rounds):
            results["alone"].append(job())
            with scanner(options.load, server, 4 * seconds):
                results["beside a scanner"].append(job())
            limit(options.bin, server, allowed)
            with scanner(options.load, server, 4 * seconds):
                results["beside a scanner with a limit"].append(job())
            limit(options.bin, server, "none")
    lone = median(results["alone"], "p99_us")
    found = []
    for name, of_load in results.items():
        row: Row = {"row": f"job {name}", "who": "Forebay", "scanner_per_s": allowed}
        row |= {"per_s": median(of_load, "ops_per_s"), "p50_s": median(of_load, "p50_us") / 1e6}
        row |= {"p99_s": median(of_load, "p99_us") / 1e6}
        row |= {"errors": sum(result["errors"] for result in of_load)}
        ratio = median(of_load, "p99_us") / lone
        judges = "limit" in name
        row = judged(row, ratio, LATENCY_GOAL, at_least=False) if judges else row | {"ratio": ratio}
        found.append(shown(row))
    return found


def median(results: list[dict[str, Any]], key: str) -> float:
    """The median of one figure over the rounds."""
    return statistics.median(float(result[key]) for result in results)


def main() -> None:
    options = measurement.parser(__doc__, load=True).parse_args()
    measurement.run(options, rows)


if __name__ == "__main__":
    main()
