"""Objects that are fetched together, those of one request while those before them are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from forebay_torch.source import Answer, ObjectIndex, views

__all__ = ["Group", "pairs"]

T = TypeVar("T")


def pairs(items: Iterable[T]) -> Iterator[tuple[T, T | None]]:
    """Each item and the one after it."""
    rest = iter(items)
    one = next(rest, None)
    while one is not None:
        after = next(rest, None)
        yield one, after
        one = after


class Group:
    """Objects that are fetched together: when the first of them is read, or, where somebody begins
    with it before, meanwhile."""

    __slots__ = ("rows", "after", "_index", "_take", "_contents")

    def __init__(self, index: ObjectIndex, rows: Sequence[int]) -> None:
        self.rows = rows
        # Fetched while this one is read.
        self.after: Group | None = None
        self._index = index
        self._take: Callable[[], Sequence[Answer]] = partial(index.try_many, rows)
        self._contents: list[memoryview] | None = None

    def begin(self) -> None:
        """Asks for the objects; one alone is large, and read as a stream."""
        if len(self.rows) > 1:
            self._take = self._index.submit_many(self.rows)

    def content(self, number: int) -> Callable[[], memoryview]:
        """A function that returns the content of the n-th object."""

        def load() -> memoryview:
            if self._contents is None:
                self._contents = views(self._take())
                if self.after is not None:
                    self.after.begin()
            return self._contents[number]

        return load
