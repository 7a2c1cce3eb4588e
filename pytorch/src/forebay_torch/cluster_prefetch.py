"""Prefetch jobs of the cluster for the objects that are read next, so that they are warm when they are due."""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from forebay import Bucket, ForebayError
from forebay_torch.object_index import ObjectIndex

__all__ = ["ClusterPrefetcher", "prefetch_from_cloud"]

# Most bytes that are announced to the cluster before any of them is due.
_WINDOW_MAX_BYTES = 1 << 30
# The window is announced in so many parts, each by a job.
_WINDOW_PARTS = 4


class ClusterPrefetcher:
    """Keeps the cluster a window ahead of a reader, by prefetch jobs on lists of names.

    It is advice: nothing waits for it and nothing that it meets changes what is read. A thread of its
    own starts the jobs, one part of the window at a time as the reader comes on. Buckets without a
    backend have nothing to fetch, and get no jobs.
    """

    def __init__(self, index: ObjectIndex, rows: Sequence[int], ahead: int) -> None:
        """A prefetcher of these rows in their order.

        Args:
            ahead: How many objects the cluster may be ahead of the reader.
        """
        self._index = index
        self._rows = rows
        self._ahead = ahead
        # Rows before this one were announced.
        self._announced = 0
        self._jobs: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._cloud: dict[Bucket, bool] = {}
        self.started = 0

    def reached(self, position: int) -> None:
        """The reader has come to this position of the rows."""
        if self._ahead == 0:
            return
        part = max(1, self._ahead // _WINDOW_PARTS)
        while self._announced < len(self._rows) and self._announced + part <= position + self._ahead:
            group, size = [], 0
            start = max(self._announced, position)
            for row in self._rows[start : start + part]:
                group.append(row)
                size += self._index.listing.sizes[row]
                if size > _WINDOW_MAX_BYTES // _WINDOW_PARTS:
                    break
            self._announced = start + len(group)
            if not group:
                return
            self._announce(group)
        if self._announced < len(self._rows) and len(self._rows) <= position + self._ahead:
            self._announce(list(self._rows[max(self._announced, position) :]))
            self._announced = len(self._rows)

    def close(self) -> None:
        """Ends the thread; jobs that run go on."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    def _announce(self, group: list[int]) -> None:
        if not group:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="forebay-warm", daemon=True)
            self._thread.start()
        self._jobs.put(group)

    def _run(self) -> None:
        try:
            while (group := self._jobs.get()) is not None:
                by_bucket: dict[Bucket, list[str]] = {}
                for row in group:
                    bucket = self._index.bucket(row)
                    by_bucket.setdefault(bucket, []).append(self._index.listing.name(row))
                for bucket, names in by_bucket.items():
                    if self._has_backend(bucket):
                        bucket.prefetch(names)
                        self.started += 1
        except ForebayError as error:
            warnings.warn(f"the cluster was not told what is read next: {error}", stacklevel=2)

    def _has_backend(self, bucket: Bucket) -> bool:
        if bucket.provider != "ais":
            return True
        if bucket not in self._cloud:
            props = bucket.head()
            behind = props.get("backend_bck") or {}
            self._cloud[bucket] = bool(props.get("backend") or behind.get("provider"))
        return self._cloud[bucket]


@contextmanager
def prefetch_from_cloud(index: ObjectIndex, rows: Sequence[int], ahead: int) -> Iterator[ClusterPrefetcher]:
    """A ClusterPrefetcher for the time of a pass."""
    prefetcher = ClusterPrefetcher(index, rows, ahead)
    prefetcher.reached(0)
    try:
        yield prefetcher
    finally:
        prefetcher.close()
