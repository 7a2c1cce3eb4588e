"""Calls within a span of OpenTelemetry have a span of their own; other calls have none.

`ci/opentelemetry.sh` fetches OpenTelemetry into a folder of its own; `make test-py` runs this file with
that folder in PYTHONPATH. Elsewhere the file is skipped.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import forebay
from forebay import _core
from forebay.single_reads import list_pinned
from forebay.spans import batch_span, call_span, carried
from forebay_fixture import python
from shard_files import tar

pytest.importorskip("opentelemetry.sdk", reason='PYTHONPATH="$(ci/opentelemetry.sh)" has OpenTelemetry')

from forebay_spans import EXPORTER, tracer  # noqa: F401
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider


@pytest.fixture
def step(tracer: trace.Tracer) -> Iterator[trace.Span]:
    """A span of the program, current in the test."""
    EXPORTER.clear()
    with tracer.start_as_current_span("step") as span:
        yield span


def spans_of(step: trace.Span) -> list[ReadableSpan]:
    """The finished spans of the package so far; each is a child of the program's."""
    found = list(EXPORTER.get_finished_spans())
    context = step.get_span_context()
    for span in found:
        assert span.parent is not None and span.parent.span_id == context.span_id
        assert span.context.trace_id == context.trace_id
        assert span.kind == trace.SpanKind.CLIENT
    EXPORTER.clear()
    return found


def parent_now() -> str | None:
    """The span that requests of this thread would carry."""
    before = _core.swap_span_parent(None)
    _core.swap_span_parent(before)
    return before


def put_by_parts(bucket: forebay.Bucket) -> None:
    writer = forebay.Writer(bucket.object("o"), part_size=4)
    writer.write(b"0123456789")
    writer.close()


CALLS: list[tuple[Callable[[forebay.Bucket], Any], str, dict[str, Any]]] = [
    (lambda b: b.object("o").get().read_all(), "forebay.get", {"object": "o", "bytes": 5}),
    (lambda b: b.object("o").get().memoryview(), "forebay.get", {"object": "o", "bytes": 5}),
    (lambda b: list(b.object("o").get()), "forebay.get", {"object": "o"}),
    (lambda b: b.object("o").get().read_into(bytearray(5)), "forebay.get", {"object": "o", "bytes": 5}),
    (lambda b: b.object("o").get(num_workers=2).memoryview(), "forebay.get", {"bytes": 5}),
    (lambda b: b.object("t.tar").get(archpath="m").read_all(), "forebay.get", {"bytes": 3}),
    (lambda b: list(b.object("t.tar").members()), "forebay.shard", {"object": "t.tar"}),
    (lambda b: b.object("o").put(b"hello"), "forebay.put", {"object": "o", "bytes": 5}),
    (put_by_parts, "forebay.put", {"object": "o", "bytes": 10}),
    (lambda b: b.put_many([("o", b"a"), ("p", b"bc")]), "forebay.put_many", {"objects": 2, "bytes": 3}),
    (lambda b: b.object("o").head(), "forebay.head", {"object": "o"}),
    (lambda b: b.object("o").copy(b.object("c")), "forebay.copy", {"object": "o"}),
    (lambda b: b.object("gone").delete(missing_ok=True), "forebay.delete", {"object": "gone"}),
    (lambda b: b.get_many(["o", "o"]), "forebay.batch", {"objects": 2, "bytes": 10, "failed": 0}),
    (lambda b: b.client.get_many([(b, "o")], as_bytes=True), "forebay.batch", {"bytes": 5}),
    (lambda b: b.client.submit_many([(b, "o"), (b, "no")]).result(), "forebay.batch", {"failed": 1}),
    (lambda b: b.client.batch(["o"], b).get_all(), "forebay.batch", {"objects": 1, "bytes": 5}),
    (lambda b: list(b.client.batch(["o", "o"], b).get()), "forebay.batch", {"objects": 2}),
    (lambda b: b.client.shard_indexes([b.object("t.tar")]), "forebay.shard_indexes", {"objects": 1}),
    (lambda b: list(b.list_objects()), "forebay.list", {"objects": 2}),
    (lambda b: b.list_snapshot(), "forebay.list", {"objects": 2}),
    (lambda b: list_pinned(b), "forebay.list", {}),
]


@pytest.mark.parametrize("call,name,counts", CALLS)
def test_a_call_has_one_span_with_its_bucket_and_counts(
    bucket: forebay.Bucket,
    tracer: trace.Tracer,
    call: Callable[[forebay.Bucket], Any],
    name: str,
    counts: dict[str, Any],
) -> None:
    bucket.object("o").put(b"hello")
    bucket.object("t.tar").put(tar([("m", b"123")]))
    EXPORTER.clear()
    with tracer.start_as_current_span("step") as step:
        call(bucket)
        (span,) = spans_of(step)
    assert parent_now() is None
    assert span.name == name
    attributes = dict(span.attributes or {})
    assert attributes["forebay.bucket"] == bucket.uri
    wanted = {f"forebay.{key}": value for key, value in counts.items()}
    assert wanted.items() <= attributes.items()


