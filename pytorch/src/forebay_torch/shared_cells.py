"""Numbers that a process shares with the workers of its own loaders, and with no other process.

A forked or spawned process gets a view of the same memory. It uses that view only while it is a
worker of a loader of the process that owns the numbers. A rank that was forked, a copy, and an
object that came out of a pickle own numbers of their own. All numbers of a process lie in a few
arenas of shared memory, so that any number of datasets needs a handful of descriptors.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from multiprocessing.context import get_spawning_popen
from typing import Any, Self

import torch

from forebay_torch import dist

__all__ = ["SharedCells", "changing"]

_CELL_BYTES = 8
# 512 KiB of addresses; only cells that are used take memory.
_ARENA_CELLS = 1 << 16
# Held while cells are made or changed, and over a fork, so that a child never finds it locked. Reentrant:
# a finalizer that counts can run in the thread that holds it.
changing = threading.RLock()


class _Arena:
    """Shared memory that one process cuts into blocks; blocks are never used a second time."""

    def __init__(self, memory: torch.Tensor | None = None) -> None:
        self.pid = os.getpid()
        # Another process cuts the memory that came with a spawned process.
        self.used = 0 if memory is None else _ARENA_CELLS
        if memory is None:
            # New pages are zeros. Nothing is computed here: a forked process hangs in the threads of
            # OpenMP that its parent had.
            size = _ARENA_CELLS * _CELL_BYTES
            storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
            memory = torch.empty(0, dtype=torch.int64)
            memory.set_(storage, 0, (_ARENA_CELLS,), (1,))
        self.memory = memory

    def __reduce__(self) -> tuple[Any, ...]:
        return _Arena, (self.memory,)


_arena: _Arena | None = None


def _allocate(count: int) -> tuple[_Arena, int]:
    """A block of zeros: its arena, and its first cell. The caller holds ``changing``."""
    global _arena
    # A forked process must not cut the arena that its parent cuts.
    if _arena is None or _arena.pid != os.getpid() or _arena.used + count > _ARENA_CELLS:
        _arena = _Arena()
    start = _arena.used
    _arena.used += count
    return _arena, start


class SharedCells:
    """A fixed number of 8-byte cells, made when they are first needed.

    Copies and pickles hold what a subclass keeps in its attributes, but never the memory. Only a
    process that is being spawned gets the memory too: it may be a worker.
    """

    def __init__(self, count: int, kind: type[Any]) -> None:
        """No memory yet.

        Args:
            kind: The ctypes type of a cell, 8 bytes long.
        """
        self._count = count
        self._kind = kind
        self._owner_pid = os.getpid()
        self._block: tuple[_Arena, int] | None = None
        self._view: Any = None
        _live.add(self)

    @property
    def is_follower(self) -> bool:
        """Whether this process is a worker of a loader of the process that owns the cells.

        Any other process that finds itself with the cells of another one takes none of them: it
        owns new ones from then on.
        """
        if self._owner_pid == os.getpid():
            return False
        if self._block is not None and dist.is_worker_of(self._owner_pid):
            return True
        self._owner_pid = os.getpid()
        self._block = self._view = None
        return False

    def shared_cells(self) -> Any:
        """The cells as a ctypes array; the owner makes them on first use."""
        is_follower = self.is_follower
        if self._view is None:
            with changing:
                self._make(is_follower)
        return self._view

    def _make(self, is_follower: bool) -> None:
        """The view of the cells, and the cells, unless another thread has made them."""
        if self._view is not None:
            return
        if self._block is None and sys.is_finalizing():
            # A pass that was left counts samples at the end of the program. No process will share them, and
            # torch aborts when it is asked for memory by then.
            view = (self._kind * self._count)()
            self._fill(view)
        else:
            is_new = self._block is None
            if self._block is None:
                assert not is_follower
                self._block = _allocate(self._count)
            arena, start = self._block
            address = arena.memory.data_ptr() + start * _CELL_BYTES
            view = (self._kind * self._count).from_address(address)
            if is_new:
                self._fill(view)
        self._view = view

    def existing_cells(self) -> Any:
        """As ``shared_cells``, or None if no process needed them yet."""
        return self.shared_cells() if self.is_follower or self._block is not None else None

    def _prepare(self) -> None:
        """Makes the cells, before this process forks or spawns another one."""
        if not self.is_follower:
            self.shared_cells()

    def _fill(self, cells: Any) -> None:
        """Writes what the owner knows into new cells."""

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if get_spawning_popen() is not None and not self.is_follower:
            self._prepare()
            state["_block"], state["_owner_pid"] = self._block, self._owner_pid
        else:
            state["_block"] = state["_owner_pid"] = None
        state["_view"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._owner_pid is None:
            self._owner_pid = os.getpid()
        _live.add(self)

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        state = {**self.__dict__, "_block": None, "_view": None, "_owner_pid": None}
        twin.__setstate__(state)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()


_live: weakref.WeakSet[SharedCells] = weakref.WeakSet()


def _before_fork() -> None:
    """Creates the cells that a worker shares with this process before the worker is forked."""
    changing.acquire()
    for shared in list(_live):
        shared._prepare()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=changing.release, after_in_child=changing.release
    )
