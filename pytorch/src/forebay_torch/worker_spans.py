"""Spans for the worker processes of a loader: their requests belong to the trace of the loop."""

from __future__ import annotations

import ctypes
from typing import Any

from forebay.spans import SpanIds, WorkerPass, begin_worker_pass
from forebay_torch import dist
from forebay_torch.batch_timing import BatchRecord
from forebay_torch.shared_cells import SharedCells

__all__ = ["WorkerSpans"]

# Cells: the trace's id in two halves, the flags, then the id of each worker's span.
_HEAD_CELLS = 3
_HALF = (1 << 64) - 1


class WorkerSpans:
    """The spans of a loader's workers, and their ids in memory that the workers share.

    A worker that stays for several passes finds the span of each in the same place. Ids are zero while
    no pass is under way, or if the pass has no span.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._cells = SharedCells(_HEAD_CELLS + workers, ctypes.c_uint64)
        self._pass: WorkerPass | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spans belong to the process of the loop.
        return {**self.__dict__, "_pass": None}

    def begin(self) -> None:
        """A pass begins, before its workers start. It has spans if a span of the program is current."""
        self.end()
        if not self._workers or (made := begin_worker_pass(self._workers)) is None:
            return
        self._pass = made
        cells, ids = self._cells.shared_cells(), made.ids()
        cells[0], cells[1], cells[2] = ids[0].trace >> 64, ids[0].trace & _HALF, ids[0].flags
        for number, one in enumerate(ids):
            cells[_HEAD_CELLS + number] = one.span

    def batch(self, record: BatchRecord | None, wait_s: float) -> None:
        """The loop waited for a batch and has it now."""
        if self._pass is not None and record is not None:
            self._pass.batch(
                record.worker,
                record.start,
                record.end,
                samples=record.samples,
                size=record.bytes,
                wait_s=wait_s,
            )

    def end(self) -> None:
        """The pass is over; without one nothing happens."""
        made, self._pass = self._pass, None
        if made is None:
            return
        cells = self._cells.shared_cells()
        for number in range(self._workers):
            cells[_HEAD_CELLS + number] = 0
        made.end()

    def of_this_worker(self) -> SpanIds | None:
        """In a worker: the ids of its span now."""
        cells, worker = self._cells.existing_cells(), dist.worker()
        if cells is None or not worker.is_process or worker.id >= self._workers:
            return None
        span = cells[_HEAD_CELLS + worker.id]
        ids = SpanIds(cells[0] << 64 | cells[1], span, cells[2])
        # Else the loop has begun another pass meanwhile.
        is_whole = span and span == cells[_HEAD_CELLS + worker.id]
        return ids if is_whole else None
