"""Which shards, and how many of their samples, each worker of each rank delivers."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal

from forebay import ForebayError
from forebay_torch import dist, frameworks, order
from forebay_torch.dataset_pass import Pass
from forebay_torch.shard_plan import Item, batches_of_ranks, deal, equal_shares
from forebay_torch.shard_position import ShardPosition, Shards
from forebay_torch.shard_streams import ShardStreams

__all__ = ["ShardShares", "Splitter"]

Splitter = Callable[[Iterable[str]], Iterable[str]]

# Indexes that are in memory at once while samples are counted.
_INDEXES_IN_MEMORY = 64


class ShardShares(ShardStreams):
    """The part of a ShardReader that decides which shards, and how many of their samples, each worker
    of each rank delivers in a pass."""

    _place: ShardPosition
    _counts: array[int]
    _shuffle_buffer: int
    _equal_length: Literal["none", "drop", "wrap"]
    _checks_steps: bool
    _is_in_step: bool | None
    _nodesplitter: Splitter | None
    _workersplitter: Splitter | None

    def _check_steps(self, made: Pass) -> None:
        """Refuses a pass in which a model would wait for ever for a rank that has fewer batches."""
        shards = self._shards()
        if not self._checks_steps or shards.world_size == 1 or dist.worker().id != 0:
            return
        if not (frameworks.trains_in_step() if self._is_in_step is None else self._is_in_step):
            return
        items = self._place.items(made, shards)
        rows = [item.row for item in items]
        self._count([row for row in rows if self._counts[row] < 0])
        size, drop_last = frameworks.requests_of_loader() or (made.block, False)
        batches = batches_of_ranks(
            items, shards.world_size, dist.worker().total, size, drop_last, self._count_of
        )
        if len(set(batches)) > 1:
            raise ValueError(
                f"{type(self).__name__}: the ranks would make {', '.join(map(str, batches))} batches, "
                "and the model that they train waits for all of them in every step. Pass "
                'equal_length="drop" or "wrap" to ShardReader; or "none" if ranks need not wait'
            )

    def _shares(self, items: Sequence[Item], workers: int | None = None) -> list[list[int]]:
        """How many samples each worker of each rank delivers in a whole pass."""
        world_size, workers = self._rank_and_world()[1], workers or dist.worker().total
        block = self._cursor.block
        return equal_shares(items, world_size, workers, block, self._count_of, self._equal_length)

    def _again(
        self, made: Pass, every: Sequence[Item], rank: int
    ) -> Iterator[tuple[str, Any]]:
        """The samples of this worker from the beginning again and again; all, where it has none."""
        world_size, worker = self._rank_and_world()[1], dist.worker()
        mine = deal(every, rank, world_size, worker.id, worker.total)
        if not any(self._count_of(item.row) for item in mine):
            mine = list(every)
        is_any = True
        while is_any:
            is_any = False
            for sample in self._samples(made, mine):
                is_any = True
                yield sample

    def _shards(self) -> Shards:
        rank, world_size = self._rank_and_world()
        every = range(len(self.objects))
        return Shards(
            rank,
            world_size,
            partial(self._rows, every),
            self._count_of,
            self._shuffle_buffer,
            self._generator_of,
        )

    def _count_of(self, row: int) -> int:
        if self._counts[row] < 0:
            self._count([row])
        return self._counts[row]

    def _rank_rows(self) -> Sequence[int]:
        """The shards of this rank in a whole epoch."""
        rank, world_size = self._rank_and_world()
        total = len(self._index.listing)
        return self._rows(
            order.share(total, rank=rank, world_size=world_size), self._cursor.epoch
        )

    @property
    def _has_splitters(self) -> bool:
        return self._nodesplitter is not None or self._workersplitter is not None

    def _split(self, made: Pass) -> list[Item]:
        """The shards of this worker of this rank, as the splitters say."""
        rank, world_size = self._rank_and_world()
        worker = dist.worker()
        rows = self._rows(range(len(self.objects)), made.epoch)
        by_uri = {self._index.object(row).uri: row for row in rows}
        uris: Iterable[str] = by_uri
        if self._nodesplitter is None:
            uris = islice(uris, rank, None, world_size)
        else:
            uris = self._nodesplitter(uris)
        if self._workersplitter is None:
            uris = islice(uris, worker.id, None, worker.total)
        else:
            uris = self._workersplitter(uris)
        return [Item(by_uri[uri]) for uri in uris]

    def _count(self, rows: list[int]) -> None:
        for start in range(0, len(rows), _INDEXES_IN_MEMORY):
            group = rows[start : start + _INDEXES_IN_MEMORY]
            for row, index in zip(group, self._index.shard_indexes(group), strict=True):
                if isinstance(index, ForebayError):
                    # A shard that cannot be indexed is damaged, and read only up to the damage.
                    self._failed(self._index.object(row).uri, index)
                    self._counts[row] = 0
                    continue
                samples = index.samples(self._keys, self._lowercase)
                raises = self._on_error == "raise" and self._handler is None
                left_out = 0 if raises else len(samples.problems)
                self._counts[row] = len(samples) - left_out

    def _generator(
        self,
        purpose: str,
        *,
        epoch: int,
        stage: int = 0,
        rank: int | None = None,
        worker: int | None = None,
    ) -> random.Random:
        """Random numbers of a worker of a rank, by default this one, in an epoch's n-th pass."""
        key = (
            purpose,
            self._seed,
            epoch,
            self._rank_and_world()[0] if rank is None else rank,
            dist.worker().id if worker is None else worker,
        )
        return random.Random(repr((*key, stage) if stage else key))

    def _generator_of(self, rank: int, worker: int, stage: int, epoch: int) -> random.Random:
        return self._generator("samples", epoch=epoch, stage=stage, rank=rank, worker=worker)

    def _endless(self, made: Pass) -> Iterator[int]:
        generator = self._generator("shards", epoch=made.epoch)
        while True:
            yield generator.randrange(len(self.objects))
