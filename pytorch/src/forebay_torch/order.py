"""The order of samples, and the rank that each belongs to. Pure: nothing here reads or sends anything.

An epoch's order is one permutation of the whole dataset, the same in every process. The rest
of it from position ``start`` on is distributed: rank ``r`` of ``W`` takes ``start + r``,
``start + r + W``, …, and the workers of a rank take blocks of those in turn. So every sample is
somebody's exactly once for any ``W`` and any number of workers. A DataLoader takes a batch of each
worker in turn; with blocks as long as its batches, ranks that are equally far have delivered
the order's beginning, and one number is their progress.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import Any, Literal

import torch

from forebay import Listing

__all__ = [
    "EqualLength", "Fingerprint", "check_equal_length", "chosen", "count", "counts_of_workers",
    "epoch_order", "share",
]  # fmt: skip

EqualLength = Literal["none", "drop", "pad", "wrap"]

_MASK = (1 << 64) - 1


def epoch_order(length: int, seed: int, epoch: int) -> torch.Tensor:
    """The permutation of ``range(length)`` for this seed and epoch, as int64."""
    generator = torch.Generator()
    generator.manual_seed(_mix(_mix(seed & _MASK) ^ (epoch & _MASK)) >> 1)
    return torch.randperm(length, generator=generator)


def chosen(epoch: torch.Tensor, positions: Sequence[int]) -> torch.Tensor:
    """Returns the rows at these positions of an epoch's order, as int64."""
    if isinstance(positions, range):
        return epoch[positions.start : positions.stop : positions.step]
    return epoch[torch.tensor(positions, dtype=torch.int64)]


def count(
    length: int, *, rank: int, world_size: int, start: int = 0, equal_length: EqualLength = "none"
) -> int:
    """How many samples of the order, from ``start`` on, this rank delivers.

    Args:
        equal_length: ``none``: all samples once, some ranks have one more than others. ``drop``:
            the last few are left out. ``pad`` and ``wrap``: a few come twice, see ``share``.
    """
    left = max(0, length - start)
    if equal_length == "none":
        return len(range(rank, left, world_size))
    return left // world_size if equal_length == "drop" else -(-left // world_size)


def counts_of_workers(total: int, workers: int, block: int) -> list[int]:
    """How many of a rank's samples each of its workers delivers, ``block`` in a row."""
    turns, rest = divmod(total, block * workers)
    return [
        turns * block + min(max(rest - worker * block, 0), block) for worker in range(workers)
    ]


def share(
    length: int,
    *,
    rank: int,
    world_size: int,
    worker: int = 0,
    workers: int = 1,
    start: int = 0,
    block: int = 1,
    equal_length: EqualLength = "none",
) -> Sequence[int]:
    """The positions of the epoch's order that this worker of this rank delivers, in order.

    Args:
        start: Positions before this one have been delivered already.
        block: So many of a rank's positions go to one worker before the next has its turn.
        equal_length: As for ``count``. Ranks that would be one short repeat the order's beginning
            (``wrap``) or its last sample (``pad``).
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not one of {world_size}")
    if not 0 <= worker < workers:
        raise ValueError(f"worker {worker} is not one of {workers}")
    mine = count(
        length, rank=rank, world_size=world_size, start=start, equal_length=equal_length
    )
    first = start + rank
    if workers == 1 or block == 1:
        own = range(worker, mine, workers)
        dealt = range(first + worker * world_size, first + mine * world_size, world_size * workers)
        if not own or first + own[-1] * world_size < length:
            return dealt[: len(own)]
        turns: Sequence[int] = own
    else:
        step = block * workers
        turns = array("q")
        for begin in range(worker * block, mine, step):
            turns.extend(range(begin, min(begin + block, mine)))
    positions = array("q", (first + turn * world_size for turn in turns))
    # Only the last turn of a rank can lie behind the end.
    if positions and positions[-1] >= length:
        positions[-1] = length - 1 if equal_length == "pad" else positions[-1] % length
    return positions


class Fingerprint:
    """Digest of the samples of a dataset and of their order: 16 hex digits, the same for equal datasets.

    It reads every name, so it caches the digest of the latest listing.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: tuple[Any, tuple[object, ...], str] | None = None

    def of(self, objects: Any, *settings: object) -> str:
        """The digits for these objects, a Listing or anything with ``len()``, read with these
        settings."""
        if self._seen is None or self._seen[0] is not objects or self._seen[1] != settings:
            digest = hashlib.blake2b(repr((len(objects), settings)).encode(), digest_size=8)
            if isinstance(objects, Listing):
                for part in objects.buffers():
                    digest.update(part)
                digest.update(memoryview(objects.sizes))
            self._seen = (objects, settings, digest.hexdigest())
        return self._seen[2]

    def __reduce__(self) -> tuple[Any, ...]:
        return Fingerprint, ()


def check_equal_length(owner: str, value: str) -> None:
    """Refuses a value that is not an ``EqualLength``."""
    if value not in ("none", "drop", "pad", "wrap"):
        raise ValueError(
            f'{owner}: equal_length is "none", "drop", "pad" or "wrap", not {value!r}'
        )


def _mix(number: int) -> int:
    """Spreads neighbouring numbers over all 64 bits (the finaliser of SplitMix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)
