"""Spans of OpenTelemetry for the calls of this package.

A call is traced if a span of the program is current and recording when the call begins. The call then has
a span of its own, a child of that one, made by the program's tracer provider. Its requests carry the span
as ``traceparent``, so that the spans of the cluster's nodes are its children. Nothing here imports
OpenTelemetry: a program with a current span has imported it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from forebay import _core
from forebay._version import __version__
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "NO_SPAN",
    "CallSpan",
    "SpanIds",
    "WorkerPass",
    "batch_span",
    "begin_worker_pass",
    "call_span",
    "carried",
    "inherit_span",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_API = "opentelemetry.trace"
_SAMPLED = 1

# Returns the span of another process that the calls of this one belong to; None in most processes.
_inherited: Callable[[], SpanIds | None] | None = None


class SpanIds(NamedTuple):
    """The ids of a span, by which requests of another process can be its children.

    Attributes:
        trace: Id of the trace, 16 bytes as a number.
        span: Id of the span, 8 bytes as a number.
        flags: 1 if the span is sampled, else 0.
    """

    trace: int
    span: int
    flags: int

    @classmethod
    def of(cls, span: Any) -> SpanIds:
        """The ids of a span of OpenTelemetry."""
        context = span.get_span_context()
        return cls(context.trace_id, context.span_id, context.trace_flags & _SAMPLED)

    def traceparent(self) -> str | None:
        """The value of the header; None for a span that is not valid."""
        if not self.trace or not self.span:
            return None
        return f"00-{self.trace:032x}-{self.span:016x}-{self.flags:02x}"


class CallSpan:
    """The span of a call; this class is that of a call without one, and does nothing.

    As a context manager it surrounds the whole call. A call that goes on later surrounds each of its
    parts with ``requests()``, and ends the span by ``end()`` or ``follow()``.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        pass

    def requests(self) -> AbstractContextManager[Any]:
        """Requests that are sent in this block carry the span. An exception of the block ends it."""
        return self

    def count(self, **counts: int) -> None:
        """Sets counts such as ``bytes``."""

    def received(self, answers: Iterable[Any]) -> None:
        """Counts bytes and failures of answers, each of which is a buffer or an exception."""

    def follow(self, items: Iterator[T]) -> Iterator[T]:
        """The same items; the span ends with them, or when nobody asks for more."""
        return items

    def end(self, error: BaseException | None = None) -> None:
        """Ends the span, which then has failed if there is an error; later calls do nothing."""

    def drop(self) -> None:
        """Makes the span one that is not exported."""


NO_SPAN = CallSpan()


class _ParentedCall(CallSpan):
    """A call whose requests are children of this span, which may be one of another process."""

    __slots__ = ("_parent", "_before")

    def __init__(self, parent: str | None) -> None:
        self._parent = parent
        self._before: str | None = None

    def __enter__(self) -> Self:
        self._before = _core.swap_span_parent(self._parent)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        _core.swap_span_parent(self._before)

    @contextlib.contextmanager
    def requests(self) -> Iterator[None]:
        before = _core.swap_span_parent(self._parent)
        try:
            yield
        finally:
            _core.swap_span_parent(before)


class _TracedCall(_ParentedCall):
    """A call with a span of its own."""

    __slots__ = ("_trace", "_span", "_is_over")

    def __init__(self, trace: Any, span: Any) -> None:
        super().__init__(SpanIds.of(span).traceparent())
        self._trace = trace
        self._span = span
        self._is_over = False

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        self.end(error)

    @contextlib.contextmanager
    def requests(self) -> Iterator[None]:
        with super().requests():
            try:
                yield
            except BaseException as error:
                self.end(error)
                raise

    def count(self, **counts: int) -> None:
        for name, number in counts.items():
            self._span.set_attribute(f"forebay.{name}", number)

    def received(self, answers: Iterable[Any]) -> None:
        failed = size = 0
        for answer in answers:
            if isinstance(answer, BaseException):
                failed += 1
            else:
                size += len(answer)
        self.count(bytes=size, failed=failed)

    def follow(self, items: Iterator[T]) -> Iterator[T]:
        try:
            yield from items
        except GeneratorExit:
            self.end()
            raise
        except BaseException as error:
            self.end(error)
            raise
        self.end()

    def end(self, error: BaseException | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if error is not None:
            # Not its message, in which an endpoint may have a password.
            kind = type(error).__name__
            self._span.set_attribute("error.type", kind)
            if isinstance(error, ForebayError) and error.request_id:
                self._span.set_attribute("forebay.request_id", error.request_id)
            self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, kind))
        self._span.end()

    def drop(self) -> None:
        # A span that does not end is not exported.
        self._is_over = True


