"""Batches of map-style datasets whose subclasses have a ``__getitem__`` of their own.

Such a batch is made of what that method returns for each index. Its contents were fetched before, for
the whole batch at once, and is found here by the thread that works on the batch.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from forebay_torch.policy import stopped

__all__ = ["CustomGetItem", "decides_by_item", "cached_content"]

# The batch that a thread is working on, as a CachedBatch.
_thread = threading.local()


class CachedBatch:
    """The fetched contents of the rows of a batch; rows are numbers in ``data``."""

    __slots__ = ("data", "answers", "is_used")

    def __init__(self, data: object, answers: dict[int, Any]) -> None:
        self.data = data
        self.answers = answers
        self.is_used = False


def cached_content(data: object, row: int) -> Any | None:
    """Returns the fetched content of this row, if the batch that this thread works on has it; else None."""
    batch: CachedBatch | None = getattr(_thread, "batch", None)
    if batch is None or batch.data is not data or row not in batch.answers:
        return None
    batch.is_used = True
    return batch.answers[row]


def decides_by_item(kind: type, base: type) -> bool:
    """Whether a subclass of ``base`` has a ``__getitem__`` that no ``__getitems__`` of a subclass
    stands for."""
    for one in kind.__mro__:
        if one is base or "__getitems__" in vars(one):
            return False
        if "__getitem__" in vars(one):
            return True
    return False


class CustomGetItem:
    """The part of a map-style dataset that makes batches of ``self[index]``."""

    # Whether __getitem__ reads the row at its index: if it does not, nothing is fetched for it ahead.
    _reads_its_index = True

    @abstractmethod
    def rows_to_fetch(self, indices: Sequence[Any]) -> list[int]:
        """The rows that ``__getitem__`` will read for these indices; none where that is unknown,
        because a subclass gives indices a meaning of its own."""

    @abstractmethod
    def _data(self) -> object:
        """Returns the data that rows are numbers in."""

    @abstractmethod
    def _answers(self, rows: Sequence[int]) -> dict[int, Any]:
        """Returns the contents of these rows, fetched together."""

    def _each(self, indices: Sequence[Any]) -> list[Any]:
        """``self[index]`` for each index; what they read is fetched together before.

        Raises:
            RuntimeError: ``__getitem__`` raised StopIteration, which would end the loop.
        """
        rows = self.rows_to_fetch(indices)
        answers = self._answers(rows) if rows else {}
        batch = CachedBatch(self._data(), answers)
        outer = getattr(_thread, "batch", None)
        _thread.batch = batch
        try:
            return [self._item(index) for index in indices]
        finally:
            _thread.batch = outer
            if answers:
                self._reads_its_index = batch.is_used

    def _item(self, index: Any) -> Any:
        """``self[index]``."""
        try:
            return self[index]  # type: ignore[index]
        except StopIteration as error:
            raise stopped(f"{type(self).__name__}.__getitem__", f"the index {index!r}") from error
