"""Reports of loops to the cluster: what their steps waited for, every few seconds, best effort."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from forebay import Client, ForebayError
from forebay.waits import report_feed
from forebay_torch import dist
from forebay_torch.object_index import ObjectIndex

if TYPE_CHECKING:
    from forebay_torch.loader_stats import StepLog

__all__ = ["FeedReporter", "feed_reporter"]

# Reports of one loop follow one another no faster.
_REPORT_INTERVAL_S = 5.0
_OFF_VARIABLE = "FOREBAY_FEED"
_NAME_VARIABLES = ("FOREBAY_JOB", "SLURM_JOB_NAME", "JOB_NAME")
# Datasets in datasets, such as a Subset of a MapDataset.
_MAX_NESTING = 8
_MAX_BUCKETS = 64
_MAX_NAME_CHARS = 200
_numbers = itertools.count(1)


class FeedReporter:
    """Reports one loop. A report is sent in the background, and nobody waits for it."""

    def __init__(self, client: Client, buckets: list[str], name: str | None) -> None:
        self._client = client
        self._buckets = buckets
        self._name = (name or _job_name())[:_MAX_NAME_CHARS]
        self._number = next(_numbers)
        # The first report comes soon, so that a loop that hangs in its first steps is seen.
        self._due = time.monotonic() + 1.0
        self._is_broken = False

    def __call__(self, log: StepLog, is_end: bool) -> None:
        """Reports the sums of the log if that is due."""
        now = time.monotonic()
        if self._is_broken or (now < self._due and not is_end):
            return
        self._due = now + _REPORT_INTERVAL_S
        try:
            report_feed(self._client, self._feed(log))
        except (ForebayError, OSError, RuntimeError):
            # A loop never fails because of its report.
            self._is_broken = True

    def _feed(self, log: StepLog) -> dict[str, Any]:
        stats, host = log.sums(), socket.gethostname()
        rank = (dist.group_rank() or (int(os.environ.get("RANK", "0") or 0), 1))[0]
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in host)
        return {
            "id": f"{plain[:64]}-{os.getpid()}-{self._number}",
            "name": self._name,
            "host": host[:_MAX_NAME_CHARS],
            "rank": rank,
            "buckets": self._buckets,
            "steps": stats.steps,
            "samples": stats.samples,
            "bytes": stats.bytes,
            "wait_s": stats.wait_s,
            "step_s": stats.step_s,
            "causes": dict(stats.causes),
        }


def feed_reporter(dataset: Any, name: str | None, feed: bool | None) -> FeedReporter | None:
    """A reporter for a loop over this dataset.

    None if it is off, by ``feed`` or by ``FOREBAY_FEED=0``, or if nothing of the dataset comes from a
    cluster.
    """
    is_on = os.environ.get(_OFF_VARIABLE, "") != "0" if feed is None else feed
    if not is_on:
        return None
    indexes = list(_indexes(dataset, 0))
    buckets = {bucket.uri: bucket.client for index in indexes for bucket in index.buckets}
    if not buckets:
        return None
    client: Client = next(iter(buckets.values()))
    return FeedReporter(client, sorted(buckets)[:_MAX_BUCKETS], name)


def _indexes(dataset: Any, depth: int) -> list[ObjectIndex]:
    """The listings of a dataset, and of those that it wraps."""
    if depth > _MAX_NESTING or not hasattr(dataset, "__dict__"):
        return []
    held = vars(dataset)
    found = [held[name] for name in ("_index", "_shards") if isinstance(held.get(name), ObjectIndex)]
    for name in ("dataset", "datasets", "_datasets", "_parts"):
        inner = held.get(name)
        for one in inner if isinstance(inner, (list, tuple)) else [inner]:
            if one is not None:
                found += _indexes(one, depth + 1)
    return found


def _job_name() -> str:
    for variable in _NAME_VARIABLES:
        if name := os.environ.get(variable):
            return name
    script = os.path.basename(sys.argv[0] if sys.argv else "")
    return os.path.splitext(script)[0] or "python"
