"""Test data of the readers, made once and written to every server that has a reader of it."""

from __future__ import annotations

import functools
import http.client
import io
import itertools
import os
import random
import sys
import tarfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from peers import FakeGcs, Forebay, Server

KIB, MIB = 1 << 10, 1 << 20
LINE = 1600
"""Bytes of a line of text, its end counted."""
SHARD_SAMPLES = 10_000
_WRITERS = 8


def object_name(number: int) -> str:
    return f"o/{number:08}.bin"


@dataclass(frozen=True)
class Data:
    """A bucket of `count` objects of about `size` bytes."""

    bucket: str
    count: int
    size: int
    kind: str = "random"

    def objects(self, count: int) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the first `count`."""
        if self.kind == "shards":
            content = shard(self.size)
            return ((f"shard-{number:04}.tar", content) for number in range(count))
        if self.kind == "images":
            variants = [image(number) for number in range(8)]
        elif self.kind == "text":
            line = random.Random(1).randbytes((LINE - 1) // 2).hex().ljust(LINE - 1, "x") + "\n"
            variants = [line.encode() * (self.size // LINE)]
        else:
            variants = [random.Random(self.bucket).randbytes(self.size)]
        return ((object_name(number), variants[number % len(variants)]) for number in range(count))


def all_data(quick: bool, million: int) -> dict[str, Data]:
    """Every bucket by its name. Small enough that all servers together fit in memory."""
    few = 4 if quick else 1
    made = (
        Data("small", 10_000 // few, KIB),
        Data("hundred", 3_000 // few, 100 * KIB),
        Data("half", 200 // few, 500 * KIB),
        Data("three", 40 // few, 3 * MIB),
        Data("large", 2, 150 * MIB),
        Data("images", 1_500 // few, 100 * KIB, "images"),
        # An epoch of a few would be a wait for the first one above all.
        Data("text", 16 // few, 16 * MIB, "text"),
        Data("charades", 10, (150 if not quick else 15) * MIB),
        Data("shards", 20 // few, KIB, "shards"),
        Data("million", million, KIB),
    )
    return {data.bucket: data for data in made}


@functools.cache
def shard(size: int) -> bytes:
    """A TAR of samples of one part each."""
    packed, content = io.BytesIO(), random.Random(2).randbytes(size)
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(SHARD_SAMPLES):
            member = tarfile.TarInfo(f"s/{number:08}.bin")
            member.size = size
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@functools.cache
def image(number: int) -> bytes:
    """A JPEG of about 100 KiB: noise over a gradient."""
    from PIL import Image

    width, height = 640, 480
    noise = Image.frombytes("RGB", (320, 240), random.Random(number).randbytes(3 * 320 * 240))
    gradient = Image.linear_gradient("L").convert("RGB").resize((width, height))
    packed = io.BytesIO()
    Image.blend(gradient, noise.resize((width, height)), 0.45).save(packed, "JPEG", quality=88)
    return packed.getvalue()


def write(server: Server, data: Data, count: int) -> None:
    """Puts the first `count` objects of a bucket."""
    server.make_bucket(data.bucket)
    if isinstance(server, Forebay):
        import forebay

        forebay.Client(server.endpoint).bucket(data.bucket).put_many(data.objects(count))
        return
    put_all(server, data.bucket, data.objects(count))


def put_all(server: Server, bucket: str, objects: Iterable[tuple[str, bytes]]) -> None:
    """Puts objects by several connections, because synced writes that wait together share a sync."""
    waiting, lock, failures = iter(objects), threading.Lock(), list[str]()

    def put() -> None:
        to = http.client.HTTPConnection(server.address, timeout=120)
        while not failures:
            with lock:
                taken = list(itertools.islice(waiting, 1))
            if not taken:
                return
            name, content = taken[0]
            assert server.put is not None
            path = server.put.replace("{bucket}", bucket).replace("{name}", name)
            if isinstance(server, FakeGcs):
                to.request("POST", path.replace(name, name.replace("/", "%2F")), content)
            else:
                to.request("PUT", path, content, dict(h.split(": ", 1) for h in server.headers))
            answer = to.getresponse()
            answer.read()
            if answer.status >= 300:
                failures.append(f"{server.name}: PUT {name}: {answer.status}")

    writers = [threading.Thread(target=put) for _ in range(_WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    if failures:
        sys.exit(f"error: {failures[0]}")


def write_files(folder: Path, data: Data) -> None:
    """The same as files in a folder."""
    folder.mkdir()
    for name, content in data.objects(data.count):
        (folder / name).write_bytes(content)


def forget(folder: Path) -> None:
    """Drops what the page cache has of the files under a folder: they come from the disk then."""
    os.sync()
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                file = os.open(os.path.join(parent, name), os.O_RDONLY)
            except OSError:
                continue  # it went meanwhile
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
