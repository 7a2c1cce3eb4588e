"""A large object as a file of which only what is read is fetched."""

from __future__ import annotations

import contextlib
import copy
import io
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from forebay.errors import ForebayError, InvalidArgument, ObjectChanged
from forebay.object import WINDOW_BYTES, Object
from forebay.types import ObjectProps

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from forebay import _core
    from forebay.client import Client

__all__ = ["RangeReader"]

# A read from here on goes straight into the reader's memory.
_LARGE_BYTES = 4 << 20
# One range is quicker than several below the first; the second is what a retry costs at most.
_LEAST_RANGE_BYTES, _MOST_RANGE_BYTES = 1 << 20, 8 << 20

# What a file of Python asks for at a time when somebody reads a line or a few bytes.
_BUFFER_BYTES = 64 << 10
# A window that is that many times the one before it, as long as the file is read in order.
_GROWTH = 4


class RangeReader(io.BufferedReader):
    """An object, or a URI, as a seekable binary file that fetches ranges as they are read.

    Nothing is sent before the first read. What is read in order is fetched ahead, by ranges side
    by side, in windows that grow up to ``window`` bytes; what is read here and there is fetched as
    it is asked for. There are at most two windows in memory. A read of 4 MiB or more, or of a
    window where that is less, goes straight into the reader's memory, by ranges side by side.

    It pickles as its settings and position, and may be read after a fork.

    Args:
        item: An object, or the URI of one such as ``fb://bucket/name``.
        client: Of the URI's cluster; by default the one of :class:`forebay.Client`.
        window: Most bytes that are fetched at a time.
        num_workers: How many ranges of a window, or of a large read, are fetched at once.
        props: What is known of the object, if it is; else a request asks for it.

    Raises:
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
    ) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1 byte, not {window}")
        if num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, not {num_workers}")
        self._windows = _Windows(_object_of(item, client), window, num_workers, props)
        super().__init__(self._windows, min(_BUFFER_BYTES, window))

    @property
    def name(self) -> str:
        """The object's URI."""
        return self._windows.item.uri

    @property
    def props(self) -> ObjectProps:
        """What is known of the object that is read."""
        return self._windows.props

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self._windows.props.size

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self.closed:
            raise ValueError("a closed file does not pickle")
        windows = self._windows
        args = (windows.item, windows.window, windows.num_workers, windows.known, self.tell())
        return _reopen, args

    def __repr__(self) -> str:
        return f"<RangeReader of {self.name}>"

    if not TYPE_CHECKING:  # What has this method has any attribute, to a type checker.

        def __getattr__(self, name: str) -> Any:
            """Raises again what ``readinto`` raised, for a caller that lost it.

            torch.load answers a failure of ``readinto`` by looking ``read`` up. It does so with
            the exception still set, and CPython then finds no attribute and drops the exception.
            """
            windows = self.__dict__.get("_windows")
            if name == "read" and windows is not None and windows.failure is not None:
                raise windows.failure
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)


