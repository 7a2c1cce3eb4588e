"""Base of iterable datasets with a Cursor."""

from __future__ import annotations

import copy
from typing import Any, Self

from forebay_torch import dist
from forebay_torch.cursor import Cursor
from forebay_torch.dataset_pass import Pass

__all__ = ["Resumable"]


class Resumable:
    """Base of iterable datasets with a Cursor."""

    _cursor: Cursor
    _rank: tuple[int, int] | None

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next epoch, where there is one of its own for each; the pass
        under way stays as it is."""
        self._cursor.set_epoch(epoch)

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker has no process group to ask.
        return {**self.__dict__, "_rank": dist.ranks_to_pickle(self._rank)}

    def __copy__(self) -> Self:
        return self._with_cursor(copy.copy(self._cursor))

    def thread_view(self, made: Pass) -> Self:
        """A copy that shares all but the place with this dataset, for a thread of the pass."""
        return self._with_cursor(self._cursor.joined(made))

    def _with_cursor(self, cursor: Cursor) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__getstate__(), _cursor=cursor)
        return twin
