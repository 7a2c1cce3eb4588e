"""Objects whose content came, or will come, before it is read."""

from __future__ import annotations

import os
from collections.abc import Callable

from forebay import ArchiveConfig, Object, Reader
from forebay.pending import PendingObject

__all__ = ["PrefetchedObject", "LookaheadObject"]


class PrefetchedObject(Object):
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


class LookaheadObject(Object):
    """An object like any other, but that what follows it in a pass is asked for when it was read whole:
    a loop that reads one large object as a whole reads the next one so."""

    __slots__ = ("_then", "_coming", "_process")

    def __init__(self, plain: Object, then: Callable[[], None]) -> None:
        """As ``plain``; ``then`` asks for what follows."""
        super().__init__(plain.bucket, plain.name, plain.size)
        self._then = then
        self._coming: PendingObject | None = None
        self._process = os.getpid()

    def begin(self) -> None:
        """Fetches the object for the next who reads it whole."""
        if self._coming is None:
            self._coming = self._begin_whole()

    def _read_whole(self, byte_range: str | None = None) -> bytes:
        # A request of the process that this one was forked from is not answered here.
        if byte_range is not None or self._process != os.getpid():
            return super()._read_whole(byte_range)
        # A second read fetches the object again: it is not kept here.
        coming, self._coming = self._coming, None
        content = super()._read_whole() if coming is None else coming.result()
        self._then()
        return content
