"""Samples out of shards, read as streams."""

from __future__ import annotations

import random
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from multiprocessing.context import get_spawning_popen
from typing import Any, Literal, Self

from forebay import (
    Client,
    ForebayError,
    ShardStream,
)
from forebay_torch import order, frameworks, dist
from forebay_torch.config import Config
from forebay_torch.cursor import Pass
from forebay_torch.fields import Fields
from forebay_torch.iter_dataset import BaseIterDataset
from forebay_torch.saved_listing import check_data
from forebay_torch.policy import NEVER_SKIPPED, stopped
from forebay_torch.progress import Progress
from forebay_torch.resume import read_state
from forebay_torch.shard_position import ShardPosition, Shards
from forebay_torch.shard_plan import Item, batches_of_ranks, deal, equal_shares, shuffled
from forebay_torch.source import ObjectIndex, PrefixMap, Sources, check_kind, shard_snapshot
from forebay_torch.in_memory_shard import InMemoryShard
from forebay_torch.cluster_prefetch import prefetch_from_cloud

__all__ = ["ShardReader", "Decode", "OnError"]

Decode = Mapping[str, Callable[[Any], Any]] | Callable[[str, Fields], Any]
Splitter = Callable[[Iterable[str]], Iterable[str]]
Opened = ShardStream | InMemoryShard
OnError = Literal["raise", "skip"] | Callable[[str, Exception], Any]

# Indexes that are in memory at once while samples are counted.
_COUNTED_TOGETHER = 64


