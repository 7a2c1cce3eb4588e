"""In which order samples come, and whose they are. Pure: nothing here reads or sends anything.

An epoch's order is one permutation of the whole dataset, the same in every process. Rank ``r`` of
``W`` takes positions ``r, r + W, ...`` of it, and worker ``k`` of ``K`` on that rank takes every
K-th of those. So every sample is somebody's exactly once, for any ``W`` and ``K``.
"""

from __future__ import annotations

import torch

__all__ = ["epoch_order", "share"]

_MASK = (1 << 64) - 1


def epoch_order(length: int, seed: int, epoch: int) -> torch.Tensor:
    """The permutation of ``range(length)`` for this seed and epoch, as int64."""
    generator = torch.Generator()
    generator.manual_seed(_mix(_mix(seed & _MASK) ^ (epoch & _MASK)) >> 1)
    return torch.randperm(length, generator=generator)


def share(length: int, *, rank: int, world_size: int, worker: int, workers: int) -> range:
    """The positions of the epoch's order that this worker of this rank delivers."""
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not one of {world_size}")
    if not 0 <= worker < workers:
        raise ValueError(f"worker {worker} is not one of {workers}")
    return range(rank + worker * world_size, length, world_size * workers)


def _mix(number: int) -> int:
    """Spreads neighbouring numbers over all 64 bits (the finaliser of SplitMix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)
