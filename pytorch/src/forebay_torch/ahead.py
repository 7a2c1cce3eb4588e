"""Batches that are fetched before they are asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["FetchedAhead"]


class FetchedAhead:
    """Fetches batches in threads of its own; whoever asks for one of them gets what came.

    At most ``batches`` are in memory or under way: one that nobody takes goes when a later one is
    asked for.
    """

    def __init__(self, fetch: Callable[[Sequence[int]], Sequence[Any]], batches: int) -> None:
        self._fetch = fetch
        self._most = batches
        self._threads = ThreadPoolExecutor(min(batches, 4), "forebay-ahead")
        self._batches: OrderedDict[tuple[int, ...], Future[Sequence[Any]]] = OrderedDict()

    def ask(self, batch: Sequence[int] | None) -> None:
        """Fetches a batch, later; None is no batch."""
        if batch is None:
            return
        rows = tuple(int(index) for index in batch)
        self._batches[rows] = self._threads.submit(self._fetch, rows)
        while len(self._batches) > self._most + 1:
            self._batches.popitem(last=False)[1].cancel()

    def take(self, rows: Sequence[int]) -> Sequence[Any] | None:
        """What was fetched for these rows, or None if nobody asked for them."""
        made = self._batches.pop(tuple(rows), None)
        return None if made is None or made.cancelled() else made.result()

    def close(self) -> None:
        """Stops the threads, each after the batch that it is at."""
        self._batches.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)
