"""The servers of the workloads: MinIO has all data; Forebay and AIStore are caches before it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import peers
from feeding import data
from mlperf.workloads import Scaled
from peers import MINIO_PASSWORD, MINIO_USER, Aistore, Forebay, Minio

REGION = "us-east-1"
PATH_STYLE = 1 << 14
"""AIStore's feature `S3-Use-Path-Style` (cmn/feat/feat.go): MinIO has no name for each bucket."""


@dataclass(frozen=True)
class Samples(data.Data):
    """A bucket whose objects have the sizes of a workload."""

    sizes: tuple[int, ...] = ()

    def objects(self, count: int) -> Iterator[tuple[str, bytes]]:
        content = memoryview(random.Random(self.bucket).randbytes(max(self.sizes)))
        for number, size in enumerate(self.sizes[:count]):
            yield data.object_name(number), bytes(content[:size])


@dataclass
class Servers:
    """The running servers, and what each costs."""

    forebay: Forebay
    minio: Minio
    aistore: Aistore | None

    def fill(self, scaled: Scaled) -> str:
        """Writes a workload's objects to MinIO; its bucket."""
        sizes = tuple(scaled.sizes())
        bucket = scaled.of.name
        data.write(self.minio, Samples(bucket, len(sizes), max(sizes), "random", sizes), len(sizes))
        return bucket

    def endpoint(self, server: str) -> str:
        """Endpoint for the clients of a server: `forebay`, `minio` or `aistore`.

        Raises:
            RuntimeError: AIStore is not there.
        """
        if server == "minio":
            return f"http://{self.minio.address}"
        found = self.forebay if server == "forebay" else self.aistore
        if found is None:
            raise RuntimeError("AISNODE names no binary")
        return found.endpoint

    def pids(self, server: str) -> list[int]:
        """Processes whose CPU time counts: with a cache also MinIO, which serves its cold reads."""
        if server == "forebay":
            return [self.forebay.pid, self.forebay.gateway_pid, self.minio.pid]
        if server == "aistore":
            assert self.aistore is not None
            return [self.aistore.pid, *self.aistore.helpers, self.minio.pid]
        return [self.minio.pid]

    def make_cold(self, server: str, bucket: str) -> None:
        """Drops a bucket from a cache, and from the page cache what MinIO has of it."""
        if server == "forebay":
            url = f"{self.forebay.endpoint}/v1/buckets/{bucket}?provider=aws&keep_bck_md=true"
            peers.call("DELETE", url, {"action": "evict-remote-bck"})
        elif server == "aistore":
            assert self.aistore is not None
            url = f"{self.aistore.endpoint}/v1/buckets/{bucket}?provider=aws&keep_bck_md=true"
            peers.call("DELETE", url, {"action": "evict-remote-bck"})
        assert self.minio.folder is not None
        data.forget(self.minio.folder / bucket)


@contextlib.contextmanager
def running(options: Namespace, folder: Path) -> Iterator[Servers]:
    """All servers that are there; says which are not."""
    with contextlib.ExitStack() as stack:
        minio = stack.enter_context(peers.minio(options.minio, folder / "minio"))
        url = f"http://{minio.address}"
        login = {
            "AWS_ACCESS_KEY_ID": MINIO_USER,
            "AWS_SECRET_ACCESS_KEY": MINIO_PASSWORD,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": url,
            "S3_ENDPOINT": url,
            # Read by the binary of ci/aistore.sh: it listens on the configured address alone.
            "AIS_LAB_BIND_PUB": "1",
        }
        with environment(login):
            size = ("--size", "8GiB")
            ours = stack.enter_context(peers.forebay(options.bin, folder / "forebay", 1, *size))
            aistore = None
            if options.aisnode:
                config = folder / "aistore.json"
                config.write_text(before_minio())
                started = peers.aistore(options.aisnode, folder / "aistore", config)
                aistore = stack.enter_context(started)
            else:
                print("not measured: AIStore (set AISNODE to an aisnode binary)", file=sys.stderr)
        yield Servers(ours, minio, aistore)


def before_minio() -> str:
    """AIStore's configuration, with S3 as a backend at a server that has no host for each bucket."""
    config = json.loads(peers.AISTORE_CONFIG.read_text())
    return json.dumps(config | {"backend": {"aws": {}}, "features": str(PATH_STYLE)})


@contextlib.contextmanager
def environment(more: dict[str, str]) -> Iterator[None]:
    """Variables that only processes started in the block get."""
    before = dict(os.environ)
    os.environ |= more
    # Plain HTTP needs no CAs, and AIStore's client of S3 does not start with this.
    os.environ.pop("AWS_CA_BUNDLE", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before