class ShardReader(BaseIterDataset):
    """Samples as ``(key, {extension: bytes})`` from shards in the WebDataset form.

    Objects whose names end as archives do (.tar, .tgz, .tar.gz, .tar.lz4, .tar.zst, .zip) are
    shards, others are left out; an ObjectGroup or a template may name any. A shard is read as a
    stream: memory holds one sample and ``read_ahead`` bytes of each of two shards, the one at work
    and the next. In an epoch every shard, and so every sample, is delivered exactly once: by one
    worker of one rank. ``len()`` is the number of samples of this rank in this epoch; it comes
    from the indexes that the cluster keeps, no data is read for it.

    The contents are a ``Fields``: a dict that the default collation of a DataLoader batches
    although samples have different extensions. ``fields["__key__"]`` and ``fields["__url__"]``
    say where a sample is from.

    Args:
        bucket_list: As ``ais_source_list`` of BaseMapDataset.
        prefix_map: As for BaseMapDataset.
        etl_name: A transform of the cluster, which makes of a shard another archive; that is held
            as a whole, and there is no ``len()`` then.
        show_progress: Show on a terminal's stderr how many samples of which shard were read.
        partition_sources_by_worker: Kept for compatibility: workers never list.
        shuffle_shards: Whether each epoch has an order of shards of its own; see ``set_epoch``.
        shuffle_buffer: Samples are drawn from as many that wait; 0 keeps their order.
        seed: Of both shuffles.
        decode: Extension -> function that makes the part of its bytes; or a function of key and
            Fields, whose result takes the place of the Fields.
        keys: ``webdataset``: the key is the member's name with its folder, up to the first dot of
            its last component. ``basename``: without the folder, and the extension is only what
            follows the last dot.
        lowercase: Take extensions in lower case.
        fill_missing: What stands in a batch for a part that a sample does not have; with None
            that is an error.
        resampled: Draw shards with replacement, without end; ``len()`` is then undefined.
        on_error: What to do about a sample or shard that cannot be read or decoded: ``raise``;
            ``skip`` it with a warning; or a function of its name and the exception. That the
            cluster does not answer is never skipped by ``skip``. That the members of a sample lie
            apart is seen only when the rest of them comes, after the first part was delivered.
        handler: A WebDataset handler, instead of ``on_error``: true means to go on.
        nodesplitter: Called with the URIs of all shards in the epoch's order; returns those of this
            rank, instead of every n-th. A reader with splitters of its own has no state.
        workersplitter: The same for the shards of a rank and a worker of it.
        read_ahead: Most bytes that are fetched and unpacked ahead, per shard.
        batch_size: Of the DataLoader; needed to go on from a state with other ranks and workers, and
            for ``equal_length``.
        equal_length: What makes ranks make as many batches each, as DDP needs it: ``none`` (they
            differ as their shards do), ``drop`` (whole batches alone, as many as the rank that has
            the fewest) or ``wrap`` (a rank that has fewer batches repeats samples). ``len()`` is
            then that of a loader without workers. States are those of a StatefulDataLoader with the
            same number of workers. By default ranks differ as well, but a pass in which a model of
            DDP or FSDP trains raises a ValueError if they do: the model would wait for ever.
        shard_by_rank: As for BaseIterDataset, ``rank`` and ``world_size`` too.
        client: As for BaseIterDataset.
        config: As for BaseIterDataset.
        warm_ahead: As for BaseIterDataset, in shards, with ``replication``.
        allow_empty: Whether a source or prefix may have no shard.

    Example:
        >>> loader = DataLoader(ShardReader(bucket), batch_size=60, num_workers=4)
        >>> for keys, contents in loader:
        ...     images, labels = contents["jpg"], contents["cls"]
    """

    def __init__(
        self,
        bucket_list: Sources | None = None,
        prefix_map: PrefixMap | None = None,
        etl_name: str | None = None,
        show_progress: bool = False,
        partition_sources_by_worker: bool = False,
        *,
        sources: Sources | None = None,
        shuffle_shards: bool = False,
        shuffle_buffer: int = 0,
        seed: int = 0,
        decode: Decode | None = None,
        keys: Literal["webdataset", "basename"] = "webdataset",
        lowercase: bool = False,
        fill_missing: Any = b"",
        resampled: bool = False,
        on_error: OnError = "raise",
        handler: Callable[[Exception], bool] | None = None,
        nodesplitter: Splitter | None = None,
        workersplitter: Splitter | None = None,
        read_ahead: int = 8 << 20,
        shard_by_rank: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
        batch_size: int = 1,
        equal_length: Literal["none", "drop", "wrap"] | None = None,
        client: Client | None = None,
        config: Config | None = None,
        warm_ahead: int = 0,
        replication: int = 1,
        allow_empty: bool = False,
    ) -> None:
        check_options(type(self).__name__, keys, on_error)
        check_kind(type(self).__name__, "show_progress", show_progress, bool)
        if shuffle_buffer < 0:
            raise ValueError(f"shuffle_buffer must not be negative: {shuffle_buffer}")
        is_length_chosen, equal_length = equal_length is not None, equal_length or "none"
        if equal_length not in ("none", "drop", "wrap"):
            raise ValueError(f'equal_length is "none", "drop" or "wrap", not {equal_length!r}')
        if equal_length != "none" and (resampled or nodesplitter or workersplitter or etl_name):
            raise ValueError(
                f"equal_length={equal_length!r} needs the samples of each rank to be known: it goes "
                "without resampled, splitters and etl_name"
            )
        if handler is not None and on_error != "raise":
            raise TypeError("ShardReader takes on_error or handler, not both")
        super().__init__(
            bucket_list,
            prefix_map,
            partition_sources_by_worker,
            sources=sources,
            shard_by_rank=shard_by_rank,
            rank=rank,
            world_size=world_size,
            shuffle=shuffle_shards,
            seed=seed,
            batch_size=batch_size,
            client=client,
            config=config,
            etl_name=etl_name,
            warm_ahead=warm_ahead,
            replication=replication,
            allow_empty=allow_empty,
        )
        self._nodesplitter = nodesplitter
        self._workersplitter = workersplitter
        self._show_progress = show_progress
        self._shuffle_buffer = shuffle_buffer
        self._decode = decode
        self._keys: Literal["webdataset", "basename"] = keys
        self._lowercase = lowercase
        self._fill = fill_missing
        self._resampled = resampled
        self._on_error: OnError = on_error
        self._handler = handler
        self._read_ahead = read_ahead
        self._equal_length = equal_length
        knows_counts = not (resampled or nodesplitter or workersplitter or etl_name)
        self._checks_steps = knows_counts and not is_length_chosen
        # Whether a model waits for all ranks, as the training process told a copy that cannot know.
        self._is_in_step: bool | None = None
        # Samples of each shard, -1 where not known yet.
        self._counts = array("q", [-1]) * len(self.objects)
        self._place = ShardPosition(type(self).__name__)
        ranks = self._rank_and_world()[1]
        is_short = 0 < len(self.objects) < ranks
        if is_short and equal_length == "drop":
            raise ValueError(
                f'{len(self.objects)} shards for {ranks} ranks: equal_length="drop" would leave no '
                'sample; write more and smaller shards, take "wrap", or use ShardMapDataset'
            )
        if is_short and not resampled and equal_length == "none":
            warnings.warn(
                f"{len(self.objects)} shards for {ranks} ranks: some ranks get no samples; write "
                "more and smaller shards, or use ShardMapDataset",
                stacklevel=2,
            )

    def refresh(self) -> None:
        super().refresh()
        self._counts = array("q", [-1]) * len(self.objects)

    def __len__(self) -> int:
        if self._resampled:
            raise TypeError("a resampled ShardReader has no end, so no len()")
        if self._has_splitters:
            raise TypeError("a ShardReader with splitters of its own has no len()")
        if self._etl_name:
            raise TypeError("a ShardReader with an etl_name has no len(): only the transform knows")
        if self._equal_length != "none":
            self._count([row for row, count in enumerate(self._counts) if count < 0])
            rank, shards = self._rank_and_world()[0], self._shards()
            items = [Item(row) for row in shards.order(self._cursor.epoch)]
            loader = frameworks.loader()
            shares = self._shares(items, loader.workers if loader else None)[rank]
            return loader.length(shares, sum(shares)) if loader else sum(shares)
        rows = self._rank_rows()
        self._count([row for row in rows if self._counts[row] < 0])
        total = sum(self._counts[row] for row in rows)
        loader = frameworks.loader()
        if loader is None:
            return total
        shards = self._shards()
        items = [Item(row) for row in shards.order(self._cursor.epoch)]
        return loader.length(
            [
                sum(
                    self._counts[item.row]
                    for item in deal(items, shards.rank, shards.world_size, worker, loader.workers)
                )
                for worker in range(loader.workers)
            ],
            total,
        )

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        found = frameworks.splitter()
        if found is not None and found.is_dispatcher and dist.worker().total > 1:
            raise ValueError(
                f"{type(self).__name__}: workers that read whole shards end with batches that are "
                f"not full, of which {found.name} loses samples; set num_workers to 0 or 1, or "
                "dispatch_batches=False"
            )
        return frameworks.checked(type(self).__name__, self._of_pass())

    def _of_pass(self) -> Iterator[tuple[str, Any]]:
        """The samples of this worker in a new pass."""
        self.reset()
        return self._delivered(self._cursor.open())

    def _delivered(self, made: Pass) -> Iterator[tuple[str, Any]]:
        """The samples of a pass."""
        self._cursor.begin(made)
        yield from self._view(made.total)._of_shards(made)

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

    def _of_shards(self, made: Pass) -> Iterator[tuple[str, Any]]:
        """The samples of a pass that has begun."""
        self._check_steps(made)
        buffered = self._shuffle_buffer > 1
        items: Iterable[Item]
        if self._resampled or self._has_splitters:
            skip = made.skip
            items = map(Item, self._endless(made)) if self._resampled else self._split(made)
        else:
            skip, items = self._place.begin(self._cursor, made, self._shards())
        samples = self._samples(made, items)
        if buffered:
            stage = len(made.earlier)
            generator = self._generator("samples", epoch=made.epoch, stage=stage)
            samples = shuffled(samples, self._shuffle_buffer, generator)
        end = None
        if self._equal_length != "none":
            every = [Item(row) for row in self._shards().order(made.epoch)]
            rank, worker = self._rank_and_world()[0], dist.worker()
            share = self._shares(every)[rank][worker.id]
            if self._equal_length == "wrap" and share:
                samples = chain(samples, self._again(made, every, rank))
            end = skip + max(0, share - made.skip)
        # What a worker has delivered of this pass before is made again and passed over.
        samples = islice(samples, skip, end)
        yield from self._counted(made, samples) if self._counts_late else samples

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

    def state_dict(self, num_samples: int | None = None) -> dict[str, Any]:
        """As that of IterableDataset; it remembers each pass of the epoch by four numbers.

        Raises:
            TypeError: The reader is ``resampled``, or has splitters of its own; or it has an
                ``equal_length`` and the loader is no StatefulDataLoader with workers.
        """
        if self._equal_length != "none" and not dist.worker().is_process:
            raise TypeError(
                "a ShardReader with an equal_length has a state only in the workers of a "
                "StatefulDataLoader"
            )
        if self._has_splitters:
            raise TypeError("a ShardReader with splitters of its own has no state")
        if self._resampled and not dist.worker().is_process:
            raise TypeError("a resampled ShardReader has no end, so no place in it")
        view = self._view(self._cursor.position(num_samples).total)
        total, fingerprint = len(view.objects), view._fingerprint()
        return self._place.state(self._cursor, num_samples, view._shards(), fingerprint, total)

    def load_state_dict(
        self, state: Mapping[str, Any], *, data: Literal["same", "listed"] = "same"
    ) -> None:
        """As that of IterableDataset. Shards are indexed by the cluster to find the place.

        Raises:
            ValueError: The state is of other shards, of another order or of another seed; or
                workers did not take turns as the reader was told by ``batch_size``.
        """
        check_data(type(self).__name__, data)
        view = self._view_then(state, data)
        read_state(
            type(self).__name__,
            state,
            seed=self._seed,
            total=len(view.objects),
            fingerprint=view._fingerprint(),
            takes_listed=True,
        )
        if self._equal_length != "none" and "part" not in state:
            raise ValueError(
                "a ShardReader with an equal_length takes the state of its own worker alone"
            )
        if state.get("passes") and "part" not in state:
            view._count([row for row, count in enumerate(view._counts) if count < 0])
        self._place.load(self._cursor, state, view._shards(), self._keep(view))

    def thread_view(self, made: Pass) -> Self:
        twin = super().thread_view(made)
        if self._checks_steps and self._is_in_step is None and self._rank_and_world()[1] > 1:
            twin._is_in_step = frameworks.trains_in_step()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if get_spawning_popen() is not None and self._checks_steps:
            # A spawned worker has no model.
            state["_is_in_step"] = frameworks.trains_in_step()
        return state

    def _following_from(self, index: ObjectIndex) -> dict[str, Any]:
        counts = array("q", [-1]) * len(index.listing)
        return {**super()._following_from(index), "_counts": counts}

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

    @property
    def _counts_late(self) -> bool:
        """Whether samples count when they are handed out, rather than when they are read."""
        return self._resampled or self._shuffle_buffer > 1

    def _counted(
        self, made: Pass, samples: Iterator[tuple[str, Any]]
    ) -> Iterator[tuple[str, Any]]:
        for sample in samples:
            made.deliver()
            yield sample

    def _rank_rows(self) -> Sequence[int]:
        """The shards of this rank in a whole epoch."""
        rank, world_size = self._rank_and_world()
        total = len(self._index.listing)
        return self._rows(
            order.share(total, rank=rank, world_size=world_size), self._cursor.epoch
        )

    def _snapshot(self) -> ObjectIndex:
        owner = type(self).__name__
        retries = self._config.max_listing_retries
        return shard_snapshot(owner, self._parts, retries, **self._reading())

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
        for start in range(0, len(rows), _COUNTED_TOGETHER):
            group = rows[start : start + _COUNTED_TOGETHER]
            for row, index in zip(group, self._index.shard_indexes(group), strict=True):
                if isinstance(index, ForebayError):
                    # What cannot be indexed is damaged, and read only up to there.
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

    def _samples(self, made: Pass, items: Iterable[Item]) -> Iterator[tuple[str, Any]]:
        with Progress(self._show_progress, self._worker_name()) as progress:
            for item, stream in self._streams(items):
                progress.begin(stream.uri)
                if item.samples is None and self._decode is None:
                    samples = self._read_as_is(made, stream)
                else:
                    samples = self._read(made, stream, item.samples)
                yield from progress.counted(samples)

    def _streams(self, items: Iterable[Item]) -> Iterator[tuple[Item, Opened]]:
        """The shards one by one, each opened when the one before it is begun."""
        waiting: tuple[Item, Opened] | None = None
        due = [item.row for item in items] if isinstance(items, list) else []
        with prefetch_from_cloud(self._index, due, self._warm_ahead) as warmer:
            for number, item in enumerate(items, 1):
                warmer.reached(number)
                opened = self._open(item.row)
                if waiting is not None:
                    yield waiting
                waiting = (item, opened)
            if waiting is not None:
                yield waiting

    def _open(self, row: int) -> Opened:
        """The samples of a shard: as it is stored, or as a transform makes it."""
        shard = self._index.object(row)
        if self._etl_name:
            load = partial(_only, self._index, row)
            return InMemoryShard(shard.uri, load, self._keys, self._lowercase)
        return shard.samples(
            keys=self._keys, lowercase=self._lowercase, read_ahead=self._read_ahead
        )

    def _read_as_is(self, made: Pass, stream: Opened) -> Iterator[tuple[str, Any]]:
        """As ``_read``, of all samples with their contents as they are: little is done for each."""
        deliver = None if self._counts_late else made.deliver
        uri = stream.uri
        like = Fields(None, self._fill, "", uri)
        while True:
            try:
                while run := _next_run(stream, like):
                    for sample in run:
                        if deliver is not None:
                            deliver()
                        yield sample
                return
            except Exception as error:
                if not self._failed(uri, error):
                    return

    def _read(
        self, made: Pass, stream: Opened, numbers: Sequence[int] | None
    ) -> Iterator[tuple[str, Any]]:
        wanted = numbers if numbers is None or isinstance(numbers, range) else frozenset(numbers)
        last = None if numbers is None else numbers[-1]
        number = 0
        while last is None or number <= last:
            name, sample = stream.uri, None
            try:
                key, parts = next(stream)
                name = f"{stream.uri}/{key}"
                number += 1
                if wanted is None or number - 1 in wanted:
                    fields = Fields(parts, self._fill, key, stream.uri)
                    sample = (key, decoded(key, fields, self._decode))
            except StopIteration:
                return
            except Exception as error:
                if not self._failed(name, error):
                    return
                if name != stream.uri and not self._counts_late:
                    # It has its place in the order, though nobody gets it.
                    made.deliver()
            if sample is not None:
                if not self._counts_late:
                    made.deliver()
                yield sample
        stream.close()

    def _failed(self, name: str, error: Exception) -> bool:
        """Whether to go on with the shard after this failure; raises it where that is asked."""
        try:
            if self._handler is not None:
                return bool(self._handler(error))
            if callable(self._on_error):
                self._on_error(name, error)
                return True
        except StopIteration as stop:
            called = "on_error" if self._handler is None else "handler"
            raise stopped(called, repr(name)) from stop
        if self._on_error == "raise" or isinstance(error, NEVER_SKIPPED):
            raise error
        warnings.warn(f"left out of {name}: {error}", stacklevel=2)
        return True


