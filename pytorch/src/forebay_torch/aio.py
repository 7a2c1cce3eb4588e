"""Datasets and loaders in loops of asyncio."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from forebay.aio import Threads

__all__ = ["AsyncItems", "AsyncSamples"]

# Limits of one switch between threads: samples, and seconds in which they are collected.
_MAX_SAMPLES_PER_SWITCH = 64
_MAX_SWITCH_S = 0.002
_THREADS = Threads(16)


class AsyncSamples:
    """``async for`` over what ``for`` gives, in the same order.

    The samples are made in a thread of the loop's own. When its task is cancelled so is the request
    that is under way.
    """

    def __aiter__(self: Iterable[Any]) -> AsyncIterator[Any]:
        return _iterate(self)


class AsyncItems:
    """Samples by number, awaited."""

    async def aget(self, index: Any) -> Any:
        """``self[index]``; the loop goes on meanwhile."""
        return await _THREADS.call(lambda: self[index])  # type: ignore[index]

    async def aget_many(self, indices: Sequence[int]) -> list[Any]:
        """The samples of a batch, by one request per owning target."""
        samples: list[Any]
        samples = await _THREADS.call(self.__getitems__, indices)  # type: ignore[attr-defined]
        return samples


async def _iterate(samples: Iterable[Any]) -> AsyncIterator[Any]:
    # One thread of its own: a generator is not for several.
    threads = Threads(1)
    try:
        iterator = await threads.call(lambda: iter(samples))
        while True:
            some, end = await threads.call(_some, iterator)
            for sample in some:
                yield sample
            if isinstance(end, StopIteration):
                return
            if end is not None:
                raise end
    finally:
        threads.close()


def _some(iterator: Iterator[Any]) -> tuple[list[Any], Exception | None]:
    """A few samples, and what ended the iteration if anything did: samples before it are kept."""
    samples: list[Any] = []
    late = time.monotonic() + _MAX_SWITCH_S
    try:
        while len(samples) < _MAX_SAMPLES_PER_SWITCH:
            samples.append(next(iterator))
            if time.monotonic() > late:
                break
    except Exception as error:
        return samples, error
    return samples, None
