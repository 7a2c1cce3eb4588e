"""The steps of a loop over a DataLoader, measured: what each one waited for."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Sized
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory as pinned

from forebay import waits
from forebay.spans import NO_SPAN, batch_span, inherit_span
from forebay_torch import dist
from forebay_torch.batch_timing import BatchRecord, BatchTimer, base_cause
from forebay_torch.feed_report import feed_reporter
from forebay_torch.loader_stats import LoaderStats, StepLog
from forebay_torch.shared_cells import SharedCells
from forebay_torch.thread_loader import ThreadLoader
from forebay_torch.worker_spans import WorkerSpans

__all__ = ["ObservedLoader", "observe"]

T = TypeVar("T")


class _Ready(threading.local):
    """When this thread was ready to make its next batch. Loops of several threads make their own."""

    at = 0.0


_ready = _Ready()


def observe(
    loader: Any,
    *,
    report: bool | None = None,
    trace_file: str | os.PathLike[str] | None = None,
    name: str | None = None,
    feed: bool | None = None,
) -> Any:
    """Measures the loop over a loader: ``stats()`` says what its steps waited for.

    Batches and their order stay as they are. Of a DataLoader the workers measure, too. A loader of
    another kind is measured from outside: waits in its own threads and processes have no known cause.

    Args:
        loader: A ``torch.utils.data.DataLoader``, a StatefulDataLoader, or any other iterable. A
            ThreadLoader measures itself and is returned as it is.
        report: Whether to print a table at the end of each epoch; by default if ``FOREBAY_REPORT=1``.
        trace_file: Where to write a trace at the end of each epoch, for https://ui.perfetto.dev.
        name: Name of the job in ``forebay why``; by default ``FOREBAY_JOB``, or that of the script.
        feed: Whether to report to the cluster every few seconds; by default unless ``FOREBAY_FEED=0``.

    Example:
        >>> loader = observe(DataLoader(MapDataset(bucket), batch_size=64, num_workers=4))
        >>> for names, contents in loader:
        ...     train(contents)
        >>> print(loader.stats().table())
    """
    if isinstance(loader, (ThreadLoader, ObservedLoader)):
        loader.configure_log(report=report, trace_file=trace_file, name=name, feed=feed)
        return loader
    return ObservedLoader(loader, report=report, trace_file=trace_file, name=name, feed=feed)


class ObservedLoader(Generic[T]):
    """A loader whose loops are measured; made by ``observe``. Other attributes are the loader's."""

    def __init__(
        self,
        loader: Any,
        *,
        report: bool | None = None,
        trace_file: str | os.PathLike[str] | None = None,
        name: str | None = None,
        feed: bool | None = None,
    ) -> None:
        self.loader = loader
        self._active = SharedCells(1, ctypes.c_int64)
        is_measured = isinstance(loader, DataLoader)
        self._spans = WorkerSpans(loader.num_workers if is_measured else 0)
        self._log = StepLog()
        self.configure_log(report=report, trace_file=trace_file, name=name, feed=feed)

    def configure_log(
        self,
        *,
        report: bool | None = None,
        trace_file: str | os.PathLike[str] | None = None,
        name: str | None = None,
        feed: bool | None = None,
    ) -> None:
        """Starts the measuring anew, with the arguments of ``observe``."""
        reporter = feed_reporter(getattr(self.loader, "dataset", None), name, feed)
        self._log = StepLog(report, trace_file, reporter)

    def stats(self) -> LoaderStats:
        """Times and counts of the loops over this loader, and the causes of their waits."""
        return self._log.stats()

    def __len__(self) -> int:
        loader: Sized = self.loader
        return len(loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[T]:
        waits.observe()
        self._log.begin_epoch()
        fetches_here = not getattr(self.loader, "num_workers", 0)
        cells = self._active.shared_cells()
        cells[0] += 1
        self._spans.begin()
        try:
            started = time.perf_counter()
            _set_ready(started)
            batches = self._begin()
            while True:
                try:
                    with batch_span() if fetches_here else NO_SPAN:
                        item = next(batches)
                except StopIteration:
                    break
                ended = time.perf_counter()
                batch, record = item if type(item) is _Measured else (item, None)
                if record is None and not isinstance(self.loader, DataLoader):
                    record = _seen_from_outside(started)
                self._log.step(started, ended, record.samples if record else 0, record)
                self._spans.batch(record, ended - started)
                del item
                left = time.perf_counter()
                yield batch
                del batch
                started = time.perf_counter()
                self._log.computed(started - left)
                _set_ready(started)
            self._log.end_epoch()
        finally:
            self._spans.end()
            cells[0] -= 1

    def _begin(self) -> Iterator[Any]:
        """Starts a pass over the loader, with workers that measure."""
        loader = self.loader
        if not isinstance(loader, DataLoader):
            return iter(loader)
        collate, init = loader.collate_fn, loader.worker_init_fn
        loader.collate_fn = _MeasuredCollate(collate, base_cause(loader.dataset), self._active)
        loader.worker_init_fn = _MeasuredInit(init, self._spans)
        try:
            return iter(loader)
        finally:
            loader.collate_fn, loader.worker_init_fn = collate, init


def _set_ready(now: float) -> None:
    _ready.at = now


def _seen_from_outside(started: float) -> BatchRecord | None:
    """The waits for the cluster of the thread of the loop; None if there were none."""
    taken, received = waits.take()
    mine = tuple(wait for wait in taken if wait.end > started)
    if not mine:
        return None
    begin, end = mine[0].start, mine[-1].end
    return BatchRecord(-1, begin, end, end, "client", mine, 0, received)


class _Measured(tuple[Any, BatchRecord]):
    """A batch on its way to the loop, and how it was made."""

    __slots__ = ()

    def pin_memory(self, device: Any = None) -> _Measured:
        """Called by the thread of a DataLoader that pins."""
        return _Measured((pinned(self[0], device), self[1]))  # type: ignore[no-untyped-call]


class _MeasuredInit:
    """A ``worker_init_fn`` that notes when the worker is ready, and whose span its requests have."""

    def __init__(self, init: Callable[[int], None] | None, spans: WorkerSpans) -> None:
        self._init = init
        self._spans = spans

    def __call__(self, number: int) -> None:
        waits.observe()
        inherit_span(self._spans.of_this_worker)
        if self._init is not None:
            self._init(number)
        _set_ready(time.perf_counter())


class _MeasuredCollate:
    """A ``collate_fn`` that measures the making of its batch."""

    def __init__(self, collate: Callable[[Any], Any], base: str, active: SharedCells) -> None:
        self._collate = collate
        self._base = base
        # How many measured loops are under way: a worker may outlive them and go on for others.
        self._active = active

    def __call__(self, samples: Any) -> Any:
        worker = dist.worker()
        number = worker.id if worker.is_process else -1
        timer = BatchTimer(self._base, number, _ready.at)
        timer.collate()
        batch = self._collate(samples)
        record = timer.finish(len(samples) if isinstance(samples, list) else 1)
        _set_ready(record.end)
        cells = self._active.existing_cells()
        if cells is not None and not cells[0]:
            return batch
        return _Measured((batch, record))
