"""Threads that run blocking calls for a loop of asyncio, and the base of the classes that use them."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from forebay import _core
from forebay.spans import carried

if TYPE_CHECKING:
    from typing import ParamSpec

    P = ParamSpec("P")

__all__ = ["Threads", "Wrapped"]

S = TypeVar("S")
T = TypeVar("T")


class Threads:
    """A pool of threads that run blocking calls; created on demand, in each process.

    Args:
        count: Most calls that wait at once; further ones wait for their turn.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pid = 0
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the function in a thread; the call is cancelled with the task that awaits it."""
        if self._pool is None or self._pid != os.getpid():
            self._pool, self._pid = ThreadPoolExecutor(self.count, "forebay-aio"), os.getpid()
        cancel = _core.Cancel()
        work = partial(cancel.run, carried(function), *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except asyncio.CancelledError:
            cancel.cancel()
            raise

    async def iterate(
        self, make: Callable[[], Iterable[T]], per_call: int = 1
    ) -> AsyncIterator[T]:
        """Each item of an iterable that waits, so many for one change of threads."""
        iterator: Iterator[T] = iter(await self.call(make))
        while items := await self.call(lambda: list(itertools.islice(iterator, per_call))):
            for item in items:
                yield item

    def close(self) -> None:
        """Lets the threads go; calls that wait for their turn are cancelled."""
        if self._pool is not None and self._pid == os.getpid():
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Threads, (self.count,)


class Wrapped(Generic[S]):
    """A blocking object and the threads in which it may wait."""

    __slots__ = ("_sync", "_threads")

    def __init__(self, sync: S, threads: Threads) -> None:
        self._sync = sync
        self._threads = threads

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Wrapped):
            return NotImplemented
        return type(self) is type(other) and bool(self._sync == other._sync)

    def __hash__(self) -> int:
        return hash((type(self), self._sync))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._sync, self._threads)

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"
