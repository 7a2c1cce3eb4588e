"""A loader whose workers are threads of the training process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Literal

import torch
from torch.utils.data import BatchSampler, IterableDataset, default_convert
from torch.utils.data.datapipes.datapipe import IterDataPipe
from torch.utils.data.graph_settings import apply_sharding
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from forebay import waits
from forebay.spans import batch_span
from forebay_torch import dist, frameworks
from forebay_torch.aio import AsyncSamples
from forebay_torch.batch_memory import BatchMemory
from forebay_torch.batch_timing import BatchTimer, base_cause
from forebay_torch.cursor import Cursor
from forebay_torch.dataset_pass import Pass
from forebay_torch.feed_report import feed_reporter
from forebay_torch.loader_stats import LoaderStats, StepLog
from forebay_torch.prefetcher import Prefetcher
from forebay_torch.shard_sampler import DistributedShardSampler
from forebay_torch.thread_epoch import Made, ThreadEpoch

__all__ = ["ThreadLoader"]

# A batch of more bytes is not fetched before its turn: it takes its time anyway, and memory.
_PREFETCH_MAX_BATCH_BYTES = 16 << 20
# Batches of small objects that may come by one request.
_BATCHES_PER_REQUEST = 16
# An item of an iterable that came sooner has no record of its own.
_QUICK_ITEM_S = 100e-6
# The rank of a process that reads all samples.
_ALONE: dict[str, Any] = {"rank": 0, "world_size": 1}


class ThreadLoader(AsyncSamples):
    """Batches of a dataset, made ahead by threads: what a DataLoader does, without processes.

    Requests, checksums and unpacking run in Rust beside Python, so that threads keep up where
    decoding is not done in Python itself. There is nothing to fork, pickle or copy between processes.
    Batches come in the order of the sampler, or of the epoch of an iterable dataset, whatever the
    number of threads. At most ``threads * prefetch`` batches are in memory or in the making; of a
    map-style dataset of ``forebay_torch``, ``threads + prefetch`` more are on their way, if they
    have no more than 16 MiB each; small ones come together, up to 16 of them, which have 1 MiB.

    An exception of a dataset is raised in its batch's place. Ctrl-C ends the loop at once, and
    leaving a loop early stops the threads.

    Args:
        dataset: A map-style dataset, whose ``__getitems__`` is called with a batch of indices; or
            an iterable one. Those of ``forebay_torch`` are shared by the threads, any other
            iterable one is read by a single thread.
        batch_size: Samples in a batch; None to hand out an iterable's items as they are.
        shuffle: Take samples of a map-style dataset in an order of the epoch's own.
        sampler: The order of samples, instead of ``shuffle``.
        batch_sampler: The batches, instead of ``batch_size``, ``shuffle``, ``sampler`` and
            ``drop_last``.
        threads: How many batches are made at a time; 0 makes each when it is asked for, in the
            thread that asks.
        prefetch: How many batches per thread are made ahead; of a map-style dataset
            ``threads + prefetch`` more are fetched ahead.
        collate_fn: Makes a batch of a list of samples, in the thread; by default as torch's does, large
            tensors in the memory of batches that are gone, so that they cannot be resized in place.
        drop_last: Leave out a last batch that is not full.
        pin_memory: Put batches into pinned memory, where there is a GPU.
        ordered: Whether batches come in order; else as soon as one is there.
        seed: Of the shuffle.
        report: Whether to print a table of what the steps waited for at the end of each epoch; by default
            if ``FOREBAY_REPORT=1``.
        trace_file: Where to write a trace at the end of each epoch, for https://ui.perfetto.dev.
        name: Name of the job in ``forebay why``; by default ``FOREBAY_JOB``, or that of the script.
        feed: Whether to report to the cluster every few seconds; by default unless ``FOREBAY_FEED=0``.
        shard_by_rank: Whether ranks of ``torch.distributed`` share the samples of a map-style dataset
            that has no sampler, as with a DistributedShardSampler. An iterable dataset has an
            argument of that name itself.

    Example:
        >>> loader = ThreadLoader(MapDataset(bucket), batch_size=64, shuffle=True)
        >>> for names, contents in loader:
        ...     train(contents)
        >>> print(f"{loader.stats().wait_fraction:.0%} of the time was waiting")
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        *,
        threads: int = 4,
        prefetch: int = 2,
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        pin_memory: bool = False,
        ordered: bool = True,
        seed: int = 0,
        shard_by_rank: bool = True,
        report: bool | None = None,
        trace_file: str | os.PathLike[str] | None = None,
        name: str | None = None,
        feed: bool | None = None,
    ) -> None:
        if threads < 0:
            raise ValueError(f"threads must not be negative: {threads}")
        if prefetch < 1:
            raise ValueError(f"prefetch must be at least 1, not {prefetch}")
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, or None, not {batch_size}")
        self.dataset = dataset
        self.batch_size = batch_size
        self._is_iterable = isinstance(dataset, IterableDataset)
        self._threads = threads
        self._prefetch = prefetch
        self._drop_last = drop_last
        self._ordered = ordered or threads < 2
        # Memory that a loop drops is filled again: see BatchMemory.
        own = default_convert if batch_size is None else BatchMemory().collate
        self._collate = collate_fn or own
        self._pin = pin_memory and torch.cuda.is_available()
        self._batches: Any = None
        self._counter: Any = dataset
        if self._is_iterable:
            if shuffle or sampler is not None or batch_sampler is not None:
                raise ValueError("an iterable dataset has its own order: no shuffle, no sampler")
            if isinstance(cursor := getattr(dataset, "_cursor", None), Cursor):
                cursor.block = batch_size or 1
            else:
                self._threads = min(threads, 1)
        elif batch_sampler is not None:
            if shuffle or sampler is not None or drop_last or batch_size != 1:
                raise ValueError("batch_sampler goes without batch_size, shuffle, sampler, drop_last")
            self._batches = self._counter = batch_sampler
        else:
            if sampler is not None and shuffle:
                raise ValueError("a sampler has its own order: no shuffle")
            if batch_size is None:
                raise ValueError("batch_size=None goes with an iterable dataset")
            self._counter = sampler or DistributedShardSampler(
                dataset, shuffle=shuffle, seed=seed, **({} if shard_by_rank else _ALONE)
            )
            self._batches = BatchSampler(self._counter, batch_size, drop_last)
        self._pass: ThreadEpoch | None = None
        # Batches and samples that the loop has taken of it.
        self._taken: _Taken | None = None
        self._base = base_cause(dataset)
        self._log = StepLog()
        self.configure_log(report=report, trace_file=trace_file, name=name, feed=feed)

    def __iter__(self) -> Iterator[Any]:
        # With the first batch that is taken: an iterator that nobody reads begins no pass.
        unloaded = frameworks.unloaded_state(type(self).__name__, lambda loader: loader is self)
        if unloaded is not None:
            self.load_state_dict(unloaded[1])
        waits.observe()
        log = self._log
        log.begin_epoch()
        started = time.perf_counter()
        taken = self._taken = _Taken(self)
        made = self._pass = taken.threads
        try:
            while True:
                try:
                    batch, record = made.next()
                except StopIteration:
                    break
                samples = 1 if isinstance(record, str) else record.samples
                log.step(started, time.perf_counter(), samples, record)
                taken.count(samples)
                left = time.perf_counter()
                yield batch
                started = time.perf_counter()
                log.computed(started - left)
            log.end_epoch()
        finally:
            made.close()

    @property
    def sampler(self) -> Any:
        """The source of the order: a sampler, a batch sampler, or an iterable dataset. Lightning
        sets its epochs."""
        return self._counter

    @property
    def batch_sampler(self) -> Any:
        """The sampler of the batches of indices of a map-style dataset."""
        if self._is_iterable:
            raise AttributeError("a ThreadLoader of an iterable dataset has no batch_sampler")
        return self._batches

    def __len__(self) -> int:
        """The number of batches of an epoch of this rank."""
        if not self._is_iterable:
            return len(self._batches)
        if self.batch_size is None:
            return len(self.dataset)
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + bool(rest and not self._drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next pass, where the sampler or the dataset has one."""
        if hasattr(self._counter, "set_epoch"):
            self._counter.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """How far the loop is in this pass: the small state that any shape of job goes on from.

        Raises:
            TypeError: The sampler or dataset has no state, or batches come out of order.
        """
        if not self._ordered:
            raise TypeError("a loader with ordered=False has no state: nobody knows what is left")
        if not hasattr(self._counter, "state_dict"):
            raise TypeError(f"{type(self._counter).__name__} has no state_dict()")
        taken = self._taken
        if taken is not None and taken.place is not None:
            if taken.place.is_current:
                state: dict[str, Any] = taken.view.state_dict(num_samples=taken.samples)
                return state
            # Another epoch was chosen since.
            taken = None
        batches, samples = (0, 0) if taken is None else (taken.batches, taken.samples)
        if self._batches is self._counter and self._batches is not None:
            state = self._counter.state_dict(num_batches=batches)
        else:
            state = self._counter.state_dict(num_samples=samples)
        return state

    def load_state_dict(
        self, state: Mapping[str, Any], *, data: Literal["same", "listed"] = "same"
    ) -> None:
        """Makes the next pass go on where the state says; the one after it is whole again.

        A loop that is still going over the loader gets a RuntimeError.

        Args:
            data: As for the sampler or dataset.
        """
        if self._pass is not None:
            self._pass.close()
            self._pass = self._taken = None
        # Samplers of others have no such argument.
        self._counter.load_state_dict(state, **({} if data == "same" else {"data": data}))

    def stats(self) -> LoaderStats:
        """Times and counts of the loop over this loader, and what it waited for."""
        return self._log.stats()

    def configure_log(
        self,
        *,
        report: bool | None = None,
        trace_file: str | os.PathLike[str] | None = None,
        name: str | None = None,
        feed: bool | None = None,
    ) -> None:
        """Starts the measuring anew, with these arguments of the loader."""
        reporter = feed_reporter(self.dataset, name, feed)
        self._log = StepLog(report, trace_file, reporter)

    def _start(self, view: Any, made: Pass | None) -> ThreadEpoch:
        """Starts the threads of a pass.

        Args:
            view: The iterable dataset, or a copy of it that is at its place in the pass.
            made: The pass, where it has a place.
        """
        if not self._is_iterable:
            ahead = self._ahead()
            return ThreadEpoch(
                self._threads, self._prefetch, self._ordered, jobs=self._jobs(ahead), ahead=ahead
            )
        if isinstance(self.dataset, IterDataPipe):
            rank, world_size = dist.group_rank() or (0, 1)
            apply_sharding(self.dataset, world_size, rank)
        if made is None or self._threads == 0:
            own = [self._grouped(view)]
        else:
            own = [self._grouped(view.thread_view(made)) for _ in range(self._threads)]
        return ThreadEpoch(self._threads, self._prefetch, self._ordered, own=own)

    def _ahead(self) -> Prefetcher | None:
        """Starts a prefetcher of the next batches of a map-style dataset; None if it has none.

        No thread waits for these batches, so this works also without threads.
        """
        begin = getattr(self.dataset, "start_prefetcher", None)
        if begin is None:
            return None
        ahead: Prefetcher = begin(self._threads + self._prefetch, _BATCHES_PER_REQUEST, _PREFETCH_MAX_BATCH_BYTES)
        return ahead

    def _jobs(self, ahead: Prefetcher | None) -> Iterator[Callable[[], Made]]:
        """Makes each batch of a map-style dataset."""
        # A thread asks for the second when it has the first; without one nobody does meanwhile.
        beside = 0 if self._threads else 1
        batches = self._batches if ahead is None else ahead.along(self._batches, beside)
        yield from (partial(self._fetched, indices) for indices in batches)

    def _fetched(self, indices: list[int]) -> Made:
        """The batch of these samples of a map-style dataset."""
        timer = self._timer()
        fetch = getattr(self.dataset, "__getitems__", None)
        with batch_span() as span:
            span.count(samples=len(indices))
            samples = fetch(indices) if fetch else [self.dataset[index] for index in indices]
        return self._finished(timer, samples, len(indices))

    def _grouped(self, dataset: Any) -> Iterator[Made]:
        """The batches of an iterable dataset."""
        size = self.batch_size
        timer = self._timer()
        samples = iter(dataset)
        if size is None:
            for sample in samples:
                item = self._collated(sample)
                if timer.elapsed_s < _QUICK_ITEM_S:
                    # Most items of a run are there already: measuring would take longer.
                    yield item, self._base
                    continue
                yield item, timer.finish(1)
                timer = self._timer()
            return
        while group := self._group(samples, size):
            yield self._finished(timer, group, len(group))
            timer = self._timer()

    def _group(self, samples: Iterator[Any], size: int) -> list[Any]:
        """The samples of the next batch of an iterable dataset; none at its end."""
        with batch_span() as span:
            group = list(islice(samples, size))
            if self._drop_last and len(group) < size:
                group = []
            if not group:
                span.drop()
            span.count(samples=len(group))
            return group

    def _timer(self) -> BatchTimer:
        """Begins to measure the making of a batch."""
        worker = dist.worker()
        return BatchTimer(self._base, worker.id if worker.tag != -1 else -1)

    def _finished(self, timer: BatchTimer, samples: Any, count: int) -> Made:
        timer.collate()
        batch = self._collated(samples)
        return batch, timer.finish(count)

    def _collated(self, samples: Any) -> Any:
        batch = self._collate(samples)
        if self._pin:
            batch = pinned(batch)  # type: ignore[no-untyped-call]
        return batch


class _Taken:
    """One pass over a loader: its threads, and what the loop has taken of it."""

    def __init__(self, loader: ThreadLoader) -> None:
        self.batches = 0
        self.samples = 0
        # The pass of an iterable dataset of forebay_torch, and a copy of the dataset that is there.
        self.place: Pass | None = None
        self.view = loader.dataset
        cursor = getattr(loader.dataset, "_cursor", None)
        if loader._is_iterable and isinstance(cursor, Cursor):
            self.place = cursor.open()
            self.place.threads = loader._threads
            self.view = loader.dataset.thread_view(self.place)
        self.threads = loader._start(self.view, self.place)

    def count(self, samples: int) -> None:
        """The loop has taken a batch of so many samples."""
        self.batches += 1
        self.samples += samples
        if self.place is not None:
            self.place.delivered += samples
