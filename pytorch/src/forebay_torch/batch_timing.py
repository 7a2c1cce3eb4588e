"""How a batch was made, moment by moment, and what a loop that waited for it waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from forebay import waits
from forebay.waits import Wait

__all__ = ["CAUSES", "BatchRecord", "BatchTimer", "base_cause", "wait_causes"]

CAUSES = ("cold", "disk", "queue", "network", "client", "decode", "collate", "worker")
"""The causes of waits: a cold read from the cloud, a disk, a target's queue, the network, this
process's CPU, functions of the user, the collation of a batch, a worker."""

_NUMBER = {cause: number for number, cause in enumerate(CAUSES)}
_CLIENT, _COLLATE, _WORKER = (_NUMBER[cause] for cause in ("client", "collate", "worker"))


class BatchRecord(NamedTuple):
    """How one batch was made. Times are seconds on the clock of ``time.perf_counter``, which the
    processes of a machine share.

    Attributes:
        worker: Number of the worker that made it; -1 for the training process.
        start: When its making began.
        collated: When its samples were there and collation began.
        end: When it was made.
        base: The cause of what is neither a wait for the cluster nor collation.
        waits: Waits for the cluster meanwhile.
        samples: Samples in it.
        bytes: Bytes that were received for it.
    """

    worker: int
    start: float
    collated: float
    end: float
    base: str
    waits: tuple[Wait, ...]
    samples: int
    bytes: int

    def segments(self) -> Iterator[tuple[float, float, list[float]]]:
        """The making from its start to its end, in order: start, end, and the seconds of each cause."""
        base, now = _NUMBER[self.base], self.start
        for wait in (*self.waits, None):
            until = self.end if wait is None else min(max(wait.start, now), self.end)
            for start, end, cause in (
                (now, min(until, self.collated), base),
                (max(now, self.collated), until, _COLLATE),
            ):
                if end > start:
                    yield start, end, _only(cause, end - start)
            if wait is None:
                return
            now = min(max(wait.end, until), self.end)
            if now > until:
                yield until, now, _of_wait(wait, now - until)


def _only(cause: int, seconds: float) -> list[float]:
    causes = [0.0] * len(CAUSES)
    causes[cause] = seconds
    return causes


def _of_wait(wait: Wait, seconds: float) -> list[float]:
    """So many seconds of a wait, divided as the whole of it is."""
    parts = wait[2:]
    total = sum(parts)
    if total <= 0:
        return _only(_CLIENT, seconds)
    scale = seconds / total
    return [part * scale for part in parts] + [0.0] * (len(CAUSES) - len(parts))


def wait_causes(start: float, end: float, record: BatchRecord) -> list[float]:
    """Divides the wait of a loop for a batch: seconds by cause, in the order of ``CAUSES``.

    The loop waited for the part of the batch's making that lies within the wait. In the rest of the wait
    no worker was at this batch: the making had not started, or the batch was handed over.
    """
    # As `segments` does, without making them: this runs once for each step.
    _, begin, collated, made, base, waits_, _, _ = record
    causes = [0.0] * len(CAUSES)
    now = begin if begin > start else start
    until = made if made < end else end
    if until <= now:
        causes[_WORKER] = end - start
        return causes
    causes[_WORKER] = end - start - (until - now)
    collating = until - max(now, collated) if until > collated else 0.0
    making = until - now - collating
    for wait in waits_:
        first = wait.start if wait.start > now else now
        last = wait.end if wait.end < until else until
        if last <= first:
            continue
        overlap = last - first
        parts = wait[2:]
        total = sum(parts)
        if total > 0:
            scale = overlap / total
            for number, part in enumerate(parts):
                causes[number] += part * scale
        else:
            causes[_CLIENT] += overlap
        before = max(0.0, min(last, collated) - first)
        making -= before
        collating -= overlap - before
        now = last
    causes[_NUMBER[base]] += max(0.0, making)
    causes[_COLLATE] += max(0.0, collating)
    return causes


class BatchTimer:
    """Measures the making of one batch in the thread that makes it."""

    __slots__ = ("_base", "_start", "_collated", "_worker")

    def __init__(self, base: str, worker: int, start: float | None = None) -> None:
        """Begins with a batch.

        Args:
            base: The cause of time that is neither a wait for the cluster nor collation.
            worker: Number of the worker; -1 for the training process.
            start: When its making began, if that was earlier; waits since then are still kept.
        """
        self._base = base
        self._worker = worker
        if start is None:
            waits.drop()
        self._start = time.perf_counter() if start is None else start
        self._collated = self._start

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._start

    def collate(self) -> None:
        """The samples are there; their collation begins."""
        self._collated = time.perf_counter()

    def finish(self, samples: int) -> BatchRecord:
        """The batch is made."""
        end = time.perf_counter()
        taken, received = waits.take()
        # Also the batch before has waits in this list where its making began earlier.
        mine: Sequence[Wait] = [wait for wait in taken if wait.end > self._start]
        collated = self._collated if self._collated > self._start else end
        return BatchRecord(
            self._worker, self._start, collated, end, self._base, tuple(mine), samples, received
        )


def base_cause(dataset: Any) -> str:
    """The cause of the time that a dataset takes beside its waits: ``decode`` where functions of the
    user run, else ``client``."""
    if not type(dataset).__module__.startswith("forebay_torch."):
        return "decode"
    form = getattr(dataset, "_format", None)
    if form is not None and form.has_function:
        return "decode"
    if getattr(dataset, "_decode", None) is not None or getattr(dataset, "_datasets", None):
        return "decode"
    return "client"
