"""Side by side with the peers that are installed: a cloud 30 ms away, read cold, warm, and listed.

    python bench/clouds.py --bin build/dist/forebay --minio ~/.cache/forebay/bin/minio

The cloud is MinIO on this machine behind a proxy that adds the delay; with --fake-gcs the readers of
Google Cloud Storage have fake-gcs-server behind another one. Every reader reads the same objects
from the same cloud in the same run, with the same number of workers where it has workers. Only
ratios mean something.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloud_readers
import composing
import measurement
import peers
from cloud_readers import BUCKETS, GCS_BUCKET, S3_BUCKET, Read, forebay_reader
from delay_proxy import DELAY_S, DelayProxy
from key_space import BUCKET as GENERATED
from key_space import PAGE, Generated
from peers import MINIO_PASSWORD, MINIO_USER, Forebay, Minio, free_port, minio_client

Row = dict[str, object]
KIB, MIB = 1 << 10, 1 << 20
ONE_STREAM_READS = 10
"""Of so many objects, one stream reads one."""
SUITES = ("epoch", "compose", "one", "list", "vast")


def evict(server: Forebay, provider: str) -> None:
    """Makes the provider's bucket cold."""
    composing.evict(server, BUCKETS[provider], provider)


def timed(read: Read, names: list[str], size: int, who: str) -> float:
    start = time.perf_counter()
    got = read(names)
    took = time.perf_counter() - start
    if got != len(names) * size:
        sys.exit(f"error: {who} read {got} bytes of {len(names) * size}")
    return took


