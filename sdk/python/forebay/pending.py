"""Objects that come while their reader does something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay import _core
from forebay.errors import ForebayError
from forebay.spans import NO_SPAN, CallSpan

__all__ = ["PendingMany", "PendingObject"]

Content = memoryview | bytes | ForebayError


class PendingMany:
    """Objects on their way; made by ``Client.submit_many``. Only the process that asked has them."""

    __slots__ = ("_pending", "_as_bytes", "_span")

    def __init__(
        self, pending: _core.PendingBatch | None, as_bytes: bool, span: CallSpan = NO_SPAN
    ) -> None:
        self._pending = pending
        self._as_bytes = as_bytes
        self._span = span

    def result(self) -> Sequence[Content]:
        """Waits for the contents, in the order asked for; in place of one that cannot be had, why.

        Raises:
            ForebayError: The cluster does not answer at all.
            RuntimeError: They were taken before, or were asked for by the parent process.
        """
        if self._pending is None:
            return []
        with self._span as span:
            answers = self._pending.result()
            span.received(answers)
        return contents(answers, self._as_bytes)


class PendingObject:
    """One object on its way, as ``bytes``. Only the process that asked has it; dropped, its request is."""

    __slots__ = ("_pending", "_span")

    def __init__(self, pending: _core.PendingObject, span: CallSpan = NO_SPAN) -> None:
        self._pending = pending
        self._span = span

    def is_done(self) -> bool:
        """Whether nobody has to wait for it."""
        return self._pending.is_done()

    def result(self) -> bytes:
        """Waits for the whole content.

        Raises:
            ForebayError: It cannot be had.
            RuntimeError: It was taken before, or was asked for by the parent process.
        """
        with self._span as span:
            content = self._pending.result()
            span.count(bytes=len(content))
        return content


def contents(answers: list[Any], as_bytes: bool) -> Sequence[Content]:
    """Converts the answers of the native core to the types that users get."""
    if as_bytes:
        return answers
    return [a if isinstance(a, ForebayError) else memoryview(a) for a in answers]
