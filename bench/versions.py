"""Two versions of Forebay side by side: user and system CPU time per request, in interleaved pairs.

    python bench/versions.py --old OLD/forebay --new build/release/forebay \
        --load build/release/forebay-load [--old-python OLD/venv/bin/python] [--row "GET 1 KiB"]

Both clusters run for the whole time, and each pair loads one right after the other, in alternating
order: a machine whose speed drifts is equally slow for both. The CPU time of the gateway, the target
and the client counts, so work that moves between them is no gain. `--old-python` and `--new-python`
name interpreters that have each version's packages; without them both clusters are read by the
packages of this one. The result is the median of the pairs' ratios, new by old, with the quartiles.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import store
from batch import TICK_S, cpu_s
from peers import Forebay, forebay

KIB = 1 << 10
OBJECTS, OBJECT_BYTES = 5_000, KIB
BATCH = 64
"""Objects of a batch, and of a step of the loader."""
MAX_RATIO = 1.03
"""A row above this ratio is marked."""


@dataclass
class Version:
    """One version: its cluster, and the process that reads with its packages."""

    server: Forebay
    client: subprocess.Popen[str]

    def server_cpu_s(self) -> float:
        """CPU time that the cluster's processes have used."""
        return sum(map(cpu_s, (self.server.pid, *self.server.helpers)))


@dataclass(frozen=True)
class Cost:
    """The CPU time of all processes for a run of requests, in seconds."""

    requests: int
    cpu_s: float

    @property
    def us(self) -> float:
        """Microseconds of CPU time per request."""
        return self.cpu_s / self.requests * 1e6


Run = Callable[[Version], Cost]


def by_load(method: str, size: int, seconds: float) -> Run:
    """Requests of the load generator, straight at the target."""
    bucket = "read" if method == "GET" else "written"
    load = store.Load(f"{method} {size}", method, bucket, size, OBJECTS, connections=16)

    def run(version: Version) -> Cost:
        row = store.Bench(OPTIONS).load(version.server, load, seconds)
        if row["errors"]:
            sys.exit(f"{load.name}: {row['errors']} errors")
        return Cost(row["ops"], (row["server_ticks"] + row["client_ticks"]) * TICK_S)

    return run


def by_client(what: str, seconds: float) -> Run:
    """Reads through the Python packages; a request is one object."""

    def run(version: Version) -> Cost:
        before = version.server_cpu_s()
        assert version.client.stdin is not None and version.client.stdout is not None
        version.client.stdin.write(json.dumps({"what": what, "seconds": seconds}) + "\n")
        version.client.stdin.flush()
        answer = json.loads(version.client.stdout.readline())
        server_s = version.server_cpu_s() - before
        return Cost(answer["objects"], server_s + answer["cpu_s"])

    return run


def serve_client(endpoint: str) -> None:
    """The process of `by_client`: one line of JSON in for each run, one out."""
    import forebay
    from forebay_torch import MapDataset
    from torch.utils.data import DataLoader

    client = forebay.Client(endpoint)
    bucket = client.bucket("read")
    names = [f"o{i:08}" for i in range(OBJECTS)]
    dataset = MapDataset(bucket)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, collate_fn=list)

    def batches() -> Iterator[int]:
        at = 0
        while True:
            reader = client.batch(bucket=bucket)
            for name in names[at : at + BATCH]:
                reader.add(name)
            yield sum(1 for _ in reader.get_all())
            at = (at + BATCH) % (OBJECTS - BATCH)

    def steps() -> Iterator[int]:
        while True:
            for step in loader:
                yield len(step)

    runs = {"batch": batches(), "map": steps()}
    for line in sys.stdin:
        task = json.loads(line)
        until, cpu, objects = time.monotonic() + task["seconds"], time.process_time(), 0
        while time.monotonic() < until:
            objects += next(runs[task["what"]])
        print(json.dumps({"objects": objects, "cpu_s": time.process_time() - cpu}), flush=True)


@contextlib.contextmanager
def started(program: str, python: str, folder: Path) -> Iterator[Version]:
    """A cluster of one version with its objects, and its client."""
    folder.mkdir()
    with forebay(program, folder) as server:
        server.helpers = [server.gateway_pid]
        bench = store.Bench(OPTIONS)
        bench.fill(server, store.Load("objects", "GET", "read", OBJECT_BYTES, OBJECTS, 16))
        server.make_bucket("written")
        client = subprocess.Popen(
            [python, __file__, "--client", server.endpoint],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield Version(server, client)
        finally:
            client.kill()
            client.wait()


def compare(name: str, run: Run, old: Version, new: Version, pairs: int) -> dict[str, object]:
    """Runs both versions in turns; the first run of each does not count."""
    run(old), run(new)
    costs: list[tuple[float, float]] = []
    for i in range(pairs):
        if i % 2 == 0:
            before = run(old).us
            after = run(new).us
        else:
            after = run(new).us
            before = run(old).us
        costs.append((before, after))
    ratios = [after / before for before, after in costs]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    row = {
        "row": name,
        "old_us": statistics.median(before for before, _ in costs),
        "new_us": statistics.median(after for _, after in costs),
        "ratio": middle,
        "quartiles": [low, high],
        "pairs": pairs,
    }
    mark = "" if middle <= MAX_RATIO else f"  above {MAX_RATIO}"
    print(
        f"{name:18} {row['old_us']:8.1f} us {row['new_us']:8.1f} us"
        f"   {middle:.3f}  ({low:.3f} to {high:.3f}){mark}",
        flush=True,
    )
    return row


def main() -> None:
    runs: dict[str, Run] = {
        "GET 1 KiB": by_load("GET", OBJECT_BYTES, OPTIONS.seconds),
        "PUT 16 KiB": by_load("PUT", 16 * KIB, OPTIONS.seconds),
        "batch 1 KiB": by_client("batch", OPTIONS.seconds),
        "map 1 KiB": by_client("map", OPTIONS.seconds),
    }
    chosen = OPTIONS.row or list(runs)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        old = stack.enter_context(started(OPTIONS.old, OPTIONS.old_python, folder / "old"))
        new = stack.enter_context(started(OPTIONS.new, OPTIONS.new_python, folder / "new"))
        print(f"{'':18} {'old':>11} {'new':>11}   new / old  (quartiles)")
        rows = [compare(name, runs[name], old, new, OPTIONS.pairs) for name in chosen]
    if OPTIONS.out:
        Path(OPTIONS.out).mkdir(parents=True, exist_ok=True)
        (Path(OPTIONS.out) / "versions.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Two versions of Forebay side by side")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--old", help="the program of the older version")
    parser.add_argument("--new", help="the program of the newer version")
    parser.add_argument("--old-python", default=sys.executable, help="Python with its packages")
    parser.add_argument("--new-python", default=sys.executable, help="Python with its packages")
    parser.add_argument("--load", help="the program forebay-load")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.5, help="length of each run")
    parser.add_argument("--row", action="append", help="only this row; may be repeated")
    parser.add_argument("--out", help="folder for versions.json")
    OPTIONS = parser.parse_args()
    if OPTIONS.client:
        serve_client(OPTIONS.client)
    elif not (OPTIONS.old and OPTIONS.new and OPTIONS.load):
        parser.error("--old, --new and --load are needed")
    else:
        main()