class Bench:
    """Clouds, the cluster before them, and what they are asked for."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rows: list[Row] = []
        self.ports: dict[str, int] = {}
        """Of the delaying proxies, by provider."""
        self.direct: dict[str, int] = {}
        self.away: dict[str, DelayProxy] = {}
        self.server: Forebay | None = None
        self.minio: Minio

    def add(
        self, suite: str, who: str, value: float, unit: str, ratio: float, of: str, spread: float = 1
    ) -> None:
        row: Row = {"suite": suite, "who": who, "value": value, "unit": unit}
        row |= {"ratio": ratio, "of": of, "spread": spread}
        self.rows.append(row)
        print(f"{suite:<28} {who:<36} {value:>12,.2f} {unit:<10} {ratio:>8.2f} x {of}")

    def fill(self, provider: str, names: list[str], size: int) -> None:
        """Writes past the delay."""
        content = os.urandom(size)
        if provider == "aws":
            client = minio_client(self.direct["aws"])
            with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
                client.create_bucket(Bucket=S3_BUCKET)
            write = lambda name: client.put_object(Bucket=S3_BUCKET, Key=name, Body=content)  # noqa: E731
        else:
            base = f"http://127.0.0.1:{self.direct['gcp']}"
            with contextlib.suppress(OSError):
                peers.call("POST", f"{base}/storage/v1/b", {"name": GCS_BUCKET})

            def write(name: str) -> object:
                url = f"{base}/upload/storage/v1/b/{GCS_BUCKET}/o?uploadType=media&name={name}"
                return urllib.request.urlopen(urllib.request.Request(url, content, method="POST"))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, names))

    def epoch(self, provider: str) -> None:
        """A cold epoch by every reader, and a warm one through the cluster."""
        assert self.server is not None
        count, size = self.options.objects, 100 * KIB
        names = [f"e/{n:06d}" for n in range(count)]
        self.fill(provider, names, size)
        ours = forebay_reader(self.server, provider, 1024)
        rates: dict[str, list[float]] = {}
        readers: dict[str, Read] = {}
        port, workers = self.ports[provider], self.options.workers
        for who, make in cloud_readers.readers(provider, port, workers).items():
            try:
                readers[who] = make()
            except ImportError as e:
                print(f"not measured: {e.name} is not installed", file=sys.stderr)

        def measure(who: str, read: Read, names: list[str]) -> None:
            rates.setdefault(who, []).append(len(names) / timed(read, names, size, who))

        for _ in range(self.options.rounds):
            for who, read in readers.items():
                # One stream reads each as slowly as the next: a part of them shows its rate.
                measure(who, read, names[:: ONE_STREAM_READS if who.endswith("one stream") else 1])
            evict(self.server, provider)
            measure("Forebay, cold", ours, names)
            measure("Forebay, warm", ours, names)
        cold = statistics.median(rates["Forebay, cold"])
        for who, all_of in rates.items():
            name, rate = f"epoch, {provider}, {count} x 100 KiB", statistics.median(all_of)
            of = f"our cold epoch ({min(all_of):,.0f} to {max(all_of):,.0f})"
            spread = measurement.spread(all_of)
            self.add(name, who, rate, "objects/s", rate / cold, of, spread)

    def compose(self) -> None:
        """1,024 small cold objects of Google's, one by one and composed; with what Google bills."""
        assert self.server is not None
        count, size = composing.OBJECTS, composing.OBJECT_BYTES
        names = [f"c/{n:06d}" for n in range(count)]
        self.fill("gcp", names, size)
        ways = composing.measure(self.server, GCS_BUCKET, names, size, self.options.rounds)
        times = {way: cold.seconds for way, cold in ways.items()}
        bills = {way: cold.requests for way, cold in ways.items()}
        base = statistics.median(times["one by one"])
        suite = f"cold, gcp, {count} x {size // KIB} KiB"
        for way, took in times.items():
            middle = statistics.median(took)
            spread, ratio = measurement.spread(took), base / middle
            self.add(suite, f"Forebay, {way}", count / middle, "objects/s", ratio, "one by one", spread)
            for what in ("reads of objects", "a", "b"):
                requests = bills[way][what]
                ratio = requests / bills["one by one"]["reads of objects"]
                label = f"class {what.upper()}" if len(what) == 1 else what
                self.add(suite, f"  {label}, {way}", requests, "requests", ratio, "reads one by one")

    def one(self) -> None:
        """64 clients ask for one cold object."""
        assert self.server is not None
        import forebay

        size = self.options.large * MIB
        self.fill("aws", ["large"], size)
        url = f"{self.server.endpoint}/v1/objects/{S3_BUCKET}/large?provider=aws"
        direct = minio_client(self.ports["aws"])

        def first_byte(open_it: Callable[[], object]) -> float:
            start = time.perf_counter()
            body = open_it()
            body.read(1)  # type: ignore[attr-defined]
            took = time.perf_counter() - start
            while body.read(MIB):  # type: ignore[attr-defined]
                pass
            return took

        # A bucket that is not known yet is looked up first.
        forebay.Client(self.server.endpoint).bucket(S3_BUCKET, provider="aws").head()
        bare, alone = [], []
        for _ in range(self.options.rounds):
            from_cloud = lambda: direct.get_object(Bucket=S3_BUCKET, Key="large")["Body"]  # noqa: E731
            bare.append(first_byte(from_cloud))
            evict(self.server, "aws")
            before = self.away["aws"].passed.value
            alone.append(first_byte(lambda: urllib.request.urlopen(url)))
        evict(self.server, "aws")
        middle = self.away["aws"].passed.value
        with ThreadPoolExecutor(64) as pool:
            each = list(pool.map(lambda _: first_byte(lambda: urllib.request.urlopen(url)), range(64)))
        cost = (self.away["aws"].passed.value - middle) / size
        suite = f"one cold object, {self.options.large} MiB"
        cloud = statistics.median(bare)
        firsts = {"the cloud": bare, "Forebay, alone": alone, "Forebay, 64 clients": each}
        for who, times in firsts.items():
            median = statistics.median(times)
            spread, ratio = measurement.spread(times), median / cloud
            self.add(suite, f"first byte, {who}", median * 1000, "ms", ratio, "the cloud", spread)
        self.add(suite, "bytes from the cloud, alone", (middle - before) / size, "objects", 1.0, "the object")
        self.add(suite, "bytes from the cloud, 64 clients", cost, "objects", cost, "the object")

    def list(self) -> None:
        """Many names, most of them in one directory."""
        assert self.server is not None
        import forebay

        count = self.options.names
        folder = {0: "logs/2024", 1: "a"}
        names = [f"l/{folder.get(n % 100, 'datasets/train/hot')}/{n * 7919 % count:08x}" for n in range(count)]
        self.fill("aws", ["other"], 0)
        self.minio.fill_with_empty(S3_BUCKET, names)
        client = minio_client(self.ports["aws"])

        def by_boto3() -> int:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=S3_BUCKET, Prefix="l/")
            return sum(len(page.get("Contents", ())) for page in pages)

        bucket = forebay.Client(self.server.endpoint).bucket(S3_BUCKET, provider="aws")
        url = f"{self.server.endpoint}/v1/buckets/{S3_BUCKET}?provider=aws"

        def ours(age: str) -> int:
            set_props = {"action": "set-bprops", "value": {"cloud": {"list_max_age_ms": age}}}
            peers.call("PATCH", url, set_props)
            return len(bucket.list_snapshot(prefix="l/"))

        ways = {
            "boto3's paginator": by_boto3,
            "Forebay, list_snapshot": lambda: ours("0"),
            "Forebay, list_snapshot, once more": lambda: ours("10m"),
        }
        bucket.head()
        took: dict[str, list[float]] = {}
        for _ in range(self.options.rounds):
            for who, way in ways.items():
                start = time.perf_counter()
                if way() != count:
                    sys.exit(f"error: {who} does not list {count} names")
                took.setdefault(who, []).append(time.perf_counter() - start)
        base = statistics.median(took["boto3's paginator"])
        for who, times in took.items():
            middle = statistics.median(times)
            suite, spread = f"list {count} skewed names", measurement.spread(times)
            self.add(suite, who, count / middle, "names/s", base / middle, "boto3", spread)


    def vast(self) -> None:
        """More names than fit into memory, made by a server that counts the calls for them."""
        assert self.server is not None
        import forebay

        count = self.options.vast
        with Generated(count, DELAY_S) as cloud:
            backend = {"type": "s3", "endpoint": f"http://127.0.0.1:{cloud.port}", "bucket": GENERATED}
            url = f"{self.server.endpoint}/v1/buckets/vast"
            peers.call("POST", url, {"action": "create-bck", "value": {"backend": backend}})
            bucket = forebay.Client(self.server.endpoint).bucket("vast")
            nodes = {"target": self.server.pid, "gateway": self.server.gateway_pid}
            before = {node: memory(pid, "VmRSS") for node, pid in nodes.items()}
            for pid in nodes.values():
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is counted anew
            start = time.perf_counter()
            listed = (entry.name for entry in bucket.list_objects())
            for n, (got, name) in enumerate(itertools.zip_longest(listed, cloud.space.keys())):
                if got != name:
                    sys.exit(f"error: name {n} of {count} is {got}, not {name}")
            took = time.perf_counter() - start
            calls, pages = cloud.calls.value, -(-count // PAGE)
        suite = f"list {count} generated names"
        self.add(suite, "Forebay, list_objects", count / took, "names/s", 1.0, "itself")
        self.add(suite, "  calls to the cloud", calls, "calls", calls / pages, "pages")
        for node, pid in nodes.items():
            grown = max(memory(pid, "VmHWM") - before[node], 0)
            self.add(suite, f"  most memory, {node}", grown / MIB, "MiB", grown / count, "bytes a name")


def memory(pid: int, which: str) -> int:
    """Bytes of a process: `VmRSS` now, `VmHWM` at most so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    (found,) = (line for line in status.splitlines() if line.startswith(f"{which}:"))
    return int(found.split()[1]) * KIB


@contextlib.contextmanager
def clouds(options: argparse.Namespace, folder: Path) -> Iterator[Bench]:
    """The clouds behind their delays, and a cluster before them."""
    bench = Bench(options)
    with contextlib.ExitStack() as stack:
        env = {"AWS_ACCESS_KEY_ID": MINIO_USER, "AWS_SECRET_ACCESS_KEY": MINIO_PASSWORD}
        env["AWS_REGION"] = "us-east-1"
        bench.minio = stack.enter_context(peers.minio(options.minio, folder / "minio"))
        bench.direct["aws"] = int(bench.minio.address.rpartition(":")[2])
        if options.fake_gcs:
            port = bench.direct["gcp"] = free_port(1)
            command = [options.fake_gcs, "-backend", "memory", "-scheme", "http"]
            command += ["-host", "127.0.0.1", "-port", str(port)]
            stack.enter_context(peers.process(command, lambda: peers.listens(port)))
        for provider, port in bench.direct.items():
            away = bench.away[provider] = stack.enter_context(DelayProxy(port))
            bench.ports[provider] = away.port
        env["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{bench.ports['aws']}"
        if options.fake_gcs:
            env["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{bench.ports['gcp']}"
        before = dict(os.environ)
        os.environ |= env
        try:
            bench.server = stack.enter_context(peers.forebay(options.bin, folder / "cluster", 1))
        finally:
            os.environ.clear()
            os.environ |= before
        yield bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the forebay binary")
    parser.add_argument("--minio", help="a minio binary; left out, nothing is measured")
    parser.add_argument("--fake-gcs", help="a fake-gcs-server binary, for the readers of GCS")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--only", choices=SUITES, action="append", help="leave the others out")
    parser.add_argument("--quick", action="store_true", help="small data, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--vast", type=int, default=10_000_000, help="names that are generated")
    parser.add_argument("--large", type=int, default=1024, help="MiB of the large object")
    options = parser.parse_args()
    if not options.minio:
        print("clouds are not measured: --minio names no binary", file=sys.stderr)
        return
    if options.quick:
        options.rounds, options.objects, options.names, options.large = 1, 300, 5_000, 64
        options.vast = 100_000
    suites = options.only or SUITES
    options.out.mkdir(parents=True, exist_ok=True)
    # Servers and their folders go also when this is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(dir=options.out) as folder, clouds(options, Path(folder)) as bench:
        if "epoch" in suites:
            for provider in bench.direct:
                bench.epoch(provider)
        if "compose" in suites and options.fake_gcs:
            bench.compose()
        if "one" in suites:
            bench.one()
        if "list" in suites:
            bench.list()
        if "vast" in suites:
            bench.vast()
    (options.out / "clouds.json").write_text(json.dumps(bench.rows, indent=1) + "\n")


if __name__ == "__main__":
    # A process made by a fork of one with threads could hang.
    multiprocessing.set_start_method("fork")
    assert threading.active_count() == 1
    main()
