"""An object whose content came, or will come, with a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay import ArchiveConfig, Object, Reader

__all__ = ["FetchedObject"]


class FetchedObject(Object):
    """An object like any other, but that reading it whole costs no request of its own."""

    __slots__ = ("_content", "_as_stored")

    def __init__(
        self, plain: Object, content: Callable[[], memoryview], as_stored: bool = True
    ) -> None:
        """As ``plain``, whose content ``content`` returns.

        Args:
            as_stored: Whether that is what the cluster stores; of anything else only the whole is
                read, with a range cut out of it.
        """
        super().__init__(plain.bucket, plain.name, plain.size)
        self._content = content
        self._as_stored = as_stored

    def get_reader(
        self,
        *,
        byte_range: tuple[int, int] | str | None = None,
        archive_config: ArchiveConfig | None = None,
        archpath: str | None = None,
        num_workers: int = 0,
    ) -> Reader:
        partly = byte_range is not None or archive_config is not None or archpath is not None
        if partly and not self._as_stored:
            raise ValueError(f"{self.uri}: only the whole is read through a transform")
        if partly:
            return super().get_reader(
                byte_range=byte_range,
                archive_config=archive_config,
                archpath=archpath,
                num_workers=num_workers,
            )
        return Reader(self._content)

    def __reduce__(self) -> tuple[Any, ...]:
        return Object, (self.bucket, self.name, self.size)
