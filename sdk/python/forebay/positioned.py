"""Base of seekable files that only read."""

from __future__ import annotations

import io

__all__ = ["Positioned"]


class Positioned:
    """A position in so many bytes; goes before a class of ``io`` among the bases."""

    _position: int

    def _length(self) -> int:
        """How many bytes there are."""
        raise io.UnsupportedOperation("seek from the end")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        position = offset + (self._length() if base is None else base)
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position