class _Windows(io.RawIOBase):
    """What is below the buffer: windows of the object, the next one on its way."""

    def __init__(
        self, item: Object, window: int, num_workers: int, props: ObjectProps | None
    ) -> None:
        super().__init__()
        self.item = item
        self.window = window
        self.num_workers = num_workers
        self.known = props
        # What the last read failed of.
        self.failure: ForebayError | None = None
        self._position = 0
        # The window that is here, and where it begins.
        self._held = memoryview(b"")
        self._start = 0
        # Bytes of the next window.
        self._next_size = min(_BUFFER_BYTES, window)
        self._ahead = _Ahead()

    @property
    def props(self) -> ObjectProps:
        if self.known is None:
            self.known = self.item.head()
        return self.known

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        position = offset + (self.props.size if base is None else base)
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position

    def readall(self) -> bytes:
        length = self.props.size - self._position
        if length <= 0:
            return b""
        content = bytearray(length)
        filled = 0
        view = memoryview(content)
        while filled < length:
            filled += self.readinto(view[filled:])
        return bytes(content)

    def readinto(self, buffer: Buffer, /) -> int:
        self.failure = None
        try:
            return self._read_into(buffer)
        except ForebayError as error:
            # A copy: that one holds the frames, and so the buffer.
            self.failure = copy.copy(error)
            raise

    def _read_into(self, buffer: Buffer) -> int:
        target = memoryview(buffer).cast("B")
        length = min(len(target), self.props.size - self._position)
        if length <= 0:
            return 0
        held = self._held_from(self._position)
        if not held and self._is_large(length) and not self._ahead.covers(self._position):
            received = self._receive(target[:length])
            self._position += received
            return received
        if not held:
            held = self._fetch(self._position, length)
        length = min(length, len(held))
        target[:length] = held[:length]
        self._position += length
        return length

    def close(self) -> None:
        if not self.closed:
            self._ahead.close()
            self._held = memoryview(b"")
        super().close()

    def _held_from(self, position: int) -> memoryview:
        """What of the window that is here lies at ``position`` and behind it."""
        offset = position - self._start
        return self._held[offset:] if 0 <= offset < len(self._held) else memoryview(b"")

    def _is_large(self, length: int) -> bool:
        return length >= min(self.window, _LARGE_BYTES)

    def _fetch(self, position: int, wanted: int) -> memoryview:
        """What there is at ``position``; what comes next is fetched meanwhile if this goes in
        order."""
        size = self.props.size
        in_order = position == self._start + len(self._held)
        coming = self._ahead.take(position)
        if coming is not None:
            in_order = True
            self._start, self._held = coming
        else:
            if not in_order:
                self._next_size = min(_BUFFER_BYTES, self.window)
            length = min(max(self._next_size, wanted), self.window, size - position)
            # Let go of first, for two windows are all there is room for.
            self._start, self._held = position, memoryview(b"")
            self._held = _get(self.item, self._pin(), position, length, self.num_workers)
        self._next_size = min(self._next_size * _GROWTH, self.window)
        end = self._start + len(self._held)
        # What a large read goes on with comes into its place.
        goes_on = in_order or position == 0
        if goes_on and end < size and not self._is_large(wanted - (end - position)):
            length = min(self._next_size, size - end)
            self._ahead.ask(self.item, self._pin(), end, length, self.num_workers)
        return self._held_from(position)

    def _receive(self, target: memoryview) -> int:
        """Reads what is at the position into its place."""
        native, uri = self.item.bucket.client._native, self.item.bucket.uri
        wanted = f"bytes={self._position}-{self._position + len(target) - 1}"
        workers = self.num_workers
        part = _range_bytes(len(target), workers)
        with _still_so_long(self.item):
            return native.get_into(
                uri, self.item.name, wanted, target, 0, part, workers, self._pin()
            )

    def _pin(self) -> _Pin:
        return self.props.size, self.props.version, self.props.checksum


_Pin = tuple[int, str, str]


class _Ahead:
    """A range that a thread fetches; of a process that forked away nothing is waited for."""

    def __init__(self) -> None:
        self._pid = 0
        self._thread: ThreadPoolExecutor | None = None
        self._start = 0
        self._end = 0
        self._coming: Future[memoryview] | None = None

    def ask(self, item: Object, pin: _Pin, start: int, length: int, num_workers: int) -> None:
        if self.covers(start):
            return
        if self._thread is None or self._pid != os.getpid():
            self._thread, self._pid = ThreadPoolExecutor(1, "forebay-read-ahead"), os.getpid()
        elif self._coming is not None:
            self._coming.cancel()
        self._start, self._end = start, start + length
        self._coming = self._thread.submit(_get, item, pin, start, length, num_workers)

    def covers(self, position: int) -> bool:
        """Whether the byte at ``position`` is on its way."""
        mine = self._coming is not None and self._pid == os.getpid()
        return mine and self._start <= position < self._end

    def take(self, position: int) -> tuple[int, memoryview] | None:
        """Where it begins and what it is that covers ``position``; None where nothing does."""
        if self._coming is None or not self.covers(position):
            return None
        # Forgotten before it is waited for: after a failure it may be asked for again.
        coming, self._coming = self._coming, None
        return self._start, coming.result()

    def close(self) -> None:
        thread, self._thread, self._coming = self._thread, None, None
        if thread is not None and self._pid == os.getpid():
            thread.shutdown(wait=False, cancel_futures=True)


def _get(item: Object, pin: _Pin, start: int, length: int, num_workers: int) -> memoryview:
    native: _core.Client = item.bucket.client._native
    wanted = f"bytes={start}-{start + length - 1}"
    part = _range_bytes(length, num_workers)
    with _still_so_long(item):
        return memoryview(
            native.get_in_ranges(item.bucket.uri, item.name, wanted, part, num_workers, pin)
        )


def _range_bytes(length: int, num_workers: int) -> int:
    """Bytes of each range by which ``length`` bytes are read."""
    return min(max(-(-length // num_workers), _LEAST_RANGE_BYTES), _MOST_RANGE_BYTES)


@contextlib.contextmanager
def _still_so_long(item: Object) -> Iterator[None]:
    """Tells a range that lies behind the end by now for what it is."""
    try:
        yield
    except InvalidArgument as error:
        if error.code != "range_not_satisfiable":
            raise
        raise ObjectChanged(f"{item.uri} changed since it was opened: it is shorter") from None


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
    item: Object, window: int, num_workers: int, props: ObjectProps | None, position: int
) -> RangeReader:
    reader = RangeReader(item, window=window, num_workers=num_workers, props=props)
    reader.seek(position)
    return reader