class _TracedBatch(CallSpan):
    __slots__ = ("_call", "_current")

    def __init__(self, trace: Any, span: Any) -> None:
        self._call = _TracedCall(trace, span)
        self._current = trace.use_span(span, record_exception=False, set_status_on_exception=False)

    def __enter__(self) -> Self:
        self._current.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._current.__exit__(None, None, None)
        if isinstance(error, StopIteration):
            # The end of a pass is no batch.
            self._call.drop()
        self._call.end(error)

    def count(self, **counts: int) -> None:
        self._call.count(**counts)

    def drop(self) -> None:
        self._call.drop()


def call_span(
    name: str, bucket: str, object_name: str | None = None, objects: int | None = None
) -> CallSpan:
    """The span of a call that begins now.

    Args:
        name: Name of the kind of call, such as ``forebay.get``.
        bucket: URI of the bucket; of several, with commas between them.
        object_name: The object that the call is about.
        objects: The number of objects, for a call about several.
    """
    # Before anything else: most programs have no spans.
    if _API not in sys.modules or (trace := _tracing()) is None:
        ids = _inherited() if _inherited is not None else None
        return NO_SPAN if ids is None else _ParentedCall(ids.traceparent())
    attributes: dict[str, Any] = {"forebay.bucket": bucket}
    if object_name is not None:
        attributes["forebay.object"] = object_name
    if objects is not None:
        attributes["forebay.objects"] = objects
    tracer = trace.get_tracer("forebay", __version__)
    span = tracer.start_span(name, kind=trace.SpanKind.CLIENT, attributes=attributes)
    return _TracedCall(trace, span)


def batch_span() -> CallSpan:
    """The span of a batch that a loader makes now, as a context manager: it is current in its block."""
    trace = _tracing()
    if trace is None:
        return NO_SPAN
    tracer = trace.get_tracer("forebay", __version__)
    return _TracedBatch(trace, tracer.start_span("forebay.loader_batch"))


class WorkerPass:
    """The spans of the worker processes of a loader during one pass: one for each worker.

    They are made in the process of the loop, whose tracer provider exports them. The workers' requests
    are children of them by their ids.
    """

    def __init__(self, trace: Any, workers: int) -> None:
        self._trace = trace
        self._tracer = trace.get_tracer("forebay", __version__)
        self._spans = [
            self._tracer.start_span("forebay.loader_worker", attributes={"forebay.worker": number})
            for number in range(workers)
        ]
        # Of the wall clock, at the zero of the clock of records.
        self._zero_ns = time.time_ns() - time.perf_counter_ns()

    def ids(self) -> list[SpanIds]:
        """The ids of the spans, in the order of the workers."""
        return [SpanIds.of(span) for span in self._spans]

    def batch(
        self, worker: int, start: float, end: float, *, samples: int, size: int, wait_s: float
    ) -> None:
        """Makes the span of a batch that a worker has made.

        Args:
            worker: The worker's number.
            start: When its making began, on the clock of ``time.perf_counter``.
            end: When it was made.
            samples: Samples in it.
            size: Bytes that were received for it.
            wait_s: Seconds that the loop waited for it.
        """
        if not 0 <= worker < len(self._spans):
            return
        span = self._tracer.start_span(
            "forebay.loader_batch",
            context=self._trace.set_span_in_context(self._spans[worker]),
            start_time=self._zero_ns + round(start * 1e9),
            attributes={
                "forebay.worker": worker,
                "forebay.samples": samples,
                "forebay.bytes": size,
                "forebay.wait_s": wait_s,
            },
        )
        span.end(self._zero_ns + round(end * 1e9))

    def end(self) -> None:
        """Ends the spans of the workers."""
        for span in self._spans:
            span.end()


def begin_worker_pass(workers: int) -> WorkerPass | None:
    """The spans of so many workers for a pass that begins now; None without a current span."""
    trace = _tracing()
    return None if trace is None else WorkerPass(trace, workers)


def inherit_span(source: Callable[[], SpanIds | None]) -> None:
    """Makes all calls of this process children of a span of another process.

    A span that is current in a thread goes before it, but for one that this process was forked with:
    no exporter of this process may know that.

    Args:
        source: Returns the ids of that span, or None while there is none; asked at each call.
    """
    global _inherited
    _inherited = source
    context: Any = sys.modules.get("opentelemetry.context")
    if context is not None:
        context.attach(context.Context())


def carried(function: F) -> F:
    """The function for another thread, where the span that is current here is current while it runs."""
    if _tracing() is None:
        return function
    context: Any = sys.modules["opentelemetry.context"]
    current = context.get_current()

    def run(*args: Any, **kwargs: Any) -> Any:
        token = context.attach(current)
        try:
            return function(*args, **kwargs)
        finally:
            context.detach(token)

    return run  # type: ignore[return-value]


def _tracing() -> Any:
    """The module ``opentelemetry.trace`` if a span is current and recording, else None."""
    trace = sys.modules.get(_API)
    # Another thread may be importing it.
    current = getattr(trace, "get_current_span", None)
    if current is None or not current().is_recording():
        return None
    return trace

