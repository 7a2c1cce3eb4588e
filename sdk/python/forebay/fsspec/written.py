"""The file that an object is written through."""

from __future__ import annotations

from forebay.object import Object
from forebay.writer import Writer

__all__ = ["WrittenFile"]


class WrittenFile(Writer):
    """A Writer that fsspec's transactions can hold back.

    With ``autocommit=False`` ``close()`` ends the writing, and ``commit()`` stores the object or
    ``discard()`` does not.

    Attributes:
        path: The object, as ``bucket/name``.
    """

    mode = "wb"

    def __init__(
        self, target: Object, path: str, num_workers: int, part_size: int, autocommit: bool
    ) -> None:
        super().__init__(target, num_workers, part_size=part_size)
        self.path = path
        self.autocommit = autocommit
        self._is_held_back = False

    def write(self, data: object, /) -> int:
        if self._is_held_back:
            raise ValueError("write to a closed file")
        return super().write(data)  # type: ignore[arg-type]

    def close(self) -> None:
        if self.autocommit:
            super().close()
        elif not self.closed:
            self._is_held_back = True

    def commit(self) -> None:
        """Stores the object."""
        super().close()

    def discard(self) -> None:
        """Stores nothing."""
        self.abort()
