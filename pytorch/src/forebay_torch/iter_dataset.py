"""Iterable datasets: every object exactly once, over all workers and ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import get_worker_info

from forebay import Client, Listing, Object
from forebay_torch import order
from forebay_torch.config import Config
from forebay_torch.fetched import FetchedObject
from forebay_torch.map_dataset import SampleFormat, sources_of
from forebay_torch.source import ObjectIndex, PrefixMap, Sources, parts_of, snapshot

__all__ = ["BaseIterDataset", "IterableDataset", "IterDataset"]

# Objects are fetched this many at a time, or fewer when they are large.
_GROUP_OBJECTS = 64
_GROUP_BYTES = 8 << 20


class BaseIterDataset(TorchIterableDataset[Any], ABC):
    """Objects in an order, which a subclass turns into samples in ``__iter__``.

    The objects are listed once, when the dataset is made, and not again by any worker. In an epoch
    each is delivered exactly once: by one worker of one rank. Order: by name within a source, or
    shuffled by ``(seed, epoch)``; rank and worker take every n-th position of it. ``len()`` counts
    the objects of this rank. Objects are fetched in batches when the first of them is read.

    Args:
        ais_source_list: As for BaseMapDataset; ``sources`` is another name for it.
        prefix_map: As for BaseMapDataset.
        partition_sources_by_worker: Kept for compatibility: workers never list.
        shard_by_rank: Whether ranks of ``torch.distributed`` share the objects.
        rank: Which rank this is; by default asked of ``torch.distributed``.
        world_size: How many there are; goes with ``rank``.
        shuffle: Whether each epoch has an order of its own; see ``set_epoch``.
        seed: Of the shuffle.
        client: For sources given as URIs; by default one from the environment.

    Example:
        >>> class Lines(BaseIterDataset):
        ...     def __iter__(self):
        ...         self._reset_iterator()
        ...         worker_iter, worker_name = self._get_worker_iter_info()
        ...         for obj in worker_iter:
        ...             yield from obj.get().read_all().splitlines()
    """

    def __init__(
        self,
        ais_source_list: Sources | None = None,
        prefix_map: PrefixMap | None = None,
        partition_sources_by_worker: bool = False,
        *,
        sources: Sources | None = None,
        shard_by_rank: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        client: Client | None = None,
        config: Config | None = None,
    ) -> None:
        owner = type(self).__name__
        if ais_source_list is not None and sources is not None:
            raise TypeError(f"{owner} takes sources or ais_source_list, not both")
        if (rank is None) != (world_size is None):
            raise TypeError(f"{owner}: rank and world_size go together")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise ValueError(f"{owner}: rank {rank} is not one of {world_size}")
        self._config = config or Config()
        chosen = sources if ais_source_list is None else ais_source_list
        self._parts = parts_of(owner, chosen, prefix_map, client)
        self._index = self._snapshot()
        self._shard_by_rank = shard_by_rank
        self._rank = None if rank is None or world_size is None else (rank, world_size)
        self._shuffle = shuffle
        self._seed = seed
        # In shared memory, so that workers which live on over epochs see set_epoch() too.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._iterator: Iterator[Object] | None = None

    @property
    def objects(self) -> Listing:
        """``(name, size)`` of every object of the dataset, in name order within a source."""
        return self._index.listing

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next epoch, where the dataset is shuffled."""
        self._epoch.fill_(epoch)

    def reset(self) -> None:
        """Starts again at the first object of this worker."""
        self._iterator = None

    def refresh(self) -> None:
        """Lists the sources anew; call it in the training process, between epochs."""
        self._index = self._snapshot()
        self.reset()

    def _snapshot(self) -> ObjectIndex:
        return snapshot(self._parts, self._config.max_listing_retries)

    def worker_objects(self) -> Iterator[Object]:
        """The objects of this worker on this rank that have not been taken yet."""
        if self._iterator is None:
            self._iterator = self._objects()
        return self._iterator

    def _reset_iterator(self) -> None:
        self.reset()

    def _get_worker_iter_info(self) -> tuple[Iterator[Object], str]:
        info = get_worker_info()
        return self.worker_objects(), "" if info is None else f" (Worker {info.id})"

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """The samples of this worker."""

    def __len__(self) -> int:
        rank, world_size = self._rank_and_world()
        return len(range(rank, len(self._index.listing), world_size))

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker has no process group to ask.
        return {**self.__dict__, "_iterator": None, "_rank": self._rank or _group_rank()}

    def _rank_and_world(self) -> tuple[int, int]:
        if not self._shard_by_rank:
            return 0, 1
        return self._rank or _group_rank() or (0, 1)

    def _positions(self) -> Sequence[int]:
        """Rows of the listing that are this worker's, in the order of the epoch."""
        info = get_worker_info()
        return self._share(*((0, 1) if info is None else (info.id, info.num_workers)))

    def _share(self, worker: int, workers: int) -> Sequence[int]:
        """Rows of the listing that one of so many workers of this rank delivers."""
        total = len(self._index.listing)
        rank, world_size = self._rank_and_world()
        mine = order.share(
            total, rank=rank, world_size=world_size, worker=worker, workers=workers
        )
        if not self._shuffle:
            return mine
        shuffled = order.epoch_order(total, self._seed, int(self._epoch))
        rows: list[int] = shuffled[mine.start : mine.stop : mine.step].tolist()
        return rows

    def _objects(self) -> Iterator[Object]:
        index = self._index
        for rows in self._groups(self._positions()):
            if len(rows) == 1:
                yield index.object(rows[0])
                continue
            group = _Group(index, rows)
            for number, row in enumerate(rows):
                yield FetchedObject(index.object(row), group.content(number))

    def _groups(self, rows: Sequence[int]) -> Iterator[Sequence[int]]:
        """Rows to fetch together. Large objects stay alone: they are better streamed."""
        sizes = self._index.listing.sizes
        limit = min(_GROUP_BYTES, self._config.batch_bytes)
        start = 0
        while start < len(rows):
            end, total = start + 1, sizes[rows[start]]
            while (
                end < len(rows)
                and end - start < _GROUP_OBJECTS
                and total + sizes[rows[end]] <= limit
            ):
                total += sizes[rows[end]]
                end += 1
            yield rows[start:end]
            start = end


