"""Side by side with the peers that are installed: whole-object reads of small and middle objects.

    python bench/run.py --bin build/dist/forebay --out build/bench

Every reader gets the same objects from the same disk in the same run, in turns, so that a machine
that is busy for a while is busy for all. Only ratios mean something: the table gives each reader's
throughput relative to plain HTTP GETs in one session.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import peers
from peers import minio_client

Reader = Callable[[list[str]], int]
BUCKET = "bench"


@dataclass(frozen=True)
class Load:
    """A workload: `count` objects of `size` bytes, read `batch` at a time in shuffled order."""

    name: str
    count: int
    size: int
    batch: int


LOADS = [
    Load("1 KiB x 4000, batches of 64", 4000, 1 << 10, 64),
    Load("100 KiB x 1000, batches of 32", 1000, 100 << 10, 32),
    Load("3 MiB x 60, batches of 8", 60, 3 << 20, 8),
]


def batches(names: list[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(names), size):
        yield names[at : at + size]


def forebay_readers(endpoint: str) -> dict[str, Reader]:
    """Our own client: a batch request per owner, and one GET per object."""
    import forebay

    bucket = forebay.Client(endpoint).bucket(BUCKET)

    def by_batch(names: list[str]) -> int:
        reader = bucket.client.batch(bucket=bucket)
        for name in names:
            reader.add(name)
        return sum(len(data) for _, data in reader.get_all())

    def one_by_one(names: list[str]) -> int:
        return sum(len(bucket.object(name).get().read_all()) for name in names)

    return {"forebay batch": by_batch, "forebay GET": one_by_one}


def http_reader(endpoint: str) -> dict[str, Reader]:
    """The baseline: GET through the gateway in one session, as the v1 API is used by hand."""
    import requests

    session = requests.Session()

    def read(names: list[str]) -> int:
        url = f"{endpoint}/v1/objects/{BUCKET}"
        return sum(len(session.get(f"{url}/{name}").content) for name in names)

    return {"plain HTTP": read}


def aistore_readers(endpoint: str) -> dict[str, Reader]:
    """AIStore's own client, against Forebay."""
    from aistore.sdk import Client

    client = Client(endpoint)
    bucket = client.bucket(BUCKET)

    def one_by_one(names: list[str]) -> int:
        return sum(len(bucket.object(name).get_reader().read_all()) for name in names)

    def by_batch(names: list[str]) -> int:
        return sum(len(data) for _, data in client.batch(names, bucket).get())

    return {"aistore client GET": one_by_one, "aistore client batch": by_batch}


def minio_reader(port: int) -> dict[str, Reader]:
    """boto3 on MinIO, which has the same objects on the same disk."""
    client = minio_client(port)

    def read(names: list[str]) -> int:
        return sum(len(client.get_object(Bucket=BUCKET, Key=n)["Body"].read()) for n in names)

    return {"boto3 on MinIO": read}


def available(make: Callable[..., dict[str, Reader]], *args: object) -> dict[str, Reader]:
    """The readers of a peer; none, and a line about it, when its package is missing."""
    try:
        return make(*args)
    except ImportError as e:
        print(f"not measured: {e.name} is not installed", file=sys.stderr)
        return {}


def fill(load: Load, endpoint: str, minio_port: int | None) -> list[str]:
    """The same objects in both stores; their names."""
    import forebay

    names = [f"o{i:06d}" for i in range(load.count)]
    content = random.Random(load.name).randbytes(load.size)
    bucket = forebay.Client(endpoint).bucket(BUCKET)
    bucket.delete(missing_ok=True)
    bucket.create()
    bucket.put_many((name, content) for name in names)
    if minio_port is not None:
        client = minio_client(minio_port)
        with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket=BUCKET)
        for name in names:
            client.put_object(Bucket=BUCKET, Key=name, Body=content)
    return names


def measure(load: Load, names: list[str], readers: dict[str, Reader], rounds: int) -> list[dict]:
    """Median seconds of each reader over the rounds; readers take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for turn in range(rounds + 1):
        order = random.Random(turn).sample(names, len(names))
        for reader_name, read in readers.items():
            start = time.perf_counter()
            total = sum(read(batch) for batch in batches(order, load.batch))
            took = time.perf_counter() - start
            if total != load.count * load.size:
                sys.exit(f"error: {reader_name} read {total} bytes of {load.count * load.size}")
            if turn > 0:  # the first turn warms caches and connections
                seconds[reader_name].append(took)
    base = statistics.median(seconds["plain HTTP"])
    return [
        {
            "load": load.name,
            "reader": name,
            "objects_per_s": load.count / statistics.median(times),
            "times_plain_http": base / statistics.median(times),
            "spread": max(times) / min(times),
        }
        for name, times in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the forebay binary")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--minio", help="a minio binary; left out, MinIO is not measured")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    rows: list[dict] = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.out))
        server = stack.enter_context(peers.forebay(options.bin, Path(folder, "cluster"), 3))
        endpoint = server.endpoint
        minio_port = None
        if options.minio:
            minio = stack.enter_context(peers.minio(options.minio, Path(folder, "minio")))
            minio_port = int(minio.address.rpartition(":")[2])
        readers = http_reader(endpoint) | forebay_readers(endpoint)
        readers |= available(aistore_readers, endpoint)
        if minio_port is not None:
            readers |= available(minio_reader, minio_port)
        for load in LOADS:
            names = fill(load, endpoint, minio_port)
            rows += measure(load, names, readers, options.rounds)
    (options.out / "objects.json").write_text(json.dumps(rows, indent=1) + "\n")
    show(rows)


def show(rows: list[dict]) -> None:
    print(f"{'load':<32} {'reader':<22} {'objects/s':>10} {'x plain HTTP':>13} {'spread':>7}")
    for row in rows:
        print(
            f"{row['load']:<32} {row['reader']:<22} {row['objects_per_s']:>10.0f}"
            f" {row['times_plain_http']:>13.2f} {row['spread']:>7.2f}"
        )


if __name__ == "__main__":
    main()
