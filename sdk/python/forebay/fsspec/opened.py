"""The file that an object is read through."""

from __future__ import annotations

import atexit
import functools
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]

from forebay.fsspec.tree import Info, ObjectFileSystem, props_of
from forebay.pinned_file import get_pinned
from forebay.range_reader import RangeReader

if TYPE_CHECKING:
    from forebay.object import Object

__all__ = ["CachedFile", "OpenedFile"]

# Bytes of a request where a caller wants no read-ahead.
_LEAST_WINDOW_BYTES = 64 << 10

_MAX_WAIT_S = 1.0
# Time that a thread needs to return from a `close` that has just been counted.
_RETURN_S = 0.05

_open_files: weakref.WeakSet[OpenedFile] = weakref.WeakSet()


class OpenedFile(RangeReader):
    """A RangeReader that the end of the program waits for, where pyarrow may hold it.

    Threads of pyarrow let go of a file a moment after the call that read it has returned. One that
    comes to do so when the interpreter has started to end is ended within a destructor of C++, which
    aborts the program after all its work: https://github.com/apache/arrow/issues/45214.

    Attributes:
        fs: The file system.
        path: The object, as ``bucket/name``.
        blocksize: Most bytes that are fetched at a time; 0 as it was asked for.
        details: The result of the file system's ``info``.
        kwargs: Other arguments of ``open``.
    """

    mode = "rb"
    autocommit = True

    def __init__(
        self,
        fs: ObjectFileSystem,
        item: Object,
        path: str,
        info: Info,
        block_size: int,
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(
            item,
            window=max(block_size, _LEAST_WINDOW_BYTES if block_size == 0 else 1),
            num_workers=fs.num_workers,
            props=props_of(item, info),
        )
        self.fs = fs
        self.path = path
        self.blocksize = block_size
        self.details = info
        self.kwargs = kwargs
        _wait_at_the_end()
        _open_files.add(self)

    @property
    def loc(self) -> int:
        """The position, under fsspec's name."""
        return self.tell()

    @property
    def full_name(self) -> str:
        """The path with the protocol."""
        return str(self.fs.unstrip_protocol(self.path))

    def info(self) -> Info:
        """Returns the result of the file system's ``info`` when the file was opened."""
        return self.details

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        """The bytes up to the next ``char``, with it; or up to the end.

        Args:
            blocks: How many bytes are read at a time.
        """
        start, content = self.tell(), bytearray()
        while True:
            part = self.read(blocks or self.blocksize or _LEAST_WINDOW_BYTES)
            # It may begin at the end of the part before.
            started = max(0, len(content) - len(char) + 1)
            content += part
            found = content.find(char, started)
            if found >= 0:
                end = found + len(char)
                self.seek(start + end)
                return bytes(content[:end])
            if not part:
                return bytes(content)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self.closed:
            raise ValueError("a closed file does not pickle")
        arguments = (self.fs, self.path, self.details, self.blocksize, self.kwargs, self.tell())
        return _reopen, arguments

    def close(self) -> None:
        """Ends the reading; what is on its way is not waited for."""
        super().close()
        _open_files.discard(self)


def _reopen(
    fs: ObjectFileSystem,
    path: str,
    info: Info,
    block_size: int,
    kwargs: dict[str, Any],
    position: int,
) -> OpenedFile:
    file = OpenedFile(fs, fs.object_of(path), path, info, block_size, kwargs)
    file.seek(position)
    return file


class CachedFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of fsspec's own kind, for callers that choose one of its caches, as ``blockcache`` does.

    All its reads are of the version that was there when it was opened.
    """

    def __init__(
        self, fs: ObjectFileSystem, path: str, info: Info, block_size: int, **options: Any
    ) -> None:
        self._details = info
        super().__init__(fs, path, "rb", block_size, size=info["size"], **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        """These bytes of the object.

        Raises:
            ObjectChanged: It was replaced since it was opened.
        """
        length = min(end, self.size) - start
        if length <= 0:
            return b""
        item = self.fs.object_of(self.path)
        props = props_of(item, self.details)
        pin = (props.size, props.version, props.checksum)
        return bytes(get_pinned(item, pin, start, length, self.fs.num_workers, None))


def _wait_for_others() -> None:
    """Gives pyarrow's threads time to let go of files; one that somebody keeps costs all of it."""
    if "pyarrow" not in sys.modules:
        return
    deadline = time.monotonic() + _MAX_WAIT_S
    while _open_files and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(_RETURN_S)


@functools.cache
def _wait_at_the_end() -> None:
    atexit.register(_wait_for_others)
