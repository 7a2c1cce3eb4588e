"""Side by side with the peers that are installed: what feeds a training loop.

    python bench/feed.py --bin build/dist/forebay --minio MINIO --fake-gcs FAKE_GCS

Datasets, loaders and samplers, each in a process of its own, read the same data in turns, so that a
machine that is busy for a while is busy for all. Client and server share the machine's cores: with
each rate stands the CPU time that either spent on a sample. Roofs are measured in the same turns.
Only ratios mean something.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import peers
from feeding import data, environment, report, rows
from feeding.reader import Pass, Reader, Spec, memory
from peers import Forebay, Server

GCS_SHARE = 5
"""Of small objects fake-gcs-server has one in so many: it is slow to get them."""


class Bench:
    """The servers, and what was written to them."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.servers: dict[str, Server] = {}
        self.known = data.all_data(options.quick, options.objects)
        self.skipped: dict[str, str] = {}
        """Readers of the present row that are not measured: name -> reason."""
        self._written: set[tuple[str, str]] = set()

    def start(self, stack: contextlib.ExitStack) -> None:
        """Starts every server that is installed; says which are not."""
        options, folder = self.options, self.folder
        ours = peers.forebay(options.bin, folder / "forebay", 1, "--size", "16GiB")
        self.servers["forebay"] = stack.enter_context(ours)
        if options.aisnode:
            ais = peers.aistore(options.aisnode, folder / "aistore")
            self.servers["aistore"] = stack.enter_context(ais)
        else:
            print("not measured: AIStore (set AISNODE to an aisnode binary)", file=sys.stderr)
        if options.minio:
            minio = peers.minio(options.minio, folder / "minio")
            self.servers["minio"] = stack.enter_context(minio)
        else:
            print("not measured: MinIO is not there", file=sys.stderr)
        if options.fake_gcs:
            self.servers["gcs"] = stack.enter_context(peers.fake_gcs(options.fake_gcs))
        else:
            print("not measured: fake-gcs-server is not there", file=sys.stderr)

    def place(self, spec: Spec, bucket: str) -> dict[str, Any] | None:
        """Returns the options with the place of a reader's data, which is written first if it is
        missing; None if the reader's server is not running."""
        bucket = spec.bucket or bucket
        if spec.server in ("", "files"):
            target = self.folder / f"files-{bucket}"
            if spec.server and not target.exists():
                data.write_files(target, self.known[bucket])
            return {"endpoint": "", "bucket": str(target)}
        if (server := self.servers.get(spec.server)) is None:
            return None
        if (spec.server, bucket) not in self._written:
            self._written.add((spec.server, bucket))
            known = self.known[bucket]
            small = spec.server == "gcs" and known.size < 100 * data.KIB
            data.write(server, known, known.count // (GCS_SHARE if small else 1))
        return {"endpoint": server.endpoint or f"http://{server.address}", "bucket": bucket}

    def pids(self, spec: Spec) -> list[int]:
        """The server's processes that work for a reader."""
        server = self.servers.get(spec.server)
        if server is None:
            return []
        more = [server.gateway_pid] if isinstance(server, Forebay) else []
        return [server.pid, *more, *server.helpers]

    def measure(self, row: rows.Row) -> dict[str, Any]:
        """All readers of a row in turns."""
        passes: dict[str, list[Pass]] = {}
        grown: dict[str, int] = {}
        self.skipped = {}
        chosen = one_of_each(row.readers) if self.options.quick else row.readers
        specs = {spec.name: spec for spec in chosen}
        seconds = self.options.seconds * row.length
        with contextlib.ExitStack() as stack:
            readers: dict[str, Reader] = {}
            for name, spec in specs.items():
                place = self.place(spec, row.bucket)
                if place is None:
                    self.skipped[name] = f"its server ({spec.server}) is not there"
                else:
                    with self.reported(spec):
                        # A process that loads all by itself takes seconds, which a try has not.
                        own_memory = row.memory is not None and not self.options.quick
                        reader = Reader(spec, place, row.compute_s, own_memory)
                        stack.callback(reader.close)
                        # This pass warms caches and connections too. A try has no time for it.
                        grown[name] = reader.grown(0.0 if self.options.quick else seconds)
                        readers[name] = reader
            for _ in range(self.options.rounds):
                for name, reader in list(readers.items()):
                    server = self.servers.get(reader.spec.server)
                    if row.cold and server is not None and server.folder is not None:
                        data.forget(server.folder)
                    with self.reported(reader.spec):
                        done = reader.run(seconds, self.pids(reader.spec))
                        passes.setdefault(name, []).append(done)
                        continue
                    del readers[name]
            taken = {name: sum(map(memory, self.pids(specs[name]))) for name in passes}
        results = [
            report.result(specs[name], runs, grown[name]) | {"server_memory": taken[name]}
            for name, runs in passes.items()
        ]
        return report.judged(row, results) | {"skipped": self.skipped}

    @contextlib.contextmanager
    def reported(self, spec: Spec) -> Iterator[None]:
        """A peer that fails is left out with a line about it; our own failure ends the run."""
        try:
            yield
        except RuntimeError as error:
            if spec.ours:
                raise
            last = str(error).strip().splitlines()[-1]
            self.skipped[spec.name] = last
            print(f"not measured: {spec.name}: {last}", file=sys.stderr)

    def plot(self) -> list[dict[str, Any]]:
        """Rates of our classes with so many processes and threads, in turns."""
        points = []
        for name, (bucket, kinds) in rows.plotted().items():
            with contextlib.ExitStack() as stack:
                readers: dict[tuple[str, int], Reader] = {}
                for number in rows.WORKERS:
                    for kind, make in kinds.items():
                        spec = make(f"{name}, {number} {kind}", number)
                        place = self.place(spec, bucket)
                        assert place is not None  # our own server is always there
                        reader = Reader(spec, place)
                        stack.callback(reader.close)
                        reader.run(self.options.seconds / 2, [])
                        readers[kind, number] = reader
                rates: dict[tuple[str, int], list[float]] = {}
                for _ in range(self.options.rounds):
                    for key, reader in readers.items():
                        done = reader.run(self.options.seconds / 2, [])
                        rates.setdefault(key, []).append(done.items / done.seconds)
            for (kind, number), measured in rates.items():
                points.append(report.point(name, kind, number, measured))
            report.show_plot(points[-len(rates) :])
        return points


def one_of_each(readers: Iterable[Spec]) -> list[Spec]:
    """The first reader of each server and side, which a try measures."""
    first: dict[tuple[str, bool, bool], Spec] = {}
    for spec in readers:
        first.setdefault((spec.server, spec.ours, spec.roof), spec)
    return list(first.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the forebay binary")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--minio", help="a minio binary")
    parser.add_argument("--fake-gcs", help="a fake-gcs-server binary")
    parser.add_argument("--aisnode", default=os.environ.get("AISNODE"), help="an aisnode binary")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="of one round of one reader")
    parser.add_argument("--objects", type=int, default=1_000_000, help="in the large bucket")
    parser.add_argument("--only", default="", help="rows whose key contains this, or workers")
    parser.add_argument("--no-workers", action="store_true", help="leave the plots of workers out")
    quick = "a try: one short round, little data, one reader of each server"
    parser.add_argument("--quick", action="store_true", help=quick)
    options, _ = parser.parse_known_args()
    if options.quick:
        options.rounds, options.seconds = 1, min(options.seconds, 0.3)
        options.objects = min(options.objects, 50_000)
    environment.enter()
    options.out.mkdir(parents=True, exist_ok=True)

    # Servers and their folders go also when this is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    result: dict[str, Any] = {"rows": [], "workers": []}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.out)))
        bench = Bench(options, folder.absolute())
        bench.start(stack)
        for row in rows.rows(bench.known):
            if options.only in row.key:
                result["rows"].append(measured := bench.measure(row))
                print(report.table(measured), flush=True)
        if options.only in "workers" and not options.no_workers:
            result["workers"] = bench.plot()
    result["took_s"] = round(time.monotonic() - began)
    (options.out / "feed.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "feed.md").write_text(report.document(result))
    report.plots(result["workers"], options.out)
    print(report.summary(result["rows"]))


if __name__ == "__main__":
    main()
