"""Which samples of streamed shards are still to come. Pure: nothing here reads or sends anything.

Shards go whole to workers: item ``i`` of a pass is worker ``(i // world) % workers`` of rank
``i % world``'s. A rank's loader takes ``block`` samples of each worker in turn. So how many samples
each rank has delivered in a pass says which they were, once it is known how many each shard has; what
is left makes the items of the next pass, in the same order, for any other number of ranks and workers.
"""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from forebay_torch import order

__all__ = [
    "Item",
    "Pass",
    "after_first",
    "batches_of_ranks",
    "deal",
    "delivered_by",
    "equal_shares",
    "left_after",
    "length",
    "shuffled",
]

T = TypeVar("T")


class Item(NamedTuple):
    """A shard, or what is left of it.

    Attributes:
        row: Which shard.
        samples: Numbers of its samples that are to be delivered, ascending; None for all.
    """

    row: int
    samples: Sequence[int] | None = None


class Pass(NamedTuple):
    """A pass that was left.

    Attributes:
        world_size: Ranks.
        workers: Workers of each.
        block: Samples that a loader takes of a worker before it turns to the next.
        delivered: Samples that each rank delivered, or as many as it had.
    """

    world_size: int
    workers: int
    block: int
    delivered: int


def deal(
    items: Sequence[Item], rank: int, world_size: int, worker: int, workers: int
) -> list[Item]:
    """The items of one worker."""
    places = order.share(
        len(items), rank=rank, world_size=world_size, worker=worker, workers=workers
    )
    return [items[place] for place in places]


def delivered_by(lengths: Sequence[int], block: int, delivered: int) -> list[int]:
    """How many of ``delivered`` samples came from each worker, of which each has so many."""
    done = [0] * len(lengths)
    left = min(delivered, sum(lengths))
    # Whole rounds of all who have enough left, then turn by turn.
    while left:
        active = [number for number, length in enumerate(lengths) if done[number] < length]
        rounds = min((lengths[number] - done[number]) // block for number in active)
        rounds = min(rounds, left // (block * len(active)))
        for number in active:
            done[number] += rounds * block
        left -= rounds * block * len(active)
        for number in active:
            taken = min(block, lengths[number] - done[number], left)
            done[number] += taken
            left -= taken
    return done


def equal_shares(
    items: Sequence[Item],
    world_size: int,
    workers: int,
    block: int,
    count: Callable[[int], int],
    equal_length: str,
) -> list[list[int]]:
    """How many samples each worker of each rank delivers in a pass, so that all ranks make as many
    batches of ``block`` samples.

    Args:
        equal_length: ``drop``: ranks deliver whole batches alone, and no more of them than the rank
            that has the fewest; ``wrap``: a rank that has fewer batches than another delivers more
            by its worker that has the most samples, which begins again.
    """
    lengths = [
        [
            sum(length(item, count) for item in deal(items, rank, world_size, worker, workers))
            for worker in range(workers)
        ]
        for rank in range(world_size)
    ]
    if equal_length == "drop":
        whole = [[samples // block * block for samples in of_rank] for of_rank in lengths]
        least = min(map(sum, whole))
        return [delivered_by(of_rank, block, least) for of_rank in whole]
    batches = [[-(-samples // block) for samples in of_rank] for of_rank in lengths]
    most = max(map(sum, batches))
    for of_rank, own in zip(lengths, batches, strict=True):
        if short := most - sum(own):
            longest = max(range(workers), key=of_rank.__getitem__)
            of_rank[longest] = (own[longest] + short) * block
    return lengths


def batches_of_ranks(
    items: Sequence[Item],
    world_size: int,
    workers: int,
    batch: int,
    drop_last: bool,
    count: Callable[[int], int],
) -> list[int]:
    """How many batches each rank makes in a pass, of which each worker makes its own."""

    def batches(rank: int, worker: int) -> int:
        mine = deal(items, rank, world_size, worker, workers)
        samples = sum(length(item, count) for item in mine)
        return samples // batch if drop_last else -(-samples // batch)

    ranks = range(world_size)
    return [sum(batches(rank, worker) for worker in range(workers)) for rank in ranks]


def left_after(
    items: Sequence[Item],
    made: Pass,
    count: Callable[[int], int],
    buffer: int = 0,
    generator: Callable[[int, int], random.Random] | None = None,
) -> list[Item]:
    """The items that a pass left.

    Args:
        items: Those of the pass.
        made: The progress of the pass.
        count: How many samples a shard has.
        buffer: Samples that each worker shuffled; ``generator`` gives the numbers of rank and
            worker.
    """
    left: dict[int, Item | None] = {}
    for rank in range(made.world_size):
        parts = [
            deal(items, rank, made.world_size, worker, made.workers)
            for worker in range(made.workers)
        ]
        lengths = [sum(length(item, count) for item in part) for part in parts]
        done = delivered_by(lengths, made.block, made.delivered)
        for worker, (part, taken) in enumerate(zip(parts, done, strict=True)):
            if buffer < 2 or generator is None:
                left.update(_cut(part, taken, count))
            else:
                left.update(_draw(part, taken, count, buffer, generator(rank, worker)))
    remaining = []
    for item in items:
        kept = left.get(item.row, item)
        if kept is not None:
            remaining.append(kept)
    return remaining


def shuffled(samples: Iterator[T], size: int, generator: random.Random) -> Iterator[T]:
    """Each sample once, drawn from ``size`` that wait."""
    waiting: list[T] = []
    for sample in samples:
        if len(waiting) < size:
            waiting.append(sample)
            continue
        place = generator.randrange(size)
        drawn, waiting[place] = waiting[place], sample
        yield drawn
    generator.shuffle(waiting)
    yield from waiting


def after_first(
    part: Sequence[Item], taken: int, count: Callable[[int], int]
) -> list[Item]:
    """The items of a worker without its first so many samples."""
    left = dict(_cut(part, taken, count))
    kept = (left.get(item.row, item) for item in part)
    return [item for item in kept if item is not None]


def length(item: Item, count: Callable[[int], int]) -> int:
    """How many samples are to be delivered of an item."""
    return count(item.row) if item.samples is None else len(item.samples)


def _numbers(item: Item, count: Callable[[int], int]) -> Sequence[int]:
    return range(count(item.row)) if item.samples is None else item.samples


def _cut(
    part: Sequence[Item], taken: int, count: Callable[[int], int]
) -> Iterator[tuple[int, Item | None]]:
    """Yields each item that was touched and its rest, after ``taken`` samples in their order."""
    for item in part:
        if taken == 0:
            return
        numbers = _numbers(item, count)
        rest = numbers[taken:]
        taken -= min(taken, len(numbers))
        yield item.row, Item(item.row, rest) if len(rest) else None


def _draw(
    part: Sequence[Item],
    taken: int,
    count: Callable[[int], int],
    buffer: int,
    generator: random.Random,
) -> Iterator[tuple[int, Item | None]]:
    """As ``_cut``, when the samples went through a buffer."""
    touched: dict[int, set[int]] = {}
    pairs: Iterator[tuple[int, Any]] = (
        (item.row, number) for item in part for number in _numbers(item, count)
    )
    for row, number in itertools.islice(shuffled(pairs, buffer, generator), taken):
        touched.setdefault(row, set()).add(number)
    for item in part:
        gone = touched.get(item.row)
        if gone is not None:
            rest = array("q", (n for n in _numbers(item, count) if n not in gone))
            yield item.row, Item(item.row, rest) if rest else None
