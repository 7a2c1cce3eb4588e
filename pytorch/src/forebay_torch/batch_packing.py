"""Batches of unequal samples: the cost of the batch that is being filled, and the finished batches of an epoch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

__all__ = ["BatchCost", "PackedBatches"]


class BatchCost:
    """The cost of the batch that is being filled."""

    __slots__ = ("samples", "_padded", "_level")

    def __init__(self, padded: bool) -> None:
        self.samples = 0
        self._padded = padded
        # The sum of the costs; of padded samples the dearest.
        self._level = 0.0

    @property
    def cost(self) -> float:
        return self._level * self.samples if self._padded else self._level

    def cost_with(self, own: float) -> float:
        """Returns the cost of the batch with one more sample, which costs ``own``."""
        if self._padded:
            return max(self._level, own) * (self.samples + 1)
        return self._level + own

    def add(self, own: float) -> None:
        """Adds a sample, which costs ``own``."""
        self._level = max(self._level, own) if self._padded else self._level + own
        self.samples += 1


class PackedBatches:
    """The batches of an epoch in two flat arrays."""

    __slots__ = ("_indices", "_ends", "left_out", "first_left_out")

    def __init__(
        self, indices: torch.Tensor, ends: array[int], left_out: int, first_left_out: int
    ) -> None:
        self._indices = indices
        self._ends = ends
        # How many samples are in none because they are too large, and the first of them.
        self.left_out = left_out
        self.first_left_out = first_left_out

    @classmethod
    def merged(
        cls,
        parts: Sequence[tuple[torch.Tensor, array[int]]],
        indices: torch.Tensor,
        left_out: int = 0,
        first_left_out: int = -1,
    ) -> PackedBatches:
        """The batches of all parts, in the order of the positions of their last samples.

        Args:
            parts: Positions in the epoch's order, and where in them batches end.
            indices: The epoch's order.
        """
        if len(parts) == 1:
            positions, ends = parts[0]
            return cls(indices[positions], ends, left_out, first_left_out)
        pieces: list[torch.Tensor] = []
        for positions, ends in parts:
            if ends:
                lengths = torch.diff(torch.tensor([0, *ends])).tolist()
                pieces += torch.split(positions[: ends[-1]], lengths)
        pieces.sort(key=lambda piece: int(piece[-1]))
        ends = array("q")
        for piece in pieces:
            ends.append((ends[-1] if ends else 0) + len(piece))
        taken = indices[torch.cat(pieces)] if pieces else indices[:0]
        return cls(taken, ends, left_out, first_left_out)

    def batch(self, number: int) -> list[int]:
        """The indices of the n-th batch."""
        start = self._ends[number - 1] if number else 0
        taken: list[int] = self._indices[start : self._ends[number]].tolist()
        return taken

    def __len__(self) -> int:
        return len(self._ends)
