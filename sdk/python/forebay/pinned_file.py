"""Base of seekable files over an object: a position, and the version that they read."""

from __future__ import annotations

import contextlib
import copy
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from forebay.errors import ForebayError, InvalidArgument, ObjectChanged
from forebay.object import Object
from forebay.positioned import Positioned
from forebay.spans import call_span
from forebay.types import ObjectProps

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from forebay import _core

__all__ = ["Pin", "PinnedFile", "get_pinned", "range_bytes", "read_pinned"]

Pin = tuple[int, str, str]

# One range is quicker than several below the first; the second is what a retry costs at most.
_MIN_RANGE_BYTES, _MAX_RANGE_BYTES = 2 << 20, 8 << 20


class PinnedFile(Positioned, io.RawIOBase, ABC):
    """A file over one version of an object: the one of ``props``, or of the first read.

    Args:
        window: Most bytes that are fetched at a time.
        num_workers: How many ranges of them at once.
        props: The properties of the object, if they are known; else a request fetches them.
    """

    def __init__(
        self, item: Object, window: int, num_workers: int, props: ObjectProps | None
    ) -> None:
        super().__init__()
        self.item = item
        self.window = window
        self.num_workers = num_workers
        self.known = props
        # The error of the last read.
        self.failure: ForebayError | None = None
        self._position = 0

    @abstractmethod
    def _read_into(self, target: memoryview) -> int:
        """Fills ``target`` from the position on, with a byte at least; it ends within the object."""

    @property
    def props(self) -> ObjectProps:
        if self.known is None:
            self.known = self.item.head()
        return self.known

    def _length(self) -> int:
        return self.props.size

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
            target = memoryview(buffer).cast("B")
            length = min(len(target), self.props.size - self._position)
            if length <= 0:
                return 0
            received = self._read_into(target[:length])
        except ForebayError as error:
            # A copy: that one holds the frames, and so the buffer.
            self.failure = copy.copy(error)
            raise
        self._position += received
        return received

    def _receive(self, target: memoryview) -> int:
        """Reads what is at the position into its place."""
        native, uri = self.item.bucket.client._native, self.item.bucket.uri
        wanted = f"bytes={self._position}-{self._position + len(target) - 1}"
        workers = self.num_workers
        part = range_bytes(len(target), workers)
        pin = self._pin()
        with _still_so_long(self.item), call_span("forebay.get", uri, self.item.name) as span:
            received = native.get_into(uri, self.item.name, wanted, target, 0, part, workers, pin)
            span.count(bytes=received)
        return received

    def read_rest(self, position: int) -> bytes | None:
        """The bytes behind a position, if reading them at once is quickest; the position stays."""
        return None

    def _pin(self) -> Pin:
        return self.props.size, self.props.version, self.props.checksum


def get_pinned(
    item: Object,
    pin: Pin,
    start: int,
    length: int,
    num_workers: int,
    memory: bytearray | None = None,
) -> memoryview:
    """The bytes of a range, of the version that ``pin`` is.

    Args:
        memory: Where they are put, if it has room for them.

    Raises:
        ObjectChanged: The object is another version.
        NotFound: It is gone.
    """
    native: _core.Client = item.bucket.client._native
    wanted = f"bytes={start}-{start + length - 1}"
    part = range_bytes(length, num_workers)
    uri = item.bucket.uri
    with _still_so_long(item), call_span("forebay.get", uri, item.name) as span:
        if memory is not None and len(memory) >= length:
            target = memoryview(memory)[:length]
            native.get_into(
                item.bucket.uri, item.name, wanted, target, 0, part, num_workers, pin
            )
            return target
        return memoryview(
            native.get_in_ranges(item.bucket.uri, item.name, wanted, part, num_workers, pin)
        )


def read_pinned(item: Object, pin: Pin, start: int, length: int, num_workers: int) -> bytes:
    """The bytes of a range as ``bytes``, which they are received into; raises as ``get_pinned`` does."""
    native, uri = item.bucket.client._native, item.bucket.uri
    part = range_bytes(length, num_workers)
    with _still_so_long(item), call_span("forebay.get", uri, item.name) as span:
        content = native.read_in_ranges(uri, item.name, start, length, part, num_workers, pin)
        span.count(bytes=len(content))
        return content


def range_bytes(length: int, num_workers: int) -> int:
    """Bytes of each range by which ``length`` bytes are read."""
    return min(max(-(-length // num_workers), _MIN_RANGE_BYTES), _MAX_RANGE_BYTES)


@contextlib.contextmanager
def _still_so_long(item: Object) -> Iterator[None]:
    """Raises ``ObjectChanged`` if a range now lies behind the end of the object."""
    try:
        yield
    except InvalidArgument as error:
        if error.code != "range_not_satisfiable":
            raise
        raise ObjectChanged(f"{item.uri} changed since it was opened: it is shorter") from None
