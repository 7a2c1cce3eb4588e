"""The position of a reader of shards in an epoch, over interrupted and resumed passes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from forebay_torch import dist
from forebay_torch.cursor import Cursor
from forebay_torch.cursor_cells import MAX_RESUMES
from forebay_torch.dataset_pass import Pass
from forebay_torch.resume import make_state
from forebay_torch.shard_plan import (
    Item,
    Pass as StreamPass,
    after_first,
    deal,
    delivered_by,
    left_after,
    length,
)

__all__ = ["ShardPosition", "Shards"]

class Shards(NamedTuple):
    """The parameters of a reader that its position depends on.

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


class ShardPosition:
    """The passes of an epoch before the one under way; with a Cursor, the place in it.

    The samples of streams that a loader has delivered are no single number. But they follow from four
    numbers for each pass, see ``shard_plan``, and those are the state.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def begin(self, cursor: Cursor, made: Pass, shards: Shards) -> tuple[int, list[Item]]:
        """Begins a pass: how many samples this worker passes over first, and its shards."""
        cursor.begin(made)
        worker = dist.worker()
        items = self.items(made, shards)
        mine = deal(items, shards.rank, shards.world_size, worker.id, worker.total)
        if made.skip and shards.buffer < 2:
            return 0, after_first(mine, made.skip, shards.count)
        return made.skip, mine

    def items(self, made: Pass, shards: Shards) -> list[Item]:
        """Returns the items that all ranks together deliver in a pass."""
        return self._left(_passes(made.earlier), made.epoch, shards)

    def state(
        self, cursor: Cursor, num_samples: int | None, shards: Shards, fingerprint: str, total: int
    ) -> dict[str, Any]:
        """The state after ``num_samples`` of the latest pass were delivered by this rank."""
        place_now = cursor.position(num_samples)
        state = make_state(
            epoch=place_now.epoch,
            seed=cursor.seed,
            consumed=0,
            total=total,
            fingerprint=fingerprint,
        )
        del state["consumed"]
        passes = _passes(place_now.earlier)
        part = None if num_samples is not None else cursor.part(shards.world_size)
        if part is not None:
            return {**state, "passes": _plain(passes), "part": {**part, "rank": shards.rank}}
        taken = cursor.counted(num_samples)
        if taken:
            ranks = shards.world_size
            if place_now.is_split:
                # One order is dealt to the workers of each rank, which takes its part of it.
                made = StreamPass(1, place_now.workers or 1, place_now.block, taken * ranks)
            else:
                made = StreamPass(ranks, place_now.workers or 1, cursor.block, taken)
            passes = [*passes, made]
        return {**state, "passes": _plain(passes)}

    def load(
        self, cursor: Cursor, state: Mapping[str, Any], shards: Shards, total: int = 0
    ) -> None:
        """Resumes from a state with the next pass.

        Args:
            total: How many shards the state is of, where that is less than there are now.
        """
        if "passes" not in state:
            raise ValueError(f"{self._owner}: the state is not one of a ShardReader")
        epoch = state["epoch"]
        earlier = tuple(tuple(numbers) for numbers in state["passes"])
        resumed = int(bool(earlier))
        if "part" in state:
            cursor.resume_part(epoch, resumed, state["part"], shards.world_size, earlier, total)
            return
        if len(earlier) > MAX_RESUMES:
            raise ValueError(f"{self._owner}: an epoch can be gone on with {MAX_RESUMES} times")
        left = self._left(_passes(earlier), epoch, shards, state.get("checked"))
        over = bool(earlier) and not any(length(item, shards.count) for item in left)
        cursor.resume(epoch, resumed, over=over, earlier=earlier, total=total)

    def _left(
        self,
        passes: Sequence[StreamPass],
        epoch: int,
        shards: Shards,
        checked: Sequence[int] | None = None,
    ) -> list[Item]:
        """Returns the items of an epoch that these passes left.

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
        self, items: Sequence[Item], made: StreamPass, shards: Shards, rank: int, expected: int
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


def _passes(earlier: Iterable[Sequence[int]]) -> list[StreamPass]:
    return [StreamPass(*numbers) for numbers in earlier]


def _plain(passes: Sequence[StreamPass]) -> list[list[int]]:
    return [list(made) for made in passes]
