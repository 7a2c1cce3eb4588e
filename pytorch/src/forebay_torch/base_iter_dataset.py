"""The base class of iterable datasets: every object exactly once, over all workers and ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

from torch.utils.data import IterableDataset as TorchIterableDataset

from forebay import Client, Listing, Object
from forebay_torch import dist, order
from forebay_torch.aio import AsyncSamples
from forebay_torch.cluster_prefetch import prefetch_from_cloud
from forebay_torch.config import Config
from forebay_torch.cursor import Cursor
from forebay_torch.custom_iter import CustomIteration
from forebay_torch.dataset_pass import Pass
from forebay_torch.groups import Group, fitting, pairs
from forebay_torch.object_index import ObjectIndex
from forebay_torch.order import EqualLength
from forebay_torch.prefetched_object import PrefetchedObject
from forebay_torch.resumable import Resumable
from forebay_torch.saved_listing import rows_at_save
from forebay_torch.source import PrefixMap, Sources, check_kind, check_reading, parts_of, snapshot

__all__ = ["BaseIterDataset", "GROUP_BYTES", "GROUP_OBJECTS"]

# Objects are fetched this many at a time, or fewer when they are large: a request costs as much as
# about 50 small objects do.
GROUP_OBJECTS = 512
# Groups of at most so many bytes are prefetched while the group before is read: two are in memory,
GROUP_BYTES = 4 << 20
# each of a tenth of a batch where batches are large: the prefetched bytes are then few beside it, and
# half as many at the beginning of a batch.
_GROUP_BATCH_DIVISOR = 10
_LARGE_BATCH_MIN_BYTES = 8 << 20


class BaseIterDataset(CustomIteration, Resumable, AsyncSamples, TorchIterableDataset[Any], ABC):
    """Objects in an order, which a subclass turns into samples in ``__iter__``.

    The objects are listed once, when the dataset is made, and not again by any worker. In an epoch
    each is delivered exactly once: by one worker of one rank. Order: by name within a source, or
    shuffled by ``(seed, epoch)``; rank and worker take every n-th position of it. ``len()`` counts
    the objects of this rank. Objects are fetched in batches when the first of them is read; of large
    ones that are read by ``read_all``, up to 32 MiB each, the next comes while one is used.

    Args:
        ais_source_list: As for BaseMapDataset; ``sources`` is another name for it.
        prefix_map: As for BaseMapDataset.
        partition_sources_by_worker: Kept for compatibility: workers never list.
        shard_by_rank: Whether ranks of ``torch.distributed`` share the objects.
        rank: Which rank this is; by default asked of ``torch.distributed``.
        world_size: How many there are; goes with ``rank``.
        shuffle: Whether each epoch has an order of its own; see ``set_epoch``.
        seed: Of the shuffle.
        equal_length: How ranks become equally long: ``none`` (they differ by one at most), ``drop``
            (the last few are left out), ``wrap`` or ``pad`` (ranks that are one short repeat the
            first few of the order, or the last one).
        batch_size: Of the DataLoader: with it, workers deliver batches in the epoch's order.
        client: For sources given as URIs; by default one from the environment.
        etl_name: As for BaseMapDataset, with ``snapshot``.
        warm_ahead: Number of its next objects that each worker names to the cluster, which fetches
            those that are cold before they are due; see ``prefetch_order``.
        replication: So many ranks in a row read the same, as parts of one model do.
        allow_empty: Whether a source or prefix may match no object.

    Raises:
        ValueError: There is no source, a source or prefix matches nothing, or arguments contradict
            each other.
        TypeError: An argument stands in the place of another.
        NotFound: There is no such bucket or transform; the message names it.

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
        equal_length: EqualLength = "none",
        batch_size: int = 1,
        client: Client | None = None,
        config: Config | None = None,
        etl_name: str | None = None,
        snapshot: bool = False,
        warm_ahead: int = 0,
        replication: int = 1,
        allow_empty: bool = False,
    ) -> None:
        owner = type(self).__name__
        check_kind(owner, "partition_sources_by_worker", partition_sources_by_worker, bool)
        if ais_source_list is not None and sources is not None:
            raise TypeError(f"{owner} takes sources or ais_source_list, not both")
        check_reading(owner, etl_name, snapshot)
        if warm_ahead < 0:
            raise ValueError(f"{owner}: warm_ahead must not be negative: {warm_ahead}")
        self._etl_name = etl_name or ""
        self._pinned = snapshot
        self._allow_empty = allow_empty
        self._warm_ahead = warm_ahead
        self._replication = dist.checked_replication(owner, replication)
        self._rank = dist.checked_rank(owner, rank, world_size)
        self._cursor = Cursor(owner, seed, batch_size, equal_length)
        self._prints = order.Fingerprint()
        self._config = config or Config()
        chosen = sources if ais_source_list is None else ais_source_list
        self._parts = parts_of(owner, chosen, prefix_map, client)
        self._index = self._snapshot()
        # The attributes of what was listed when the loaded state was saved, where that is less.
        self._listed: dict[str, Any] | None = None
        self._shard_by_rank = shard_by_rank
        self._shuffle = shuffle
        self._seed = seed
        self._iterator: Iterator[Object] | None = None

    @property
    def objects(self) -> Listing:
        """``(name, size)`` of every object of the dataset, in name order within a source."""
        return self._index.listing

    def reset(self) -> None:
        """Starts again at the first object of this worker."""
        self._iterator = None

    def refresh(self) -> None:
        """Lists the sources anew; call it in the training process, between epochs."""
        self._index, self._listed = self._snapshot(), None
        self.reset()

    def _snapshot(self) -> ObjectIndex:
        retries = self._config.max_listing_retries
        return snapshot(self._parts, retries, owner=type(self).__name__, **self._reading())

    def _reading(self) -> dict[str, Any]:
        """How the objects are listed and read."""
        return {
            "config": self._config,
            "pinned": self._pinned,
            "etl_name": self._etl_name,
            "allow_empty": self._allow_empty,
        }

    def worker_objects(self) -> Iterator[Object]:
        """The objects of this worker on this rank that have not been taken yet."""
        if self._iterator is None:
            self._iterator = self._objects(self._cursor.open())
        return self._iterator

    def _reset_iterator(self) -> None:
        self.reset()

    def _get_worker_iter_info(self) -> tuple[Iterator[Object], str]:
        return self.worker_objects(), self._worker_name()

    def _worker_name(self) -> str:
        """The name of this worker in a line of progress."""
        worker = dist.worker()
        return "" if worker.tag == -1 else f" (Worker {worker.id})"

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """The samples of this worker."""

    def __len__(self) -> int:
        return self._cursor.length(len(self._index.listing), self._rank_and_world())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_iterator": None}

    def _rank_and_world(self) -> tuple[int, int]:
        if not self._shard_by_rank:
            return 0, 1
        owner = type(self).__name__
        return dist.replicated(owner, dist.ranks(owner, self._rank), self._replication)

    def _view_then(self, state: Mapping[str, Any], data: str) -> Self:
        """The dataset over what it had when a state was saved: itself, or a copy."""
        order_then = state.get("order") if isinstance(state, Mapping) else None
        if order_then is None or self._fingerprint() == order_then:
            return self
        if self._listed is not None:
            view = self._over(self._listed)
            if view._fingerprint() == order_then:
                return view
        if data == "same":
            return self

        found: list[Self] = []

        def is_listing(rows: Sequence[int]) -> bool:
            found[:] = [self._over(self._following_from(self._index.chosen(rows)))]
            return bool(found[0]._fingerprint() == order_then)

        rows_at_save(type(self).__name__, self, state["total"], is_listing)
        return found[0]

    def _view(self, total: int) -> Self:
        """The dataset over as many objects as a pass is of; 0 for all."""
        if total in (0, len(self._index.listing)):
            return self
        if self._listed is None or len(self._listed["_index"].listing) != total:
            raise RuntimeError(
                f"{type(self).__name__}: this worker does not have the listing of the state that was "
                'loaded; make the loader anew after load_state_dict(state, data="listed")'
            )
        return self._over(self._listed)

    def _following_from(self, index: ObjectIndex) -> dict[str, Any]:
        """The attributes that follow from what is listed."""
        return {"_index": index, "_prints": order.Fingerprint()}

    def _over(self, parts: dict[str, Any]) -> Self:
        """A copy that reads other objects, and has the same place."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, _listed=None, **parts)
        return twin

    def _keep(self, view: Self) -> int:
        """Keeps what a view lists; returns how many objects that are, 0 for all."""
        if view is self:
            return 0
        self._listed = {name: getattr(view, name) for name in view._following_from(view._index)}
        return len(view._index.listing)

    def _begin(self, made: Pass) -> Sequence[int]:
        """Begins a pass: the rows of the listing that are this worker's, in their order."""
        total = len(self._index.listing)
        positions = self._cursor.share(made, total, self._rank_and_world())
        return self._rows(positions, made.epoch)

    def _rows(self, positions: Sequence[int], epoch: int) -> Sequence[int]:
        """Rows of the listing at these positions of an epoch's order."""
        if not self._shuffle:
            return positions
        shuffled = order.epoch_order(len(self._index.listing), self._seed, epoch)
        rows: list[int] = order.chosen(shuffled, positions).tolist()
        return rows

    def _fingerprint(self) -> str:
        return self._prints.of(self._index.listing, self._shuffle)

    def _objects(self, made: Pass) -> Iterator[Object]:
        index = self._index
        for group, after in pairs(map(partial(Group, index), self._due_groups(made))):
            rows, group.after = group.rows, after
            if len(rows) == 1:
                made.deliver()
                yield group.alone()
                continue
            for number, row in enumerate(rows):
                made.deliver()
                yield PrefetchedObject(index.object(row), group.content(number))

    def _due_groups(self, made: Pass) -> Iterator[Sequence[int]]:
        """The rows of a pass that are this worker's, by those that are fetched together."""
        mine = self._begin(made)
        with prefetch_from_cloud(self._index, mine, self._warm_ahead) as prefetcher:
            position = 0
            for rows in self._groups(mine):
                position += len(rows)
                prefetcher.reached(position)
                yield rows

    def _groups(self, rows: Sequence[int]) -> Iterator[Sequence[int]]:
        """Rows to fetch together. Large objects stay alone: they are better streamed."""
        start = 0
        while start < len(rows):
            group = rows[start : start + GROUP_OBJECTS]
            count = self._together(self._sizes_at(group), start)
            yield group[:count]
            start += count

    def _together(self, sizes: Sequence[int], start: int) -> int:
        """How many objects of these sizes are fetched together at this place of a pass."""
        block = self._cursor.block
        batch = sum(sizes) * block // len(sizes)
        is_large = batch >= _LARGE_BATCH_MIN_BYTES
        most = min(GROUP_BYTES, batch // _GROUP_BATCH_DIVISOR) if is_large else GROUP_BYTES
        count = fitting(sizes, min(most, self._config.batch_bytes))
        if not is_large or not 1 < count < block:
            return count
        at = start % block
        # One alone would not come ahead.
        return min(count if at else max(2, count // 2), block - at)

    def _sizes_at(self, rows: Sequence[int]) -> Sequence[int]:
        """The sizes of the objects in these rows."""
        sizes = self._index.listing.sizes
        if isinstance(rows, range) and rows.step > 0:
            return sizes[rows.start : rows.stop : rows.step]
        return [sizes[row] for row in rows]
