"""Saves in the background, one at a time, whose failures are not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["InFlight", "SaveFuture"]


class SaveFuture(Future[Any]):
    """The outcome of a save: the URI of what was saved, or the exception that prevented it.

    That of a distributed save gives what torch gives, its metadata.
    """

    def __init__(self) -> None:
        super().__init__()
        self._was_raised = False
        self._lock = threading.Lock()
        self._steps: list[Callable[[], None]] | None = []

    def complete(self, save: Callable[[], Any]) -> None:
        """Runs ``save`` and the callbacks after it, then publishes the outcome."""
        try:
            result = save()
            while (step := self._next_step()) is not None:
                step()
        except BaseException as error:
            with self._lock:
                self._steps = [] if self._steps is None else self._steps
            self.set_exception(error)
        else:
            self.set_result(result)

    def _next_step(self) -> Callable[[], None] | None:
        with self._lock:
            if self._steps:
                return self._steps.pop(0)
            self._steps = None
            return None

    def then(self, step: Callable[[], None]) -> bool:
        """Whether ``step`` was taken, to be run after a success; not when that was before."""
        with self._lock:
            if self._steps is None:
                return False
            self._steps.append(step)
            return True

    def result(self, timeout: float | None = None) -> Any:
        """The URI, as soon as all of it is stored.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: It is not stored yet.
            Exception: The error of the save.
        """
        try:
            return super().result(timeout)
        finally:
            self._was_raised = self.done()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the save and returns its error; None if it succeeded."""
        error = super().exception(timeout)
        self._was_raised = True
        return error

    def raise_if_unreported(self) -> None:
        """Waits for the end, and raises its error unless a caller got it before."""
        if not self._was_raised:
            self.result()


class InFlight:
    """At most one save at a time. A program that ends waits for the one that is under way."""

    def __init__(self) -> None:
        self._save: SaveFuture | None = None
        self._thread: threading.Thread | None = None

    def start(self, save: Callable[[], str]) -> SaveFuture:
        """Runs ``save`` in a thread, after the one before has ended.

        Raises:
            Exception: That save failed, and no caller got the error; nothing is started then.
        """
        self.wait()
        future = SaveFuture()

        future.set_running_or_notify_cancel()
        # No daemon: the interpreter waits for it at its end.
        self._thread = threading.Thread(target=future.complete, args=[save], name="forebay-save")
        self._save = future
        self._thread.start()
        return future

    def follow(self, save: Future[Any]) -> SaveFuture:
        """Takes a save that was started elsewhere, after ``wait()``, as the one under way."""
        future = SaveFuture()

        self._save = future
        save.add_done_callback(lambda done: future.complete(done.result))
        return future

    def after(self, step: Callable[[], None]) -> None:
        """Runs ``step`` when the save under way has succeeded, and not at all if it fails; at once
        if there is none. An error of ``step`` is an error of that save."""
        if self._save is None or not self._save.then(step):
            step()

    def wait(self) -> None:
        """Waits for the save under way.

        Raises:
            Exception: It failed, and no caller got the error yet.
        """
        save, self._save = self._save, None
        if save is not None:
            save.raise_if_unreported()

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process has saves of its own.
        return InFlight, ()
