"""Constant load of the Python client: writes, and reads of everything that was written.

    forebay_pods_load.py ENDPOINT REPORT BUCKET...

Runs until SIGTERM, in the namespace of a client. BUCKET is a URI; a bucket with a backend is only read. The report is
rewritten after each second and at the end: requests, failed ones with their errors, and the names in each bucket.
"""

from __future__ import annotations

import hashlib
import json
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import forebay

OBJECT_BYTES = 20_000
PAUSE_S = 0.02
THREADS_PER_BUCKET = 2


def content(name: str) -> bytes:
    """The bytes of an object, which follow from its name."""
    digest = hashlib.sha256(name.encode()).digest()
    return (digest * (OBJECT_BYTES // len(digest) + 1))[:OBJECT_BYTES]


class Load:
    """Attributes:
    names: Names of the objects that are in each bucket, by its URI.
    slowest_s: The longest time that one request took, with its retries.
    """

    def __init__(self, client: forebay.Client, buckets: list[str]) -> None:
        self._client = client
        self.names: dict[str, list[str]] = {uri: [] for uri in buckets}
        self.requests = 0
        self.failed: list[str] = []
        self.slowest_s = 0.0
        self._lock = threading.Lock()

    def run(self, uri: str, stopped: threading.Event, thread: int) -> None:
        bucket, _ = self._client.bucket_of(uri)
        number = 0
        while not stopped.wait(PAUSE_S):
            if uri.startswith("ais://"):
                name = f"under-load/{thread}-{number}"
                if self._try(f"put {uri}/{name}", lambda n=name: bucket.object(n).put(content(n))):
                    with self._lock:
                        self.names[uri].append(name)
                number += 1
            with self._lock:
                name = random.choice(self.names[uri] or [""])
            if name:
                self._try(f"get {uri}/{name}", lambda n=name: self._read(bucket, n))

    def _read(self, bucket: forebay.Bucket, name: str) -> None:
        if bucket.object(name).get().read_all() != content(name):
            raise RuntimeError("other bytes than were written")

    def _try(self, what: str, act: Any) -> bool:
        begin = time.monotonic()
        error = ""
        try:
            act()
        except Exception as failure:  # noqa: BLE001
            error = f"{what}: {failure!r}"
        with self._lock:
            self.requests += 1
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin)
            if error:
                self.failed.append(error)
        return not error

    def report(self) -> str:
        with self._lock:
            figures = {"requests": self.requests, "failed": self.failed, "slowest_s": self.slowest_s}
            return json.dumps({**figures, "names": self.names})


def main() -> None:
    endpoint, report, *buckets = sys.argv[1:]
    client = forebay.Client(endpoint)
    load = Load(client, buckets)
    for uri in buckets:
        bucket, _ = client.bucket_of(uri)
        load.names[uri] = [name for name, _ in bucket.list_snapshot()]
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    threads = [
        threading.Thread(target=load.run, args=(uri, stopped, number))
        for uri in buckets
        for number in range(THREADS_PER_BUCKET)
    ]
    for thread in threads:
        thread.start()
    new = Path(f"{report}.new")
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.2)
        new.write_text(load.report())
        new.rename(report)
    new.write_text(load.report())
    new.rename(report)


if __name__ == "__main__":
    main()
