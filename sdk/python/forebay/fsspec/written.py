"""The file that an object is written through."""

from __future__ import annotations

from typing import Any, NoReturn

from forebay.fsspec.tree import ObjectFileSystem
from forebay.object import Object
from forebay.writer import Writer

__all__ = ["WrittenFile"]


class WrittenFile(Writer):
    """A Writer that fsspec's transactions can hold back.

    With ``autocommit=False`` ``close()`` ends the writing, and ``commit()`` stores the object or
    ``discard()`` does not.

    Attributes:
        fs: The file system.
        path: The object, as ``bucket/name``.
        blocksize: Bytes of a part.
        kwargs: Other arguments of ``open``.
    """

    mode = "wb"

    def __init__(
        self,
        fs: ObjectFileSystem,
        target: Object,
        path: str,
        part_size: int,
        autocommit: bool,
        kwargs: dict[str, Any],
    ) -> None:
        super().__init__(target, fs.num_workers, part_size=part_size)
        self.fs = fs
        self.path = path
        self.blocksize = part_size
        self.autocommit = autocommit
        self.kwargs = kwargs
        self._is_held_back = False

    @property
    def loc(self) -> int:
        """The position, under fsspec's name."""
        return self.tell()

    @property
    def full_name(self) -> str:
        """The path with the protocol."""
        return str(self.fs.unstrip_protocol(self.path))

    def info(self) -> NoReturn:
        """Raises: an object has no properties before it is stored.

        Raises:
            ValueError: Always, as for fsspec's own files.
        """
        raise ValueError("Info not available while writing")

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
