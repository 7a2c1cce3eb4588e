"""Policies for samples that cannot be had, and the counters of a dataset."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forebay import AccessDenied, ClusterUnavailable, CorruptAnswer, Timeout, TooManyRequests
from forebay_torch import dist
from forebay_torch.shared_cells import SharedCells, changing

__all__ = ["Counters", "DatasetStats", "LEFT_OUT", "NEVER_SKIPPED", "OnError", "Policy", "stopped"]

# "raise", "skip", "replace", "retry:N", or a function of name and exception.
OnError = str | Callable[[str, Exception], Any]

# Failures that no sample is to blame for: leaving it out would hide them.
NEVER_SKIPPED = (ClusterUnavailable, Timeout, TooManyRequests, AccessDenied, CorruptAnswer)
# In place of a sample that is left out.
LEFT_OUT = object()
_COLUMNS = 5
_SLOTS = 64


@dataclass(frozen=True, slots=True)
class DatasetStats:
    """Counters of the reads of a dataset, summed over the process and all its workers.

    Attributes:
        objects: Objects, or members of shards, that arrived.
        bytes: Their bytes.
        requests: Batches, and single reads, that were asked for.
        failed: Samples that could not be had or decoded and were left out or replaced.
        fetch_s: Seconds that were spent waiting for the cluster, over all workers.
    """

    objects: int = 0
    bytes: int = 0
    requests: int = 0
    failed: int = 0
    fetch_s: float = 0.0

    def prometheus(self, **labels: str) -> str:
        """The figures as the text that Prometheus reads, ``forebay_dataset_…_total``.

        Args:
            labels: Of every figure, such as ``dataset="train"``.
        """
        escaped = (
            f'{name}="' + str(value).replace("\\", r"\\").replace('"', r"\"") + '"'
            for name, value in labels.items()
        )
        text = ",".join(escaped)
        braces = f"{{{text}}}" if text else ""
        lines = []
        for name, unit in (
            ("objects", "objects"),
            ("bytes", "bytes"),
            ("requests", "requests"),
            ("failed", "failed_samples"),
            ("fetch_s", "fetch_seconds"),
        ):
            figure = f"forebay_dataset_{unit}_total"
            lines.append(f"# TYPE {figure} counter")
            lines.append(f"{figure}{braces} {getattr(self, name)}")
        return "\n".join(lines) + "\n"


class Counters(SharedCells):
    """The numbers behind ``DatasetStats``, which worker processes share with their loader's."""

    def __init__(self) -> None:
        # A row for each worker, so that they do not overwrite each other.
        super().__init__(_SLOTS * _COLUMNS, ctypes.c_double)

    def add(
        self,
        *,
        objects: int = 0,
        bytes: int = 0,
        requests: int = 0,
        failed: int = 0,
        fetch_s: float = 0.0,
    ) -> None:
        """Counts what this worker did."""
        start = dist.worker().id % _SLOTS * _COLUMNS
        cells = self.shared_cells()
        # Threads of a loader count in the same row.
        with changing:
            for cell, more in enumerate((objects, bytes, requests, failed, fetch_s), start):
                if more:
                    cells[cell] += more

    def total(self) -> DatasetStats:
        """The sums."""
        cells = self.existing_cells()
        if cells is None:
            return DatasetStats()
        objects, size, requests, failed, fetch_s = (
            sum(cells[column::_COLUMNS]) for column in range(_COLUMNS)
        )
        return DatasetStats(int(objects), int(size), int(requests), int(failed), fetch_s)


def stopped(function: str, place: str) -> RuntimeError:
    """The error in place of a StopIteration that a function of the user raised: a loop would take it
    for the end of the data.

    Args:
        function: The name of the function as the user knows it.
        place: The item that it worked on.
    """
    return RuntimeError(
        f"{function} raised StopIteration while it worked on {place}; a loop would end there as if "
        "there were no more samples (a next() without a default?)"
    )


class Policy:
    """One of the ways to go on after a failure, and the count of them.

    ``raise`` lets it out. ``skip`` leaves the sample out with a warning, ``replace`` has another
    one take its place; neither hides that the cluster does not answer or refuses. ``retry:N`` makes the
    sample anew, up to N times, and then raises. A function of the object's name and the exception
    returns what takes the sample's place, or raises.
    """

    __slots__ = ("on_error", "_counters", "_tries")

    def __init__(
        self, owner: str, on_error: OnError, allowed: tuple[str, ...], counters: Counters
    ) -> None:
        """The policy of a dataset that can do ``allowed``, besides functions."""
        self._tries = 0
        if isinstance(on_error, str) and on_error.startswith("retry:"):
            number = on_error.removeprefix("retry:")
            if not number.isdecimal() or int(number) < 1:
                raise ValueError(f'{owner}: on_error="retry:N" needs N of 1 or more: {on_error!r}')
            self._tries = int(number)
        elif not callable(on_error) and on_error not in allowed:
            words = ", ".join(f'"{word}"' for word in (*allowed, "retry:N"))
            raise ValueError(f"{owner}: on_error is {words} or a function, not {on_error!r}")
        self.on_error = on_error
        self._counters = counters

    def instead(
        self,
        name: str,
        error: Exception,
        replacement: Callable[[], Any] | None = None,
        again: Callable[[], Any] | None = None,
    ) -> Any:
        """Returns the replacement of the sample ``name``; ``LEFT_OUT`` for none.

        Args:
            replacement: Finds another sample; raises where there is none.
            again: Makes the same sample anew.
        """
        if self._tries:
            return self._retried(error, again)
        if callable(self.on_error):
            try:
                sample = self.on_error(name, error)
            except StopIteration as stop:
                raise stopped("on_error", f"the sample {name!r}") from stop
        elif self.on_error == "raise" or isinstance(error, NEVER_SKIPPED):
            raise error
        elif self.on_error == "replace" and replacement is not None:
            sample = replacement()
        else:
            warnings.warn(f"left out {name!r}: {error}", stacklevel=3)
            sample = LEFT_OUT
        self._counters.add(failed=1)
        return sample

    def _retried(self, error: Exception, again: Callable[[], Any] | None) -> Any:
        for _ in range(self._tries if again is not None else 0):
            try:
                return again() if again is not None else None
            except Exception as another:
                error = another
        error.add_note(f"after {self._tries} tries more, by on_error={self.on_error!r}")
        raise error
