"""A large object as a file of which only what is read is fetched."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from forebay.object import WINDOW_BYTES, Object
from forebay.pinned_file import Pin, PinnedFile, get_pinned, read_pinned
from forebay.planned_file import PlannedFile
from forebay.spans import carried
from forebay.types import ObjectProps

if TYPE_CHECKING:
    from forebay.client import Client

__all__ = ["RangeReader"]

# A read from here on goes straight into the reader's memory.
_DIRECT_READ_MIN_BYTES = 512 << 10
# The rest of a file is read at once if it is that many times what is here of it.
_REST_OVER_HELD = 8
# Bytes of a request when Python reads a line or a few bytes.
_BUFFER_BYTES = 64 << 10
# A window that is that many times the one before it, as long as the file is read in order.
_GROWTH = 4


class RangeReader(io.BufferedReader):
    """An object, or a URI, as a seekable binary file that fetches ranges as they are read.

    Nothing is sent before the first read. Sequential reads are fetched ahead, by concurrent ranges,
    in windows that grow up to ``window`` bytes; random reads are fetched as they are requested.
    There are at most two windows in memory. A read of 512 KiB or more, or of a
    window where that is less, goes straight into the reader's memory, by ranges side by side; so does
    ``read()``, which gives the rest of the object.

    If the ranges that will be read are known beforehand, pass them as ``ranges``: each of them is
    then one request, sent while those before it are read, up to four windows ahead. Beside them,
    only reads outside of these ranges are fetched.

    It pickles as its settings and position, and may be read after a fork.

    Args:
        item: An object, or the URI of one such as ``fb://bucket/name``.
        client: Of the URI's cluster; by default the one of :class:`forebay.Client`.
        window: Most bytes that are fetched at a time.
        num_workers: How many ranges of a window, or of a large read, are fetched at once.
        props: The properties of the object, if they are known; else a request fetches them.
        ranges: The ranges that will be read, as ``(start, end)`` in order, none reaching into the next.

    Raises:
        ValueError: A number makes no sense, or the ranges are not in order.
        NotFound: There is no such object; at the first read, or at a later one if it was deleted.
        ObjectChanged: The object is no longer the one that the first read found; at a read that
            fetches. Contents of two versions are never mixed, so closing has nothing to check.

    Example:
        >>> RangeReader("fb://bucket/name.parquet").seek(0, 2)           # doctest: +SKIP
        1048576
    """

    def __init__(
        self,
        item: Object | str,
        *,
        client: Client | None = None,
        window: int = WINDOW_BYTES,
        num_workers: int = 4,
        props: ObjectProps | None = None,
        ranges: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1 byte, not {window}")
        if num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, not {num_workers}")
        found = _object_of(item, client)
        self._file: PinnedFile = (
            _Windows(found, window, num_workers, props)
            if ranges is None
            else PlannedFile(found, ranges, window, num_workers, props)
        )
        super().__init__(self._file, min(_BUFFER_BYTES, window))

    @property
    def name(self) -> str:
        """The object's URI."""
        return self._file.item.uri

    @property
    def props(self) -> ObjectProps:
        """The properties of the object that is read."""
        return self._file.props

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self._file.props.size

    def read(self, size: int | None = -1, /) -> bytes:
        """The next bytes, at most ``size``; the rest of the object without it."""
        if size is None or size < 0:
            position = self.tell()
            rest = self._file.read_rest(position)
            if rest is not None:
                self.seek(position + len(rest))
                return rest
        return super().read(size)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self.closed:
            raise ValueError("a closed file does not pickle")
        file = self._file
        ranges = file.ranges if isinstance(file, PlannedFile) else None
        args = (file.item, file.window, file.num_workers, file.known, ranges, self.tell())
        return _reopen, args

    def __repr__(self) -> str:
        return f"<RangeReader of {self.name}>"

    if not TYPE_CHECKING:  # What has this method has any attribute, to a type checker.

        def __getattr__(self, name: str) -> Any:
            """Raises again what ``readinto`` raised, for a caller that lost it.

            torch.load answers a failure of ``readinto`` by looking ``read`` up. It does so with
            the exception still set, and CPython then finds no attribute and drops the exception.
            """
            file = self.__dict__.get("_file")
            if name == "read" and file is not None and file.failure is not None:
                raise file.failure
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)


