"""Iterable datasets: every object exactly once, over all workers and ranks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from torch.utils.data import IterableDataset as TorchIterableDataset

from forebay import Client, ForebayError, Listing, Object
from forebay_torch import order, frameworks, dist
from forebay_torch.aio import AsyncSamples
from forebay_torch.config import Config
from forebay_torch.cursor import Cursor, Pass, Resumable
from forebay_torch.prefetched_object import PrefetchedObject
from forebay_torch.groups import Group, fitting, pairs
from forebay_torch.saved_listing import check_data, rows_at_save
from forebay_torch.map_dataset import SampleFormat, sources_of
from forebay_torch.order import EqualLength
from forebay_torch.custom_iter import CustomIteration
from forebay_torch.policy import LEFT_OUT, Counters, DatasetStats, OnError, Policy
from forebay_torch.progress import Progress
from forebay_torch.cluster_prefetch import prefetch_from_cloud
from forebay_torch.source import (
    Answer,
    ObjectIndex,
    PrefixMap,
    Sources,
    check_kind,
    check_reading,
    parts_of,
    snapshot,
)

if TYPE_CHECKING:
    from forebay_torch.compat.s3 import S3IterableDataset

__all__ = ["BaseIterDataset", "IterableDataset", "IterDataset"]

# Objects are fetched this many at a time, or fewer when they are large: a request costs as much as
# about 50 small objects do.
_GROUP_OBJECTS = 512
# Of what is small enough to be fetched while the group before it is read, two are in memory, each of
# so many bytes,
_GROUP_BYTES = 4 << 20
# or of this part of a batch, where that is large: what comes ahead is then little beside it, and half
# as much while a batch is whole;
_BATCH_PART = 10
_LARGE_BATCH = 8 << 20
# of small objects, so many more than one: what takes long is each request.
_GROUPS_AHEAD = 3


class _Coming(NamedTuple):
    """A group of objects whose turn comes, and how many bytes it has; ``take`` waits for their
    contents, if they are on their way already."""

    rows: Sequence[int]
    names: list[str]
    size: int
    take: Callable[[], Sequence[Answer]] | None = None


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
        equal_length: What makes ranks equally long: ``none`` (they differ by one at most), ``drop``
            (the last few are left out), ``wrap`` or ``pad`` (ranks that are one short repeat the
            first few of the order, or the last one).
        batch_size: Of the DataLoader: with it, workers deliver batches in the epoch's order.
        client: For sources given as URIs; by default one from the environment.
        etl_name: As for BaseMapDataset, with ``snapshot``.
        warm_ahead: So many of its next objects each worker tells the cluster, which fetches those
            that are cold before they are due; see ``prefetch_order``.
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
        """How a line of progress tells this worker from others."""
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
        with prefetch_from_cloud(self._index, mine, self._warm_ahead) as warmer:
            begun = 0
            for rows in self._groups(mine):
                begun += len(rows)
                warmer.reached(begun)
                yield rows

    def _groups(self, rows: Sequence[int]) -> Iterator[Sequence[int]]:
        """Rows to fetch together. Large objects stay alone: they are better streamed."""
        start = 0
        while start < len(rows):
            group = rows[start : start + _GROUP_OBJECTS]
            count = self._together(self._sizes_at(group), start)
            yield group[:count]
            start += count

    def _together(self, sizes: Sequence[int], start: int) -> int:
        """How many objects of these sizes are fetched together at this place of a pass."""
        block = self._cursor.block
        batch = sum(sizes) * block // len(sizes)
        is_large = batch >= _LARGE_BATCH
        most = min(_GROUP_BYTES, batch // _BATCH_PART) if is_large else _GROUP_BYTES
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


class IterableDataset(BaseIterDataset):
    """Samples that are whole objects, one after the other.

    A sample is ``(name, content)``; with ``bucket_name`` it is the content, and with
    ``data_format_fn`` what that makes of it. Order, ``len()`` and the split over ranks and workers
    are those of BaseIterDataset. ``IterDataset`` is the same class.

    Args:
        ais_source_list: As for BaseMapDataset.
        prefix_map: As for BaseMapDataset.
        etl_name: As for BaseMapDataset.
        project_name: As for MapDataset.
        bucket_name: Name or URI of the bucket to read.
        config: Settings; its ``prefix`` selects objects of ``bucket_name``.
        data_format_fn: Called with each content in the worker; its result is the sample.
        storage_client: A ``forebay.Client``; by default one from the environment.
        return_name: As for MapDataset.
        zero_copy: As for MapDataset.
        on_error: What to do about an object that cannot be had, or that ``data_format_fn`` fails
            on: ``raise``; ``skip`` it with a warning; or a function of its name and the exception,
            whose result takes the sample's place. That the cluster does not answer, or refuses,
            is never skipped. ``retry:N`` reads it up to N times more, then raises.
        show_progress: Show on a terminal's stderr how many samples were read.
        options: ``shard_by_rank``, ``rank``, ``world_size``, ``replication``, ``shuffle``,
            ``seed``, ``equal_length``, ``batch_size``, ``snapshot``, ``warm_ahead`` and
            ``allow_empty`` of BaseIterDataset.

    Example:
        >>> dataset = IterableDataset(bucket, shuffle=True, batch_size=32)
        >>> for step, batch in enumerate(DataLoader(dataset, batch_size=32, num_workers=4), 1):
        ...     state = dataset.state_dict(num_samples=32 * step)
    """

    def __init__(
        self,
        ais_source_list: Sources | None = None,
        prefix_map: PrefixMap | None = None,
        partition_sources_by_worker: bool = False,
        *,
        sources: Sources | None = None,
        etl_name: str | None = None,
        project_name: str | None = None,
        bucket_name: str | None = None,
        config: Config | None = None,
        data_format_fn: Callable[[Any], Any] | None = None,
        storage_client: Client | None = None,
        return_name: bool | None = None,
        zero_copy: bool = False,
        on_error: OnError = "raise",
        show_progress: bool = False,
        **options: Any,
    ) -> None:
        chosen, prefixes = sources_of(
            type(self).__name__,
            (ais_source_list, sources),
            prefix_map,
            bucket_name,
            config,
            storage_client,
            project_name,
        )
        super().__init__(
            chosen,
            prefixes,
            partition_sources_by_worker,
            client=storage_client,
            config=config,
            etl_name=etl_name,
            **options,
        )
        self.project_name = project_name
        self._as_bytes = not zero_copy
        self._format = SampleFormat(
            data_format_fn,
            bucket_name is None and data_format_fn is None if return_name is None else return_name,
            zero_copy,
        )

        self._show_progress = show_progress
        self._counters = Counters()
        owner = type(self).__name__
        self._policy = Policy(owner, on_error, ("raise", "skip"), self._counters)

    @classmethod
    def from_prefix(cls, uri: str, **options: Any) -> S3IterableDataset:
        """All objects whose URIs begin so; see ``MapDataset.from_prefix``."""
        from forebay_torch.compat.s3 import S3IterableDataset

        return S3IterableDataset.from_prefix(uri, **options)

    @classmethod
    def from_objects(cls, uris: str | Iterable[str], **options: Any) -> S3IterableDataset:
        """These objects, in this order; else as ``from_prefix``."""
        from forebay_torch.compat.s3 import S3IterableDataset

        return S3IterableDataset.from_objects(uris, **options)

    def __iter__(self) -> Iterator[Any]:
        self.reset()
        return self._shown(self._cursor.open())

    def _shown(self, made: Pass) -> Iterator[Any]:
        with Progress(self._show_progress, self._worker_name()) as progress:
            progress.begin(type(self).__name__)
            self._cursor.begin(made)
            view = self._view(made.total)
            samples = frameworks.checked(type(self).__name__, view._samples(made))
            yield from progress.counted(samples)

    def _samples(self, made: Pass) -> Iterator[Any]:
        deliver = made.deliver
        for rows, names, answers in self._fetched(made):
            if self._are_samples(answers):
                for sample in zip(names, _drained(answers), strict=True):
                    deliver()
                    yield sample
                continue
            drained = _drained(answers)
            for row, name in zip(rows, names, strict=True):
                # Nothing here holds on to a content that was handed out, while the next one comes.
                answer = next(drained)
                deliver()
                try:
                    if isinstance(answer, ForebayError):
                        raise answer
                    sample = self._format(name, answer)
                except Exception as error:
                    again = partial(self._again, row)
                    sample = self._policy.instead(name, error, again=again)
                del answer
                if sample is not LEFT_OUT:
                    yield sample
                del sample

    def _are_samples(self, answers: Iterable[Answer]) -> bool:
        """Whether these are contents as ``bytes`` that only lack their names."""
        is_plain = self._format.is_plain and isinstance(answers, list) and len(answers) > 1
        return is_plain and set(map(type, answers)) == {bytes}

    def _again(self, row: int) -> Any:
        """The sample at ``row``, read once more."""
        return self._format(self._index.listing.name(row), self._index.get_many([row])[0])

    def state_dict(self, num_samples: int | None = None) -> dict[str, Any]:
        """How far the pass under way is, as a few numbers that any shape of job goes on from.

        Args:
            num_samples: How many samples of this rank the training loop has taken in this pass.
                Needed with a plain DataLoader with workers, which read ahead; a
                StatefulDataLoader asks its workers itself (see ``resume_state``).
        """
        view = self._view(self._cursor.position(num_samples).total)
        total, world_size = len(view._index.listing), self._rank_and_world()[1]
        return self._cursor.state(num_samples, total, world_size, view._fingerprint())

    def load_state_dict(
        self, state: Mapping[str, Any], *, data: Literal["same", "listed"] = "same"
    ) -> None:
        """Makes the next pass go on where the state says; the one after it is whole again.

        Any number of ranks and workers may go on. Each rank loads the same state: that of rank 0.

        Args:
            data: As for DistributedShardSampler: ``"listed"`` goes on with what was listed when the
                state was saved, though objects came since.

        Raises:
            ValueError: The state is of other data, of another order or of another seed.
        """
        check_data(type(self).__name__, data)
        view = self._view_then(state, data)
        total, world_size = len(view._index.listing), self._rank_and_world()[1]
        listed = 0 if view is self else total
        self._cursor.load(state, total, world_size, view._fingerprint(), listed=listed)
        self._keep(view)

    def stats(self) -> DatasetStats:
        """What was read so far, over this process and all its workers."""
        return self._counters.total()

    def _fetched(self, made: Pass) -> Iterator[tuple[Sequence[int], list[str], Iterable[Answer]]]:
        """The rows of a pass, their names, and their contents or why they cannot be had."""
        due = self._due_groups(made)
        # Nothing comes beside the first group: the loop waits for it.
        coming = deque(self._waiting(rows) for rows in islice(due, 1))
        while coming:
            one = coming.popleft()
            answers = self._fetch(one.rows) if one.take is None else self._counted(one.take)
            while self._is_room_for_more(coming) and (after := next(due, None)) is not None:
                coming.append(self._begun(after))
            yield one.rows, one.names, answers
            del answers

    def _is_room_for_more(self, coming: Sequence[_Coming]) -> bool:
        """Whether one more group may be asked for, or looked at, while these come."""
        if not coming:
            return True
        if len(coming) == _GROUPS_AHEAD or coming[-1].take is None:
            return False
        is_small = len(coming[-1].rows) == _GROUP_OBJECTS
        return is_small and sum(one.size for one in coming) <= _GROUP_BYTES // 2

    def _begun(self, rows: Sequence[int]) -> _Coming:
        """A group that is on its way, if it is small enough for that."""
        one = self._waiting(rows)
        if len(rows) < 2 or self._index.is_special or one.size > _GROUP_BYTES:
            return one
        take = self._index.submit_many(rows, one.names, as_bytes=self._as_bytes)
        return one._replace(take=take)

    def _waiting(self, rows: Sequence[int]) -> _Coming:
        """A group that is asked for in its turn."""
        return _Coming(rows, self._index.listing.names_at(rows), sum(self._sizes_at(rows)))

    def _fetch(self, rows: Sequence[int]) -> Iterable[Answer]:
        """The contents of these rows, or why they cannot be had."""
        if len(rows) > 1 or self._index.is_special:
            return self._counted(partial(self._index.try_many, rows, as_bytes=self._as_bytes))
        return self._counted(partial(self._get, rows[0]))

    def _get(self, row: int) -> list[Answer]:
        try:
            reader = self._index.object(row).get()
            return [reader.read_all() if self._as_bytes else reader.memoryview()]
        except ForebayError as error:
            return [error]

    def _counted(self, take: Callable[[], Sequence[Answer]]) -> list[Answer]:
        """What ``take`` returns, counted."""
        begun = time.perf_counter()
        answers = list(take())
        arrived = [answer for answer in answers if not isinstance(answer, ForebayError)]
        self._counters.add(
            objects=len(arrived),
            bytes=sum(map(len, arrived)),
            requests=1,
            fetch_s=time.perf_counter() - begun,
        )
        return answers


def _drained(answers: Iterable[Answer]) -> Iterator[Answer]:
    """Takes the answers out of a list one by one, so that it holds none that was taken."""
    if not isinstance(answers, list):
        return iter(answers)
    answers.reverse()
    return map(list.pop, repeat(answers, len(answers)))


IterDataset = IterableDataset
