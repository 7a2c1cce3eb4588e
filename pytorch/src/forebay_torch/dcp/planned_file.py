"""A file of which it is known beforehand what will be read."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from forebay import Object

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["PlannedFile"]

_AHEAD_BYTES = 64 << 20
_WORKERS = 8
_LARGE = 16 << 20


class PlannedFile(io.BufferedIOBase):
    """The object as a seekable file, of which certain ranges will be read, in their order.

    Each of them is one request, and is made while those before it are read, up to 64 MiB ahead. What
    is read outside of them is asked for as it is read.

    Args:
        source: The object.
        ranges: ``(start, end)`` in order, none overlapping the next.
    """

    def __init__(self, source: Object, ranges: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self._source = source
        self._ranges = list(ranges)
        self._starts = [start for start, _ in self._ranges]
        self._fetches: dict[int, Future[memoryview]] = {}
        self._pool = ThreadPoolExecutor(_WORKERS, "forebay-planned")
        self._position = 0
        self._size: int | None = None

    def readinto(self, buffer: Buffer, /) -> int:
        """Fills ``buffer`` as far as there is content; how many bytes that were."""
        target = memoryview(buffer).cast("B")
        done = 0
        while done < len(target):
            piece = self._at(self._position, len(target) - done)
            if not piece:
                break
            target[done : done + len(piece)] = piece
            done += len(piece)
            self._position += len(piece)
        return done

    readinto1 = readinto

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes from the position on; by default all that are left."""
        if size is None or size < 0:
            size = max(0, self._end() - self._position)
        memory = bytearray(size)
        del memory[self.readinto(memory) :]
        return bytes(memory)

    read1 = read

    def _at(self, position: int, length: int) -> memoryview:
        """Some bytes from ``position`` on, at most ``length``; none at the end."""
        number = bisect_right(self._starts, position) - 1
        if number >= 0 and position < self._ranges[number][1]:
            start = self._ranges[number][0]
            content = self._range(number)
            return content[position - start : position - start + length]
        length = min(length, self._end() - position)
        if number + 1 < len(self._starts):
            length = min(length, self._starts[number + 1] - position)
        return self._fetch(position, position + length) if length > 0 else memoryview(b"")

    def _range(self, number: int) -> memoryview:
        for before in [n for n in self._fetches if n < number]:
            self._fetches.pop(before).cancel()
        ahead = 0
        for n in range(number, len(self._ranges)):
            ahead += self._ranges[n][1] - self._ranges[n][0]
            if n > number and ahead > _AHEAD_BYTES:
                break
            if n not in self._fetches:
                self._fetches[n] = self._pool.submit(self._fetch, *self._ranges[n])
        return self._fetches[number].result()

    def _fetch(self, start: int, end: int) -> memoryview:
        at_once = 4 if end - start > _LARGE else 0
        content = self._source.get(
            byte_range=(start, end - start), num_workers=at_once
        ).memoryview()
        if len(content) != end - start:
            raise EOFError(f"{self._source.uri} ends at {start + len(content)}, before {end}")
        return content

    def _end(self) -> int:
        if self._size is None:
            self._size = self._source.head().size
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_CUR:
            offset += self._position
        elif whence == io.SEEK_END:
            offset += self._end()
        if offset < 0:
            raise ValueError(f"negative seek position {offset}")
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Drops what was read ahead."""
        if not self.closed:
            super().close()
            self._fetches.clear()
            self._pool.shutdown(wait=False, cancel_futures=True)
