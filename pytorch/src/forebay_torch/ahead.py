"""Batches that are fetched before they are asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

__all__ = ["FetchedAhead", "Wait"]

Wait: TypeAlias = Callable[[], Sequence[Any]]
"""Waits for a batch that was asked for."""

# Threads for batches that the native core cannot fetch by itself.
_THREADS = 4


class FetchedAhead:
    """Batches on their way; whoever asks for one of them gets what came.

    At most ``batches`` are in memory or under way, beside the one that is due: one that nobody takes
    goes when a later one is asked for.
    """

    def __init__(
        self,
        begin: Callable[[Sequence[int]], Wait | None],
        fetch: Callable[[Sequence[int]], Sequence[Any]],
        batches: int,
        closed: Callable[[FetchedAhead], None],
    ) -> None:
        """Nothing is on its way yet.

        Args:
            begin: Has a batch come while this thread goes on; None if only ``fetch`` can have it.
            fetch: Fetches a batch in the thread that calls.
            closed: Told when this ends.
        """
        self._begin = begin
        self._fetch = fetch
        self._most = batches
        self._closed = closed
        self._threads: ThreadPoolExecutor | None = None
        self._batches: OrderedDict[tuple[int, ...], Wait] = OrderedDict()

    def ask(self, batch: Sequence[int] | None) -> None:
        """Fetches a batch, later; None is no batch."""
        if batch is None:
            return
        rows = tuple(int(index) for index in batch)
        self._batches[rows] = self._begin(rows) or self._in_thread(rows)
        while len(self._batches) > self._most + 1:
            self._batches.popitem(last=False)

    def take(self, rows: Sequence[int]) -> Sequence[Any] | None:
        """What was fetched for these rows, or None if nobody asked for them."""
        wait = self._batches.pop(tuple(rows), None)
        return None if wait is None else wait()

    def close(self) -> None:
        """Forgets what was not taken."""
        self._closed(self)
        self._batches.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _in_thread(self, rows: Sequence[int]) -> Wait:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(min(self._most, _THREADS), "forebay-ahead")
        return self._threads.submit(self._fetch, rows).result