def test_a_failed_call_has_a_failed_span_without_the_message(
    bucket: forebay.Bucket, step: trace.Span
) -> None:
    with pytest.raises(forebay.NotFound) as raised:
        bucket.object("missing").get().read_all()
    (span,) = spans_of(step)
    assert span.status.status_code == trace.StatusCode.ERROR
    attributes = dict(span.attributes or {})
    assert attributes["error.type"] == span.status.description == "NotFound"
    assert attributes["forebay.request_id"] == raised.value.request_id
    assert not span.events


def test_a_stream_that_is_left_ends_its_span(bucket: forebay.Bucket, step: trace.Span) -> None:
    bucket.put_many((f"o{i}", b"x") for i in range(9))
    spans_of(step)
    answers = bucket.client.batch([f"o{i}" for i in range(9)], bucket).get()
    next(answers)
    assert spans_of(step) == []
    answers.close()
    (span,) = spans_of(step)
    assert span.status.status_code == trace.StatusCode.UNSET


def test_a_call_without_a_current_span_has_none(
    bucket: forebay.Bucket, tracer: trace.Tracer
) -> None:
    EXPORTER.clear()
    bucket.object("o").put(b"hello")
    unsampled = trace.NonRecordingSpan(trace.SpanContext(1, 1, is_remote=False))
    with trace.use_span(unsampled):
        assert bucket.get_many(["o"]) == [b"hello"]
        assert call_span("forebay.get", "ais://b") is call_span("forebay.put", "ais://b")
        function = bucket.get_many
        assert carried(function) is function
    assert not EXPORTER.get_finished_spans()


def test_requests_carry_the_span_of_the_call_that_sends_them(step: trace.Span) -> None:
    with call_span("outer", "ais://b"):
        outer = parent_now()
        with call_span("inner", "ais://b"):
            inner = parent_now()
        assert parent_now() == outer
    assert parent_now() is None
    found = {span.name: span.context for span in spans_of(step)}
    for header, name in ((outer, "outer"), (inner, "inner")):
        context = found[name]
        assert header == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


def test_a_span_that_is_recorded_but_not_sampled_is_carried_as_that(tracer: trace.Tracer) -> None:
    from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

    class RecordOnly(Sampler):
        def should_sample(self, *_: Any, **__: Any) -> SamplingResult:
            return SamplingResult(Decision.RECORD_ONLY)

        def get_description(self) -> str:
            return "records what nobody exports"

    own = TracerProvider(sampler=RecordOnly()).get_tracer("test")
    with own.start_as_current_span("step"), call_span("call", "ais://b"):
        header = parent_now()
    assert header is not None and header.endswith("-00")


def test_calls_in_threads_of_the_package_belong_to_the_span_of_their_caller(
    bucket: forebay.Bucket, step: trace.Span
) -> None:
    bucket.object("o").put(bytes(9 << 20))
    spans_of(step)

    async def awaited() -> bytes:
        own = forebay.AsyncClient(bucket.client.endpoint).bucket(bucket.name)
        return await own.object("o").get().read_all()

    assert len(asyncio.run(awaited())) == 9 << 20
    assert [span.name for span in spans_of(step)] == ["forebay.get"]
    with bucket.object("o").get_range_reader(window=1 << 20) as reader:
        while reader.read(1 << 20):
            pass
    names = [span.name for span in spans_of(step)]
    assert names.count("forebay.head") == 1 and names.count("forebay.get") > 1


def test_a_loaders_batch_is_current_while_it_is_made(step: trace.Span) -> None:
    with batch_span() as span:
        span.count(samples=3)
        with call_span("forebay.batch", "ais://b"):
            pass
    call, batch = EXPORTER.get_finished_spans()
    assert call.parent is not None and call.parent.span_id == batch.context.span_id
    assert dict(batch.attributes or {}) == {"forebay.samples": 3}
    EXPORTER.clear()
    with pytest.raises(StopIteration), batch_span():
        next(iter(()))
    assert not EXPORTER.get_finished_spans(), "the end of a pass is no batch"
    assert trace.get_current_span() is step


def test_the_package_does_not_import_opentelemetry() -> None:
    code = "import sys, forebay, forebay.aio, forebay.spans; print('opentelemetry' in sys.modules)"
    done = python(code)
    assert done.stdout.strip() == "False", done.stderr
    assert "opentelemetry" in sys.modules
