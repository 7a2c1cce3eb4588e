"""1 to 1,024 connections that read small objects: latencies, and goodput under overload.

    python bench/connections.py --bin build/dist/forebay --load build/dist/forebay-load

Each connection sends its next request after its last response. With so many of them the 99th percentile
of the latencies is to be at most 4 times the median. Goodput is the rate of complete responses; the best
is that of any number of connections up to 1,024, and the load that has it is the least number with
95 % of it. Overload is ten times that many connections; the goodput then is to be 80 % of the best, and
no request may fail. The generator is one thread on the same machine as the servers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forebay
import measurement
import peers
from measurement import KIB, Row, judged, shown

NUMBERS = (1, 4, 16, 64, 256, 1024)
OBJECTS, OBJECT_BYTES = 1_000, 4 * KIB
BUCKET = "connections"
LATENCY_GOAL, GOODPUT_GOAL = 4.0, 0.8
NEARLY_BEST = 0.95
OVERLOAD = 10
MOST_CONNECTIONS = 10_000


def command(
    program: str, server: peers.Server, bucket: str, numbers: dict[str, Any], seconds: float
) -> list[str]:
    """The command of the generator. `numbers` has `connections`, and `count` of objects."""
    path = server.get.replace("{bucket}", bucket).replace("{name}", "o{}")
    words = [program, "run", "--to", server.address, "--path", path, "--random"]
    for option, value in (numbers | {"seconds": seconds, "pid": server.pid}).items():
        words += [f"--{option}", str(value)]
    return words


def load(
    program: str,
    server: peers.Server,
    numbers: dict[str, Any],
    seconds: float,
    bucket: str = BUCKET,
) -> dict[str, Any]:
    """One run of the generator; its figures."""
    words = command(program, server, bucket, numbers, seconds)
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def least_with_best(rates: dict[int, float]) -> tuple[int, float]:
    """The least number of connections that nearly has the best rate, and the best rate."""
    best = max(rates.values())
    return min(number for number, rate in rates.items() if rate >= NEARLY_BEST * best), best


def fill(server: peers.Forebay, bucket: str, count: int, size: int) -> None:
    """Writes objects of a bucket, by names that the generator makes."""
    server.make_bucket(bucket)
    content = bytes(range(256)) * (size // 256)
    names = (f"o{number:08}" for number in range(count))
    forebay.Client(server.endpoint).bucket(bucket).put_many((name, content) for name in names)


def rows(options: argparse.Namespace, numbers: Sequence[int] = NUMBERS) -> list[Row]:
    """A row for each number of connections, and one for overload."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    seconds = 1.0 if options.quick else 10.0
    found: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.out)))
        server = stack.enter_context(peers.forebay(options.bin, folder.absolute()))
        fill(server, BUCKET, OBJECTS, OBJECT_BYTES)
        load(options.load, server, {"connections": 16, "count": OBJECTS}, 0.5)
        rates: dict[int, float] = {}
        for number in numbers:
            result = load(options.load, server, {"connections": number, "count": OBJECTS}, seconds)
            rates[number] = result["ops_per_s"]
            row = of_result(f"GET 4 KiB, {number:,} connections", number, result)
            ratio = result["p99_us"] / max(1, result["p50_us"])
            found.append(shown(judged(row, ratio, LATENCY_GOAL, at_least=False)))
        least, best = least_with_best(rates)
        # Each connection has a descriptor in the generator and one in the target.
        many = min(OVERLOAD * least, MOST_CONNECTIONS, most - 100)
        result = load(options.load, server, {"connections": many, "count": OBJECTS}, seconds)
        row = of_result(f"GET 4 KiB, overload: {many:,} connections", many, result)
        row |= {"best_per_s": best, "best_connections": least, "times_best_load": many / least}
        found.append(shown(judged(row, result["ops_per_s"] / best, GOODPUT_GOAL)))
    return found


def of_result(name: str, connections: int, result: dict[str, Any]) -> Row:
    return {
        "row": name,
        "who": "Forebay",
        "connections": connections,
        "per_s": result["ops_per_s"],
        "p50_s": result["p50_us"] / 1e6,
        "p99_s": result["p99_us"] / 1e6,
        "errors": result["errors"],
        "first_error": result["first_error"],
        "server_us": result["server_ticks"] * 1e4 / max(1, result["ops"]),
        "server_resident": result["server_resident"],
    }


def main() -> None:
    options = measurement.parser(__doc__, load=True).parse_args()
    measurement.run(options, rows)


if __name__ == "__main__":
    main()
