"""How rates and memory change as a bucket, its objects and its clients grow; one JSON for plots.

    python bench/growth.py --bin build/dist/forebay

Three series, each with a point per power: 10^4 to 10^7 objects of 1 KiB in one bucket, objects of 1 KiB
to 1 GiB, and 1 to 64 clients (processes with a Python client each, in batches). A row has `series`, its
`x`, and each figure as a number, so that a plot needs nothing else. Points that disk space or --quick
leaves out are rows with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import forebay
import measurement
import peers
from feeding.reader import cpu_s, memory
from measurement import GIB, KIB, MIB, Row, not_run, shown

OBJECT_COUNTS = (10_000, 100_000, 1_000_000, 10_000_000)
QUICK_OBJECTS = 100_000
OBJECT_SIZES = (KIB, 32 * KIB, MIB, 32 * MIB, GIB)
QUICK_BYTES = 32 * MIB
CLIENT_NUMBERS = (1, 2, 4, 8, 16, 32, 64)
QUICK_CLIENTS = 8
DISK_BYTES_AN_OBJECT = 2 * KIB
"""Free disk space that an object of 1 KiB needs here, for its index and what compaction writes."""
SAMPLED = 2_000
CLIENTS_BUCKET, CLIENTS_OBJECTS, CLIENTS_BATCH = "clients", 4_000, 200

CLIENT = """
import random, sys, time, forebay
bucket = forebay.Client(sys.argv[1]).bucket(sys.argv[2])
names = [f"o{number:08}" for number in range(int(sys.argv[3]))]
bucket.get_many(names[:10])
print("ready", flush=True)
sys.stdin.readline()
end, read = time.perf_counter() + float(sys.argv[5]), 0
while time.perf_counter() < end:
    read += len(bucket.get_many(random.sample(names, int(sys.argv[4]))))
print(read)
"""


class Growth:
    """A cluster that grows."""

    def __init__(self, options: argparse.Namespace, server: peers.Forebay, folder: Path) -> None:
        self.options, self.server, self.folder = options, server, folder
        self.client = forebay.Client(server.endpoint)
        self.seconds = 1.0 if options.quick else 5.0

    def objects(self) -> Iterator[Row]:
        """More and more objects of 1 KiB in one bucket."""
        self.server.make_bucket("objects", **{"class": "cache"})
        bucket = self.client.bucket("objects")
        content, had = random.Random(1).randbytes(KIB), 0
        for count in OBJECT_COUNTS:
            name = f"growth objects, {count:,}"
            free = shutil.disk_usage(self.folder).free
            if self.options.quick and count > QUICK_OBJECTS:
                yield not_run(name, "Forebay", "--quick")
                continue
            if free < (count - had) * DISK_BYTES_AN_OBJECT:
                yield not_run(name, "Forebay", f"{free / GIB:.0f} GiB of disk are free")
                continue
            start = time.perf_counter()
            bucket.put_many((f"o{number:08}", content) for number in range(had, count))
            wrote = (count - had) / (time.perf_counter() - start)
            had = count
            start = time.perf_counter()
            listed = len(bucket.list_snapshot())
            took = time.perf_counter() - start
            if listed != count:
                raise RuntimeError(f"{listed} of {count} names were listed")
            chosen = random.Random(count)
            read = self.repeated(lambda: self.read(bucket, chosen, count))
            yield self.point("objects", count, name) | {
                "put_per_s": wrote, "get_per_s": read, "listed_per_s": count / took
            }  # fmt: skip

    def sizes(self) -> Iterator[Row]:
        """Larger and larger objects."""
        self.server.make_bucket("sizes")
        for size in OBJECT_SIZES:
            name = f"growth sizes, {size // KIB:,} KiB"
            if self.options.quick and size > QUICK_BYTES:
                yield not_run(name, "Forebay", "--quick")
                continue
            item = self.client.bucket("sizes").object(f"o{size}")
            content = random.Random(size).randbytes(min(size, 4 * MIB)) * max(1, size // (4 * MIB))

            def put() -> int:
                item.put(content)
                return len(content)

            def get() -> int:
                if len(item.get().read_all()) != len(content):
                    raise RuntimeError(f"{item}: another size came back")
                return len(content)

            wrote, read = self.repeated(put), self.repeated(get)
            yield self.point("sizes", size, name) | {
                "put_bytes_per_s": wrote, "get_bytes_per_s": read,
                "put_per_s": wrote / size, "get_per_s": read / size,
            }  # fmt: skip
            item.delete()

    def clients(self) -> Iterator[Row]:
        """More and more processes that read batches of objects of 4 KiB."""
        self.server.make_bucket(CLIENTS_BUCKET)
        content = random.Random(2).randbytes(4 * KIB)
        names = (f"o{number:08}" for number in range(CLIENTS_OBJECTS))
        self.client.bucket(CLIENTS_BUCKET).put_many((name, content) for name in names)
        for number in CLIENT_NUMBERS:
            name = f"growth clients, {number}"
            if self.options.quick and number > QUICK_CLIENTS:
                yield not_run(name, "Forebay", "--quick")
                continue
            before = cpu_s(self.server.pid)
            read = self.by_processes(number)
            row = self.point("clients", number, name) | {"get_per_s": read / self.seconds}
            yield row | {"server_us": (cpu_s(self.server.pid) - before) * 1e6 / max(1, read)}

    def by_processes(self, number: int) -> int:
        """Objects that so many processes read in the time of a round."""
        given = (self.server.endpoint, CLIENTS_BUCKET, CLIENTS_OBJECTS, CLIENTS_BATCH, self.seconds)
        command = [sys.executable, "-c", CLIENT, *map(str, given)]
        with contextlib.ExitStack() as stack:
            started = []
            for _ in range(number):
                child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                stack.callback(child.kill)
                started.append(child)
            for child in started:
                assert child.stdin is not None and child.stdout is not None
                if child.stdout.readline() != "ready\n":
                    raise RuntimeError("a client does not start")
            for child in started:
                assert child.stdin is not None
                child.stdin.write("\n")
                child.stdin.flush()
            return sum(int(child.communicate()[0]) for child in started)

    def read(self, bucket: forebay.Bucket, chosen: random.Random, count: int) -> int:
        """One batch of objects anywhere in the bucket."""
        names = [f"o{chosen.randrange(count):08}" for _ in range(SAMPLED)]
        return len(bucket.get_many(names))

    def repeated(self, work: object) -> float:
        """Units a second of work that returns its units, after one time that does not count."""
        assert callable(work)
        work()
        start, done = time.perf_counter(), 0
        while (took := time.perf_counter() - start) < self.seconds:
            done += work()
        return done / took

    def point(self, series: str, x: int, name: str) -> Row:
        """The figures that all points have."""
        used = sum(path.stat().st_blocks * 512 for path in self.folder.rglob("*") if path.is_file())
        return {
            "row": name, "who": "Forebay", "series": series, "x": x,
            "target_bytes": memory(self.server.pid),
            "gateway_bytes": memory(self.server.gateway_pid), "disk_bytes": used,
        }  # fmt: skip


def rows(options: argparse.Namespace) -> list[Row]:
    """All points of all series."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.out))).absolute()
        most = "4GiB" if options.quick else "24GiB"
        server = stack.enter_context(peers.forebay(options.bin, folder, 1, "--size", most))
        growth = Growth(options, server, folder)
        series = (growth.objects, growth.sizes, growth.clients)
        return [row if "not_run" in row else shown(row) for make in series for row in make()]


def main() -> None:
    options = measurement.parser(__doc__).parse_args()
    measurement.run(options, rows)


if __name__ == "__main__":
    main()
