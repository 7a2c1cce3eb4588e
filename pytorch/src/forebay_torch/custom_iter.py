"""States of iterable datasets whose subclasses have an ``__iter__`` of their own.

Such an ``__iter__`` may make any number of samples of an object: lines of a file, packed tokens. What the
dataset counts by itself are objects, so a state of that would lose the rest of a file. The state here
is the number of samples that ``__iter__`` delivered in its pass; a pass that resumes makes them again and
drops them, as a StatefulDataLoader does with a dataset without a state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from forebay_torch import dist

__all__ = ["CustomIteration"]

_VERSION = 1


class _Delivered:
    """How many samples a pass has delivered, those before it was resumed included."""

    __slots__ = ("samples",)

    def __init__(self, samples: int) -> None:
        self.samples = samples


class CustomIteration:
    """The part of an iterable dataset that counts what an ``__iter__`` of a subclass delivers."""

    # How many samples the next pass drops, and the count of the latest one.
    _own_skip = 0
    _own_pass: _Delivered | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        owner = next(kind for kind in cls.__mro__ if "__iter__" in vars(kind))
        function: Any = vars(owner)["__iter__"]
        is_ours = owner.__module__.startswith("forebay_torch.")
        if is_ours or (owner is not cls and hasattr(function, "counts_samples")):
            return
        setattr(cls, "__iter__", _counting(function))
        for name, method in (("state_dict", _state_dict), ("load_state_dict", _load_state_dict)):
            if name not in vars(cls):
                setattr(cls, name, method)


def _counting(function: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterator[Any]]:
    """An ``__iter__`` that counts what this one delivers, unless a subclass has another."""

    @functools.wraps(function)
    def counting(self: Any) -> Iterator[Any]:
        if type(self).__iter__ is not counting:
            return iter(function(self))
        skip, self._own_skip = self._own_skip, 0
        made = self._own_pass = _Delivered(skip)
        return _delivered(function, self, made, skip)

    counting.counts_samples = True  # type: ignore[attr-defined]
    return counting


def _delivered(
    function: Callable[[Any], Iterable[Any]], dataset: Any, made: _Delivered, skip: int
) -> Iterator[Any]:
    samples = iter(function(dataset))
    try:
        for _ in islice(samples, skip):
            pass
        for sample in samples:
            made.samples += 1
            yield sample
    finally:
        if hasattr(samples, "close"):
            samples.close()


def _state_dict(self: Any, num_samples: int | None = None) -> dict[str, Any]:
    """How many samples this process's pass has delivered, as the state of a StatefulDataLoader.

    Raises:
        TypeError: Another process or a thread delivers them: only a StatefulDataLoader, which asks
            its workers, can determine which samples those were.
    """
    if num_samples is not None or not _is_delivered_here(self):
        raise TypeError(
            f"{type(self).__name__} has an __iter__ of its own, which may make any number of samples "
            "of an object: use a StatefulDataLoader, whose states are exact, or define state_dict() "
            "and load_state_dict()"
        )
    made = self._own_pass
    return {
        "forebay_iter": _VERSION,
        "class": type(self).__qualname__,
        "epoch": self._cursor.epoch,
        "order": self._fingerprint(),
        "samples": self._own_skip if made is None else made.samples,
        "shape": _shape(self),
    }


def _load_state_dict(self: Any, state: Mapping[str, Any]) -> None:
    """Makes the next pass of this process go on where the state says, by making the samples before
    that place again.

    Raises:
        ValueError: The state is of another class, of other data, or of another shape of loader.
    """
    owner = type(self).__name__
    if not isinstance(state, Mapping) or state.get("forebay_iter") != _VERSION:
        raise ValueError(f"{owner}: this is no state of a class with an __iter__ of its own")
    if (state["class"], state["order"]) != (type(self).__qualname__, self._fingerprint()):
        raise ValueError(
            f"{owner}: the state is of {state['class']}, or of other data or another order"
        )
    shape = _shape(self)
    if state["shape"] != shape:
        raise ValueError(
            f"{owner}: the state is of worker, workers, rank and ranks {state['shape']}, here are "
            f"{shape}; what an __iter__ of a subclass delivered is known for the same shape alone"
        )
    epoch, ranks = state["epoch"], self._rank_and_world()[1]
    part = self._cursor.part(ranks)
    if part is not None:
        self._cursor.resume_part(epoch, 0, {**part, "delivered": 0}, ranks)
    else:
        self._cursor.resume(epoch, 0, over=False)
    self.reset()
    self._own_pass, self._own_skip = None, state["samples"]


def _is_delivered_here(dataset: Any) -> bool:
    """Whether this process, rather than workers of it, delivers the samples."""
    if dist.worker().is_process:
        return True
    try:
        dataset._cursor.counted(None)
    except ValueError:
        return False
    return True


def _shape(dataset: Any) -> list[int]:
    """Which worker of how many this is, and which rank; and whether it is a process of its own."""
    worker = dist.worker()
    return [worker.id, worker.total, *dataset._rank_and_world(), int(worker.is_process)]
