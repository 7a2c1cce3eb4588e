"""A file of which it is known beforehand what will be read."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from forebay.object import Object
from forebay.pinned_file import PinnedFile, get_pinned
from forebay.spans import carried
from forebay.types import ObjectProps

__all__ = ["PlannedFile"]

_PREFETCH_WINDOWS = 4
_PREFETCH_REQUESTS = 8
# A read from here on goes straight into the reader's memory.
_DIRECT_READ_MIN_BYTES = 4 << 20


class PlannedFile(PinnedFile):
    """Certain ranges of an object, each fetched as a whole and ahead of its use.

    Reads outside of these ranges send a request each, up to the next range.

    Args:
        ranges: ``(start, end)`` in order, none reaching into the next.

    Raises:
        ValueError: They are not in order.
    """

    def __init__(
        self,
        item: Object,
        ranges: Sequence[tuple[int, int]],
        window: int,
        num_workers: int,
        props: ObjectProps | None,
    ) -> None:
        super().__init__(item, window, num_workers, props)
        self._fetches: dict[int, Future[memoryview]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self.ranges = [(start, end) for start, end in ranges if start < end]
        bounds = [0, *(bound for pair in self.ranges for bound in pair)]
        if len(self.ranges) != len(ranges) or bounds != sorted(bounds):
            raise ValueError("ranges are (start, end), in order, and none reaches into the next")
        self._starts = [start for start, _ in self.ranges]

    def _read_into(self, target: memoryview) -> int:
        position = self._position
        number = bisect_right(self._starts, position) - 1
        if number >= 0 and position < self.ranges[number][1]:
            self._ask(number, len(target))
            if number not in self._fetches:
                return self._receive(target[: self.ranges[number][1] - position])
            content = self._range(number)[position - self._starts[number] :]
        else:
            length = len(target)
            if number + 1 < len(self._starts):
                length = min(length, self._starts[number + 1] - position)
            content = self._fetch(position, position + length)
        length = min(len(target), len(content))
        target[:length] = content[:length]
        return length

    def _ask(self, number: int, wanted: int) -> None:
        """Fetches a range and those behind it, unless it is large and all ``wanted`` of it at once: its
        reader's memory is then where it belongs."""
        if self._pid != os.getpid():
            # In a process that was forked no thread is left that would finish them.
            self._fetches, self._threads, self._pid = {}, None, os.getpid()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_PREFETCH_REQUESTS, "forebay-planned")
        for before in [n for n in self._fetches if n < number]:
            self._fetches.pop(before).cancel()
        ahead = 0
        for n in range(number, len(self.ranges)):
            start, end = self.ranges[n]
            ahead += end - start
            if n > number and ahead > _PREFETCH_WINDOWS * self.window:
                break
            if n in self._fetches or start >= self.props.size:
                continue
            is_direct = n == number and self._position == start and wanted >= end - start
            if not is_direct or wanted < _DIRECT_READ_MIN_BYTES:
                self._fetches[n] = self._threads.submit(carried(self._fetch), start, end)

    def _range(self, number: int) -> memoryview:
        """The whole of a range that was asked for."""
        try:
            return self._fetches[number].result()
        except BaseException:
            # It may be asked for again.
            self._fetches.pop(number, None)
            raise

    def _fetch(self, start: int, end: int) -> memoryview:
        length = min(end, self.props.size) - start
        num_workers = self.num_workers if length > self.window else 1
        return get_pinned(self.item, self._pin(), start, length, num_workers)

    def close(self) -> None:
        """Drops what was read ahead."""
        threads, self._threads = self._threads, None
        self._fetches.clear()
        if threads is not None and self._pid == os.getpid():
            threads.shutdown(wait=False, cancel_futures=True)
        super().close()