def _next_run(stream: Opened, like: Fields) -> list[tuple[str, dict[str, Any]]]:
    """The samples that are there, at least one, with parts as Fields; none at the end."""
    if isinstance(stream, ShardStream):
        return stream.next_run(like)
    return [(key, Fields(parts, like.fill, key, like.url)) for key, parts in islice(stream, 1)]


def _only(index: ObjectIndex, row: int) -> memoryview:
    return index.get_many([row])[0]


def check_options(owner: str, keys: str, on_error: Any) -> None:
    """Refuses what a dataset over shards does not do."""
    if keys not in ("webdataset", "basename"):
        raise ValueError(f'{owner}: keys is "webdataset" or "basename", not {keys!r}')
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise ValueError(f'{owner}: on_error is "raise", "skip" or a function, not {on_error!r}')


def decoded(key: str, fields: Fields, decode: Decode | None) -> Any:
    """What ``decode`` makes of a sample."""
    if decode is None:
        return fields
    part = ""
    try:
        if not isinstance(decode, Mapping):
            return decode(key, fields)
        for part in fields.keys() & decode.keys():
            fields[part] = decode[part](fields[part])
        return fields
    except StopIteration as error:
        of = f"{part!r} of " if part else ""
        raise stopped("decode", f"{of}the sample {key!r} of {fields.url}") from error
    except Exception as error:
        of = f"{part!r} of " if part else ""
        error.add_note(f"while decode worked on {of}the sample {key!r} of {fields.url}")
        raise

