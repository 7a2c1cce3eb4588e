"""The threads of one pass over a loader, and what they have made."""

from __future__ import annotations

import atexit
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

from forebay.spans import carried
from forebay_torch import dist
from forebay_torch.batch_timing import BatchRecord
from forebay_torch.policy import stopped
from forebay_torch.prefetcher import Prefetcher

__all__ = ["Made", "ThreadEpoch"]

# A batch, and how it was made; or the cause of its time, if that is short.
Made = tuple[Any, BatchRecord | str]
# How long the end of the program waits for a request under way.
_EXIT_S = 5.0
_tags = itertools.count(1)


class ThreadEpoch:
    """One pass over a loader: its threads, and what they have made.

    Batches are numbered. Threads that share ``jobs`` number them as they take them; of ``own``
    sources, batch ``j`` of source ``k`` of ``n`` is number ``j * n + k``, which is the order in
    which sources take turns.
    """

    def __init__(
        self,
        threads: int,
        prefetch: int,
        ordered: bool,
        *,
        jobs: Iterator[Callable[[], Made]] | None = None,
        own: list[Iterator[Made]] | None = None,
        ahead: Prefetcher | None = None,
    ) -> None:
        # The source that jobs read from. It outlives the last job that is taken: others may be running.
        self._ahead = ahead
        self._jobs = jobs
        self._own = own or []
        self._ordered = ordered
        self._prefetch = prefetch
        self._room = threads * prefetch
        self._changed = threading.Condition()
        # Number -> what was made, or why not; all under the lock of _changed.
        self._made: dict[int, Made | BaseException] = {}
        self._asked = 0
        self._next = 0
        self._taken = 0
        # Of own sources: how many batches each has made, and which are at their ends.
        self._counts = [0] * len(self._own)
        self._ended = [False] * max(1, len(self._own))
        self._closed = False
        if ahead is not None and threads > 1:
            ahead.on_first_taken(self._wake)
        self._threads: list[threading.Thread] = []
        if threads:
            tag = -1 - next(_tags)
            count = len(self._own) or threads
            for number in range(count):
                worker = dist.Worker(number, count, tag, False)
                # Batches belong to the span that is current where the pass begins.
                run, name = carried(self._run), f"forebay-loader-{number}"
                thread = threading.Thread(target=run, args=(worker,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            _live.add(self)

    def next(self) -> Made:
        """The next batch; waits for it."""
        if not self._threads and not self._closed:
            return next(self._own[0]) if self._jobs is None else _made_by(next(self._jobs))
        with self._changed:
            while True:
                if self._closed:
                    raise RuntimeError("the loader was given a state while this loop went over it")
                number = self._available()
                if number is not None:
                    made = self._made.pop(number)
                    self._taken += 1
                    self._changed.notify_all()
                    break
                if self._is_over():
                    raise StopIteration
                self._changed.wait()
        if isinstance(made, BaseException):
            raise made
        return made

    def close(self) -> None:
        """Stops the threads, each after the batch that it is at."""
        with self._changed:
            self._closed = True
            # The thread that takes the next job holds this lock, so that none is being taken now.
            if isinstance(self._jobs, Generator):
                self._jobs.close()
            self._made.clear()
            self._changed.notify_all()
        if self._ahead is not None:
            self._ahead.close()

    def join(self, deadline: float) -> None:
        """Waits for the threads until ``deadline`` of the monotonic clock."""
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _available(self) -> int | None:
        """The number of a batch that may be handed out now."""
        if not self._ordered:
            return next(iter(self._made), None)
        sources = len(self._own)
        while sources:
            turn, source = divmod(self._next, sources)
            to_come = turn < self._counts[source] or not self._ended[source]
            if to_come or (all(self._ended) and not self._made):
                break
            self._next += 1
        if self._next not in self._made:
            return None
        self._next += 1
        return self._next - 1

    def _is_over(self) -> bool:
        if self._own:
            return all(self._ended) and not self._made
        return self._ended[0] and self._taken == self._asked

    def _run(self, worker: dist.Worker) -> None:
        with dist.as_worker(worker):
            if self._own:
                self._run_own(worker.id)
            else:
                self._run_shared()

    def _run_shared(self) -> None:
        assert self._jobs is not None
        while True:
            with self._changed:
                while not self._closed and self._is_full():
                    self._changed.wait()
                if self._closed or self._ended[0]:
                    return
                number = self._asked
                try:
                    job = next(self._jobs)
                except StopIteration:
                    self._ended[0] = True
                    self._changed.notify_all()
                    return
                except BaseException as error:
                    # The sampler failed: nothing comes behind this.
                    self._ended[0] = True
                    self._made[number] = error
                    self._asked += 1
                    self._changed.notify_all()
                    return
                self._asked += 1
            try:
                made: Made | BaseException = _made_by(job)
            except BaseException as error:
                made = error
            self._put(number, made)

    def _is_full(self) -> bool:
        """Whether as many batches as may be are made or in the making."""
        # The first batch, which the loop waits for, is not kept waiting by those behind it.
        is_first = self._ahead is not None and self._ahead.is_first_pending
        alone = is_first and self._taken == 0 and not self._made
        return self._asked - self._taken >= (1 if alone else self._room)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run_own(self, source: int) -> None:
        items = self._own[source]
        while True:
            with self._changed:
                while not self._closed and self._waiting(source) >= self._prefetch:
                    self._changed.wait()
                if self._closed:
                    return
            number = self._counts[source] * len(self._own) + source
            try:
                made: Made | BaseException = next(items)
            except StopIteration:
                with self._changed:
                    self._ended[source] = True
                    self._changed.notify_all()
                return
            except BaseException as error:
                # A generator that raised is at its end.
                made = error
            self._counts[source] += 1
            self._put(number, made)

    def _waiting(self, source: int) -> int:
        return sum(number % len(self._own) == source for number in self._made)

    def _put(self, number: int, made: Made | BaseException) -> None:
        with self._changed:
            if not self._closed:
                self._made[number] = made
                self._changed.notify_all()


def _made_by(job: Callable[[], Made]) -> Made:
    """Runs a job and returns its result. A StopIteration of the dataset or of ``collate_fn`` is an
    error of its batch, not the end of the pass."""
    try:
        return job()
    except StopIteration as error:
        raise stopped("the dataset or collate_fn", "a batch of a ThreadLoader") from error


# A pass that was closed stays in it as long as a thread of it runs, which refers to it.
_live: weakref.WeakSet[ThreadEpoch] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Threads that come back from Rust or C++ while Python is taken apart would end the process badly."""
    deadline = time.monotonic() + _EXIT_S
    running = list(_live)
    for made in running:
        made.close()
    for made in running:
        made.join(deadline)
