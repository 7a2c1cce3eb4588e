"""Batches by size: as many samples as fit in a number of bytes."""

from __future__ import annotations

import warnings
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from forebay import Listing
from forebay_torch import order

__all__ = ["DynamicBatchSampler"]


class DynamicBatchSampler(Sampler[list[int]]):
    """Batches of indices whose samples together have at most ``max_batch_size`` bytes.

    Samples are taken in order and a batch ends before the first that does not fit. ``len()`` is
    the number of batches of the epoch. The work is linear in the number of samples and looks at
    nothing but the sizes in the dataset's listing.

    Args:
        data_source: A dataset with ``objects``, such as every BaseMapDataset.
        max_batch_size: Most bytes in a batch; a batch that fits exactly is full.
        drop_last: Leave out the last batch unless it fills more than ``saturation_factor`` of
            ``max_batch_size``.
        allow_oversized_samples: Give a sample larger than ``max_batch_size`` a batch of its own,
            instead of leaving it out with a warning.
        saturation_factor: From 0 to 1; see ``drop_last``.
        shuffle: Take samples in an order of the epoch's own.
        seed: Of the shuffle. Every pass over the sampler is a new epoch; ``set_epoch`` chooses it.

    Example:
        Ten objects of 1 MB at ``max_batch_size=4_000_000`` make batches of 4, 4 and 2.
    """

    def __init__(
        self,
        data_source: Any,
        max_batch_size: float,
        drop_last: bool = False,
        allow_oversized_samples: bool = False,
        saturation_factor: float = 0.8,
        shuffle: bool = False,
        *,
        seed: int = 0,
    ) -> None:
        if not max_batch_size > 0:
            raise ValueError(f"max_batch_size must be positive, not {max_batch_size!r}")
        if not 0 <= saturation_factor <= 1:
            raise ValueError(
                f"saturation_factor must be between 0 and 1, not {saturation_factor!r}"
            )
        self._data_source = data_source
        self._limit = max_batch_size
        self._drop_last = drop_last
        self._allow_oversized = allow_oversized_samples
        self._saturation = saturation_factor
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 0
        self._begun = False
        self._count: tuple[int, int, int] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next pass."""
        self._epoch = epoch
        self._begun = False

    def __iter__(self) -> Iterator[list[int]]:
        if self._begun:
            self._epoch += 1
        self._begun = True
        return self._batches(warn=True)

    def __len__(self) -> int:
        """The number of batches of the epoch under way, or of the first."""
        key = (self._epoch if self._shuffle else 0, len(self._data_source.objects))
        if self._count is None or self._count[:2] != key:
            self._count = (*key, sum(1 for _ in self._batches(warn=False)))
        return self._count[2]

    def _batches(self, *, warn: bool) -> Iterator[list[int]]:
        sizes = _sizes(self._data_source)
        if self._shuffle:
            indices = order.epoch_order(len(sizes), self._seed, self._epoch)
            sizes = sizes[indices]
        else:
            indices = torch.arange(len(sizes))
        fits = sizes <= self._limit
        oversized = torch.nonzero(~fits).flatten()
        if warn and len(oversized) and not self._allow_oversized:
            self._warn(int(indices[oversized[0]]), len(oversized))
        if not len(oversized):
            yield from self._fill(indices, sizes)
        elif not self._allow_oversized:
            yield from self._fill(indices[fits], sizes[fits])
        else:
            # Batches as if the large ones were not there, each of which then goes before the
            # batch that was being filled when its turn came.
            alone = list(zip(oversized.tolist(), indices[oversized].tolist(), strict=True))
            alone.reverse()
            positions = torch.nonzero(fits).flatten().tolist()
            done = 0
            for batch in self._fill(indices[fits], sizes[fits]):
                done += len(batch)
                while alone and alone[-1][0] < positions[done - 1]:
                    yield [alone.pop()[1]]
                yield batch
            while alone:
                yield [alone.pop()[1]]

    def _fill(self, indices: torch.Tensor, sizes: torch.Tensor) -> Iterator[list[int]]:
        """Batches of samples none of which is too large."""
        count = len(sizes)
        if count == 0:
            return
        # Flat arrays: a Python int is made only of what is looked at.
        ends = array("q", bytes(8 * count))
        torch.cumsum(sizes, 0, out=torch.frombuffer(ends, dtype=torch.int64))
        taken = array("q", bytes(8 * count))
        torch.frombuffer(taken, dtype=torch.int64).copy_(indices)
        start, before = 0, 0
        while start < count:
            end = bisect_right(ends, before + self._limit, lo=start)
            filled = ends[end - 1] - before
            if end == count and self._drop_last and not filled / self._limit > self._saturation:
                return
            yield taken[start:end].tolist()
            start, before = end, ends[end - 1]

    def _warn(self, index: int, count: int) -> None:
        name, size = self._data_source.objects[index]
        others = f" and {count - 1} more" if count > 1 else ""
        warnings.warn(
            f"left out {name!r} ({size} bytes){others}: larger than max_batch_size "
            f"{self._limit}; allow_oversized_samples=True gives each a batch of its own",
            stacklevel=3,
        )


def _sizes(data_source: Any) -> torch.Tensor:
    """The sizes of all samples as int64."""
    objects = data_source.objects
    if not len(objects):
        return torch.empty(0, dtype=torch.int64)
    if isinstance(objects, Listing):
        return torch.frombuffer(objects.sizes, dtype=torch.int64)
    return torch.tensor([size for _, size in objects], dtype=torch.int64)
