"""Parts of a tensor that is saved: the rows that are asked for are read, and no others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeAlias

import torch

__all__ = ["Span", "TensorSlice"]

Span: TypeAlias = tuple[int, int]


class TensorSlice:
    """A saved tensor of which an index reads what it needs: ``part[5]``, ``part[10:20]``,
    ``part[::4, :3]``, ``part[[7, 2]]``.

    The first index chooses rows, of which each is read once; further ones cut what was read. Indices
    are those of torch; where the first is neither a number, a slice nor a list of numbers, all is read.

    Attributes:
        shape: Of the whole tensor.
        dtype: Of its elements.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        shape: tuple[int, ...],
        start: int,
        read: Callable[[Sequence[Span]], list[torch.Tensor]],
    ) -> None:
        """``read`` gives the bytes of spans of the file, in which the tensor begins at ``start``."""
        self.dtype = dtype
        self.shape = shape
        self._start = start
        self._read = read

    def get_shape(self) -> list[int]:
        """The shape, as the package safetensors calls it."""
        return list(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __getitem__(self, index: Any) -> torch.Tensor:
        """The part, as torch gives it of the whole tensor.

        Raises:
            IndexError: There is no such row.
            forebay.ForebayError: It cannot be read.
        """
        first, *rest = index if isinstance(index, tuple) else (index,)
        if not self.shape:
            return self._rows(range(1)).reshape(())[index]
        if isinstance(first, slice):
            begin, end, step = first.indices(self.shape[0])
            if step < 1:
                raise ValueError("step must be greater than zero")
            rows = self._rows(range(begin, end, step))
            return rows[:, *rest] if rest else rows
        if _is_number(first):
            row = self._rows([self._row(first)])[0]
            return row[tuple(rest)] if rest else row
        if isinstance(first, list) and all(_is_number(number) for number in first) and not rest:
            return self._rows([self._row(number) for number in first])
        return self._rows(range(self.shape[0]))[index]

    def _row(self, number: SupportsIndex) -> int:
        at = number.__index__()
        if not -self.shape[0] <= at < self.shape[0]:
            raise IndexError(f"row {at} is out of bounds for a tensor of {self.shape[0]} rows")
        return at % self.shape[0]

    def _rows(self, numbers: Sequence[int]) -> torch.Tensor:
        """Rows, stacked in this order; those that follow each other are one span."""
        shape = (len(numbers), *self.shape[1:])
        width = math.prod(self.shape[1:]) * self.dtype.itemsize
        if width == 0 or not numbers:
            return torch.empty(shape, dtype=self.dtype)
        spans: list[list[int]] = []
        for number in numbers:
            start = self._start + number * width
            if spans and spans[-1][1] == start:
                spans[-1][1] += width
            else:
                spans.append([start, start + width])
        parts = self._read([(start, end) for start, end in spans])
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        if flat.data_ptr() % self.dtype.itemsize:
            flat = flat.clone()
        return flat.view(self.dtype).reshape(shape)


def _is_number(index: Any) -> bool:
    return isinstance(index, SupportsIndex) and not isinstance(index, bool | torch.Tensor)
