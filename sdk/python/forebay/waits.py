"""The waits of threads for the cluster, by what they waited for, and the feeds of training loops."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay import _core

if TYPE_CHECKING:
    from forebay.client import Client

__all__ = ["Wait", "drop", "feeds", "keep", "observe", "report_feed", "take"]

_thread = threading.local()


class Wait(NamedTuple):
    """A wait of one thread for one call, in seconds.

    Attributes:
        start: When it began, on the clock of ``time.perf_counter``.
        end: When it ended.
        cold: Time in which a target waited for the cloud.
        disk: Time in which a target waited for its disk.
        queue: Time in which the request waited at a target, or for one that was busy.
        network: Time in which requests and bytes were on the network.
        client: Time in which this process decoded and copied.
    """

    start: float
    end: float
    cold: float
    disk: float
    queue: float
    network: float
    client: float


def observe() -> None:
    """Begins to keep the waits of all threads of this process, and of processes that it forks.

    Each thread keeps its own until it takes them; their number is bounded.
    """
    _core.observe_waits()


def take() -> tuple[list[Wait], int]:
    """Takes the waits of this thread, and the bytes that it received since it took the last ones."""
    taken, received = _core.take_waits(time.perf_counter())
    waits = [Wait(*wait) for wait in taken]
    kept = getattr(_thread, "kept", None)
    if kept is not None:
        del _thread.kept
        waits = sorted(kept[0] + waits)
        received += kept[1]
    return waits, received


def drop() -> None:
    """Drops the waits of this thread so far."""
    _core.take_waits(0.0)
    if hasattr(_thread, "kept"):
        del _thread.kept


def keep(waits: list[Wait], received: int = 0) -> None:
    """Gives this thread waits that another one had for it, or that it took too early."""
    before, count = getattr(_thread, "kept", ([], 0))
    _thread.kept = (before + waits, count + received)


def report_feed(client: Client, feed: dict[str, Any]) -> None:
    """Reports the feed of a training loop to the cluster, in the background.

    Nothing is raised if the cluster does not reply; the next report replaces a lost one.

    Args:
        feed: The fields of ``PUT /api/v1/feeds/{ID}``.
    """
    client._native.report_feed(json.dumps(feed))


def feeds(client: Client) -> list[dict[str, Any]]:
    """The feeds that loops reported within the last minutes, as the cluster shows them."""
    answer: list[dict[str, Any]] = json.loads(client._native.feeds())["feeds"]
    return answer
