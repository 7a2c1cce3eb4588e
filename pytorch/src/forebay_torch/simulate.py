"""Computes the steps, samples and bytes of each rank before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from forebay_torch import order
from forebay_torch.order import EqualLength

__all__ = ["Simulation", "simulate"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """The figures of one epoch.

    Attributes:
        steps: Batches of each rank.
        samples_per_rank: Samples that each rank reads.
        bytes_per_rank: Bytes that each rank reads.
        repeated: Samples that are read a second time to make ranks equally long.
        left_out: Samples that nobody reads, for the same reason.
        largest_batch_bytes: Bytes of the largest batch of any rank.
        shuffle_quality: How far samples that were neighbours in the listing are apart, against the
            distance by pure chance: 0 for the order of names, about 1 for a full shuffle.
    """

    steps: list[int]
    samples_per_rank: list[int]
    bytes_per_rank: list[int]
    repeated: int
    left_out: int
    largest_batch_bytes: int
    shuffle_quality: float


def simulate(
    dataset: Any,
    *,
    batch_size: int,
    world_size: int = 1,
    shuffle: bool = True,
    seed: int = 0,
    epoch: int = 0,
    equal_length: EqualLength = "wrap",
) -> Simulation:
    """Computes what ranks would read in an epoch, from the listing of a dataset alone.

    Args:
        dataset: Anything with ``objects``, the ``(name, bytes)`` of its samples.
        batch_size: Samples in a batch of a rank.
        world_size: Ranks.
        shuffle: As for DistributedShardSampler, with ``seed``, ``epoch`` and ``equal_length``.

    Raises:
        ValueError: A number makes no sense.

    Example:
        >>> simulate(dataset, batch_size=64, world_size=4).steps
        [7, 7, 7, 7]
    """
    order.check_equal_length("simulate", equal_length)
    if batch_size < 1 or world_size < 1:
        raise ValueError(f"batch_size={batch_size} and world_size={world_size} must be at least 1")
    total = len(dataset.objects)
    sizes = torch.tensor([size for _, size in dataset.objects], dtype=torch.int64)
    rows = order.epoch_order(total, seed, epoch) if shuffle else torch.arange(total)
    samples, counts, largest = [], [], 0
    taken = torch.zeros(total, dtype=torch.int64)
    for rank in range(world_size):
        mine = order.share(total, rank=rank, world_size=world_size, equal_length=equal_length)
        chosen = order.chosen(rows, mine)
        taken += torch.bincount(chosen, minlength=total)
        bytes_of = sizes[chosen]
        samples.append(len(chosen))
        counts.append(int(bytes_of.sum()))
        batches = [int(batch.sum()) for batch in torch.split(bytes_of, batch_size)]
        largest = max([largest, *batches])
    return Simulation(
        steps=[-(-count // batch_size) for count in samples],
        samples_per_rank=samples,
        bytes_per_rank=counts,
        repeated=int((taken - 1).clamp(min=0).sum()),
        left_out=int((taken == 0).sum()),
        largest_batch_bytes=largest,
        shuffle_quality=_quality(rows),
    )


def _quality(rows: torch.Tensor) -> float:
    total = len(rows)
    if total < 3:
        return 0.0
    apart = (rows[1:] - rows[:-1]).abs().double().mean().item() - 1
    # Two places drawn by chance are a third of the whole apart.
    return max(0.0, apart / ((total + 1) / 3 - 1))
