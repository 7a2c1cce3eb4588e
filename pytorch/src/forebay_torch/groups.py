"""Objects that are fetched together, those of one request while those before them are read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import TypeVar

from forebay import Object
from forebay_torch.object_index import Answer, ObjectIndex, views
from forebay_torch.prefetched_object import LookaheadObject

__all__ = ["Group", "fitting", "pairs"]

# Of objects that are read whole and are no larger than this, the next is fetched meanwhile.
PREFETCH_MAX_OBJECT_BYTES = 32 << 20

T = TypeVar("T")


def pairs(items: Iterable[T]) -> Iterator[tuple[T, T | None]]:
    """Each item and the one after it."""
    rest = iter(items)
    one = next(rest, None)
    while one is not None:
        after = next(rest, None)
        yield one, after
        one = after


def fitting(sizes: Sequence[int], limit: int) -> int:
    """How many of these, from the first on, are ``limit`` together at most; one in any case."""
    if sum(sizes) <= limit:
        return len(sizes)
    return max(1, bisect_right(list(accumulate(sizes)), limit))


class Group:
    """Objects that are fetched together: when the first of them is read, or, where somebody begins
    with it before, meanwhile."""

    __slots__ = ("rows", "after", "_index", "_take", "_contents", "_alone")

    def __init__(self, index: ObjectIndex, rows: Sequence[int]) -> None:
        self.rows = rows
        # Fetched while this one is read.
        self.after: Group | None = None
        self._index = index
        self._take: Callable[[], Sequence[Answer]] = partial(index.try_many, rows)
        self._contents: list[memoryview] | None = None
        self._alone: Object | None = None

    def begin(self) -> None:
        """Starts fetching the objects; a single one is large, and may be read as a stream."""
        if len(self.rows) > 1:
            self._take = self._index.submit_many(self.rows)

    def alone(self) -> Object:
        """The object of a group that has no other."""
        if self._alone is None:
            plain = self._index.object(self.rows[0])
            is_ahead = type(plain) is Object and (plain.size or 0) <= PREFETCH_MAX_OBJECT_BYTES
            self._alone = LookaheadObject(plain, self._begin_after) if is_ahead else plain
        return self._alone

    def _begin_after(self) -> None:
        """Starts fetching the group after an object that was read whole."""
        if self.after is None:
            return
        if len(self.after.rows) > 1:
            self.after.begin()
        elif isinstance(ahead := self.after.alone(), LookaheadObject):
            ahead.begin()

    def content(self, number: int) -> Callable[[], memoryview]:
        """A function that returns the content of the n-th object."""

        def load() -> memoryview:
            if self._contents is None:
                self._contents = views(self._take())
                if self.after is not None:
                    self.after.begin()
            return self._contents[number]

        return load
