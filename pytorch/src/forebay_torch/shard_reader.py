"""Samples out of shards, read as streams."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from multiprocessing.context import get_spawning_popen
from typing import Any, Literal, Self

from forebay import Client
from forebay_torch import dist, frameworks
from forebay_torch.config import Config
from forebay_torch.dataset_pass import Pass
from forebay_torch.object_index import ObjectIndex
from forebay_torch.resume import read_state
from forebay_torch.saved_listing import check_data
from forebay_torch.shard_options import Decode, OnError, check_options
from forebay_torch.shard_plan import Item, deal, shuffled
from forebay_torch.shard_position import ShardPosition
from forebay_torch.shard_shares import ShardShares, Splitter
from forebay_torch.source import PrefixMap, Sources, check_kind, shard_snapshot

__all__ = ["ShardReader", "Decode", "OnError"]


class ShardReader(ShardShares):
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
        fill_missing: The value in a batch for a part that a sample does not have; with None that
            is an error.
        resampled: Draw shards with replacement, without end; ``len()`` is then undefined.
        on_error: How to treat a sample or shard that cannot be read or decoded: ``raise``;
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
        equal_length: How ranks make equally many batches, as DDP needs it: ``none`` (they
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
        # Whether a model waits for all ranks, as the training process passed it to a copy that cannot find out.
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

    def _of_shards(self, made: Pass) -> Iterator[tuple[str, Any]]:
        """The samples of a pass that has started."""
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
        # Samples that a worker has delivered of this pass before are made again and skipped.
        samples = islice(samples, skip, end)
        yield from self._counted(made, samples) if self._counts_late else samples

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
                workers did not take turns as ``batch_size`` of the reader says.
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

    @property
    def _counts_late(self) -> bool:
        return self._resampled or self._shuffle_buffer > 1

    def _counted(
        self, made: Pass, samples: Iterator[tuple[str, Any]]
    ) -> Iterator[tuple[str, Any]]:
        for sample in samples:
            made.deliver()
            yield sample

    def _snapshot(self) -> ObjectIndex:
        owner = type(self).__name__
        retries = self._config.max_listing_retries
        return shard_snapshot(owner, self._parts, retries, **self._reading())
