"""Datasets as nodes of ``torchdata.nodes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

try:
    # Untyped, and not there everywhere.
    from torchdata.nodes import BaseNode  # type: ignore[import-untyped,import-not-found,unused-ignore]
except ModuleNotFoundError as error:
    raise ImportError("forebay_torch.nodes needs torchdata: pip install torchdata") from error

from forebay_torch.cursor import Cursor

__all__ = ["Reader"]


class Reader(BaseNode):  # type: ignore[misc,unused-ignore]
    """The samples of an iterable dataset as a node, with the dataset's own exact state.

    Every ``reset()`` is a pass: the first is the dataset's epoch, or what is left of a state that was
    loaded; each after a whole pass is the next epoch.

    Args:
        dataset: IterableDataset, BatchIterDataset, ShardReader, MultiShardStream or MixedDataset.

    Raises:
        TypeError: The dataset has no state.

    Example:
        >>> node = Batcher(Reader(IterableDataset(bucket, shuffle=True)), batch_size=16)
        >>> loader = torchdata.nodes.Loader(node)
    """

    _STATE = "dataset"

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        if not hasattr(dataset, "load_state_dict") or not hasattr(dataset, "state_dict"):
            raise TypeError(f"a node reads a dataset with a state, not {type(dataset).__name__}")
        self._dataset = dataset
        # The dataset at its place in the pass of this node, which no other pass changes.
        self._view = dataset
        self._samples: Iterator[Any] = iter(())
        self._ended = False

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begins a pass, where ``initial_state`` says if there is one."""
        super().reset(initial_state)
        if initial_state is not None:
            self._dataset.load_state_dict(initial_state[self._STATE])
        elif self._ended and hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(self._view.state_dict()["epoch"] + 1)
        self._ended = False
        cursor = getattr(self._dataset, "_cursor", None)
        if isinstance(cursor, Cursor):
            self._view = self._dataset.thread_view(cursor.open())
        self._samples = iter(self._view)

    def next(self) -> Any:
        """The next sample."""
        try:
            return next(self._samples)
        except StopIteration:
            self._ended = True
            raise

    def get_state(self) -> dict[str, Any]:
        """How far the pass is; small, and good for any number of ranks."""
        return {self._STATE: self._view.state_dict()}