class IterableDataset(BaseIterDataset):
    """Samples that are whole objects, one after the other.

    A sample is ``(name, content)``; with ``bucket_name`` it is the content, and with
    ``data_format_fn`` what that makes of it. Order, ``len()`` and the split over ranks and workers
    are those of BaseIterDataset. ``IterDataset`` is the same class.

    Args:
        ais_source_list: As for BaseMapDataset.
        prefix_map: As for BaseMapDataset.
        project_name: Accepted for compatibility, unused.
        bucket_name: Name or URI of the bucket to read.
        config: Settings; its ``prefix`` selects objects of ``bucket_name``.
        data_format_fn: Called with each content in the worker; its result is the sample.
        storage_client: A ``forebay.Client``; by default one from the environment.
        return_name: As for MapDataset.
        zero_copy: As for MapDataset.
        options: ``shard_by_rank``, ``rank``, ``world_size``, ``shuffle`` and ``seed`` of
            BaseIterDataset.
    """

    def __init__(
        self,
        ais_source_list: Sources | None = None,
        prefix_map: PrefixMap | None = None,
        partition_sources_by_worker: bool = False,
        *,
        sources: Sources | None = None,
        project_name: str | None = None,
        bucket_name: str | None = None,
        config: Config | None = None,
        data_format_fn: Callable[[Any], Any] | None = None,
        storage_client: Client | None = None,
        return_name: bool | None = None,
        zero_copy: bool = False,
        **options: Any,
    ) -> None:
        chosen, prefixes = sources_of(
            type(self).__name__,
            (ais_source_list, sources),
            prefix_map,
            bucket_name,
            config,
            storage_client,
        )
        super().__init__(
            chosen,
            prefixes,
            partition_sources_by_worker,
            client=storage_client,
            config=config,
            **options,
        )
        self.project_name = project_name
        self._format = SampleFormat(
            data_format_fn,
            bucket_name is None and data_format_fn is None if return_name is None else return_name,
            zero_copy,
        )

    def __iter__(self) -> Iterator[Any]:
        self.reset()
        for item in self.worker_objects():
            yield self._format(item.name, item.get().memoryview())


IterDataset = IterableDataset


def _group_rank() -> tuple[int, int] | None:
    """Rank and size of the process group, where there is one."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return None


class _Group:
    """Objects that are fetched together, when the first of them is read."""

    __slots__ = ("_index", "_rows", "_contents")

    def __init__(self, index: ObjectIndex, rows: Sequence[int]) -> None:
        self._index = index
        self._rows = rows
        self._contents: list[memoryview] | None = None

    def content(self, number: int) -> Callable[[], memoryview]:
        """A function that returns the content of the n-th object."""

        def load() -> memoryview:
            if self._contents is None:
                self._contents = self._index.get_many(self._rows)
            return self._contents[number]

        return load
