"""Batches that are fetched before they are asked for."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from forebay import waits
from forebay.spans import carried
from forebay.waits import Wait as ObservedWait

__all__ = ["PrefetchSource", "Prefetcher", "Wait"]

Wait: TypeAlias = Callable[[], Sequence[Any]]
"""Waits for the contents that were asked for."""
Named: TypeAlias = tuple[Sequence[str], Sequence[Any]]
"""Names and contents of a batch."""
_Batch = TypeVar("_Batch")

# Threads for batches that the native core cannot fetch by itself.
_MAX_FETCH_THREADS = 4
# Small batches come together: a request goes on with the next one until it has so many objects,
_OBJECTS_PER_REQUEST = 512
# or bytes.
_BYTES_PER_REQUEST = 1 << 20


class PrefetchSource(Protocol):
    """The methods of a dataset that its prefetcher calls."""

    def rows_to_fetch(self, indices: Sequence[Any]) -> list[int]:
        """The rows that a batch of these indices will read; none if that is unknown."""

    def names_of(self, rows: Sequence[int]) -> list[str]:
        """The names of these rows."""

    def bytes_of(self, rows: Sequence[int]) -> int:
        """The bytes of these rows, as they were listed."""

    def begin(self, rows: Sequence[int], names: Sequence[str]) -> Wait | None:
        """Starts fetching these rows; None if the fetch would need a Python thread."""

    def fetch_now(
        self, rows: Sequence[int], names: Sequence[str] | None = None
    ) -> Sequence[Any]:
        """The contents of these rows, fetched in the thread that calls."""

    def forget(self, closed: Prefetcher) -> None:
        """Removes a prefetcher that was closed."""


class Prefetcher:
    """Fetches batches of a dataset before they are due; ``take`` returns a fetched one.

    At most ``most`` are in memory or under way, beside the one that is due: one that nobody takes
    goes when later ones are asked for.
    """

    def __init__(
        self, dataset: PrefetchSource, batches: int, together: int, limit: int | None
    ) -> None:
        """Creates a prefetcher; it sends no request yet.

        Args:
            dataset: The dataset of the batches.
            batches: How many are asked for before their turn.
            together: How many small ones one request may have; they then come before their turn,
                too.
            limit: Batches of more bytes are left to their turn, and those that a thread of Python
                would have to fetch; None leaves none.
        """
        self._process = os.getpid()
        self._dataset = dataset
        self._ahead = batches
        self._together = together
        self._limit = limit
        self._most = batches + 2 * together
        self._came = 0
        self._is_large = False
        self._first_came: Callable[[], None] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._batches: OrderedDict[tuple[int, ...], Callable[[], Named]] = OrderedDict()

    @property
    def is_first_pending(self) -> bool:
        """Whether the first batch, a large one, is on its way: what is asked for now delays it."""
        return self._is_large and self._came == 0

    def on_first_taken(self, call: Callable[[], None]) -> None:
        """Sets the function to call when the first batch was taken."""
        self._first_came = call

    def along(self, batches: Iterable[_Batch], beside: int = 1) -> Iterator[_Batch]:
        """``batches``, each of which is on its way by the time that it is given, as are the next.

        Args:
            batches: The batches that follow.
            beside: How many large ones may come beside the first, which the loop waits for.
        """
        coming = iter(batches)
        waiting: deque[_Batch] = deque()
        # The first is not kept waiting by others that come with it, nor, if they are large, by those
        # behind it: both become more with each that came.
        count = 1

        def begin() -> bool:
            nonlocal count
            group = self._begin_group(coming, count)
            count = min(2 * count, self._together)
            waiting.extend(group)
            return bool(group)

        while waiting or begin():
            ahead = min(beside + self._came, self._ahead) if self._is_large else self._ahead
            while len(waiting) <= ahead and begin():
                pass
            if ahead and len(waiting) <= count:
                begin()
            yield waiting.popleft()

    def take(self, rows: Sequence[int]) -> Named | None:
        """Names and contents that were fetched for these rows, or None if nobody asked for them."""
        if self._process != os.getpid():
            # A request of the process that this one was forked from is not answered here.
            return None
        wait = self._batches.pop(tuple(rows), None)
        taken = None if wait is None else wait()
        # Threads may overlook one another here: it only has to grow.
        self._came += 1
        if self._came == 1 and self._first_came is not None:
            self._first_came()
        return taken

    def close(self) -> None:
        """Forgets what was not taken."""
        self._dataset.forget(self)
        self._batches.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin_group(self, coming: Iterator[_Batch], count: int) -> list[_Batch]:
        """Starts fetching the next batches, at most ``count``, until they fill one request."""
        group: list[_Batch] = []
        wanted: list[tuple[int, ...]] = []
        objects = total = 0
        for batch in itertools.islice(coming, count):
            group.append(batch)
            rows = self._rows(batch)
            size = self._dataset.bytes_of(rows)
            if rows and (self._limit is None or size <= self._limit):
                wanted.append(tuple(rows))
                objects += len(rows)
                total += size
            if objects >= _OBJECTS_PER_REQUEST or total >= _BYTES_PER_REQUEST:
                break
        if wanted:
            self._is_large = total >= _BYTES_PER_REQUEST
            self._begin(wanted)
        return group

    def _rows(self, batch: Any) -> list[int]:
        """The rows of a batch that will be read; none of one with an index that is none, an error in
        its own turn."""
        return self._dataset.rows_to_fetch(batch)

    def _begin(self, wanted: Sequence[tuple[int, ...]]) -> None:
        """Starts fetching these batches, by one request if that is possible."""
        together = list(itertools.chain.from_iterable(wanted))
        names = self._dataset.names_of(together)
        wait = self._dataset.begin(together, names)
        shared = None if wait is None else _Shared(wait, names)
        start = 0
        for rows in wanted:
            end = start + len(rows)
            if shared is not None:
                self._batches[rows] = partial(shared.part, start, end)
            elif alone := self._alone(rows, names[start:end]):
                self._batches[rows] = partial(alone.part, 0, len(rows))
            start = end
        while len(self._batches) > self._most + 1:
            self._batches.popitem(last=False)

    def _alone(self, rows: Sequence[int], names: Sequence[str]) -> _Shared | None:
        """Starts fetching one batch; None if it is fetched only when it is due."""
        wait = self._dataset.begin(rows, names)
        if wait is None and self._limit is None:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(min(self._ahead, _MAX_FETCH_THREADS), "forebay-ahead")
            wait = self._threads.submit(carried(self._dataset.fetch_now), rows, names).result
        return None if wait is None else _Shared(wait, names)


class _Shared:
    """The answers to one request for some batches, which threads may take parts of."""

    def __init__(self, wait: Wait, names: Sequence[str]) -> None:
        self._names = names
        self._wait: Wait | None = wait
        self._lock = threading.Lock()
        self._answers: Sequence[Any] = ()
        self._error: Exception | None = None
        # The wait for the answers, for threads that waited for the thread that had it.
        self._waits: list[ObservedWait] = []

    def _share_wait(self, began: float) -> None:
        """Gives this thread the part of the wait in which it waited for another thread."""
        now = time.perf_counter()
        for wait in self._waits:
            overlap = min(wait.end, now) - max(wait.start, began)
            if overlap > 0:
                scale = overlap / (wait.end - wait.start)
                parts = (part * scale for part in wait[2:])
                waits.keep([ObservedWait(max(wait.start, began), min(wait.end, now), *parts)])

    def part(self, start: int, end: int) -> Named:
        began = time.perf_counter()
        with self._lock:
            if self._wait is not None:
                wait, self._wait = self._wait, None
                try:
                    self._answers = wait()
                except Exception as e:
                    self._error = e
                taken, received = waits.take()
                waits.keep(taken, received)
                self._waits = taken[-1:]
            else:
                self._share_wait(began)
        if self._error is not None:
            raise self._error
        return self._names[start:end], self._answers[start:end]
