"""A line on the terminal that says how far a reader is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

__all__ = ["Progress"]

_INTERVAL_S = 0.2

T = TypeVar("T")


class Progress:
    """Counts samples of one source after the other; shows nothing where stderr is no terminal."""

    def __init__(self, wanted: bool, suffix: str = "") -> None:
        """Shows if ``wanted``; ``suffix`` distinguishes workers."""
        self._shown = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._suffix = suffix
        self._title = ""
        self._count = 0
        self._due = 0.0

    def begin(self, title: str) -> None:
        """Ends the line of the source before, and begins one."""
        self._end()
        self._title, self._count = title, 0

    def advance(self) -> None:
        """One sample more."""
        self._count += 1
        if self._shown and time.monotonic() >= self._due:
            self._write("")
            self._due = time.monotonic() + _INTERVAL_S

    def counted(self, samples: Iterable[T]) -> Iterable[T]:
        """The samples, each counted when it is taken, where somebody sees that."""
        return self._counting(samples) if self._shown else samples

    def _counting(self, samples: Iterable[T]) -> Iterator[T]:
        for sample in samples:
            self.advance()
            yield sample

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        self._end()

    def _end(self) -> None:
        if self._shown and self._title:
            self._write("\n")
        self._title = ""

    def _write(self, end: str) -> None:
        sys.stderr.write(f"\r{self._title}{self._suffix}: {self._count} samples{end}")
        sys.stderr.flush()
