"""Rows with goals instead of peers: `bench/connections.py`, `bench/fairness.py`, `bench/node_load.py` and
`bench/network.py`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import connections
import network
from compare.row import Contender, Measured, Row, Section
from compare.runner import Failed, Run, skipped

LATENCIES = {
    number: Row(
        f"limits/connections-{number}",
        f"GET 4 KiB, connections: {number:,}; p99 of the latencies over the median, goal 4",
        "×",
        higher_is_better=False,
    )
    for number in connections.NUMBERS
}
OVERLOAD = Row(
    "limits/overload", "GET 4 KiB, ten times the load of the best rate: part of that rate, goal 0.8", "×"
)
FAIR = Row(
    "limits/fairness",
    "p99 of a job's reads beside a scanner with a limit, over that of the job alone; goal 1.5",
    "×",
    higher_is_better=False,
)
NODE = Row(
    "limits/node-load",
    "one checkpoint, loaded by 8 processes with a NodeCache: bytes over those of one process; goal 1.1",
    "×",
    higher_is_better=False,
)
LINKS = {
    (what, targets): Row(
        f"limits/network-{what}-{targets}", f"{what}s of 4 MiB across links, targets: {targets}", "GB/s"
    )
    for what in ("read", "write")
    for targets in (network.TARGETS[0], network.TARGETS[-1])
}
ROWS = (*LATENCIES.values(), OVERLOAD, FAIR, NODE, *LINKS.values())


def ours(value: float) -> list[Contender]:
    return [Contender("Forebay", "ours", value)]


def measure(run: Run) -> Iterable[Measured]:
    if "load" not in run.programs:
        raise Failed("the load generator is not there: cargo build --profile dist -p forebay-load")
    quick = ["--quick"] if run.quick else []
    load = ["--load", run.programs["load"]]
    found = run.script("connections.py", "connections.json", *load, *quick)
    yield from of_connections(found)
    fair = run.script("fairness.py", "fairness.json", *load, *quick)
    unlimited, limited = fair[1], fair[2]
    shared = "job, scanner and server share the cores of the machine"
    notes = [f"{unlimited['ratio']:.3g} × without a limit; {shared}"]
    yield Measured(FAIR, ours(limited["ratio"]), notes=notes)
    _, straight, cached = run.script("node_load.py", "node_load.json", *quick)
    size = f"{cached['checkpoint_bytes'] / (1 << 20):,.0f} MiB"
    times = f"slowest after {cached['slowest_s']:.3g} s, {straight['slowest_s']:.3g} s without the cache"
    yield Measured(NODE, ours(cached["ratio"]), notes=[f"{size}; {times}"])
    if os.geteuid() != 0:
        yield from (skipped(row, "network namespaces need root") for row in LINKS.values())
        return
    yield from of_network(run.script("network.py", "network.json", *quick))


def of_connections(found: list[dict[str, Any]]) -> Iterator[Measured]:
    by_number = {one["connections"]: one for one in found if "best_per_s" not in one}
    for number, row in LATENCIES.items():
        one = by_number[number]
        notes = [f"{one['per_s']:,.0f}/s, median {one['p50_s'] * 1e6:,.0f} µs"]
        yield Measured(row, ours(one["ratio"]), notes=notes)
    one = next(one for one in found if "best_per_s" in one)
    notes = [f"{one['connections']:,} connections, errors: {one['errors']}"]
    yield Measured(OVERLOAD, ours(one["ratio"]), notes=notes)


def of_network(found: list[dict[str, Any]]) -> Iterator[Measured]:
    ran = {one["row"]: one for one in found if "not_run" not in one}
    why = next((one["not_run"] for one in found if "not_run" in one), "it was not measured")
    for (what, targets), row in LINKS.items():
        one = ran.get(f"network {what}, {targets} targets")
        if one is None:
            yield skipped(row, why)
            continue
        notes = [
            f"links of {one['link_mbit'] / 1000:g} Gbit/s, {one['of_links']:.0%} of them; cores for"
            f" 100 GbE: {one['server_cores_per_100gbe']:.1f} of servers,"
            f" {one['client_cores_per_100gbe']:.1f} of the client"
        ]
        yield Measured(row, ours(one["bytes_per_s"] / 1e9), notes=notes)


SECTION = Section("limits", "Connections, networks, fairness, one checkpoint for a machine", ROWS, measure, minutes=5)
