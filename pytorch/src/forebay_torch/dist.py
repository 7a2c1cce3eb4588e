"""The rank of this process, the number of ranks, and the worker of a loader that it is."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.utils.data import get_worker_info

from forebay_torch import frameworks

__all__ = [
    "Worker",
    "as_worker",
    "checked_rank",
    "checked_replication",
    "group_rank",
    "is_same_loader",
    "is_worker_of",
    "loader_number",
    "ranks",
    "ranks_to_pickle",
    "replicated",
    "worker",
]

_thread = threading.local()


class Worker(NamedTuple):
    """One of the processes or threads that deliver the samples of a rank.

    Attributes:
        id: Its number, from 0.
        total: How many there are.
        tag: The same for all workers of one pass of a loader, but for a loader whose workers live
            on: those have one tag for all their passes. -1 is the training process itself.
        is_process: Whether it is a process of its own.
    """

    id: int
    total: int
    tag: int
    is_process: bool


def worker() -> Worker:
    """The worker that calls; the only one of 1 outside of any loader."""
    own = getattr(_thread, "worker", None)
    if isinstance(own, Worker):
        return own
    info = get_worker_info()
    if info is None:
        return Worker(0, 1, -1, False)
    return Worker(info.id, info.num_workers, info.seed - info.id, True)


def is_worker_of(pid: int) -> bool:
    """Whether this process is a worker of a DataLoader of process ``pid``.

    A rank that ``pid`` forked or spawned is not, nor is a worker of such a rank.
    """
    parent = multiprocessing.parent_process()
    return parent is not None and parent.pid == pid and get_worker_info() is not None


def loader_number() -> int:
    """The number of the first worker process of the iterator of a DataLoader that this one belongs
    to, among the processes that their parent made: later iterators have larger numbers."""
    identity: tuple[int, ...] = getattr(multiprocessing.current_process(), "_identity", ())
    info = get_worker_info()
    return (identity[-1] if identity else os.getpid()) - (0 if info is None else info.id)


def is_same_loader(mine: int, other: int) -> bool:
    """Whether two numbers of ``loader_number`` are of one iterator.

    Its workers are made one after the other. They have different numbers if another thread made
    processes meanwhile, but those of two iterators are farther apart.
    """
    return abs(mine - other) < worker().total


@contextmanager
def as_worker(identity: Worker) -> Iterator[None]:
    """Makes the thread that calls this worker meanwhile."""
    before = getattr(_thread, "worker", None)
    _thread.worker = identity
    try:
        yield
    finally:
        _thread.worker = before


def group_rank() -> tuple[int, int] | None:
    """Rank and size of the process group, where there is one."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return None


def ranks(owner: str, given: tuple[int, int] | None) -> tuple[int, int]:
    """Rank and size that the samples are shared by.

    Args:
        given: Rank and size as a user gave them; None for those of the process group.

    Raises:
        ValueError: A user gave them, and a framework shares the samples among ranks as well.
    """
    splitter = frameworks.splitter()
    if splitter is None:
        return given or group_rank() or (0, 1)
    if given is not None and given[1] > 1:
        raise ValueError(
            f"{owner}: {splitter.name} shares the samples among the ranks, and rank={given[0]}, "
            f"world_size={given[1]} would share them a second time; leave out rank and world_size"
        )
    return 0, 1


def ranks_to_pickle(given: tuple[int, int] | None) -> tuple[int, int] | None:
    """Rank and size for a copy that goes to a spawned worker, which has no process group."""
    return given or ((0, 1) if frameworks.splitter() else group_rank())


def checked_rank(owner: str, rank: int | None, world_size: int | None) -> tuple[int, int] | None:
    """Rank and size as a user gave them, None for neither."""
    if rank is None or world_size is None:
        if rank is not None or world_size is not None:
            raise TypeError(f"{owner}: rank and world_size go together")
        return None
    if not 0 <= rank < world_size:
        raise ValueError(f"{owner}: rank {rank} is not one of {world_size}")
    return rank, world_size


def checked_replication(owner: str, replication: int) -> int:
    """How many ranks read the same, as a user gave it."""
    if replication < 1:
        raise ValueError(f"{owner}: replication must be at least 1, not {replication}")
    return replication


def replicated(owner: str, ranks: tuple[int, int], replication: int) -> tuple[int, int]:
    """Rank and size among groups of so many ranks that read the same."""
    rank, world_size = ranks
    if world_size % replication:
        raise ValueError(f"{owner}: {world_size} ranks are no groups of {replication}")
    return rank // replication, world_size // replication
