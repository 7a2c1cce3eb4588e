"""The warmth of a large bucket, compared with a scan after each change, and what it costs to ask.

    build/venv/bin/python bench/warmth.py --bin build/dist/forebay

A bucket with its objects in a folder, on three targets: a prefetch of all, an eviction of half, reads of
some of the evicted, a crash of each target, a target that joins, and one that is removed. After each,
the numbers that the index keeps must be those of a listing of what is cached, to the object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import peers

BUCKET = "many"
SIZE = 1 << 10
OBJECTS_OF_FOLDER = 1_000
"""Objects whose names share a prefix; half of these prefixes are evicted."""
ASKED = 200
STABLE_WITHIN_S = 600
Row = dict[str, Any]


class Bench:
    """The cluster under test."""

    def __init__(self, cluster: peers.Forebay, binary: str, folder: Path) -> None:
        self.cluster = cluster
        self.binary = binary
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def forebay(self, *words: str) -> str:
        """Runs a command of the command line."""
        command = [self.binary, *words, "--endpoint", self.cluster.endpoint]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def warmth(self) -> Row:
        """The warmth of the bucket, as one request has it."""
        url = f"{self.cluster.endpoint}/api/v1/warmth/{BUCKET}?provider=ais"
        answer: Row = json.loads(peers.call("GET", url))
        if answer["away"]:
            raise RuntimeError(f"without the targets {answer['away']}")
        return dict(answer["buckets"][0])

    def scan(self) -> tuple[int, int]:
        """Objects and bytes of a listing of what is cached."""
        rows = json.loads(self.forebay("ls", f"ais://{BUCKET}", "--cached", "-o", "json"))
        return len(rows), sum(row["size"] for row in rows)

    def compare(self, after: str) -> Row:
        """Waits until both are equal, and stay so: targets may still drop copies of others."""
        deadline = time.monotonic() + STABLE_WITHIN_S
        while True:
            before, scanned, warmth = self.warmth(), self.scan(), self.warmth()
            counted = (warmth["objects"], warmth["bytes"])
            if counted == scanned == (before["objects"], before["bytes"]):
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"after {after}: the warmth has {counted}, a scan {scanned}")
            time.sleep(5)
        times = []
        for _ in range(ASKED):
            start = time.perf_counter()
            self.warmth()
            times.append(time.perf_counter() - start)
        row = {
            "after": after,
            "objects": scanned[0],
            "bytes": scanned[1],
            "median_ms": statistics.median(times) * 1e3,
            "max_ms": max(times) * 1e3,
        }
        print(
            f"{after:<36} {row['objects']:>9,} objects, equal to the scan; asked in"
            f" {row['median_ms']:.2f} ms, at most {row['max_ms']:.2f} ms",
            flush=True,
        )
        return row

    def alive_targets(self) -> int:
        """The targets that the cluster counts as alive."""
        state = json.loads(peers.call("GET", f"{self.cluster.endpoint}/api/v1/map"))["state"]
        nodes = state["nodes"].values()
        return sum(node["role"] == "target" and node["alive"] for node in nodes)

    def await_targets(self, count: int) -> None:
        peers.wait(lambda: self.alive_targets() == count, f"a cluster of {count} targets")

    def start_node(self, name: str) -> None:
        """Starts a node by the command that its folder has."""
        folder = self.folder / name
        with (folder / "log").open("ab") as log:
            node = subprocess.Popen(["sh", str(folder / "cmd")], stdout=log, stderr=log)
        self.started.append(node)

    def crash(self, target: Row, alive: int) -> None:
        """Kills a target, and starts it again."""
        os.kill(target["pid"], signal.SIGKILL)
        self.await_targets(alive - 1)
        self.start_node(target["id"])
        self.await_targets(alive)

    def add_target(self, name: str) -> None:
        """Starts a further target, with the settings of the first."""
        model = self.cluster.description["targets"][0]
        host, port = model["url"].removeprefix("http://").rsplit(":", 1)
        free = peers.free_port(1)
        (self.folder / name).mkdir()
        for file in ("forebay.toml", "cmd"):
            text = (self.folder / model["id"] / file).read_text().replace(model["id"], name)
            text = text.replace(f"{host}:{port}", f"{host}:{free}")
            (self.folder / name / file).write_text(text)
        self.start_node(name)

    def stop_started(self) -> None:
        for node in self.started:
            node.terminate()
        for node in self.started:
            node.wait(60)


def fill(folder: Path, count: int) -> None:
    """Writes the objects of the bucket, each with bytes of its own."""
    for number in range(count):
        if number % OBJECTS_OF_FOLDER == 0:
            (folder / f"{number // OBJECTS_OF_FOLDER:05}").mkdir(parents=True)
        name = folder / f"{number // OBJECTS_OF_FOLDER:05}" / f"{number:08}"
        name.write_bytes(number.to_bytes(8, "big") * (SIZE // 8))


def run(bench: Bench, count: int) -> list[Row]:
    """All steps, in their order."""
    rows = []
    bench.forebay("prefetch", f"ais://{BUCKET}", "--wait", "--timeout", "1h")
    rows.append(bench.compare("a prefetch of all"))
    if rows[0]["objects"] != count:
        raise RuntimeError(f"the prefetch fetched {rows[0]['objects']} of {count} objects")
    for part in range(0, -(-count // OBJECTS_OF_FOLDER), 2):
        bench.forebay("evict", f"ais://{BUCKET}/{part:05}/", "--wait")
    rows.append(bench.compare("an eviction of half"))
    if rows[-1]["objects"] >= count:
        raise RuntimeError("nothing was evicted")
    for number in range(0, OBJECTS_OF_FOLDER, 2):
        peers.call("GET", f"{bench.cluster.endpoint}/v1/objects/{BUCKET}/00000/{number:08}")
    rows.append(bench.compare("reads of some"))
    targets = bench.cluster.description["targets"]
    for target in targets:
        bench.crash(target, len(targets))
    rows.append(bench.compare("a crash of each target"))
    bench.add_target("target99")
    bench.await_targets(len(targets) + 1)
    rows.append(bench.compare("a target that joined"))
    bench.forebay("prefetch", f"ais://{BUCKET}", "--wait", "--timeout", "1h")
    rows.append(bench.compare("a prefetch with the new target"))
    bench.forebay("node", "remove", "target99", "--wait", "--timeout", "1h")
    rows.append(bench.compare("the removal of a target"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default="build/dist/forebay", help="the program under test")
    parser.add_argument("--objects", type=int, default=1_000_000, help="objects of the bucket")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder of the result")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    # Copies of objects that another target owns now count until they are dropped.
    os.environ["FOREBAY_CACHE__UNOWNED_S"] = "5"
    folder = Path(tempfile.mkdtemp(prefix="forebay-warmth-"))
    try:
        fill(folder / "source", options.objects)
        cluster_folder = folder / "cluster"
        cluster_folder.mkdir()
        more = ("--folder-root", str(folder), "--size", "8GiB")
        with peers.forebay(options.bin, cluster_folder, 3, *more) as cluster:
            bench = Bench(cluster, options.bin, cluster_folder)
            try:
                bench.await_targets(3)
                bench.forebay("mb", f"ais://{BUCKET}", "--folder", str(folder / "source"))
                rows = run(bench, options.objects)
            finally:
                bench.stop_started()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (options.out / "warmth.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