class _Windows(PinnedFile):
    """The raw file below the buffer: windows of the object, the next one prefetched."""

    def __init__(
        self, item: Object, window: int, num_workers: int, props: ObjectProps | None
    ) -> None:
        super().__init__(item, window, num_workers, props)
        # The window that is here, and where it begins.
        self._held = memoryview(b"")
        self._start = 0
        # Memory of windows that were read, for the next ones: its pages need not be had anew.
        self._spare: list[bytearray] = []
        # Bytes of the next window.
        self._next_size = min(_BUFFER_BYTES, window)
        self._ahead = _Ahead()
        # Whether the last read was a large one: then small ones are the begin of the next.
        self._was_large = False

    def _read_into(self, target: memoryview) -> int:
        length = len(target)
        held = self._held_from(self._position)
        if not held and self._is_large(length) and not self._ahead.covers(self._position):
            # The header that says where the next one begins is fetched meanwhile.
            self._ask(self._position + length, min(_BUFFER_BYTES, self.window))
            self._was_large = True
            return self._receive(target)
        if not held:
            held = self._fetch(self._position, length)
        length = min(length, len(held))
        target[:length] = held[:length]
        return length

    def read_rest(self, position: int) -> bytes | None:
        # Bytes that are here are fetched once more: joining them with the rest would copy all of it.
        length = self.props.size - position
        here = len(self._held) + self._ahead.length
        if length < max(_DIRECT_READ_MIN_BYTES, _REST_OVER_HELD * here):
            return None
        return read_pinned(self.item, self._pin(), position, length, self.num_workers)

    def close(self) -> None:
        if not self.closed:
            self._ahead.close()
            self._held = memoryview(b"")
            self._spare.clear()
        super().close()

    def _held_from(self, position: int) -> memoryview:
        """Returns the bytes of the current window from ``position`` on; empty if it has none."""
        offset = position - self._start
        return self._held[offset:] if 0 <= offset < len(self._held) else memoryview(b"")

    def _is_large(self, length: int) -> bool:
        return length >= min(self.window, _DIRECT_READ_MIN_BYTES)

    def _fetch(self, position: int, wanted: int) -> memoryview:
        """Returns the bytes at ``position``; if reads are sequential, the next window is fetched in
        the background."""
        size = self.props.size
        in_order = position == self._start + len(self._held)
        coming = self._ahead.take(position)
        if coming is not None:
            in_order = True
            self._let_go()
            self._start, self._held = coming
        else:
            if not in_order:
                self._next_size = min(_BUFFER_BYTES, self.window)
            length = min(max(self._next_size, wanted), self.window, size - position)
            # Let go of first, for two windows are all there is room for.
            self._let_go()
            self._start = position
            memory = self._memory(length)
            self._held = get_pinned(
                self.item, self._pin(), position, length, self.num_workers, memory
            )
        self._next_size = min(self._next_size * _GROWTH, self.window)
        end = self._start + len(self._held)
        # The rest of a large read is received into its place.
        goes_on = (in_order or position == 0) and not self._was_large
        self._was_large = False
        if goes_on and not self._is_large(wanted - (end - position)):
            self._ask(end, self._next_size)
        return self._held_from(position)

    def _ask(self, start: int, length: int) -> None:
        """Starts fetching bytes in the background, unless they lie behind the end."""
        length = min(length, self.props.size - start)
        if length > 0 and not self._ahead.covers(start):
            memory = self._memory(length)
            self._ahead.ask(self.item, self._pin(), start, length, self.num_workers, memory)

    def _memory(self, length: int) -> bytearray | None:
        """Memory for so many bytes, where they are so many that it is worth keeping."""
        if length < self.window // 4 or length < _BUFFER_BYTES:
            return None
        return self._spare.pop() if self._spare else bytearray(self.window)

    def _let_go(self) -> None:
        """Keeps the memory of the window that is here, of which nobody else knows."""
        memory, self._held = self._held.obj, memoryview(b"")
        if isinstance(memory, bytearray):
            self._spare.append(memory)


class _Ahead:
    """A range that a thread fetches; of a process that forked away nothing is waited for."""

    def __init__(self) -> None:
        self._pid = 0
        self._thread: ThreadPoolExecutor | None = None
        self._start = 0
        self._end = 0
        self._coming: Future[memoryview] | None = None

    def ask(
        self,
        item: Object,
        pin: Pin,
        start: int,
        length: int,
        num_workers: int,
        memory: bytearray | None,
    ) -> None:
        if self._thread is None or self._pid != os.getpid():
            self._thread, self._pid = ThreadPoolExecutor(1, "forebay-read-ahead"), os.getpid()
        elif self._coming is not None:
            self._coming.cancel()
        self._start, self._end = start, start + length
        self._coming = self._thread.submit(
            carried(get_pinned), item, pin, start, length, num_workers, memory
        )

    @property
    def length(self) -> int:
        """Bytes that are on their way."""
        return self._end - self._start if self._is_coming() else 0

    def covers(self, position: int) -> bool:
        """Whether the byte at ``position`` is on its way."""
        return self._is_coming() and self._start <= position < self._end

    def _is_coming(self) -> bool:
        """Whether this process waits for a range."""
        return self._coming is not None and self._pid == os.getpid()

    def take(self, position: int) -> tuple[int, memoryview] | None:
        """Returns start and content of the fetched range that covers ``position``; else None."""
        if self._coming is None or not self.covers(position):
            return None
        # Forgotten before it is waited for: after a failure it may be asked for again.
        coming, self._coming = self._coming, None
        return self._start, coming.result()

    def close(self) -> None:
        thread, self._thread, self._coming = self._thread, None, None
        if thread is not None and self._pid == os.getpid():
            thread.shutdown(wait=False, cancel_futures=True)


def _object_of(item: Object | str, client: Client | None) -> Object:
    if isinstance(item, Object):
        return item
    if client is None:
        # Imported here because a client's module imports the one of objects.
        from forebay.client import Client

        client = Client()
    bucket, name = client.bucket_of(item)
    if not name:
        raise ValueError(f"{item!r} names a bucket, not an object")
    return bucket.object(name)


def _reopen(
    item: Object,
    window: int,
    num_workers: int,
    props: ObjectProps | None,
    ranges: Sequence[tuple[int, int]] | None,
    position: int,
) -> RangeReader:
    reader = RangeReader(
        item, window=window, num_workers=num_workers, props=props, ranges=ranges
    )
    reader.seek(position)
    return reader
