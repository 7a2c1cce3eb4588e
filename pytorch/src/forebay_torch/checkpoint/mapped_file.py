"""Memory as a file that is read and seeked, without a copy of the whole."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

__all__ = ["mapped_file"]

_BUFFER_BYTES = 1 << 20


def mapped_file(view: memoryview) -> BinaryIO:
    """A read-only file with the bytes of ``view``. Reads of more than 1 MiB copy from there directly."""
    return io.BufferedReader(_Memory(view), _BUFFER_BYTES)


class _Memory(io.RawIOBase):
    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        if start + offset < 0:
            raise ValueError(f"negative position {start + offset}")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer).cast("B") as into:
            piece = self._view[self._at : self._at + len(into)]
            into[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)
