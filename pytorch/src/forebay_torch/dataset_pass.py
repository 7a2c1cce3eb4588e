"""Passes over a dataset: what one delivers, where it begins, and how far it is."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Earlier", "Pass", "Position", "ResumePoint"]

Earlier = tuple[tuple[int, ...], ...]


class ResumePoint(NamedTuple):
    """The point at which the next pass begins, if its epoch is this one.

    Attributes:
        at: Position in the epoch's order.
        earlier: Numbers of the passes of the epoch that were left, where the dataset needs them.
        skip: Samples that this worker has delivered from there on.
        load: The number of the load, which one pass alone may take; 0 if this process has its own.
        total: How many entries the epoch has; 0 for all that the dataset has.
    """

    epoch: int
    at: int
    earlier: Earlier = ()
    skip: int = 0
    load: int = 0
    total: int = 0


class Position(NamedTuple):
    """The start of the latest pass, or of the next one if none is under way.

    Attributes:
        earlier: Numbers of the passes of the epoch before it.
        workers: How many workers or threads deliver it, 0 for the loop itself.
        is_split: Whether a framework shares its samples among ranks.
        block: How many samples in a row one worker delivers.
        total: How many entries the epoch has; 0 for all that the dataset has.
    """

    epoch: int
    base: int
    earlier: Earlier
    workers: int
    is_split: bool
    block: int
    total: int


class Pass:
    """One pass over a dataset in this process.

    Attributes:
        epoch: Its epoch.
        base: The position in the epoch's order where all ranks began.
        earlier: Numbers of the passes of the epoch before this one.
        skip: How many of its samples this worker had delivered before.
        delivered: How many it has delivered, those included.
        is_split: Whether a framework shares its samples among ranks.
        block: How many samples in a row one worker delivers.
        threads: How many threads deliver it, 0 for none but the loop's.
        total: How many entries the epoch has; 0 for all that the dataset has.
    """

    __slots__ = (
        "epoch", "base", "earlier", "skip", "delivered", "is_split", "block", "threads",
        "total", "_started_by", "_mark", "__weakref__",
    )  # fmt: skip

    def __init__(self) -> None:
        self.epoch = self.base = self.skip = self.delivered = 0
        self.earlier: Earlier = ()
        self.is_split = False
        self.block = 1
        self.threads = 0
        self.total = 0
        # The process that started it.
        self._started_by = 0
        # Samples delivered when another epoch was chosen for the next pass; -1 for never.
        self._mark = -1

    def deliver(self) -> None:
        """Counts one sample more."""
        self.delivered += 1

    @property
    def is_current(self) -> bool:
        """Whether it has gone on since another epoch was chosen, if one was."""
        return self._mark != self.delivered
