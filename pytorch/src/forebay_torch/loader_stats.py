"""The waits of the steps of a loop by cause: sums, percentiles, a table, a trace; in bounded memory."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay_torch.batch_timing import CAUSES, BatchRecord, wait_causes
from forebay_torch.trace_file import TracedStep, write_trace

__all__ = ["LoaderStats", "StepLog"]

# Waits of which percentiles are made, and steps that a trace has.
_MAX_SAMPLED_WAITS = 4096
_MAX_TRACED_STEPS = 2000
# Shorter waits are those for a batch that was there.
_MIN_DIVIDED_WAIT_S = 20e-6
_NUMBER = {cause: number for number, cause in enumerate(CAUSES)}
_REPORT_VARIABLE = "FOREBAY_REPORT"


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """Times and counts of the loop over a loader, since the loader was made.

    Attributes:
        batches: Batches that the loop has taken: its steps.
        samples: Samples in them, as far as the loader makes the batches.
        wait_s: Seconds that the loop waited for batches.
        compute_s: Seconds between batches, which the loop had for itself.
        bytes: Bytes that were received for these batches.
        causes: Seconds of waiting by cause: ``cold`` (a read from the cloud), ``disk`` (of a target),
            ``queue`` (at a target), ``network``, ``client`` (this process's CPU), ``decode``
            (functions of the user), ``collate`` and ``worker`` (no worker was at the batch, or it
            was handed over).
        wait_p50_s: Half of the steps waited no longer.
        wait_p99_s: 99 of 100 steps waited no longer.
    """

    batches: int = 0
    samples: int = 0
    wait_s: float = 0.0
    compute_s: float = 0.0
    bytes: int = 0
    causes: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
    wait_p50_s: float = 0.0
    wait_p99_s: float = 0.0
    _traced: tuple[TracedStep, ...] = field(default=(), repr=False, compare=False)

    @property
    def steps(self) -> int:
        """The steps of the loop: as many as batches."""
        return self.batches

    @property
    def step_s(self) -> float:
        """Seconds of all steps, with the waits."""
        return self.wait_s + self.compute_s

    @property
    def wait_fraction(self) -> float:
        """The share of the time that was waiting: 0 to 1."""
        return self.wait_s / self.step_s if self.step_s else 0.0

    @property
    def attributed_fraction(self) -> float:
        """The share of the waits whose cause is known: 0 to 1."""
        return min(1.0, sum(self.causes.values()) / self.wait_s) if self.wait_s else 1.0

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all steps."""
        return self.samples / self.step_s if self.step_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second of all steps."""
        return self.bytes / self.step_s if self.step_s else 0.0

    def table(self) -> str:
        """A table of the causes, the largest first, under one line of sums."""
        lines = [
            f"{self.steps} steps in {self.step_s:.2f} s, {self.wait_fraction:.1%} waiting "
            f"(p50 {self.wait_p50_s * 1e3:.1f} ms, p99 {self.wait_p99_s * 1e3:.1f} ms); "
            f"{self.samples_per_s:.0f} samples/s, {self.bytes_per_s / 1e6:.1f} MB/s",
            f"{'waited for':<12}{'seconds':>10}{'share':>8}",
        ]
        rows = sorted(self.causes.items(), key=lambda row: -row[1])
        unknown = max(0.0, self.wait_s - sum(self.causes.values()))
        for cause, seconds in (*rows, ("unknown", unknown)):
            share = seconds / self.wait_s if self.wait_s else 0.0
            if cause != "unknown" or share >= 0.0005:
                lines.append(f"{cause:<12}{seconds:>10.3f}{share:>8.1%}")
        return "\n".join(lines) + "\n"

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the last 2,000 steps as a trace for Perfetto or ``chrome://tracing``.

        The loop has a track, and each worker has one: waits for the cluster by cause, decoding,
        collation.
        """
        write_trace(path, self._traced)


class _Sums:
    """The sums of the steps of a loop."""

    def __init__(self) -> None:
        self.batches = self.samples = self.bytes = 0
        self.wait_s = self.compute_s = 0.0
        self.causes = [0.0] * len(CAUSES)

    def copy(self) -> _Sums:
        twin = _Sums()
        twin.__dict__.update(self.__dict__, causes=list(self.causes))
        return twin

    def since(self, before: _Sums) -> _Sums:
        """The steps that came after an earlier copy."""
        twin = _Sums()
        for name in ("batches", "samples", "bytes", "wait_s", "compute_s"):
            setattr(twin, name, getattr(self, name) - getattr(before, name))
        twin.causes = [now - then for now, then in zip(self.causes, before.causes, strict=True)]
        return twin

    def stats(self, waits: Iterable[float], traced: tuple[TracedStep, ...] = ()) -> LoaderStats:
        ordered = sorted(waits)

        def quantile(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

        causes = dict(zip(CAUSES, self.causes, strict=True))
        return LoaderStats(
            self.batches,
            self.samples,
            self.wait_s,
            self.compute_s,
            self.bytes,
            causes,
            quantile(0.5),
            quantile(0.99),
            traced,
        )


class StepLog:
    """The steps of the loop over one loader."""

    def __init__(
        self,
        report: bool | None = None,
        trace_file: str | os.PathLike[str] | None = None,
        reporter: Callable[[StepLog, bool], None] | None = None,
    ) -> None:
        """A log without steps.

        Args:
            report: Whether a table is printed at the end of each epoch; by default if the variable
                ``FOREBAY_REPORT`` is set to 1.
            trace_file: Where a trace is written at the end of each epoch.
            reporter: Called after each step with the log, and whether the epoch ended.
        """
        self._report = os.environ.get(_REPORT_VARIABLE, "") == "1" if report is None else report
        self._trace_file = trace_file
        self._reporter = reporter
        self._lock = threading.Lock()
        # The sums of all steps, and as they were when the epoch began.
        self._all, self._before = _Sums(), _Sums()
        self._waits: list[float] = []
        # Of its own, so that measuring does not change the random numbers of the user.
        self._random = random.Random(0)
        self._traced: deque[TracedStep] = deque(maxlen=_MAX_TRACED_STEPS)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def begin_epoch(self) -> None:
        """The loop begins a pass over the loader."""
        with self._lock:
            self._before = self._all.copy()

    def computed(self, seconds: float) -> None:
        """The loop was at work between two batches."""
        self._all.compute_s += seconds

    def step(self, start: float, end: float, samples: int, record: BatchRecord | str | None) -> None:
        """The loop waited for a batch, from ``start`` to ``end``.

        Args:
            record: How the batch was made; the cause of the whole wait, for one that took no time
                worth a record; or None if that is unknown.
        """
        wait_s = end - start
        with self._lock:
            sums = self._all
            sums.batches += 1
            sums.samples += samples
            sums.wait_s += wait_s
            if record is None:
                pass
            elif isinstance(record, str):
                sums.causes[_NUMBER[record]] += wait_s
                record = None
            elif wait_s < _MIN_DIVIDED_WAIT_S:
                sums.bytes += record.bytes
                sums.causes[_NUMBER["worker"]] += wait_s
            else:
                sums.bytes += record.bytes
                causes = sums.causes
                for number, seconds in enumerate(wait_causes(start, end, record)):
                    if seconds:
                        causes[number] += seconds
            # A uniform choice of all waits.
            waits = self._waits
            if len(waits) < _MAX_SAMPLED_WAITS:
                waits.append(wait_s)
            elif (place := int(self._random.random() * sums.batches)) < _MAX_SAMPLED_WAITS:
                waits[place] = wait_s
            self._traced.append((start, end, record))
        if self._reporter is not None:
            self._reporter(self, False)

    def end_epoch(self) -> None:
        """The loop is at the end of a pass: prints and writes what was asked for."""
        if self._report:
            with self._lock:
                sums = self._all.since(self._before)
                # Of an epoch of more steps than a trace has, the last ones.
                last = list(self._traced)[-sums.batches :]
            if sums.batches:
                waits = (end - start for start, end, _ in last)
                sys.stderr.write(sums.stats(waits).table())
        if self._trace_file is not None:
            self.stats().write_trace(self._trace_file)
        if self._reporter is not None:
            self._reporter(self, True)

    def stats(self) -> LoaderStats:
        """The sums of all steps so far."""
        with self._lock:
            return self._all.stats(self._waits, tuple(self._traced))

    def sums(self) -> LoaderStats:
        """As ``stats``, without percentiles and the steps of a trace."""
        with self._lock:
            return self._all.stats(())
