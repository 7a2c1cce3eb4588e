"""One object: its bytes in and out."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from forebay.errors import NotFound
from forebay.shard import ShardStream
from forebay.types import ArchiveConfig, ObjectProps

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from forebay.bucket import Bucket

__all__ = ["Object", "Reader", "Writer"]

_PIECE_BYTES = 1 << 20
# Inside Reader, whose method is called so, the bare name would mean the method.
_View: TypeAlias = memoryview


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
    ) -> Reader:
        """The same as :meth:`get_reader`."""
        return self.get_reader(
            byte_range=byte_range, archive_config=archive_config, archpath=archpath
        )

    def get_reader(
        self,
        *,
        byte_range: tuple[int, int] | str | None = None,
        archive_config: ArchiveConfig | None = None,
        archpath: str | None = None,
    ) -> Reader:
        """A reader of the object; the request goes out at the first read.

        Args:
            byte_range: ``(start, length)``, or the value of an HTTP ``Range`` header such as
                ``bytes=0-99``; of the member where one is named.
            archive_config: Read a member of the shard that this object is.
            archpath: The same, by the member's name alone.
        """
        if archpath is not None:
            if archive_config is not None:
                raise TypeError("get_reader() takes archpath or archive_config, not both")
            archive_config = ArchiveConfig(archpath)
        if isinstance(byte_range, tuple):
            start, length = byte_range
            if start < 0 or length < 1:
                raise ValueError(f"byte_range is (start, length) with length >= 1: {byte_range}")
            byte_range = f"bytes={start}-{start + length - 1}"
        client, uri, name, wanted = self.bucket.client, self.bucket.uri, self.name, byte_range
        if archive_config is not None:
            member, mime = archive_config.archpath, archive_config.mime
            return Reader(
                lambda: memoryview(client._native.get_member(uri, name, member, mime, wanted)),
                lambda: map(
                    memoryview, client._native.open_member(uri, name, member, mime, wanted)
                ),
            )
        return Reader(
            lambda: memoryview(client._native.get(uri, name, wanted)),
            lambda: map(memoryview, client._native.open(uri, name, wanted)),
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

    def put(self, data: Buffer | io.BufferedIOBase | str | os.PathLike[str]) -> ObjectProps:
        """What is known of the object after storing it: old or new is seen, never half.

        Args:
            data: Its bytes; or the path of a file, or an open binary file, which are streamed.
        """
        native, uri = self.bucket.client._native, self.bucket.uri
        if isinstance(data, str | os.PathLike):
            meta = native.put_file(uri, self.name, os.fspath(data))
        elif hasattr(data, "read"):
            meta = native.put(uri, self.name, as_bytes(data.read()))
        else:
            meta = native.put(uri, self.name, as_bytes(data))
        return ObjectProps.from_meta(self.name, json.loads(meta))

    def get_writer(self) -> Writer:
        """A file whose content becomes the object when it is closed."""
        return Writer(self)

    def head(self) -> ObjectProps:
        """What is known of the object.

        Raises:
            NotFound: It is not there.
        """
        meta = self.bucket.client._native.head(self.bucket.uri, self.name)
        return ObjectProps.from_meta(self.name, json.loads(meta))

    def delete(self, missing_ok: bool = False) -> None:
        """Removes the object, at the backend too where the bucket has one."""
        try:
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


class Reader(io.BufferedIOBase):
    """The bytes of an object, or of a part of it, as a seekable binary file.

    ``read_all`` and ``memoryview`` are one request. Iteration gives pieces as they arrive and
    keeps none of them. The methods of a file (``read``, ``seek``) hold the whole content.
    """

    def __init__(
        self,
        load: Callable[[], _View],
        stream: Callable[[], Iterator[_View]] | None = None,
    ) -> None:
        """A reader of what ``load`` returns; called at most once, when it is first needed.

        Args:
            stream: The same content piece by piece, for iteration.
        """
        super().__init__()
        self._load = load
        self._stream = stream
        self._content: _View | None = None
        self._position = 0

    def memoryview(self) -> _View:
        """The whole content, without a copy."""
        if self._content is None:
            self._content = self._load()
        return self._content

    def read_all(self) -> bytes:
        """The whole content."""
        return bytes(self.memoryview())

    def __iter__(self) -> Iterator[_View]:  # type: ignore[override]
        if self._content is None and self._stream is not None:
            yield from self._stream()
            return
        content = self.memoryview()
        for start in range(0, len(content), _PIECE_BYTES):
            yield content[start : start + _PIECE_BYTES]

    def read(self, size: int | None = -1, /) -> bytes:
        content = self.memoryview()
        end = len(content) if size is None or size < 0 else self._position + size
        part = content[self._position : end]
        self._position += len(part)
        return bytes(part)

    read1 = read

    def readinto(self, buffer: Buffer, /) -> int:
        target = memoryview(buffer).cast("B")
        part = self.memoryview()[self._position : self._position + len(target)]
        target[: len(part)] = part
        self._position += len(part)
        return len(part)

    readinto1 = readinto

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        position = offset + (len(self.memoryview()) if base is None else base)
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class Writer(io.BytesIO):
    """A file in memory that is stored as one object by ``close()``.

    Leaving a ``with`` block by an exception stores nothing.
    """

    def __init__(self, target: Object) -> None:
        super().__init__()
        self._target: Object | None = target

    def abort(self) -> None:
        """Closes the file without storing it."""
        self._target = None
        super().close()

    def close(self) -> None:
        target, self._target = self._target, None
        try:
            if target is not None:
                target.put(self.getbuffer())
        finally:
            super().close()

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        # Forgotten without close(): that is no decision to publish what was written so far.
        self._target = None


def as_bytes(data: Buffer) -> bytes:
    """The content of a buffer; numbers and texts are refused."""
    if isinstance(data, bytes):
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        kind = type(data).__name__
        raise TypeError(f"needs bytes or another buffer, not {kind}") from None
