"""One object: its bytes in and out."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from forebay.errors import NotFound
from forebay.pending import PendingObject
from forebay.reader import Reader
from forebay.shard import ShardStream
from forebay.spans import call_span
from forebay.types import ArchiveConfig, ObjectProps
from forebay.writer import PART_BYTES, Writer

if TYPE_CHECKING:
    from forebay import _core
    from forebay.bucket import Bucket
    from forebay.range_reader import RangeReader
    from typing_extensions import Buffer

__all__ = ["Object", "Reader"]

_RANGE_BYTES = 8 << 20
# Default limit of the bytes that a RangeReader prefetches.
WINDOW_BYTES = 16 << 20


class Object:
    """An object of a bucket, by name; nothing is sent before it is used."""

    __slots__ = ("bucket", "name", "size")

    def __init__(self, bucket: Bucket, name: str, size: int | None = None) -> None:
        self.bucket = bucket
        self.name = name
        self.size = size

    @property
    def uri(self) -> str:
        """``scheme://bucket/name``."""
        return f"{self.bucket.uri}/{self.name}"

    def get(
        self,
        *,
        byte_range: tuple[int, int] | str | None = None,
        archive_config: ArchiveConfig | None = None,
        archpath: str | None = None,
        num_workers: int = 0,
    ) -> Reader:
        """The same as :meth:`get_reader`."""
        return self.get_reader(
            byte_range=byte_range,
            archive_config=archive_config,
            archpath=archpath,
            num_workers=num_workers,
        )

    def get_reader(
        self,
        *,
        byte_range: tuple[int, int] | str | None = None,
        archive_config: ArchiveConfig | None = None,
        archpath: str | None = None,
        num_workers: int = 0,
    ) -> Reader:
        """A reader of the object; the request goes out at the first read.

        Args:
            byte_range: ``(start, length)``, or the value of an HTTP ``Range`` header such as
                ``bytes=0-99``; of the member where one is named.
            archive_config: Read a member of the shard that this object is.
            archpath: The same, by the member's name alone.
            num_workers: Read the whole content by so many ranges of 8 MiB at once; for large
                objects. 0 is one request.
        """
        if num_workers < 0:
            raise ValueError(f"num_workers must not be negative: {num_workers}")
        if archpath is not None:
            if archive_config is not None:
                raise TypeError("get_reader() takes archpath or archive_config, not both")
            archive_config = ArchiveConfig(archpath)
        if isinstance(byte_range, tuple):
            start, length = byte_range
            if start < 0 or length < 1:
                raise ValueError(f"byte_range is (start, length) with length >= 1: {byte_range}")
            byte_range = f"bytes={start}-{start + length - 1}"
        native, uri = self.bucket.client._native, self.bucket.uri
        name, wanted = self.name, byte_range
        if archive_config is not None:
            member, mime = archive_config.archpath, archive_config.mime
            return Reader(
                lambda: self._load(lambda: native.get_member(uri, name, member, mime, wanted)),
                lambda: self._open(lambda: native.open_member(uri, name, member, mime, wanted)),
            )

        def load() -> memoryview:
            if num_workers > 1:
                return self._load(
                    lambda: native.get_in_ranges(uri, name, wanted, _RANGE_BYTES, num_workers)
                )
            return self._load(lambda: native.get(uri, name, wanted))

        def receive(buffer: Buffer, offset: int) -> int:
            with call_span("forebay.get", uri, name) as span:
                received = native.get_into(
                    uri, name, wanted, buffer, offset, _RANGE_BYTES, max(1, num_workers)
                )
                span.count(bytes=received)
            return received

        return Reader(
            load,
            lambda: self._open(lambda: native.open(uri, name, wanted)),
            receive,
            self._length if wanted is None else None,
            None if num_workers > 1 else lambda: self._read_whole(wanted),
        )

    def _load(self, get: Callable[[], _core.Buffer]) -> memoryview:
        """Reads the object by this call of the native core."""
        with call_span("forebay.get", self.bucket.uri, self.name) as span:
            content = get()
            span.count(bytes=len(content))
        return memoryview(content)

    def _open(self, begin: Callable[[], _core.ObjectStream]) -> Iterator[memoryview]:
        """The pieces of a stream of the object."""
        span = call_span("forebay.get", self.bucket.uri, self.name)
        with span.requests():
            stream = begin()
        return map(memoryview, span.follow(stream))

    def _read_whole(self, byte_range: str | None = None) -> bytes:
        """The content, or a range of it, received into what is returned."""
        uri = self.bucket.uri
        with call_span("forebay.get", uri, self.name) as span:
            content = self.bucket.client._native.read(uri, self.name, byte_range)
            span.count(bytes=len(content))
        return content

    def _begin_whole(self) -> PendingObject:
        """The same of all of it, while the caller goes on: no thread of Python waits for it."""
        native, uri = self.bucket.client._native, self.bucket.uri
        span = call_span("forebay.get", uri, self.name)
        with span.requests():
            pending = native.begin_read(uri, self.name, self.size or 0)
        return PendingObject(pending, span)

    def get_range_reader(
        self,
        *,
        window: int = WINDOW_BYTES,
        num_workers: int = 4,
        props: ObjectProps | None = None,
        ranges: Sequence[tuple[int, int]] | None = None,
    ) -> RangeReader:
        """A seekable file that fetches what is read of it, for objects too large to hold.

        Args:
            window: Most bytes that are fetched ahead of a reader in order.
            num_workers: How many ranges are fetched at once.
            props: Of the version that is to be read, if they are known.
            ranges: The ranges that will be read, as ``(start, end)`` in order, if they are known.
        """
        # Imported here because that module imports this one.
        from forebay.range_reader import RangeReader

        return RangeReader(
            self, window=window, num_workers=num_workers, props=props, ranges=ranges
        )

    def samples(
        self,
        *,
        keys: Literal["webdataset", "basename"] = "webdataset",
        lowercase: bool = False,
        read_ahead: int = 8 << 20,
        mime: str | None = None,
    ) -> ShardStream:
        """The samples of the shard that this object is, as ``(key, {extension: bytes})``.

        It is fetched and unpacked in the background from this call on, up to ``read_ahead`` bytes
        ahead. See :class:`ShardStream` for what an error means, and ``ShardIndex.samples`` for
        ``keys`` and ``lowercase``.

        Args:
            mime: As ``ArchiveConfig.mime``.
        """
        return ShardStream(self, mime, keys, lowercase, read_ahead)

    def members(self, *, read_ahead: int = 8 << 20, mime: str | None = None) -> ShardStream:
        """The files in the shard that this object is, as ``(name, bytes)``; see ``samples``."""
        return ShardStream(self, mime, None, False, read_ahead)

    def put(
        self,
        data: Buffer | io.BufferedIOBase | str | os.PathLike[str],
        *,
        num_workers: int = 0,
    ) -> ObjectProps:
        """Stores the object and returns its properties; reads give the old or the new content, no mix.

        Args:
            data: Its bytes; the path of a file, which is streamed; or an open binary file. With
                ``num_workers`` of 0 or 1, an open file is read to its end into memory before it
                is sent: for a large file, give its path, or ``num_workers`` above 1.
            num_workers: Above 1, send parts of 16 MiB, so many at once; for large objects. 0 and 1
                are one request.
        """
        if num_workers < 0:
            raise ValueError(f"num_workers must not be negative: {num_workers}")
        native, uri = self.bucket.client._native, self.bucket.uri
        if num_workers > 1:
            with Writer(self, num_workers) as writer:
                _copy(data, writer)
            return self.head()
        with call_span("forebay.put", uri, self.name) as span:
            if isinstance(data, str | os.PathLike):
                meta = native.put_file(uri, self.name, os.fspath(data))
            elif hasattr(data, "read"):
                meta = native.put(uri, self.name, as_bytes(data.read()))
            else:
                meta = native.put(uri, self.name, as_bytes(data))
            props = ObjectProps.from_meta(self.name, json.loads(meta))
            span.count(bytes=props.size)
        return props

    def get_writer(self, num_workers: int = 4) -> Writer:
        """A file whose content becomes the object when it is closed.

        Args:
            num_workers: Most parts of 16 MiB that are sent at once while more is written.
        """
        return Writer(self, num_workers)

    def head(self) -> ObjectProps:
        """Returns the properties of the object.

        Raises:
            NotFound: It is not there.
        """
        with call_span("forebay.head", self.bucket.uri, self.name):
            meta = self.bucket.client._native.head(self.bucket.uri, self.name)
        return ObjectProps.from_meta(self.name, json.loads(meta))

    def _length(self) -> int:
        """Bytes of the object, from the listing that it comes from or by a request."""
        return self.head().size if self.size is None else self.size

    def copy(self, to: Object) -> None:
        """Copies the object to another name, or bucket, of this cluster; no byte comes by here.

        Raises:
            NotFound: It, or the other bucket, is not there.
            ValueError: The other one is in another cluster.
        """
        if to.bucket.client.endpoint != self.bucket.client.endpoint:
            raise ValueError(f"{to!r} is in the cluster at {to.bucket.client.endpoint}")
        native = self.bucket.client._native
        with call_span("forebay.copy", self.bucket.uri, self.name):
            native.copy(self.bucket.uri, self.name, to.bucket.uri, to.name)

    def delete(self, missing_ok: bool = False) -> None:
        """Removes the object, at the backend too where the bucket has one."""
        try:
            with call_span("forebay.delete", self.bucket.uri, self.name):
                self.bucket.client._native.delete(self.bucket.uri, self.name)
        except NotFound:
            if not missing_ok:
                raise

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Object):
            return NotImplemented
        return (self.bucket, self.name) == (other.bucket, other.name)

    def __hash__(self) -> int:
        return hash((self.bucket, self.name))

    def __reduce__(self) -> tuple[Any, ...]:
        return Object, (self.bucket, self.name, self.size)

    def __repr__(self) -> str:
        return f"Object({self.uri!r})"


def _copy(data: Buffer | io.BufferedIOBase | str | os.PathLike[str], writer: Writer) -> None:
    """Writes all of it."""
    if isinstance(data, str | os.PathLike):
        with open(data, "rb") as file:
            _copy(file, writer)
    elif hasattr(data, "read"):
        while piece := data.read(PART_BYTES):
            writer.write(piece)
    else:
        writer.write(as_view(data))


def as_bytes(data: Buffer) -> bytes:
    """The content of a buffer; numbers and texts are refused."""
    return data if isinstance(data, bytes) else bytes(as_view(data))


def as_view(data: Buffer) -> memoryview:
    """A view of a buffer, as :func:`as_bytes`."""
    try:
        return memoryview(data)
    except TypeError:
        kind = type(data).__name__
        raise TypeError(f"needs bytes or another buffer, not {kind}") from None
