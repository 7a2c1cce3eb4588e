"""An object whose content came, or will come, with a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay import ArchiveConfig, Object, Reader

__all__ = ["FetchedObject"]


class FetchedObject(Object):
    """An object like any other, but that reading it whole costs no request of its own."""

    __slots__ = ("_content",)

    def __init__(self, plain: Object, content: Callable[[], memoryview]) -> None:
        """As ``plain``, whose content ``content`` returns."""
        super().__init__(plain.bucket, plain.name, plain.size)
        self._content = content

    def get_reader(
        self,
        *,
        byte_range: tuple[int, int] | str | None = None,
        archive_config: ArchiveConfig | None = None,
        archpath: str | None = None,
    ) -> Reader:
        if byte_range is not None or archive_config is not None or archpath is not None:
            return super().get_reader(
                byte_range=byte_range, archive_config=archive_config, archpath=archpath
            )
        return Reader(self._content)

    def __reduce__(self) -> tuple[Any, ...]:
        return Object, (self.bucket, self.name, self.size)
