"""Where a reader of shards is in an epoch, over the passes that it was left and gone on with."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from forebay_torch import place
from forebay_torch.resume import Cursor
from forebay_torch.shard_plan import (
    Item,
    Pass,
    after_first,
    deal,
    delivered_by,
    left_after,
    length,
)

__all__ = ["ShardPlace", "Shards"]

# How often one epoch may be left and gone on with.
_MOST_PASSES = 64


class Shards(NamedTuple):
    """What the place needs to know of a reader.

    Attributes:
        rank: Which rank this is, of ``world_size``.
        order: The rows of all shards in the order of an epoch.
        count: How many samples the shard in a row has.
        buffer: Samples that each worker shuffles.
        generator: The random numbers of rank, worker, number of the pass, epoch.
    """

    rank: int
    world_size: int
    order: Callable[[int], Sequence[int]]
    count: Callable[[int], int]
    buffer: int
    generator: Callable[[int, int, int, int], random.Random]


class ShardPlace:
    """The passes of an epoch before the one under way; with a Cursor, the place in it.

    What a loader has delivered of streams is no single number. But it follows from four for each pass,
    see ``shard_plan``, and those are the state.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # As loaded by the training process, in memory that worker processes share; the first row
        # says how many.
        self._table = torch.zeros((_MOST_PASSES + 1, 4), dtype=torch.int64)
        self._table.share_memory_()  # type: ignore[no-untyped-call]
        # As loaded by this worker alone; and as its pass began with.
        self._part: list[Pass] | None = None
        self._before: list[Pass] = []

    @property
    def stage(self) -> int:
        """How many passes of the epoch were before the one under way."""
        return len(self._before)

    def begin(self, cursor: Cursor, shards: Shards) -> tuple[int, list[Item]]:
        """Begins a pass: how many samples this worker passes over first, and its shards."""
        base, skip = cursor.take()
        if self._part is not None:
            self._before, self._part = self._part, None
        else:
            self._before = self._read() if base else []
        worker = place.worker()
        items = self._left(self._before, cursor.epoch, shards)
        mine = deal(items, shards.rank, shards.world_size, worker.id, worker.total)
        if skip and shards.buffer < 2:
            return 0, after_first(mine, skip, shards.count)
        return skip, mine

    def state(self, cursor: Cursor, num_samples: int | None, shards: Shards) -> dict[str, Any]:
        """What a state has beside epoch, seed and order."""
        part = None if num_samples is not None else cursor.part(shards.world_size)
        if part is not None:
            return {"passes": _plain(self._before), "part": {**part, "rank": shards.rank}}
        passes = self._read() if cursor.base else []
        taken = cursor.counted(num_samples)
        if taken:
            ranks = shards.world_size
            if cursor.is_split:
                # One order is dealt to the workers of each rank, which takes its part of it.
                made = Pass(1, cursor.workers, cursor.dealt_block, taken * ranks)
            else:
                made = Pass(ranks, cursor.workers, cursor.block, taken)
            passes = [*passes, made]
        return {"passes": _plain(passes)}

    def load(self, cursor: Cursor, state: Mapping[str, Any], shards: Shards) -> None:
        """Goes on from a state with the next pass."""
        if "passes" not in state:
            raise ValueError(f"{self._owner}: the state is not one of a ShardReader")
        epoch = state["epoch"]
        passes = [Pass(*numbers) for numbers in state["passes"]]
        resumed = int(bool(passes))
        if "part" in state:
            cursor.resume_part(epoch, resumed, state["part"], shards.world_size)
            self._part = passes
            return
        if len(passes) > _MOST_PASSES:
            raise ValueError(f"{self._owner}: an epoch can be gone on with {_MOST_PASSES} times")
        left = self._left(passes, epoch, shards, state.get("checked"))
        over = bool(passes) and not any(length(item, shards.count) for item in left)
        if passes:
            self._table[1 : len(passes) + 1] = torch.tensor(passes, dtype=torch.int64)
        self._table[0, 0] = len(passes)
        cursor.resume(epoch, resumed, over=over)

    def _left(
        self,
        passes: Sequence[Pass],
        epoch: int,
        shards: Shards,
        checked: Sequence[int] | None = None,
    ) -> list[Item]:
        """What these passes left of an epoch.

        Args:
            checked: A rank, and a sum over what its workers delivered in the last of them.
        """
        items = [Item(row) for row in shards.order(epoch)]
        for stage, made in enumerate(passes):
            if checked is not None and stage == len(passes) - 1:
                self._check(items, made, shards, *checked)

            def generator(rank: int, worker: int, stage: int = stage) -> random.Random:
                return shards.generator(rank, worker, stage, epoch)

            items = left_after(items, made, shards.count, shards.buffer, generator)
        return items

    def _check(
        self, items: Sequence[Item], made: Pass, shards: Shards, rank: int, expected: int
    ) -> None:
        lengths = [
            sum(
                length(item, shards.count)
                for item in deal(items, rank, made.world_size, worker, made.workers)
            )
            for worker in range(made.workers)
        ]
        done = delivered_by(lengths, made.block, made.delivered)
        if zlib.crc32(repr(done).encode()) != expected:
            raise ValueError(
                f"{self._owner}: the workers did not deliver in turns of {made.block} samples; give "
                "the reader the batch_size of the loader, and leave no sample out by on_error"
            )

    def _read(self) -> list[Pass]:
        count = int(self._table[0, 0])
        return [Pass(*numbers) for numbers in self._table[1 : count + 1].tolist()]


def _plain(passes: Sequence[Pass]) -> list[list[int]]:
    return [list(made) for made in passes]
